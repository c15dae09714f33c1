//! The UDP source ports of a pair of RNICs, which decide the ways that its probes take.

use std::net::IpAddr;

use ferroce_probe::paths::FIRST_PORT;

/// So many hours a port is kept: each hour a fifth of all ports is new.
const KEPT: u64 = 5;

/// Ports that there are.
const ALL: u64 = 0x4000;

/// Ports of a pair at most: a card keeps no more sockets for them.
pub const MOST: usize = 256;

/// The ports from which one RNIC probes another in the hour of this number, all different, [`MOST`] at most. They follow from the
/// arguments alone, so that controllers agree and a restart changes nothing.
#[must_use]
pub fn ports(seed: u64, from: IpAddr, to: IpAddr, count: usize, hour: u64) -> Vec<u16> {
    let pair = mix(mix(seed, number(from)), number(to));
    let mut ports = Vec::with_capacity(count.min(MOST));
    for place in 0..count.min(MOST) as u64 {
        // Places of a pair change in turn, and pairs do not begin with the same place.
        let age = (hour + mix(pair, place) % KEPT) / KEPT;
        let mut word = mix(mix(pair, place), age);
        let mut port = port(word);
        while ports.contains(&port) {
            word = mix(word, 1);
            port = self::port(word);
        }
        ports.push(port);
    }
    ports
}

fn port(word: u64) -> u16 {
    FIRST_PORT + (word & (ALL - 1)) as u16
}

fn number(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => {
            address.segments().into_iter().fold(0, |word, segment| mix(word, u64::from(segment)))
        }
    }
}

/// Two words made into one: the steps of SplitMix64.
const fn mix(one: u64, other: u64) -> u64 {
    let mut word =
        one.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(other).wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn pair(number: u16) -> (IpAddr, IpAddr) {
        let [high, low] = number.to_be_bytes();
        (IpAddr::from([10, 0, high, low]), IpAddr::from([10, 1, low, high]))
    }

    #[test]
    fn a_fifth_of_all_ports_is_new_each_hour() {
        let (mut new, mut all) = (0_u32, 0_u32);
        for number in 0..1000 {
            let (from, to) = pair(number);
            for hour in 0..10 {
                let before = ports(1, from, to, 8, hour);
                let after = ports(1, from, to, 8, hour + 1);
                new += u32::try_from(after.iter().filter(|port| !before.contains(port)).count()).unwrap();
                all += 8;
            }
        }
        let share = f64::from(new) / f64::from(all);
        assert!((share - 0.2).abs() < 0.01, "{share}");
    }

    #[test]
    fn ports_are_different_and_depend_on_everything_that_they_are_asked_for() {
        let (from, to) = pair(5);
        let mine = ports(1, from, to, 64, 3);
        assert_eq!(mine.iter().collect::<BTreeSet<_>>().len(), 64);
        assert!(mine.iter().all(|port| *port >= FIRST_PORT));
        assert_eq!(mine, ports(1, from, to, 64, 3));
        assert_eq!(mine[..8], ports(1, from, to, 8, 3), "more of them do not change the first");
        assert_ne!(mine, ports(2, from, to, 64, 3));
        assert_ne!(mine, ports(1, to, from, 64, 3));
        let v6 = |last: u16| IpAddr::from([0xfd00, 0, 0, 1, 0, 0, 0, last]);
        assert_ne!(ports(1, v6(1), v6(2), 8, 0), ports(1, v6(1), v6(3), 8, 0));
    }

    #[test]
    fn no_pair_has_more_ports_than_a_card_keeps_sockets_for() {
        let (from, to) = pair(1);
        let all = ports(0, from, to, usize::MAX, 0);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), MOST);
    }
}
