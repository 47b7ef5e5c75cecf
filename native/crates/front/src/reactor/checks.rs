//! PUTs that are allowed only if there is no object, and writes where objects may expire: devices are asked before.

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use swiftlet_node::message::Request;
use swiftlet_transport::{Chunk, What};

use super::calls::{call, place_of};
use super::{Reactor, Then};
use crate::answer::{self, EXISTS, Given};
use crate::attempt::Attempt;
use crate::body::Content;
use crate::checking::{Checked, Known, Sought, Verdict};
use crate::connection::{Checking, FIRST_ATTEMPT, State, Writing};
use crate::grants::Granted;
use crate::head::{Asked, Method};
use crate::replies::Replies;
use crate::shared::Shared;

/// Ask the devices that may have the object of a complete write, on the connection of this number; None if Python has
/// to answer the request. Who is not to find one has to know of handoffs, too; a task of a version that only those have
/// is found obsolete when it is due.
pub(super) fn begin_check(
    (shared, devices): (&Shared, &Arc<Replies>),
    number: u64,
    asked: &Asked<'_>,
    content: &Content<'_>,
    granted: &Granted,
    checked: Checked,
) -> Option<Checking> {
    let (policy, key) = place_of(shared, asked, granted)?;
    let (sought, holders) = if asked.is_only_new() {
        (Sought::Object, policy.may_hold(key.partition, checked.begun).filter(|_| granted.reads)?)
    } else {
        let devices = policy.to_write(key.partition, checked.begun)?;
        (Sought::Expiring, devices.into_iter().map(|(_, device)| device).collect())
    };
    if holders.is_empty() || holders.len() > usize::from(FIRST_ATTEMPT) {
        return None;
    }
    let request = Request::Head { key, proved: false };
    let mut sent: Vec<Attempt> = Vec::with_capacity(holders.len());
    for (at, holder) in holders.into_iter().enumerate() {
        match call(shared, devices, holder, &request, (number, at as u8), &checked.id, checked.begun) {
            Some(attempt) => sent.push(attempt),
            None => {
                sent.iter().for_each(|one| one.ticket.cancel());
                return None;
            }
        }
    }
    let start = asked.method.name().len() + 1;
    Some(Checking {
        checked,
        target: start..start + asked.target.len(),
        bytes: asked.bytes + content.read_bytes(),
        body_bytes: content.len() as u64,
        close: !asked.keep_alive,
        known: Known::new(sent.len(), sought),
        asked: sent,
    })
}

impl Reactor {
    /// Let a request wait for its devices' answers.
    pub(super) fn wait_for_check(&mut self, index: usize, checking: Checking) -> Then {
        if let Some(connection) = &mut self.slots[index].connection {
            connection.active = checking.checked.begun;
            connection.state = State::Checking(Box::new(checking));
        }
        Then::Wait
    }

    /// Handle a device's answer to that.
    pub(super) fn checked(&mut self, index: usize, device: usize, what: &What) {
        self.refresh_date();
        let Some(connection) = &mut self.slots[index].connection else { return };
        let State::Checking(checking) = &mut connection.state else { return };
        let verdict = checking.known.note(device, what);
        if let (What::Failed(_), Some(attempt)) = (what, checking.asked.get(device)) {
            attempt.device.failed(Instant::now());
        }
        match verdict {
            Verdict::Wait => {}
            Verdict::Unknown => self.hand_over(index),
            Verdict::Absent | Verdict::Exists => {
                let State::Checking(checking) = mem::replace(&mut connection.state, State::Idle) else { return };
                if verdict == Verdict::Exists {
                    return self.refuse(index, *checking);
                }
                let then = self.store(index, checking.checked.md5, Some(checking.checked));
                self.then(index, &then);
            }
        }
    }

    /// Tell a client that there is an object.
    fn refuse(&mut self, index: usize, checking: Checking) {
        let Some(connection) = &mut self.slots[index].connection else { return };
        let Checking { checked: Checked { id, begun, .. }, target, bytes, body_bytes: received, close, .. } = checking;
        let close = close || (self.leaving && connection.has_only(bytes));
        let head = answer::exists(&Given { id: &id, date: &self.date.1, close });
        let path = connection.read[target].to_vec();
        let body = vec![Chunk::from(EXISTS.as_bytes().to_vec())];
        let (method, status, body_bytes) = (Method::Put, 412, EXISTS.len() as u64);
        let (left, sent, reserved) = (Vec::new(), 0, 0);
        let writing = Writing { left, sent, reserved, method, path, status, received, body_bytes, close, id, begun };
        self.begin_answer(index, bytes, writing, &head, body, Instant::now());
    }
}
