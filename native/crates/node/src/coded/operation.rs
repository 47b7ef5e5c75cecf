//! The frame of every operation: what devices were asked and have not answered, and who is told what comes of it.
//!
//! An operation's state is behind one lock. Answers come in the transport's threads; the caller acts through
//! [`Operation::act`]. After either, the state goes on until it waits for something. A request that could not be sent is
//! one that failed: its failure comes as any other answer does, never while it is being asked.
//!
//! Fault model: that of the module above. An answer to what is not waited for any more is not heard.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use swiftlet_transport::{Body, Call, Chunk, Error as TransportError, Event, Sink, Ticket, Upload, What};

use super::answering::{Answering, Whole, most_bytes};
use super::places::{Carries, Patience, Places, Target};
use crate::client::Failure;
use crate::message::Request;
use crate::message::fragments::Request as Fragments;
use crate::message::packs::Request as Packs;
use crate::status::Status;

/// What an operation makes of answers.
pub(super) trait State: Send + Sized + 'static {
    /// What a request is about.
    type About: Send;

    /// A device has taken so many bytes of an upload.
    fn sent(&mut self, _about: &Self::About, _bytes: usize) {}

    /// A device has answered, or it is known that it won't.
    fn answered(&mut self, asking: &mut Asking<Self::About>, about: Self::About, answer: Result<Whole, Failure>);

    /// Draw the consequences of what was heard, and of what the caller did.
    fn go_on(&mut self, asking: &mut Asking<Self::About>);

    /// The caller is gone.
    fn dropped(&mut self, asking: &mut Asking<Self::About>) {
        asking.forget();
    }
}

/// A request that has not been answered.
struct Asked<A> {
    about: A,
    device: u32,
    answering: Answering,
    since: Instant,
    /// What its answer carries, if it is one of those whose time is measured.
    carries: Option<Carries>,
    /// When others may be asked in its place, if they ever may.
    patience: Option<Patience>,
    ticket: Option<Ticket>,
}

impl<A> Asked<A> {
    /// How long it may take from now until it is late, or the device counts as one that stands still, if it is late.
    fn left(&self, now: Instant) -> Option<Duration> {
        let (Patience { late, still }, took) = (self.patience?, self.took(now));
        Some(if took < late { late } else { still }.saturating_sub(took)).filter(|left| !left.is_zero())
    }

    fn took(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }
}

/// A request whose answer is late.
pub(super) struct Late<'a, A> {
    pub(super) about: &'a A,
    device: u32,
    /// The device has kept silent for so long that others are asked in any case.
    pub(super) is_still: bool,
}

/// What the answer to a request carries, for those of readers.
fn carries(request: &Request) -> Option<Carries> {
    match request {
        Request::Fragment(Fragments::Newest { start, stop, .. }) if start < stop => Some(Carries::Cells),
        Request::Fragment(Fragments::Cells { .. }) => Some(Carries::Cells),
        Request::Fragment(Fragments::Newest { .. }) | Request::Pack(Packs::Piece { .. }) | Request::Get { .. } => {
            Some(Carries::Words)
        }
        _ => None,
    }
}

/// Asks devices, and tells the caller.
pub(super) struct Asking<A> {
    pub(super) places: Places,
    /// Why devices, by their numbers, did not do what they were asked for.
    pub(super) refused: Vec<(u32, Failure)>,
    me: Weak<dyn Sink>,
    timeout: Duration,
    trace: String,
    sink: Arc<dyn Sink>,
    token: u64,
    /// When a device is late of which nothing is known; nobody ever is if there is no such time.
    unknown: Option<Duration>,
    /// When the caller will look again whether something is late, if it waits.
    looks: Cell<Option<Instant>>,
    asked: BTreeMap<u64, Asked<A>>,
    next: u64,
    /// Those of `asked` that could not be sent.
    unsent: VecDeque<(u64, Failure)>,
}

impl<A> Asking<A> {
    /// Ask a device by its number in the ring.
    pub(super) fn ask(&mut self, about: A, device: u32, request: impl Into<Request>) {
        self.ask_within(self.timeout, about, device, request);
    }

    /// The same with another time limit.
    pub(super) fn ask_within(&mut self, timeout: Duration, about: A, device: u32, request: impl Into<Request>) {
        self.send(timeout, about, device, (request.into(), Body::Empty));
    }

    /// Ask a device, with a body that is here.
    pub(super) fn ask_with(&mut self, about: A, device: u32, request: Request, body: Body) {
        self.send(self.timeout, about, device, (request, body));
    }

    fn send(&mut self, timeout: Duration, about: A, device: u32, (request, body): (Request, Body)) {
        let (most, carries) = (most_bytes(&request, self.places.cell_bytes), carries(&request));
        let token = self.next;
        let ticket = self.call(device, request, timeout).and_then(|(target, call, me)| {
            let (peer, _) = target;
            peer.call(Call { body, ..call }, &me, token).map_err(Failure::Lost)
        });
        self.enter(about, device, (most, carries), ticket);
    }

