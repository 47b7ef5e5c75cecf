//! The rows of what devices have stored: sent to container servers, or left to Python.

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use swiftlet_transport::{Event, Sink, What};

use super::Reactor;
use crate::shared::lock;
use crate::updates::Do;

impl Reactor {
    /// Deliver the rows of what has become durable in this turn, and go on with those before.
    pub(super) fn deliver(&mut self, now: Instant) {
        let made = mem::take(&mut self.made);
        if !made.is_empty() {
            self.updates.add(made, now);
        }
        self.updates.tick(now);
        self.carry_out(now);
        self.shared.made(&mut self.left_to_python);
    }

    /// Handle answers of container servers, and of devices to acknowledgements.
    pub(super) fn updated(&mut self, now: Instant) {
        for Event { token, what } in self.update_events.drain() {
            self.updates.event(token, &what, now);
        }
    }

    fn carry_out(&mut self, now: Instant) {
        let sink = Arc::clone(&self.update_events) as Arc<dyn Sink>;
        loop {
            let todo = self.updates.todo();
            if todo.is_empty() {
                return;
            }
            for one in todo {
                match one {
                    Do::Expect(token, calls) => self.update_events.expect(token, calls),
                    Do::Call(device, call, token) => {
                        if let Err(error) = device.peer().call(*call, &sink, token) {
                            self.update_events.forget(token);
                            self.updates.event(token, &What::Failed(error), now);
                        }
                    }
                    Do::Answer(tokens) => {
                        self.refresh_date();
                        tokens.into_iter().for_each(|token| self.listed(token, true));
                    }
                    Do::Queued(tokens) => tokens.into_iter().for_each(|token| self.queued(token, true)),
                    Do::Listed(listed) => lock(&self.shared.room).listed(listed),
                    Do::Report(number) => {
                        lock(&self.shared.silent).insert(number);
                    }
                    Do::Leave(made) => {
                        let (tasks, mut rows): (Vec<_>, Vec<_>) = made.into_iter().partition(|one| one.is_task);
                        tasks.into_iter().for_each(|one| self.queued(one.token, false));
                        self.left_to_python.append(&mut rows);
                    }
                }
            }
        }
    }
}
