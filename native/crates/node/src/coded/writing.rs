//! A write of one object: coded in one pass as it comes, prepared and committed by a quorum.
//!
//! All places' devices are asked first whether they are there; spares take the places of those that aren't. Cells go to
//! all of them as stripes come. The body goes on when each of them has taken what it was sent before; a device that a
//! quorum would have to wait for is waited for, and one behind which a quorum is ready is dropped after a while. Once
//! the outcome is told, the write goes on by itself: late devices are told of it as well.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use swiftlet_erasure::Geometry;
use swiftlet_fragments::block::Block;
use swiftlet_fragments::cutting::{Cutter, TooLarge};
use swiftlet_fragments::request::{Answer, Request as Asked};
use swiftlet_fragments::write::{Sent, Verdict, Write};
use swiftlet_fragments::{Device, Version};
use swiftlet_store::model::PutMeta;
use swiftlet_transport::{Chunk, Error as TransportError, Event, Sink, Ticket, Upload, What};

use super::calls::{Answering, ask, call};
use super::places::Places;
use crate::client::Failure;
use crate::message::fragments::{Footer, Request, decode_answer, decode_incarnation};

/// The most bytes that may be given at once.
const MOST_AT_ONCE: usize = 1 << 20;
/// With more bytes than these that a device has yet to take, nothing is given to it.
const MOST_QUEUED: u64 = 1 << 20;

/// How a write waits.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// The time limit of each request, and of all devices to have prepared after the body's end.
    pub timeout: Duration,
    /// The time limit of the whole body.
    pub body_timeout: Duration,
    /// How long a device may take to say that it is there, before a spare is asked.
    pub choose: Duration,
    /// How long a device may stand still while a quorum waits for it alone.
    pub lag: Duration,
    /// The id of the requests.
    pub trace: String,
}

/// Whether the next bytes may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// They may.
    Now,
    /// Not yet: the sink is told, but [`Writing::turn`] is to be called after this time at the latest.
    Later(Duration),
    /// The write has ended.
    Over,
}

/// Bytes, or the end, were given when there was no room for them, or there were too many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotNow;

/// How a write has ended.
#[derive(Clone, Debug)]
pub struct WriteEnd {
    /// What the client is told.
    pub verdict: Verdict,
    /// The newest version that a device has settled in its place.
    pub past: Option<Version>,
    /// How many devices have the object durable, or something newer.
    pub prepared: usize,
    /// The object's size.
    pub object_bytes: u64,
    /// Why devices, by their numbers, did not.
    pub refused: Vec<(u32, Failure)>,
    /// The object has more stripes than it may have.
    pub too_large: bool,
}

/// What a device is asked at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Doing {
    Choose,
    Keep,
    Commit,
    /// Something whose answer has no consequence.
    Tell,
}

impl Doing {
    const ALL: [Self; 4] = [Self::Choose, Self::Keep, Self::Commit, Self::Tell];
}

fn token(place: usize, doing: Doing) -> u64 {
    (place as u64) << 2 | doing as u64
}

#[derive(Debug, Default)]
struct Place {
    /// The place's own device was asked.
    is_asked: bool,
    device: Option<u32>,
    upload: Option<Upload>,
    ticket: Option<Ticket>,
    /// Bytes that it has yet to take.
    queued: u64,
    /// Since when a quorum has been ready but for it, and it has taken nothing.
    still: Option<Instant>,
    /// It is prepared, or has something newer.
    counts: bool,
}

impl Place {
    fn is_open(&self) -> bool {
        self.ticket.is_some()
    }

    fn end(&mut self) {
        self.upload = None;
        self.ticket = None;
    }
}

