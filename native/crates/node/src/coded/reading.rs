//! A read of a range of one object, or of its description alone.
//!
//! So many places are asked for their newest version that one of them has what a quorum has committed, or what more
//! than half of the places with copies have of a small object, as long as no spare stood in for it; the newest of their
//! answers counts. The first of them sends the cells that it has of the range as well, or the bytes of its copy. In a
//! policy without small objects places with other cells of the range send these at the same time, so that one round
//! trip is enough. Everybody is asked if these have nothing. Then cells are asked for, up to two windows ahead of what
//! the caller has taken. Who is late is replaced by others: for cells, by those of other fragments; for a copy, by
//! others that have it. A device is late when it takes longer than 95 of 100 of its answers did; then another one is
//! asked for few reads only. When it takes much longer it counts as one that stands still: others are asked for every
//! read, and before it for a while. A small object of which no copy can be had is read from the pack where a place with its
//! reference says that it is.
//!
//! Who knows that a place has missed a write names it last. Metadata that were posted come with the same answers; the newest
//! of them count, as a quorum has kept those that were acknowledged.
//!
//! Fault model: that of the module above. Nothing is passed on before it was compared with its digest. What can't be put
//! together any more after the first bytes ends there; before them, another version may be given in its place
//! (`swiftlet_fragments::read`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use swiftlet_fragments::Version;
use swiftlet_fragments::forms::{Both, Finding};
use swiftlet_fragments::packs::Pack;
use swiftlet_fragments::read::{Read, Step};
use swiftlet_fragments::request::Answer;
use swiftlet_store::Referred as StoreReferred;
use swiftlet_store::merge::{info_of, merge_post};
use swiftlet_store::model::{Footer, FragmentInfo, Info, PostMeta};
use swiftlet_transport::{Chunk, Sink};

use super::answering::{Came, Whole};
use super::copied::{Copied, Source};
use super::fetching::{Fetching, Next, Wish};
use super::member::{Member, Referred, Wish as MemberWish};
use super::operation::{self, Operation};
use super::places::Places;
use crate::client::Failure;
use crate::fragments::touched;
use crate::message::fragments::{Cells, CopyHere, Given, Newest, Request};
use crate::message::{self, Found};

/// What readers that answer clients give as [`ReadOptions::hedge`].
pub const HEDGE: Duration = Duration::from_millis(300);

/// How a read waits.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// The time limit of each request.
    pub timeout: Duration,
    /// After this time another device is asked beside one of which too few answers are known; beside others as soon as
    /// they are late, but for few reads, before they have taken twice as long, and this time. Nobody is late if there is
    /// none.
    pub hedge: Option<Duration>,
    /// So many of the places that are asked first may tell what the object is in the place of one that is late: they have
    /// not failed, and have missed no write, as far as is known.
    pub sound: usize,
    /// Bytes that are passed on before the caller takes any.
    pub ahead_bytes: u64,
    /// Whether small objects of the policy are copies: that there is none takes the word of places that have these.
    pub small: bool,
    /// The id of the requests.
    pub trace: String,
}

/// How a read has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadEnd {
    /// All of the range was passed on.
    Whole,
    /// There is no such object; the deletion, if there was one.
    NotFound(Option<Version>),
    /// Which version is the newest can't be told, or it can't be put together. Nothing was passed on.
    Unavailable,
    /// The rest can't be put together.
    Cut,
}

#[derive(Clone, Debug)]
enum Kind {
    /// The newest version, perhaps with cells of the range.
    Newest {
        cells: bool,
    },
    /// What is stored with this version.
    Describe(Version),
    Cells(Version, Range<u64>),
    /// Bytes of a copy.
    Copy,
    /// Something of this pack.
    Member(Pack, MemberWish),
}

/// What a request is about: which fragment, of which device.
#[derive(Debug)]
struct About {
    index: usize,
    device: u32,
    kind: Kind,
}

type Asking = operation::Asking<About>;

impl About {
    /// The cells of these bytes that come with the answer, if it is about this version and brings any.
    fn cells(&self, info: &FragmentInfo, bytes: Range<u64>) -> Option<Wish> {
        let Self { index, device, kind: Kind::Newest { cells: true } } = *self else { return None };
        let stripes = touched(&info.block.geometry, index, bytes);
        (!stripes.is_empty()).then_some(Wish { index, device, stripes })
    }
}

