//! A range of one version of an object, or one of its fragments, from cells that come in any order: which are asked for,
//! of whom, and what they give. No I/O.
//!
//! Fault model: whoever is asked for cells may not have them, be late, or send other bytes. Cells of a fragment are then
//! asked for at the next device that may have it; after the last one, other fragments stand in for it, as they do while
//! it is late. A late one is used again when it comes, or when there are too few without it. When too few fragments are
//! left, all devices are asked again, if anything was made since that was done last: those that failed before may have
//! been restarted meanwhile.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use swiftlet_fragments::Version;
use swiftlet_fragments::assembly::{Assembly, Part};
use swiftlet_fragments::rebuilding::Rebuild;
use swiftlet_fragments::restoring::{Given as GivenCell, Short, Wanted};
use swiftlet_store::model::FragmentInfo;
use swiftlet_transport::Chunk;

use super::answering::Came;
use super::places::FAR;
use crate::message::fragments::{Cells, Given};

/// A cell that has come, where the answer lies in which it came.
#[derive(Clone, Debug)]
struct Cell {
    bytes: Chunk,
    xxh3: u64,
}

/// Cells to ask a device for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) index: usize,
    pub(super) device: u32,
    pub(super) stripes: Range<u64>,
}

/// What there is next.
#[derive(Debug)]
pub(super) enum Next {
    /// The bytes of a stripe, or its cell, in pieces.
    Bytes(Vec<Chunk>),
    /// Cells have to come first.
    Wait,
    /// All was given.
    End,
}

/// What is made of the cells of each stripe.
#[derive(Debug)]
pub(super) enum Making {
    /// The bytes of a range.
    Bytes(Assembly),
    /// A cell of a fragment.
    Fragment(Rebuild),
}

impl Making {
    fn read_from(&mut self, usable: &[usize]) {
        match self {
            Self::Bytes(assembly) => assembly.read_from(usable),
            Self::Fragment(rebuild) => rebuild.read_from(usable),
        }
    }

    fn left(&self) -> Range<u64> {
        match self {
            Self::Bytes(assembly) => assembly.left(),
            Self::Fragment(rebuild) => rebuild.left(),
        }
    }

    fn later(&self, stripe: u64) -> Result<Vec<Wanted>, Short> {
        match self {
            Self::Bytes(assembly) => assembly.later(stripe),
            Self::Fragment(rebuild) => rebuild.later(stripe),
        }
    }

    fn wanted(&mut self) -> Result<Option<Vec<Wanted>>, Short> {
        let wanted = match self {
            Self::Bytes(assembly) => assembly.wanted(),
            Self::Fragment(rebuild) => rebuild.wanted(),
        };
        Ok(wanted?.map(<[Wanted]>::to_vec))
    }

    /// The bytes that are made of these cells: of an object where they are in the cells, as far as none are lost.
    fn give(&mut self, cells: &[&Cell]) -> Result<Vec<Chunk>, Short> {
        let given: Vec<GivenCell<'_>> =
            cells.iter().map(|cell| GivenCell { bytes: &cell.bytes, xxh3: cell.xxh3 }).collect();
        match self {
            Self::Bytes(assembly) => {
                let mut pieces = Vec::with_capacity(cells.len());
                assembly.give_parts(&given, |part| {
                    pieces.push(match part {
                        Part::Given(at, within) => cells[at].bytes.part(within),
                        Part::Restored(bytes) => Chunk::from(bytes.to_vec()),
                    });
                })?;
                Ok(pieces)
            }
            Self::Fragment(rebuild) => Ok(vec![Chunk::from(rebuild.give(&given)?.to_vec())]),
        }
    }
}

/// What is being read.
#[derive(Debug)]
pub(super) struct Fetching {
    pub(super) info: FragmentInfo,
    making: Making,
    /// For each fragment the devices that may have it, the one that is asked first.
    sources: Vec<VecDeque<u32>>,
    /// The same when nobody had failed.
    all_sources: Vec<VecDeque<u32>>,
    /// The first stripe that was still to be given when all of them were asked last.
    renewed: u64,
    /// How far away devices are, by their numbers.
    distances: Arc<[u8]>,
    late: BTreeSet<usize>,
    cells: BTreeMap<(u64, usize), Cell>,
    /// Cells that were asked for and have not come.
    asked: BTreeSet<(u64, usize)>,
    /// Stripes that are asked for at once.
    window: u64,
    /// Up to where stripes are asked for: one window at least ahead of what was given, and two at most.
    end: u64,
    /// Up to where that was done as it is planned now.
    planned: u64,
}

