//! A queue pair of a service, as an agent tells it; checked.

use std::net::IpAddr;

use ferroce_verbs::processes::check_service_name;

use crate::proto::v1;
use crate::window::{WindowError, address, bytes};

/// Queue pairs of services in one window at most.
pub(crate) const SERVICE_FLOWS: usize = 1024;

/// No card sends so many packets in a window.
const PACKETS: u64 = 1 << 48;

/// A queue pair of a service that is connected to an RNIC of the mesh, and what it did in a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceFlowReport {
    /// What the service is called.
    pub service: String,
    /// Where its packets leave from.
    pub from: IpAddr,
    /// Where they go.
    pub to: IpAddr,
    /// Their UDP source port.
    pub port: u16,
    /// The number of the queue pair.
    pub qpn: u32,
    /// The number of the queue pair that it is connected to.
    pub peer_qpn: u32,
    /// Packets that it sent.
    pub sent: u64,
    /// Packets that it sent again, and times that it waited for an answer in vain.
    pub again: u64,
}

impl ServiceFlowReport {
    pub(crate) fn from_message(message: &v1::ServiceFlow) -> Result<Self, WindowError> {
        let v1::ServiceFlow { service, from, to, port, qpn, peer_qpn, sent, again } = message;
        check_service_name(service)?;
        if *sent > PACKETS || *again > PACKETS {
            return Err(WindowError::Packets { sent: *sent, again: *again });
        }
        let number = |qpn: u32| if qpn < 1 << 24 { Ok(qpn) } else { Err(WindowError::Qpn { qpn }) };
        Ok(Self {
            service: service.clone(),
            from: address(from)?,
            to: address(to)?,
            port: u16::try_from(*port).map_err(|_| WindowError::Port { port: *port })?,
            qpn: number(*qpn)?,
            peer_qpn: number(*peer_qpn)?,
            sent: *sent,
            again: *again,
        })
    }

    pub(crate) fn to_message(&self) -> v1::ServiceFlow {
        v1::ServiceFlow {
            service: self.service.clone(),
            from: bytes(self.from),
            to: bytes(self.to),
            port: self.port.into(),
            qpn: self.qpn,
            peer_qpn: self.peer_qpn,
            sent: self.sent.min(PACKETS),
            again: self.again.min(PACKETS),
        }
    }
}

#[cfg(test)]
mod tests {
    use ferroce_verbs::processes::ServiceNameError;

    use super::*;

    fn report() -> ServiceFlowReport {
        let (from, to) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let service = "train".to_owned();
        ServiceFlowReport { service, from, to, port: 50_001, qpn: 17, peer_qpn: 18, sent: 1000, again: 3 }
    }

    #[test]
    fn a_queue_pair_survives_its_message() {
        assert_eq!(ServiceFlowReport::from_message(&report().to_message()), Ok(report()));
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_reason() {
        let with = |change: fn(&mut v1::ServiceFlow)| {
            let mut message = report().to_message();
            change(&mut message);
            ServiceFlowReport::from_message(&message).unwrap_err()
        };
        let control = WindowError::Service(ServiceNameError::Control { letter: '\n' });
        assert_eq!(with(|flow| flow.service = "a\nb".to_owned()), control);
        let long = WindowError::Service(ServiceNameError::Length { bytes: 65 });
        assert_eq!(with(|flow| flow.service = "x".repeat(65)), long);
        let empty = WindowError::Service(ServiceNameError::Length { bytes: 0 });
        assert_eq!(with(|flow| flow.service.clear()), empty);
        assert_eq!(with(|flow| flow.from.clear()), WindowError::Address { bytes: 0 });
        assert_eq!(with(|flow| flow.port = 1 << 16), WindowError::Port { port: 1 << 16 });
        assert_eq!(with(|flow| flow.peer_qpn = 1 << 24), WindowError::Qpn { qpn: 1 << 24 });
        let many = WindowError::Packets { sent: 1000, again: u64::MAX };
        assert_eq!(with(|flow| flow.again = u64::MAX), many);
    }
}
