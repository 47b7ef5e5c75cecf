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
    Settings { transports, software, stalled: silence(), ..Settings::default() }
}

/// How long a peer may be silent, or an RDMA read make no progress. `SWIFTLET_SILENCE_MS` says it: an emulated machine stands
/// still by itself for longer than the second and a half of a real one.
pub fn silence() -> Duration {
    std::env::var("SWIFTLET_SILENCE_MS").map_or(Duration::from_secs(3), |ms| Duration::from_millis(ms.parse().unwrap()))
}

pub fn engine(pool: &Pool) -> Arc<Engine> {
    Engine::start(settings(), pool).unwrap()
}