impl Fetching {
    /// These bytes, from `sources`: for each fragment the devices that may have it. Fragments of which the first one
    /// `has_failed` are read from only as far as others are not enough.
    pub(super) fn bytes(
        info: FragmentInfo,
        bytes: Range<u64>,
        sources: Vec<VecDeque<u32>>,
        has_failed: impl Fn(u32) -> bool,
        window: u64,
    ) -> Self {
        let making = Making::Bytes(Assembly::new(info.block.geometry, bytes, &[]));
        let first = sources.iter().map(|devices| devices.front().copied()).enumerate();
        let late = first.filter(|(_, device)| device.is_some_and(&has_failed)).map(|(index, _)| index).collect();
        Self::new(info, making, (sources, Arc::default()), late, window)
    }

    /// The cells of a fragment, of near fragments first, and of far ones only as far as near ones are too few.
    pub(super) fn fragment(
        info: FragmentInfo,
        index: usize,
        sources: (Vec<VecDeque<u32>>, Arc<[u8]>),
        window: u64,
    ) -> Self {
        let making = Making::Fragment(Rebuild::new(info.block.clone(), index, &[]));
        Self::new(info, making, sources, BTreeSet::new(), window)
    }

    fn new(
        info: FragmentInfo,
        making: Making,
        (sources, distances): (Vec<VecDeque<u32>>, Arc<[u8]>),
        late: BTreeSet<usize>,
        window: u64,
    ) -> Self {
        let end = making.left().start;
        let (cells, asked) = (BTreeMap::new(), BTreeSet::new());
        let (all_sources, renewed) = (sources.clone(), end);
        let mut fetching = Self {
            info,
            making,
            sources,
            all_sources,
            renewed,
            distances,
            late,
            cells,
            asked,
            window,
            end,
            planned: 0,
        };
        fetching.plan();
        fetching
    }

    /// What was made, when all of it was.
    pub(super) fn made(self) -> Making {
        self.making
    }

    pub(super) fn version(&self) -> Version {
        self.info.version()
    }

    /// The first stripe that wasn't given yet.
    pub(super) fn first(&self) -> u64 {
        self.making.left().start
    }

    /// How far away the device is that a fragment is asked of.
    fn distance(&self, index: usize) -> u8 {
        let device = self.sources[index].front();
        device.and_then(|device| self.distances.get(*device as usize)).copied().unwrap_or(0)
    }

    /// The fragments that somebody may have who has not failed.
    fn with_source(&self) -> Vec<usize> {
        (0..self.sources.len()).filter(|index| !self.sources[*index].is_empty()).collect()
    }

    /// Go on with the fragments that can be read now: near ones first, if they are enough without any far one.
    fn plan(&mut self) {
        let needed = self.info.block.geometry.scheme().data();
        if self.first() > self.renewed && self.with_source().len() < needed {
            self.renewed = self.first();
            self.sources.clone_from(&self.all_sources);
        }
        let mut usable = self.with_source();
        usable.sort_by_key(|index| self.distance(*index));
        let (late, mut usable): (Vec<usize>, Vec<usize>) =
            usable.into_iter().partition(|index| self.late.contains(index));
        let near = usable.iter().take_while(|index| self.distance(**index) < FAR).count();
        if near >= needed {
            usable.truncate(near);
        }
        if usable.len() < needed {
            usable.extend(late);
        }
        self.making.read_from(&usable);
        self.planned = 0;
    }

    /// The cells to ask for now; they count as asked for.
    pub(super) fn wishes(&mut self) -> Result<Vec<Wish>, Short> {
        let left = self.making.left();
        while self.end < left.end && self.end < left.start + self.window {
            self.end = left.end.min(self.end + self.window);
        }
        let mut wishes: Vec<Wish> = Vec::new();
        for stripe in left.start.max(self.planned)..self.end {
            for Wanted { index, .. } in self.making.later(stripe)? {
                let Some(&device) = self.sources[index].front() else { continue };
                if self.cells.contains_key(&(stripe, index)) || !self.asked.insert((stripe, index)) {
                    continue;
                }
                let goes_on = |wish: &&mut Wish| {
                    let Range { start, end } = wish.stripes;
                    wish.index == index && end == stripe && end - start < self.window
                };
                match wishes.iter_mut().find(goes_on) {
                    Some(wish) => wish.stripes.end += 1,
                    None => wishes.push(Wish { index, device, stripes: stripe..stripe + 1 }),
                }
            }
        }
        self.planned = self.end;
        Ok(wishes)
    }

