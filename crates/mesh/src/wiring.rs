//! A topology file: which switches there are, and which of them are cabled to which.
//!
//! ```toml
//! [[switch]]
//! name = "tor-1"
//! tier = "tor"                           # tor, aggregation or core
//! addresses = ["10.0.1.1", "fd00:1::1"]  # all that it may name itself by in traces
//! above = ["agg-1", "agg-2"]             # the switches of higher tiers that it is cabled to
//!
//! [[switch]]
//! name = "agg-1"
//! tier = "aggregation"
//!
//! [[switch]]
//! name = "agg-2"
//! tier = "aggregation"
//! ```
//!
//! RNICs are not in it: agents tell them, with the ToR that each is cabled to.

use std::net::IpAddr;

use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::topology::{Tier, TopologyBuilder, TopologyError};

/// No file is longer, in bytes.
const LONGEST: usize = 64 << 20;

/// Why a topology file is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WiringError {
    /// It is too long.
    #[error("it has {bytes} bytes; no more than {LONGEST} are read")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// It is not TOML.
    #[error(
        "line {line} is not TOML; there should be [[switch]] tables with name, tier, addresses and above"
    )]
    Syntax {
        /// Where, from 1.
        line: usize,
    },
    /// Something that is not known, so that a slip of the pen does not go unseen.
    #[error(
        "line {line}: {key:?} is not known; there are [[switch]] tables with name, tier, addresses and above"
    )]
    UnknownKey {
        /// Where, from 1.
        line: usize,
        /// What it is called.
        key: String,
    },
    /// A table lacks something, or has it in another form.
    #[error("line {line}: a [[switch]] needs {what}")]
    Field {
        /// Where the table begins, from 1.
        line: usize,
        /// What is missing, or of another type.
        what: &'static str,
    },
    /// An address that is none.
    #[error("line {line}: {text:?} is no address")]
    Address {
        /// Where the table begins, from 1.
        line: usize,
        /// As it was given.
        text: String,
    },
    /// What it says cannot be meant.
    #[error("line {line}: {error}")]
    Meaning {
        /// Where the table begins, from 1.
        line: usize,
        /// Why.
        error: TopologyError,
    },
}

/// One table.
struct Entry<'a> {
    line: usize,
    name: &'a str,
    tier: Tier,
    addresses: Vec<IpAddr>,
    above: Vec<&'a str>,
}

impl TopologyBuilder {
    /// All switches and cables of a topology file.
    ///
    /// # Errors
    /// If it is none: with the line and the reason.
    pub fn read(text: &str) -> Result<Self, WiringError> {
        if text.len() > LONGEST {
            return Err(WiringError::TooLong { bytes: text.len() });
        }
        let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
        let line = |at: usize| ends.partition_point(|end| *end < at) + 1;
        let whole = DeTable::parse(text).map_err(|error| WiringError::Syntax {
            line: line(error.span().map_or(text.len(), |span| span.start)),
        })?;
        let mut entries = Vec::new();
        for (key, value) in whole.get_ref() {
            let unknown =
                || WiringError::UnknownKey { line: line(key.span().start), key: key.get_ref().to_string() };
            let DeValue::Array(tables) = value.get_ref() else { return Err(unknown()) };
            if key.get_ref() != "switch" {
                return Err(unknown());
            }
            for table in tables {
                entries.push(entry(table, &line)?);
            }
        }
        let mut builder = Self::default();
        for Entry { line, name, tier, addresses, .. } in &entries {
            let added = builder.switch(name, *tier, addresses.iter().copied());
            added.map_err(|error| WiringError::Meaning { line: *line, error })?;
        }
        for Entry { line, name, above, .. } in &entries {
            for other in above {
                builder.cable(name, other).map_err(|error| WiringError::Meaning { line: *line, error })?;
            }
        }
        Ok(builder)
    }
}

fn entry<'a>(
    table: &'a Spanned<DeValue<'_>>,
    line: &impl Fn(usize) -> usize,
) -> Result<Entry<'a>, WiringError> {
    let at = line(table.span().start);
    let field = |what| WiringError::Field { line: at, what };
    let DeValue::Table(table) = table.get_ref() else {
        return Err(field("to be a table"));
    };
    let known = ["name", "tier", "addresses", "above"];
    if let Some(key) = table.keys().find(|key| !known.contains(&key.get_ref().as_ref())) {
        return Err(WiringError::UnknownKey { line: line(key.span().start), key: key.get_ref().to_string() });
    }
    let name = table.get("name").and_then(text).filter(|name| !name.is_empty());
    let tier = match table.get("tier").and_then(text) {
        Some("tor") => Some(Tier::Tor),
        Some("aggregation") => Some(Tier::Aggregation),
        Some("core") => Some(Tier::Core),
        _ => None,
    };
    let list = |name: &str, what| match table.get(name).map(Spanned::get_ref) {
        None => Ok(Vec::new()),
        Some(DeValue::Array(all)) => {
            all.iter().map(|one| text(one).ok_or_else(|| field(what))).collect::<Result<Vec<_>, _>>()
        }
        Some(_) => Err(field(what)),
    };
    let address =
        |text: &str| text.parse().map_err(|_| WiringError::Address { line: at, text: text.to_owned() });
    Ok(Entry {
        line: at,
        name: name.ok_or_else(|| field("a name, such as \"tor-1\""))?,
        tier: tier.ok_or_else(|| field("a tier: \"tor\", \"aggregation\" or \"core\""))?,
        addresses: list("addresses", "addresses as a list of strings")?
            .into_iter()
            .map(address)
            .collect::<Result<_, _>>()?,
        above: list("above", "above as a list of names")?,
    })
}

