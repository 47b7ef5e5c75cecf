//! The client: requests to object servers, one body to several of them.
//!
//! Calls are submitted and their results come as events, in batches, with one descriptor for an event loop. For tests
//! and tools there are calls that wait. Which answers make a quorum is decided by the caller.
//!
//! Fault model: any peer may refuse, be slow, or be lost at any point, independently of the others. A received body is
//! checked against its sender's checksum.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use swiftlet_fragments::request::Answer;
use swiftlet_store::model::Footer;
use swiftlet_transport::{Body, Call, Chunk, Completions, Error as TransportError, Peer, Sink, Ticket, Upload, What};

use crate::message::fragments::{Footer as FragmentFooter, decode_answer};
use crate::message::{Found, Malformed, Request, Written, encode_footer};
use crate::status::{Refusal, Status};

/// The largest number of peers of one request.
pub const MAX_TARGETS: usize = 64;

/// Why there is no good answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server refused.
    Refused(Refusal),
    /// The transport failed.
    Lost(TransportError),
    /// The received data differ from what was sent.
    Damaged(&'static str),
}

impl Failure {
    /// The server's status, if it answered.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        if let Self::Refused(refusal) = self { Some(refusal.status) } else { None }
    }
}

impl From<Malformed> for Failure {
    fn from(malformed: Malformed) -> Self {
        Self::Damaged(malformed.0)
    }
}

/// What happened to a submitted request at one of its peers.
#[derive(Debug)]
pub struct ClientEvent {
    /// The request.
    pub id: u64,
    /// Which of its targets.
    pub at: usize,
    /// What happened, as the transport reports it.
    pub what: What,
}

/// A complete answer.
#[derive(Debug, Default)]
pub struct Fetched {
    /// The header, whose form depends on the method.
    pub header: Vec<u8>,
    /// All of it.
    pub body: Vec<u8>,
    /// The footer after the body.
    pub footer: Vec<u8>,
}

/// A request to several peers.
#[derive(Debug)]
pub struct Submitted {
    /// The number by which its events refer to it.
    pub id: u64,
    /// For cancelling it at each peer.
    pub tickets: Vec<Ticket>,
}

/// Makes requests. It may be used by many threads.
pub struct Client {
    events: Arc<Completions>,
    next: AtomicU64,
    trace: String,
}

