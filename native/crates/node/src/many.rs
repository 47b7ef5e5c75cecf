//! Many requests in one message: each is checked and answered as if it had come alone, writes share a commit.
//!
//! Fault model: that of [`crate::server`]. A message is one request at work, and its bytes are held until its answer was
//! sent. A body that does not arrive as announced is dropped, and nothing of it was done. A refusal is that of one
//! request, and the others are carried out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use swiftlet_store::model::{Info, Key};
use swiftlet_store::{Store, Submission};
use swiftlet_transport::{Body, Chunk, Error as TransportError, Receiver};

use crate::device::{Permit, Who};
use crate::guest_requests::Shown;
use crate::message::many::{MAX_MANY, MAX_MANY_ANSWER_BYTES, MAX_MANY_BYTES, One, push_answer, requests};
use crate::message::{Found, Request};
use crate::plain;
use crate::reading::{EMPTY_XXH3, Held};
use crate::reply::Reply;
use crate::status::{Refusal, Status};
use crate::written::{AcceptedWrite, unproved};

/// So many reads are worth a thread of their own.
const READS_AT_ONCE: usize = 16;

/// A message whose requests are not read yet.
pub(crate) struct Many {
    pub(crate) store: Arc<Store>,
    pub(crate) permit: Permit,
    pub(crate) reply: Reply,
    /// The grant of a guest.
    pub(crate) shown: Option<Shown>,
    pub(crate) count: usize,
}

/// Why a message is refused as a whole.
pub(crate) fn check(count: usize, bytes: Option<u64>) -> Result<usize, Refusal> {
    let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok()).filter(|bytes| *bytes <= MAX_MANY_BYTES);
    match bytes {
        Some(bytes) if (1..=MAX_MANY).contains(&count) => Ok(bytes),
        _ => Err(Refusal::new(Status::WireError, "too many requests in one message, or too many bytes of them")),
    }
}

/// A read: its number, its method, the object.
struct Read {
    at: usize,
    request: Request,
}

/// What was answered to a request: header and body.
type Answered = Result<(Vec<u8>, Vec<u8>), Refusal>;

/// Status, header, body.
type AnswerParts = (u16, Vec<u8>, Vec<u8>);

struct State {
    answers: Vec<Option<AnswerParts>>,
    left: usize,
    /// What is left of the answer's size.
    room: usize,
    over: Option<(Reply, Permit)>,
}

/// The answers that have come.
struct Answers {
    state: Mutex<State>,
    store: Arc<Store>,
    is_guest: bool,
}

impl Many {
    /// Carry the requests out, in a thread of the device.
    pub(crate) fn work(self, body: Vec<u8>) {
        if self.reply.is_cancelled() {
            return; // nobody waits, and the transport has said why
        }
        let Self { store, permit, reply, shown, count } = self;
        let all = match requests(count, &body) {
            Ok(all) => all,
            Err(malformed) => return reply.refuse(&malformed.into()),
        };
        let device = Arc::clone(&permit.device);
        device.received(all.iter().map(|one| one.body.len()).sum());
        let is_guest = permit.who == Who::Guest;
        let state =
            State { answers: vec![None; count], left: count, room: MAX_MANY_ANSWER_BYTES, over: Some((reply, permit)) };
        let answers = Arc::new(Answers { state: Mutex::new(state), store: Arc::clone(&store), is_guest });
        let (mut writes, mut reads) = (Vec::new(), Vec::new());
        for (at, one) in all.iter().enumerate() {
            match accepted(&store, shown.as_ref(), is_guest, one) {
                Ok(request @ (Request::Get { .. } | Request::Head { .. })) => reads.push(Read { at, request }),
                Ok(request) => writes.extend(submission(&answers, at, request, one)),
                Err(refusal) => answers.set(at, one.method, Err(refusal)),
            }
        }
        store.submit_all(writes);
        // The last ones are read here.
        while reads.len() > READS_AT_ONCE {
            let some = reads.split_off(reads.len() - READS_AT_ONCE);
            let answers = Arc::clone(&answers);
            device.run(move || some.into_iter().for_each(|read| answers.read(&read)));
        }
        reads.iter().for_each(|read| answers.read(read));
    }
}

/// A request that may be carried out.
fn accepted(store: &Store, shown: Option<&Shown>, is_guest: bool, one: &One<'_>) -> Result<Request, Refusal> {
    let request = allowed(shown, one)?;
    if let Request::Put { row, .. } | Request::Delete { row, .. } = &request
        && (*row != 0 && store.has_too_many_pending() || is_guest && store.has_many_pending())
    {
        return Err(Refusal::new(Status::NodeBusy, "many container updates are pending; try again later"));
    }
    Ok(request)
}

/// A request that is one of those that can be in a message, and that its grant covers if it is a guest's.
pub(crate) fn allowed(shown: Option<&Shown>, one: &One<'_>) -> Result<Request, Refusal> {
    let request = Request::from_fields(one.method, one.fields)?;
    if let Some(shown) = shown {
        shown.check(one.object, &request, one.body.len() as u64)?;
    }
    match &request {
        Request::Put { footer: Some(_), .. } => Ok(request),
        Request::Delete { .. } | Request::Get { .. } | Request::Head { .. } if one.body.is_empty() => Ok(request),
        Request::Delete { .. } | Request::Get { .. } | Request::Head { .. } => {
            Err(Refusal::new(Status::WireError, "this request takes no body"))
        }
        _ => Err(Refusal::new(Status::WireError, "a request that can't be one of many")),
    }
}

