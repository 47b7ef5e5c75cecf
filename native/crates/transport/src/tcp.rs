//! Plain TCP sockets.

use std::io::{self, IoSlice, IoSliceMut, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::net::{AddressFamily, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, ipproto};

use crate::link::{Acceptor, Address, Carrier, Fabric, Link, unless_blocked};

struct Tcp(TcpStream);

impl Link for Tcp {
    fn carrier(&self) -> Carrier {
        Carrier::Tcp
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn connected(&mut self) -> io::Result<()> {
        rustix::net::sockopt::socket_error(&self.0)??;
        self.0.set_nodelay(true)
    }

    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.read_vectored(into)
    }

    fn write(&mut self, from: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        let flags = SendFlags::NOSIGNAL | if more { SendFlags::MORE } else { SendFlags::empty() };
        Ok(rustix::net::sendmsg(&self.0, from, &mut SendAncillaryBuffer::default(), flags)?)
    }

    fn write_file(&mut self, file: BorrowedFd<'_>, mut offset: u64, bytes: usize) -> io::Result<usize> {
        Ok(rustix::fs::sendfile(&self.0, file, Some(&mut offset), bytes)?)
    }
}

/// Connects by TCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpFabric;

impl Fabric for TcpFabric {
    fn carrier(&self) -> Carrier {
        Carrier::Tcp
    }

    fn connect(&self, peer: &Address) -> io::Result<Option<Box<dyn Link>>> {
        let Some(address) = peer.tcp else { return Ok(None) };
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(Some(Box::new(Tcp(socket.into())))),
            Err(error) => Err(error.into()),
        }
    }
}

/// Listens for TCP connections.
#[derive(Debug)]
pub struct TcpAcceptor(TcpListener);

impl TcpAcceptor {
    /// Listen at an address; port 0 is any free one.
    ///
    /// # Errors
    /// The address is not ours, or taken.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self(listener))
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Acceptor for TcpAcceptor {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn accept(&mut self) -> io::Result<Option<Box<dyn Link>>> {
        let Some((stream, _)) = unless_blocked(self.0.accept())? else { return Ok(None) };
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Some(Box::new(Tcp(stream))))
    }
}
