//! The members of a mesh: their numbers and addresses.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::str::FromStr;

use thiserror::Error;
use toml::de::{DeTable, DeValue};

/// One server of a mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// Its number, which stays when it comes back after a crash.
    pub id: u32,
    /// Where it listens: the address of its device, and the port of its first lane.
    pub address: SocketAddr,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "member {} ({})", self.id, self.address)
    }
}

/// All members of a mesh, in the order of their numbers. Every member must be given the same list.
///
/// ```
/// use ferroce_broker::Members;
///
/// let by_place: Members = "127.0.0.1:7471,127.0.0.2:7471".parse()?;
/// let by_number: Members = "1=127.0.0.2:7471,0=127.0.0.1:7471".parse()?;
/// assert_eq!(by_place, by_number);
/// # Ok::<(), ferroce_broker::MemberListError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members(Vec<Member>);

/// Why a list of members is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MemberListError {
    /// There is no member on it.
    #[error("the list has no members; name at least one as host:port")]
    Empty,
    /// More members than a mesh has.
    #[error("{given} members; a mesh has at most {}", Members::MOST)]
    TooMany {
        /// Members given.
        given: usize,
    },
    /// Two members have one number.
    #[error("{first} and {second} have the same id; give each member its own")]
    DuplicateId {
        /// The first of them.
        first: Member,
        /// The second.
        second: Member,
    },
    /// Two members listen at one place.
    #[error("{first} and {second} have the same address; give each member its own")]
    DuplicateAddress {
        /// The first of them.
        first: Member,
        /// The second.
        second: Member,
    },
    /// An address that no single server has, such as 0.0.0.0.
    #[error("{member} has an address that no single server has; name the address of its device")]
    NotOne {
        /// Which.
        member: Member,
    },
    /// An entry cannot be read.
    #[error("entry {entry} of the list ({text:?}) is not host:port or id=host:port")]
    Entry {
        /// Which, from 1 on.
        entry: usize,
        /// As it was given.
        text: String,
    },
    /// A host has no address.
    #[error("no address is known for {host:?}: {error}")]
    Unresolved {
        /// The host and port.
        host: String,
        /// What the system says.
        error: io::ErrorKind,
    },
    /// The file cannot be read.
    #[error("the list of members cannot be read: {0}")]
    File(io::ErrorKind),
    /// The file is not TOML.
    #[error("line {line} of the list is not TOML; it should have [[member]] tables with id and address")]
    Syntax {
        /// Where, from 1 on.
        line: usize,
    },
    /// A table lacks what a member has.
    #[error("[[member]] table {table} needs {what}")]
    Field {
        /// Which, from 1 on.
        table: usize,
        /// What is missing or of another type.
        what: &'static str,
    },
}

impl Members {
    /// Members of a mesh at most.
    pub const MOST: usize = 1024;

    /// A list of numbers and addresses.
    ///
    /// # Errors
    /// It has no members, too many, or two that are not told apart.
    pub fn new(members: impl IntoIterator<Item = (u32, SocketAddr)>) -> Result<Self, MemberListError> {
        // Written one way, whichever way it was given: peers compare it with where packets come from.
        let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        let member = |(id, address)| Member { id, address: plain(address) };
        let mut list: Vec<_> = members.into_iter().map(member).collect();
        if list.is_empty() {
            return Err(MemberListError::Empty);
        }
        if list.len() > Self::MOST {
            return Err(MemberListError::TooMany { given: list.len() });
        }
        let is_one = |ip: IpAddr| !ip.is_unspecified() && !ip.is_multicast() && ip != Ipv4Addr::BROADCAST;
        if let Some(&member) = list.iter().find(|member| !is_one(member.address.ip())) {
            return Err(MemberListError::NotOne { member });
        }
        list.sort_by_key(|member| member.id);
        let mut addresses = BTreeMap::new();
        for (place, &second) in list.iter().enumerate() {
            if let Some(&first) = place.checked_sub(1).and_then(|before| list.get(before))
                && first.id == second.id
            {
                return Err(MemberListError::DuplicateId { first, second });
            }
            if let Some(first) = addresses.insert(second.address, second) {
                return Err(MemberListError::DuplicateAddress { first, second });
            }
        }
        Ok(Self(list))
    }

    /// Reads a TOML file: one `[[member]]` table for each, with `id` and `address`.
    ///
    /// # Errors
    /// What is wrong with the file or the list.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, MemberListError> {
        let text = std::fs::read_to_string(path).map_err(|error| MemberListError::File(error.kind()))?;
        Self::from_toml(&text)
    }

    /// Reads the same from a string.
    ///
    /// ```
    /// # use ferroce_broker::Members;
    /// let members = Members::from_toml(
    ///     r#"
    ///     [[member]]
    ///     id = 1
    ///     address = "127.0.0.1:7471"
    ///     [[member]]
    ///     id = 2
    ///     address = "127.0.0.2:7471"
    ///     "#,
    /// )?;
    /// assert_eq!(members.len(), 2);
    /// # Ok::<(), ferroce_broker::MemberListError>(())
    /// ```
    ///
    /// # Errors
    /// What is wrong with the text or the list.
    pub fn from_toml(text: &str) -> Result<Self, MemberListError> {
        let root = DeTable::parse(text).map_err(|error| {
            let before = error.span().map_or(0, |span| span.start).min(text.len());
            MemberListError::Syntax {
                line: 1 + text.bytes().take(before).filter(|byte| *byte == b'\n').count(),
            }
        })?;
        let tables = root.get_ref().get("member").and_then(|value| value.get_ref().as_array());
        let mut found = Vec::new();
        for (place, table) in tables.into_iter().flat_map(|tables| tables.iter()).enumerate() {
            let wrong = |what| MemberListError::Field { table: place + 1, what };
            let table = table.get_ref().as_table().ok_or(wrong("id and address"))?;
            let field = |name: &str| table.get(name).map(toml::Spanned::get_ref);
            let id = field("id")
                .and_then(DeValue::as_integer)
                .and_then(|number| u32::from_str_radix(number.as_str(), number.radix()).ok());
            let id = id.ok_or(wrong("an id from 0 to 4294967295"))?;
            let address = field("address").and_then(DeValue::as_str).ok_or(wrong("an address host:port"))?;
            found.push((id, resolve(address)?));
        }
        Self::new(found)
    }

    /// How many.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Never: a list has members.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Member> + '_ {
        self.0.iter().copied()
    }

    /// The one with this number.
    #[must_use]
    pub fn get(&self, id: u32) -> Option<Member> {
        self.0.binary_search_by_key(&id, |member| member.id).ok().map(|place| self.0[place])
    }
}