/// What is known of a version.
#[derive(Debug)]
struct Known {
    info: FragmentInfo,
    /// Who has named it, with which fragment.
    holders: Vec<(usize, u32)>,
    /// Cells that came with it.
    cells: Vec<(usize, Cells, Came)>,
}

enum Stage {
    Asking {
        everyone: bool,
    },
    /// Somebody knows of a version, but not what it is.
    Describing,
    Fetching(Box<Fetching>),
    /// The newest version is a copy, whose bytes are waited for.
    Copying,
    /// The newest version is read from a pack.
    Unpacking(Box<Member>),
    Over(ReadEnd),
}

/// What the object is.
#[derive(Clone, Debug)]
enum Opened {
    Fragments(Box<FragmentInfo>),
    Small(Box<Info>),
}

struct State {
    range: Range<u64>,
    options: ReadOptions,
    read: Read,
    stage: Stage,
    /// Only older versions are asked for.
    below: Option<Version>,
    /// Places that are asked first, and weren't yet.
    first: VecDeque<usize>,
    /// Those of them that may stand in for one that is late.
    sound: BTreeSet<usize>,
    /// Others were asked so often in the place of somebody who was late.
    hedges: u64,
    /// What the first places have told.
    told: Vec<(usize, Answer)>,
    known: BTreeMap<Version, Known>,
    floor: Option<Version>,
    /// The first places that were asked, in their order.
    asked: Vec<usize>,
    /// The places that have answered.
    heard: BTreeSet<usize>,
    /// The newest version of fragments, or the newest deletion, that this turn of questions has found.
    newest: Option<Version>,
    /// The newest copy, and who has it.
    copied: Copied,
    /// Whether it was asked for in vain before.
    is_second: bool,
    opened: Option<Opened>,
    /// The newest metadata that devices have told of, and those that counted when the object was opened.
    post: Option<PostMeta>,
    described: Option<PostMeta>,
    passed: u64,
    taken: u64,
}

/// A read. Its sink is told `Sent` when it is known what the object is, and whenever `turn` is to be called sooner; then
/// `Chunk`s, and `End` when it is over, for whatever reason. When it is dropped, nothing more is asked for.
pub struct Reading(Operation<State>);

impl Reading {
    /// Begin to read these bytes of an object: to its end if there are fewer, and none if the range is empty. The places
    /// of `first` are asked for what the object is, in their order, as many as are needed.
    #[must_use]
    pub fn start(
        places: Places,
        first: &[usize],
        range: Range<u64>,
        options: ReadOptions,
        sink: (Arc<dyn Sink>, u64),
    ) -> Self {
        let (timeout, trace) = (options.timeout, options.trace.clone());
        let mut first: VecDeque<usize> = first.iter().copied().filter(|place| *place < places.at.len()).collect();
        let (sound, hedge) = (options.sound.min(first.len()), options.hedge);
        first.make_contiguous()[..sound].sort_by_key(|place| places.devices.has_failed(places.at[*place]));
        let sound = first.iter().copied().take(sound).collect();
        let state = State {
            range,
            options,
            read: Read::new(places.terms()),
            stage: Stage::Asking { everyone: false },
            below: None,
            first,
            sound,
            hedges: 0,
            told: Vec::new(),
            known: BTreeMap::new(),
            floor: None,
            asked: Vec::new(),
            heard: BTreeSet::new(),
            newest: None,
            copied: Copied::default(),
            is_second: false,
            opened: None,
            post: None,
            described: None,
            passed: 0,
            taken: 0,
        };
        Self(Operation::start(places, state, (timeout, &trace), sink, |state, asking| {
            hedge.into_iter().for_each(|unknown| asking.hedge(unknown));
            // As many as will be enough if they answer.
            while !state.first.is_empty() && !is_enough(asking, state.asked.iter()) {
                let sends_cells = state.first.front().is_some_and(|place| state.sends_cells(asking, *place));
                state.ask_next(asking, sends_cells);
            }
            state.ask_for_cells(asking);
        }))
    }

    /// The caller has released so many bytes.
    pub fn taken(&self, bytes: u64) {
        self.0.act(|state, _| state.taken += bytes);
    }

    /// The caller takes nothing for a while: copy what waits for it out of the memory that transfers need.
    pub fn copy(&self) {
        self.0.act(|state, _| {
            if let Stage::Fetching(fetching) = &mut state.stage {
                fetching.copy();
            }
        });
    }