struct State {
    places: Vec<Place>,
    spares: VecDeque<u32>,
    /// Places for which a device is being looked for.
    choosing: usize,
    cutter: Option<Cutter>,
    /// With the devices that were chosen, as soon as they are.
    write: Option<(Write, Arc<[Device]>)>,
    answering: HashMap<u64, Answering>,
    commits: usize,
    finished: Option<Instant>,
    /// The caller has found no room.
    waits: bool,
    past: Option<Version>,
    object_bytes: u64,
    too_large: bool,
    refused: Vec<(u32, Failure)>,
    end: Option<WriteEnd>,
}

struct Inner {
    me: Weak<Self>,
    places: Places,
    meta: PutMeta,
    generation: u64,
    size: Option<u64>,
    options: WriteOptions,
    sink: Arc<dyn Sink>,
    token: u64,
    state: Mutex<State>,
}

/// A write. Its sink is told `Sent` when there may be room again, and `End` when the outcome is known. Dropped before
/// its body's end, nothing of it remains; after that it goes on.
pub struct Writing(Arc<Inner>);

impl Writing {
    /// Begin. `generation` is random, and drawn for each attempt to write; `size` is the object's, if it is known.
    ///
    /// # Errors
    /// The generation is that of deletions, or the size more than an object may have in such cells.
    pub fn start(
        places: Places,
        (meta, generation): (PutMeta, u64),
        size: Option<u64>,
        options: WriteOptions,
        (sink, token): (Arc<dyn Sink>, u64),
    ) -> Result<Self, &'static str> {
        if generation == u64::MAX {
            return Err("this generation is that of deletions");
        }
        let cutter = Cutter::new(places.scheme, places.cell_bytes).map_err(|_| "there are no such cells")?;
        let state = State {
            places: places.at.iter().map(|_| Place::default()).collect(),
            spares: places.spares.iter().copied().collect(),
            choosing: places.at.len(),
            cutter: Some(cutter),
            write: None,
            answering: HashMap::new(),
            commits: 0,
            finished: None,
            waits: true,
            past: None,
            object_bytes: 0,
            too_large: false,
            refused: Vec::new(),
            end: None,
        };
        let inner = Arc::new_cyclic(|me| Inner {
            me: me.clone(),
            places,
            meta,
            generation,
            size,
            options,
            sink,
            token,
            state: Mutex::new(state),
        });
        let mut state = inner.lock();
        (0..inner.places.at.len()).for_each(|place| inner.choose(&mut state, place));
        inner.go_on(&mut state);
        drop(state);
        Ok(Self(inner))
    }

    /// Whether the next bytes may be given. To be called after each event, and when the time is over that it has said.
    pub fn turn(&self) -> Room {
        let mut state = self.0.lock();
        let room = self.0.room(&mut state);
        state.waits = matches!(room, Room::Later(_));
        room
    }

    /// Give the body's next bytes, at most 1 MiB.
    ///
    /// # Errors
    /// There is no room for them.
    pub fn push(&self, bytes: &[u8]) -> Result<(), NotNow> {
        let mut state = self.0.lock();
        if bytes.len() > MOST_AT_ONCE || self.0.room(&mut state) != Room::Now {
            return Err(NotNow);
        }
        let Some(mut cutter) = state.cutter.take() else { return Err(NotNow) };
        let cut = cutter.push(bytes, |cells| state.send(cells));
        state.object_bytes += bytes.len() as u64;
        if let Err(TooLarge) = cut {
            state.too_large = true;
            self.0.abandon(&mut state);
        } else {
            state.cutter = Some(cutter);
        }
        self.0.go_on(&mut state);
        Ok(())
    }

    /// The body is complete, and this is the object's ETag: prepare, and commit.
    ///
    /// # Errors
    /// There is no room yet.
    pub fn finish(&self, etag: &[u8]) -> Result<(), NotNow> {
        let mut state = self.0.lock();
        if self.0.room(&mut state) != Room::Now {
            return Err(NotNow);
        }
        let Some(cutter) = state.cutter.take() else { return Err(NotNow) };
        let cut = cutter.finish(|cells| state.send(cells));
        state.finished = Some(Instant::now());
        let Some(chosen) = state.write.as_ref().map(|(_, chosen)| chosen.clone()) else { return Err(NotNow) };
        for place in 0..state.places.len() {
            let Some(upload) = state.places[place].upload.take() else { continue };
            let block = cut.block(place, self.0.generation, chosen.clone());
            let block = block.map(|block| Block { cells: Vec::new(), ..block });
            let raw = block.ok().and_then(|block| Footer { etag: etag.to_vec(), block }.encode().ok());
            let ticket = upload.ticket().clone();
            if raw.is_none_or(|raw| upload.end(raw).is_err()) {
                ticket.cancel();
            }
        }
        self.0.go_on(&mut state);
        Ok(())
    }

    /// How it has ended; nothing while it is under way.
    #[must_use]
    pub fn end(&self) -> Option<WriteEnd> {
        self.0.lock().end.clone()
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if state.finished.is_none() {
            self.0.abandon(&mut state);
        }
    }
}

