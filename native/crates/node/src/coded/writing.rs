//! A write of one object: coded in one pass as it comes, prepared and committed by a quorum.
//!
//! All places' devices that have not answered anything lately are asked first whether they are there; spares take the
//! places of those that aren't. Cells go to all of them as stripes come, several in one message to those that are behind.
//! The body goes on when each of them has taken what it was sent before; a device that a quorum would have to wait for is
//! waited for, and one behind which a quorum is ready is dropped after a while. Once the outcome is told, the write goes on
//! by itself: late devices are told of it as well.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use swiftlet_erasure::Geometry;
use swiftlet_fragments::block::Block;
use swiftlet_fragments::cutting::{Cutter, TooLarge};
use swiftlet_fragments::request::{Answer, Request as Asked};
use swiftlet_fragments::write::{Sent, Verdict, Write};
use swiftlet_fragments::{Device, Outcome, Version};
use swiftlet_store::model::PutMeta;
use swiftlet_transport::{Sink, Upload};

use super::answering::{Whole, refusal};
use super::batch::Batch;
use super::operation::{self, Operation};
use super::places::{Owed, Places, row_of};
use crate::client::Failure;
use crate::message::fragments::{Footer, Request, decode_answer, decode_incarnation};

/// The most bytes that may be given at once.
pub(crate) const MOST_AT_ONCE: usize = 1 << 20;
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
    /// For each place from the first one on, the container replicas (bits) whose update its device keeps pending, with a
    /// spare that stands in for it; places behind the last one keep none.
    pub rows: Vec<u32>,
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

/// What the device of a place is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    Choose(usize),
    Keep(usize),
    Commit(usize),
    /// Something whose answer has no consequence.
    Tell,
}

type Asking = operation::Asking<About>;

#[derive(Debug, Default)]
struct Place {
    /// The place's own device was asked.
    is_asked: bool,
    device: Option<u32>,
    upload: Option<Upload>,
    /// Cells that go to it with the next message, once it has taken those before.
    batch: Option<Batch>,
    /// Bytes that were gathered for it so far.
    given: u64,
    /// Bytes that it has yet to take.
    queued: u64,
    /// Since when a quorum has been ready but for it, and it has taken nothing.
    still: Option<Instant>,
    /// It is prepared, or has something newer.
    counts: bool,
    /// The update of its place is pending there.
    owes: bool,
}

impl Place {
    /// Send the cells that were gathered. A device whose queue is full has been waited for long enough.
    fn send(&mut self) {
        let (Some(batch), Some(upload)) = (self.batch.take(), &self.upload) else { return };
        let chunk = batch.into_chunk();
        let bytes = chunk.len() as u64;
        if upload.send(chunk).is_ok() {
            self.queued += bytes;
        } else {
            upload.ticket().cancel();
            self.upload = None;
        }
    }
}

struct State {
    meta: PutMeta,
    generation: u64,
    size: Option<u64>,
    options: WriteOptions,
    places: Vec<Place>,
    spares: VecDeque<u32>,
    /// Places for which a device is being looked for.
    choosing: usize,
    cutter: Option<Cutter>,
    /// With the devices that were chosen, as soon as they are.
    write: Option<(Write, Arc<[Device]>)>,
    finished: Option<Instant>,
    /// The caller has found no room.
    waits: bool,
    past: Option<Version>,
    object_bytes: u64,
    too_large: bool,
    end: Option<WriteEnd>,
}

