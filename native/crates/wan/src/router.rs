//! The sockets, the TUN devices and the clock around a [`Network`].
//!
//! One thread does all of it: it waits until a packet comes, a packet that is under way arrives, or a command comes.

use std::fs::File;
use std::io::{self, ErrorKind, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix, recvmsg};

use crate::command::{Command, MAX_BYTES};
use crate::{Nanos, Network};

/// Packets taken from one region before the others have their turn.
const AT_ONCE: usize = 64;
/// The largest packet: that of IPv4.
const MAX_PACKET: usize = 65_535;

/// A router that runs.
pub struct Router {
    network: Network,
    commands: UnixDatagram,
    /// By the numbers of regions.
    devices: Vec<File>,
    began: Instant,
    /// Packets that a device did not take.
    refused: u64,
}

impl Router {
    /// Take commands from a socket at this path, which must not exist.
    pub fn new(path: &Path, seed: u64) -> io::Result<Self> {
        let commands = UnixDatagram::bind(path)?;
        commands.set_nonblocking(true)?;
        // Without it packets would arrive up to 50 microseconds late.
        let _ = rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN));
        Ok(Self { network: Network::new(seed), commands, devices: Vec::new(), began: Instant::now(), refused: 0 })
    }

    /// Pass packets until something fails that is not a packet's fault.
    pub fn run(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; MAX_PACKET];
        loop {
            self.wait()?;
            self.command()?;
            for from in 0..self.devices.len() {
                self.take(from, &mut buffer)?;
            }
            self.deliver();
        }
    }

    fn now(&self) -> Nanos {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    fn wait(&self) -> io::Result<()> {
        let until = self.network.next_at().map(|at| Duration::from_nanos(at.saturating_sub(self.now())));
        let timeout = until.map(|until| Timespec {
            tv_sec: i64::try_from(until.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: until.subsec_nanos().into(),
        });
        let mut waited: Vec<PollFd<'_>> =
            self.devices.iter().map(|device| PollFd::new(device, PollFlags::IN)).collect();
        waited.push(PollFd::new(&self.commands, PollFlags::IN));
        match poll(&mut waited, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Send what a region has given out.
    fn take(&mut self, from: usize, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..AT_ONCE {
            match self.devices[from].read(buffer) {
                Ok(length) => self.network.send(self.now(), from, &buffer[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn deliver(&mut self) {
        let now = self.now();
        while let Some(arrival) = self.network.arrived(now) {
            // A device that is down or full loses packets, as a network card does.
            if self.devices[arrival.to].write(&arrival.packet).is_err() {
                self.refused += 1;
            }
        }
    }

    /// Do what was asked for, and answer: what was found, or `error: ` and the reason.
    fn command(&mut self) -> io::Result<()> {
        let mut bytes = [0; MAX_BYTES + 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let message = match recvmsg(&self.commands, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Ok(message) => message,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let device = control.drain().find_map(|one| match one {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        let answer = self.answer(&bytes[..message.bytes], device);
        let text = answer.unwrap_or_else(|reason| format!("error: {reason}"));
        let from = message.address.and_then(|address| SocketAddrUnix::try_from(address).ok());
        if let Some(path) = from.as_ref().and_then(SocketAddrUnix::path) {
            // Who asked may be gone.
            let _ = self.commands.send_to(text.as_bytes(), Path::new(path.to_string_lossy().as_ref()));
        }
        Ok(())
    }

    fn answer(&mut self, bytes: &[u8], device: Option<OwnedFd>) -> Result<String, String> {
        if bytes.len() > MAX_BYTES {
            return Err(format!("a command has {MAX_BYTES} bytes at most"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| "a command is text".to_owned())?;
        let command = Command::parse(text)?;
        if !matches!(command, Command::Join(..)) {
            return command.run(&mut self.network);
        }
        let device = device.ok_or("a region joins with the descriptor of its TUN device")?;
        let flags = rustix::fs::OFlags::NONBLOCK;
        rustix::fs::fcntl_setfl(device.as_fd(), flags).map_err(|error| format!("the TUN device: {error}"))?;
        let answer = command.run(&mut self.network)?;
        self.devices.push(File::from(device));
        Ok(answer)
    }
}
