//! What every carrier must do, over UCX.

#![cfg(feature = "ucx")]
#![allow(unreachable_pub, clippy::unwrap_used, reason = "tests")]

#[path = "../../transport/tests/common/mod.rs"]
mod common;
#[path = "../../transport/tests/suite/mod.rs"]
mod suite;
mod ucx;

/// Before each test.
fn prepare() {
    common::RDMA.get_or_init(|| Box::new(ucx::Ucx));
}

over_any!(Rdma as rdma);
over_network!(Rdma as rdma_faults);
