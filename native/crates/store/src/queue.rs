//! Requests that wait to be committed.
//!
//! A sync costs far more than a record, and those whose records were covered by one mostly send their next requests at
//! the same time. So a batch waits a moment for as many as the last one had.

use std::collections::{HashSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use swiftlet_fragments::packs::table::Table;
use swiftlet_fragments::request::{Answer, Request};

use crate::error::{Error, Result};
use crate::index::Taking;
use crate::model::{Entry, Key, PostMeta, Timestamp};
use crate::record::{Header, Place};

/// A batch takes no further record once it has this many bytes.
const MAX_BYTES: u64 = 8 * 1024 * 1024;
/// The largest number of records in a batch.
const MAX_RECORDS: usize = 1024;

/// With so many records a batch does not wait for more.
const ENOUGH: usize = 64;
/// How long records wait for others at most, and for which share of the time that the last batch took.
const PATIENCE: Duration = Duration::from_millis(1);
const PATIENCE_PART: u32 = 4;

/// Called once, with whether anything changed.
pub type Done = Box<dyn FnOnce(Result<bool>) + Send>;
/// Called once, with what the device answers about a fragment.
pub type Told = Box<dyn FnOnce(Result<Answer>) + Send>;

/// Whom to answer.
pub(crate) enum Reply {
    /// Who asked for a change.
    Done(Done),
    /// Who asked about a fragment.
    Told(Told),
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) enum Given {
    /// Whether anything changed.
    Changed(bool),
    /// About a fragment.
    Answer(Answer),
}

impl Reply {
    /// Answer.
    pub(crate) fn give(self, given: Result<Given>) {
        match (self, given) {
            (Self::Done(done), Ok(Given::Changed(changed))) => done(Ok(changed)),
            (Self::Told(told), Ok(Given::Answer(answer))) => told(Ok(answer)),
            (Self::Done(done), Err(error)) => done(Err(error)),
            (Self::Told(told), Err(error)) => told(Err(error)),
            (reply, Ok(_)) => reply.give(Err(Error::DeviceFailed("another kind of answer was asked for".into()))),
        }
    }
}

/// A request that concerns fragments.
pub(crate) enum Asked {
    /// Keep a fragment, which has come with a request for it; only the place is missing in the header.
    Fragment { request: Request, header: Header, metadata: Vec<u8>, data: Vec<u8> },
    /// Anything that comes without one.
    Request(Request),
    /// Merge metadata into the object, unless it was deleted after the version of this time, on which they were posted.
    Post { of: Timestamp, meta: PostMeta, row: u32 },
    /// The fragment at this place is damaged: go on without it, step by step until nothing changes any more.
    Damaged(Place),
    /// The decision at this place is damaged: write it anew.
    Rewrite(Place),
}

impl Asked {
    /// Bytes of data that are written with it.
    fn bytes(&self) -> u64 {
        if let Self::Fragment { data, .. } = self { data.len() as u64 } else { 0 }
    }

    /// Number of the file with its data, 0 for none.
    fn large(&self) -> u64 {
        if let Self::Fragment { header, .. } = self { header.large } else { 0 }
    }
}

/// A request for an object.
pub(crate) enum Op {
    /// Store a version; only the place is missing in the header.
    Put { header: Header, metadata: Vec<u8>, data: Vec<u8> },
    /// Store a tombstone.
    Delete { timestamp: Timestamp, name: Vec<u8>, row: u32 },
    /// Merge metadata.
    Post { meta: PostMeta, row: u32 },
    /// Forget it if this is still its entry.
    Remove(Entry),
    /// Forget its tombstone if everything of it is older.
    Reclaim { before: Timestamp },
    /// Forget it if it is still there.
    Forget { place: Place },
    /// Forget all of it for good if nothing of it is held: its newest record is damaged, and those before it must not
    /// count once that record is gone.
    ForgetLost,
    /// Prove what was committed before, unless that is proved.
    Mark,
    /// What concerns fragments.
    Fragments(Asked),
    /// Take references to a pack, those of them that count here; with the key of this place's fragment of the pack only if
    /// that is here, settled, and not retired.
    References(Taking, Table, Option<Key>),
}

impl Op {
    /// Whether it concerns many objects, so that nothing else may be decided in its batch.
    fn is_of_many(&self) -> bool {
        matches!(self, Self::References(..))
    }

    /// Bytes of data that are written with it.
    fn bytes(&self) -> u64 {
        match self {
            Self::Put { data, .. } => data.len() as u64,
            Self::Fragments(asked) => asked.bytes(),
            _ => 0,
        }
    }

    /// Number of the file with its data, 0 for none.
    pub(crate) fn large(&self) -> u64 {
        match self {
            Self::Put { header, .. } => header.large,
            Self::Fragments(asked) => asked.large(),
            _ => 0,
        }
    }
}

/// One request, and whom to answer.
pub(crate) struct Pending {
    pub(crate) key: Key,
    pub(crate) op: Op,
    pub(crate) reply: Reply,
}

#[derive(Default)]
struct Waiting {
    ops: VecDeque<Pending>,
    closed: bool,
    /// How many have to wait before the committing thread is woken; 0 when it is not waiting for any.
    awaited: usize,
    pace: Pace,
}

/// How long a batch waits for more: those whose records a sync has covered are likely to send more soon, and more
/// records make a batch little more expensive. A lone writer never waits.
#[derive(Clone, Copy, Default)]
struct Pace {
    /// Records that the next batch waits for.
    expected: usize,
    /// For how long at most.
    patience: Duration,
}

impl Pace {
    /// The pace after a batch of so many records that took so long, while so many requests came.
    fn after(records: usize, took: Duration, came: usize) -> Self {
        Self { expected: (records + came).min(ENOUGH), patience: (took / PATIENCE_PART).min(PATIENCE) }
    }
}

/// The requests that wait to be committed.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    woken: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Add a request to the next batch; `done` is called by the committing thread.
    pub(crate) fn push(&self, key: Key, op: Op, done: Done) {
        self.push_each([(key, op, Reply::Done(done))]);
    }

    /// Add many requests to the next batch, all at once.
    pub(crate) fn push_all(&self, all: impl IntoIterator<Item = (Key, Op, Done)>) {
        self.push_each(all.into_iter().map(|(key, op, done)| (key, op, Reply::Done(done))));
    }

    /// Add a request about a fragment; `told` is called by the committing thread.
    pub(crate) fn push_asked(&self, key: Key, asked: Asked, told: Told) {
        self.push_each([(key, Op::Fragments(asked), Reply::Told(told))]);
    }

    fn push_each(&self, all: impl IntoIterator<Item = (Key, Op, Reply)>) {
        let mut waiting = self.lock();
        if waiting.closed {
            drop(waiting);
            let closed = || Error::DeviceFailed("the store is closed".into());
            return all.into_iter().for_each(|(_, _, reply)| reply.give(Err(closed())));
        }
        waiting.ops.extend(all.into_iter().map(|(key, op, reply)| Pending { key, op, reply }));
        let wake = waiting.awaited > 0 && waiting.ops.len() >= waiting.awaited;
        drop(waiting);
        if wake {
            self.woken.notify_one();
        }
    }

    /// Accept no more requests.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.woken.notify_all();
    }

    /// Wait until there is a request, and a moment longer where more are likely to come; false when there is none and
    /// none will come. Called by one thread.
    pub(crate) fn wait(&self) -> bool {
        let mut waiting = self.lock();
        waiting.awaited = 1;
        while waiting.ops.is_empty() && !waiting.closed {
            waiting = self.woken.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let Pace { expected, patience } = waiting.pace;
        if waiting.ops.len() < expected {
            waiting.awaited = expected;
            let more = |waiting: &mut Waiting| waiting.ops.len() < expected && !waiting.closed;
            waiting = self.woken.wait_timeout_while(waiting, patience, more).unwrap_or_else(PoisonError::into_inner).0;
        }
        waiting.awaited = 0;
        !waiting.ops.is_empty()
    }

    /// Record that so many records were committed in so much time.
    pub(crate) fn committed(&self, records: usize, took: Duration) {
        let mut waiting = self.lock();
        waiting.pace = Pace::after(records, took, waiting.ops.len());
    }

    /// The requests of one batch: no object twice, and none before an earlier request for the same object. What concerns
    /// many objects is a batch of its own.
    pub(crate) fn take(&self) -> Vec<Pending> {
        let mut waiting = self.lock();
        let mut keys = HashSet::new();
        let mut bytes = 0;
        let (mut taken, mut left) = (Vec::new(), VecDeque::new());
        while let Some(pending) = waiting.ops.pop_front() {
            if taken.len() >= MAX_RECORDS || bytes >= MAX_BYTES {
                left.push_back(pending);
                break;
            }
            if pending.op.is_of_many() {
                if taken.is_empty() {
                    taken.push(pending);
                } else {
                    left.push_back(pending);
                }
                break;
            }
            if keys.insert(pending.key) {
                bytes += pending.op.bytes();
                taken.push(pending);
            } else {
                left.push_back(pending);
            }
        }
        left.append(&mut waiting.ops);
        waiting.ops = left;
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::thread;

    use swiftlet_fragments::Version;
    use swiftlet_fragments::packs::Pack;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn push(queue: &Queue, number: u8) {
        let key = Key { policy: 0, partition: 0, digest: [number; 16] };
        queue.push(key, Op::Mark, Box::new(drop));
    }

    /// A thread that waits once; what it found.
    fn waiter(queue: &Arc<Queue>) -> mpsc::Receiver<(bool, usize)> {
        let (tell, told) = mpsc::channel();
        let queue = Arc::clone(queue);
        thread::spawn(move || {
            let found = queue.wait();
            tell.send((found, queue.take().len())).expect("told");
        });
        told
    }

    fn paced(expected: usize, patience: Duration) -> Arc<Queue> {
        let queue = Queue::default();
        queue.lock().pace = Pace { expected, patience };
        Arc::new(queue)
    }

    #[test]
    fn one_that_writes_alone_does_not_wait() {
        let pace = Pace::after(1, LONG, 0);
        assert_eq!(pace.expected, 1);
        let queue = paced(pace.expected, LONG);
        push(&queue, 1);
        assert_eq!(waiter(&queue).recv_timeout(LONG), Ok((true, 1)));
    }

    #[test]
    fn as_many_as_last_time_are_waited_for() {
        assert_eq!(Pace::after(2, LONG, 1).expected, 3);
        assert_eq!(Pace::after(1000, LONG, 1).expected, ENOUGH);
        let queue = paced(3, LONG);
        let told = waiter(&queue);
        for number in 1..3 {
            push(&queue, number);
            assert!(told.recv_timeout(Duration::from_millis(20)).is_err());
        }
        push(&queue, 3);
        assert_eq!(told.recv_timeout(LONG), Ok((true, 3)));
    }

    #[test]
    fn but_not_for_long() {
        assert_eq!(Pace::after(5, LONG, 0).patience, PATIENCE);
        let short = Duration::from_micros(400);
        assert_eq!(Pace::after(5, short, 0).patience, short / PATIENCE_PART);
        let queue = paced(3, Duration::from_millis(1));
        push(&queue, 1);
        assert_eq!(waiter(&queue).recv_timeout(LONG), Ok((true, 1)));
    }

    #[test]
    fn what_concerns_many_objects_is_a_batch_of_its_own() {
        let queue = Queue::default();
        let pack = Pack { version: Version { timestamp: 1, generation: 1 }, digest: [9; 16] };
        let ask = |queue: &Queue| {
            let table = Table { pack, references: Vec::new() };
            queue.push(
                Key { policy: 0, partition: 0, digest: pack.digest },
                Op::References(Taking::Adopt, table, None),
                Box::new(drop),
            );
        };
        [1, 2, 1].iter().for_each(|number| push(&queue, *number));
        ask(&queue);
        push(&queue, 3);
        ask(&queue);
        let batches = || std::iter::from_fn(|| Some(queue.take()).filter(|taken| !taken.is_empty()));
        let lengths: Vec<usize> = batches().map(|taken| taken.len()).collect();
        assert_eq!(lengths, [2, 1, 1, 1, 1]);
    }

    #[test]
    fn the_end_is_not_waited_for() {
        let queue = paced(3, LONG);
        push(&queue, 1);
        let told = waiter(&queue);
        queue.close();
        assert_eq!(told.recv_timeout(LONG), Ok((true, 1)));
        assert_eq!(waiter(&queue).recv_timeout(LONG), Ok((false, 0)));
    }
}
