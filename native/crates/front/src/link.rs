//! The socket of a client, with TLS or without it: all that differs between the two.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};

use crate::queue::PARTS;
use crate::secure::Secure;
use crate::session::{self, Session};

/// The result of receiving once.
pub(crate) enum Received {
    /// So many bytes from the network. With TLS there may be nothing for us in them.
    Bytes(usize),
    Nothing,
    End,
}

pub(crate) struct Link {
    pub(crate) socket: OwnedFd,
    pub(crate) tls: Option<Box<Session>>,
}

impl Link {
    pub(crate) fn new(socket: OwnedFd, remote: SocketAddr, secure: Option<&Arc<Secure>>) -> std::io::Result<Self> {
        let tls = match secure {
            None => None,
            Some(secure) => {
                let local = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
                Some(Box::new(Session::new(Arc::clone(secure), remote, local)))
            }
        };
        Ok(Self { socket, tls })
    }

    /// Receive what fits into `scratch`, and append what it means.
    pub(crate) fn receive(&mut self, scratch: &mut [u8], into: &mut Vec<u8>) -> Received {
        if self.tls.as_ref().is_some_and(|tls| tls.has_ended() || tls.is_broken()) {
            return Received::End;
        }
        match rustix::net::recv(&self.socket, &mut *scratch, RecvFlags::empty()) {
            Ok((bytes, _)) if bytes > 0 => {
                match &mut self.tls {
                    None => into.extend_from_slice(&scratch[..bytes]),
                    Some(tls) => {
                        if tls.take(&self.socket, &scratch[..bytes], into).is_err() {
                            return Received::End;
                        }
                    }
                }
                Received::Bytes(bytes)
            }
            Err(Errno::AGAIN | Errno::INTR) => Received::Nothing,
            _ => Received::End,
        }
    }

    /// Whether the end is known that the next attempt to receive reports.
    pub(crate) fn has_ended(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_ended())
    }

    /// Whether neither side can send anything any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_broken())
    }

    /// Send as much of two parts as possible; returns how many bytes. With TLS they may have to be flushed.
    pub(crate) fn send(&mut self, first: &[u8], second: &[u8]) -> Result<usize, Errno> {
        let sent = match &mut self.tls {
            None => session::send(self.socket.as_fd(), &[IoSlice::new(first), IoSlice::new(second)]),
            Some(tls) => tls.send(&self.socket, first, second),
        };
        match sent {
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            other => other,
        }
    }

    /// Send as much of these parts as possible; returns how many bytes. With TLS they may have to be flushed.
    pub(crate) fn send_all(&mut self, parts: &[&[u8]]) -> Result<usize, Errno> {
        if self.tls.is_none() {
            let mut slices = [IoSlice::new(&[]); PARTS];
            let mut sent = 0;
            for some in parts.chunks(PARTS) {
                slices.iter_mut().zip(some).for_each(|(slice, part)| *slice = IoSlice::new(part));
                let count = match session::send(self.socket.as_fd(), &slices[..some.len()]) {
                    Err(Errno::AGAIN | Errno::INTR) => 0,
                    // What was sent before was sent; who goes on meets the error again.
                    Err(error) if sent == 0 => return Err(error),
                    Err(_) => 0,
                    Ok(count) => count,
                };
                sent += count;
                if count < some.iter().map(|part| part.len()).sum::<usize>() {
                    break;
                }
            }
            return Ok(sent);
        }
        let mut sent = 0;
        for two in parts.chunks(2) {
            let second = two.get(1).copied().unwrap_or_default();
            let count = self.send(two[0], second)?;
            sent += count;
            if count < two[0].len() + second.len() {
                break;
            }
        }
        Ok(sent)
    }

    /// Whether the kernel has taken all that was sent.
    pub(crate) fn flush(&mut self) -> Result<bool, Errno> {
        match &mut self.tls {
            None => Ok(true),
            Some(tls) => tls.flush(&self.socket),
        }
    }

    /// Encrypted bytes that the kernel has taken so far.
    pub(crate) fn sent(&self) -> u64 {
        self.tls.as_ref().map_or(0, |tls| tls.sent())
    }

    /// Tell the client that nothing more comes.
    pub(crate) fn end(&mut self) {
        if self.tls.as_mut().is_none_or(|tls| tls.end(&self.socket)) {
            // It only fails on a connection that is gone, which the next read notices.
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
        }
    }

    /// Tell the client, if it can be done at once, that the connection is being closed.
    pub(crate) fn say_goodbye(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.end(&self.socket);
        }
    }
}
