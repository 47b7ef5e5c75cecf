//! TCP connections whose lent chunks are fetched by the [`Engine`].

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use swiftlet_transport::{Acceptor, Address, Buffer, Carrier, Fabric, Fetched, Link, Met, TcpAcceptor, TcpFabric};

use crate::engine::Engine;

struct UcxLink {
    stream: Box<dyn Link>,
    engine: Arc<Engine>,
    number: u64,
}

impl UcxLink {
    fn wrap(stream: Box<dyn Link>, engine: &Arc<Engine>) -> Box<dyn Link> {
        Box::new(Self { stream, engine: Arc::clone(engine), number: engine.number() })
    }
}

impl Link for UcxLink {
    fn carrier(&self) -> Carrier {
        Carrier::Rdma
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.descriptor()
    }

    fn connected(&mut self) -> io::Result<()> {
        self.stream.connected()
    }

    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.stream.read(into)
    }

    fn write(&mut self, from: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        self.stream.write(from, more)
    }

    fn write_file(&mut self, file: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<usize> {
        self.stream.write_file(file, offset, bytes)
    }

    fn lends(&self) -> bool {
        true
    }

    fn card(&self) -> Option<&[u8]> {
        Some(self.engine.card())
    }

    fn meet(&mut self, card: &[u8], then: Met) {
        self.engine.meet(self.number, card, then);
    }

    fn fetch(&mut self, address: u64, into: Buffer, then: Fetched) {
        self.engine.fetch(self.number, address, into, then);
    }
}

impl Drop for UcxLink {
    fn drop(&mut self) {
        self.engine.leave(self.number);
    }
}

/// Connects by TCP, and fetches by RDMA where both ends can.
#[derive(Clone, Debug)]
pub struct UcxFabric(Arc<Engine>);

impl UcxFabric {
    /// `engine`: of the pool that the node has.
    #[must_use]
    pub fn new(engine: &Arc<Engine>) -> Self {
        Self(Arc::clone(engine))
    }
}

impl Fabric for UcxFabric {
    fn carrier(&self) -> Carrier {
        Carrier::Rdma
    }

    fn connect(&self, peer: &Address) -> io::Result<Option<Box<dyn Link>>> {
        Ok(TcpFabric.connect(peer)?.map(|stream| UcxLink::wrap(stream, &self.0)))
    }
}

/// Takes TCP connections, with or without RDMA.
#[derive(Debug)]
pub struct UcxAcceptor {
    listener: TcpAcceptor,
    engine: Arc<Engine>,
}

impl UcxAcceptor {
    /// `engine`: of the pool that the node has.
    #[must_use]
    pub fn new(listener: TcpAcceptor, engine: &Arc<Engine>) -> Self {
        Self { listener, engine: Arc::clone(engine) }
    }
}

impl Acceptor for UcxAcceptor {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.listener.descriptor()
    }

    fn accept(&mut self) -> io::Result<Option<Box<dyn Link>>> {
        Ok(self.listener.accept()?.map(|stream| UcxLink::wrap(stream, &self.engine)))
    }
}
