//! The conformance suite with everything written down: see `conformance/mod.rs`. After each case a checker goes
//! through the record.
#![allow(clippy::unwrap_used, reason = "a case that cannot go on has failed")]

#[path = "conformance/mod.rs"]
mod suite;

use suite::rig::Setup;
use suite::{all_cases, run_recorded};

/// One test for each case over one setup.
macro_rules! tests {
    ($name:ident, $setup:ident; $($module:ident: $($case:ident)*;)*) => {
        mod $name {
            $($(
                #[test]
                fn $case() {
                    crate::run_recorded(crate::Setup::$setup, stringify!($case), crate::suite::$module::$case);
                }
            )*)*
        }
    };
}

all_cases!(tests! wire, Wire);
all_cases!(tests! local, Local);
all_cases!(tests! wire_faults, WireFaults);
all_cases!(tests! engines_local, EnginesLocal);
all_cases!(tests! engines_wire, EnginesWire);