/// A write. Its sink is told `Sent` when there may be room again, and `End` when the outcome is known. Dropped before
/// its body's end, nothing of it remains; after that it goes on.
pub struct Writing(Operation<State>);

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
        sink: (Arc<dyn Sink>, u64),
    ) -> Result<Self, &'static str> {
        if generation == u64::MAX {
            return Err("this generation is that of deletions");
        }
        let cutter = Cutter::new(places.scheme, places.cell_bytes).map_err(|_| "there are no such cells")?;
        let (timeout, trace) = (options.timeout, options.trace.clone());
        let state = State {
            meta,
            generation,
            size,
            options,
            places: places.at.iter().map(|_| Place::default()).collect(),
            spares: places.spares.iter().copied().collect(),
            choosing: places.at.len(),
            cutter: Some(cutter),
            write: None,
            finished: None,
            waits: true,
            past: None,
            object_bytes: 0,
            too_large: false,
            end: None,
        };
        Ok(Self(Operation::start(places, state, (timeout, &trace), sink, |state, asking| {
            (0..state.places.len()).for_each(|place| state.choose(asking, place));
        })))
    }

    /// Whether the next bytes may be given. To be called after each event, and when the time is over that it has said.
    pub fn turn(&self) -> Room {
        self.0.act(|state, asking| {
            let room = state.room(asking);
            state.waits = matches!(room, Room::Later(_));
            room
        })
    }

    /// Give the body's next bytes, at most 1 MiB.
    ///
    /// # Errors
    /// There is no room for them.
    pub fn push(&self, bytes: &[u8]) -> Result<(), NotNow> {
        self.0.act(|state, asking| {
            if bytes.len() > MOST_AT_ONCE || state.room(asking) != Room::Now {
                return Err(NotNow);
            }
            let Some(mut cutter) = state.cutter.take() else { return Err(NotNow) };
            let cut = cutter.push(bytes, |cells| state.send(&asking.places, cells));
            // Who has nothing to take gets what there is: only for who is behind more is gathered.
            state.places.iter_mut().filter(|place| place.queued == 0).for_each(Place::send);
            state.object_bytes += bytes.len() as u64;
            if let Err(TooLarge) = cut {
                state.too_large = true;
                state.abandon(asking);
            } else {
                state.cutter = Some(cutter);
            }
            Ok(())
        })
    }

    /// The body is complete, and this is the object's ETag: prepare, and commit.
    ///
    /// # Errors
    /// There is no room yet.
    pub fn finish(&self, etag: &[u8]) -> Result<(), NotNow> {
        self.0.act(|state, asking| {
            if state.room(asking) != Room::Now {
                return Err(NotNow);
            }
            state.finish(asking, etag)
        })
    }

    /// The container updates that are pending with what is prepared by now. Those of a write that was acknowledged are
    /// delivered by whoever writes, or later by the devices; those of one that failed concern the version before.
    #[must_use]
    pub fn owed(&self) -> Vec<Owed> {
        self.0.look(|state, asking| {
            let owing = (0..).zip(&state.places).filter(|(_, place)| place.owes);
            let owed =
                |(number, place): (usize, &Place)| Some(asking.places.owed(number, place.device?, &state.options.rows));
            owing.filter_map(owed).collect()
        })
    }

    /// Why devices, by their numbers, have not done what they were asked for, also after its end.
    #[must_use]
    pub fn refused(&self) -> Vec<(u32, Failure)> {
        self.0.look(|_, asking| asking.refused.clone())
    }

    /// How it has ended; nothing while it is under way.
    #[must_use]
    pub fn end(&self) -> Option<WriteEnd> {
        self.0.look(|state, _| state.end.clone())
    }
}

impl State {
    /// Send the cells of a stripe to those that take any, as soon as they are enough for a message.
    fn send(&mut self, places: &Places, cells: &[&[u8]]) {
        let geometry = self.size.and_then(|size| Geometry::new(places.scheme, places.cell_bytes, size).ok());
        for (number, (place, cell)) in self.places.iter_mut().zip(cells).enumerate() {
            if place.upload.is_none() || cell.is_empty() {
                continue;
            }
            if place.batch.as_ref().is_some_and(|batch| !batch.has_room(cell.len())) {
                place.send();
            }
            let left = geometry.map(|geometry| geometry.fragment_bytes(number).saturating_sub(place.given));
            // More than was announced is for the device to refuse.
            let left = left.map(|left| left.max(cell.len() as u64));
            let peer = place.device.and_then(|device| places.devices.target(device)).map(|(peer, _)| peer);
            let batch = place.batch.get_or_insert_with(|| Batch::new(peer, places.cell_bytes, left));
            batch.push(cell);
            place.given += cell.len() as u64;
            if !batch.has_room(1) {
                place.send();
            }
        }
    }

    /// Send what is left of the last stripe, and the footers.
    fn finish(&mut self, asking: &Asking, etag: &[u8]) -> Result<(), NotNow> {
        let Some(chosen) = self.write.as_ref().map(|(_, chosen)| chosen.clone()) else { return Err(NotNow) };
        let Some(cutter) = self.cutter.take() else { return Err(NotNow) };
        let cut = cutter.finish(|cells| self.send(&asking.places, cells));
        self.finished = Some(Instant::now());
        for (number, place) in self.places.iter_mut().enumerate() {
            place.send();
            let Some(upload) = place.upload.take() else { continue };
            let block = cut.block(number, self.generation, chosen.clone());
            let block = block.map(|block| Block { cells: Vec::new(), ..block });
            let raw = block.ok().and_then(|block| Footer { etag: etag.to_vec(), block }.encode().ok());
            if raw.is_none_or(|raw| upload.end(raw).is_err()) {
                asking.cancel(|about| *about == About::Keep(number));
            }
        }
        Ok(())
    }