    /// Ask a device, and go on with a body of so many bytes, if it can be asked.
    pub(super) fn upload(
        &mut self,
        timeout: Duration,
        about: A,
        device: u32,
        (request, size): (impl Into<Request>, Option<u64>),
    ) -> Option<Upload> {
        let token = self.next;
        let upload = self.call(device, request.into(), timeout).and_then(|(target, call, me)| {
            let (peer, _) = target;
            peer.upload(call, size, &me, token).map_err(Failure::Lost)
        });
        let ticket = upload.as_ref().map(|upload| upload.ticket().clone()).map_err(Clone::clone);
        self.enter(about, device, (0, None), ticket);
        upload.ok()
    }

    fn call(
        &self,
        device: u32,
        request: Request,
        timeout: Duration,
    ) -> Result<(&Target, Call, Arc<dyn Sink>), Failure> {
        let me = self.me.upgrade().ok_or(Failure::Lost(TransportError::Cancelled))?;
        let target = self.places.devices.target(device).ok_or(Failure::Damaged("the ring has no such device"))?;
        let header = request.encode(&target.1)?;
        let trace = self.trace.clone();
        Ok((target, Call { method: request.method(), timeout, trace, header, ..Call::default() }, me))
    }

    fn enter(
        &mut self,
        about: A,
        device: u32,
        (most, carries): (usize, Option<Carries>),
        ticket: Result<Ticket, Failure>,
    ) {
        let (ticket, failure) = match ticket {
            Ok(ticket) => (Some(ticket), None),
            Err(failure) => (None, Some(failure)),
        };
        self.unsent.extend(failure.map(|failure| (self.next, failure)));
        let devices = &self.places.devices;
        let patience = carries.zip(self.unknown).map(|(carries, unknown)| {
            devices.save();
            devices.patience(device, carries, unknown)
        });
        let pool = devices.target(device).map(|(peer, _)| peer.pool().clone());
        let (answering, since) = (Answering::new(most, pool), devices.now());
        self.asked.insert(self.next, Asked { about, device, answering, since, carries, patience, ticket });
        self.next += 1;
    }

    /// Others may be asked in the place of a device that is late; one of which nothing is known is late after this time.
    pub(super) fn hedge(&mut self, unknown: Duration) {
        self.unknown = Some(unknown);
    }

    /// What is waited for.
    pub(super) fn open(&self) -> impl Iterator<Item = &A> {
        self.asked.values().map(|asked| &asked.about)
    }

    /// What is late.
    pub(super) fn late(&self) -> Vec<Late<'_, A>> {
        let now = self.places.devices.now();
        let late = |asked: &'_ Asked<A>| {
            let took = asked.took(now);
            let Patience { still, .. } = asked.patience.filter(|patience| took >= patience.late)?;
            Some(took >= still)
        };
        let all = self.asked.values();
        all.filter_map(|asked| Some(Late { about: &asked.about, device: asked.device, is_still: late(asked)? }))
            .collect()
    }

    /// Whether to ask for so many things in the place of what is late: as long as few are, or if the device stands still.
    /// Then others are asked before it for a while.
    pub(super) fn may_replace(&self, late: &Late<'_, A>, requests: usize) -> bool {
        if late.is_still {
            self.places.devices.note(late.device, false);
        }
        late.is_still || self.places.devices.take(requests)
    }

    /// The same where anything is asked in the place of several.
    pub(super) fn may_ask_more(&self) -> bool {
        self.places.devices.take(1)
    }

    /// After which time the caller is to look whether something is late, or after `otherwise` if nothing can be. It is
    /// told if it has to look sooner.
    pub(super) fn until_late(&self, otherwise: Duration) -> Duration {
        let now = self.places.devices.now();
        let left = self.asked.values().filter_map(|asked| asked.left(now)).min().unwrap_or(otherwise);
        self.looks.set(Some(now + left));
        left
    }

    /// Have the caller look sooner than it will, if something is late before.
    fn wake(&self) {
        let Some(looks) = self.looks.get() else { return };
        let now = self.places.devices.now();
        if self.asked.values().filter_map(|asked| asked.left(now)).any(|left| now + left < looks) {
            self.tell();
        }
    }

    /// Cancel requests; they end with that failure, unless they were over before.
    pub(super) fn cancel(&self, which: impl Fn(&A) -> bool) {
        let asked = self.asked.values().filter(|asked| which(&asked.about));
        asked.filter_map(|asked| asked.ticket.as_ref()).for_each(Ticket::cancel);
    }

    /// Cancel all requests, and hear no more of them.
    pub(super) fn forget(&mut self) {
        self.forget_all_but(|_| false);
    }

    /// The same, but for some.
    pub(super) fn forget_all_but(&mut self, which: impl Fn(&A) -> bool) {
        self.cancel(|about| !which(about));
        let (devices, now) = (&self.places.devices, self.places.devices.now());
        for asked in self.asked.values().filter(|asked| !which(&asked.about)) {
            let took = asked.took(now);
            if let (Some(carries), Some(Patience { late, still })) = (asked.carries, asked.patience)
                && (late..still).contains(&took)
            {
                // What a device has not answered takes so long at least; what was forgotten sooner says nothing.
                devices.took(asked.device, carries, took);
            }
        }
        self.asked.retain(|_, asked| which(&asked.about));
        self.unsent.retain(|(token, _)| self.asked.contains_key(token));
    }

    /// The caller may look again.
    pub(super) fn tell(&self) {
        self.event(What::Sent(0));
    }

    /// These bytes are for the caller, one piece behind the other.
    pub(super) fn pass(&self, pieces: Vec<Chunk>) {
        let chunk = |piece| Event { token: self.token, what: What::Chunk(piece) };
        self.sink.events(&mut pieces.into_iter().map(chunk).collect());
    }

    /// The operation is over.
    pub(super) fn end(&self) {
        self.event(What::End(Vec::new()));
    }

    fn event(&self, what: What) {
        self.looks.set(None);
        self.sink.events(&mut vec![Event { token: self.token, what }]);
    }
}

