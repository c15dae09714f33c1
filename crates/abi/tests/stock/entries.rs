//! The functions that C programs call, as they stand in the source.

use std::fs;
use std::path::{Path, PathBuf};

/// What a function begins with that may ask something of the C library.
const GUARD: &str = "let _whole = Uncancelled::new();";

/// Files of the data path, which asks the system without the C library, and of functions that ask it nothing.
const WITHOUT: [&str; 3] = ["post.rs", "qp_ex.rs", "strings.rs"];

/// Functions of other files, for the same two reasons. What only refuses tells the log, which has a guard of
/// its own.
const ALSO_WITHOUT: [&str; 40] = [
    // The data path.
    "poll",
    "request_notification",
    "start_poll",
    "next_poll",
    "end_poll",
    "$name",
    "read_completion_ts",
    "read_completion_wallclock_ns",
    "read_tm_info",
    // Nothing is asked of anything.
    "in_child",
    "ibv_ack_async_event",
    "ibv_ack_cq_events",
    "ibv_copy_ah_attr_from_kern",
    "ibv_copy_path_rec_from_kern",
    "ibv_copy_path_rec_to_kern",
    "ibv_copy_qp_attr_from_kern",
    "ibv_free_device_list",
    "ibv_get_device_guid",
    "ibv_get_device_index",
    "ibv_get_device_name",
    "ibv_get_sysfs_path",
    "ibv_is_fork_initialized",
    "ibv_qp_to_qp_ex",
    "ibv_query_qp_data_in_order",
    "__ioctl_final_num_attrs",
    "rdma_event_str",
    // They refuse, or do nothing.
    "ibv_dofork_range",
    "ibv_dontfork_range",
    "ibv_import_device",
    "ibv_import_dm",
    "ibv_import_mr",
    "ibv_import_pd",
    "ibv_query_ece",
    "ibv_reg_dmabuf_mr",
    "ibv_set_ece",
    "ibv_unimport_dm",
    "ibv_unimport_mr",
    "ibv_unimport_pd",
    "refuse",
    "refuse_pointer",
];

/// A function that is forgotten here ends the process if its thread is to be cancelled and it opens a file.
#[test]
fn every_function_that_may_ask_the_c_library_is_safe_from_cancellation() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut guarded, mut bare) = (0, Vec::new());
    for file in files(&folder) {
        let name = file.strip_prefix(&folder).unwrap().display().to_string();
        if WITHOUT.contains(&name.as_str()) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        // The two waits are declared as "C-unwind".
        for function in text.split("extern \"C\" fn ").skip(1) {
            let called = function.split('(').next().unwrap_or_default();
            let body = function.split_once("{\n").map_or("", |(_, body)| body.trim_start());
            if body.starts_with(GUARD) {
                guarded += 1;
            } else if !ALSO_WITHOUT.contains(&called) {
                bare.push(format!("{name}: {called}"));
            }
        }
    }
    assert!(bare.is_empty(), "without a guard: {bare:?}");
    assert!(guarded > 40, "{guarded} functions with a guard: is it still called `{GUARD}`?");
}

/// The files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}
