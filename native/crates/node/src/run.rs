//! A run: bytes of many objects as one stream. The next objects are requested while earlier ones are still arriving,
//! and each is checked against what is expected of it, so that the caller has no work per object.
//!
//! Fault model: any device may refuse, fail, fall silent or send something else at any byte, and any object may be
//! missing or another one than expected. The run then stops exactly there, without passing on anything wrong, and
//! reports where and why: the caller decides what to do. Passed-on bytes were checked against their sender's xxh3,
//! except that all pieces of a large object but the last one are passed on before the check, which comes with the last
//! one. A caller that takes nothing stops further requests: the waiting bytes are bounded by `ahead_bytes` and one
//! object's window. For a caller that repeatedly waits for bytes the bound grows, up to [`MOST_AHEAD`] times. All runs
//! share a limit ([`Ahead`]), so that none of them is kept from the bytes that it needs next.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use swiftlet_hash::{Digests, Hasher};
use swiftlet_store::model::{Info, Key};
use swiftlet_transport::{Call, Chunk, Error as TransportError, Event, Peer, Sink, Ticket, WINDOW_BYTES, What};

use crate::ahead::{Ahead, Reserved};
use crate::client::Failure;
use crate::message::{Found, Request};
use crate::status::{Refusal, Status};

/// The largest number of objects in one run.
pub const MAX_PARTS: usize = 1024;
/// The largest number of concurrent requests.
const MAX_OPEN: usize = 8;
/// By how many times `ahead_bytes` may grow for a caller that is faster than the devices.
const MOST_AHEAD: u64 = 4;

/// Bytes of one object, and what is expected of it.
#[derive(Clone, Debug)]
pub struct Part {
    /// The peer to ask.
    pub peer: Peer,
    /// The device on that peer.
    pub device: String,
    /// The object.
    pub key: Key,
    /// The first byte.
    pub start: u64,
    /// The byte after the last one; the object must have it.
    pub stop: u64,
    /// The required size of the whole object, if any.
    pub size: Option<u64>,
    /// The required ETag of the whole object, if any.
    pub etag: Option<Vec<u8>>,
    /// Whether it must have none of the marks.
    pub unmarked: bool,
}

/// Names in metadata and system metadata: an object with one of them represents something else than its own bytes.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    /// Names of metadata.
    pub metadata: Vec<Vec<u8>>,
    /// Names of system metadata.
    pub sysmeta: Vec<Vec<u8>>,
}

/// The options of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The time limit of each request.
    pub timeout: Duration,
    /// The id of the requests.
    pub trace: String,
    /// The next object is requested when no more than so many requested bytes were not taken yet. This is the initial
    /// value: it grows each time the caller has taken all bytes.
    pub ahead_bytes: u64,
    /// Counts the memory for objects after the first one, together with other runs.
    pub ahead: Arc<Ahead>,
    /// The names that mark objects.
    pub marks: Marks,
}

/// How a run has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunEnd {
    /// Objects that were passed on completely.
    pub done: usize,
    /// Bytes of the next object that were passed on.
    pub sent: u64,
    /// The header of the answer with these bytes; empty when there are none.
    pub found: Vec<u8>,
    /// The error. None: all was passed on, the next object is not the expected one, or the run was stopped.
    pub failure: Option<Failure>,
}

/// xxh3 of the received bytes.
enum Sum {
    Nothing,
    One(u64),
    Many(Box<Hasher>),
}

/// An object that was requested.
struct Open {
    ticket: Option<Ticket>,
    /// Memory for it while others are before it.
    reserved: Option<Reserved>,
    /// Bytes that have yet to come.
    left: u64,
    found: Vec<u8>,
    /// xxh3 of all bytes, if it is known before the end.
    known: Option<u64>,
    sum: Sum,
    /// The last piece, until it was checked.
    held: Option<Chunk>,
    /// To be passed on when it is the object's turn.
    ready: VecDeque<Chunk>,
    /// How it ended; an error without a failure: it is not the expected object.
    end: Option<Result<(), Option<Failure>>>,
}

struct State {
    /// Objects that were requested and not passed on completely.
    open: VecDeque<Open>,
    /// Parts that were passed on completely.
    done: usize,
    /// Bytes of the next part that were passed on.
    sent: u64,
    /// Bytes that were requested and not taken.
    untaken: u64,
    /// Those of them that were passed on.
    waiting: u64,
    /// How many there may be before the next object is requested.
    ahead: u64,
    /// Nothing more is requested.
    broken: bool,
    end: Option<RunEnd>,
}