/// A write for the store; None of anything else.
fn submission(answers: &Arc<Answers>, at: usize, request: Request, one: &One<'_>) -> Option<Submission> {
    let (key, timestamp, row, deletes) = match &request {
        Request::Put { key, meta, row, .. } => (*key, meta.timestamp, *row, false),
        Request::Delete { key, timestamp, row, .. } => (*key, *timestamp, *row, true),
        _ => return None,
    };
    let write = AcceptedWrite { store: Arc::clone(&answers.store), key, timestamp, row, deletes, doubts: None };
    let (answers, method) = (Arc::clone(answers), one.method);
    let done = Box::new(move |outcome| {
        let written = write.outcome(outcome, answers.is_guest);
        answers.set(at, method, written.map(|written| (written.encode(), Vec::new())));
    });
    Some(match request {
        Request::Put { meta, footer: Some(footer), .. } => {
            Submission::put(key, meta, footer, one.body.to_vec(), row, done)
        }
        Request::Delete { name, .. } => Submission::delete(key, timestamp, name, row, done),
        _ => return None,
    })
}

impl Answers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Note an answer; the last one is sent with all others.
    fn set(&self, at: usize, method: u16, answered: Answered) {
        let (status, header, body) = match answered {
            Ok((header, body)) => (Status::Ok, header, body),
            Err(refusal) => (refusal.status, refusal.encode(), Vec::new()),
        };
        let mut state = self.lock();
        if let Some((_, permit)) = &state.over {
            permit.device.count(method, status, 0);
        }
        state.answers[at] = Some((status as u16, header, body));
        state.left -= 1;
        if state.left > 0 {
            return;
        }
        let (answers, over) = (std::mem::take(&mut state.answers), state.over.take());
        drop(state);
        let Some((reply, permit)) = over else { return };
        let mut all =
            Vec::with_capacity(answers.iter().flatten().map(|(_, header, body)| header.len() + body.len() + 8).sum());
        for (status, header, body) in answers.iter().flatten() {
            if let Err(malformed) = push_answer(&mut all, *status, header, body) {
                return reply.refuse(&malformed.into());
            }
        }
        reply.answer(Vec::new(), Body::Chunk(Chunk::from_owner(Box::new(Held::new(all, permit)))));
    }

    fn read(&self, read: &Read) {
        self.set(read.at, read.request.method(), self.look(&read.request));
    }

    /// Take room in the answer, and hold as many bytes for it; false if there is none.
    fn take(&self, bytes: usize) -> Result<bool, Refusal> {
        let mut state = self.lock();
        if bytes > state.room {
            return Ok(false);
        }
        state.room -= bytes;
        if let Some((_, permit)) = &mut state.over {
            permit.hold(bytes)?;
        }
        Ok(true)
    }

    fn room(&self) -> usize {
        self.lock().room
    }

    fn is_in_doubt(&self, key: &Key) -> bool {
        let state = self.lock();
        state.over.as_ref().is_some_and(|(_, permit)| permit.device.doubts.has(key.policy, key.partition))
    }

    fn look(&self, request: &Request) -> Answered {
        match request {
            Request::Get { key, proved: true, .. } | Request::Head { key, proved: true } if self.is_in_doubt(key) => {
                Err(unproved())
            }
            Request::Get { key, whole, .. } => match self.store.get_up_to(key, (*whole).min(self.room() as u64))? {
                Ok(object) => {
                    let info = object.info().clone();
                    let bytes = object.read(0, info.size)?;
                    let sum = info.xxh3;
                    self.found(info, sum, bytes)
                }
                // Larger than what was asked for, or than what fits: it is told that there is something.
                Err(info) => self.found(info, EMPTY_XXH3, Vec::new()),
            },
            Request::Head { key, .. } => self.found(self.store.stat(key)?, EMPTY_XXH3, Vec::new()),
            _ => Err(Refusal::new(Status::NodeError, "no read")),
        }
    }

    fn found(&self, info: Info, xxh3: u64, bytes: Vec<u8>) -> Answered {
        if self.is_guest && !plain::is_plain(&info) {
            return Err(Refusal::new(Status::NotPlain, "this object has to be read through a proxy"));
        }
        let header = Found { info, body_xxh3: Some(xxh3) }.encode()?;
        if !self.take(header.len() + bytes.len())? {
            return Err(Refusal::new(Status::NodeBusy, "there is no more room in this answer; ask for it alone"));
        }
        Ok((header, bytes))
    }
}

/// The requests while they arrive.
pub(crate) struct Receiving {
    many: Option<Many>,
    body: Vec<u8>,
    bytes: usize,
}

impl Receiving {
    /// For a message of so many bytes.
    pub(crate) fn new(many: Many, bytes: usize) -> Self {
        Self { many: Some(many), body: Vec::with_capacity(bytes), bytes }
    }

    fn is_too_long(&self) -> bool {
        self.body.len() > self.bytes
    }
}

impl Receiver for Receiving {
    fn chunk(&mut self, chunk: Chunk) {
        if !self.is_too_long() {
            self.body.extend_from_slice(&chunk);
        }
        if self.is_too_long()
            && let Some(many) = self.many.take()
        {
            many.reply.refuse(&Refusal::new(Status::SizeMismatch, "the body is longer than was announced"));
        }
    }

    fn end(&mut self, _footer: &[u8]) {
        let Some(many) = self.many.take() else { return };
        let (device, body) = (Arc::clone(&many.permit.device), std::mem::take(&mut self.body));
        device.run(move || many.work(body));
    }

    fn failed(&mut self, _why: &TransportError) {
        // What can be said of it the transport has told the sender.
        self.many = None;
    }
}
