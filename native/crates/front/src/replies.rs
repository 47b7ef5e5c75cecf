//! Answers to the thread's calls: a queue, and a descriptor that tells of it.
//!
//! A write is carried out by several devices, and its row is taken by several servers. Waking the thread costs both
//! sides more than noting an answer, and no answer but the last one brings the write on. So the thread says which calls
//! belong together, and is told of their answers when all have succeeded, or as soon as one has not. What it finds in
//! the queue on another occasion it may note at once.
//!
//! Fault model: answers may come in any order, and before the thread has made its other calls; of each call comes one
//! last event. A group of which nothing more comes is forgotten by who has begun it.

use std::collections::HashMap;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use rustix::event::EventfdFlags;
use swiftlet_node::Status;
use swiftlet_transport::{Event, Sink, What};

use crate::shared::{lock, ring, unring};

/// Collects events until they are drained. Their number is bounded by the open calls and their windows.
pub(crate) struct Replies {
    state: Mutex<State>,
    ready: OwnedFd,
    /// The bits of a token that are the same for calls that belong together.
    group: u64,
}

#[derive(Default)]
struct State {
    events: Vec<Event>,
    /// How many answers are still waited for, by group.
    open: HashMap<u64, usize>,
    is_told: bool,
}

impl Replies {
    pub(crate) fn new(group: u64) -> std::io::Result<Arc<Self>> {
        let ready = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Arc::new(Self { state: Mutex::default(), ready, group }))
    }

    /// Tell of the answers to so many calls, of which this is the token of one, when all have succeeded.
    pub(crate) fn expect(&self, token: u64, calls: usize) {
        lock(&self.state).open.insert(token & self.group, calls);
    }

    /// Tell of each of these answers, for not all of the calls were made.
    pub(crate) fn forget(&self, token: u64) {
        lock(&self.state).open.remove(&(token & self.group));
    }

    /// Take out all events, also those that were not told of.
    pub(crate) fn drain(&self) -> Vec<Event> {
        // Before the events are taken: what comes between makes it readable again.
        unring(&self.ready);
        let mut state = lock(&self.state);
        state.is_told = false;
        mem::take(&mut state.events)
    }
}

impl State {
    /// Note an event; returns whether it is to be told of.
    fn note(&mut self, group: u64, what: &What) -> bool {
        let Some(left) = self.open.get_mut(&group) else { return true };
        match what {
            What::Sent(_) => return false,
            What::Reply { status, whole: true, .. } if *status == Status::Ok as u16 && *left > 1 => {
                *left -= 1;
                return false;
            }
            _ => {}
        }
        self.open.remove(&group);
        true
    }
}

impl AsFd for Replies {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

impl Sink for Replies {
    fn events(&self, events: &mut Vec<Event>) {
        let mut state = lock(&self.state);
        let mut tells = false;
        for event in events.iter() {
            tells |= state.note(event.token & self.group, &event.what);
        }
        state.events.append(events);
        let rings = tells && !mem::replace(&mut state.is_told, true);
        drop(state);
        if rings {
            ring(&self.ready);
        }
    }
}

#[cfg(test)]
mod tests {
    use swiftlet_transport::Error;

    use super::*;

    fn reply(status: Status) -> What {
        What::Reply { status: status as u16, header: Vec::new(), body_bytes: None, body: None, whole: true }
    }

    fn come(replies: &Replies, token: u64, what: What) {
        replies.events(&mut vec![Event { token, what }]);
    }

    /// Whether the thread is told, without that it looks.
    fn is_told(replies: &Replies) -> bool {
        lock(&replies.state).is_told
    }

    fn three() -> Arc<Replies> {
        let replies = Replies::new(!0xff).expect("a descriptor");
        replies.expect(0x100, 3);
        replies
    }

    fn tokens(replies: &Replies) -> Vec<u64> {
        replies.drain().iter().map(|event| event.token).collect()
    }

    #[test]
    fn those_that_belong_together_are_told_of_when_all_are_here() {
        let replies = three();
        come(&replies, 0x102, reply(Status::Ok));
        come(&replies, 0x100, What::Sent(3));
        come(&replies, 0x100, reply(Status::Ok));
        assert!(!is_told(&replies));
        come(&replies, 0x101, reply(Status::Ok));
        assert!(is_told(&replies));
        assert_eq!(tokens(&replies), [0x102, 0x100, 0x100, 0x101]);
        assert!(!is_told(&replies));
        assert!(lock(&replies.state).open.is_empty());
    }

    #[test]
    fn the_descriptor_is_readable_while_there_is_something_to_be_told() {
        let replies = three();
        let mut counter = [0; 8];
        let mut rung = || rustix::io::read(&replies.ready, &mut counter).is_ok();
        come(&replies, 0x100, reply(Status::Ok));
        assert!(!rung());
        come(&replies, 0x200, reply(Status::Ok));
        come(&replies, 0x300, reply(Status::Ok));
        assert!(rung() && !rung());
    }

    #[test]
    fn what_does_not_succeed_is_told_of_at_once_and_so_is_what_follows() {
        for what in [reply(Status::DiskFull), What::Failed(Error::Deadline), What::End(Vec::new())] {
            let replies = three();
            come(&replies, 0x100, reply(Status::Ok));
            come(&replies, 0x101, what);
            assert!(is_told(&replies));
            assert_eq!(tokens(&replies), [0x100, 0x101]);
            come(&replies, 0x102, reply(Status::Ok));
            assert!(is_told(&replies));
        }
    }

    #[test]
    fn what_is_found_on_another_occasion_still_counts() {
        let replies = three();
        come(&replies, 0x100, reply(Status::Ok));
        come(&replies, 0x700, reply(Status::Ok));
        assert_eq!(tokens(&replies), [0x100, 0x700]);
        come(&replies, 0x101, reply(Status::Ok));
        assert!(!is_told(&replies));
        come(&replies, 0x102, reply(Status::Ok));
        assert!(is_told(&replies));
    }

    #[test]
    fn a_group_that_is_forgotten_waits_for_nothing() {
        let replies = three();
        replies.forget(0x102);
        come(&replies, 0x100, reply(Status::Ok));
        assert!(is_told(&replies));
    }
}
