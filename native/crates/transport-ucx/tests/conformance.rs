//! What every carrier must do, over UCX.

#![cfg(feature = "ucx")]
#![allow(unreachable_pub, clippy::unwrap_used, reason = "tests")]

#[path = "../../transport/tests/common/mod.rs"]
mod common;
#[path = "../../transport/tests/suite/mod.rs"]
mod suite;
mod ucx;

use std::sync::Arc;

use swiftlet_transport::{Acceptor, Fabric, Pool, TcpAcceptor};
use swiftlet_transport_ucx::{UcxAcceptor, UcxFabric};
use ucx::engine;

struct Ucx;

impl common::Rdma for Ucx {
    fn fabric(&self, pool: &Pool) -> Arc<dyn Fabric> {
        Arc::new(UcxFabric::new(&engine(pool)))
    }

    fn acceptor(&self, pool: &Pool, listener: TcpAcceptor) -> Box<dyn Acceptor> {
        Box::new(UcxAcceptor::new(listener, &engine(pool)))
    }
}

/// Before each test.
fn prepare() {
    common::RDMA.get_or_init(|| Box::new(Ucx));
}

over_any!(Rdma as rdma);
over_network!(Rdma as rdma_faults);
