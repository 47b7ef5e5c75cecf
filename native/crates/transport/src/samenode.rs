//! Unix sockets between processes of one machine, over which memory is lent.
//!
//! The socket is in a directory that both can see (in pods: the same hostPath). Abstract names would belong to the
//! pod's network namespace. Fault model: a stale socket of a process that is gone, or a peer that passes unexpected
//! descriptors; the first is replaced or ignored, the others are closed.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::link::{Acceptor, Address, Carrier, Fabric, Link, unless_blocked};

struct SameNode {
    socket: OwnedFd,
    to_send: Option<OwnedFd>,
    received: Option<OwnedFd>,
}

impl SameNode {
    fn new(socket: OwnedFd) -> Self {
        Self { socket, to_send: None, received: None }
    }
}

impl Link for SameNode {
    fn carrier(&self) -> Carrier {
        Carrier::SameNode
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn connected(&mut self) -> io::Result<()> {
        Ok(rustix::net::sockopt::socket_error(&self.socket)??)
    }

    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let read = rustix::net::recvmsg(&self.socket, into, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                // One is kept until it is asked for; of more than one the others are closed here.
                for descriptor in descriptors {
                    self.received.get_or_insert(descriptor);
                }
            }
        }
        Ok(read.bytes)
    }

    fn write(&mut self, from: &[IoSlice<'_>], _more: bool) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptor = self.to_send.as_ref().map(|descriptor| [descriptor.as_fd()]);
        if let Some(descriptor) = &descriptor {
            control.push(SendAncillaryMessage::ScmRights(descriptor));
        }
        let written = rustix::net::sendmsg(&self.socket, from, &mut control, SendFlags::NOSIGNAL)?;
        self.to_send = None;
        Ok(written)
    }

    fn write_file(&mut self, file: BorrowedFd<'_>, mut offset: u64, bytes: usize) -> io::Result<usize> {
        Ok(rustix::fs::sendfile(&self.socket, file, Some(&mut offset), bytes)?)
    }

    fn lends(&self) -> bool {
        true
    }

    fn attach(&mut self, descriptor: OwnedFd) {
        self.to_send = Some(descriptor);
    }

    fn detach(&mut self) -> Option<OwnedFd> {
        self.received.take()
    }
}

fn path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{:032x}.sock", swiftlet_hash::xxh3_128(name.as_bytes())))
}

fn connect(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Connects within the machine.
#[derive(Clone, Debug)]
pub struct SameNodeFabric(PathBuf);

impl SameNodeFabric {
    /// `directory`: where the sockets are.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self(directory.to_owned())
    }
}

impl Fabric for SameNodeFabric {
    fn carrier(&self) -> Carrier {
        Carrier::SameNode
    }

    fn connect(&self, peer: &Address) -> io::Result<Option<Box<dyn Link>>> {
        match connect(&path(&self.0, &peer.name)) {
            Ok(socket) => Ok(Some(Box::new(SameNode::new(socket)))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Listens for processes of this machine. When it is dropped, its socket is removed.
#[derive(Debug)]
pub struct SameNodeAcceptor {
    listener: UnixListener,
    path: PathBuf,
}

impl SameNodeAcceptor {
    /// Listen as `name`, by which peers know this process.
    ///
    /// # Errors
    /// A living process listens there, or the directory is not to be written to.
    pub fn bind(directory: &Path, name: &str) -> io::Result<Self> {
        let path = path(directory, name);
        let listener = match UnixListener::bind(&path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if connect(&path).is_ok() {
                    return Err(error);
                }
                std::fs::remove_file(&path)?;
                UnixListener::bind(&path)?
            }
            bound => bound?,
        };
        listener.set_nonblocking(true)?;
        Ok(Self { listener, path })
    }

    /// Let processes of all users connect who find the socket: who they are, the handshake decides.
    ///
    /// # Errors
    /// The socket is gone.
    pub fn let_all_users_in(&self) -> io::Result<()> {
        std::fs::set_permissions(&self.path, std::os::unix::fs::PermissionsExt::from_mode(0o666))
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Acceptor for SameNodeAcceptor {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    fn accept(&mut self) -> io::Result<Option<Box<dyn Link>>> {
        let Some((stream, _)) = unless_blocked(self.listener.accept())? else { return Ok(None) };
        UnixStream::set_nonblocking(&stream, true)?;
        Ok(Some(Box::new(SameNode::new(stream.into()))))
    }
}

impl Drop for SameNodeAcceptor {
    fn drop(&mut self) {
        // If it is gone already, so much the better; a stale one is replaced at the next start.
        let _ = std::fs::remove_file(&self.path);
    }
}
