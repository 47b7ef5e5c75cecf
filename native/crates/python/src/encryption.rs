//! TLS between services: how a node connects and accepts, and the certificates for HTTP.

use std::sync::Arc;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use swiftlet_tls::Certificates;
use swiftlet_transport::{Acceptor, EncryptedAcceptor, EncryptedFabric, Fabric, Tls};

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// We don't encrypt, others may.
    None,
    /// We encrypt, others need not.
    Accepted,
    /// All encrypt.
    Required,
}

fn failed(error: swiftlet_tls::Error) -> PyErr {
    PyOSError::new_err(error.to_string())
}

/// Whether a node's TCP connections are encrypted.
pub(crate) struct Encryption {
    mode: Mode,
    /// None with RDMA, which can't be encrypted.
    tls: Option<Arc<Tls>>,
}

impl Encryption {
    /// The configuration of a guest, which encrypts with servers that have a certificate by one of these authorities.
    pub(crate) fn of_guest(authorities: &[String]) -> PyResult<Self> {
        let tls = Tls::of_guest(authorities).map_err(failed)?;
        Ok(Self { mode: Mode::Required, tls: Some(Arc::new(tls)) })
    }

    /// Create the configuration for `mode`, which is `cluster.encryption`. `guests`: clients need no certificate.
    pub(crate) fn start(mode: &str, rdma: bool, keys: &[Vec<u8>], guests: bool) -> PyResult<Self> {
        let mode = match mode {
            "none" => Mode::None,
            "accepted" => Mode::Accepted,
            "required" => Mode::Required,
            _ => return Err(PyValueError::new_err("encryption must be none, accepted or required")),
        };
        if rdma && mode != Mode::None {
            return Err(PyValueError::new_err("RDMA can't be encrypted: turn off RDMA or encryption"));
        }
        // Nobody can connect to who has no key, with TLS or without.
        let made = || if guests { Tls::with_guests(keys) } else { Tls::new(keys) };
        let tls = if rdma || keys.is_empty() { None } else { Some(Arc::new(made().map_err(failed)?)) };
        if tls.is_none() && mode != Mode::None {
            return Err(PyValueError::new_err("encryption needs a cluster key"));
        }
        Ok(Self { mode, tls })
    }

    pub(crate) fn fabric(&self, below: Arc<dyn Fabric>) -> Arc<dyn Fabric> {
        match &self.tls {
            Some(tls) if self.mode != Mode::None => Arc::new(EncryptedFabric::new(below, Arc::clone(tls))),
            _ => below,
        }
    }

    pub(crate) fn acceptor(&self, below: Box<dyn Acceptor>) -> Box<dyn Acceptor> {
        match &self.tls {
            Some(tls) => Box::new(EncryptedAcceptor::new(below, Arc::clone(tls), self.mode == Mode::Required)),
            None => below,
        }
    }

    pub(crate) fn set_keys(&self, keys: &[Vec<u8>]) -> PyResult<()> {
        self.tls.as_ref().map_or(Ok(()), |tls| tls.set_keys(keys).map_err(failed))
    }
}

/// The authorities of the cluster's keys, a new certificate by the first one, and its private key, all in PEM.
#[pyfunction]
#[pyo3(signature = (keys, /))]
pub(crate) fn cluster_certificates(keys: Vec<Vec<u8>>) -> PyResult<(Vec<String>, String, String)> {
    let issued = Certificates::issue(&keys).map_err(failed)?;
    Ok((issued.authorities, issued.certificate, issued.key))
}
