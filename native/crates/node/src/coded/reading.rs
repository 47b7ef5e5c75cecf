//! A read of a range of one object, or of its description alone.
//!
//! So many places are asked for their newest version that one of them has what a quorum has committed, as long as no
//! spare stood in for it, and the newest of their answers counts. The first of them sends the cells that it has of the
//! range as well. Everybody is asked if these have nothing. Then cells are asked for, up to two windows ahead of what the
//! caller has taken. Who is late is replaced by others: for cells, by those of other fragments.
//!
//! Who knows that a place has missed a write names it last. Metadata that were posted come with the same answers; the newest
//! of them count, as a quorum has kept those that were acknowledged.
//!
//! Fault model: that of the module above. Nothing is passed on before it was compared with its digest. What can't be put
//! together any more after the first bytes ends there; before them, another version may be given in its place
//! (`swiftlet_fragments::read`).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use swiftlet_fragments::Version;
use swiftlet_fragments::read::{Read, Step};
use swiftlet_fragments::request::Answer;
use swiftlet_store::merge::{info_of, merge_post};
use swiftlet_store::model::{Footer, FragmentInfo, Info, PostMeta};
use swiftlet_transport::Sink;

use super::answering::Whole;
use super::fetching::{Fetching, Next, Wish};
use super::operation::{self, Operation};
use super::places::Places;
use crate::client::Failure;
use crate::message::fragments::{Cells, Given, Newest, Request};

/// How a read waits.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// The time limit of each request.
    pub timeout: Duration,
    /// After this time another device is asked as well.
    pub hedge: Duration,
    /// Bytes that are passed on before the caller takes any.
    pub ahead_bytes: u64,
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
    /// The newest version.
    Newest,
    /// What is stored with this version.
    Describe(Version),
    Cells(Version, Range<u64>),
}

/// What a request is about: which fragment, of which device.
#[derive(Debug)]
struct About {
    index: usize,
    device: u32,
    kind: Kind,
}

type Asking = operation::Asking<About>;

/// What is known of a version.
#[derive(Debug)]
struct Known {
    info: FragmentInfo,
    /// Who has named it, with which fragment.
    holders: Vec<(usize, u32)>,
    /// Cells that came with it.
    cells: Vec<(usize, Cells, Vec<u8>)>,
}

enum Stage {
    Asking {
        everyone: bool,
    },
    /// Somebody knows of a version, but not what it is.
    Describing,
    Fetching(Box<Fetching>),
    Over(ReadEnd),
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
    /// What the first places have told.
    told: Vec<(usize, Answer)>,
    known: BTreeMap<Version, Known>,
    floor: Option<Version>,
    opened: Option<FragmentInfo>,
    /// The newest metadata that devices have told of, and those that counted when the object was opened.
    post: Option<PostMeta>,
    described: Option<PostMeta>,
    passed: u64,
    taken: u64,
}