impl Client {
    /// A client whose requests have this id until another one is set.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new(trace: &str) -> std::io::Result<Self> {
        Ok(Self { events: Completions::new()?, next: AtomicU64::new(1), trace: trace.to_owned() })
    }

    fn call(&self, device: &str, request: &Request, timeout: Duration) -> Result<Call, Failure> {
        let header = request.encode(device)?;
        Ok(Call { method: request.method(), timeout, trace: self.trace.clone(), header, ..Call::default() })
    }

    fn token(id: u64, at: usize) -> u64 {
        id << 8 | at as u64
    }

    /// Send a request with the same body to all targets; the results are events.
    ///
    /// # Errors
    /// It can't be made.
    pub fn submit(
        &self,
        targets: &[(Peer, String)],
        request: &Request,
        body: Option<&Chunk>,
        timeout: Duration,
    ) -> Result<Submitted, Failure> {
        let sink = Arc::clone(&self.events) as Arc<dyn Sink>;
        self.submit_to(targets, request, body, timeout, &sink)
    }

    fn submit_to(
        &self,
        targets: &[(Peer, String)],
        request: &Request,
        body: Option<&Chunk>,
        timeout: Duration,
        sink: &Arc<dyn Sink>,
    ) -> Result<Submitted, Failure> {
        let calls = self.calls(targets, request, timeout)?;
        let id = self.next.fetch_add(1, Relaxed);
        let mut tickets = Vec::with_capacity(targets.len());
        for (at, ((peer, _), mut call)) in targets.iter().zip(calls).enumerate() {
            if let Some(body) = body.filter(|body| !body.is_empty()) {
                call.body = Body::Chunk(body.clone());
            }
            tickets.push(peer.call(call, sink, Self::token(id, at)).map_err(Failure::Lost)?);
        }
        Ok(Submitted { id, tickets })
    }

    fn calls(&self, targets: &[(Peer, String)], request: &Request, timeout: Duration) -> Result<Vec<Call>, Failure> {
        if targets.len() > MAX_TARGETS {
            return Err(Failure::Damaged("too many targets"));
        }
        targets.iter().map(|(_, device)| self.call(device, request, timeout)).collect()
    }

    /// The events since the last call.
    #[must_use]
    pub fn drain(&self) -> Vec<ClientEvent> {
        Self::named(self.events.drain())
    }

    /// The same, after waiting for an event.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> Vec<ClientEvent> {
        Self::named(self.events.wait(timeout))
    }

    fn named(events: Vec<swiftlet_transport::Event>) -> Vec<ClientEvent> {
        let named = |event: swiftlet_transport::Event| ClientEvent {
            id: event.token >> 8,
            at: (event.token & 0xff) as usize,
            what: event.what,
        };
        events.into_iter().map(named).collect()
    }

    /// Begin a PUT whose body comes piece by piece.
    ///
    /// # Errors
    /// It can't be made.
    pub fn open_put(
        &self,
        targets: &[(Peer, String)],
        request: &Request,
        size: Option<u64>,
        timeout: Duration,
    ) -> Result<PutStream, Failure> {
        let calls = self.calls(targets, request, timeout)?;
        let events = Completions::new().map_err(|_| Failure::Lost(TransportError::Overloaded))?;
        let sink = Arc::clone(&events) as Arc<dyn Sink>;
        let mut uploads = Vec::with_capacity(targets.len());
        for (at, ((peer, _), call)) in targets.iter().zip(calls).enumerate() {
            uploads.push(Some(peer.upload(call, size, &sink, at as u64).map_err(Failure::Lost)?));
        }
        let answers = Answers::new(events, targets.len());
        Ok(PutStream { uploads, answers, deadline: Instant::now() + timeout })
    }

    /// Make a request to all targets and wait for their answers.
    pub fn ask_all(
        &self,
        targets: &[(Peer, String)],
        request: &Request,
        body: Option<&Chunk>,
        timeout: Duration,
    ) -> Vec<Result<Fetched, Failure>> {
        let all_of = |failure: Failure| targets.iter().map(|_| Err(failure.clone())).collect();
        let Ok(events) = Completions::new() else { return all_of(Failure::Lost(TransportError::Overloaded)) };
        let sink = Arc::clone(&events) as Arc<dyn Sink>;
        match self.submit_to(targets, request, body, timeout, &sink) {
            Err(failure) => all_of(failure),
            Ok(_) => Answers::new(events, targets.len()).finish(Instant::now() + timeout),
        }
    }

    /// Make a request and wait for its answer.
    ///
    /// # Errors
    /// There is none, or it is a failure.
    pub fn ask(
        &self,
        target: &(Peer, String),
        request: &Request,
        body: Option<&Chunk>,
        timeout: Duration,
    ) -> Result<Fetched, Failure> {
        let mut answers = self.ask_all(std::slice::from_ref(target), request, body, timeout);
        answers.pop().unwrap_or(Err(Failure::Damaged("no answer")))
    }

    /// Store one body at all targets, and wait.
    pub fn put(
        &self,
        targets: &[(Peer, String)],
        request: &Request,
        body: &Chunk,
        timeout: Duration,
    ) -> Vec<Result<Written, Failure>> {
        self.ask_all(targets, request, Some(body), timeout).into_iter().map(written).collect()
    }

    /// Read and check an object, or a part of it; all of it is held in memory.
    ///
    /// # Errors
    /// There is none, or it is not what was sent.
    pub fn get(
        &self,
        target: &(Peer, String),
        request: &Request,
        timeout: Duration,
    ) -> Result<(Found, Vec<u8>), Failure> {
        let fetched = self.ask(target, request, None, timeout)?;
        let found = Found::decode(&fetched.header)?;
        let sum = swiftlet_hash::xxh3_64(&fetched.body);
        let sound = match found.body_xxh3 {
            Some(known) => known == sum,
            None => fetched.footer == sum.to_be_bytes(),
        };
        if sound { Ok((found, fetched.body)) } else { Err(Failure::Damaged("bytes with another checksum")) }
    }
}

