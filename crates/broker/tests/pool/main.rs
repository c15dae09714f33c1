//! The pool over real registered memory: what it promises to programs, to peers and to many threads.
#![expect(clippy::unwrap_used, reason = "tests")]

mod model;
mod rules;
mod stress;
mod work;

use std::net::Ipv4Addr;
use std::sync::OnceLock;

use ferroce_broker::pool::{Pool, PoolBuilder};
use ferroce_verbs::{Access, Context, ProtectionDomain};

/// One device for all tests of this program.
fn context() -> &'static Context {
    static CONTEXT: OnceLock<Context> = OnceLock::new();
    CONTEXT
        .get_or_init(|| Context::builder("ferroce_lo").address(Ipv4Addr::new(127, 0, 152, 1)).open().unwrap())
}

fn domain() -> ProtectionDomain {
    context().protection_domain().unwrap()
}

fn access() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

fn pool(builder: PoolBuilder, bytes: usize) -> Pool {
    builder.allocate(&domain(), bytes, access()).unwrap()
}
