//! Which routers the packets of a tuple met, as an agent tells it; checked.

use std::net::IpAddr;

use ferroce_probe::paths::Path;

use crate::proto::v1;
use crate::window::{WindowError, address, bytes};

/// Traces of one window at most.
pub(crate) const TRACES: usize = 16_384;

/// Routers of one path at most.
const ROUTERS: usize = 32;

/// The path of packets of one tuple.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceReport {
    /// Where they come from.
    pub from: IpAddr,
    /// Where they go.
    pub to: IpAddr,
    /// The UDP source port.
    pub port: u16,
    /// The routers.
    pub path: Path,
}

impl TraceReport {
    pub(crate) fn from_message(message: &v1::Trace) -> Result<Self, WindowError> {
        let v1::Trace { from, to, port, routers, reaches } = message;
        if routers.len() > ROUTERS {
            return Err(WindowError::Routers { has: routers.len(), most: ROUTERS });
        }
        let router = |bytes: &Vec<u8>| if bytes.is_empty() { Ok(None) } else { address(bytes).map(Some) };
        let routers = routers.iter().map(router).collect::<Result<_, _>>()?;
        Ok(Self {
            from: address(from)?,
            to: address(to)?,
            port: u16::try_from(*port).map_err(|_| WindowError::Port { port: *port })?,
            path: Path { routers, reaches: *reaches },
        })
    }

    pub(crate) fn to_message(&self) -> v1::Trace {
        let routers = self.path.routers.iter().take(ROUTERS);
        v1::Trace {
            from: bytes(self.from),
            to: bytes(self.to),
            port: self.port.into(),
            routers: routers.map(|router| router.map(bytes).unwrap_or_default()).collect(),
            reaches: self.path.reaches && self.path.routers.len() <= ROUTERS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> TraceReport {
        let routers = vec![Some([10, 0, 0, 9].into()), None, Some([0xfd00, 0, 0, 0, 0, 0, 0, 1].into())];
        let (from, to) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        TraceReport { from, to, port: 50_001, path: Path { routers, reaches: true } }
    }

    #[test]
    fn a_trace_survives_its_message() {
        assert_eq!(TraceReport::from_message(&report().to_message()), Ok(report()));
    }

    #[test]
    fn what_is_no_trace_is_refused_with_its_reason() {
        let with = |change: fn(&mut v1::Trace)| {
            let mut message = report().to_message();
            change(&mut message);
            TraceReport::from_message(&message).unwrap_err()
        };
        assert_eq!(with(|trace| trace.routers[0].push(1)), WindowError::Address { bytes: 5 });
        assert_eq!(with(|trace| trace.to.clear()), WindowError::Address { bytes: 0 });
        assert_eq!(with(|trace| trace.port = 1 << 16), WindowError::Port { port: 1 << 16 });
        let many = with(|trace| trace.routers = vec![Vec::new(); ROUTERS + 1]);
        assert_eq!(many, WindowError::Routers { has: ROUTERS + 1, most: ROUTERS });
    }

    #[test]
    fn a_path_with_too_many_routers_is_told_as_one_whose_end_is_not_known() {
        let mut long = report();
        long.path.routers = vec![None; ROUTERS + 5];
        let told = TraceReport::from_message(&long.to_message()).unwrap();
        assert_eq!((told.path.routers.len(), told.path.reaches), (ROUTERS, false));
    }
}
