//! Names of numbers.

use std::ffi::{CStr, c_char};

use libc::c_int;

/// The text at an index, or the last one.
fn named(texts: &'static [&'static CStr], index: c_int, unknown: &'static CStr) -> *const c_char {
    usize::try_from(index).ok().and_then(|index| texts.get(index)).map_or(unknown, |text| text).as_ptr()
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    const TEXTS: &[&CStr] = &[
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"Work Request Flushed Error",
        c"memory window bind error",
        c"bad response error",
        c"local access error",
        c"remote invalid request error",
        c"remote access error",
        c"remote operation error",
        c"transport retry counter exceeded",
        c"RNR retry counter exceeded",
        c"local RDD violation error",
        c"remote invalid RD request",
        c"remote aborted error",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"response timeout error",
        c"general error",
        c"tag matching error",
        c"tag matching rendezvous incomplete",
    ];
    named(TEXTS, status, c"unknown")
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_node_type_str(kind: c_int) -> *const c_char {
    const TEXTS: &[&CStr] = &[
        c"unknown",
        c"InfiniBand channel adapter",
        c"InfiniBand switch",
        c"InfiniBand router",
        c"iWARP NIC",
        c"usNIC",
        c"usNIC UDP",
        c"unspecified",
    ];
    named(TEXTS, kind, c"unknown")
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_port_state_str(state: c_int) -> *const c_char {
    const TEXTS: &[&CStr] = &[
        c"no state change (NOP)",
        c"PORT_DOWN",
        c"PORT_INIT",
        c"PORT_ARMED",
        c"PORT_ACTIVE",
        c"PORT_ACTIVE_DEFER",
    ];
    named(TEXTS, state, c"invalid state")
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_event_type_str(event: c_int) -> *const c_char {
    const TEXTS: &[&CStr] = &[
        c"CQ error",
        c"local work queue catastrophic error",
        c"invalid request local work queue error",
        c"local access violation work queue error",
        c"communication established",
        c"send queue drained",
        c"path migrated",
        c"path migration request error",
        c"local catastrophic error",
        c"port active",
        c"port error",
        c"LID change",
        c"P_Key change",
        c"SM change",
        c"SRQ catastrophic error",
        c"SRQ limit reached",
        c"last WQE reached",
        c"client reregistration",
        c"GID table change",
        c"WQ fatal",
    ];
    named(TEXTS, event, c"unknown")
}

/// Rates: number in a path record, multiple of 2.5 Gbit/s (0 where it is none), Mbit/s.
const RATES: &[(c_int, c_int, c_int)] = &[
    (2, 1, 2_500),
    (5, 2, 5_000),
    (3, 4, 10_000),
    (6, 8, 20_000),
    (4, 12, 30_000),
    (7, 16, 40_000),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (10, 48, 120_000),
    (11, 0, 14_062),
    (12, 0, 56_250),
    (13, 0, 112_500),
    (14, 0, 168_750),
    (15, 0, 25_781),
    (16, 0, 103_125),
    (17, 0, 206_250),
    (18, 0, 309_375),
    (19, 0, 28_125),
    (20, 0, 53_125),
    (21, 0, 425_000),
    (22, 0, 637_500),
    (23, 0, 850_000),
    (24, 0, 1_275_000),
];

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_rate_to_mult(rate: c_int) -> c_int {
    RATES.iter().find(|known| known.0 == rate && known.1 > 0).map_or(-1, |known| known.1)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn mult_to_ibv_rate(mult: c_int) -> c_int {
    RATES.iter().find(|known| known.1 == mult && mult > 0).map_or(0, |known| known.0)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_rate_to_mbps(rate: c_int) -> c_int {
    RATES.iter().find(|known| known.0 == rate).map_or(-1, |known| known.2)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> c_int {
    RATES.iter().find(|known| known.2 == mbps).map_or(0, |known| known.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: *const c_char) -> String {
        // SAFETY: all texts here are constants.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    #[test]
    fn every_number_has_a_name_and_others_do_not_crash() {
        assert_eq!(text(ibv_wc_status_str(12)), "transport retry counter exceeded");
        assert_eq!(text(ibv_event_type_str(15)), "SRQ limit reached");
        for odd in [-1, 99, c_int::MAX, c_int::MIN] {
            assert_eq!(text(ibv_wc_status_str(odd)), "unknown");
            assert_eq!(text(ibv_event_type_str(odd)), "unknown");
            assert_eq!(text(ibv_node_type_str(odd)), "unknown");
            assert_eq!(text(ibv_port_state_str(odd)), "invalid state");
        }
    }

    #[test]
    fn rates_go_both_ways() {
        for &(rate, mult, mbps) in RATES {
            assert_eq!(ibv_rate_to_mbps(rate), mbps);
            assert_eq!(mbps_to_ibv_rate(mbps), rate);
            if mult > 0 {
                assert_eq!(mult_to_ibv_rate(ibv_rate_to_mult(rate)), rate);
            }
        }
        assert_eq!(ibv_rate_to_mult(99), -1);
        assert_eq!(mult_to_ibv_rate(0), 0);
    }
}
