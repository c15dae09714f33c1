//! Errors that programs meet: each has a name of its own, may get more cases, prints no cause that it also
//! hands on, and stands in the page on errors.

use std::collections::BTreeMap;

use super::Finding;
use super::layers::ORDER;
use super::source::{attributes, end_of_item, line_of, mentions, without_tests, words};
use super::tree::Tree;

/// Crates of the house that no program imports: C programs see numbers, and the command prints.
const NO_LIBRARY: &[&str] = &["abi", "cli"];

/// The crates that programs import, through `ferroce`.
const IMPORTED: &[&str] = &["verbs", "endpoint", "broker"];

/// The page on errors.
const PAGE: &str = "docs/errors.md";

/// What a list that never grows says in its documentation.
const CLOSED: &str = "closed list";

/// A public error of a library.
struct Declared<'a> {
    home: &'a str,
    path: &'a str,
    line: usize,
    name: &'a str,
    is_enum: bool,
    may_grow: bool,
    says_closed: bool,
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let reexported = Reexported::of(tree);
    let page = tree.text(PAGE);
    let mut findings = Vec::new();
    let mut homes: BTreeMap<String, &str> = BTreeMap::new();
    for (path, code) in tree.code() {
        let Some(home) = library(path) else { continue };
        let text = tree.text(path).unwrap_or_default();
        let code = without_tests(code);
        let (declared, printed_twice) = look(home, path, text, &code);
        findings.extend(printed_twice);
        for error in declared {
            findings.extend(check_growth(&error));
            let known_as = reexported.name_of(home, error.name);
            let name = known_as.unwrap_or(error.name);
            let is_met = IMPORTED.contains(&home) || known_as.is_some();
            if is_met && page.is_some_and(|page| !page.contains(&format!("`{name}`"))) {
                let what = format!("programs meet `{name}`, and {PAGE} does not tell what it means");
                findings.push(Finding::new(path, error.line, what));
            }
            if let Some(other) = homes.insert(name.to_owned(), path) {
                let what =
                    format!("`{name}` is the name of an error in {other} too; say in the name what failed");
                findings.push(Finding::new(path, error.line, what));
            }
        }
    }
    findings
}

/// The crate that a source file of a library belongs to.
fn library(path: &str) -> Option<&str> {
    let (folder, rest) = path.strip_prefix("crates/")?.split_once('/')?;
    let is_library = ORDER.contains(&folder) && !NO_LIBRARY.contains(&folder);
    (is_library && rest.starts_with("src/")).then_some(folder)
}

/// What the crates that programs import hand on from those below: `pub use ferroce_crate::{Name, Name as
/// Other}`.
struct Reexported<'a>(BTreeMap<(&'a str, &'a str), &'a str>);

impl<'a> Reexported<'a> {
    fn of(tree: &'a Tree) -> Self {
        let mut found = BTreeMap::new();
        let imported = |path: &str| library(path).is_some_and(|home| IMPORTED.contains(&home));
        for (_, code) in tree.code().filter(|(path, _)| imported(path)) {
            for (start, head) in code.match_indices("pub use ferroce_") {
                let statement = &code[start + head.len()..];
                let statement = &statement[..statement.find(';').unwrap_or(statement.len())];
                let all: Vec<&str> = words(statement).map(|(_, word)| word).collect();
                // A path such as `ferroce_device::memory` leads into the crate that is named last.
                let path = all.iter().copied().take_while(|word| word.starts_with(char::is_lowercase));
                let Some(home) = path.filter(|word| ORDER.contains(word)).last() else { continue };
                found.extend(all.iter().map(|name| ((home, *name), *name)));
                let renamed = all.windows(3).filter(|three| three[1] == "as");
                found.extend(renamed.map(|three| ((home, three[0]), three[2])));
            }
        }
        Self(found)
    }

    /// The name by which programs know an error of a crate, if they do.
    fn name_of(&self, home: &str, name: &str) -> Option<&'a str> {
        self.0.get(&(home, name)).copied()
    }
}

fn check_growth(error: &Declared<'_>) -> Option<Finding> {
    let Declared { home, path, line, name, .. } = *error;
    let what = match (error.may_grow, error.says_closed) {
        (false, false) if error.is_enum => format!(
            "`{name}` of `{home}` may get more cases: mark it `#[non_exhaustive]`, or say in its documentation that it \
             is a {CLOSED}, and why"
        ),
        (true, true) => {
            format!("`{name}` of `{home}` says that it is a {CLOSED}, and is `#[non_exhaustive]`")
        }
        _ => return None,
    };
    Some(Finding::new(path, line, what))
}

