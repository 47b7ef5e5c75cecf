//! TLS on one client's connection, over a socket that never blocks.

use std::io::{self, BufRead as _, IoSlice, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use rustls::ServerConnection;
use rustls::server::{Accepted, AcceptedAlert, Acceptor};

use crate::secure::{Failure, Secure};

/// The most that is encrypted and not sent yet.
const WAITING_BYTES: usize = 128 << 10;
/// The first byte of TLS: a record of its handshake. No method of HTTP begins with it.
const HANDSHAKE: u8 = 22;

/// Send as much of the parts as possible.
pub(crate) fn send(socket: BorrowedFd<'_>, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
    rustix::net::sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
}

struct Below<'a>(BorrowedFd<'a>);

impl Write for Below<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        Ok(send(self.0, &[IoSlice::new(from)])?)
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(send(self.0, from)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Stage {
    /// The client has not said yet what it offers.
    Hello(Box<Acceptor>),
    Open(Box<ServerConnection>),
    /// There is nothing to send or to read any more.
    Broken,
}

/// The session can't go on, and neither can its connection.
pub(crate) struct Broken;

/// The server's side of a connection with TLS.
pub(crate) struct Session {
    secure: Arc<Secure>,
    /// The client's address.
    pub(crate) remote: SocketAddr,
    /// The address that it has connected to.
    pub(crate) local: SocketAddr,
    stage: Stage,
    /// The first byte that was received.
    first: Option<u8>,
    /// Whether the client has said that it sends no more.
    has_ended: bool,
    /// Encrypted bytes that the kernel has taken.
    sent: u64,
}

impl Session {
    pub(crate) fn new(secure: Arc<Secure>, remote: SocketAddr, local: SocketAddr) -> Self {
        let stage = Stage::Hello(Box::default());
        Self { secure, remote, local, stage, first: None, has_ended: false, sent: 0 }
    }

    /// Bytes that the kernel has taken so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    pub(crate) fn is_broken(&self) -> bool {
        matches!(self.stage, Stage::Broken)
    }

    /// Whether the handshake goes on.
    pub(crate) fn is_handshaking(&self) -> bool {
        match &self.stage {
            Stage::Hello(_) => true,
            Stage::Open(tls) => tls.is_handshaking(),
            Stage::Broken => false,
        }
    }

    /// Count a handshake that is completed.
    pub(crate) fn count_completed(&self) {
        if let Stage::Open(tls) = &self.stage {
            self.secure.completed(tls.handshake_kind());
        }
    }

    /// Count a handshake that will not be completed; those that never began don't count.
    pub(crate) fn count_failed(&self, is_late: bool) {
        let failure = match self.first {
            None if is_late => Failure::Late,
            None => return,
            Some(first) if first != HANDSHAKE => Failure::Plain,
            Some(_) if is_late => Failure::Late,
            Some(_) if self.is_broken() => Failure::Protocol,
            Some(_) => Failure::Closed,
        };
        self.secure.failed(failure);
    }

    /// Process bytes from the network, and append what they decrypt to. An error breaks the session; the client is
    /// told why if that can be done at once.
    pub(crate) fn take(&mut self, socket: impl AsFd, bytes: &[u8], into: &mut Vec<u8>) -> Result<(), Broken> {
        self.first = self.first.or(bytes.first().copied());
        let mut left = bytes;
        while !left.is_empty() && !self.has_ended {
            match &mut self.stage {
                Stage::Hello(acceptor) => {
                    let accepted = match acceptor.read_tls(&mut left) {
                        Ok(_) => acceptor.accept(),
                        Err(_) => return Err(self.break_off()),
                    };
                    match accepted.map(|accepted| accepted.map(|accepted| open(&self.secure, accepted))) {
                        Ok(None) => {}
                        Ok(Some(Ok(tls))) => {
                            self.stage = Stage::Open(tls);
                            self.process(&socket, into)?;
                        }
                        Ok(Some(Err(alert))) | Err((_, alert)) => {
                            return Err(self.refuse(&socket, alert));
                        }
                    }
                }
                Stage::Open(tls) => {
                    if tls.read_tls(&mut left).is_err() {
                        return Err(self.break_off());
                    }
                    self.process(&socket, into)?;
                }
                Stage::Broken => return Err(Broken),
            }
        }
        // The handshake's answers, and those to a change of keys.
        self.flush(&socket).map(drop).map_err(|_| Broken)
    }

    fn process(&mut self, socket: &impl AsFd, into: &mut Vec<u8>) -> Result<(), Broken> {
        let Stage::Open(tls) = &mut self.stage else { return Err(Broken) };
        match tls.process_new_packets() {
            Ok(state) => {
                self.has_ended |= state.peer_has_closed();
                let mut left = state.plaintext_bytes_to_read();
                let mut reader = tls.reader();
                while left > 0 {
                    let Ok(decrypted) = reader.fill_buf() else { break };
                    if decrypted.is_empty() {
                        break;
                    }
                    into.extend_from_slice(decrypted);
                    let count = decrypted.len();
                    reader.consume(count);
                    left = left.saturating_sub(count);
                }
                Ok(())
            }
            Err(_) => {
                // The alert that says why, if it can be sent at once.
                let _ = self.flush(socket);
                Err(self.break_off())
            }
        }
    }

    fn break_off(&mut self) -> Broken {
        self.stage = Stage::Broken;
        Broken
    }

    fn refuse(&mut self, socket: &impl AsFd, mut alert: AcceptedAlert) -> Broken {
        // The connection ends in any case.
        let _ = alert.write_all(&mut Below(socket.as_fd()));
        self.break_off()
    }

    /// Take as much of two parts as there is room for, and send of it what the kernel takes: how many bytes were taken.
    pub(crate) fn send(&mut self, socket: impl AsFd, first: &[u8], second: &[u8]) -> Result<usize, Errno> {
        if !self.flush(&socket)? {
            return Ok(0);
        }
        let Stage::Open(tls) = &mut self.stage else { return Err(Errno::PIPE) };
        let taken = tls.writer().write_vectored(&[IoSlice::new(first), IoSlice::new(second)]);
        let taken = taken.map_err(|_| Errno::PIPE)?;
        self.flush(&socket)?;
        Ok(taken)
    }

    /// Send what is encrypted: whether all of it was taken by the kernel.
    pub(crate) fn flush(&mut self, socket: impl AsFd) -> Result<bool, Errno> {
        let Stage::Open(tls) = &mut self.stage else { return Ok(true) };
        while tls.wants_write() {
            match tls.write_tls(&mut Below(socket.as_fd())) {
                Ok(count) => self.sent += count as u64,
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::AGAIN) => return Ok(false),
                    Some(Errno::INTR) => {}
                    errno => {
                        self.stage = Stage::Broken;
                        return Err(errno.unwrap_or(Errno::PIPE));
                    }
                },
            }
        }
        Ok(true)
    }

    /// Say that nothing more is sent: whether the kernel has taken that.
    pub(crate) fn end(&mut self, socket: impl AsFd) -> bool {
        match &mut self.stage {
            Stage::Open(tls) if !tls.is_handshaking() => tls.send_close_notify(),
            _ => return true,
        }
        self.flush(socket).unwrap_or(true)
    }
}

fn open(secure: &Secure, accepted: Accepted) -> Result<Box<ServerConnection>, AcceptedAlert> {
    let config = secure.config(&accepted);
    let mut tls = accepted.into_connection(config).map_err(|(_, alert)| alert)?;
    tls.set_buffer_limit(Some(WAITING_BYTES));
    Ok(Box::new(tls))
}
