//! A network within the process, with faults on demand: delay, a limited rate, damage, freezing, cuts.
//!
//! Bytes go from one socket to another through a thread per direction, which applies [`Faults`]. [`Network::relay`]
//! puts the same between the ends of a TCP connection. Bytes of a stream can't be reordered or lost singly, only
//! damaged or lost together with all that follow, so this is what is simulated.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::EventfdFlags;
use rustix::net::{SendAncillaryBuffer, SendFlags};

use crate::link::{Acceptor, Address, Carrier, Fabric, Link};

/// How often a relay checks its faults.
const LOOK: Duration = Duration::from_millis(5);
const RELAYED_BYTES: usize = 64 << 10;

/// What happens to all bytes of a network. It may be changed at any time.
#[derive(Debug, Default)]
pub struct Faults {
    /// Each piece is delayed by so many µs.
    pub delay_us: AtomicU64,
    /// Bytes per second and direction; 0: no limit.
    pub rate: AtomicU64,
    /// Nothing is passed on, and nobody is told: a dead machine, an unplugged cable.
    pub frozen: AtomicBool,
    /// Cut all connections, and those to come.
    pub cut: AtomicBool,
    /// Flip a bit of the next bytes, after so many from now on; 0: never.
    pub damage_after: AtomicU64,
    /// Bytes that were passed on.
    pub carried: AtomicU64,
    /// Directions of connections in which bytes may still be passed on.
    pub directions: AtomicUsize,
    over: AtomicBool,
}

trait Socket: Read + Write + Send + AsFd + Sized + 'static {
    fn end(&self);
    fn another(&self) -> io::Result<Self>;
    fn patience(&self, timeout: Duration) -> io::Result<()>;
}

impl Socket for UnixStream {
    fn end(&self) {
        // Already closed is closed.
        let _ = self.shutdown(Shutdown::Both);
    }

    fn another(&self) -> io::Result<Self> {
        self.try_clone()
    }

    fn patience(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))
    }
}

impl Socket for TcpStream {
    fn end(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }

    fn another(&self) -> io::Result<Self> {
        self.set_nodelay(true)?;
        self.try_clone()
    }

    fn patience(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))
    }
}

fn carry(mut from: impl Socket, mut to: impl Socket, faults: &Faults) -> io::Result<()> {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    let mut bytes = vec![0; RELAYED_BYTES];
    from.patience(LOOK)?;
    loop {
        if faults.cut.load(SeqCst) || faults.over.load(SeqCst) {
            return Ok(());
        }
        if faults.frozen.load(SeqCst) {
            thread::sleep(LOOK);
            continue;
        }
        let count = match from.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            // A process that was stopped goes on with a read that was interrupted.
            Err(error) if matches!(error.kind(), WouldBlock | TimedOut | Interrupted) => continue,
            Err(error) => return Err(error),
        };
        thread::sleep(Duration::from_micros(faults.delay_us.load(SeqCst)));
        let rate = faults.rate.load(SeqCst);
        if let Some(us) = (count as u64 * 1_000_000).checked_div(rate) {
            thread::sleep(Duration::from_micros(us));
        }
        let after = faults.damage_after.load(SeqCst);
        if after > 0 && after <= count as u64 {
            bytes[after as usize - 1] ^= 1;
            faults.damage_after.store(0, SeqCst);
        } else if after > 0 {
            faults.damage_after.fetch_sub(count as u64, SeqCst);
        }
        faults.carried.fetch_add(count as u64, SeqCst);
        to.write_all(&bytes[..count])?;
    }
}

/// Join two sockets through the faults, both ways.
fn join<S: Socket, T: Socket>(one: S, other: T, faults: &Arc<Faults>) -> io::Result<()> {
    let (one_end, other_end) = (one.another()?, other.another()?);
    let (there, back) = ((one.another()?, other.another()?), (other, one));
    let of_there = Arc::clone(faults);
    let of_back = Arc::clone(faults);
    faults.directions.fetch_add(2, SeqCst);
    thread::Builder::new().spawn(move || {
        // A side that is gone ends both: that is what the other side is told.
        let _ = carry(there.0, there.1, &of_there);
        of_there.directions.fetch_sub(1, SeqCst);
        one_end.end();
        other_end.end();
    })?;
    thread::Builder::new().spawn(move || {
        let (one_end, other_end) = (back.0.another(), back.1.another());
        let _ = carry(back.0, back.1, &of_back);
        of_back.directions.fetch_sub(1, SeqCst);
        one_end.iter().for_each(Socket::end);
        other_end.iter().for_each(Socket::end);
    })?;
    Ok(())
}

