//! TLS between the services of one cluster, with certificates derived from the cluster's keys.
//!
//! Each cluster key has a certificate authority, whose private key is derived from it: whoever holds the cluster key
//! can issue a certificate to itself and check those of others, and nobody else can. So nothing has to be made,
//! mounted or renewed, and a key that is replaced takes its authority with it. `docs/design/2026-11-24-encryption.md`
//! has the reasons. Only TLS 1.3 is used, with both sides' certificates, and without resumption: each connection has
//! its own secrets (forward secrecy), and every connection proves a key that is in use at the time. Guests have no
//! certificate: where they are let in, who shows none has to prove a session by the transport's own handshake.
//!
//! Fault model: anybody may connect, listen, change, repeat and cut traffic. Whoever holds a cluster key may claim to
//! be any service of the cluster, as with signatures.

mod authority;

use std::sync::{Arc, PoisonError, RwLock};

pub use authority::{Certificates, PEER_NAME};
use rustls::client::{ClientConfig, Resumption};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, ServerConfig, WebPkiClientVerifier};
use rustls::{ClientConnection, Connection, RootCertStore, ServerConnection};

/// The protocol that both sides name in the handshake (ALPN). HTTP with the same certificates uses another name.
pub const PROTOCOL: &[u8] = b"swiftlet";

/// Why there are no certificates or no connection.
#[derive(Debug)]
pub struct Error(String);

impl std::fmt::Display for Error {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "TLS: {}", self.0)
    }
}

impl std::error::Error for Error {}

impl Error {
    fn from(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        std::io::Error::other(error)
    }
}

struct Configs {
    client: Arc<ClientConfig>,
    /// None at a guest, which has no certificate.
    server: Option<Arc<ServerConfig>>,
}

/// The TLS configuration of a process; it follows the cluster's keys.
pub struct Tls {
    configs: RwLock<Configs>,
    /// Whether clients without a certificate are let in.
    guests: bool,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Tls")
    }
}

/// AES with 128 bits is preferred: as strong as the key exchange, and the fastest where the processor has AES; the
/// others are for peers that offer nothing else.
fn provider() -> CryptoProvider {
    use ring::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256};
    let cipher_suites = vec![TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256];
    CryptoProvider { cipher_suites, ..ring::default_provider() }
}

fn read(pem: &str) -> Result<CertificateDer<'static>, Error> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(Error::from)
}

fn roots(authorities: &[String]) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(read(authority)?).map_err(Error::from)?;
    }
    Ok(Arc::new(roots))
}

const ONLY: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// A client that trusts these roots, with a certificate or as a guest.
fn client(
    roots: Arc<RootCertStore>,
    own: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
) -> Result<Arc<ClientConfig>, Error> {
    let builder = ClientConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(ONLY)
        .map_err(Error::from)?
        .with_root_certificates(roots);
    let mut client = match own {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(Error::from)?,
        None => builder.with_no_client_auth(),
    };
    client.resumption = Resumption::disabled();
    client.enable_sni = false;
    client.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(Arc::new(client))
}

fn configs(keys: &[Vec<u8>], guests: bool) -> Result<Configs, Error> {
    let certificates = Certificates::issue(keys)?;
    let (roots, provider) = (roots(&certificates.authorities)?, Arc::new(provider()));
    let chain = vec![read(&certificates.certificate)?];
    let key = PrivateKeyDer::from_pem_slice(certificates.key.as_bytes()).map_err(Error::from)?;
    let client = client(Arc::clone(&roots), Some((chain.clone(), key.clone_key())))?;

    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
    let verifier = if guests { verifier.allow_unauthenticated() } else { verifier };
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(ONLY)
        .map_err(Error::from)?
        .with_client_cert_verifier(verifier.build().map_err(Error::from)?)
        .with_single_cert(chain, key)
        .map_err(Error::from)?;
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    server.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(Configs { client, server: Some(Arc::new(server)) })
}

impl Tls {
    /// A configuration with `keys`, the cluster's, the preferred one first: it issues the certificate, all are
    /// trusted.
    ///
    /// # Errors
    /// There is no key, or no randomness.
    pub fn new(keys: &[Vec<u8>]) -> Result<Self, Error> {
        Ok(Self { configs: RwLock::new(configs(keys, false)?), guests: false })
    }

    /// The same for a server that also lets in clients without a certificate.
    ///
    /// # Errors
    /// As [`Tls::new`].
    pub fn with_guests(keys: &[Vec<u8>]) -> Result<Self, Error> {
        Ok(Self { configs: RwLock::new(configs(keys, true)?), guests: true })
    }

    /// The configuration of a guest, which trusts these authorities (PEM), and can only connect.
    ///
    /// # Errors
    /// One of them is none.
    pub fn of_guest(authorities: &[String]) -> Result<Self, Error> {
        let configs = Configs { client: client(roots(authorities)?, None)?, server: None };
        Ok(Self { configs: RwLock::new(configs), guests: false })
    }

    /// Use these keys for handshakes from now on; open connections stay.
    ///
    /// # Errors
    /// As [`Tls::new`]; then the keys stay as they were.
    pub fn set_keys(&self, keys: &[Vec<u8>]) -> Result<(), Error> {
        let changed = configs(keys, self.guests)?;
        *self.configs.write().unwrap_or_else(PoisonError::into_inner) = changed;
        Ok(())
    }

    /// The connecting side of a connection.
    ///
    /// # Errors
    /// No randomness.
    pub fn client(&self) -> Result<Connection, Error> {
        let config = Arc::clone(&self.configs.read().unwrap_or_else(PoisonError::into_inner).client);
        let name = ServerName::try_from(PEER_NAME).map_err(Error::from)?;
        Ok(ClientConnection::new(config, name).map_err(Error::from)?.into())
    }

    /// The accepting side.
    ///
    /// # Errors
    /// No randomness, or this is a guest's configuration.
    pub fn server(&self) -> Result<Connection, Error> {
        let config = self.configs.read().unwrap_or_else(PoisonError::into_inner).server.clone();
        let config = config.ok_or_else(|| Error("a guest has no certificate to be a server with".to_owned()))?;
        Ok(ServerConnection::new(config).map_err(Error::from)?.into())
    }
}

#[cfg(test)]
mod tests;
