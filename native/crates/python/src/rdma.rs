//! RDMA beside TCP, in builds that have it (feature `rdma`); in others it can't be requested.
//!
//! A connection by RDMA is a TCP connection whose bodies are fetched where that works: here it is chosen how a node
//! connects and accepts, and each connection finds out by itself whether its peer can be fetched from.

use std::io;
use std::sync::Arc;

use pyo3::prelude::*;
use swiftlet_transport::{Acceptor, Config, Fabric, TcpAcceptor, TcpFabric};
#[cfg(feature = "rdma")]
use swiftlet_transport_ucx::{Engine, Settings, UcxAcceptor, UcxFabric};

/// How a node connects and accepts.
pub(crate) struct Rdma {
    #[cfg(feature = "rdma")]
    engine: Option<Arc<Engine>>,
}

/// A peer may make no progress for as long as it may be silent.
#[cfg(feature = "rdma")]
fn settings(config: &Config) -> Settings {
    Settings { stalled: config.silence, ..Settings::default() }
}

#[cfg(feature = "rdma")]
impl Rdma {
    /// With `wanted`: open the devices and register the pool.
    pub(crate) fn start(wanted: bool, config: &Config) -> io::Result<Self> {
        let engine = wanted.then(|| Engine::start(settings(config), &config.pool)).transpose()?;
        Ok(Self { engine })
    }

    /// TCP, with RDMA if it was wanted.
    pub(crate) fn fabric(&self) -> Arc<dyn Fabric> {
        match &self.engine {
            Some(engine) => Arc::new(UcxFabric::new(engine)),
            None => Arc::new(TcpFabric),
        }
    }

    /// The same for accepted connections.
    pub(crate) fn acceptor(&self, listener: TcpAcceptor) -> Box<dyn Acceptor> {
        match &self.engine {
            Some(engine) => Box::new(UcxAcceptor::new(listener, engine)),
            None => Box::new(listener),
        }
    }
}

#[cfg(not(feature = "rdma"))]
impl Rdma {
    /// RDMA can't be wanted here.
    pub(crate) fn start(wanted: bool, _: &Config) -> io::Result<Self> {
        if wanted {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "swiftlet_native was built without RDMA"));
        }
        Ok(Self {})
    }

    /// TCP.
    pub(crate) fn fabric(&self) -> Arc<dyn Fabric> {
        Arc::new(TcpFabric)
    }

    /// The same for accepted connections.
    pub(crate) fn acceptor(&self, listener: TcpAcceptor) -> Box<dyn Acceptor> {
        Box::new(listener)
    }
}

/// The version of UCX that RDMA uses; None in a build without RDMA.
#[pyfunction]
pub(crate) fn rdma_version() -> Option<&'static str> {
    #[cfg(feature = "rdma")]
    return Some(swiftlet_transport_ucx::version());
    #[cfg(not(feature = "rdma"))]
    None
}
