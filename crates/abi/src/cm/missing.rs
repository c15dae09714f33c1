//! The functions of `librdmacm.so.1` that are not written yet. Programs are linked so that every symbol must be there
//! when they are loaded; these answer as on a machine without RDMA. A function that is written loses its line here.

use libc::{EBADF, ENODEV, ENOSYS, c_int};

use crate::refusal::set_errno;

/// One line for each function: its name and what it answers, whatever its arguments.
macro_rules! missing {
    ($($name:ident: $answer:ident $(($code:ident))?;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> missing!(@type $answer) {
            missing!(@answer $answer $($code)?)
        }
    )*};
    (@type minus_one) => { c_int };
    (@type wide_minus_one) => { isize };
    (@answer minus_one $code:ident) => {{ set_errno($code); -1 }};
    (@answer wide_minus_one $code:ident) => {{ set_errno($code); -1 }};
}

missing! {
    // Here a program begins, and learns that there is none.
    rsocket: minus_one(ENODEV);

    // What needs a socket made by `rsocket`. The last two take descriptors of any kind.
    raccept: minus_one(EBADF);
    rbind: minus_one(EBADF);
    rclose: minus_one(EBADF);
    rconnect: minus_one(EBADF);
    rfcntl: minus_one(EBADF);
    rgetpeername: minus_one(EBADF);
    rgetsockname: minus_one(EBADF);
    rgetsockopt: minus_one(EBADF);
    riomap: wide_minus_one(EBADF);
    riounmap: minus_one(EBADF);
    riowrite: wide_minus_one(EBADF);
    rlisten: minus_one(EBADF);
    rread: wide_minus_one(EBADF);
    rreadv: wide_minus_one(EBADF);
    rrecv: wide_minus_one(EBADF);
    rrecvfrom: wide_minus_one(EBADF);
    rrecvmsg: wide_minus_one(EBADF);
    rsend: wide_minus_one(EBADF);
    rsendmsg: wide_minus_one(EBADF);
    rsendto: wide_minus_one(EBADF);
    rsetsockopt: minus_one(EBADF);
    rshutdown: minus_one(EBADF);
    rwrite: wide_minus_one(EBADF);
    rwritev: wide_minus_one(EBADF);
    rpoll: minus_one(ENOSYS);
    rselect: minus_one(ENOSYS);
}