/// The public errors of a file, and what their cases print although they hand it on.
fn look<'a>(home: &'a str, path: &'a str, text: &str, code: &'a str) -> (Vec<Declared<'a>>, Vec<Finding>) {
    let (mut declared, mut findings) = (Vec::new(), Vec::new());
    for run in runs(code) {
        let Some((kind, name)) = public_item(&code[run.end..]) else { continue };
        let by_hand =
            code.contains(&format!("Error for {name} ")) || code.contains(&format!("Error for {name}<"));
        if !run.bodies.iter().any(|(_, body)| derives_error(body)) && !by_hand {
            continue;
        }
        declared.push(Declared {
            home,
            path,
            line: line_of(code, run.end + 1),
            name,
            is_enum: kind == "enum",
            may_grow: run.bodies.iter().any(|(_, body)| body.trim() == "non_exhaustive"),
            says_closed: documentation(text, run.start).contains(CLOSED),
        });
        let item = run.end..end_of_item(code, run.end);
        // The message of a structure stands before it, those of an enumeration inside.
        let own = run.bodies.iter().map(|(offset, body)| (*offset, *body, item.clone()));
        let inside = attributes(&code[item.clone()]).into_iter().map(|(offset, body)| {
            let offset = item.start + offset;
            let after = offset + "#[]".len() + body.len();
            (offset, body, after..end_of_case(code, after, item.end))
        });
        for (offset, body, case) in own.chain(inside).filter(|(_, body, _)| body.starts_with("error(")) {
            let message = &text[offset..offset + "#[]".len() + body.len()];
            let printed = cause(&code[case]).filter(|field| prints(message, field));
            findings.extend(printed.map(|field| {
                let what = format!(
                    "the message of a case of `{name}` prints its cause ({field}), and a chain of causes prints it \
                     again; leave it out of the message"
                );
                Finding::new(path, line_of(code, offset), what)
            }));
        }
    }
    (declared, findings)
}

/// Attributes in a row, and where they begin and end.
struct Run<'a> {
    start: usize,
    end: usize,
    bodies: Vec<(usize, &'a str)>,
}

/// All attributes of each item. An item without attributes has no run.
fn runs(code: &str) -> Vec<Run<'_>> {
    let mut runs: Vec<Run<'_>> = Vec::new();
    for (offset, body) in attributes(code).into_iter().filter(|(offset, _)| code[*offset..].starts_with("#["))
    {
        let end = (offset + "#[]".len() + body.len()).min(code.len());
        match runs.last_mut() {
            Some(run) if code[run.end..offset].trim().is_empty() => {
                run.end = end;
                run.bodies.push((offset, body));
            }
            _ => runs.push(Run { start: offset, end, bodies: vec![(offset, body)] }),
        }
    }
    // What has an `impl` by hand may have no attribute at all.
    let mut start = 0;
    for line in code.split_inclusive('\n') {
        let has_run = |run: &Run<'_>| {
            code.get(run.end..start).is_some_and(|between| between.trim().is_empty())
                && !run.bodies.is_empty()
        };
        if (line.starts_with("pub struct ") || line.starts_with("pub enum ")) && !runs.iter().any(has_run) {
            runs.push(Run { start, end: start, bodies: Vec::new() });
        }
        start += line.len();
    }
    runs
}

/// `enum` or `struct`, and its name, if that is what comes next, open to all.
fn public_item(code: &str) -> Option<(&str, &str)> {
    let rest = code.trim_start().strip_prefix("pub ")?;
    let mut next = words(rest).map(|(_, word)| word);
    let (kind, name) = (next.next()?, next.next()?);
    ["enum", "struct"].contains(&kind).then_some((kind, name))
}

fn derives_error(attribute: &str) -> bool {
    let derived = attribute.trim().strip_prefix("derive(");
    derived.is_some_and(|list| {
        list.trim_end_matches(')').split(',').any(|one| {
            let one = one.trim();
            one == "Error" || one.ends_with("::Error")
        })
    })
}

/// The documentation that stands before an offset, in one line.
fn documentation(text: &str, before: usize) -> String {
    let mut lines: Vec<&str> = Vec::new();
    for line in text[..before].lines().rev() {
        match line.trim_start().strip_prefix("///") {
            Some(line) => lines.push(line.trim()),
            None => break,
        }
    }
    lines.reverse();
    lines.join(" ")
}

/// Where the case of an enumeration ends that begins at `from`: at a comma outside of brackets.
fn end_of_case(code: &str, from: usize, limit: usize) -> usize {
    let mut depth = 0;
    let end = code[from..limit].find(|c| {
        depth += i32::from("([{".contains(c)) - i32::from(")]}".contains(c));
        depth < 0 || (depth == 0 && c == ',')
    });
    end.map_or(limit, |end| from + end)
}

