//! Source ports of RoCEv2, and the flow labels that Linux folds into them.

/// The ports of RoCEv2 senders begin here.
pub const FIRST_PORT: u16 = 0xc000;

/// Bits of a port that a flow label decides.
const LOW: u32 = 0x3fff;

/// The port that Linux folds a flow label of 20 bits into.
#[must_use]
pub fn port_of_label(label: u32) -> u16 {
    let folded = (label & LOW) ^ (label >> 14 & LOW);
    FIRST_PORT | u16::try_from(folded & LOW).unwrap_or(0)
}

/// A flow label that Linux folds into this port; none for ports that no label leads to.
///
/// Labels share ports (79 random ones do so with a chance of 17 %), so it is better to choose ports.
#[must_use]
pub fn label_for_port(port: u16) -> Option<u32> {
    let offset = port.checked_sub(FIRST_PORT)?;
    // Label 0 stands for "none"; another one leads to the first port too.
    Some(if offset == 0 { 0x4001 } else { u32::from(offset) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_has_a_label_that_leads_to_it() {
        for port in FIRST_PORT..=u16::MAX {
            let label = label_for_port(port).unwrap();
            assert!(label != 0 && label < 1 << 20);
            assert_eq!(port_of_label(label), port);
        }
        assert_eq!((label_for_port(0xbfff), label_for_port(0)), (None, None));
    }

    #[test]
    fn the_upper_bits_of_a_label_are_folded_in() {
        assert_eq!(port_of_label(0x12345), 0xc000 | (0x2345 ^ 0x4));
        assert_eq!(port_of_label(0xfffff), 0xc000 | (0x3fff ^ 0x3f));
    }
}