    /// Time has passed: ask others for what is late. Returns after which time it is to be called again.
    pub fn turn(&self) -> Duration {
        self.0.act(|_, _| ());
        self.0.look(|state, asking| asking.until_late(state.options.timeout))
    }

    /// How often others were asked in the place of a device that was late.
    #[must_use]
    pub fn hedges(&self) -> u64 {
        self.0.look(|state, _| state.hedges)
    }

    /// The devices, by their numbers, that were asked and have not answered.
    #[must_use]
    pub fn waits_for(&self) -> BTreeSet<u32> {
        self.0.look(|_, asking| asking.open().map(|about| about.device).collect())
    }

    /// What the object is, once it is known, unless it is a small one: with a fragment's block without digests of cells.
    #[must_use]
    pub fn info(&self) -> Option<FragmentInfo> {
        self.0.look(|state, _| match &state.opened {
            Some(Opened::Fragments(info)) => Some((**info).clone()),
            _ => None,
        })
    }

    /// Whether the object is a small one, which lies as copies or is in a pack.
    #[must_use]
    pub fn is_copy(&self) -> bool {
        self.0.look(|state, _| matches!(state.opened, Some(Opened::Small(_))))
    }

    /// The object with the newest metadata, once it is known. The xxh3 of its bytes in 64 bits isn't, but for a copy.
    #[must_use]
    pub fn description(&self) -> Option<Info> {
        self.0.look(|state, _| {
            let FragmentInfo { meta, etag, block } = match state.opened.clone()? {
                Opened::Small(info) => return Some(*info),
                Opened::Fragments(info) => *info,
            };
            let footer = Footer { size: block.geometry.object_bytes(), etag, xxh3: 0 };
            Some(info_of(meta, footer, state.described.clone()))
        })
    }

    /// The most memory that the cells take if the range has so many bytes, with what may wait for the caller.
    #[must_use]
    pub fn read_bytes(&self, bytes: u64) -> u64 {
        self.0.look(|state, asking| asking.places.read_bytes(bytes, state.options.ahead_bytes))
    }

    /// How it has ended; nothing while it is under way.
    #[must_use]
    pub fn end(&self) -> Option<ReadEnd> {
        self.0.look(|state, _| if let Stage::Over(end) = state.stage { Some(end) } else { None })
    }

    /// Why devices, by their numbers, gave no answer.
    #[must_use]
    pub fn refused(&self) -> Vec<(u32, Failure)> {
        self.0.look(|_, asking| asking.refused.clone())
    }
}

/// Whether the newest version can be told from the answers of these places.
fn is_enough<'a>(asking: &Asking, places: impl Iterator<Item = &'a usize>) -> bool {
    let mut finding = Finding::new(asking.places.numbers());
    places.for_each(|place| finding.heard(*place, Both::default()));
    finding.is_enough()
}

impl State {
    fn ask(&self, asking: &mut Asking, index: usize, device: u32, kind: Kind) {
        let key = asking.places.key(index);
        let request = match &kind {
            Kind::Copy => {
                let (start, stop) = (self.range.start, self.range.end);
                let request =
                    message::Request::Get { key: asking.places.copy_key(), start, stop, whole: 0, proved: false };
                return asking.ask(About { index, device, kind }, device, request);
            }
            Kind::Newest { cells: true } => {
                let Range { start, end } = self.first_bytes(asking);
                Request::Newest { key, below: self.below, start, stop: end }
            }
            Kind::Newest { cells: false } => Request::Newest { key, below: self.below, start: 0, stop: 0 },
            Kind::Describe(version) => asking.places.describe(index, *version),
            Kind::Member(pack, wish) => {
                let request = wish.request(&asking.places, *pack);
                return asking.ask(About { index, device, kind }, device, request);
            }
            Kind::Cells(version, stripes) => {
                Request::Cells { key, version: *version, first: stripes.start, end: stripes.end }
            }
        };
        asking.ask(About { index, device, kind }, device, request);
    }

    /// Ask the next of the first places, if there is one.
    fn ask_next(&mut self, asking: &mut Asking, cells: bool) {
        if let Some(place) = self.first.pop_front() {
            self.asked.push(place);
            self.ask(asking, place, asking.places.at[place], Kind::Newest { cells });
        }
    }

    /// Bytes of the range of which cells come with the newest version.
    fn first_bytes(&self, asking: &Asking) -> Range<u64> {
        let window = asking.places.window() * asking.places.stripe_bytes();
        self.range.start..self.range.start.saturating_add(window).min(self.range.end)
    }

