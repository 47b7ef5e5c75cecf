//! The world of real sockets: TCP or TLS over epoll, and the system's monotonic clock.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use rustix::time::Timespec;

use crate::engine::World;
use crate::plan::{Nanos, Target};
use crate::secure::{Secure, Trust};

const EVENTS: EventFlags = EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);
/// Events taken in one call of the system.
const EVENTS_AT_ONCE: usize = 256;
/// What is dropped in one call of the system at most.
const DROPPED_AT_ONCE: usize = 1 << 20;
/// How late the kernel may wake the thread, in nanoseconds; its default would be most of a short answer.
const TIMER_SLACK: NonZeroU64 = NonZeroU64::MIN;

struct Socket {
    stream: TcpStream,
    secure: Option<Secure>,
}

pub(crate) struct Sockets {
    epoll: OwnedFd,
    began: Instant,
    addresses: Vec<SocketAddr>,
    next_address: usize,
    trust: Option<Arc<Trust>>,
    sockets: Vec<Option<Socket>>,
    events: Vec<Event>,
    /// Says how much may be dropped, and is never written to: it takes no memory.
    nowhere: Vec<u8>,
}

impl Sockets {
    /// For as many connections; `turn` says with which address they begin. Call it in the thread that uses it.
    pub(crate) fn new(target: &Target, connections: usize, turn: usize) -> io::Result<Self> {
        // Without it times are a little less exact.
        let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK));
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            began: Instant::now(),
            addresses: target.addresses.clone(),
            next_address: turn,
            trust: target.trust.clone(),
            sockets: (0..connections).map(|_| None).collect(),
            events: Vec::with_capacity(EVENTS_AT_ONCE),
            nowhere: vec![0; DROPPED_AT_ONCE],
        })
    }
}

fn lost() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

impl World for Sockets {
    fn now(&self) -> Nanos {
        self.began.elapsed().as_nanos() as Nanos
    }

    fn calendar(&self) -> u64 {
        SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
    }

    fn connect(&mut self, connection: usize) -> io::Result<()> {
        let address = self.addresses[self.next_address % self.addresses.len()];
        self.next_address += 1;
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        epoll::add(&self.epoll, &stream, EventData::new_u64(connection as u64), EVENTS)?;
        let secure = self.trust.as_ref().map(|trust| Secure::new(trust)).transpose()?;
        self.sockets[connection] = Some(Socket { stream, secure });
        Ok(())
    }

    fn close(&mut self, connection: usize) {
        self.sockets[connection] = None;
    }

    fn write(&mut self, connection: usize, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        let Socket { stream, secure } = self.sockets[connection].as_mut().ok_or_else(lost)?;
        match secure {
            Some(secure) => secure.write(stream, bytes),
            None => stream.write_vectored(bytes),
        }
    }

    fn read(&mut self, connection: usize, into: &mut [u8]) -> io::Result<(usize, bool)> {
        let Socket { stream, secure } = self.sockets[connection].as_mut().ok_or_else(lost)?;
        match secure {
            Some(secure) => Ok((secure.read(stream, into)?, true)),
            None => {
                let size = stream.read(into)?;
                Ok((size, size == into.len()))
            }
        }
    }

    fn discard(&mut self, connection: usize, most: u64) -> io::Result<(usize, bool)> {
        let Socket { stream, secure } = self.sockets[connection].as_ref().ok_or_else(lost)?;
        if secure.is_some() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let room = usize::try_from(most).unwrap_or(usize::MAX).min(DROPPED_AT_ONCE);
        // Of TCP, Linux drops what has come, instead of copying it.
        let (_, size) = rustix::net::recv(stream, &mut self.nowhere[..room], RecvFlags::TRUNC)?;
        Ok((size, size == room))
    }

    fn wait(&mut self, until: Nanos, ready: &mut Vec<usize>) -> io::Result<()> {
        let left = until.saturating_sub(self.now());
        let timeout = Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as _ };
        self.events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        ready.extend(self.events.iter().map(|event| event.data.u64() as usize));
        Ok(())
    }
}
