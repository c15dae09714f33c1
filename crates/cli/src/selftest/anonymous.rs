//! What is taken out of a report before it is sent: what names a machine, its users, and its place in a network.

use std::env;
use std::fs;
use std::net::{IpAddr, Ipv6Addr};

use ferroce::Gid;
use ferroce_device::discovery;

use super::machine::Secrets;

/// What names this machine and its users.
#[derive(Debug)]
pub(super) struct Names {
    /// Words, and what is said instead.
    words: Vec<(String, &'static str)>,
    /// Pieces of text that may stand anywhere, such as addresses as lists of bytes.
    pieces: Vec<(String, &'static str)>,
    whole: bool,
}

impl Names {
    /// Nothing is taken out.
    pub(super) const fn none() -> Self {
        Self { words: Vec::new(), pieces: Vec::new(), whole: true }
    }

    /// The names of this machine, its users and addresses, and of a device.
    pub(super) fn of_this_machine(secrets: &Secrets) -> Self {
        let home = env::var("HOME").unwrap_or_default();
        let mut words: Vec<(String, &str)> = vec![(host(), "<host>")];
        // A name such as `a.example.org` is one without its domain, too.
        words.extend(host().split_once('.').map(|(short, _)| (short.to_owned(), "<host>")));
        words.extend(users().into_iter().map(|user| (user, "<user>")));
        words.extend(home.rsplit('/').next().map(|last| (last.to_owned(), "<user>")));
        let interfaces = discovery::interfaces().unwrap_or_default();
        let addresses = interfaces.into_iter().flat_map(|info| info.addresses).map(Gid::from);
        let mut pieces = Vec::new();
        for gid in addresses.chain(secrets.gids.iter().copied()) {
            pieces.extend(spellings(gid).into_iter().map(|text| (text, "<address>")));
        }
        for guid in secrets.guids.iter().copied().filter(|guid| *guid != 0) {
            for text in [format!("{guid:x}"), format!("{guid:016x}"), format!("{guid:X}"), guid.to_string()] {
                words.push((text.clone(), "<guid>"));
                words.push((format!("0x{text}"), "<guid>"));
            }
        }
        words.retain(|(word, _)| !word.is_empty());
        Self { words, pieces, whole: false }
    }

    /// Whether nothing is taken out.
    pub(super) const fn is_whole(&self) -> bool {
        self.whole
    }

    /// A text without what names this machine or another one.
    pub(super) fn clean(&self, text: &str) -> String {
        if self.whole {
            return text.to_owned();
        }
        let mut text = text.to_owned();
        for (piece, instead) in &self.pieces {
            text = text.replace(piece, instead);
        }
        let mut clean = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(start) = rest.find(in_token) {
            clean.push_str(&rest[..start]);
            let token = &rest[start..];
            let end = token.find(|c| !in_token(c)).unwrap_or(token.len());
            clean.push_str(&self.token(&token[..end]));
            rest = &token[end..];
        }
        clean.push_str(rest);
        clean
    }

    /// A word, a number, an address, a path.
    fn token(&self, token: &str) -> String {
        // What ends a sentence is no part of what stands before it.
        let body = token.trim_end_matches(['.', ':', ',']);
        let tail = &token[body.len()..];
        let instead = match body {
            _ if is_address(body) => "<address>".to_owned(),
            _ if is_number_of_device(body) => "<guid>".to_owned(),
            _ => match path_in(body) {
                Some(at) => format!("{}<path>", self.words_of(&body[..at])),
                None => self.words_of(body),
            },
        };
        instead + tail
    }

    /// The same text without the words that name something.
    fn words_of(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (word, instead) in &self.words {
            text = without(&text, word, instead);
        }
        text
    }
}

/// The name of this machine.
pub(super) fn host() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// The names of the user of this process, as far as they are known.
fn users() -> Vec<String> {
    let mut users: Vec<String> =
        ["USER", "LOGNAME", "SUDO_USER"].iter().filter_map(|name| env::var(name).ok()).collect();
    let own = rustix::process::getuid().as_raw().to_string();
    let known = fs::read_to_string("/etc/passwd").unwrap_or_default();
    users.extend(known.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        (id == own).then(|| name.to_owned())
    }));
    users
}

/// How an address may be written that is not seen by its form.
fn spellings(gid: Gid) -> Vec<String> {
    let v6 = match gid.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let list = |bytes: &[u8]| format!("{bytes:?}").trim_matches(['[', ']']).to_owned();
    let whole = v6.segments().map(|part| format!("{part:04x}")).join(":");
    let mut all = vec![list(&v6.octets()), whole, gid.to_string()];
    match gid.ip() {
        IpAddr::V4(ip) => all.extend([list(&ip.octets()), ip.to_string()]),
        IpAddr::V6(ip) => all.push(ip.to_string()),
    }
    // What stands for no address, or for every machine's own, names nothing, and its text may be a part of others.
    let names_nothing = v6.is_unspecified() || gid.ip() == IpAddr::V6(Ipv6Addr::LOCALHOST);
    all.retain(|text| !names_nothing && !text.is_empty());
    all
}

