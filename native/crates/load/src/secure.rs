//! HTTPS: whom to trust, and a connection's records between plain bytes and a socket.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// Checks certificates by authorities, and takes the very certificates that were named as such.
///
/// A certificate that somebody made for himself is often marked as an authority, which a server's must not be; OpenSSL
/// takes it if it is trusted. Only its name is checked then, and not its dates: the user has named it.
#[derive(Debug)]
struct Verifier {
    by_authorities: Arc<WebPkiServerVerifier>,
    named: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let checked =
            self.by_authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        if checked.is_err() && self.named.contains(end_entity) {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        checked
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.by_authorities.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.by_authorities.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_authorities.supported_verify_schemes()
    }
}

/// Certificate authorities, and the name that a certificate has to be for.
pub struct Trust {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl fmt::Debug for Trust {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Trust({:?})", self.name)
    }
}

impl Trust {
    /// Trust the authorities of a text in PEM about a host; a message when that is impossible.
    pub fn new(authorities: &[u8], host: &str) -> Result<Self, String> {
        let (mut roots, mut named) = (RootCertStore::empty(), Vec::new());
        for certificate in CertificateDer::pem_slice_iter(authorities) {
            let certificate = certificate.map_err(|error| format!("certificate authorities: {error}"))?;
            // Collections of a system have some that no library likes; those that are needed are missed soon enough.
            let _ = roots.add(certificate.clone());
            named.push(certificate);
        }
        if roots.is_empty() {
            return Err("certificate authorities: there is no usable certificate among them".to_owned());
        }
        let provider = Arc::new(ring::default_provider());
        let by_authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|error| format!("certificate authorities: {error}"))?;
        let verifier = Arc::new(Verifier { by_authorities, named });
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| format!("TLS: {error}"))?;
        let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name =
            ServerName::try_from(host.to_owned()).map_err(|_| format!("{host} can't be a certificate's name"))?;
        Ok(Self { config: Arc::new(config), name })
    }
}

/// The TLS side of one connection.
pub(crate) struct Secure(Box<ClientConnection>);

impl Secure {
    pub(crate) fn new(trust: &Trust) -> io::Result<Self> {
        let session = ClientConnection::new(Arc::clone(&trust.config), trust.name.clone()).map_err(io::Error::other)?;
        Ok(Self(Box::new(session)))
    }

    /// Send what has been encrypted, as far as there is room.
    fn flush(&mut self, socket: &mut impl Write) -> io::Result<()> {
        while self.0.wants_write() {
            match self.0.write_tls(socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Go on with the handshake; WouldBlock while it is under way.
    fn shake_hands(&mut self, socket: &mut (impl Read + Write)) -> io::Result<()> {
        while self.0.is_handshaking() {
            self.flush(socket)?;
            if self.0.is_handshaking() && self.0.wants_read() {
                if self.0.read_tls(socket)? == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                if let Err(error) = self.0.process_new_packets() {
                    // The alert tells the store why.
                    let _ = self.flush(socket);
                    return Err(io::Error::other(error));
                }
            }
        }
        self.flush(socket)
    }

    pub(crate) fn write(&mut self, socket: &mut (impl Read + Write), bytes: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.shake_hands(socket)?;
        let taken = self.0.writer().write_vectored(bytes)?;
        self.flush(socket)?;
        if taken == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    pub(crate) fn read(&mut self, socket: &mut (impl Read + Write), into: &mut [u8]) -> io::Result<usize> {
        self.shake_hands(socket)?;
        loop {
            match self.0.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Ended without saying so, as many servers do; lengths tell whether something is missing.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            self.0.read_tls(socket)?;
            self.0.process_new_packets().map_err(io::Error::other)?;
            self.flush(socket)?;
        }
    }
}