/// The answer to a write.
fn written(answer: Result<Fetched, Failure>) -> Result<Written, Failure> {
    Ok(Written::decode(&answer?.header)?)
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

/// Answers that are being collected.
struct Answers {
    events: Arc<Completions>,
    collected: Vec<Fetched>,
    over: Vec<Option<Result<(), Failure>>>,
    /// Bytes of uploads that were sent, by target.
    sent: Vec<u64>,
}

/// The transport reports the end of a call's own deadline; this is only in case that it can't.
const GRACE: Duration = Duration::from_secs(2);

impl Answers {
    fn new(events: Arc<Completions>, count: usize) -> Self {
        let collected = (0..count).map(|_| Fetched::default()).collect();
        Self { events, collected, over: vec![None; count], sent: vec![0; count] }
    }

    fn turn(&mut self, timeout: Duration) {
        for event in self.events.wait(timeout) {
            self.take((event.token & 0xff) as usize, event.what);
        }
    }

    fn take(&mut self, at: usize, what: What) {
        let (fetched, over) = (&mut self.collected[at], &mut self.over[at]);
        match what {
            What::Sent(bytes) => self.sent[at] += bytes as u64,
            What::Reply { status, header, body, whole, .. } => {
                if status != Status::Ok as u16 {
                    *over = Some(Err(Failure::Refused(Refusal::decode(status, &header))));
                } else if whole {
                    *over = Some(Ok(()));
                }
                fetched.header = header;
                fetched.body = body.map(|body| body.to_vec()).unwrap_or_default();
            }
            What::Chunk(chunk) => fetched.body.extend_from_slice(&chunk),
            What::End(footer) => {
                fetched.footer = footer;
                over.get_or_insert(Ok(()));
            }
            What::Failed(error) => {
                over.get_or_insert(Err(Failure::Lost(error)));
            }
        }
    }

    fn finish(mut self, deadline: Instant) -> Vec<Result<Fetched, Failure>> {
        let end = deadline + GRACE;
        while self.over.iter().any(Option::is_none) && Instant::now() < end {
            self.turn(Duration::from_millis(100));
        }
        let outcomes = self.over.into_iter().zip(self.collected);
        let late = || Err(Failure::Lost(TransportError::Deadline));
        outcomes.map(|(over, fetched)| over.unwrap_or_else(late).map(|()| fetched)).collect()
    }
}

/// A body that is sent to several peers. When it is dropped, it is cancelled at all of them.
pub struct PutStream {
    uploads: Vec<Option<Upload>>,
    answers: Answers,
    deadline: Instant,
}

impl PutStream {
    /// Send the next bytes, at most 1 MiB, to all that still accept them; waits for room. False: nobody does.
    pub fn send(&mut self, chunk: &Chunk) -> bool {
        for at in 0..self.uploads.len() {
            while self.answers.over[at].is_none() && Instant::now() < self.deadline {
                let Some(upload) = &self.uploads[at] else { break };
                if upload.send(chunk.clone()).is_ok() {
                    break;
                }
                self.answers.turn(Duration::from_millis(20));
            }
        }
        self.answers.turn(Duration::ZERO);
        self.answers.over.iter().any(Option::is_none)
    }

    /// The body is complete; waits for the answers.
    pub fn commit(self, footer: &Footer) -> Vec<Result<Written, Failure>> {
        self.finish(encode_footer(footer)).into_iter().map(written).collect()
    }

    /// A fragment is complete; waits for the answers.
    pub fn keep(self, footer: &FragmentFooter) -> Vec<Result<Answer, Failure>> {
        let answers = self.finish(footer.encode()).into_iter();
        answers.map(|answer| Ok(decode_answer(&answer?.header)?)).collect()
    }

    fn finish(mut self, raw: Result<Vec<u8>, Malformed>) -> Vec<Result<Fetched, Failure>> {
        for upload in self.uploads.iter_mut().filter_map(Option::take) {
            let ticket = upload.ticket().clone();
            let ended = raw.as_ref().is_ok_and(|raw| upload.end(raw.clone()).is_ok());
            if !ended {
                ticket.cancel();
            }
        }
        let answers = Answers::new(Arc::clone(&self.answers.events), 0);
        let answers = std::mem::replace(&mut self.answers, answers);
        answers.finish(self.deadline)
    }
}

impl Drop for PutStream {
    fn drop(&mut self) {
        for upload in self.uploads.iter().flatten() {
            upload.ticket().cancel();
        }
    }
}
