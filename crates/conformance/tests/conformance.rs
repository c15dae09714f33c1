//! One suite over every way that packets can take. A failure is named by its setup and its case, such as
//! `wire_faults::rnr_then_success`.

use ferroce_conformance::{SIXTEEN_MEBIBYTES, Setup, column, run};

column!(wire: crate::run, Wire);
column!(local: crate::run, Local);
column!(wire_faults: crate::run, WireFaults);
column!(wire_small_buffer: crate::run, WireSmallBuffer);
column!(wire_no_offload: crate::run, WireNoOffload);
column!(wire_no_segmentation: crate::run, WireNoSegmentation);
column!(wire_no_coalescing: crate::run, WireNoCoalescing);
column!(wire_v6: crate::run, WireV6);
column!(engines_local: crate::run, EnginesLocal);
column!(engines_wire: crate::run, EnginesWire);
column!(shared: crate::run, Shared);

#[test]
fn wire_sixteen_mebibytes() {
    run(Setup::Wire, &SIXTEEN_MEBIBYTES);
}

#[test]
fn local_sixteen_mebibytes() {
    run(Setup::Local, &SIXTEEN_MEBIBYTES);
}
