//! TLS over another link: the bytes on the wire are encrypted, and everything above stays the same.
//!
//! The accepting side recognizes from the first bytes whether a client uses TLS, so that both kinds can be served on
//! one port while a cluster changes from one to the other. A client never falls back from TLS to anything else.
//!
//! Costs: bytes of files are read into memory instead of being sent by the kernel; each byte is copied and encrypted
//! on one side, and decrypted and copied on the other. Memory: below [`PLAIN_BYTES`] and a little more per direction
//! and connection.
//!
//! Fault model: as in `swiftlet_tls`. A manipulated record breaks the connection, and with it its requests.

use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write};
use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustls::Connection;
use swiftlet_tls::Tls;
use swiftlet_wire::handshake::{MAGIC, Refusal};
use swiftlet_wire::limits::HEAD_BYTES;

use crate::link::{Acceptor, Address, Carrier, Fabric, Link, unless_blocked};

/// Bytes that are encrypted, or read to be decrypted, in one turn.
const PLAIN_BYTES: usize = 128 << 10;
/// So many first bytes distinguish TLS from our own frames: HELLO has its magic at the beginning of its meta part.
const TELLING_BYTES: usize = HEAD_BYTES + MAGIC.len();
/// The first byte of a TLS connection: a record of its handshake.
const TLS_HANDSHAKE: u8 = 22;

thread_local! {
    /// Memory of each I/O thread for bytes between a link, or a file, and TLS.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; PLAIN_BYTES]);
}

fn broken(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {error}"))
}

struct Below<'a>(&'a mut dyn Link);

impl Write for Below<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.0.write(&[IoSlice::new(from)], false)
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write(from, false)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// TLS on one connection.
struct Session {
    tls: Box<Connection>,
    /// Encrypted bytes that were read and not processed yet.
    rest: Vec<u8>,
    /// Whether there are decrypted data that nobody has taken.
    decrypted: bool,
}

impl Session {
    fn new(mut tls: Connection, first: Vec<u8>) -> Self {
        tls.set_buffer_limit(Some(PLAIN_BYTES));
        Self { tls: Box::new(tls), rest: first, decrypted: false }
    }

