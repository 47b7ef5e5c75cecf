//! The bytes of a member of a pack, which come in any order: which are asked for, of whom, and what they give. No I/O.
//!
//! A reference says where the member is in its pack. So that a small object costs one small read, just these bytes are
//! asked for, of whoever has the cells; where that is nobody, the same columns of k others, from which they are restored.
//! Nothing but the member's own check proves them. If that is wrong, or too few have them, whole cells are asked for with
//! their digests, as of any object: that finds which cell is rotten, and does without it.
//!
//! Fault model: whoever is asked may not have anything, be late, or send other bytes.

use std::collections::{BTreeMap, BTreeSet};

use swiftlet_erasure::{Decoder, Geometry, Piece};
use swiftlet_fragments::packs::Pack;
use swiftlet_fragments::packs::member::Packed;
use swiftlet_fragments::packs::table::Reference;
use swiftlet_store::model::{FragmentInfo, Key};

use super::answering::Whole;
use super::fetching::{Fetching, Next, Wish as CellWish};
use super::places::Places;
use crate::client::Failure;
use crate::message::Request;
use crate::message::fragments::{Given, Newest, Request as FragmentRequest};
use crate::message::packs::Request as PackRequest;

/// What a place has said of an object that is in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Referred {
    /// The pack.
    pub pack: Pack,
    /// Which bytes of it.
    pub reference: Reference,
    /// How many bytes the pack has, if the place knows.
    pub pack_bytes: Option<u64>,
}

/// Something to ask a device for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Bytes of a fragment as they are.
    Piece {
        /// The fragment, and the device.
        index: usize,
        device: u32,
        /// Which part of the member they are for.
        number: usize,
        /// Where they begin in the fragment.
        start: u64,
        /// How many they are.
        bytes: u32,
    },
    /// What is stored with a fragment.
    Describe { index: usize, device: u32 },
    /// Whole cells.
    Cells(CellWish),
}

impl Wish {
    pub(super) fn device(&self) -> u32 {
        match self {
            Self::Piece { device, .. } | Self::Describe { device, .. } => *device,
            Self::Cells(wish) => wish.device,
        }
    }

    /// The fragment.
    pub(super) fn index(&self) -> usize {
        match self {
            Self::Piece { index, .. } | Self::Describe { index, .. } => *index,
            Self::Cells(wish) => wish.index,
        }
    }

    /// What is sent for it.
    pub(super) fn request(&self, places: &Places, pack: Pack) -> Request {
        let key = Key { digest: pack.digest, ..places.key(self.index()) };
        let version = pack.version;
        match self {
            Self::Piece { start, bytes, .. } => {
                PackRequest::Piece { key, pack: version, start: *start, bytes: *bytes }.into()
            }
            Self::Describe { .. } => match places.describe(self.index(), version) {
                FragmentRequest::Newest { below, start, stop, .. } => {
                    FragmentRequest::Newest { key, below, start, stop }.into()
                }
                other => other.into(),
            },
            Self::Cells(wish) => {
                let (first, end) = (wish.stripes.start, wish.stripes.end);
                FragmentRequest::Cells { key, version, first, end }.into()
            }
        }
    }
}

/// The member's bytes as they are.
#[derive(Debug)]
struct Pieces {
    geometry: Geometry,
    parts: Vec<Piece>,
    /// Fragments that are of no use.
    without: BTreeSet<usize>,
    late: BTreeSet<usize>,
    asked: BTreeSet<(usize, usize)>,
    came: BTreeMap<(usize, usize), Vec<u8>>,
}

/// Too few fragments can be read.
struct TooFew;

impl Pieces {
    fn new(places: &Places, geometry: Geometry, reference: &Reference) -> Self {
        let end = reference.offset + u64::from(reference.length);
        let parts = geometry.pieces(reference.offset..end).collect();
        let has_failed = |(_, device): &(usize, &u32)| places.devices.has_failed(**device);
        let late = places.at.iter().enumerate().filter(has_failed).map(|(index, _)| index).collect();
        let without = BTreeSet::new();
        Self { geometry, parts, without, late, asked: BTreeSet::new(), came: BTreeMap::new() }
    }

    /// Where the columns of a part are in a fragment, and how many bytes of them it has.
    fn columns(&self, part: &Piece, index: usize) -> (u64, usize) {
        let cell = self.geometry.stripe(part.stripe).and_then(|stripe| stripe.cell(index));
        cell.map_or((0, 0), |cell| {
            let end = part.within.end.min(cell.bytes);
            (cell.fragment_offset + part.within.start as u64, end.saturating_sub(part.within.start))
        })
    }

