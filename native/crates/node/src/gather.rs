//! Answers to calls that were made together, told of in as few events as possible.
//!
//! Who waits for several devices is woken once, when all have answered with success. The first answer that is none is
//! told of at once, and from then on each one, so that somebody else can be asked meanwhile.
//!
//! Fault model: any peer may refuse, be silent until its call's deadline, break off in the middle of an answer, or
//! answer with more than was to be expected. What it is worth to have the others' answers is decided by the caller.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use swiftlet_transport::{Error, Event, Sink, What};

use crate::status::Status;

/// A complete answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The outcome.
    pub status: u16,
    /// Opaque.
    pub header: Vec<u8>,
    /// All of it.
    pub body: Vec<u8>,
}

/// What came of a call.
pub type Answer = Result<Reply, Error>;

enum Slot {
    Waiting(Reply),
    Here(Answer),
    Taken,
}

struct State {
    slots: Vec<Slot>,
    open: usize,
    /// Whether only the end is told of.
    quiet: bool,
}

/// Collects the answers; the token of each call is its number.
pub struct Gather {
    state: Mutex<State>,
    most_bytes: usize,
    tell: Box<dyn Fn() + Send + Sync>,
}

impl Gather {
    /// Collect so many answers, each with a body of at most `most_bytes`. `tell` is called, in an I/O thread, when there
    /// is something to take.
    #[must_use]
    pub fn new(calls: usize, most_bytes: usize, tell: Box<dyn Fn() + Send + Sync>) -> Arc<Self> {
        let slots = (0..calls).map(|_| Slot::Waiting(Reply::default())).collect();
        Arc::new(Self { state: Mutex::new(State { slots, open: calls, quiet: true }), most_bytes, tell })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Take the answers that have come since the last time, with their numbers; also returns whether all have come.
    #[must_use]
    pub fn take(&self) -> (Vec<(usize, Answer)>, bool) {
        let mut state = self.lock();
        let mut here = Vec::with_capacity(state.slots.len());
        for (number, slot) in state.slots.iter_mut().enumerate() {
            match mem::replace(slot, Slot::Taken) {
                Slot::Here(answer) => here.push((number, answer)),
                other => *slot = other,
            }
        }
        (here, state.open == 0)
    }

    /// Wait for all no longer: tell of each answer as it comes.
    pub fn hurry(&self) {
        self.lock().quiet = false;
        (self.tell)();
    }
}

impl State {
    /// Note an event; returns whether that was an answer.
    fn note(&mut self, number: usize, what: What, most_bytes: usize) -> bool {
        let Some(Slot::Waiting(reply)) = self.slots.get_mut(number) else { return false };
        let answer = match what {
            What::Sent(_) => return false,
            What::Reply { status, header, body, whole, .. } => {
                let body = body.map(|body| body.to_vec()).unwrap_or_default();
                *reply = Reply { status, header, body };
                // A refusal has nothing after it that anybody reads.
                if !whole && status == Status::Ok as u16 {
                    return false;
                }
                Ok(mem::take(reply))
            }
            What::Chunk(chunk) if reply.body.len() + chunk.len() > most_bytes => {
                Err(Error::Invalid("the answer is longer than any can be"))
            }
            What::Chunk(chunk) => {
                reply.body.extend_from_slice(&chunk);
                return false;
            }
            What::End(_) => Ok(mem::take(reply)),
            What::Failed(error) => Err(error),
        };
        self.quiet &= answer.as_ref().is_ok_and(|reply| reply.status == Status::Ok as u16);
        self.open -= 1;
        self.slots[number] = Slot::Here(answer);
        true
    }
}

impl Sink for Gather {
    fn events(&self, events: &mut Vec<Event>) {
        let mut state = self.lock();
        let mut came = false;
        for Event { token, what } in events.drain(..) {
            came |= state.note(token as usize, what, self.most_bytes);
        }
        let is_told = came && (state.open == 0 || !state.quiet);
        drop(state);
        if is_told {
            (self.tell)();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use swiftlet_transport::Chunk;

    use super::*;

    /// Answers to three calls, of up to 8 bytes each, and how often they were told of.
    fn three() -> (Arc<Gather>, Arc<AtomicUsize>) {
        let told = Arc::new(AtomicUsize::new(0));
        let telling = Arc::clone(&told);
        let tell = move || {
            telling.fetch_add(1, Relaxed);
        };
        (Gather::new(3, 8, Box::new(tell)), told)
    }

    fn reply(status: Status, whole: bool) -> What {
        What::Reply { status: status as u16, header: vec![1], body_bytes: None, body: None, whole }
    }

    fn say(gather: &Gather, events: impl IntoIterator<Item = (u64, What)>) {
        let mut events = events.into_iter().map(|(token, what)| Event { token, what }).collect();
        gather.events(&mut events);
        assert!(events.is_empty());
    }

    #[test]
    fn all_that_succeed_are_told_of_once() {
        let (gather, told) = three();
        say(&gather, [(1, reply(Status::Ok, true)), (0, What::Sent(3))]);
        say(&gather, [(2, reply(Status::Ok, false)), (0, reply(Status::Ok, true))]);
        say(&gather, [(2, What::Chunk(Chunk::from(vec![7; 5]))), (2, What::Chunk(Chunk::from(vec![7; 3])))]);
        assert_eq!(told.load(Relaxed), 0);
        say(&gather, [(2, What::End(Vec::new()))]);
        assert_eq!(told.load(Relaxed), 1);
        let (answers, is_over) = gather.take();
        let bodies: Vec<_> = answers.iter().map(|(at, answer)| (*at, answer.clone().map(|one| one.body))).collect();
        assert_eq!((bodies, is_over), (vec![(0, Ok(vec![])), (1, Ok(vec![])), (2, Ok(vec![7; 8]))], true));
        assert_eq!(gather.take(), (Vec::new(), true), "once");
    }

    #[test]
    fn after_a_failure_each_answer_is_told_of() {
        for failure in [reply(Status::DiskFull, false), What::Failed(Error::Deadline)] {
            let (gather, told) = three();
            say(&gather, [(0, reply(Status::Ok, true))]);
            say(&gather, [(1, failure)]);
            assert_eq!(told.load(Relaxed), 1);
            let (answers, is_over) = gather.take();
            assert_eq!((answers.len(), is_over), (2, false));
            say(&gather, [(1, What::Chunk(Chunk::from(vec![1]))), (9, What::Failed(Error::Cancelled))]);
            assert_eq!(told.load(Relaxed), 1, "what comes after an answer is none");
            say(&gather, [(2, reply(Status::Ok, true))]);
            assert_eq!((told.load(Relaxed), gather.take().1), (2, true));
        }
    }

    #[test]
    fn who_is_in_a_hurry_is_told_at_once() {
        let (gather, told) = three();
        say(&gather, [(0, reply(Status::Ok, true))]);
        gather.hurry();
        assert_eq!((told.load(Relaxed), gather.take().0.len()), (1, 1));
        say(&gather, [(1, reply(Status::Ok, true))]);
        assert_eq!((told.load(Relaxed), gather.take().0.len()), (2, 1));
    }

    #[test]
    fn an_endless_answer_is_a_failure() {
        let (gather, told) = three();
        say(&gather, [(0, reply(Status::Ok, false)), (0, What::Chunk(Chunk::from(vec![1; 9])))]);
        assert_eq!(told.load(Relaxed), 1);
        assert!(matches!(gather.take().0[..], [(0, Err(Error::Invalid(_)))]));
        say(&gather, [(0, What::Chunk(Chunk::from(vec![1; 9])))]);
        assert_eq!(gather.take(), (Vec::new(), false));
    }
}