    /// Write what is encrypted. Returns whether all of it was written.
    fn flush(&mut self, link: &mut dyn Link) -> io::Result<bool> {
        while self.tls.wants_write() {
            if unless_blocked(self.tls.write_tls(&mut Below(link)))?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Move decrypted data into the slices after their first `skip` bytes: how many bytes.
    fn take(&mut self, into: &mut [IoSliceMut<'_>], mut skip: usize) -> io::Result<usize> {
        let mut taken = 0;
        for slice in into {
            let from = skip.min(slice.len());
            skip -= from;
            let mut slice = &mut slice[from..];
            while !slice.is_empty() {
                match unless_blocked(self.tls.reader().read(slice))? {
                    Some(count @ 1..) => {
                        slice = &mut slice[count..];
                        taken += count;
                    }
                    _ => {
                        self.decrypted = false;
                        return Ok(taken);
                    }
                }
            }
        }
        Ok(taken)
    }

    /// Decrypt from these bytes until there are data. Returns how many bytes were used.
    fn decrypt(&mut self, link: &mut dyn Link, bytes: &[u8]) -> io::Result<usize> {
        let mut left = bytes;
        while !left.is_empty() && !self.decrypted {
            self.tls.read_tls(&mut left)?;
            match self.tls.process_new_packets() {
                Ok(state) => self.decrypted = state.plaintext_bytes_to_read() > 0,
                Err(error) => {
                    // The alert that says why, if it can be sent at once: the connection ends in any case.
                    let _ = self.flush(link);
                    return Err(broken(error));
                }
            }
        }
        Ok(bytes.len() - left.len())
    }

    /// Fill the slices with what these bytes decrypt to; the rest is kept. Returns how many bytes.
    fn fill(&mut self, link: &mut dyn Link, into: &mut [IoSliceMut<'_>], bytes: &[u8]) -> io::Result<usize> {
        let (mut used, mut filled) = (0, self.take(into, 0)?);
        while !self.decrypted && used < bytes.len() {
            used += self.decrypt(link, &bytes[used..])?;
            filled += self.take(into, filled)?;
        }
        self.rest.extend_from_slice(&bytes[used..]);
        Ok(filled)
    }

    fn holds(&self) -> bool {
        self.decrypted || !self.rest.is_empty()
    }

    fn read_held(&mut self, link: &mut dyn Link, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let rest = mem::take(&mut self.rest);
        self.fill(link, into, &rest)
    }

    fn read(&mut self, link: &mut dyn Link, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let held = if self.holds() { self.read_held(link, into)? } else { 0 };
        if held > 0 {
            return Ok(held);
        }
        let room = into.iter().map(|slice| slice.len()).sum::<usize>().min(PLAIN_BYTES);
        let filled = SCRATCH.with_borrow_mut(|scratch| {
            let count = link.read(&mut [IoSliceMut::new(&mut scratch[..room])])?;
            if count == 0 { Ok(None) } else { self.fill(link, into, &scratch[..count]).map(Some) }
        })?;
        // The handshake's answers, and those to a change of keys.
        self.flush(link)?;
        match filled {
            None => Ok(0),
            // Half a record, or none of data.
            Some(0) => Err(io::ErrorKind::WouldBlock.into()),
            Some(filled) => Ok(filled),
        }
    }

    fn write(&mut self, link: &mut dyn Link, from: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.flush(link)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // While the handshake goes on, what is taken waits in memory, up to a limit.
        let taken = self.tls.writer().write_vectored(from)?;
        self.flush(link)?;
        if taken == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    fn write_file(
        &mut self,
        link: &mut dyn Link,
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
    ) -> io::Result<usize> {
        if !self.flush(link)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let room = bytes.min(scratch.len());
            let count = rustix::io::pread(file, &mut scratch[..room], offset)?;
            if count == 0 { Ok(0) } else { self.write(link, &[IoSlice::new(&scratch[..count])]) }
        })
    }
}

enum Speaks {
    /// Not known yet.
    Unknown,
    Plain,
    Tls(Session),
}

/// One end of a connection.
struct Encrypted {
    link: Box<dyn Link>,
    speaks: Speaks,
    /// What was read to find out which protocol the other side uses.
    first: Vec<u8>,
    tls: Arc<Tls>,
    required: bool,
}

/// Whether these first bytes are TLS; None: more are needed.
fn is_tls(first: &[u8]) -> Option<bool> {
    // A frame begins with a checksum, which may look like anything; so its magic decides.
    match first.first() {
        None => None,
        Some(&TLS_HANDSHAKE) if first.len() < TELLING_BYTES => None,
        Some(&TLS_HANDSHAKE) => Some(first[HEAD_BYTES..TELLING_BYTES] != MAGIC[..]),
        Some(_) => Some(false),
    }
}

impl Encrypted {
    /// Find out which protocol the client uses. `false`: it has closed.
    fn tell(&mut self) -> io::Result<bool> {
        loop {
            if let Some(tls) = is_tls(&self.first) {
                self.speaks = if tls {
                    Speaks::Tls(Session::new(self.tls.server()?, mem::take(&mut self.first)))
                } else {
                    Speaks::Plain
                };
                return Ok(true);
            }
            let mut bytes = [0; TELLING_BYTES];
            let room = TELLING_BYTES - self.first.len();
            let count = self.link.read(&mut [IoSliceMut::new(&mut bytes[..room])])?;
            if count == 0 {
                return Ok(false);
            }
            self.first.extend_from_slice(&bytes[..count]);
        }
    }

    /// Return what was read ahead.
    fn give(&mut self, into: &mut [IoSliceMut<'_>]) -> usize {
        let mut given = 0;
        for slice in into {
            let count = slice.len().min(self.first.len() - given);
            slice[..count].copy_from_slice(&self.first[given..given + count]);
            given += count;
        }
        self.first.drain(..given);
        given
    }
}

impl Link for Encrypted {
    fn carrier(&self) -> Carrier {
        if matches!(self.speaks, Speaks::Tls(_)) { Carrier::Tls } else { self.link.carrier() }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.link.descriptor()
    }

    fn connected(&mut self) -> io::Result<()> {
        self.link.connected()
    }

    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if matches!(self.speaks, Speaks::Unknown) && !self.tell()? {
            return Ok(0);
        }
        match &mut self.speaks {
            Speaks::Tls(session) => session.read(&mut *self.link, into),
            _ if self.first.is_empty() => self.link.read(into),
            _ => Ok(self.give(into)),
        }
    }

    fn write(&mut self, from: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        match &mut self.speaks {
            Speaks::Tls(session) => session.write(&mut *self.link, from),
            _ => self.link.write(from, more),
        }
    }

    fn write_file(&mut self, file: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<usize> {
        match &mut self.speaks {
            Speaks::Tls(session) => session.write_file(&mut *self.link, file, offset, bytes),
            _ => self.link.write_file(file, offset, bytes),
        }
    }

    fn holds(&self) -> bool {
        match &self.speaks {
            Speaks::Unknown => false,
            Speaks::Plain => !self.first.is_empty(),
            Speaks::Tls(session) => session.holds(),
        }
    }

    fn read_held(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match &mut self.speaks {
            Speaks::Tls(session) => session.read_held(&mut *self.link, into),
            _ => Ok(self.give(into)),
        }
    }

    fn flush(&mut self) -> io::Result<bool> {
        match &mut self.speaks {
            Speaks::Tls(session) => session.flush(&mut *self.link),
            _ => Ok(true),
        }
    }

    fn refusal(&self) -> Option<Refusal> {
        (self.required && matches!(self.speaks, Speaks::Plain)).then_some(Refusal::Plain)
    }
}

/// Connects by TLS over another fabric.
pub struct EncryptedFabric {
    below: Arc<dyn Fabric>,
    tls: Arc<Tls>,
}

impl EncryptedFabric {
    /// `below`: whose links are encrypted.
    #[must_use]
    pub fn new(below: Arc<dyn Fabric>, tls: Arc<Tls>) -> Self {
        Self { below, tls }
    }
}

impl Fabric for EncryptedFabric {
    fn carrier(&self) -> Carrier {
        Carrier::Tls
    }

    fn connect(&self, peer: &Address) -> io::Result<Option<Box<dyn Link>>> {
        let Some(link) = self.below.connect(peer)? else { return Ok(None) };
        let speaks = Speaks::Tls(Session::new(self.tls.client()?, Vec::new()));
        let tls = Arc::clone(&self.tls);
        Ok(Some(Box::new(Encrypted { link, speaks, first: Vec::new(), tls, required: true })))
    }
}

/// Accepts connections with TLS and, unless it is `required`, without.
pub struct EncryptedAcceptor {
    below: Box<dyn Acceptor>,
    tls: Arc<Tls>,
    required: bool,
}

impl EncryptedAcceptor {
    /// `below`: whose links they are.
    #[must_use]
    pub fn new(below: Box<dyn Acceptor>, tls: Arc<Tls>, required: bool) -> Self {
        Self { below, tls, required }
    }
}

impl Acceptor for EncryptedAcceptor {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.below.descriptor()
    }

    fn accept(&mut self) -> io::Result<Option<Box<dyn Link>>> {
        let Some(link) = self.below.accept()? else { return Ok(None) };
        let (tls, required) = (Arc::clone(&self.tls), self.required);
        Ok(Some(Box::new(Encrypted { link, speaks: Speaks::Unknown, first: Vec::new(), tls, required })))
    }
}