    /// A device has answered with cells, or without.
    pub(super) fn answered(&mut self, wish: &Wish, given: Option<(Given, Came)>) {
        let Range { start, end } = wish.stripes;
        let is_good = match given {
            Some((Given::Cells(cells), body)) if cells.first == start && cells.xxh3.len() as u64 == end - start => {
                self.came(wish.index, &cells, &body)
            }
            _ => false,
        };
        if !is_good {
            self.failed(wish);
        }
    }

    /// Copy what has come and was not given yet, as it may not be given for a while: its memory goes back.
    pub(super) fn copy(&mut self) {
        for cell in self.cells.values_mut().filter(|cell| cell.bytes.is_in_any_pool()) {
            cell.bytes = Chunk::from(cell.bytes.to_vec());
        }
    }

    /// These cells are on their way already.
    pub(super) fn expect(&mut self, wish: &Wish) {
        self.asked.extend(wish.stripes.clone().map(|stripe| (stripe, wish.index)));
    }

    /// What was expected has come, or other cells, or none.
    pub(super) fn came_unasked(&mut self, wish: &Wish, cells: Option<(Cells, Came)>) {
        if cells.is_some_and(|(cells, body)| !self.came(wish.index, &cells, &body)) {
            return self.failed(wish);
        }
        let lacking = wish.stripes.clone().filter(|stripe| self.asked.remove(&(*stripe, wish.index))).count();
        if lacking > 0 {
            self.plan();
        }
    }

    /// Cells of a fragment have come, one behind the other; false if they are not what they say they are.
    pub(super) fn came(&mut self, index: usize, cells: &Cells, answer: &Came) -> bool {
        let geometry = self.info.block.geometry;
        let Some(end) = cells.first.checked_add(cells.xxh3.len() as u64).filter(|end| *end <= geometry.stripes())
        else {
            return false;
        };
        let span = geometry.span(index, cells.first..end);
        if span.end - span.start != answer.len() as u64 {
            return false;
        }
        for (stripe, xxh3) in (cells.first..end).zip(&cells.xxh3) {
            let cell = geometry.stripe(stripe).and_then(|stripe| stripe.cell(index));
            let within = cell.map_or(0..0, |cell| {
                let start = (cell.fragment_offset - span.start) as usize;
                start..start + cell.bytes
            });
            self.asked.remove(&(stripe, index));
            if stripe >= self.first() {
                self.cells.insert((stripe, index), Cell { bytes: answer.part(within), xxh3: *xxh3 });
            }
        }
        if self.late.remove(&index) {
            self.plan();
        }
        true
    }

    /// A device doesn't give these cells of a fragment: nothing of the fragment is asked of it any more.
    fn failed(&mut self, Wish { index, device, stripes }: &Wish) {
        stripes.clone().for_each(|stripe| {
            self.asked.remove(&(stripe, *index));
        });
        self.sources[*index].retain(|other| other != device);
        self.late.remove(index);
        self.plan();
    }

    /// Whether others can stand in for a fragment, which is not late yet.
    pub(super) fn can_replace(&self, index: usize) -> bool {
        let others = (0..self.sources.len())
            .filter(|other| *other != index && !self.late.contains(other) && !self.sources[*other].is_empty());
        !self.late.contains(&index) && others.count() >= self.info.block.geometry.scheme().data()
    }

    /// What was asked for of a fragment doesn't come in time, and others can stand in for it.
    pub(super) fn is_late(&mut self, index: usize) {
        self.late.insert(index);
        self.plan();
    }

    /// The next stripe's bytes, if its cells are here. A wrong cell is forgotten, and so is the device that gave it.
    pub(super) fn next(&mut self) -> Result<Next, Short> {
        loop {
            let number = self.first();
            let Some(wanted) = self.making.wanted()? else { return Ok(Next::End) };
            let here: Option<Vec<&Cell>> =
                wanted.iter().map(|wanted| self.cells.get(&(number, wanted.index))).collect();
            let Some(here) = here else { return Ok(Next::Wait) };
            match self.making.give(&here) {
                Ok(pieces) => {
                    self.cells = self.cells.split_off(&(number + 1, 0));
                    self.asked = self.asked.split_off(&(number + 1, 0));
                    return Ok(Next::Bytes(pieces));
                }
                Err(Short::Wrong { index }) => {
                    self.cells.retain(|(_, of), _| *of != index);
                    self.sources[index].pop_front();
                    self.plan();
                }
                Err(short) => return Err(short),
            }
        }
    }
}
