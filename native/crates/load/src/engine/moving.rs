//! Moves requests and answers: opens connections, writes to them, reads from them, and gives them up.

use std::io::{self, ErrorKind};

use super::{Engine, HEAD_BYTES, SCRATCH_BYTES, TURN_BYTES, World, lock};
use crate::exchange::Failure;

impl<W: World> Engine<'_, W> {
    /// Connect if need be, and send what there is room for.
    pub(super) fn start(&mut self, connection: usize) {
        if !self.connections[connection].is_open {
            if let Err(error) = self.world.connect(connection) {
                self.failed(connection, Failure::Connect, &error.to_string());
                return;
            }
            let one = &mut self.connections[connection];
            (one.is_open, one.has_written, one.is_proved) = (true, false, false);
        }
        let mut budget = TURN_BYTES;
        if let Err(error) = self.send(connection, &mut budget) {
            self.lost(connection, &error.to_string());
        } else if budget == 0 {
            self.later.push(connection);
        }
    }

    /// Send until there is no room or no budget.
    pub(super) fn send(&mut self, connection: usize, budget: &mut u64) -> io::Result<()> {
        let (world, contents) = (&mut self.world, self.contents);
        let one = &mut self.connections[connection];
        let mut moved = 0;
        let result = loop {
            if one.exchange.is_sent() || *budget == 0 {
                break Ok(());
            }
            match one.exchange.send(contents, |slices| world.write(connection, slices)) {
                Ok(body) => {
                    one.has_written = true;
                    moved += body;
                    *budget = budget.saturating_sub(body);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.moved(moved);
        result
    }

    pub(super) fn moved(&mut self, bytes: u64) {
        if bytes > 0 {
            if self.window.has(self.world.now()) {
                self.tally.moved += bytes;
            }
            lock(&self.shared.recent).moved += bytes;
        }
    }

    /// Go on with a connection that may be able to.
    pub(super) fn drive(&mut self, connection: usize) {
        let mut budget = TURN_BYTES;
        while self.connections[connection].task.is_some() {
            if let Err(error) = self.send(connection, &mut budget) {
                // An answer that came before the request was complete says why.
                if !self.receive_rest(connection) {
                    self.lost(connection, &error.to_string());
                }
                return;
            }
            let (is_unseen, came) = self.receive(connection);
            match came {
                Ok((0, _)) => {
                    match self.connections[connection].exchange.end() {
                        Ok(()) => self.ended(connection, true),
                        Err(_) => self.lost(connection, "the store closed the connection"),
                    }
                    return;
                }
                Ok((size, has_more)) => {
                    if !self.received(connection, size, is_unseen, &mut budget) || !has_more {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if budget == 0 {
                        self.later.push(connection);
                    }
                    return;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.lost(connection, &error.to_string());
                    return;
                }
            }
            if budget == 0 {
                self.later.push(connection);
                return;
            }
        }
        self.look_at_idle(connection);
    }

    /// Read into the scratch, or drop what nobody looks at: whether it was dropped, how much, and whether there may be more.
    fn receive(&mut self, connection: usize) -> (bool, io::Result<(usize, bool)>) {
        let exchange = &self.connections[connection].exchange;
        let drops = self.plan.target.trust.is_none();
        match exchange.unseen() {
            unseen @ 1.. if drops => (true, self.world.discard(connection, unseen)),
            _ => {
                let most = if drops && exchange.wants_head_alone() { HEAD_BYTES } else { SCRATCH_BYTES };
                (false, self.world.read(connection, &mut self.scratch[..most]))
            }
        }
    }

    /// Take what was read into the scratch, or dropped; whether the operation goes on.
    fn received(&mut self, connection: usize, size: usize, is_unseen: bool, budget: &mut u64) -> bool {
        let now = self.world.now();
        let one = &mut self.connections[connection];
        if let Some(task) = &mut one.task
            && task.first_byte.is_none()
        {
            task.first_byte = Some(now);
        }
        let taken = if is_unseen {
            one.exchange.dropped(size as u64);
            Ok(size as u64)
        } else {
            one.exchange.take(self.contents, &self.scratch[..size])
        };
        match taken {
            Ok(body) => {
                *budget = budget.saturating_sub(body);
                let is_done = one.exchange.is_done();
                self.moved(body);
                if is_done {
                    self.ended(connection, false);
                }
                !is_done
            }
            Err(failure) => {
                self.failed(connection, failure, "the answer can't be understood");
                false
            }
        }
    }

    /// After a write has failed: whether there is an answer nevertheless.
    pub(super) fn receive_rest(&mut self, connection: usize) -> bool {
        let mut budget = u64::MAX;
        loop {
            match self.world.read(connection, &mut self.scratch) {
                Ok((size, _)) if size > 0 => {
                    if !self.received(connection, size, false, &mut budget) {
                        return true;
                    }
                }
                _ => return false,
            }
        }
    }

    /// An idle connection has something to say: that it has ended, or what nobody asked for.
    pub(super) fn look_at_idle(&mut self, connection: usize) {
        if !self.connections[connection].is_open {
            return;
        }
        let is_blocked = |error: &io::Error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
        match self.world.read(connection, &mut self.scratch) {
            Err(error) if is_blocked(&error) => {}
            _ => self.close(connection),
        }
    }

    pub(super) fn close(&mut self, connection: usize) {
        self.world.close(connection);
        self.connections[connection].is_open = false;
    }

    /// A connection was lost. One that was good before, and ends before any byte of an answer, was closed for being idle:
    /// its request is sent again, once.
    pub(super) fn lost(&mut self, connection: usize, why: &str) {
        self.close(connection);
        let one = &mut self.connections[connection];
        let Some(task) = &mut one.task else { return };
        if one.is_proved && !one.exchange.has_answer() && !task.is_resent {
            task.is_resent = true;
            one.exchange.again();
            self.tally.resent += 1;
            self.start(connection);
            return;
        }
        let failure = if one.has_written { Failure::Closed } else { Failure::Connect };
        self.failed(connection, failure, why);
    }
}
