//! A range of one version of an object, from cells that come in any order: which are asked for, of whom, and what they
//! give. No I/O.
//!
//! Fault model: whoever is asked for cells may not have them, be late, or send other bytes. Cells of a fragment are then
//! asked for at the next device that may have it; after the last one, other fragments stand in for it, as they do while
//! it is late. A late one is used again when it comes, or when there are too few without it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use swiftlet_fragments::Version;
use swiftlet_fragments::assembly::Assembly;
use swiftlet_fragments::restoring::{Given, Short, Wanted};
use swiftlet_store::model::FragmentInfo;

use crate::message::fragments::Cells;

/// A cell that has come, in the answer in which it came.
#[derive(Clone, Debug)]
struct Cell {
    answer: Arc<[u8]>,
    within: Range<usize>,
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
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The bytes of a stripe.
    Bytes(Vec<u8>),
    /// Cells have to come first.
    Wait,
    /// All was given.
    End,
}

/// A range that is being read.
#[derive(Debug)]
pub(super) struct Fetching {
    pub(super) info: FragmentInfo,
    /// What wasn't given yet.
    bytes: Range<u64>,
    assembly: Assembly,
    /// For each fragment the devices that may have it, the one that is asked first.
    sources: Vec<VecDeque<u32>>,
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
    /// These bytes, from `sources`: for each fragment the devices that may have it.
    pub(super) fn new(info: FragmentInfo, bytes: Range<u64>, sources: Vec<VecDeque<u32>>, window: u64) -> Self {
        let size = info.block.geometry.object_bytes();
        let bytes = bytes.start.min(size)..bytes.end.min(size);
        let assembly = Assembly::new(info.block.geometry, bytes.clone(), &[]);
        let end = assembly.left().start;
        let (late, cells, asked) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
        let mut fetching = Self { info, bytes, assembly, sources, late, cells, asked, window, end, planned: 0 };
        fetching.plan();
        fetching
    }

    pub(super) fn version(&self) -> Version {
        self.info.version()
    }

    /// The first stripe that wasn't given yet.
    pub(super) fn first(&self) -> u64 {
        self.assembly.left().start
    }

    /// Go on with the fragments that can be read now.
    fn plan(&mut self) {
        let has_source = |index: &usize| !self.sources[*index].is_empty();
        let usable = (0..self.sources.len()).filter(has_source);
        let (late, mut usable): (Vec<usize>, Vec<usize>) = usable.partition(|index| self.late.contains(index));
        if usable.len() < self.info.block.geometry.scheme().data() {
            usable.extend(late);
        }
        self.assembly = Assembly::new(self.info.block.geometry, self.bytes.clone(), &usable);
        self.planned = 0;
    }

    /// The cells to ask for now; they count as asked for.
    pub(super) fn wishes(&mut self) -> Result<Vec<Wish>, Short> {
        let left = self.assembly.left();
        while self.end < left.end && self.end < left.start + self.window {
            self.end = left.end.min(self.end + self.window);
        }
        let mut wishes: Vec<Wish> = Vec::new();
        for stripe in left.start.max(self.planned)..self.end {
            for Wanted { index, .. } in self.assembly.later(stripe)? {
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

    /// Cells of a fragment have come, one behind the other; false if they are not what they say they are.
    pub(super) fn came(&mut self, index: usize, cells: &Cells, answer: &[u8]) -> bool {
        let geometry = self.info.block.geometry;
        let Some(end) = cells.first.checked_add(cells.xxh3.len() as u64).filter(|end| *end <= geometry.stripes())
        else {
            return false;
        };
        let span = geometry.span(index, cells.first..end);
        if span.end - span.start != answer.len() as u64 {
            return false;
        }
        let answer: Arc<[u8]> = answer.into();
        for (stripe, xxh3) in (cells.first..end).zip(&cells.xxh3) {
            let cell = geometry.stripe(stripe).and_then(|stripe| stripe.cell(index));
            let within = cell.map_or(0..0, |cell| {
                let start = (cell.fragment_offset - span.start) as usize;
                start..start + cell.bytes
            });
            self.asked.remove(&(stripe, index));
            if stripe >= self.first() {
                self.cells.insert((stripe, index), Cell { answer: answer.clone(), within, xxh3: *xxh3 });
            }
        }
        if self.late.remove(&index) {
            self.plan();
        }
        true
    }

    /// A device doesn't give these cells of a fragment: nothing of the fragment is asked of it any more.
    pub(super) fn failed(&mut self, Wish { index, device, stripes }: &Wish) {
        stripes.clone().for_each(|stripe| {
            self.asked.remove(&(stripe, *index));
        });
        self.sources[*index].retain(|other| other != device);
        self.late.remove(index);
        self.plan();
    }

    /// What was asked for of a fragment doesn't come in time. Returns whether others can stand in for it.
    pub(super) fn is_late(&mut self, index: usize) -> bool {
        let others = (0..self.sources.len())
            .filter(|other| *other != index && !self.late.contains(other) && !self.sources[*other].is_empty());
        if self.late.contains(&index) || others.count() < self.info.block.geometry.scheme().data() {
            return false;
        }
        self.late.insert(index);
        self.plan();
        true
    }

    /// The next stripe's bytes, if its cells are here. A wrong cell is forgotten, and so is the device that gave it.
    pub(super) fn next(&mut self) -> Result<Next, Short> {
        loop {
            let number = self.first();
            let Some(wanted) = self.assembly.wanted()?.map(<[Wanted]>::to_vec) else { return Ok(Next::End) };
            let here: Option<Vec<&Cell>> =
                wanted.iter().map(|wanted| self.cells.get(&(number, wanted.index))).collect();
            let Some(here) = here else { return Ok(Next::Wait) };
            let given: Vec<Given<'_>> =
                here.iter().map(|cell| Given { bytes: &cell.answer[cell.within.clone()], xxh3: cell.xxh3 }).collect();
            let mut bytes = Vec::with_capacity(given.iter().map(|cell| cell.bytes.len()).sum());
            match self.assembly.give(&given, |piece| bytes.extend_from_slice(piece)) {
                Ok(()) => {
                    self.bytes.start += bytes.len() as u64;
                    self.cells = self.cells.split_off(&(number + 1, 0));
                    self.asked = self.asked.split_off(&(number + 1, 0));
                    return Ok(Next::Bytes(bytes));
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