    /// Whether a place is to send cells with the newest version: the first one of all does, and others that have some,
    /// where these would not be the bytes of a copy once more.
    fn sends_cells(&self, asking: &Asking, place: usize) -> bool {
        let has_cells = !self.options.small && place < asking.places.scheme.data();
        !self.range.is_empty() && (self.asked.is_empty() || has_cells)
    }

    /// Ask other places for their cells of the range at the same time, out of as many as are read from.
    fn ask_for_cells(&mut self, asking: &mut Asking) {
        let more = asking.places.scheme.data().saturating_sub(self.asked.len()).min(self.first.len());
        for place in self.first.drain(..more).collect::<Vec<_>>() {
            if self.sends_cells(asking, place) {
                self.asked.push(place);
                self.ask(asking, place, asking.places.at[place], Kind::Newest { cells: true });
            } else {
                self.first.push_back(place);
            }
        }
    }

    /// Whether enough of the first places have answered, without those behind one that is still waited for.
    fn has_enough(&self, asking: &Asking, waited_for: &BTreeSet<usize>) -> bool {
        let before = self.asked.iter().take_while(|place| !waited_for.contains(place));
        is_enough(asking, before.filter(|place| self.heard.contains(place)))
    }

    fn compare_if_enough(&mut self, asking: &mut Asking) {
        if self.has_enough_in_time(asking) {
            self.compare(asking);
        }
    }

    /// Whether enough have answered, without those that stand still. Sound places are enough without those that are late
    /// as well; in the place of these others may have missed a write.
    fn has_enough_in_time(&self, asking: &Asking) -> bool {
        let late = asking.late();
        let places = |which: fn(&operation::Late<'_, About>) -> bool| -> BTreeSet<usize> {
            late.iter().filter(|late| which(late)).map(|late| late.about.index).collect()
        };
        let open: BTreeSet<usize> = asking.open().map(|about| about.index).collect();
        if self.has_enough(asking, &(&open - &places(|late| late.is_still))) {
            return true;
        }
        let in_time = &open - &places(|_| true);
        let before = self.asked.iter().take_while(|place| !in_time.contains(place));
        is_enough(asking, before.filter(|place| self.sound.contains(place) && self.heard.contains(place)))
    }

    /// The first places have told what they can: go on with the newest version of theirs; with everyone if that is none.
    fn compare(&mut self, asking: &mut Asking) {
        if self.copied.timestamp() > self.newest.map(|version| version.timestamp) {
            return self.copy(asking);
        }
        let mut told = std::mem::take(&mut self.told);
        told.sort_by_key(|(_, answer)| match answer {
            Answer::Newest { committed, floor } => std::cmp::Reverse((*committed).max(*floor)),
            _ => std::cmp::Reverse(None),
        });
        let steps = told.iter().map(|(place, answer)| self.read.newest(Some(*place), answer));
        match steps.into_iter().next().filter(|step| *step != Step::Wait) {
            Some(step) => self.step(asking, step),
            None => self.ask_everyone(asking, None),
        }
    }

    /// Ask all places, and spares for all of their fragments: for the newest version, or about one.
    fn ask_everyone(&mut self, asking: &mut Asking, about: Option<Version>) {
        asking.forget();
        self.stage = match about {
            None => Stage::Asking { everyone: true },
            Some(_) => Stage::Describing,
        };
        let kind = about.map_or(Kind::Newest { cells: false }, Kind::Describe);
        let places = &asking.places;
        let mut asked: Vec<(usize, u32)> = places.at.iter().copied().enumerate().collect();
        asked.extend(places.spares.iter().flat_map(|device| (0..places.at.len()).map(|index| (index, *device))));
        for (index, device) in asked {
            self.ask(asking, index, device, kind.clone());
        }
    }