    /// Look for a device for a place: its own, then spares.
    fn choose(&mut self, asking: &mut Asking, number: usize) {
        let place = &mut self.places[number];
        let own = !std::mem::replace(&mut place.is_asked, true);
        place.device = if own { Some(asking.places.at[number]) } else { self.spares.pop_front() };
        match place.device {
            Some(device) if asking.places.devices.is_well(device) => self.choosing -= 1,
            Some(device) => {
                asking.ask_within(self.options.choose, About::Choose(number), device, Request::Incarnation);
            }
            None => self.choosing -= 1,
        }
    }

    fn chosen(&mut self, asking: &mut Asking, place: usize, answer: Result<Whole, Failure>) {
        let Some(device) = self.places[place].device else { return };
        match answer.and_then(|(header, _)| Ok(decode_incarnation(&header)?)) {
            Ok(incarnation) => {
                asking.places.devices.learn(device, incarnation);
                self.choosing -= 1;
            }
            Err(_) => self.choose(asking, place),
        }
    }

    /// All devices are known: begin to send them their fragments.
    fn begin(&mut self, asking: &mut Asking) {
        let of_place = |(place, at): (&Place, &u32)| asking.places.devices.chosen(place.device.unwrap_or(*at));
        let chosen: Arc<[Device]> = self.places.iter().zip(&asking.places.at).map(of_place).collect();
        let version = Version { timestamp: self.meta.timestamp, generation: self.generation };
        self.write = Some((Write::new(asking.places.terms(), version, chosen.clone()), chosen));
        let enough =
            self.places.iter().filter(|place| place.device.is_some()).count() >= asking.places.terms().quorum();
        for place in 0..self.places.len() {
            match self.places[place].device.filter(|_| enough) {
                Some(device) => {
                    let row = row_of(place, &self.options.rows);
                    let request = asking.places.keep(place, self.size, &self.meta, row);
                    let upload = asking.upload(self.options.body_timeout, About::Keep(place), device, request);
                    self.places[place].upload = upload;
                }
                None => self.prepared(asking, place, None),
            }
        }
    }

    /// What a device says to its fragment; nothing if it has none.
    fn prepared(&mut self, asking: &mut Asking, place: usize, answer: Option<Answer>) {
        (self.places[place].upload, self.places[place].batch) = (None, None);
        let answer = answer.unwrap_or(Answer::Busy);
        self.places[place].counts = matches!(answer, Answer::Done | Answer::Superseded(_));
        self.places[place].owes = answer == Answer::Done && row_of(place, &self.options.rows) != 0;
        let Some((write, _)) = &mut self.write else { return };
        let mut sent = write.prepared(place, &answer);
        if write.verdict() == Some(Verdict::Failed) && answer == Answer::Done {
            // It was prepared after it was told that the write is given up.
            let version = Version { timestamp: self.meta.timestamp, generation: self.generation };
            sent.push((place, Asked::Decide { version, outcome: Outcome::Abort }));
        }
        self.tell(asking, sent);
    }

    fn committed(&mut self, asking: &mut Asking, place: usize, answer: Option<Answer>) {
        let answer = answer.unwrap_or(Answer::Busy);
        let sent = self.write.as_mut().map(|(write, _)| write.committed(place, &answer));
        self.tell(asking, sent.unwrap_or_default());
    }

    fn tell(&self, asking: &mut Asking, sent: Sent) {
        for (place, asked) in sent {
            let Some(device) = self.places[place].device else { continue };
            let about = if matches!(asked, Asked::Commit(_)) { About::Commit(place) } else { About::Tell };
            asking.ask(about, device, Request::About { key: asking.places.key(place), asked });
        }
    }