/// `host:port,host:port`, numbered from 0 on, or `id=host:port,id=host:port`.
impl FromStr for Members {
    type Err = MemberListError;

    fn from_str(text: &str) -> Result<Self, MemberListError> {
        let mut found = Vec::new();
        for (place, entry) in text.split(',').enumerate() {
            let entry = entry.trim();
            let wrong = || MemberListError::Entry { entry: place + 1, text: entry.to_owned() };
            if entry.is_empty() && text.trim().is_empty() {
                return Err(MemberListError::Empty);
            }
            let (id, host) = match entry.split_once('=') {
                Some((id, host)) => (id.trim().parse().map_err(|_| wrong())?, host.trim()),
                None => (u32::try_from(place).map_err(|_| wrong())?, entry),
            };
            let port = host.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
            port.ok_or_else(wrong)?;
            found.push((id, resolve(host)?));
        }
        Self::new(found)
    }
}

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, Member { id, address }) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{id}={address}")?;
        }
        Ok(())
    }
}

/// The first address that a name means.
fn resolve(host: &str) -> Result<SocketAddr, MemberListError> {
    let unresolved = |error| MemberListError::Unresolved { host: host.to_owned(), error };
    let mut found = host.to_socket_addrs().map_err(|error| unresolved(error.kind()))?;
    found.next().ok_or(unresolved(io::ErrorKind::NotFound))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u32, last: u8) -> (u32, SocketAddr) {
        (id, SocketAddr::from(([127, 0, 0, last], 7471)))
    }

    #[test]
    fn a_list_is_the_same_from_text_toml_and_values() {
        let values = Members::new([member(5, 2), member(1, 1)]).unwrap();
        let text: Members = "5=127.0.0.2:7471, 1=127.0.0.1:7471".parse().unwrap();
        let toml =
            "[[member]]\nid = 0x1\naddress = \"127.0.0.1:7471\"\n[[member]]\nid=5\naddress='127.0.0.2:7471'";
        assert_eq!(values, text);
        assert_eq!(values, Members::from_toml(toml).unwrap());
        assert_eq!(values, values.to_string().parse().unwrap());
        assert_eq!(values.get(5).unwrap().address, member(5, 2).1);
        assert_eq!(values.get(2), None);
    }

    #[test]
    fn duplicate_ids_name_both_members() {
        let error = Members::new([member(3, 1), member(4, 2), member(3, 9)]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("127.0.0.1:7471") && text.contains("127.0.0.9:7471"), "{text}");
        let error = Members::new([member(3, 1), member(4, 1)]).unwrap_err();
        assert!(matches!(error, MemberListError::DuplicateAddress { .. }));
    }

    #[test]
    fn an_address_is_that_of_one_server_however_it_is_written() {
        for host in ["0.0.0.0", "[::]", "224.0.0.1", "[ff02::1]", "255.255.255.255", "[::ffff:0.0.0.0]"] {
            let error = format!("127.0.0.1:1,{host}:2").parse::<Members>().unwrap_err();
            assert!(
                matches!(error, MemberListError::NotOne { member: Member { id: 1, .. } }),
                "{host}: {error}"
            );
        }
        let mapped: Members = "[::ffff:127.0.0.1]:1".parse().unwrap();
        assert_eq!(mapped, "127.0.0.1:1".parse().unwrap());
    }

    #[test]
    fn what_is_no_list_is_named() {
        let parse = |text: &str| text.parse::<Members>().unwrap_err();
        assert_eq!(parse(""), MemberListError::Empty);
        assert_eq!(
            parse("127.0.0.1:1,nonsense"),
            MemberListError::Entry { entry: 2, text: "nonsense".into() }
        );
        assert!(matches!(parse("x=127.0.0.1:1"), MemberListError::Entry { entry: 1, .. }));
        assert!(matches!(parse("127.0.0.1:70000"), MemberListError::Entry { entry: 1, .. }));
        let toml = |text| Members::from_toml(text).unwrap_err();
        assert_eq!(toml("[[member]]\nid = = 3"), MemberListError::Syntax { line: 2 });
        assert_eq!(toml(""), MemberListError::Empty);
        assert!(matches!(
            toml("[[member]]\nid = -1\naddress='127.0.0.1:1'"),
            MemberListError::Field { table: 1, .. }
        ));
        assert!(matches!(toml("[[member]]\nid = 1"), MemberListError::Field { table: 1, .. }));
    }
}
