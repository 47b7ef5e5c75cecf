//! Cells of a stripe from k others, each checked before it is used.

use std::fmt;
use std::ops::Range;

use swiftlet_erasure::{Decoder, Error, Geometry, MAX_CELLS, Stripe};
use swiftlet_hash::xxh3_64;

/// A cell that has to be read, of whoever has the fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The fragment.
    pub index: usize,
    /// The cell's number in the fragment, which is its stripe's.
    pub stripe: u64,
    /// Where it is in the fragment.
    pub bytes: Range<u64>,
}

/// A cell that was read, with the digest that is stored for it.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Its xxh3 by the fragment's block.
    pub xxh3: u64,
}

/// Why cells can't be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Short {
    /// A cell has other bytes than its digest says: the fragment is not to be used.
    Wrong {
        /// The fragment.
        index: usize,
    },
    /// Too few fragments are left.
    TooFew {
        /// How many are.
        usable: usize,
        /// How many are needed.
        needed: usize,
    },
    /// Not the cells that were asked for.
    Count,
}

impl fmt::Display for Short {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong { index } => write!(out, "a cell of fragment {index} has other bytes than its digest says"),
            Self::TooFew { usable, needed } => write!(out, "{usable} fragments can be read, and {needed} are needed"),
            Self::Count => write!(out, "other cells were given than were asked for"),
        }
    }
}

impl std::error::Error for Short {}

/// How cells of a stripe are had.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// Cells to read.
    pub(crate) wanted: Vec<Wanted>,
    /// Cells to restore from them.
    pub(crate) lost: Vec<usize>,
}

/// Restores cells of an object's stripes, with one decoder for all stripes that have lost the same ones.
#[derive(Clone, Debug)]
pub(crate) struct Restorer {
    pub(crate) geometry: Geometry,
    /// Fragments that can be read, the best one first.
    usable: Vec<usize>,
    decoder: Option<Decoder>,
}

impl Restorer {
    pub(crate) fn new(geometry: Geometry, usable: &[usize]) -> Self {
        let mut once: Vec<usize> = Vec::new();
        for index in usable.iter().filter(|index| **index < geometry.scheme().cells()) {
            if !once.contains(index) {
                once.push(*index);
            }
        }
        Self { geometry, usable: once, decoder: None }
    }

    pub(crate) fn lose(&mut self, index: usize) {
        self.usable.retain(|other| *other != index);
    }

    /// How these cells of a stripe are had: those that can be read are read, and if there are others, as many more as
    /// they need. Empty cells are known.
    pub(crate) fn plan(&self, number: u64, cells: &[usize]) -> Result<Plan, Short> {
        let Some(stripe) = self.geometry.stripe(number) else { return Ok(Plan::default()) };
        let is_empty = |index: usize| stripe.cell(index).is_some_and(|cell| cell.bytes == 0);
        let (mut read, mut lost) = (Vec::new(), Vec::new());
        for index in cells.iter().copied().filter(|index| !is_empty(*index)) {
            if self.usable.contains(&index) { read.push(index) } else { lost.push(index) }
        }
        if !lost.is_empty() {
            let scheme = self.geometry.scheme();
            let empty = (0..scheme.data()).filter(|index| is_empty(*index)).count();
            let others = self.usable.iter().copied().filter(|index| !read.contains(index) && !is_empty(*index));
            let missing = scheme.data().saturating_sub(empty + read.len());
            let more: Vec<usize> = others.take(missing).collect();
            if more.len() < missing {
                return Err(Short::TooFew { usable: empty + read.len() + more.len(), needed: scheme.data() });
            }
            read.extend(more);
        }
        let wanted = read.into_iter().map(|index| wanted(&stripe, number, index)).collect();
        Ok(Plan { wanted, lost })
    }

    /// Whether the cells are those that were asked for, with the right bytes.
    pub(crate) fn check(plan: &Plan, given: &[Given<'_>]) -> Result<(), Short> {
        if given.len() != plan.wanted.len() {
            return Err(Short::Count);
        }
        for (wanted, given) in plan.wanted.iter().zip(given) {
            let length = wanted.bytes.end - wanted.bytes.start;
            if given.bytes.len() as u64 != length || xxh3_64(given.bytes) != given.xxh3 {
                return Err(Short::Wrong { index: wanted.index });
            }
        }
        Ok(())
    }

    /// Restore the lost cells of a plan into `made`, one behind the other.
    pub(crate) fn restore(
        &mut self,
        number: u64,
        plan: &Plan,
        given: &[Given<'_>],
        made: &mut Vec<u8>,
    ) -> Result<(), Error> {
        made.clear();
        let Some(stripe) = self.geometry.stripe(number).filter(|_| !plan.lost.is_empty()) else { return Ok(()) };
        let scheme = self.geometry.scheme();
        let mut available: Vec<usize> = plan.wanted.iter().map(|wanted| wanted.index).collect();
        available.extend((0..scheme.data()).filter(|index| stripe.cell(*index).is_some_and(|cell| cell.bytes == 0)));
        available.truncate(scheme.data());
        let decoder = match self.decoder {
            Some(decoder) if decoder.sources() == available && decoder.wanted() == plan.lost => decoder,
            _ => Decoder::new(scheme, &available, &plan.lost)?,
        };
        self.decoder = Some(decoder);
        let lengths: Vec<usize> =
            plan.lost.iter().map(|index| stripe.cell(*index).map_or(0, |cell| cell.bytes)).collect();
        made.resize(lengths.iter().sum(), 0);
        let mut sources: [&[u8]; MAX_CELLS] = [&[]; MAX_CELLS];
        for (source, given) in sources.iter_mut().zip(given) {
            *source = given.bytes;
        }
        let mut rest = &mut made[..];
        let mut outputs: Vec<&mut [u8]> = Vec::with_capacity(lengths.len());
        for length in lengths {
            let (output, others) = rest.split_at_mut(length);
            outputs.push(output);
            rest = others;
        }
        decoder.restore(&sources[..scheme.data()], &mut outputs)
    }
}

fn wanted(stripe: &Stripe, number: u64, index: usize) -> Wanted {
    let bytes = stripe.cell(index).map_or(0..0, |cell| cell.fragment_offset..cell.fragment_offset + cell.bytes as u64);
    Wanted { index, stripe: number, bytes }
}
