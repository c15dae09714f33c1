//! Where something goes that leaves the analyzer.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

/// Why a text does not say where something goes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OutletUrlError {
    /// It is no URL.
    #[error("{url:?} is no URL; write one such as http://127.0.0.1:9090/api/v1/write")]
    Text {
        /// The text.
        url: String,
    },
    /// It is not http.
    #[error(
        "{url:?} is not http; only http to this machine is spoken, so let a program here carry it on, \
         such as a collector or a proxy with TLS"
    )]
    Scheme {
        /// The text.
        url: String,
    },
    /// It is not on this machine.
    #[error(
        "{host} is not on this machine, and nothing leaves it in plain text; let a program here carry it \
         on, such as a collector or a proxy with TLS"
    )]
    NotLoopback {
        /// The host.
        host: String,
    },
}

/// Where something goes: a place on this machine, and a path there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The host as it is written, for the head of a request.
    host: String,
    addresses: Vec<IpAddr>,
    port: u16,
    path: String,
}

impl Target {
    /// Reads a URL. One without a path gets the usual one.
    pub(super) fn read(url: &str, usual: (u16, &str)) -> Result<Self, OutletUrlError> {
        let short = || url.chars().take(64).collect::<String>();
        let text = || OutletUrlError::Text { url: short() };
        if !url.bytes().all(|byte| byte.is_ascii_graphic()) || url.contains(['#', '@', '"', '\\', '<', '>']) {
            return Err(text());
        }
        let rest = match url.split_once("://") {
            Some(("http", rest)) => rest,
            Some((scheme, _)) if !scheme.is_empty() => {
                return Err(OutletUrlError::Scheme { url: short() });
            }
            _ => return Err(text()),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (host, port) = host_and_port(authority, usual.0).ok_or_else(text)?;
        let addresses = if host.eq_ignore_ascii_case("localhost") {
            vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
        } else {
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            let address = bare.parse::<IpAddr>().ok().filter(IpAddr::is_loopback);
            vec![address.ok_or_else(|| OutletUrlError::NotLoopback { host: host.to_owned() })?]
        };
        let path = match path {
            "" | "/" => usual.1.to_owned(),
            path if path.starts_with('?') => format!("/{path}"),
            path => path.to_owned(),
        };
        Ok(Self { host: host.to_owned(), addresses, port, path })
    }

    /// All addresses that it may be at.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.iter().map(|address| SocketAddr::new(*address, self.port)).collect()
    }

    /// The host and the port.
    pub(super) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// What is asked for there.
    pub(super) fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.path)
    }
}

fn host_and_port(authority: &str, usual: u16) -> Option<(&str, u16)> {
    let after = authority.rfind(']').map_or(0, |place| place + 1);
    let (host, port) = match authority[after..].split_once(':') {
        Some((before, port)) => (&authority[..after + before.len()], port.parse().ok()?),
        None => (authority, usual),
    };
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    (!host.is_empty() && port != 0 && (is_bracketed || !host.contains(['[', ']', ':'])))
        .then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<String, OutletUrlError> {
        Target::read(url, (9090, "/api/v1/write")).map(|target| target.to_string())
    }

    #[test]
    fn a_place_on_this_machine_is_taken_and_what_is_missing_is_the_usual() {
        for (url, normal) in [
            ("http://127.0.0.1:9090/api/v1/write", "http://127.0.0.1:9090/api/v1/write"),
            ("http://127.0.0.1", "http://127.0.0.1:9090/api/v1/write"),
            ("http://localhost:80/", "http://localhost:80/api/v1/write"),
            ("http://[::1]:1/x?y=z", "http://[::1]:1/x?y=z"),
            ("http://[::1]/x", "http://[::1]:9090/x"),
            ("http://127.3.2.1:8?a", "http://127.3.2.1:8/?a"),
        ] {
            assert_eq!(read(url).as_deref(), Ok(normal));
        }
        let both = Target::read("http://localhost:7", (1, "/")).unwrap().addresses();
        assert_eq!(both, ["127.0.0.1:7".parse().unwrap(), "[::1]:7".parse().unwrap()]);
    }

    #[test]
    fn what_is_none_is_refused_with_its_reason() {
        for url in [
            "",
            "127.0.0.1:9090",
            "http://",
            "http://:1",
            "http://127.0.0.1:0",
            "http://127.0.0.1:99999",
            "http://127.0.0.1:x",
            "http://a b",
            "http://user@127.0.0.1",
            "http://127.0.0.1/\r\nX: y",
            "http://[::1",
            "http://::1:80",
            "http://127.0.0.1#x",
        ] {
            assert!(matches!(read(url), Err(OutletUrlError::Text { .. })), "{url}: {:?}", read(url));
        }
        for url in ["https://127.0.0.1:1", "ftp://127.0.0.1"] {
            assert!(matches!(read(url), Err(OutletUrlError::Scheme { .. })), "{url}");
        }
        for url in ["http://10.0.0.1:1", "http://prometheus.example/x", "http://0.0.0.0:1", "http://[::2]:1"]
        {
            assert!(matches!(read(url), Err(OutletUrlError::NotLoopback { .. })), "{url}");
        }
    }
}
