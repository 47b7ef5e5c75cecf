//! HTTPS: whom to trust, and a connection's records between plain bytes and a socket.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

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
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authorities) {
            let certificate = certificate.map_err(|error| format!("certificate authorities: {error}"))?;
            // Collections of a system have some that no library likes; those that are needed are missed soon enough.
            let _ = roots.add(certificate);
        }
        if roots.is_empty() {
            return Err("certificate authorities: there is no usable certificate among them".to_owned());
        }
        let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
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