/// A run in progress. Its events go to a sink: `Chunk`s, and an empty `End` when it is over, for whatever reason.
pub struct Run {
    me: Weak<Self>,
    parts: Vec<Part>,
    options: RunOptions,
    sink: Arc<dyn Sink>,
    token: u64,
    state: Mutex<State>,
}

impl Run {
    /// Begin.
    ///
    /// # Errors
    /// There are no parts, too many, or one without bytes.
    pub fn start(
        parts: Vec<Part>,
        options: RunOptions,
        sink: Arc<dyn Sink>,
        token: u64,
    ) -> Result<Arc<Self>, &'static str> {
        if parts.is_empty() || parts.len() > MAX_PARTS {
            return Err("a run must have 1 to 1024 parts");
        }
        if parts.iter().any(|part| part.start >= part.stop) {
            return Err("a part of the run has no bytes");
        }
        let (open, ahead) = (VecDeque::new(), options.ahead_bytes);
        let state = State { open, done: 0, sent: 0, untaken: 0, waiting: 0, ahead, broken: false, end: None };
        let run = Arc::new_cyclic(|me| Self { me: me.clone(), parts, options, sink, token, state: Mutex::new(state) });
        run.turn(&mut run.lock());
        Ok(run)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caller has released so many bytes.
    pub fn taken(&self, bytes: u64) {
        let mut state = self.lock();
        state.untaken = state.untaken.saturating_sub(bytes);
        state.waiting = state.waiting.saturating_sub(bytes);
        if state.waiting == 0 {
            let most = self.options.ahead_bytes.saturating_mul(MOST_AHEAD);
            state.ahead = state.ahead.saturating_add(bytes).min(most);
        }
        self.turn(&mut state);
    }

    /// Stop the run; harmless when it is over.
    pub fn stop(&self) {
        let mut state = self.lock();
        let mut events = Vec::new();
        self.finish(&mut state, None, &mut events);
        self.tell(&mut events);
    }

    /// How it has ended; None while it is in progress.
    #[must_use]
    pub fn end(&self) -> Option<RunEnd> {
        self.lock().end.clone()
    }

    /// Pass on what is ready, and request more.
    fn turn(&self, state: &mut State) {
        let mut events = Vec::new();
        while let Some(first) = state.open.front_mut() {
            first.reserved = None;
            for chunk in first.ready.drain(..) {
                state.sent += chunk.len() as u64;
                state.waiting += chunk.len() as u64;
                events.push(Event { token: self.token, what: What::Chunk(chunk) });
            }
            match first.end.take() {
                None => break,
                Some(Err(failure)) => self.finish(state, failure, &mut events),
                Some(Ok(())) => {
                    state.open.pop_front();
                    state.done += 1;
                    state.sent = 0;
                    if state.done == self.parts.len() {
                        self.finish(state, None, &mut events);
                    }
                }
            }
        }
        self.tell(&mut events);
        while state.end.is_none()
            && !state.broken
            && state.open.len() < MAX_OPEN
            && state.untaken <= state.ahead
            && let Some(part) = self.parts.get(state.done + state.open.len())
        {
            let number = (state.done + state.open.len()) as u64;
            let reserved = match state.open.is_empty() {
                true => None,
                false => match self.options.ahead.reserve((part.stop - part.start).min(u64::from(WINDOW_BYTES))) {
                    None => break,
                    reserved => reserved,
                },
            };
            let open = Open { reserved, ..self.ask(part, number) };
            state.untaken += open.left;
            state.broken = open.end.is_some();
            state.open.push_back(open);
        }
    }

    fn tell(&self, events: &mut Vec<Event>) {
        if !events.is_empty() {
            self.sink.events(events);
        }
    }

    fn ask(&self, part: &Part, number: u64) -> Open {
        let request = Request::Get { key: part.key, start: part.start, stop: part.stop, whole: 0, proved: true };
        let asked = request.encode(&part.device).map_err(Failure::from).and_then(|header| {
            let RunOptions { timeout, trace, .. } = &self.options;
            let call =
                Call { method: request.method(), timeout: *timeout, trace: trace.clone(), header, ..Call::default() };
            let me = self.me.upgrade().ok_or(Failure::Lost(TransportError::Cancelled))?;
            part.peer.call(call, &(me as Arc<dyn Sink>), number).map_err(Failure::Lost)
        });
        let (ticket, end) = match asked {
            Ok(ticket) => (Some(ticket), None),
            Err(failure) => (None, Some(Err(Some(failure)))),
        };
        Open {
            ticket,
            reserved: None,
            left: part.stop - part.start,
            found: Vec::new(),
            known: None,
            sum: Sum::Nothing,
            held: None,
            ready: VecDeque::new(),
            end,
        }
    }