/// What words, numbers, addresses and paths are made of.
const fn in_token(c: char) -> bool {
    c.is_ascii_alphanumeric()
        || matches!(c, '_' | '-' | '.' | ':' | '/' | '%' | '~' | '@' | '+')
        || !c.is_ascii()
}

fn is_address(text: &str) -> bool {
    let bare = |text: &str| text.parse::<IpAddr>().is_ok();
    // With an interface, a prefix or a port.
    let before = |mark: char| text.split_once(mark).is_some_and(|(address, _)| bare(address));
    bare(text) || before('%') || before('/') || text.parse::<std::net::SocketAddr>().is_ok()
}

/// Whether it is a hardware address or a GUID: at least three groups of two or four hexadecimal digits.
fn is_number_of_device(text: &str) -> bool {
    let is_group = |part: &str| matches!(part.len(), 2 | 4) && part.bytes().all(|c| c.is_ascii_hexdigit());
    text.split([':', '-']).count() >= 3 && text.split([':', '-']).all(is_group)
}

/// Where a path from the root or from a home begins, if there is one.
fn path_in(text: &str) -> Option<usize> {
    let at = text.find('/')?;
    let before = &text[..at];
    if let Some(home) = before.rfind('~') {
        return Some(home);
    }
    (before.is_empty() || before.ends_with([':', '@'])).then_some(at)
}

/// Text in which another text stands for a word. A word ends where letters, digits and underscores do.
fn without(text: &str, word: &str, instead: &str) -> String {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        let begins = !before.chars().next_back().or_else(|| clean.chars().next_back()).is_some_and(in_word);
        let ends = !after.starts_with(in_word);
        clean.push_str(before);
        clean.push_str(if begins && ends { instead } else { word });
        rest = after;
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let gids = vec![
            Gid::from(IpAddr::from([198, 51, 100, 7])),
            "fe80::5054:ff:fe12:3456".parse().map(IpAddr::V6).map(Gid::from).unwrap(),
        ];
        let secrets = Secrets { gids, guids: vec![0x5054_00ff_fe12_3456] };
        let mut names = Names::of_this_machine(&secrets);
        names.words.retain(|(_, instead)| *instead == "<guid>");
        names.words.extend([("box7".to_owned(), "<host>"), ("alice".to_owned(), "<user>")]);
        names
    }

    #[test]
    fn what_names_a_machine_is_taken_out_and_the_rest_stays() {
        let names = names();
        for (text, clean) in [
            (
                "nothing to hide: 44.0 of 138, a::Case { id: 7 }",
                "nothing to hide: 44.0 of 138, a::Case { id: 7 }",
            ),
            (
                "assertion `left == right` failed\n  left: Rts",
                "assertion `left == right` failed\n  left: Rts",
            ),
            ("on box7, by alice.", "on <host>, by <user>."),
            ("malice and box77 and box7_x", "malice and box77 and box7_x"),
            ("6.1.0-box7 alice@box7", "6.1.0-<host> <user>@<host>"),
            ("from 192.0.2.1:4791 to 10.0.0.1.", "from <address> to <address>."),
            ("gid ::ffff:10.0.0.1, fe80::1%eth0", "gid <address>, <address>"),
            ("net 10.1.0.0/16 [fe80::2]:4791", "net <address> [<address>]:4791"),
            ("52:54:00:12:34:56 5054:00ff:fe12:3456", "<guid> <guid>"),
            ("guid 505400fffe123456 0x505400FFFE123456 5788252520557196374", "guid <guid> <guid> <guid>"),
            ("Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 198, 51, 100, 7])", "Gid([<address>])"),
            ("to [198, 51, 100, 7]", "to [<address>]"),
            ("at /srv/alice/x.rs:12: no", "at <path>: no"),
            ("lib=/usr/lib/a.so file:/etc/b ~/c", "lib=<path> file:<path> <path>"),
            ("crates/verbs and order.rs:12", "crates/verbs and order.rs:12"),
            ("READ/WRITE 1/2", "READ/WRITE 1/2"),
        ] {
            assert_eq!(names.clean(text), clean);
            assert_eq!(Names::none().clean(text), text);
        }
    }

    #[test]
    fn this_machine_is_known() {
        let names = Names::of_this_machine(&Secrets::default());
        assert!(names.words.iter().any(|(word, instead)| *word == host() && *instead == "<host>"));
        assert_eq!(names.clean(&format!("x {} y", host())), "x <host> y");
        assert!(!users().is_empty());
        for user in users() {
            assert_ne!(names.clean(&user), user);
        }
    }
}