fn text<'a>(value: &'a Spanned<DeValue<'_>>) -> Option<&'a str> {
    match value.get_ref() {
        DeValue::String(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::topology::Node;

    const CLOS: &str = "
[[switch]]
name = \"t1\"
tier = \"tor\"
addresses = [\"10.0.1.1\", \"fd00:1::1\"]
above = [\"a1\", \"a2\"]
[[switch]]
name = \"a1\"
tier = \"aggregation\"
above = [\"c1\"]
[[switch]]
name = \"a2\"
tier = \"aggregation\"
[[switch]]
name = \"c1\"
tier = \"core\"
addresses = []
";

    #[test]
    fn switches_and_cables_are_read() {
        let topology = TopologyBuilder::read(CLOS).unwrap().build();
        let names: Vec<_> = topology.switches().iter().map(|switch| switch.name.as_str()).collect();
        assert_eq!(names, ["t1", "a1", "a2", "c1"]);
        assert_eq!(topology.switches()[0].above.len(), 2);
        assert_eq!(topology.links().len(), 6, "three cables");
        let owner = topology.owner("fd00:1::1".parse().unwrap());
        assert_eq!(owner, Some(Node::Switch(crate::SwitchId(0))));
    }

    #[test]
    fn the_network_of_kernel_routers_is_described_by_a_file() {
        let topology = TopologyBuilder::read(&ferroce_testkit::clos::wiring()).unwrap().build();
        assert_eq!((topology.switches().len(), topology.links().len()), (10, 2 * 16));
        let core = topology.owner("172.16.15.1".parse().unwrap());
        assert_eq!(core.map(|node| topology.name(node).to_owned()), Some("c1".to_owned()));
    }

    #[test]
    fn rnics_are_added_as_agents_tell_them() {
        let mut builder = TopologyBuilder::read(CLOS).unwrap();
        builder.rnic("h1/0", "10.1.0.2".parse().unwrap(), "h1", "t1").unwrap();
        let error = builder.rnic("h2/0", "10.1.0.3".parse().unwrap(), "h2", "c1").unwrap_err();
        assert!(matches!(error, TopologyError::RnicWithoutTor { .. }));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (before, after, expected) in [
            ("\"t1\"", "\"t1", "line 3 is not TOML"),
            ("tier = \"core\"", "tier = \"spine\"", "line 14: a [[switch]] needs a tier"),
            ("name = \"a2\"", "", "line 11: a [[switch]] needs a name"),
            ("name = \"a2\"", "name = \"t1\"", "line 11: t1 is described twice"),
            ("above = [\"c1\"]", "above = [\"a2\"]", "line 7: the cable from a1 to a2 makes a circle"),
            ("above = [\"c1\"]", "above = [\"a1\"]", "line 7: the cable from a1 to a1 makes a circle"),
            (
                "above = [\"c1\"]",
                "above = [\"c1\", \"t1\"]",
                "line 7: the cable from a1 to t1 is described twice",
            ),
            ("above = [\"c1\"]", "above = [\"c9\"]", "line 7: c9 is named and not described"),
            ("above = [\"c1\"]", "above = \"c1\"", "line 7: a [[switch]] needs above as a list of names"),
            ("above = [\"c1\"]", "below = [\"c1\"]", "line 10: \"below\" is not known"),
            (
                "addresses = []",
                "addresses = [\"10.0.1.1\"]",
                "line 14: 10.0.1.1 belongs to c1 and to another one",
            ),
            ("addresses = []", "addresses = [\"10.0.1\"]", "line 14: \"10.0.1\" is no address"),
            ("addresses = []", "[[router]]", "line 17: \"router\" is not known"),
        ] {
            assert!(CLOS.contains(before), "{before}");
            let error = TopologyBuilder::read(&CLOS.replacen(before, after, 1)).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}, not {expected}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(\\[\\[switch\\]\\]\n|name = \"[ab]\"\n|tier = \"(tor|core|x)\"\n|above = \\[\"[ab]\"\\]\n|[a-z=\\[\\]\"\n ]{0,5}){0,12}") {
            if let Err(error) = TopologyBuilder::read(&text) {
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }
}
