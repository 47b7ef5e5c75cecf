//! Connections with TLS that are handed over: the thread keeps the socket, and passes bytes on through a pair.

use std::mem;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::{EVENTS, MAX_GENERATION, PAIR, Reactor, Then, number};
use crate::bridge::Bridge;
use crate::connection::State;
use crate::passing::Passed;
use crate::shared::{Handed, Secured};

impl Reactor {
    /// Hand a connection over by one end of a pair, and pass on what comes from the other.
    pub(super) fn bridge(&mut self, index: usize) {
        if self.try_bridge(index).is_none() {
            // There is no descriptor left.
            self.end(index);
        }
    }

    fn try_bridge(&mut self, index: usize) -> Option<()> {
        let slot = self.slots.get_mut(index)?;
        let connection = slot.connection.as_mut()?;
        let tls = connection.link.tls.as_ref()?;
        let (remote, local) = (tls.remote, tls.local);
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
        // Answers of devices that are still to come are for nobody.
        let generation = (slot.generation + 1) & MAX_GENERATION;
        let token = number(index, generation);
        epoll::add(&self.epoll, &ours, EventData::new_u64(token | PAIR), EVENTS).ok()?;
        epoll::modify(&self.epoll, &connection.link.socket, EventData::new_u64(token), EVENTS).ok()?;
        slot.generation = generation;
        let state = mem::replace(&mut connection.state, State::Bridged(Box::new(Bridge::new(ours))));
        connection.active = Instant::now();
        let (bytes, bounces) = (mem::take(&mut connection.read), connection.bounces);
        self.leave_state(&state);
        let (deleted, stored) = state.may_have_written();
        self.bridged += 1;
        self.shared.bridged.fetch_add(1, Ordering::Relaxed);
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
        let secured = Some(Secured { token, remote, local });
        self.shared.hand_over(Handed { socket: theirs, bytes, bounces, deleted, stored, secured });
        Some(())
    }

    fn bridge_of(&mut self, token: u64) -> Option<(usize, &mut Bridge)> {
        let index = self.index_of(token)?;
        match &mut self.slots[index].connection.as_mut()?.state {
            State::Bridged(bridge) => Some((index, bridge)),
            _ => None,
        }
    }

    pub(super) fn pair_ready(&mut self, number: u64, flags: EventFlags) {
        if let Some((index, bridge)) = self.bridge_of(number) {
            bridge.told(flags);
            self.go_on(index);
        }
    }

    /// Python serves a connection from now on.
    pub(super) fn taken(&mut self, token: u64) {
        if let Some((index, bridge)) = self.bridge_of(token) {
            bridge.taken();
            self.go_on(index);
        }
    }

    /// Python gives a connection back; `theirs` is its end of the pair.
    pub(super) fn returned(&mut self, token: u64, theirs: OwnedFd, bounces: u32) {
        if let Some((index, bridge)) = self.bridge_of(token) {
            bridge.returned(&theirs, bounces);
            drop(theirs);
            self.go_on(index);
        }
    }

    /// Pass on what there is, in both directions.
    pub(super) fn pass_on(&mut self, index: usize) -> Then {
        let Some(connection) = &mut self.slots[index].connection else { return Then::Wait };
        match connection.pass_on(&mut self.scratch) {
            Passed::Wait => return Then::Wait,
            Passed::More => {
                self.later.push_back(number(index, self.slots[index].generation));
                return Then::Wait;
            }
            Passed::Broken => return Then::Close,
            Passed::Ended => connection.end_politely(),
            Passed::Back(bytes, bounces) => {
                connection.read = bytes;
                connection.bounces = bounces + 1;
                connection.state = State::Idle;
                connection.active = Instant::now();
            }
        }
        self.bridged -= 1;
        self.shared.bridged.fetch_sub(1, Ordering::Relaxed);
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        Then::GoOn
    }
}