/// The field of a case that is handed on as what caused it: a name, or a place such as `0`.
fn cause(case: &str) -> Option<String> {
    let marks = ["#[from]", "#[source]"];
    let marked = marks.iter().filter_map(|mark| Some(case.find(mark)? + mark.len())).next();
    let named = |rest: &str| {
        let (_, name) = words(rest).find(|(_, word)| *word != "pub")?;
        let after = rest[rest.find(name)? + name.len()..].trim_start();
        (after.starts_with(':') && !after.starts_with("::")).then(|| name.to_owned())
    };
    match marked {
        Some(at) => Some(named(&case[at..]).unwrap_or_else(|| place(case, at).to_string())),
        // A field of this name is one without a mark.
        None => mentions(case, "source").find_map(|at| named(&case[at..])),
    }
}

/// Which field of a tuple lies at an offset: how many commas of its brackets are before.
fn place(case: &str, at: usize) -> usize {
    let (mut depth, mut commas) = (0, 0);
    for c in case[..at].chars() {
        depth += i32::from("([{<".contains(c)) - i32::from(")]}>".contains(c));
        commas += usize::from(c == ',' && depth == 1);
    }
    commas
}

/// Whether a message, with all its arguments, prints a field.
fn prints(message: &str, field: &str) -> bool {
    let inside = ["}", ":"].iter().any(|end| message.contains(&format!("{{{field}{end}")));
    let arguments = message.rfind('"').map_or("", |end| &message[end..]);
    let is_place = field.starts_with(|c: char| c.is_ascii_digit());
    let given = if is_place { format!(".{field}") } else { field.to_owned() };
    inside
        || arguments.match_indices(&given).any(|(at, _)| {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let before = arguments[..at].chars().next_back();
            let after = arguments[at + given.len()..].chars().next();
            (is_place || !before.is_some_and(is_word)) && !after.is_some_and(is_word)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).into_iter().map(|f| format!("{}:{}: {}", f.path, f.line, f.what)).collect()
    }

    fn in_verbs(text: &str) -> Vec<String> {
        found(&[("crates/verbs/src/error.rs", text)])
    }

    #[test]
    fn errors_as_they_should_be_are_fine() {
        let text = "/// Why.\n#[derive(Debug, Error)]\n#[non_exhaustive]\npub enum OpenError {\n\
                    /// A.\n#[error(\"no thread\")]\nThread(#[source] io::Error),\n\
                    #[error(transparent)]\nMemory(#[from] MemoryError),\n\
                    #[error(\"{0} is no host\")]\nHost(IpAddr),\n}\n\
                    #[derive(Debug, Error)]\n#[error(\"{taken} posted\")]\npub struct BatchError {\n\
                    pub taken: usize,\n#[source]\npub error: PostError,\n}\n";
        assert_eq!(in_verbs(text), [""; 0]);
    }

    #[test]
    fn a_name_is_used_once_unless_programs_know_it_by_another() {
        let error = "#[derive(Error)]\n#[non_exhaustive]\npub enum PostError {}\n";
        let files = [("crates/transport/src/posting.rs", error), ("crates/verbs/src/error.rs", error)];
        let twice = found(&files);
        assert_eq!(twice.len(), 1, "{twice:?}");
        let start = "crates/verbs/src/error.rs:3: `PostError` is the name of an error in crates/transport/src/posting.rs";
        assert!(twice[0].starts_with(start), "{twice:?}");
        let again =
            ("crates/verbs/src/lib.rs", "pub use ferroce_transport::{Caps, PostError as PostRefusal};\n");
        assert_eq!(found(&[files[0], files[1], again]), [""; 0]);
        let taken = ("crates/verbs/src/other.rs", "#[derive(Error)]\npub struct PostRefusal;\n");
        assert_eq!(found(&[files[0], files[1], again, taken]).len(), 1);
    }

    #[test]
    fn what_programs_meet_stands_in_the_page() {
        let error = "#[derive(Error)]\n#[non_exhaustive]\npub enum MemoryError {}\n";
        let [below, page] = [("crates/memory/src/error.rs", error), (PAGE, "| `OpenError` | it means |\n")];
        assert_eq!(found(&[below, page]), [""; 0], "no program sees it");
        let again = ("crates/verbs/src/lib.rs", "pub use ferroce_device::memory::{MemoryError, Access};\n");
        let missing = found(&[below, page, again]);
        let start = "crates/memory/src/error.rs:3: programs meet `MemoryError`, and docs/errors.md does not";
        assert!(missing.len() == 1 && missing[0].starts_with(start), "{missing:?}");
        assert_eq!(found(&[below, again, (PAGE, "| `MemoryError` | it means |\n")]), [""; 0]);
        let own = ("crates/broker/src/error.rs", "#[derive(Error)]\npub struct PoolError;\n");
        assert_eq!(found(&[own, page]).len(), 1);
    }

    #[test]
    fn a_structure_with_an_impl_by_hand_has_a_name_too() {
        let by_hand = "pub struct ServeError {\n    x: u8,\n}\nimpl std::error::Error for ServeError {}\n";
        let derived = "#[derive(Error)]\npub struct ServeError;\n";
        let twice = found(&[("crates/broker/src/a.rs", derived), ("crates/endpoint/src/b.rs", by_hand)]);
        assert_eq!(twice.len(), 1, "{twice:?}");
        assert!(twice[0].starts_with("crates/endpoint/src/b.rs:1: `ServeError`"), "{twice:?}");
    }

    #[test]
    fn what_programs_do_not_import_is_not_meant() {
        let error = "#[derive(Error)]\npub enum ReadError {}\n";
        let inner = "#[derive(Error)]\npub(crate) enum ReadError {}\n#[cfg(test)]\nmod tests {\n    #[derive(Error)]\n    pub enum A {}\n}\n";
        let files = [
            ("crates/cli/src/a.rs", error),
            ("crates/sim/src/a.rs", error),
            ("crates/verbs/tests/a.rs", error),
            ("crates/verbs/src/a.rs", inner),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn a_list_may_grow_or_says_that_it_does_not() {
        let open = in_verbs("#[derive(Debug, Error)]\npub enum OpenError {\n}\n");
        assert_eq!(open.len(), 1, "{open:?}");
        assert!(open[0].contains("error.rs:2: `OpenError` of `verbs` may get more cases"), "{open:?}");
        let qualified = in_verbs("#[derive(Debug, thiserror::Error)]\npub enum OpenError {\n}\n");
        assert_eq!(qualified.len(), 1, "{qualified:?}");
        let closed = "/// Why: a closed\n/// list, as the wire is.\n#[derive(Debug, Error)]\n";
        assert_eq!(in_verbs(&format!("{closed}pub enum ParseError {{}}\n")), [""; 0]);
        let both = in_verbs(&format!("{closed}#[non_exhaustive]\npub enum ParseError {{}}\n"));
        assert!(both.len() == 1 && both[0].contains("says that it is a closed list"), "{both:?}");
    }

    #[test]
    fn a_cause_that_is_handed_on_is_not_printed() {
        let cases = [
            ("#[error(\"lost: {0}\")]\nLost(#[from] Cause),", "0"),
            ("#[error(\"lost: {0:?}\")]\nLost(#[source] Cause),", "0"),
            ("#[error(\"{}\", .0)]\nLost(#[from] Cause),", "0"),
            ("#[error(\"lost\")]\nA(u8),\n#[error(\"{0} {1}\")]\nLost(u8, #[source] Cause),", "1"),
            (
                "#[error(\"{by}: {error}\")]\nRefused {\n/// Which.\nby: u8,\n#[source]\nerror: PostError,\n},",
                "error",
            ),
            (
                "#[error(\"{}: {source}\", .path.display())]\nCreate { path: PathBuf, source: io::Error },",
                "source",
            ),
            ("#[error(\"{}\", source)]\nCreate { source: io::Error },", "source"),
            ("#[error(\n\"one \\\n two {error}\"\n)]\nLong { #[source] error: io::Error },", "error"),
        ];
        for (case, field) in cases {
            let text = format!("#[derive(Error)]\n#[non_exhaustive]\npub enum OpenError {{\n{case}\n}}\n");
            let found = in_verbs(&text);
            assert_eq!(found.len(), 1, "{case}: {found:?}");
            assert!(found[0].contains(&format!("prints its cause ({field})")), "{case}: {found:?}");
        }
        let whole = "#[derive(Error)]\n#[error(\"stays: {reason}\")]\npub struct StayError {\n#[source]\npub reason: A,\n}\n";
        assert_eq!(in_verbs(whole).len(), 1);
    }

    #[test]
    fn what_only_looks_like_a_cause_may_be_printed() {
        let fine = [
            "#[error(\"{0} refused: {1}\")]\nRefused(u8, io::ErrorKind),",
            "#[error(\"{given} bytes\")]\nLong { given: usize, #[source] error: A },\n#[error(\"{error}\")]\nB { error: u8 },",
            "#[error(\"no {0}\")]\nA(u8, #[source] Cause),",
            "#[error(\"{}\", sources)]\nA { sources: u8, source: io::Error },",
            "#[error(transparent)]\nA(#[from] Cause),",
        ];
        for case in fine {
            let text = format!("#[derive(Error)]\n#[non_exhaustive]\npub enum OpenError {{\n{case}\n}}\n");
            assert_eq!(in_verbs(&text), [""; 0], "{case}");
        }
    }
}
