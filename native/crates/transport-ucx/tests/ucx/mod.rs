//! Engines for tests. By which of UCX's transports the environment says:
//!
//! - `SWIFTLET_RDMA=rc`: RDMA, as in production. There has to be a device: see `hack/rdma`.
//! - otherwise TCP, with reads emulated in software: the same code, as far as a machine without a device runs it.

use std::sync::Arc;
use std::time::Duration;

use swiftlet_transport::Pool;
use swiftlet_transport_ucx::{Engine, Settings};

pub fn settings() -> Settings {
    let transports = std::env::var("SWIFTLET_RDMA");
    let software = transports.is_err();
    let transports = transports.unwrap_or("tcp".to_owned());
    // An emulated machine may well need more than the second and a half of a real one.
    Settings { transports, software, stalled: Duration::from_secs(3), ..Settings::default() }
}

pub fn engine(pool: &Pool) -> Arc<Engine> {
    Engine::start(settings(), pool).unwrap()
}