    /// Remember what a device says of a version; false if it can't be true.
    fn learn(&mut self, asking: &mut Asking, holder: (usize, u32), newest: Newest, body: Came) -> bool {
        let fits = |(info, _): &(FragmentInfo, Cells)| asking.places.fits(holder.0, info);
        if !newest.fragment.as_ref().is_none_or(fits) {
            return false;
        }
        match newest.copy {
            Some(CopyHere::Is { info, body_xxh3 }) => {
                let body = body_xxh3.map(|sum| (sum, body.to_vec()));
                self.copied.learn(info, holder.1, body, &self.range);
            }
            Some(CopyHere::Packed { referred, pack_bytes }) => {
                let StoreReferred { pack, reference, posted } = referred;
                if reference.digest != asking.places.copy_key().digest {
                    return false;
                }
                self.copied.refer(Referred { pack, reference, pack_bytes }, posted);
            }
            Some(CopyHere::Dead(_)) | None => {}
        }
        if let Some(post) = newest.post {
            // Whatever the version is for which it counts: which one that is, is known later.
            let held = self.post.take();
            self.post = merge_post(0, held.clone(), post).store.or(held);
        }
        let Some((info, cells)) = newest.fragment else { return true };
        let version = info.version();
        let known = self.known.entry(version).or_insert_with(|| Known { info, holders: Vec::new(), cells: Vec::new() });
        known.holders.push(holder);
        if !cells.xxh3.is_empty() {
            known.cells.push((holder.0, cells, body));
        }
        true
    }

    fn step(&mut self, asking: &mut Asking, step: Step) {
        match step {
            Step::Wait | Step::Give(_) => {}
            Step::Ask(below) => {
                self.below = below;
                self.forget_newest();
                self.ask_everyone(asking, None);
            }
            Step::Fetch(version) if self.known.contains_key(&version) => self.fetch(asking, version),
            Step::Fetch(version) => self.ask_everyone(asking, Some(version)),
            // A device that has replaced another one has nothing, and others know nothing of small objects.
            Step::NotFound if self.options.small && self.holders(asking) < asking.places.terms().absences() => {
                self.end(asking, ReadEnd::Unavailable);
            }
            Step::NotFound => {
                let end = ReadEnd::NotFound(self.floor.filter(|floor| floor.is_deletion()));
                self.end(asking, end);
            }
            Step::Unavailable => self.end(asking, ReadEnd::Unavailable),
        }
    }

    /// Begin to fetch the range of a version that is known.
    fn fetch(&mut self, asking: &mut Asking, version: Version) {
        let bytes = self.first_bytes(asking);
        let Some(known) = self.known.get_mut(&version) else { return asking.forget() };
        let sources = asking.places.sources(&known.info, &known.holders);
        let has_failed = |device| asking.places.devices.has_failed(device);
        let (info, window) = (known.info.clone(), asking.places.window());
        let mut fetching = Fetching::bytes(info, self.range.clone(), sources, has_failed, window);
        for (index, cells, body) in std::mem::take(&mut known.cells) {
            fetching.came(index, &cells, &body);
        }
        asking.forget_all_but(|about| about.cells(&fetching.info, bytes.clone()).is_some());
        let coming = asking.open().filter_map(|about| about.cells(&fetching.info, bytes.clone()));
        for wish in coming.collect::<Vec<_>>() {
            fetching.expect(&wish);
        }
        self.stage = Stage::Fetching(Box::new(fetching));
    }

    /// A device has answered which version is its newest one, while one is being fetched: it may have sent cells of that.
    fn came_along(&mut self, asking: &Asking, about: &About, answer: Result<Whole, Failure>) {
        let bytes = self.first_bytes(asking);
        let Stage::Fetching(fetching) = &mut self.stage else { return };
        let Some(wish) = about.cells(&fetching.info, bytes) else { return };
        let Ok(newest) = answer.and_then(|(header, body)| Ok((Newest::decode(&header)?, body))) else {
            return fetching.answered(&wish, None);
        };
        let (Newest { fragment, .. }, body) = newest;
        let is_it = |(info, _): &(FragmentInfo, Cells)| {
            asking.places.fits(wish.index, info) && info.version() == fetching.version()
        };
        let cells = fragment.filter(is_it).map(|(_, cells)| (cells, body)).filter(|(cells, _)| !cells.xxh3.is_empty());
        fetching.came_unasked(&wish, cells);
    }

    /// How many places with copies have answered.
    fn holders(&self, asking: &Asking) -> usize {
        self.heard.range(..asking.places.numbers().holders).count()
    }

    /// Give the newest small object, whose bytes may have come already.
    fn copy(&mut self, asking: &mut Asking) {
        asking.forget();
        self.stage = Stage::Copying;
        if let Some((info, bytes)) = self.copied.whole(&self.range) {
            return self.give(asking, info, bytes);
        }
        self.ask_for_copy(asking);
    }

