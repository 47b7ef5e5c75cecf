//! Counts operations that have ended, and notes what they leave of their objects.

use std::cmp::Reverse;

use super::{CONNECT_PAUSE, Engine, Task, Window, World, lock};
use crate::exchange::Failure;
use crate::pace::Arrivals;
use crate::plan::{Kind, Measure, Nanos, Pace, Phase};

impl<W: World> Engine<'_, W> {
    /// The answer is complete.
    pub(super) fn ended(&mut self, connection: usize, is_closed: bool) {
        let one = &mut self.connections[connection];
        one.is_proved = true;
        let status = one.exchange.status();
        let Some(task) = &one.task else { return };
        if is_closed || !one.exchange.keeps() {
            self.world.close(connection);
            one.is_open = false;
        }
        if !is_success(task, status, self.phase) {
            self.failed(connection, Failure::Status(status), "");
        } else if let Some(wrong) = one.exchange.wrong() {
            self.failed(connection, Failure::Corrupt, &wrong);
        } else {
            self.succeeded(connection);
        }
    }

    pub(super) fn succeeded(&mut self, connection: usize) {
        let now = self.world.now();
        let one = &mut self.connections[connection];
        let Some(task) = one.task.take() else { return };
        let bytes = if task.kind == Kind::Head { 0 } else { task.size.max(one.exchange.body_received()) };
        let latency = now - task.intended;
        let is_within = self.window.has(now);
        if task.is_counted {
            one.worker.operations += 1;
            one.worker.bytes += bytes;
            one.worker.busy += now - task.begun;
        }
        if task.is_counted || is_within {
            let counted = self.tally.of(task.kind);
            counted.ended += u64::from(is_within);
            if task.is_counted {
                counted.succeeded += 1;
                counted.compared += u64::from(one.exchange.compares());
                counted.bytes += bytes;
                counted.latency.record(latency);
                counted.first_byte.record(task.first_byte.unwrap_or(now).saturating_sub(task.intended));
            }
        }
        {
            let mut recent = lock(&self.shared.recent);
            recent.succeeded += 1;
            recent.latency.record(latency);
        }
        if task.kind == Kind::Create {
            self.population.created(task.number);
        }
        self.release(connection, &task, now, false);
    }

    pub(super) fn failed(&mut self, connection: usize, failure: Failure, why: &str) {
        let now = self.world.now();
        if !matches!(failure, Failure::Status(_) | Failure::Corrupt) && self.connections[connection].is_open {
            self.close(connection);
        }
        let one = &mut self.connections[connection];
        let Some(task) = one.task.take() else { return };
        if task.is_counted {
            one.worker.busy += now - task.begun;
            let request = one.exchange.request();
            let counted = self.tally.of(task.kind);
            counted.fail(failure, 1, || if why.is_empty() { request } else { format!("{request}: {why}") });
            if failure == Failure::Timeout {
                counted.latency.record(now - task.intended);
            }
        }
        lock(&self.shared.recent).failed += 1;
        self.leave(task.kind, task.number);
        self.release(connection, &task, now, failure == Failure::Connect);
    }

    /// The connection is free for the next operation, at once or after a pause.
    pub(super) fn release(&mut self, connection: usize, task: &Task, now: Nanos, must_rest: bool) {
        self.in_flight -= 1;
        self.last_end = now;
        if !matches!(task.kind, Kind::List | Kind::CreateContainer | Kind::DeleteContainer) {
            self.population.release(task.number);
        }
        let thinking = match self.phase {
            Phase::Measure(Measure { pace: Pace::Closed(pause), .. }) => pause.draw(&mut self.random),
            _ => 0,
        };
        let rest = if must_rest { thinking.max(CONNECT_PAUSE) } else { thinking };
        if rest == 0 {
            self.make_idle(connection, now);
        } else {
            self.resting.push(Reverse((now + rest, connection)));
        }
    }

    pub(super) fn check_deadlines(&mut self, now: Nanos) {
        for connection in 0..self.connections.len() {
            let begun = self.connections[connection].task.as_ref().map(|task| task.begun);
            if begun.is_some_and(|begun| now >= begun + self.plan.timeout) {
                let why = format!("not answered within {:.1} s", self.plan.timeout as f64 / 1e9);
                self.failed(connection, Failure::Timeout, &why);
            }
        }
    }

    /// Count what never began, and what connections did; note what became of nothing.
    pub(super) fn conclude(&mut self) {
        self.count_not_begun();
        for connection in 0..self.connections.len() {
            let one = &mut self.connections[connection];
            self.tally.worker(&one.worker);
            if let Some(task) = one.task.take() {
                self.leave(task.kind, task.number);
            }
        }
        let Window { from, to, left } = self.window;
        let end = if self.is_ending || left.is_some() { self.last_end } else { self.world.now() };
        self.tally.window = to.filter(|_| !self.is_ending).unwrap_or(end).saturating_sub(from);
    }

    pub(super) fn count_not_begun(&mut self) {
        let Some(to) = self.window.to.filter(|_| !self.is_ending) else { return };
        while let Some(intended) = self.arrivals.as_ref().map(Arrivals::next).filter(|next| *next < to) {
            let Some(kind) = self.draw_kind() else { return };
            if let Some(arrivals) = &mut self.arrivals {
                arrivals.advance();
            }
            if intended >= self.window.from {
                let counted = self.tally.of(kind);
                counted.fail(Failure::NotBegun, 1, || "no connection was free for it".to_owned());
                counted.latency.record(to - intended);
            }
        }
    }

    /// An operation ended badly, or not at all: its object may or may not exist.
    pub(super) fn leave(&mut self, kind: Kind, number: u32) {
        match (kind, self.phase) {
            (Kind::Delete, Phase::Empty) => self.population.keep(number),
            (Kind::Create | Kind::Delete, _) => self.population.doubt(number),
            _ => {}
        }
    }
}

fn is_success(task: &Task, status: u16, phase: Phase) -> bool {
    match task.kind {
        Kind::Read | Kind::Head => status == 200,
        Kind::List => matches!(status, 200 | 204),
        Kind::Create | Kind::Update | Kind::CreateContainer => (200..300).contains(&status),
        // What is deleted twice is not there the second time, and what is deleted in the end may never have been.
        Kind::Delete => (200..300).contains(&status) || (status == 404 && (task.is_resent || phase == Phase::Empty)),
        Kind::DeleteContainer => (200..300).contains(&status) || status == 404,
    }
}
