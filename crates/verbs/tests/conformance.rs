//! One suite over every way that packets can take: see `conformance/mod.rs`. A failure is named by its
//! setup and its case, such as `wire_faults::rnr_then_success`.
#![allow(clippy::unwrap_used, reason = "a case that cannot go on has failed")]

#[path = "conformance/mod.rs"]
mod suite;

use suite::rig::Setup;
use suite::{all_cases, run, sizes};

/// One test for each case over one setup.
macro_rules! tests {
    ($name:ident, $setup:ident; $($module:ident: $($case:ident)*;)*) => {
        mod $name {
            $($(
                #[test]
                fn $case() {
                    crate::run(crate::Setup::$setup, stringify!($case), crate::suite::$module::$case);
                }
            )*)*
        }
    };
}

all_cases!(tests! wire, Wire);
all_cases!(tests! local, Local);
all_cases!(tests! wire_faults, WireFaults);
all_cases!(tests! wire_small_buffer, WireSmallBuffer);
all_cases!(tests! wire_no_offload, WireNoOffload);
all_cases!(tests! wire_no_segmentation, WireNoSegmentation);
all_cases!(tests! wire_no_coalescing, WireNoCoalescing);
all_cases!(tests! wire_v6, WireV6);
all_cases!(tests! engines_local, EnginesLocal);
all_cases!(tests! engines_wire, EnginesWire);
all_cases!(tests! shared, Shared);

#[test]
fn wire_sixteen_mebibytes() {
    run(Setup::Wire, "sixteen_mebibytes", sizes::sixteen_mebibytes);
}

#[test]
fn local_sixteen_mebibytes() {
    run(Setup::Local, "sixteen_mebibytes", sizes::sixteen_mebibytes);
}