    fn finish(&self, state: &mut State, failure: Option<Failure>, events: &mut Vec<Event>) {
        if state.end.is_some() {
            return;
        }
        let found = match state.open.front_mut() {
            Some(first) if state.sent > 0 => std::mem::take(&mut first.found),
            _ => Vec::new(),
        };
        state.end = Some(RunEnd { done: state.done, sent: state.sent, found, failure });
        for open in state.open.drain(..) {
            if let Some(ticket) = open.ticket {
                ticket.cancel();
            }
        }
        events.push(Event { token: self.token, what: What::End(Vec::new()) });
    }

    fn take(&self, state: &mut State, event: Event) {
        let number = event.token as usize;
        let Some(open) = number.checked_sub(state.done).and_then(|at| state.open.get_mut(at)) else { return };
        if open.end.is_some() {
            return;
        }
        if let Err(failure) = open.take(event.what, &self.parts[number], &self.options.marks) {
            if let Some(ticket) = open.ticket.take() {
                ticket.cancel();
            }
            open.end = Some(Err(failure));
            state.broken = true;
        }
    }
}

impl Sink for Run {
    fn events(&self, events: &mut Vec<Event>) {
        let mut state = self.lock();
        for event in events.drain(..) {
            self.take(&mut state, event);
        }
        self.turn(&mut state);
    }
}

impl Open {
    fn take(&mut self, what: What, part: &Part, marks: &Marks) -> Result<(), Option<Failure>> {
        match what {
            What::Sent(_) => Ok(()),
            What::Failed(error) => Err(Some(Failure::Lost(error))),
            What::Chunk(chunk) => self.piece(chunk),
            What::End(footer) => self.over(&footer),
            What::Reply { status, header, body, whole, .. } => {
                if status != Status::Ok as u16 {
                    return Err(Some(Failure::Refused(Refusal::decode(status, &header))));
                }
                let found = Found::decode(&header).map_err(|malformed| Some(Failure::from(malformed)))?;
                if !is_expected(&found.info, part, marks) {
                    return Err(None);
                }
                self.known = found.body_xxh3;
                self.found = header;
                body.map_or(Ok(()), |body| self.piece(body))?;
                if whole { self.over(&[]) } else { Ok(()) }
            }
        }
    }

    fn piece(&mut self, chunk: Chunk) -> Result<(), Option<Failure>> {
        let bytes = chunk.len() as u64;
        let damaged = |what| Err(Some(Failure::Damaged(what)));
        if bytes > self.left || self.found.is_empty() {
            return damaged("more than was asked for");
        }
        self.left -= bytes;
        match &mut self.sum {
            Sum::Nothing if self.left == 0 => self.sum = Sum::One(swiftlet_hash::xxh3_64(&chunk)),
            Sum::Nothing => {
                let mut hasher = Hasher::new(Digests { md5: false, xxh3: true });
                hasher.update(&chunk);
                self.sum = Sum::Many(Box::new(hasher));
            }
            Sum::One(_) => return damaged("more than was asked for"),
            Sum::Many(hasher) => hasher.update(&chunk),
        }
        // Nobody waits for the next piece to have this one: its window would stand still as long.
        if self.left == 0 {
            self.held = Some(chunk);
        } else {
            self.ready.push_back(chunk);
        }
        Ok(())
    }

    fn over(&mut self, footer: &[u8]) -> Result<(), Option<Failure>> {
        let sum = match &self.sum {
            Sum::One(sum) => Some(*sum),
            Sum::Many(hasher) => hasher.xxh3_64(),
            Sum::Nothing => None,
        };
        if self.left > 0 {
            return Err(Some(Failure::Damaged("ended early")));
        }
        let told = self.known.or_else(|| footer.try_into().ok().map(u64::from_be_bytes));
        if sum.is_none() || sum != told {
            return Err(Some(Failure::Damaged("bytes with another checksum")));
        }
        self.ready.extend(self.held.take());
        self.end = Some(Ok(()));
        Ok(())
    }
}

/// Whether an object is the expected one, and readable.
fn is_expected(info: &Info, part: &Part, marks: &Marks) -> bool {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let marked = |pairs: &[(Vec<u8>, Vec<u8>)], names: &[Vec<u8>]| pairs.iter().any(|(name, _)| names.contains(name));
    part.stop <= info.size
        && part.size.is_none_or(|size| size == info.size)
        && part.etag.as_ref().is_none_or(|etag| *etag == info.etag)
        && (info.delete_at == 0 || info.delete_at > now_s)
        && !(part.unmarked && (marked(&info.metadata, &marks.metadata) || marked(&info.sysmeta, &marks.sysmeta)))
}
