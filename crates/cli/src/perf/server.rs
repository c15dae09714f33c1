//! Where a server is: a host, and perhaps its port, as the command line has it.

use anyhow::anyhow;

/// The port on which the two ends agree if nothing is said.
pub(super) const PORT: u16 = 47_910;

/// A host, by name or address, and the port if it was named with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) host: String,
    pub(super) port: Option<u16>,
}

impl Server {
    /// Reads `host`, `host:port`, an address of either kind, or one of IPv6 in brackets with or without a port.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, after) = rest.split_once(']').ok_or("the bracket is not closed")?;
                let port = match after.strip_prefix(':') {
                    None if after.is_empty() => None,
                    None => {
                        return Err(format!("{after:?} after the bracket is no port; write [ADDRESS]:PORT"));
                    }
                    Some(port) => Some(port),
                };
                (host, port)
            }
            None => match text.split_once(':') {
                // Several colons without brackets: an address of IPv6, and nothing after it.
                Some((_, rest)) if rest.contains(':') => (text, None),
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        if host.is_empty() {
            return Err("there is no host; write HOST or HOST:PORT".to_owned());
        }
        let port = port.map(|port| read_port(port, host)).transpose()?;
        Ok(Self { host: host.to_owned(), port })
    }

    /// What is wrong if `--port` names another port.
    pub(super) fn disagrees(&self, other: Option<u16>) -> Option<anyhow::Error> {
        let (port, other) = self.port.zip(other).filter(|(port, other)| port != other)?;
        Some(anyhow!("--connect says port {port}, and --port says {other}; say it once"))
    }
}

fn read_port(text: &str, host: &str) -> Result<u16, String> {
    let port = text.parse().ok().filter(|port| *port != 0);
    port.ok_or_else(|| format!("{text:?} after {host:?} is no port from 1 to 65535"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_read() {
        for (text, host, port) in [
            ("localhost", "localhost", None),
            ("localhost:47911", "localhost", Some(47_911)),
            ("192.0.2.1", "192.0.2.1", None),
            ("192.0.2.1:1", "192.0.2.1", Some(1)),
            ("::1", "::1", None),
            ("2001:db8::7", "2001:db8::7", None),
            ("[::1]", "::1", None),
            ("[::1]:65535", "::1", Some(65_535)),
        ] {
            assert_eq!(Server::parse(text), Ok(Server { host: host.to_owned(), port }), "{text}");
        }
    }

    #[test]
    fn what_is_no_port_is_named() {
        for (text, complaint) in [
            ("localhost:", "\"\" after \"localhost\" is no port from 1 to 65535"),
            ("localhost:0", "\"0\" after"),
            ("localhost:65536", "\"65536\" after"),
            ("localhost:http", "\"http\" after"),
            ("[::1]:x", "\"x\" after \"::1\""),
            ("[::1]7", "write [ADDRESS]:PORT"),
            ("[::1", "not closed"),
            (":7", "there is no host"),
            ("", "there is no host"),
        ] {
            let said = Server::parse(text).expect_err(text);
            assert!(said.contains(complaint), "{text}: {said}");
        }
    }

    #[test]
    fn a_port_that_is_said_twice_must_be_the_same() {
        let server = Server::parse("localhost:5").expect("a port");
        assert!(server.disagrees(None).is_none() && server.disagrees(Some(5)).is_none());
        let said = server.disagrees(Some(6)).expect("another one").to_string();
        assert_eq!(said, "--connect says port 5, and --port says 6; say it once");
        assert!(Server::parse("localhost").expect("a host").disagrees(Some(6)).is_none());
    }
}