    /// The fragments that give a part: its own, or k others, those that are not late first.
    fn sources(&self, part: &Piece) -> Result<Vec<usize>, TooFew> {
        let usable = |index: &usize| !self.without.contains(index);
        if usable(&part.cell) && !self.late.contains(&part.cell) {
            return Ok(vec![part.cell]);
        }
        let scheme = self.geometry.scheme();
        // What is beyond a cell's end is known.
        let (empty, has): (Vec<usize>, Vec<usize>) = (0..scheme.cells())
            .filter(|index| *index != part.cell)
            .partition(|index| self.columns(part, *index).1 == 0);
        let (late, timely): (Vec<usize>, Vec<usize>) =
            has.into_iter().filter(usable).partition(|index| self.late.contains(index));
        let mut sources = empty;
        sources.extend(timely.into_iter().chain(late));
        sources.truncate(scheme.data());
        if sources.len() < scheme.data() {
            // With the late one itself it may be had yet.
            return if usable(&part.cell) { Ok(vec![part.cell]) } else { Err(TooFew) };
        }
        Ok(sources)
    }

    /// What to ask for now; it counts as asked for.
    fn wishes(&mut self, places: &Places) -> Result<Vec<Wish>, TooFew> {
        let mut wishes = Vec::new();
        for (number, part) in self.parts.iter().enumerate() {
            for index in self.sources(part)? {
                let (start, bytes) = self.columns(part, index);
                if bytes > 0 && !self.came.contains_key(&(number, index)) && !self.asked.contains(&(number, index)) {
                    let (device, bytes) = (places.at[index], bytes as u32);
                    wishes.push(Wish::Piece { index, device, number, start, bytes });
                }
            }
        }
        self.asked.extend(wishes.iter().filter_map(|wish| match wish {
            Wish::Piece { index, number, .. } => Some((*number, *index)),
            _ => None,
        }));
        Ok(wishes)
    }

    /// How many others stand in for a fragment that is not late yet, if they can.
    fn replacing(&self, index: usize) -> Option<usize> {
        let usable = |index: &usize| !self.without.contains(index) && !self.late.contains(index);
        let scheme = self.geometry.scheme();
        let others = (0..scheme.cells()).filter(|other| *other != index && usable(other)).count();
        let is_own = self.parts.iter().any(|part| part.cell == index);
        (usable(&index) && others >= scheme.data()).then_some(if is_own { scheme.data() } else { 1 })
    }

    fn answered(&mut self, number: usize, index: usize, bytes: Option<Vec<u8>>) {
        self.asked.remove(&(number, index));
        let fits =
            |bytes: &Vec<u8>| self.parts.get(number).is_some_and(|part| self.columns(part, index).1 == bytes.len());
        match bytes.filter(fits) {
            Some(bytes) => {
                self.late.remove(&index);
                self.came.insert((number, index), bytes);
            }
            None => {
                self.without.insert(index);
            }
        }
    }

    fn part(&self, number: usize, part: &Piece) -> Option<Vec<u8>> {
        if let Some(bytes) = self.came.get(&(number, part.cell)) {
            return Some(bytes.clone());
        }
        let scheme = self.geometry.scheme();
        let here = |index: &usize| self.columns(part, *index).1 == 0 || self.came.contains_key(&(number, *index));
        let here: Vec<usize> = (0..scheme.cells()).filter(|index| *index != part.cell).filter(here).collect();
        let decoder = Decoder::new(scheme, &here, &[part.cell]).ok()?;
        let none = Vec::new();
        let given: Vec<&[u8]> =
            decoder.sources().iter().map(|index| &**self.came.get(&(number, *index)).unwrap_or(&none)).collect();
        let mut bytes = vec![0; part.within.len()];
        decoder.restore(&given, &mut [&mut bytes]).ok()?;
        Some(bytes)
    }

    /// The member, once all of it can be put together.
    fn member(&self) -> Option<Vec<u8>> {
        let mut member = Vec::new();
        for (number, part) in self.parts.iter().enumerate() {
            member.extend(self.part(number, part)?);
        }
        Some(member)
    }
}

#[derive(Debug)]
enum Stage {
    Pieces(Pieces),
    /// What is stored with the pack is asked of everybody; so many have yet to answer, once they are asked.
    Describing(Option<usize>),
    Cells(Box<Fetching>, Vec<u8>),
    Found(Vec<u8>),
    /// The pack can't be read, or has something else in this place.
    Lost,
}

/// Whether these are the bytes of the version to which a reference leads.
fn is_it(reference: &Reference, bytes: &[u8]) -> bool {
    let Reference { digest, timestamp, .. } = *reference;
    Packed::parse(bytes).is_some_and(|packed| (packed.digest, packed.timestamp) == (digest, timestamp))
}

/// The bytes of one member on their way.
#[derive(Debug)]
pub(super) struct Member {
    pack: Pack,
    reference: Reference,
    stage: Stage,
}

impl Member {
    /// What this reference leads to, in a pack of so many bytes if that is known.
    pub(super) fn new(places: &Places, pack: Pack, reference: Reference, pack_bytes: Option<u64>) -> Self {
        let end = reference.offset.checked_add(reference.length.into());
        let geometry = pack_bytes.filter(|bytes| end.is_some_and(|end| end <= *bytes));
        let geometry = geometry.and_then(|bytes| Geometry::new(places.scheme, places.cell_bytes, bytes).ok());
        let pieces = geometry.map(|geometry| Stage::Pieces(Pieces::new(places, geometry, &reference)));
        Self { pack, reference, stage: pieces.unwrap_or(Stage::Describing(None)) }
    }

