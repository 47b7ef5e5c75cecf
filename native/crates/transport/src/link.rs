//! The boundary between the protocol and its carriers.
//!
//! A [`Link`] is a stream of bytes that never blocks, with one descriptor to wait on. The kinds differ in how offered
//! bytes get to the receiver: see [`Link::lends`]. With RDMA lent chunks are fetched instead of mapped: see
//! [`Link::card`].

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use swiftlet_wire::handshake::Refusal;

use crate::pool::Buffer;

/// What carries a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Carrier {
    /// TCP sockets.
    Tcp = 1,
    /// A Unix socket and shared memory.
    SameNode = 2,
    /// Within the process, with faults.
    Simulated = 3,
    /// Remote direct memory access.
    Rdma = 4,
    /// TCP sockets, encrypted.
    Tls = 5,
}

impl fmt::Display for Carrier {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Carrier::Tcp => "tcp",
            Carrier::SameNode => "same-node",
            Carrier::Simulated => "simulated",
            Carrier::Rdma => "rdma",
            Carrier::Tls => "tls",
        })
    }
}

/// Called once, when it is known whether the peer's memory can be fetched. It must not block.
pub type Met = Box<dyn FnOnce(io::Result<()>) + Send>;

/// Called once, with memory that was filled, or with an error. It must not block.
pub type Fetched = Box<dyn FnOnce(io::Result<Buffer>) + Send>;

/// One connection's stream of bytes. All calls return at once; `WouldBlock` means: wait on the descriptor.
pub trait Link: Send {
    /// The kind of carrier.
    fn carrier(&self) -> Carrier;

    /// Readable when [`Link::read`] has something, writable when [`Link::write`] has room. Level-triggered.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Called when the link first becomes writable.
    ///
    /// # Errors
    /// It could not be made.
    fn connected(&mut self) -> io::Result<()>;

    /// Read into several slices. 0: the other side has closed.
    ///
    /// # Errors
    /// `WouldBlock`, or it is broken.
    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// Write from several slices; `more`: further bytes follow at once.
    ///
    /// # Errors
    /// `WouldBlock`, or it is broken.
    fn write(&mut self, from: &[IoSlice<'_>], more: bool) -> io::Result<usize>;

    /// Write bytes of a file. 0: the file is shorter.
    ///
    /// # Errors
    /// `WouldBlock`, or the link or the file is broken.
    fn write_file(&mut self, file: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<usize>;

    /// Whether it has bytes that the descriptor does not indicate.
    fn holds(&self) -> bool {
        false
    }

    /// Read only these bytes; 0: there are none yet.
    ///
    /// # Errors
    /// It is broken.
    fn read_held(&mut self, _into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        Ok(0)
    }

    /// Write what the link has accepted and not written yet. `false`: wait until it is writable.
    ///
    /// # Errors
    /// It is broken.
    fn flush(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    /// Why a client on this link is refused, if it is.
    fn refusal(&self) -> Option<Refusal> {
        None
    }

    /// Whether both ends can share memory: then chunks of the pool are lent, not sent.
    fn lends(&self) -> bool {
        false
    }

    /// What the peer needs to fetch from our pool, if lent chunks are fetched; without it they are mapped.
    fn card(&self) -> Option<&[u8]> {
        None
    }

    /// Handle the peer's card: find out by a fetch whether it can be used.
    fn meet(&mut self, _card: &[u8], then: Met) {
        then(Err(io::ErrorKind::Unsupported.into()));
    }

    /// Fill memory from this address in the peer's region, on which [`Link::meet`] has succeeded. The memory is not
    /// returned, not even when the link is dropped, before nothing writes to it any more.
    fn fetch(&mut self, _address: u64, _into: Buffer, then: Fetched) {
        then(Err(io::ErrorKind::Unsupported.into()));
    }

    /// Send a descriptor with the next bytes.
    fn attach(&mut self, _descriptor: OwnedFd) {}

    /// A received descriptor.
    fn detach(&mut self) -> Option<OwnedFd> {
        None
    }
}

/// Where a peer may be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The name that it has to have.
    pub name: String,
    /// Its TCP address.
    pub tcp: Option<SocketAddr>,
}

/// A way to reach peers.
pub trait Fabric: Send + Sync {
    /// What its links are.
    fn carrier(&self) -> Carrier;

    /// Begin to connect. `None`: this peer can't be reached by this fabric.
    ///
    /// # Errors
    /// It can't be reached now.
    fn connect(&self, peer: &Address) -> io::Result<Option<Box<dyn Link>>>;
}

/// Takes connections.
pub trait Acceptor: Send {
    /// Readable when [`Acceptor::accept`] has one.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// The next connection, if one is waiting.
    ///
    /// # Errors
    /// Out of descriptors, or the like.
    fn accept(&mut self) -> io::Result<Option<Box<dyn Link>>>;
}

/// `Ok(None)` for errors that are normal for non-blocking calls.
pub(crate) fn unless_blocked<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}
