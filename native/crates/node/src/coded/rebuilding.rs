//! A fragment that its place lacks: made of others, proved, and kept by the device there.
//!
//! Another place is asked what is stored with the version. Then cells are read as by a reader: of the fragment itself,
//! where a spare has it, and else k of each stripe. Near devices are asked first. Of far ones as few fragments are read as
//! can be: none if k are near, else the fragment itself where one has it, else as many as the near ones lack. Cells are
//! sent on as they are made. Only a fragment whose digest is the one that the others know is kept.
//!
//! Who makes the fragment of a pack takes over that the pack is retired: else this place would take references to it, and
//! whoever deletes the pack relies on no place doing so. So all other places are waited for, and if one has retired it, so
//! does the device at the place, before it gets the fragment.
//!
//! Fault model: that of the module above. Whoever rebuilds may stop at any moment; nothing is kept then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use swiftlet_fragments::Version;
use swiftlet_fragments::block::Block;
use swiftlet_fragments::packs::is_pack;
use swiftlet_fragments::request::Answer;
use swiftlet_store::model::FragmentInfo;
use swiftlet_transport::{Chunk, Error as TransportError, Sink, Upload};

use super::answering::Whole;
use super::fetching::{Fetching, Making, Next, Wish};
use super::operation::{self, Operation};
use super::places::Places;
use crate::client::Failure;
use crate::message::fragments::{Footer, Given, Newest, Request, decode_answer};
use crate::message::packs::Request as PackRequest;

/// With more bytes than these that the device has yet to take, no further cells are made.
const MOST_QUEUED: u64 = 1 << 20;

/// How a rebuild has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RebuildEnd {
    /// The device at the place has answered: [`Answer::Done`], or why it doesn't need the fragment.
    Answered(Answer),
    /// Too few fragments can be read. Nothing was kept.
    TooFew,
    /// What was made is not the fragment that the others know. Nothing was kept.
    Unproved,
    /// The device at the place could not keep it.
    Failed(Failure),
}

enum About {
    /// What is stored with the version, beside this fragment.
    Describe(usize),
    Cells(Wish),
    /// That the pack is retired, at its place.
    Retire,
    /// The fragment, at its place.
    Keep,
}

type Asking = operation::Asking<About>;

enum Stage {
    /// With what is stored with the version, if the other places are waited for as well.
    Describing(Option<Box<FragmentInfo>>),
    /// The pack is being retired at the place.
    Retiring(Box<FragmentInfo>),
    Making(Box<Fetching>),
    /// The device has all, and has yet to answer.
    Keeping,
    Over(RebuildEnd),
}

struct State {
    place: usize,
    version: Version,
    body_timeout: Duration,
    stage: Stage,
    /// Whether another place has retired it.
    retired: bool,
    upload: Option<Upload>,
    /// Bytes that the device has yet to take.
    queued: u64,
    /// Bytes that were made.
    made: u64,
    /// Bytes of cells that came from each device, also of those that were wrong.
    read: BTreeMap<u32, u64>,
}

/// A rebuild. Its sink is told `End` when it is over. Dropped before, nothing is kept.
pub struct Rebuilding(Operation<State>);