/// A read. Its sink is told `Sent` when it is known what the object is, then `Chunk`s, and `End` when it is over, for
/// whatever reason. When it is dropped, nothing more is asked for.
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
        let state = State {
            range,
            options,
            read: Read::new(places.terms()),
            stage: Stage::Asking { everyone: false },
            below: None,
            first: first.iter().copied().filter(|place| *place < places.at.len()).collect(),
            told: Vec::new(),
            known: BTreeMap::new(),
            floor: None,
            opened: None,
            post: None,
            described: None,
            passed: 0,
            taken: 0,
        };
        Self(Operation::start(places, state, (timeout, &trace), sink, |state, asking| {
            (0..asking.places.terms().refusals()).for_each(|_| state.ask_next(asking));
        }))
    }

    /// The caller has released so many bytes.
    pub fn taken(&self, bytes: u64) {
        self.0.act(|state, _| state.taken += bytes);
    }

    /// Time has passed: ask others for what is late. Returns after which time it is to be called again.
    pub fn turn(&self) -> Duration {
        self.0.act(State::hedge);
        self.0.look(|state, asking| asking.until_late(state.options.hedge).unwrap_or(state.options.hedge))
    }

    /// What the object is, once it is known: with a fragment's block without digests of cells.
    #[must_use]
    pub fn info(&self) -> Option<FragmentInfo> {
        self.0.look(|state, _| state.opened.clone())
    }

    /// The object with the newest metadata, once it is known. The xxh3 of its bytes in 64 bits isn't.
    #[must_use]
    pub fn description(&self) -> Option<Info> {
        self.0.look(|state, _| {
            let FragmentInfo { meta, etag, block } = state.opened.clone()?;
            let footer = Footer { size: block.geometry.object_bytes(), etag, xxh3: 0 };
            Some(info_of(meta, footer, state.described.clone()))
        })
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

impl State {
    fn ask(&self, asking: &mut Asking, index: usize, device: u32, kind: Kind) {
        let key = asking.places.key(index);
        let request = match &kind {
            // The first one of all sends cells.
            Kind::Newest if asking.is_first() => {
                let window = asking.places.window() * asking.places.stripe_bytes();
                let stop = self.range.start.saturating_add(window).min(self.range.end);
                Request::Newest { key, below: self.below, start: self.range.start, stop }
            }
            Kind::Newest => Request::Newest { key, below: self.below, start: 0, stop: 0 },
            Kind::Describe(version) => asking.places.describe(index, *version),
            Kind::Cells(version, stripes) => {
                Request::Cells { key, version: *version, first: stripes.start, end: stripes.end }
            }
        };
        asking.ask(About { index, device, kind }, device, request);
    }

    /// Ask the next of the first places, if there is one.
    fn ask_next(&mut self, asking: &mut Asking) {
        if let Some(place) = self.first.pop_front() {
            self.ask(asking, place, asking.places.at[place], Kind::Newest);
        }
    }

    /// The first places have told what they can: go on with the newest version of theirs; with everyone if that is none.
    fn compare(&mut self, asking: &mut Asking) {
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
        let kind = about.map_or(Kind::Newest, Kind::Describe);
        let places = &asking.places;
        let mut asked: Vec<(usize, u32)> = places.at.iter().copied().enumerate().collect();
        asked.extend(places.spares.iter().flat_map(|device| (0..places.at.len()).map(|index| (index, *device))));
        for (index, device) in asked {
            self.ask(asking, index, device, kind.clone());
        }
    }

    /// Remember what a device says of a version; false if it can't be true.
    fn learn(&mut self, asking: &mut Asking, holder: (usize, u32), newest: Newest, body: Vec<u8>) -> bool {
        let fits = |(info, _): &(FragmentInfo, Cells)| asking.places.fits(holder.0, info);
        if !newest.fragment.as_ref().is_none_or(fits) {
            return false;
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
                self.ask_everyone(asking, None);
            }
            Step::Fetch(version) if self.known.contains_key(&version) => self.fetch(asking, version),
            Step::Fetch(version) => self.ask_everyone(asking, Some(version)),
            Step::NotFound => {
                let end = ReadEnd::NotFound(self.floor.filter(|floor| floor.is_deletion()));
                self.end(asking, end);
            }
            Step::Unavailable => self.end(asking, ReadEnd::Unavailable),
        }
    }

    /// Begin to fetch the range of a version that is known.
    fn fetch(&mut self, asking: &mut Asking, version: Version) {
        asking.forget();
        let Some(known) = self.known.get_mut(&version) else { return };
        let sources = asking.places.sources(&known.info, &known.holders);
        let mut fetching = Fetching::bytes(known.info.clone(), self.range.clone(), sources, asking.places.window());
        for (index, cells, body) in std::mem::take(&mut known.cells) {
            fetching.came(index, &cells, body);
        }
        self.stage = Stage::Fetching(Box::new(fetching));
    }

    fn end(&mut self, asking: &mut Asking, end: ReadEnd) {
        asking.forget();
        self.stage = Stage::Over(end);
        asking.end();
    }

    fn pass(&mut self, asking: &Asking, opened: Option<FragmentInfo>, bytes: Vec<u8>) {
        if opened.is_some() {
            self.opened = opened;
            self.described = self.post.take();
            asking.tell();
        }
        if !bytes.is_empty() {
            self.passed += bytes.len() as u64;
            asking.pass(bytes);
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

    /// Ask others for what is late.
    fn hedge(&mut self, asking: &mut Asking) {
        let after = self.options.hedge;
        match &mut self.stage {
            Stage::Asking { everyone: false } => {
                let in_time = asking.open().count() - asking.late(after).count();
                if in_time + self.told.len() >= asking.places.terms().refusals() {
                } else if !self.first.is_empty() {
                    self.ask_next(asking);
                } else {
                    self.compare(asking);
                }
            }
            Stage::Fetching(fetching) => {
                let first = fetching.first();
                for About { index, kind, .. } in asking.late(after) {
                    if matches!(kind, Kind::Cells(_, stripes) if stripes.contains(&first)) {
                        fetching.is_late(*index);
                    }
                }
            }
            _ => {}
        }
    }
}

impl operation::State for State {
    type About = About;

    fn answered(&mut self, asking: &mut Asking, About { index, device, kind }: About, answer: Result<Whole, Failure>) {
        match kind {
            Kind::Newest => {
                let newest = answer.and_then(|(header, body)| Ok((Newest::decode(&header)?, body)));
                let told = newest.ok().and_then(|(newest, body)| {
                    let told = Answer::Newest { committed: newest.committed, floor: newest.floor };
                    self.floor = self.floor.max(newest.floor);
                    self.learn(asking, (index, device), newest, body).then_some(told)
                });
                match (told, &self.stage) {
                    (Some(told), Stage::Asking { everyone: false }) => {
                        self.told.push((index, told));
                        if self.told.len() >= asking.places.terms().refusals() {
                            self.compare(asking);
                        }
                    }
                    (Some(told), _) => {
                        let place = (asking.places.at[index] == device).then_some(index);
                        let step = self.read.newest(place, &told);
                        self.step(asking, step);
                    }
                    (None, Stage::Asking { everyone: false }) => self.ask_next(asking),
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

    /// Pass on what there is, and ask for more.
    fn go_on(&mut self, asking: &mut Asking) {
        loop {
            match &mut self.stage {
                Stage::Over(_) => return,
                Stage::Asking { .. } | Stage::Describing if asking.open().next().is_some() => return,
                Stage::Asking { everyone: false } => self.compare(asking),
                Stage::Asking { .. } | Stage::Describing => {
                    let step = self.read.wait_no_longer();
                    self.step(asking, step);
                }
                Stage::Fetching(fetching) => {
                    let version = fetching.version();
                    let may_pass = self.passed.saturating_sub(self.taken) <= self.options.ahead_bytes;
                    let next = if may_pass { fetching.next() } else { Ok(Next::Wait) };
                    let opened = self.opened.is_none().then(|| fetching.info.clone());
                    match next {
                        Ok(Next::Bytes(bytes)) => self.pass(asking, opened, bytes),
                        Ok(Next::End) => {
                            self.pass(asking, opened, Vec::new());
                            return self.end(asking, ReadEnd::Whole);
                        }
                        Ok(Next::Wait) => match fetching.wishes() {
                            Ok(wishes) if wishes.is_empty() => return,
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