impl State {
    /// Send the cells of a stripe to those that take any. One whose queue is full has been waited for long enough.
    fn send(&mut self, cells: &[&[u8]]) {
        for (place, cell) in self.places.iter_mut().zip(cells) {
            let Some(upload) = place.upload.as_ref().filter(|_| !cell.is_empty()) else { continue };
            if upload.send(Chunk::from(cell.to_vec())).is_ok() {
                place.queued += cell.len() as u64;
            } else {
                upload.ticket().cancel();
                place.upload = None;
            }
        }
    }

    fn refuse(&mut self, number: u32, failure: Failure) {
        self.refused.push((number, failure));
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(
        &self,
        state: &mut State,
        (place, number, doing): (usize, u32, Doing),
        request: Request,
        timeout: Duration,
    ) -> Result<(), Failure> {
        let me = self.me.upgrade().ok_or(Failure::Lost(TransportError::Cancelled))? as Arc<dyn Sink>;
        let token = token(place, doing);
        ask(&self.places, number, request, (timeout, &self.options.trace), (&me, token))?;
        state.answering.insert(token, Answering::new(0));
        Ok(())
    }

    /// Look for a device for a place: its own, then spares.
    fn choose(&self, state: &mut State, place: usize) {
        loop {
            let own = !std::mem::replace(&mut state.places[place].is_asked, true);
            let Some(number) = (if own { Some(self.places.at[place]) } else { state.spares.pop_front() }) else {
                state.places[place].device = None;
                state.choosing -= 1;
                return;
            };
            state.places[place].device = Some(number);
            match self.ask(state, (place, number, Doing::Choose), Request::Incarnation, self.options.choose) {
                Ok(()) => return,
                Err(failure) => state.refuse(number, failure),
            }
        }
    }

    fn chosen(&self, state: &mut State, place: usize, answer: Result<Vec<u8>, Failure>) {
        let Some(number) = state.places[place].device else { return };
        match answer.and_then(|header| Ok(decode_incarnation(&header)?)) {
            Ok(incarnation) => {
                self.places.devices.learn(number, incarnation);
                state.choosing -= 1;
            }
            Err(failure) => {
                state.refuse(number, failure);
                self.choose(state, place);
            }
        }
    }

    /// All devices are known: begin to send them their fragments.
    fn begin(&self, state: &mut State) {
        let of_place = |(place, at): (&Place, &u32)| self.places.devices.chosen(place.device.unwrap_or(*at));
        let chosen: Arc<[Device]> = state.places.iter().zip(&self.places.at).map(of_place).collect();
        let version = Version { timestamp: self.meta.timestamp, generation: self.generation };
        state.write = Some((Write::new(self.places.terms(), version, chosen.clone()), chosen));
        let enough = state.places.iter().filter(|place| place.device.is_some()).count() >= self.places.terms().quorum();
        for place in 0..state.places.len() {
            let Some(number) = state.places[place].device.filter(|_| enough) else {
                self.prepared(state, place, None);
                continue;
            };
            match self.open(place, number) {
                Ok(upload) => {
                    state.answering.insert(token(place, Doing::Keep), Answering::new(0));
                    let place = &mut state.places[place];
                    place.ticket = Some(upload.ticket().clone());
                    place.upload = Some(upload);
                }
                Err(failure) => {
                    state.refuse(number, failure);
                    self.prepared(state, place, None);
                }
            }
        }
    }

    fn open(&self, place: usize, number: u32) -> Result<Upload, Failure> {
        let fragment_bytes =
            |size| Geometry::new(self.places.scheme, self.places.cell_bytes, size).map(|all| all.fragment_bytes(place));
        let size = self.size.and_then(|size| fragment_bytes(size).ok());
        let target = self.places.devices.target(number).ok_or(Failure::Damaged("the ring has no such device"))?;
        let request = Request::Keep {
            key: self.places.key(place),
            certain: false,
            cell_bytes: self.places.cell_bytes as u32,
            size,
            meta: self.meta.clone(),
        };
        let call = call(target, request, self.options.body_timeout, &self.options.trace)?;
        let me = self.me.upgrade().ok_or(Failure::Lost(TransportError::Cancelled))? as Arc<dyn Sink>;
        target.0.upload(call, size, &me, token(place, Doing::Keep)).map_err(Failure::Lost)
    }

    /// What a device says to its fragment; nothing if it has none.
    fn prepared(&self, state: &mut State, place: usize, answer: Option<Answer>) {
        state.places[place].end();
        let answer = answer.unwrap_or(Answer::Busy);
        state.places[place].counts = matches!(answer, Answer::Done | Answer::Superseded(_));
        let sent = state.write.as_mut().map(|(write, _)| write.prepared(place, &answer));
        self.send(state, sent.unwrap_or_default());
    }

    fn send(&self, state: &mut State, sent: Sent) {
        for (place, asked) in sent {
            let Some(number) = state.places[place].device else { continue };
            let doing = if matches!(asked, Asked::Commit(_)) { Doing::Commit } else { Doing::Tell };
            let request = Request::About { key: self.places.key(place), asked };
            match self.ask(state, (place, number, doing), request, self.options.timeout) {
                Ok(()) => state.commits += usize::from(doing == Doing::Commit),
                Err(failure) => state.refuse(number, failure),
            }
        }
    }

    fn hear(&self, state: &mut State, event: Event) {
        let (place, doing) = ((event.token >> 2) as usize, Doing::ALL[(event.token & 3) as usize]);
        if let (What::Sent(bytes), Doing::Keep) = (&event.what, doing) {
            let place = &mut state.places[place];
            place.queued = place.queued.saturating_sub(*bytes as u64);
            place.still = None;
            return;
        }
        let Some(answering) = state.answering.get_mut(&event.token) else { return };
        let Some(answer) = answering.take(event.what) else { return };
        state.answering.remove(&event.token);
        let header = answer.map(|(header, _)| header);
        if doing == Doing::Choose {
            return self.chosen(state, place, header);
        }
        let answer = header.and_then(|header| Ok(decode_answer(&header)?));
        if let Ok(Answer::Superseded(version)) = &answer {
            state.past = state.past.max(Some(*version));
        }
        let answer = match (answer, state.places[place].device) {
            (Ok(answer), _) => Some(answer),
            (Err(failure), Some(number)) => {
                state.refuse(number, failure);
                None
            }
            (Err(_), None) => None,
        };
        match doing {
            Doing::Keep if state.finished.is_none() => self.prepared(state, place, None),
            Doing::Keep => self.prepared(state, place, answer),
            Doing::Commit => {
                state.commits -= 1;
                let answer = answer.unwrap_or(Answer::Busy);
                let sent = state.write.as_mut().map(|(write, _)| write.committed(place, &answer));
                self.send(state, sent.unwrap_or_default());
            }
            Doing::Choose | Doing::Tell => {}
        }
    }

    /// Draw the consequences of what was heard, and tell the caller what it waits for.
    fn go_on(&self, state: &mut State) {
        if state.choosing == 0 && state.write.is_none() && state.end.is_none() {
            self.begin(state);
        }
        self.conclude(state);
        if state.waits && self.room(state) == Room::Now {
            state.waits = false;
            self.sink.events(&mut vec![Event { token: self.token, what: What::Sent(0) }]);
        }
    }

    fn conclude(&self, state: &mut State) {
        if state.end.is_some() {
            return;
        }
        let Some((write, _)) = &mut state.write else { return };
        if write.verdict().is_none() {
            let open = state.places.iter().filter(|place| place.is_open()).count();
            let counts = state.places.iter().filter(|place| place.counts).count();
            let is_answered = state.finished.is_some() && open + state.commits == 0;
            if !is_answered && open + counts >= self.places.terms().quorum() {
                return;
            }
            let sent = write.give_up();
            self.cancel(state);
            if state.finished.is_some() {
                self.send(state, sent);
            }
        }
        self.end(state);
    }

    fn end(&self, state: &mut State) {
        let verdict = state.write.as_ref().and_then(|(write, _)| write.verdict());
        state.end = Some(WriteEnd {
            verdict: verdict.unwrap_or(Verdict::Failed),
            past: state.past,
            prepared: state.places.iter().filter(|place| place.counts).count(),
            object_bytes: state.object_bytes,
            refused: state.refused.clone(),
            too_large: state.too_large,
        });
        state.waits = false;
        self.sink.events(&mut vec![Event { token: self.token, what: What::End(Vec::new()) }]);
    }

    fn cancel(&self, state: &mut State) {
        for place in &mut state.places {
            if let Some(ticket) = &place.ticket {
                ticket.cancel();
            }
            place.upload = None;
        }
    }

    /// Nothing will come any more: nothing of the write remains, as no device has heard its end.
    fn abandon(&self, state: &mut State) {
        state.cutter = None;
        self.cancel(state);
        if let Some((write, _)) = &mut state.write {
            write.give_up();
        }
        if state.end.is_none() {
            self.end(state);
        }
    }

    fn room(&self, state: &mut State) -> Room {
        if state.end.is_some() {
            return Room::Over;
        }
        if let Some(finished) = state.finished {
            let left = self.options.timeout.saturating_sub(finished.elapsed());
            if left.is_zero() {
                self.cancel(state);
            }
            return Room::Later(left.max(Duration::from_millis(100)));
        }
        if state.write.is_none() {
            return Room::Later(self.options.choose);
        }
        let is_ready = |place: &Place| place.upload.is_some() && place.queued <= MOST_QUEUED;
        let others_are_ready =
            state.places.iter().filter(|place| is_ready(place)).count() >= self.places.terms().quorum();
        let mut later = Room::Now;
        for place in state.places.iter_mut().filter(|place| place.upload.is_some() && place.queued > MOST_QUEUED) {
            let now = Instant::now();
            let still = *place.still.get_or_insert(now);
            let left = self.options.lag.saturating_sub(now - still);
            if !others_are_ready {
                place.still = None;
                later = Room::Later(self.options.lag);
            } else if !left.is_zero() {
                later = match later {
                    Room::Later(other) => Room::Later(left.min(other)),
                    _ => Room::Later(left),
                };
            } else if let Some(upload) = place.upload.take() {
                // Its last event says that it was cancelled.
                upload.ticket().cancel();
            }
        }
        later
    }
}

impl Sink for Inner {
    fn events(&self, events: &mut Vec<Event>) {
        let mut state = self.lock();
        for event in events.drain(..) {
            self.hear(&mut state, event);
        }
        self.go_on(&mut state);
    }
}
