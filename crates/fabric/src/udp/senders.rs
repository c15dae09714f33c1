//! Sockets for the source ports that are in use.

/// A few sockets by source port. The one that was not used for longest makes room for a new one.
///
/// A source port that was told to the engine is a promise: packets are sealed for it. It holds until
/// the promises are [`kept`](Self::kept), which is when everything has been sent.
#[derive(Debug)]
pub(super) struct Senders<S> {
    /// Beside the places, so that a search reads little.
    ports: [u16; PLACES],
    places: Vec<Place<S>>,
    uses: u64,
    round: u64,
}

#[derive(Debug)]
struct Place<S> {
    /// `None` if the port could not be had: remembered, so that asking again is cheap and gives
    /// the same answer.
    socket: Option<S>,
    last_used: u64,
    promised: u64,
}

/// How many sockets are kept open.
pub(super) const PLACES: usize = 16;

impl<S> Senders<S> {
    /// None yet.
    pub(super) fn new() -> Self {
        Self { ports: [0; PLACES], places: Vec::with_capacity(PLACES), uses: 0, round: 1 }
    }

    /// Promises that packets can leave from this port until the promises are [`kept`](Self::kept),
    /// opening a socket if there is none; `false` if they cannot.
    pub(super) fn promise(&mut self, port: u16, open: impl FnOnce() -> Option<S>) -> bool {
        let Some(at) = self.find(port).or_else(|| self.make_room(port, open)) else {
            return false;
        };
        self.uses += 1;
        let place = &mut self.places[at];
        place.last_used = self.uses;
        place.promised = self.round;
        place.socket.is_some()
    }

    /// The socket of a port that was promised.
    pub(super) fn get(&self, port: u16) -> Option<&S> {
        self.places[self.find(port)?].socket.as_ref()
    }

    /// All that was promised has been sent.
    pub(super) const fn kept(&mut self) {
        self.round += 1;
    }

    fn find(&self, port: u16) -> Option<usize> {
        self.ports[..self.places.len()].iter().position(|&known| known == port)
    }

    /// A new place for this port, or the oldest one whose socket is not promised.
    fn make_room(&mut self, port: u16, open: impl FnOnce() -> Option<S>) -> Option<usize> {
        let place = |socket| Place { socket, last_used: 0, promised: 0 };
        let at = self.places.len();
        if at < PLACES {
            self.places.push(place(open()));
            self.ports[at] = port;
            return Some(at);
        }
        let free = self.places.iter().enumerate().filter(|(_, place)| place.promised != self.round);
        let (at, _) = free.min_by_key(|(_, place)| place.last_used)?;
        self.places[at] = place(open());
        self.ports[at] = port;
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u16 = 0xc000;
    /// One more than there are places for.
    const BEYOND: u16 = FIRST + 16;

    fn full() -> Senders<u16> {
        let mut senders = Senders::new();
        for port in FIRST..BEYOND {
            assert!(senders.promise(port, || Some(port)));
        }
        senders
    }

    #[test]
    fn a_known_port_opens_nothing() {
        let mut senders = full();
        assert!(senders.promise(FIRST, || unreachable!("it is open")));
        assert_eq!(senders.get(FIRST), Some(&FIRST));
    }

    #[test]
    fn a_promise_is_not_evicted() {
        let mut senders = full();
        assert!(!senders.promise(BEYOND, || unreachable!("there is no room")));
        for port in FIRST..BEYOND {
            assert_eq!(senders.get(port), Some(&port));
        }
    }

    #[test]
    fn the_one_unused_for_longest_goes_first() {
        let mut senders = full();
        senders.kept();
        assert!(senders.promise(FIRST, || unreachable!("it is open")));
        senders.kept();
        assert!(senders.promise(BEYOND, || Some(BEYOND)));
        assert_eq!(senders.get(FIRST), Some(&FIRST));
        assert_eq!(senders.get(FIRST + 1), None);
        assert_eq!(senders.get(BEYOND), Some(&BEYOND));
    }

    #[test]
    fn a_port_that_cannot_be_had_is_remembered_until_it_is_evicted() {
        let mut senders = Senders::new();
        assert!(!senders.promise(7, || None::<u16>));
        assert!(!senders.promise(7, || unreachable!("it was tried")));
        assert_eq!(senders.get(7), None);
        senders.kept();
        for port in FIRST..BEYOND {
            assert!(senders.promise(port, || Some(port)));
            senders.kept();
        }
        assert!(senders.promise(7, || Some(7)), "tried again");
    }
}