struct Inner<S: State>(Mutex<(S, Asking<S::About>)>);

impl<S: State> Inner<S> {
    fn lock(&self) -> MutexGuard<'_, (S, Asking<S::About>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Go on until something has to come first.
fn go_on<S: State>((state, asking): &mut (S, Asking<S::About>)) {
    state.go_on(asking);
    while let Some((token, failure)) = asking.unsent.pop_front() {
        answered((state, asking), token, Err(failure));
        state.go_on(asking);
    }
    asking.wake();
}

/// Whether this is an answer of a device that does its work.
fn is_well(answer: &Result<Whole, Failure>) -> bool {
    match answer {
        Ok(_) => true,
        Err(Failure::Refused(refusal)) => matches!(refusal.status, Status::NotFound | Status::Superseded),
        Err(_) => false,
    }
}

fn answered<S: State>((state, asking): (&mut S, &mut Asking<S::About>), token: u64, answer: Result<Whole, Failure>) {
    let Some(asked) = asking.asked.remove(&token) else { return };
    let devices = &asking.places.devices;
    devices.note(asked.device, is_well(&answer));
    if let (Some(carries), true) = (asked.carries, is_well(&answer)) {
        devices.took(asked.device, carries, asked.took(devices.now()));
    }
    let Asked { about, device, .. } = asked;
    asking.refused.extend(answer.as_ref().err().map(|failure| (device, failure.clone())));
    state.answered(asking, about, answer);
}

impl<S: State> Sink for Inner<S> {
    fn events(&self, events: &mut Vec<Event>) {
        let mut state = self.lock();
        for Event { token, what } in events.drain(..) {
            let (state, asking) = &mut *state;
            let Some(asked) = asking.asked.get_mut(&token) else { continue };
            if let What::Sent(bytes) = what {
                state.sent(&asked.about, bytes);
            } else if let Some(answer) = asked.answering.take(what) {
                answered((state, asking), token, answer);
            }
        }
        go_on(&mut state);
    }
}

/// An operation, in the hands of its caller.
pub(super) struct Operation<S: State>(Arc<Inner<S>>);

impl<S: State> Operation<S> {
    /// Begin: with this time limit and trace of each request, and telling this sink.
    pub(super) fn start(
        places: Places,
        state: S,
        (timeout, trace): (Duration, &str),
        (sink, token): (Arc<dyn Sink>, u64),
        begin: impl FnOnce(&mut S, &mut Asking<S::About>),
    ) -> Self {
        let operation = Self(Arc::new_cyclic(|me: &Weak<Inner<S>>| {
            let asking = Asking {
                places,
                refused: Vec::new(),
                me: me.clone(),
                timeout,
                trace: trace.to_owned(),
                sink,
                token,
                unknown: None,
                looks: Cell::default(),
                asked: BTreeMap::new(),
                next: 0,
                unsent: VecDeque::new(),
            };
            Inner(Mutex::new((state, asking)))
        }));
        operation.act(begin);
        operation
    }

    /// Do something, and go on.
    pub(super) fn act<R>(&self, act: impl FnOnce(&mut S, &mut Asking<S::About>) -> R) -> R {
        let mut inner = self.0.lock();
        let (state, asking) = &mut *inner;
        let done = act(state, asking);
        go_on(&mut inner);
        done
    }

    /// Look at what it has come to.
    pub(super) fn look<R>(&self, look: impl FnOnce(&S, &Asking<S::About>) -> R) -> R {
        let (state, asking) = &*self.0.lock();
        look(state, asking)
    }
}

impl<S: State> Drop for Operation<S> {
    fn drop(&mut self) {
        let (state, asking) = &mut *self.0.lock();
        state.dropped(asking);
    }
}