    /// Ask the next device that has the copy, or read the next pack; if there is none, ask everyone for the newest version,
    /// once more.
    fn ask_for_copy(&mut self, asking: &mut Asking) {
        match self.copied.next() {
            Some(Source::Copy(device)) => self.ask(asking, 0, device, Kind::Copy),
            Some(Source::Pack(Referred { pack, reference, pack_bytes })) => {
                let member = Member::new(&asking.places, pack, reference, pack_bytes);
                self.stage = Stage::Unpacking(Box::new(member));
            }
            None if asking.open().any(|about| matches!(about.kind, Kind::Copy)) => {}
            None if std::mem::replace(&mut self.is_second, true) => self.end(asking, ReadEnd::Unavailable),
            None => {
                self.forget_newest();
                self.ask_everyone(asking, None);
            }
        }
    }

    /// What is asked once more may have changed meanwhile.
    fn forget_newest(&mut self) {
        (self.newest, self.copied) = (None, Copied::default());
    }

    fn give(&mut self, asking: &mut Asking, info: Info, bytes: Vec<u8>) {
        self.pass(asking, Some(Opened::Small(Box::new(info))), vec![Chunk::from(bytes)]);
        self.end(asking, ReadEnd::Whole);
    }

    /// Go on with a member of a pack. Returns whether it has ended.
    fn unpack(&mut self, asking: &mut Asking) -> bool {
        let Stage::Unpacking(member) = &mut self.stage else { return true };
        let wishes = member.wishes(&asking.places);
        let pack = member.pack();
        let Some(outcome) = member.outcome() else {
            for wish in wishes {
                self.ask(asking, wish.index(), wish.device(), Kind::Member(pack, wish));
            }
            return false;
        };
        let digest = asking.places.copy_key().digest;
        match outcome.and_then(|bytes| self.copied.unpack(digest, bytes, &self.range)) {
            Some((info, bytes)) => self.give(asking, info, bytes),
            None => {
                self.stage = Stage::Copying;
                self.ask_for_copy(asking);
            }
        }
        true
    }

    /// Everyone has answered who will.
    fn wait_no_longer(&mut self, asking: &mut Asking) {
        let copied = self.copied.timestamp();
        let older = [self.newest, self.read.tried()].into_iter().flatten().map(|version| version.timestamp).max();
        if matches!(self.stage, Stage::Asking { .. }) && copied > older {
            return self.copy(asking);
        }
        let step = self.read.wait_no_longer();
        self.step(asking, step);
    }

    fn end(&mut self, asking: &mut Asking, end: ReadEnd) {
        asking.forget();
        self.stage = Stage::Over(end);
        asking.end();
    }

    fn pass(&mut self, asking: &Asking, opened: Option<Opened>, mut pieces: Vec<Chunk>) {
        if opened.is_some() {
            self.opened = opened;
            self.described = self.post.take();
            asking.tell();
        }
        pieces.retain(|piece| !piece.is_empty());
        if !pieces.is_empty() {
            self.passed += pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
            asking.pass(pieces);
        }
    }

    fn too_few(&mut self, asking: &mut Asking) {
        if self.opened.is_some() {
            self.end(asking, ReadEnd::Cut);
        } else {
            let step = self.read.wait_no_longer();
            self.step(asking, step);
        }
    }

    /// Decide without those of the first places that are late, if this can be done, or ask another one. Returns whether it
    /// was decided.
    fn ask_another(&mut self, asking: &mut Asking) -> bool {
        if self.has_enough_in_time(asking) {
            self.compare(asking);
            return true;
        }
        let late = asking.late();
        for still in late.iter().filter(|late| late.is_still) {
            asking.may_replace(still, 0);
        }
        let is_still = |place: &usize| late.iter().any(|late| late.is_still && late.about.index == *place);
        let mut in_time: BTreeSet<usize> = asking.open().map(|about| about.index).collect();
        in_time.retain(|place| !is_still(place));
        if !is_enough(asking, in_time.union(&self.heard)) {
            return self.ask_enough(asking, in_time);
        }
        in_time.retain(|place| !late.iter().any(|late| late.about.index == *place));
        let is_sound = |place: &&usize| self.sound.contains(place);
        let another = self.first.front().filter(is_sound).is_some();
        if another && !is_enough(asking, in_time.union(&self.heard).filter(is_sound)) && asking.may_ask_more() {
            self.hedges += 1;
            self.ask_next(asking, false);
        }
        false
    }