struct Simulated(UnixStream);

impl Link for Simulated {
    fn carrier(&self) -> Carrier {
        Carrier::Simulated
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn connected(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.read_vectored(into)
    }

    fn write(&mut self, from: &[IoSlice<'_>], _more: bool) -> io::Result<usize> {
        Ok(rustix::net::sendmsg(&self.0, from, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?)
    }

    fn write_file(&mut self, file: BorrowedFd<'_>, mut offset: u64, bytes: usize) -> io::Result<usize> {
        Ok(rustix::fs::sendfile(&self.0, file, Some(&mut offset), bytes)?)
    }
}

struct Door {
    arrived: Mutex<VecDeque<UnixStream>>,
    bell: OwnedFd,
}

/// A network of names.
#[derive(Clone, Default)]
pub struct Network {
    doors: Arc<Mutex<HashMap<String, Arc<Door>>>>,
    faults: Arc<Faults>,
}

impl std::fmt::Debug for Network {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.faults.fmt(to)
    }
}

impl Network {
    /// One without faults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What happens on it.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// End its connections and threads, and those of its clones.
    pub fn end(&self) {
        self.faults.over.store(true, SeqCst);
    }

    /// Listen under a name.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn listen(&self, name: &str) -> io::Result<Box<dyn Acceptor>> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE;
        let door = Arc::new(Door { arrived: Mutex::default(), bell: rustix::event::eventfd(0, flags)? });
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        doors.insert(name.to_owned(), Arc::clone(&door));
        Ok(Box::new(SimulatedAcceptor(door)))
    }

    /// The end of a new connection to a name; the other end is accepted there.
    ///
    /// # Errors
    /// Nobody listens.
    pub fn connect(&self, name: &str) -> io::Result<UnixStream> {
        let doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        let door = doors.get(name).ok_or(io::ErrorKind::ConnectionRefused)?;
        if self.faults.cut.load(SeqCst) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let ((ours, one), (other, theirs)) = (UnixStream::pair()?, UnixStream::pair()?);
        theirs.set_nonblocking(true)?;
        join(one, other, &self.faults)?;
        door.arrived.lock().unwrap_or_else(PoisonError::into_inner).push_back(theirs);
        rustix::io::write(&door.bell, &1_u64.to_ne_bytes())?;
        Ok(ours)
    }

    /// A TCP address; whoever connects to it is joined to `target` through the faults.
    ///
    /// # Errors
    /// The system has no port left.
    pub fn relay(&self, target: SocketAddr) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let faults = Arc::clone(&self.faults);
        thread::Builder::new().spawn(move || {
            while !faults.over.load(SeqCst) {
                let Ok((one, _)) = listener.accept() else {
                    thread::sleep(LOOK);
                    continue;
                };
                let joined = TcpStream::connect(target).and_then(|other| {
                    one.set_nonblocking(false)?;
                    join(one, other, &faults)
                });
                // The one who connected sees its end closed.
                drop(joined);
            }
        })?;
        Ok(address)
    }
}

impl Fabric for Network {
    fn carrier(&self) -> Carrier {
        Carrier::Simulated
    }

    fn connect(&self, peer: &Address) -> io::Result<Option<Box<dyn Link>>> {
        let stream = Network::connect(self, &peer.name)?;
        stream.set_nonblocking(true)?;
        Ok(Some(Box::new(Simulated(stream))))
    }
}

struct SimulatedAcceptor(Arc<Door>);

impl Acceptor for SimulatedAcceptor {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.bell.as_fd()
    }

    fn accept(&mut self) -> io::Result<Option<Box<dyn Link>>> {
        let Some(stream) = self.0.arrived.lock().unwrap_or_else(PoisonError::into_inner).pop_front() else {
            return Ok(None);
        };
        // The bell counts: one ring less, now that one guest is in.
        rustix::io::read(&self.0.bell, &mut [0; 8])?;
        Ok(Some(Box::new(Simulated(stream))))
    }
}