    pub(super) fn pack(&self) -> Pack {
        self.pack
    }

    /// How it has ended: with the member's bytes, or without.
    pub(super) fn outcome(&self) -> Option<Option<&[u8]>> {
        match &self.stage {
            Stage::Found(bytes) => Some(Some(bytes)),
            Stage::Lost => Some(None),
            _ => None,
        }
    }

    /// Draw the consequences of what was heard; what to ask for now.
    pub(super) fn wishes(&mut self, places: &Places) -> Vec<Wish> {
        let reference = self.reference;
        loop {
            match &mut self.stage {
                Stage::Pieces(pieces) => match pieces.member() {
                    Some(bytes) if is_it(&reference, &bytes) => self.stage = Stage::Found(bytes),
                    Some(_) => self.stage = Stage::Describing(None),
                    None => match pieces.wishes(places) {
                        Ok(wishes) => return wishes,
                        Err(TooFew) => self.stage = Stage::Describing(None),
                    },
                },
                Stage::Describing(None) => {
                    let at = places.at.iter().copied().enumerate();
                    let all = 0..places.at.len();
                    let spares = places.spares.iter().flat_map(|device| all.clone().map(|index| (index, *device)));
                    let asked: Vec<Wish> =
                        at.chain(spares).map(|(index, device)| Wish::Describe { index, device }).collect();
                    self.stage = Stage::Describing(Some(asked.len()));
                    return asked;
                }
                Stage::Describing(Some(0)) => self.stage = Stage::Lost,
                Stage::Describing(Some(_)) | Stage::Found(_) | Stage::Lost => return Vec::new(),
                Stage::Cells(fetching, bytes) => match fetching.next() {
                    Ok(Next::Bytes(more)) => more.iter().for_each(|more| bytes.extend_from_slice(more)),
                    Ok(Next::End) => {
                        let bytes = std::mem::take(bytes);
                        self.stage = if is_it(&reference, &bytes) { Stage::Found(bytes) } else { Stage::Lost };
                    }
                    Ok(Next::Wait) => match fetching.wishes() {
                        Ok(wishes) => return wishes.into_iter().map(Wish::Cells).collect(),
                        Err(_) => self.stage = Stage::Lost,
                    },
                    Err(_) => self.stage = Stage::Lost,
                },
            }
        }
    }

    /// A device has answered, or it is known that it won't.
    pub(super) fn answered(&mut self, places: &Places, wish: &Wish, answer: Result<Whole, Failure>) {
        match (wish, &mut self.stage) {
            (Wish::Piece { index, number, .. }, Stage::Pieces(pieces)) => {
                pieces.answered(*number, *index, answer.ok().map(|(_, body)| body.to_vec()));
            }
            (Wish::Describe { index, .. }, Stage::Describing(Some(left))) => {
                *left -= 1;
                let newest = answer.ok().and_then(|(header, _)| Newest::decode(&header).ok());
                let info = newest.and_then(|newest| newest.fragment).map(|(info, _)| info);
                let is_it = |info: &FragmentInfo| info.version() == self.pack.version && places.fits(*index, info);
                if let Some(info) = info.filter(is_it) {
                    let Reference { offset, length, .. } = self.reference;
                    let sources = places.sources(&info, &[]);
                    let range = offset..offset.saturating_add(length.into());
                    let has_failed = |device| places.devices.has_failed(device);
                    let fetching = Fetching::bytes(info, range, sources, has_failed, places.window());
                    self.stage = Stage::Cells(Box::new(fetching), Vec::new());
                }
            }
            (Wish::Cells(wish), Stage::Cells(fetching, _)) => {
                let given = answer.ok().and_then(|(header, body)| Some((Given::decode(&header).ok()?, body)));
                fetching.answered(wish, given);
            }
            // Of a stage that is over.
            _ => {}
        }
    }

    /// How many requests take the place of what is late, if others can stand in for it.
    pub(super) fn replacing(&self, wish: &Wish) -> Option<usize> {
        match (wish, &self.stage) {
            (Wish::Piece { index, .. }, Stage::Pieces(pieces)) => pieces.replacing(*index),
            (Wish::Cells(wish), Stage::Cells(fetching, _)) => fetching.can_replace(wish.index).then_some(1),
            _ => None,
        }
    }

    /// What was asked for doesn't come in time: others, which can, stand in for it.
    pub(super) fn is_late(&mut self, wish: &Wish) {
        match (wish, &mut self.stage) {
            (Wish::Piece { index, .. }, Stage::Pieces(pieces)) => {
                pieces.late.insert(*index);
            }
            (Wish::Cells(wish), Stage::Cells(fetching, _)) => fetching.is_late(wish.index),
            _ => {}
        }
    }
}