    /// Ask as many more of the first places as will be enough with those that are waited for: their answers may all come at
    /// once, and nobody else is asked after the last one. Decide now if there are not so many. Returns whether it was decided.
    fn ask_enough(&mut self, asking: &mut Asking, mut in_time: BTreeSet<usize>) -> bool {
        while !is_enough(asking, in_time.union(&self.heard)) {
            let Some(place) = self.first.front().copied() else {
                self.compare(asking);
                return true;
            };
            self.ask_next(asking, false);
            in_time.insert(place);
        }
        false
    }

    /// Have other fragments stand in for those whose cells are late. Returns whether any do.
    fn replace_cells(&mut self, asking: &Asking) -> bool {
        let bytes = self.first_bytes(asking);
        let Stage::Fetching(fetching) = &mut self.stage else { return false };
        let (first, before) = (fetching.first(), self.hedges);
        for late in asking.late() {
            let index = late.about.index;
            let is_waited_for = match &late.about.kind {
                Kind::Cells(_, stripes) => stripes.contains(&first),
                _ => late.about.cells(&fetching.info, bytes.clone()).is_some_and(|wish| wish.stripes.contains(&first)),
            };
            if is_waited_for && fetching.can_replace(index) && asking.may_replace(&late, 1) {
                fetching.is_late(index);
                self.hedges += 1;
            }
        }
        self.hedges > before
    }

    /// Ask another device for the copy, if all that were asked are late. Returns whether another one was asked, or there
    /// is none.
    fn replace_copy(&mut self, asking: &mut Asking) -> bool {
        let copies = asking.open().filter(|about| matches!(about.kind, Kind::Copy)).count();
        let late = asking.late();
        let late: Vec<_> = late.iter().filter(|late| matches!(late.about.kind, Kind::Copy)).collect();
        // Without another copy a pack is read, or everyone is asked.
        let may = |late: &operation::Late<'_, About>| {
            (late.is_still || self.copied.has_another()) && asking.may_replace(late, 1)
        };
        if copies > late.len() || !late.last().is_some_and(|late| may(late)) {
            return false;
        }
        self.hedges += 1;
        self.ask_for_copy(asking);
        true
    }

    /// Have others stand in for those that are late with what a member is made of. Returns whether any do.
    fn replace_pieces(&mut self, asking: &Asking) -> bool {
        let Stage::Unpacking(member) = &mut self.stage else { return false };
        let before = self.hedges;
        for late in asking.late() {
            if let Kind::Member(pack, wish) = &late.about.kind
                && *pack == member.pack()
                && let Some(requests) = member.replacing(wish)
                && asking.may_replace(&late, requests)
            {
                member.is_late(wish);
                self.hedges += 1;
            }
        }
        self.hedges > before
    }

    /// Bytes of the copy have come, or they have not.
    fn came(&mut self, asking: &mut Asking, answer: Result<Whole, Failure>) {
        if !matches!(self.stage, Stage::Copying | Stage::Unpacking(_)) {
            return;
        }
        let found = answer.and_then(|(header, body)| Ok((Found::decode(&header)?, body)));
        match found.ok().and_then(|(found, body)| self.copied.check(found, body.to_vec(), &self.range)) {
            Some((info, bytes)) => self.give(asking, info, bytes),
            None if matches!(self.stage, Stage::Copying) => self.ask_for_copy(asking),
            None => {}
        }
    }
}

impl operation::State for State {
    type About = About;

