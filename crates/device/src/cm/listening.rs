//! Services that a program listens for.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ferroce_switchboard::{ServiceClaim, SwitchError};
use ferroce_sys::clock;
use ferroce_transport::cm::{DatagramService, Refused};
use ferroce_wire::mad::ServiceId;
use thiserror::Error;

use super::asked::Hearer;
use super::books::Acceptor;
use super::service::ConnectionManager;
use crate::nic::Nic;

/// How long a service stays claimed whose listener went away.
const LINGERS: Duration = Duration::from_secs(2);

/// The most services that stay claimed so. The oldest go first.
const MOST_LINGERING: usize = 256;

/// Why a service cannot be listened for: a closed list, of which `verbs` has to translate every case.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// This process listens for the service already.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Another process listens for the service, or the device is not ours.
    #[error(transparent)]
    Switch(#[from] SwitchError),
    /// The connection manager could not be started.
    #[error("the operating system refused what connections need")]
    System(#[from] io::Error),
}

/// A service that is listened for, until it is dropped.
#[derive(Debug)]
pub struct ListeningTo {
    manager: Arc<ConnectionManager>,
    service: ServiceId,
    is_datagram: bool,
    _claim: Arc<ServiceClaim>,
}

impl ConnectionManager {
    /// Lets requests for a service come in: so many may wait.
    ///
    /// # Errors
    /// This process or another one listens already.
    pub fn listen(
        self: &Arc<Self>,
        nic: &Nic,
        service: ServiceId,
        backlog: usize,
        acceptor: Arc<dyn Acceptor>,
    ) -> Result<ListeningTo, ServiceError> {
        let claim = Arc::new(nic.listen_for(service)?);
        Ok(self.listen_claimed(service, backlog, acceptor, claim)?)
    }

    /// The same for a service that was claimed before ([`Nic::listen_for`]).
    ///
    /// # Errors
    /// This process listens already.
    pub fn listen_claimed(
        self: &Arc<Self>,
        service: ServiceId,
        backlog: usize,
        acceptor: Arc<dyn Acceptor>,
        claim: Arc<ServiceClaim>,
    ) -> Result<ListeningTo, Refused> {
        self.with(|books| {
            books.manager.listen(service, backlog)?;
            books.acceptors.insert(service, acceptor);
            Ok::<_, Refused>(())
        })?;
        Ok(self.listening(service, false, claim))
    }

    /// Offers a datagram service.
    ///
    /// # Errors
    /// This process or another one offers it already.
    pub fn serve(
        self: &Arc<Self>,
        nic: &Nic,
        service: ServiceId,
        offer: DatagramService,
    ) -> Result<ListeningTo, ServiceError> {
        let claim = Arc::new(nic.listen_for(service)?);
        self.with(|books| books.manager.serve(service, offer))?;
        Ok(self.listening(service, true, claim))
    }

    /// Lets the program hear of questions for a datagram service, and answer them.
    ///
    /// # Errors
    /// The service is taken.
    pub fn hear(
        self: &Arc<Self>,
        nic: &Nic,
        service: ServiceId,
        hearer: Arc<dyn Hearer>,
    ) -> Result<ListeningTo, ServiceError> {
        let claim = Arc::new(nic.listen_for(service)?);
        Ok(self.hear_claimed(service, hearer, claim))
    }

    /// The same for a service that was claimed before ([`Nic::listen_for`]), and that nothing else hears of.
    pub fn hear_claimed(
        self: &Arc<Self>,
        service: ServiceId,
        hearer: Arc<dyn Hearer>,
        claim: Arc<ServiceClaim>,
    ) -> ListeningTo {
        let before = self.with(|books| books.hearing.hearers.insert(service, hearer));
        // Outside of the lock.
        drop(before);
        self.listening(service, true, claim)
    }

    /// Gives a claim back, but not at once: programs close a listener and open the next one on the same port, while
    /// their peers connect again. A peer that is not answered asks again; one that is rejected gives up. The next one to
    /// claim the service has it at once, be it this process or another.
    pub fn linger(&self, service: ServiceId, claim: Arc<ServiceClaim>) {
        if !self.member.is_ours() {
            return;
        }
        claim.linger();
        let crowded = self.with(|books| {
            books.lingering.push_back((clock::now() + LINGERS, service, claim));
            if books.lingering.len() > MOST_LINGERING { books.lingering.pop_front() } else { None }
        });
        drop(crowded);
    }

    /// What ends listening when it is dropped. A claim comes first: it is the only one in all processes, this one
    /// included.
    fn listening(
        self: &Arc<Self>,
        service: ServiceId,
        is_datagram: bool,
        claim: Arc<ServiceClaim>,
    ) -> ListeningTo {
        ListeningTo { manager: Arc::clone(self), service, is_datagram, _claim: claim }
    }
}

impl Drop for ListeningTo {
    fn drop(&mut self) {
        if !self.manager.member.is_ours() {
            return;
        }
        let (service, is_datagram) = (self.service, self.is_datagram);
        let gone = self.manager.with(|books| {
            if is_datagram {
                books.manager.stop_serving(service);
            } else {
                books.manager.stop_listening(service);
            }
            (books.acceptors.remove(&service), books.hearing.hearers.remove(&service))
        });
        // Outside of the lock: it may hold the last requests, which are rejected with it.
        drop(gone);
    }
}