impl Rebuilding {
    /// Make the fragment of a place, of a version that counts, for the device there. Of the two time limits each request
    /// has the first one, and the device has the second one for the whole fragment.
    ///
    /// # Errors
    /// There is no such place.
    pub fn start(
        places: Places,
        (place, version): (usize, Version),
        ((timeout, body_timeout), trace): ((Duration, Duration), &str),
        sink: (Arc<dyn Sink>, u64),
    ) -> Result<Self, &'static str> {
        if place >= places.at.len() {
            return Err("there is no such place");
        }
        let stage = Stage::Describing(None);
        let read = BTreeMap::new();
        let state =
            State { place, version, body_timeout, stage, retired: false, upload: None, queued: 0, made: 0, read };
        Ok(Self(Operation::start(places, state, (timeout, trace), sink, |_, asking| {
            for index in (0..asking.places.at.len()).filter(|index| *index != place) {
                let (device, request) = (asking.places.at[index], asking.places.describe(index, version));
                asking.ask(About::Describe(index), device, request);
            }
        })))
    }

    /// How it has ended; nothing while it is under way.
    #[must_use]
    pub fn end(&self) -> Option<RebuildEnd> {
        self.0.look(|state, _| if let Stage::Over(end) = &state.stage { Some(end.clone()) } else { None })
    }

    /// How many bytes of the fragment were made by now.
    #[must_use]
    pub fn made(&self) -> u64 {
        self.0.look(|state, _| state.made)
    }

    /// How many bytes of cells came from which devices, by their numbers.
    #[must_use]
    pub fn read(&self) -> Vec<(u32, u64)> {
        self.0.look(|state, _| state.read.iter().map(|(device, bytes)| (*device, *bytes)).collect())
    }

    /// Why devices, by their numbers, gave no good answer.
    #[must_use]
    pub fn refused(&self) -> Vec<(u32, Failure)> {
        self.0.look(|_, asking| asking.refused.clone())
    }
}

impl State {
    /// What is stored with a pack is known, and what all places say of it that have answered.
    fn begin_pack(&mut self, asking: &mut Asking, info: Box<FragmentInfo>) {
        if !self.retired {
            return self.begin(asking, *info);
        }
        let request = PackRequest::Retire { key: asking.places.key(self.place), pack: self.version };
        asking.ask(About::Retire, asking.places.at[self.place], request);
        self.stage = Stage::Retiring(info);
    }

    /// What is stored with the version is known: begin to make the fragment, and to send it.
    fn begin(&mut self, asking: &mut Asking, info: FragmentInfo) {
        asking.forget();
        let places = &asking.places;
        let (to, window) = (places.at[self.place], places.window());
        let (mut sources, distances) = (places.sources(&info, &[]), places.distances());
        sources[self.place].retain(|device| *device != to);
        let size = Some(info.block.geometry.fragment_bytes(self.place));
        let request = Request::Keep {
            key: places.key(self.place),
            certain: true,
            cell_bytes: places.cell_bytes as u32,
            size,
            meta: info.meta.clone(),
            row: 0,
        };
        self.upload = asking.upload(self.body_timeout, About::Keep, to, (request, size));
        self.stage = Stage::Making(Box::new(Fetching::fragment(info, self.place, (sources, distances), window)));
    }

    fn end(&mut self, asking: &mut Asking, end: RebuildEnd) {
        if !matches!(self.stage, Stage::Over(_)) {
            asking.forget();
            self.upload = None;
            self.stage = Stage::Over(end);
            asking.end();
        }
    }

    /// Send a cell on; false if that can't be done.
    fn send(&mut self, cell: Chunk) -> bool {
        self.queued += cell.len() as u64;
        self.made += cell.len() as u64;
        cell.is_empty() || self.upload.as_ref().is_some_and(|upload| upload.send(cell).is_ok())
    }

    /// All cells were made and sent: prove that they are the fragment, and have it kept.
    fn finish(&mut self, asking: &mut Asking) {
        let Stage::Making(fetching) = std::mem::replace(&mut self.stage, Stage::Keeping) else { return };
        let etag = fetching.info.etag.clone();
        let made = match fetching.made() {
            Making::Fragment(rebuild) => rebuild.finish().ok(),
            Making::Bytes(_) => None,
        };
        let Some(block) = made else { return self.end(asking, RebuildEnd::Unproved) };
        let footer = Footer { etag, block: Block { cells: Vec::new(), ..block } };
        let ended = footer.encode().map_err(Failure::from).and_then(|raw| match self.upload.take() {
            Some(upload) => upload.end(raw).map_err(Failure::Lost),
            None => Err(Failure::Lost(TransportError::Cancelled)),
        });
        if let Err(failure) = ended {
            self.end(asking, RebuildEnd::Failed(failure));
        }
    }
}