    fn answered(&mut self, asking: &mut Asking, about: About, answer: Result<Whole, Failure>) {
        if matches!((&about.kind, &self.stage), (Kind::Newest { .. }, Stage::Fetching(_))) {
            return self.came_along(asking, &about, answer);
        }
        let About { index, device, kind } = about;
        match kind {
            Kind::Newest { .. } => {
                let newest = answer.and_then(|(header, body)| Ok((Newest::decode(&header)?, body)));
                let told = newest.ok().and_then(|(newest, body)| {
                    // Of copies that are dead another form knows more, or the object is deleted.
                    let dead = match newest.copy {
                        Some(CopyHere::Dead(until)) => Some(Version::deletion(until)),
                        _ => None,
                    };
                    let (committed, floor) = (newest.committed, newest.floor.max(dead));
                    if !self.learn(asking, (index, device), newest, body) {
                        return None;
                    }
                    let newest = committed.max(floor);
                    self.floor = self.floor.max(floor);
                    self.newest = self.newest.max(newest);
                    self.heard.extend((asking.places.at[index] == device).then_some(index));
                    Some(Answer::Newest { committed, floor })
                });
                match (told, &self.stage) {
                    (Some(told), Stage::Asking { everyone: false }) => {
                        self.told.push((index, told));
                        self.compare_if_enough(asking);
                    }
                    // Nothing was in vain yet: what is newer than all that is known is what was looked for.
                    (Some(_), Stage::Asking { .. })
                        if !self.is_second
                            && self.read.tried().is_none()
                            && self.copied.timestamp() > self.newest.map(|version| version.timestamp) =>
                    {
                        self.copy(asking);
                    }
                    (Some(told), _) => {
                        let place = (asking.places.at[index] == device).then_some(index);
                        let step = self.read.newest(place, &told);
                        self.step(asking, step);
                    }
                    (None, Stage::Asking { everyone: false }) => {
                        let open: BTreeSet<usize> = asking.open().map(|about| about.index).collect();
                        if !is_enough(asking, open.union(&self.heard)) {
                            self.ask_next(asking, false);
                        }
                        self.compare_if_enough(asking);
                    }
                    (None, _) => {}
                }
            }
            Kind::Describe(version) => {
                if let Ok((header, body)) = answer
                    && let Ok(newest) = Newest::decode(&header)
                    && self.learn(asking, (index, device), newest, body)
                    && self.known.contains_key(&version)
                {
                    self.fetch(asking, version);
                }
            }
            Kind::Copy => self.came(asking, answer),
            Kind::Member(pack, wish) => {
                if let Stage::Unpacking(member) = &mut self.stage
                    && member.pack() == pack
                {
                    member.answered(&asking.places, &wish, answer);
                }
            }
            Kind::Cells(version, stripes) => {
                let given = answer.and_then(|(header, body)| Ok((Given::decode(&header)?, body)));
                let answer = match &given {
                    Ok((Given::Not(answer), _)) => Some(answer.clone()),
                    Ok((Given::Cells(_), _)) => {
                        self.known.get(&version).map(|known| Answer::Fragment(known.info.block.chosen.clone()))
                    }
                    Err(_) => None,
                };
                if let Some(answer) = answer {
                    self.read.fetched(version, index, &answer);
                }
                if let Stage::Fetching(fetching) = &mut self.stage {
                    fetching.answered(&Wish { index, device, stripes }, given.ok());
                }
            }
        }
    }

    /// What comes after that is of no use: nobody else is to be asked.
    fn dropped(&mut self, asking: &mut Asking) {
        asking.forget();
        self.stage = Stage::Over(ReadEnd::Cut);
    }

    /// Pass on what there is, and ask for more.
    fn go_on(&mut self, asking: &mut Asking) {
        loop {
            match &mut self.stage {
                Stage::Over(_) => return,
                Stage::Asking { everyone: false } if asking.open().next().is_some() => {
                    if !self.ask_another(asking) {
                        return;
                    }
                }
                Stage::Asking { .. } | Stage::Describing if asking.open().next().is_some() => return,
                Stage::Asking { everyone: false } => self.compare(asking),
                Stage::Asking { .. } | Stage::Describing => self.wait_no_longer(asking),
                Stage::Copying => {
                    if !self.replace_copy(asking) {
                        return;
                    }
                }
                Stage::Unpacking(_) => {
                    if !self.unpack(asking) && !self.replace_pieces(asking) {
                        return;
                    }
                }
                Stage::Fetching(fetching) => {
                    let version = fetching.version();
                    let may_pass = self.passed.saturating_sub(self.taken) <= self.options.ahead_bytes;
                    let next = if may_pass { fetching.next() } else { Ok(Next::Wait) };
                    let opened = || Opened::Fragments(Box::new(fetching.info.clone()));
                    let opened = self.opened.is_none().then(opened);
                    match next {
                        Ok(Next::Bytes(pieces)) => self.pass(asking, opened, pieces),
                        Ok(Next::End) => {
                            self.pass(asking, opened, Vec::new());
                            return self.end(asking, ReadEnd::Whole);
                        }
                        Ok(Next::Wait) => match fetching.wishes() {
                            Ok(wishes) if wishes.is_empty() => {
                                if !self.replace_cells(asking) {
                                    return;
                                }
                            }
                            Ok(wishes) => {
                                for Wish { index, device, stripes } in wishes {
                                    self.ask(asking, index, device, Kind::Cells(version, stripes));
                                }
                            }
                            Err(_) => self.too_few(asking),
                        },
                        Err(_) => self.too_few(asking),
                    }
                }
            }
        }
    }
}
