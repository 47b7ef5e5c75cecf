//! Passing on bytes between a client with TLS and aiohttp.
//!
//! Bytes are read from either side only when the ones before were taken by the other side, so at most one turn's bytes
//! are in memory for each direction, beside what the kernel holds.
//!
//! Fault model: either side may stop reading, stop sending, close its half or all of it, at any byte. What has been
//! received is passed on before an end is. When aiohttp has closed its end, the client still gets all that was
//! answered, and what it sends is dropped.

use std::mem;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use crate::bridge::Bridge;
use crate::connection::{Connection, Read, State};

/// The most that is passed on in a direction before others get their turn.
const TURN_BYTES: usize = 128 << 10;
/// A connection without unread bytes keeps no more memory than this for the next ones.
const SPARE_BYTES: usize = 16 << 10;

/// What is left to do after bytes were passed on.
pub(crate) enum Passed {
    /// Nothing until an event.
    Wait,
    /// There is more, when others have had their turn.
    More,
    /// Neither side can send anything.
    Broken,
    /// aiohttp has ended the connection, and all was sent.
    Ended,
    /// aiohttp has given the connection back, all was sent, and these bytes are not answered.
    Back(Vec<u8>, u32),
}

impl Connection {
    /// Pass on what there is, as far as it is taken.
    pub(crate) fn pass_on(&mut self, scratch: &mut [u8]) -> Passed {
        let State::Bridged(mut bridge) = mem::replace(&mut self.state, State::Idle) else { return Passed::Broken };
        let passed = self.pass_on_by(&mut bridge, scratch);
        self.state = State::Bridged(bridge);
        passed
    }

    fn pass_on_by(&mut self, bridge: &mut Bridge, scratch: &mut [u8]) -> Passed {
        let Some(answers_left) = self.pass_to_client(bridge, scratch) else { return Passed::Broken };
        let comes_back = bridge.returned.is_some();
        let requests_left = bridge.is_taken && !comes_back && self.pass_to_server(bridge, scratch);
        if self.link.is_broken() {
            return Passed::Broken;
        }
        if answers_left == Left::Nothing {
            return match bridge.returned.take() {
                Some((mut bytes, bounces)) => {
                    bytes.append(&mut self.read);
                    Passed::Back(bytes, bounces)
                }
                None => Passed::Ended,
            };
        }
        if requests_left || answers_left == Left::More { Passed::More } else { Passed::Wait }
    }

    /// Send what aiohttp has answered; None if the client can't be reached any more.
    fn pass_to_client(&mut self, bridge: &mut Bridge, scratch: &mut [u8]) -> Option<Left> {
        let mut room = TURN_BYTES;
        loop {
            if !self.flush().ok()? {
                return Some(Left::Blocked);
            }
            if bridge.has_ended {
                return Some(Left::Nothing);
            }
            if !bridge.readable {
                return Some(Left::Blocked);
            }
            if room == 0 {
                return Some(Left::More);
            }
            let count = scratch.len().min(room);
            match rustix::net::recv(&bridge.ours, &mut scratch[..count], RecvFlags::empty()) {
                Ok((0, _)) => bridge.has_ended = true,
                Ok((count, _)) => {
                    // There is room for all of it, for nothing else waits to be sent.
                    if self.link.send(&scratch[..count], &[]).ok()? != count {
                        return None;
                    }
                    self.active = Instant::now();
                    room -= count;
                }
                Err(Errno::AGAIN) => bridge.readable = false,
                Err(Errno::INTR) => {}
                Err(_) => bridge.has_ended = true,
            }
        }
    }

    /// Give aiohttp what the client has sent: whether there may be more.
    fn pass_to_server(&mut self, bridge: &mut Bridge, scratch: &mut [u8]) -> bool {
        let mut room = TURN_BYTES;
        loop {
            if !self.read.is_empty() {
                match rustix::net::send(&bridge.ours, &self.read, SendFlags::NOSIGNAL) {
                    Ok(count) => {
                        self.read.drain(..count);
                        self.active = Instant::now();
                    }
                    Err(Errno::AGAIN) => return false,
                    Err(Errno::INTR) => {}
                    // Nobody wants it.
                    Err(_) => self.read.clear(),
                }
                continue;
            }
            if bridge.told_end || !self.readable {
                if self.read.capacity() > SPARE_BYTES {
                    self.read = Vec::new();
                }
                return false;
            }
            if room == 0 {
                return true;
            }
            match self.fill_from(scratch) {
                Read::Some => room = room.saturating_sub(self.read.len()),
                Read::Nothing => {}
                Read::End => {
                    bridge.told_end = true;
                    // It can only fail if the other end is closed, which is told anyway.
                    let _ = rustix::net::shutdown(&bridge.ours, Shutdown::Write);
                }
            }
        }
    }
}

/// Why no more of an answer is passed on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// An event has to come first.
    Blocked,
    More,
    /// All of it was sent.
    Nothing,
}