impl operation::State for State {
    type About = About;

    fn sent(&mut self, _about: &About, bytes: usize) {
        self.queued = self.queued.saturating_sub(bytes as u64);
    }

    fn answered(&mut self, asking: &mut Asking, about: About, answer: Result<Whole, Failure>) {
        match about {
            About::Describe(index) => {
                let Some(newest) = answer.ok().and_then(|(header, _)| Newest::decode(&header).ok()) else { return };
                self.retired |= newest.post.is_some_and(|post| post.timestamp > self.version.timestamp);
                let fits =
                    |(info, _): &(FragmentInfo, _)| info.version() == self.version && asking.places.fits(index, info);
                match (newest.fragment.filter(fits), &mut self.stage) {
                    (Some((info, _)), Stage::Describing(known)) if is_pack(&asking.places.key(index).digest) => {
                        known.get_or_insert(Box::new(info));
                    }
                    (Some((info, _)), Stage::Describing(_)) => self.begin(asking, info),
                    _ => {}
                }
            }
            About::Retire => match (answer, std::mem::replace(&mut self.stage, Stage::Keeping)) {
                (Ok(_), Stage::Retiring(info)) => self.begin(asking, *info),
                (Ok(_), other) => self.stage = other,
                (Err(failure), _) => self.end(asking, RebuildEnd::Failed(failure)),
            },
            About::Cells(wish) => {
                let given = answer.ok().and_then(|(header, body)| Some((Given::decode(&header).ok()?, body)));
                let bytes = given.as_ref().map_or(0, |(_, body)| body.len() as u64);
                if bytes > 0 {
                    *self.read.entry(wish.device).or_default() += bytes;
                }
                if let Stage::Making(fetching) = &mut self.stage {
                    fetching.answered(&wish, given);
                }
            }
            About::Keep => {
                let end = match answer.and_then(|(header, _)| Ok(decode_answer(&header)?)) {
                    Ok(answer) => RebuildEnd::Answered(answer),
                    Err(failure) => RebuildEnd::Failed(failure),
                };
                self.end(asking, end);
            }
        }
    }

    fn go_on(&mut self, asking: &mut Asking) {
        loop {
            match &mut self.stage {
                Stage::Over(_) | Stage::Keeping | Stage::Retiring(_) => return,
                Stage::Describing(_) if asking.open().next().is_some() => return,
                Stage::Describing(known) => match known.take() {
                    Some(info) => self.begin_pack(asking, info),
                    None => return self.end(asking, RebuildEnd::TooFew),
                },
                // Why it could not be begun is yet to be heard.
                Stage::Making(_) if self.upload.is_none() => return,
                Stage::Making(_) if self.queued > MOST_QUEUED => return,
                Stage::Making(fetching) => match fetching.next() {
                    Ok(Next::Bytes(cells)) => {
                        if !cells.into_iter().all(|cell| self.send(cell)) {
                            let failure = Failure::Lost(TransportError::Overloaded);
                            return self.end(asking, RebuildEnd::Failed(failure));
                        }
                    }
                    Ok(Next::End) => return self.finish(asking),
                    Ok(Next::Wait) => {
                        let Ok(wishes) = fetching.wishes() else { return self.end(asking, RebuildEnd::TooFew) };
                        if wishes.is_empty() {
                            return;
                        }
                        for wish in wishes {
                            let (key, version) = (asking.places.key(wish.index), self.version);
                            let (device, first, end) = (wish.device, wish.stripes.start, wish.stripes.end);
                            asking.ask(About::Cells(wish), device, Request::Cells { key, version, first, end });
                        }
                    }
                    Err(_) => return self.end(asking, RebuildEnd::TooFew),
                },
            }
        }
    }

    fn dropped(&mut self, asking: &mut Asking) {
        if !matches!(self.stage, Stage::Keeping) {
            asking.forget();
        }
    }
}
