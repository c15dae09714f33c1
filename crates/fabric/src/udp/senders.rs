//! Sockets for the source ports that are in use.

use super::super::PortRefusal;

/// Some sockets by source port. The one that was not used for longest makes room for a new one.
///
/// A source port that was told to the engine is a promise: packets are sealed for it. It holds until
/// the promises are [`kept`](Self::kept), which is when everything has been sent.
#[derive(Debug)]
pub(super) struct Senders<S> {
    /// Beside the places, so that a search reads little.
    ports: Vec<u16>,
    places: Vec<Place<S>>,
    /// Where the last search ended: runs of packets leave from one port.
    last: usize,
    /// Places that only wishes have taken.
    wished: usize,
    uses: u64,
    round: u64,
}

#[derive(Debug)]
struct Place<S> {
    /// Or why the port could not be had: remembered for wishes, so that asking again is cheap and gives the same answer.
    socket: Result<S, PortRefusal>,
    need: Need,
    last_used: u64,
    promised: u64,
}

/// How much a source port matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Another one does as well.
    Wish,
    /// No other one will do.
    Must,
}

/// How many sockets are kept open for ports that are needed.
pub(super) const PLACES: usize = 256;

/// How many of them for ports that are only wished for. More would cost more calls than they spread traffic.
pub(super) const WISHES: usize = 16;

/// Ports that are compared in one step.
const STEP: usize = 16;

impl<S> Senders<S> {
    /// None yet.
    pub(super) const fn new() -> Self {
        Self { ports: Vec::new(), places: Vec::new(), last: 0, wished: 0, uses: 0, round: 1 }
    }

    /// Promises that packets can leave from this port until the promises are [`kept`](Self::kept),
    /// opening a socket if there is none.
    ///
    /// # Errors
    /// They cannot. A wish that was refused is refused again without a look; what must be is tried again.
    pub(super) fn promise(
        &mut self,
        port: u16,
        need: Need,
        mut open: impl FnMut() -> Result<S, PortRefusal>,
    ) -> Result<(), PortRefusal> {
        let at = match self.find(port) {
            Some(at) => {
                if need == Need::Must && self.places[at].socket.is_err() {
                    self.places[at].socket = self.open_making_room(&mut open);
                }
                at
            }
            None => self.make_place(port, need, &mut open)?,
        };
        self.last = at;
        self.uses += 1;
        let (uses, round) = (self.uses, self.round);
        let place = &mut self.places[at];
        place.last_used = uses;
        place.promised = round;
        if (place.need, need) == (Need::Wish, Need::Must) {
            place.need = Need::Must;
            self.wished -= 1;
        }
        match &place.socket {
            Ok(_) => Ok(()),
            Err(refusal) => Err(*refusal),
        }
    }

    /// The socket of a port that was promised.
    #[cfg(test)]
    pub(super) fn get(&self, port: u16) -> Option<&S> {
        self.places[self.find(port)?].socket.as_ref().ok()
    }

    /// The socket of a port that was promised, to be used.
    pub(super) fn get_mut(&mut self, port: u16) -> Option<&mut S> {
        let at = self.find(port)?;
        self.places[at].socket.as_mut().ok()
    }

    /// Does something with every socket, until it fails.
    pub(super) fn each<E>(&mut self, mut act: impl FnMut(u16, &mut S) -> Result<(), E>) -> Result<(), E> {
        let mut open = self.ports.iter().zip(&mut self.places);
        open.try_for_each(|(port, place)| place.socket.as_mut().map_or(Ok(()), |socket| act(*port, socket)))
    }

    /// All that was promised has been sent.
    pub(super) const fn kept(&mut self) {
        self.round += 1;
    }

    fn find(&self, port: u16) -> Option<usize> {
        if self.ports.get(self.last) == Some(&port) {
            return Some(self.last);
        }
        // Whole steps without a way out are compared many ports at a time.
        let is_in = |ports: &[u16]| ports.iter().fold(false, |found, &known| found | (known == port));
        let step = self.ports.chunks(STEP).position(is_in)?;
        let within = self.ports[step * STEP..].iter().position(|&known| known == port)?;
        Some(step * STEP + within)
    }

    /// A new place for this port, or the oldest one whose socket is not promised.
    fn make_place(
        &mut self,
        port: u16,
        need: Need,
        open: &mut impl FnMut() -> Result<S, PortRefusal>,
    ) -> Result<usize, PortRefusal> {
        let is_new = match need {
            Need::Wish => self.wished < WISHES && self.places.len() < PLACES,
            Need::Must => self.places.len() < PLACES,
        };
        let at = match is_new {
            true => None,
            false => Some(self.oldest(need).ok_or(PortRefusal::TooMany { most: most(need) })?),
        };
        let socket = self.open_making_room(open);
        let place = Place { socket, need, last_used: 0, promised: 0 };
        self.wished += usize::from(need == Need::Wish);
        let Some(at) = at else {
            self.places.push(place);
            self.ports.push(port);
            return Ok(self.places.len() - 1);
        };
        let before = std::mem::replace(&mut self.places[at], place);
        self.wished -= usize::from(before.need == Need::Wish);
        self.ports[at] = port;
        Ok(at)
    }

    /// The place that was not used for longest, of those that may go for this need.
    fn oldest(&self, need: Need) -> Option<usize> {
        let may_go = |place: &Place<S>| {
            place.promised != self.round && (need == Need::Must || place.need == Need::Wish)
        };
        let free = self.places.iter().enumerate().filter(|(_, place)| may_go(place));
        free.min_by_key(|(_, place)| place.last_used).map(|(at, _)| at)
    }

