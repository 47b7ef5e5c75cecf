//! What is behind a connection with TLS that was handed over: one end of a pair of sockets, whose other end aiohttp has.

use std::os::fd::OwnedFd;

use rustix::event::epoll::EventFlags;
use rustix::net::RecvFlags;

pub(crate) struct Bridge {
    pub(crate) ours: OwnedFd,
    /// Whether there may be something to read from aiohttp.
    pub(crate) readable: bool,
    /// Whether aiohttp has sent all.
    pub(crate) has_ended: bool,
    /// Whether aiohttp has closed its end.
    is_closed: bool,
    /// Whether anybody reads on the other end; until then nothing is sent.
    pub(crate) is_taken: bool,
    /// Whether aiohttp was told that the client sends no more.
    pub(crate) told_end: bool,
    /// Bytes that came back unread, and the bounces.
    pub(crate) returned: Option<(Vec<u8>, u32)>,
}

impl Bridge {
    pub(crate) fn new(ours: OwnedFd) -> Self {
        Self {
            ours,
            readable: false,
            has_ended: false,
            is_closed: false,
            is_taken: false,
            told_end: false,
            returned: None,
        }
    }

    /// Note an event of our end.
    pub(crate) fn told(&mut self, flags: EventFlags) {
        self.is_closed |= flags.intersects(EventFlags::HUP | EventFlags::ERR);
        self.readable |= self.is_closed || flags.intersects(EventFlags::IN | EventFlags::RDHUP);
    }

    pub(crate) fn taken(&mut self) {
        self.is_taken = true;
    }

    /// Note that the connection comes back. What aiohttp has not read is kept.
    pub(crate) fn returned(&mut self, theirs: &OwnedFd, bounces: u32) {
        let (mut unread, mut some) = (Vec::new(), [0; 4096]);
        while let Ok((count @ 1.., _)) = rustix::net::recv(theirs, &mut some[..], RecvFlags::DONTWAIT) {
            unread.extend_from_slice(&some[..count]);
        }
        self.returned = Some((unread, bounces));
        // Once their end is closed, ours ends behind the last byte of the answer.
        self.readable = true;
    }

    /// Whether only the client is waited for: aiohttp has closed its end.
    pub(crate) fn is_left(&self) -> bool {
        self.is_closed
    }
}
