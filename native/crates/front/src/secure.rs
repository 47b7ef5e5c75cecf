//! TLS of the port that clients use: the certificate in use, tickets for resumption, and what became of handshakes.
//!
//! TLS 1.2 and 1.3, without client certificates. AES with 128 bits comes first: as strong as the key exchange, and the
//! fastest where the processor has AES. A client that offers `http/1.1` by ALPN is told that it was chosen; one that
//! offers only other protocols is served without a word about it, as by Python's TLS library.
//!
//! Fault model: anybody may connect and send anything. A pair of certificate and key that can't be used leaves the one
//! before in use.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{Accepted, NoServerSessionStorage, ServerConfig};
use rustls::{HandshakeKind, version};

use crate::tickets::Tickets;

const HTTP: &[u8] = b"http/1.1";

/// Why a pair of certificate and key can't be used.
#[derive(Debug)]
pub struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

impl Refused {
    pub(crate) fn without_tls() -> Self {
        Self("the port is without TLS".to_owned())
    }
}

fn refused(error: impl fmt::Display) -> Refused {
    Refused(error.to_string())
}

/// Why a handshake was not completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The first byte was not one of TLS.
    Plain,
    /// The client said something that is not allowed, offered nothing that both have, or refused the certificate.
    Protocol,
    /// The client closed the connection after it had begun.
    Closed,
    /// It took too long, or others waited for its place.
    Late,
}

/// How many handshakes ended in which way so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshakes {
    /// Completed with the certificate.
    pub full: u64,
    /// Completed by resuming a session.
    pub resumed: u64,
    /// Connections that began with something else than TLS.
    pub plain: u64,
    /// Refused by either side.
    pub protocol: u64,
    /// Closed by the client in the middle.
    pub closed: u64,
    /// Ended because they took too long.
    pub late: u64,
}

#[derive(Default)]
struct Counts([AtomicU64; 6]);

struct Configs {
    /// For clients that offer HTTP by its name.
    named: Arc<ServerConfig>,
    unnamed: Arc<ServerConfig>,
}

/// The TLS configuration of a front.
pub struct Secure {
    configs: RwLock<Arc<Configs>>,
    tickets: Arc<Tickets>,
    counts: Counts,
}

impl fmt::Debug for Secure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Secure")
    }
}

impl Secure {
    /// `certificate`, with its chain, and `key` in PEM. Tickets of all who have the same secret resume each other's
    /// sessions.
    ///
    /// # Errors
    /// They can't be used.
    pub fn new(certificate: &[u8], key: &[u8], ticket_secret: &[u8]) -> Result<Self, Refused> {
        let tickets = Arc::new(Tickets::new(ticket_secret));
        let configs = RwLock::new(Arc::new(configs(certificate, key, &tickets)?));
        Ok(Self { configs, tickets, counts: Counts::default() })
    }

    /// Use this pair for new connections.
    ///
    /// # Errors
    /// It can't be used; then the last one stays in use.
    pub fn renew(&self, certificate: &[u8], key: &[u8]) -> Result<(), Refused> {
        let renewed = Arc::new(configs(certificate, key, &self.tickets)?);
        *self.configs.write().unwrap_or_else(PoisonError::into_inner) = renewed;
        Ok(())
    }

    /// How handshakes ended so far.
    #[must_use]
    pub fn handshakes(&self) -> Handshakes {
        let [full, resumed, plain, protocol, closed, late] =
            std::array::from_fn(|at| self.counts.0[at].load(Ordering::Relaxed));
        Handshakes { full, resumed, plain, protocol, closed, late }
    }

    /// The configuration for a client that has said this.
    pub(crate) fn config(&self, accepted: &Accepted) -> Arc<ServerConfig> {
        let configs = Arc::clone(&self.configs.read().unwrap_or_else(PoisonError::into_inner));
        let offers = accepted.client_hello().alpn().is_some_and(|mut offered| offered.any(|name| name == HTTP));
        Arc::clone(if offers { &configs.named } else { &configs.unnamed })
    }

    pub(crate) fn completed(&self, kind: Option<HandshakeKind>) {
        let at = usize::from(kind == Some(HandshakeKind::Resumed));
        self.counts.0[at].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self, failure: Failure) {
        let at = match failure {
            Failure::Plain => 2,
            Failure::Protocol => 3,
            Failure::Closed => 4,
            Failure::Late => 5,
        };
        self.counts.0[at].fetch_add(1, Ordering::Relaxed);
    }
}

fn provider() -> CryptoProvider {
    use ring::cipher_suite::{
        TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, TLS13_AES_128_GCM_SHA256,
        TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
    };
    let cipher_suites = vec![
        TLS13_AES_128_GCM_SHA256,
        TLS13_AES_256_GCM_SHA384,
        TLS13_CHACHA20_POLY1305_SHA256,
        TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ];
    CryptoProvider { cipher_suites, ..ring::default_provider() }
}

fn configs(certificate: &[u8], key: &[u8], tickets: &Arc<Tickets>) -> Result<Configs, Refused> {
    let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>().map_err(refused)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(refused)?;
    let mut unnamed = ServerConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .map_err(refused)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(refused)?;
    unnamed.ignore_client_order = true;
    // Sessions are in the tickets, so that nothing is kept here for clients that may never come back.
    unnamed.session_storage = Arc::new(NoServerSessionStorage {});
    unnamed.ticketer = Arc::clone(tickets) as Arc<_>;
    let mut named = unnamed.clone();
    named.alpn_protocols = vec![HTTP.to_vec()];
    Ok(Configs { named: Arc::new(named), unnamed: Arc::new(unnamed) })
}