    fn conclude(&mut self, asking: &mut Asking) {
        if self.end.is_some() {
            return;
        }
        let Some((write, _)) = &mut self.write else { return };
        if write.verdict().is_none() {
            let open = asking.open().filter(|about| matches!(about, About::Keep(_))).count();
            let commits = asking.open().filter(|about| matches!(about, About::Commit(_))).count();
            let counts = self.places.iter().filter(|place| place.counts).count();
            let is_answered = self.finished.is_some() && open + commits == 0;
            if !is_answered && open + counts >= asking.places.terms().quorum() {
                return;
            }
            let sent = write.give_up();
            if self.finished.is_some() {
                // Those that have all of the body still answer, and are told once more then.
                self.tell(asking, sent);
            } else {
                self.cancel(asking);
            }
        }
        self.end(asking);
    }

    fn end(&mut self, asking: &Asking) {
        let verdict = self.write.as_ref().and_then(|(write, _)| write.verdict());
        self.end = Some(WriteEnd {
            verdict: verdict.unwrap_or(Verdict::Failed),
            past: self.past,
            prepared: self.places.iter().filter(|place| place.counts).count(),
            object_bytes: self.object_bytes,
            refused: asking.refused.clone(),
            too_large: self.too_large,
        });
        self.waits = false;
        asking.end();
    }

    /// Cancel what has not been prepared yet; its last event says so.
    fn cancel(&mut self, asking: &Asking) {
        asking.cancel(|about| matches!(about, About::Keep(_)));
        self.places.iter_mut().for_each(|place| (place.upload, place.batch) = (None, None));
    }

    /// Nothing will come any more: nothing of the write remains, as no device has heard its end.
    fn abandon(&mut self, asking: &Asking) {
        self.cutter = None;
        self.cancel(asking);
        if let Some((write, _)) = &mut self.write {
            write.give_up();
        }
        if self.end.is_none() {
            self.end(asking);
        }
    }

    fn room(&mut self, asking: &Asking) -> Room {
        if self.end.is_some() {
            return Room::Over;
        }
        if let Some(finished) = self.finished {
            let left = self.options.timeout.saturating_sub(finished.elapsed());
            if left.is_zero() {
                self.cancel(asking);
            }
            return Room::Later(left.max(Duration::from_millis(100)));
        }
        if self.write.is_none() {
            return Room::Later(self.options.choose);
        }
        let is_ready = |place: &Place| place.upload.is_some() && place.queued <= MOST_QUEUED;
        let others_are_ready =
            self.places.iter().filter(|place| is_ready(place)).count() >= asking.places.terms().quorum();
        let mut later = Room::Now;
        for place in self.places.iter_mut().filter(|place| place.upload.is_some() && place.queued > MOST_QUEUED) {
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

impl operation::State for State {
    type About = About;

    fn sent(&mut self, about: &About, bytes: usize) {
        if let About::Keep(place) = about {
            let place = &mut self.places[*place];
            place.queued = place.queued.saturating_sub(bytes as u64);
            place.still = None;
            if place.queued == 0 {
                place.send();
            }
        }
    }

    fn answered(&mut self, asking: &mut Asking, about: About, answer: Result<Whole, Failure>) {
        if let About::Choose(place) = about {
            return self.chosen(asking, place, answer);
        }
        let answer = answer.and_then(|(header, _)| Ok(decode_answer(&header)?)).ok();
        if let Some(Answer::Superseded(version)) = &answer {
            self.past = self.past.max(Some(*version));
        }
        if let (About::Keep(place) | About::Commit(place), Some(answer)) = (about, &answer)
            && let (Some(device), Some(refusal)) = (self.places[place].device, refusal(answer))
        {
            // Another one may be in its place: the next write asks.
            asking.places.devices.note(device, false);
            asking.refused.push((device, Failure::Refused(refusal)));
        }
        match about {
            About::Keep(place) => self.prepared(asking, place, answer.filter(|_| self.finished.is_some())),
            About::Commit(place) => self.committed(asking, place, answer),
            About::Choose(_) | About::Tell => {}
        }
    }

    /// Begin when devices are known, end when the outcome is, and tell the caller what it waits for.
    fn go_on(&mut self, asking: &mut Asking) {
        if self.choosing == 0 && self.write.is_none() && self.end.is_none() {
            self.begin(asking);
        }
        self.conclude(asking);
        if self.waits && self.room(asking) == Room::Now {
            self.waits = false;
            asking.tell();
        }
    }

    fn dropped(&mut self, asking: &mut Asking) {
        if self.finished.is_none() {
            self.abandon(asking);
        }
    }
}