    /// Opens a socket. Where there are no more descriptors, that of the port that was not used for longest is closed first.
    fn open_making_room(
        &mut self,
        open: &mut impl FnMut() -> Result<S, PortRefusal>,
    ) -> Result<S, PortRefusal> {
        let opened = open();
        if !matches!(opened, Err(PortRefusal::NoDescriptors)) {
            return opened;
        }
        let round = self.round;
        let open_ones =
            self.places.iter_mut().filter(|place| place.socket.is_ok() && place.promised != round);
        let Some(oldest) = open_ones.min_by_key(|place| place.last_used) else { return opened };
        oldest.socket = Err(PortRefusal::NoDescriptors);
        open()
    }
}

const fn most(need: Need) -> usize {
    match need {
        Need::Wish => WISHES,
        Need::Must => PLACES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u16 = 0xc000;

    /// So many places, taken for this need.
    fn taken(count: usize, need: Need) -> Senders<u16> {
        let mut senders = Senders::new();
        for port in ports(count) {
            assert_eq!(senders.promise(port, need, || Ok(port)), Ok(()));
        }
        senders
    }

    fn ports(count: usize) -> std::ops::Range<u16> {
        FIRST..FIRST + u16::try_from(count).unwrap()
    }

    fn open_already() -> Result<u16, PortRefusal> {
        unreachable!("it is open")
    }

    #[test]
    fn a_known_port_opens_nothing() {
        let mut senders = taken(WISHES, Need::Wish);
        for port in ports(WISHES) {
            assert_eq!(senders.promise(port, Need::Wish, open_already), Ok(()));
            assert_eq!(senders.get(port), Some(&port));
        }
    }

    #[test]
    fn a_promise_is_not_evicted() {
        for (need, most) in [(Need::Wish, WISHES), (Need::Must, PLACES)] {
            let mut senders = taken(most, need);
            let beyond = ports(most).end;
            let refused = senders.promise(beyond, need, || unreachable!("there is no room"));
            assert_eq!(refused, Err(PortRefusal::TooMany { most }));
            assert!(ports(most).all(|port| senders.get(port) == Some(&port)));
        }
    }

    #[test]
    fn a_wish_never_takes_the_place_of_a_port_that_must_be() {
        let mut senders = taken(PLACES, Need::Must);
        senders.kept();
        let wish = senders.promise(7, Need::Wish, || Ok(7));
        assert_eq!(wish, Err(PortRefusal::TooMany { most: WISHES }));
        assert!(ports(PLACES).all(|port| senders.get(port) == Some(&port)));
        // The other way round it does.
        let mut senders = taken(WISHES, Need::Wish);
        senders.kept();
        for port in 1..=u16::try_from(PLACES).unwrap() {
            assert_eq!(senders.promise(port, Need::Must, || Ok(port)), Ok(()));
        }
        assert_eq!(senders.get(FIRST), None);
    }

    #[test]
    fn a_wish_that_becomes_a_need_makes_room_for_another_wish() {
        let mut senders = taken(WISHES, Need::Wish);
        assert_eq!(senders.promise(FIRST, Need::Must, open_already), Ok(()));
        assert_eq!(senders.promise(7, Need::Wish, || Ok(7)), Ok(()));
        assert!(ports(WISHES).all(|port| senders.get(port) == Some(&port)));
    }

    #[test]
    fn the_one_unused_for_longest_goes_first() {
        let mut senders = taken(WISHES, Need::Wish);
        let beyond = ports(WISHES).end;
        senders.kept();
        assert_eq!(senders.promise(FIRST, Need::Wish, open_already), Ok(()));
        senders.kept();
        assert_eq!(senders.promise(beyond, Need::Wish, || Ok(beyond)), Ok(()));
        assert_eq!(senders.get(FIRST), Some(&FIRST));
        assert_eq!(senders.get(FIRST + 1), None);
        assert_eq!(senders.get(beyond), Some(&beyond));
    }

    #[test]
    fn a_wish_that_was_refused_is_remembered_and_a_need_is_tried_again() {
        let mut senders = Senders::new();
        assert_eq!(
            senders.promise(7, Need::Wish, || Err::<u16, _>(PortRefusal::InUse)),
            Err(PortRefusal::InUse)
        );
        assert_eq!(senders.promise(7, Need::Wish, open_already), Err(PortRefusal::InUse));
        assert_eq!(senders.get(7), None);
        assert_eq!(
            senders.promise(7, Need::Must, || Err(PortRefusal::NotPermitted)),
            Err(PortRefusal::NotPermitted)
        );
        assert_eq!(senders.promise(7, Need::Must, || Ok(7)), Ok(()));
        assert_eq!(senders.get(7), Some(&7));
    }

    #[test]
    fn without_descriptors_the_oldest_socket_makes_room() {
        let mut senders = taken(3, Need::Must);
        let mut left = 0;
        let mut open = |port| {
            left += 1;
            if left % 2 == 1 { Err(PortRefusal::NoDescriptors) } else { Ok(port) }
        };
        // All of them are promised: none may be closed.
        assert_eq!(senders.promise(7, Need::Must, || open(7)), Err(PortRefusal::NoDescriptors));
        left = 0;
        let mut open = |port| {
            left += 1;
            if left % 2 == 1 { Err(PortRefusal::NoDescriptors) } else { Ok(port) }
        };
        senders.kept();
        assert_eq!(senders.promise(8, Need::Must, || open(8)), Ok(()));
        assert_eq!(
            (senders.get(FIRST), senders.get(FIRST + 1), senders.get(8)),
            (None, Some(&(FIRST + 1)), Some(&8))
        );
    }
}
