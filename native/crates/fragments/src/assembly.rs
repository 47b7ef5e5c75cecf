//! A range of an object from its fragments: of each stripe only the cells that it needs are read.

use std::ops::Range;

use swiftlet_erasure::{Geometry, Piece};

use crate::restoring::{Given, Plan, Restorer, Short, Wanted};

/// Bytes of a range, in one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// They are in the cell that was given at this position.
    Given(usize, Range<usize>),
    /// They had to be restored.
    Restored(&'a [u8]),
}

/// A range of an object, stripe after stripe.
///
/// ```text
/// while let Some(wanted) = assembly.next()? { read wanted; assembly.give(&cells, |bytes| ...)? }
/// ```
#[derive(Clone, Debug)]
pub struct Assembly {
    restorer: Restorer,
    bytes: Range<u64>,
    stripes: Range<u64>,
    plan: Plan,
    made: Vec<u8>,
}

impl Assembly {
    /// These bytes of an object, from these fragments: the ones that are read first come first, where there is a choice.
    #[must_use]
    pub fn new(geometry: Geometry, bytes: Range<u64>, usable: &[usize]) -> Self {
        let stripes = geometry.stripes_of(bytes.clone());
        Self { restorer: Restorer::new(geometry, usable), bytes, stripes, plan: Plan::default(), made: Vec::new() }
    }

    /// A fragment can't be read any more. Ask again what is wanted: the stripe needs other cells.
    pub fn lose(&mut self, index: usize) {
        self.restorer.lose(index);
    }

    /// The cells of the next stripe that have to be read; nothing after the last one. If all data cells of the range can
    /// be read, it is these alone; else k of the stripe.
    pub fn wanted(&mut self) -> Result<Option<&[Wanted]>, Short> {
        if self.stripes.is_empty() {
            return Ok(None);
        }
        self.plan = self.planned(self.stripes.start)?;
        Ok(Some(&self.plan.wanted))
    }

    /// Go on with these fragments, and no others. Ask again what is wanted.
    pub fn read_from(&mut self, usable: &[usize]) {
        self.restorer = Restorer::new(self.restorer.geometry, usable);
        self.plan = Plan::default();
    }

    /// The cells of a later stripe that will have to be read, as long as the same fragments can be read.
    pub fn later(&self, stripe: u64) -> Result<Vec<Wanted>, Short> {
        Ok(self.planned(stripe)?.wanted)
    }

    /// The stripes that are yet to come.
    #[must_use]
    pub fn left(&self) -> Range<u64> {
        self.stripes.clone()
    }

    fn planned(&self, stripe: u64) -> Result<Plan, Short> {
        let cells: Vec<usize> = self.pieces(stripe).map(|piece| piece.cell).collect();
        self.restorer.plan(stripe, &cells)
    }

    /// Take the cells that were wanted, in their order, and give the stripe's bytes. A cell that is wrong is named, and
    /// nothing was given then: [`Assembly::lose`] it.
    pub fn give(&mut self, cells: &[Given<'_>], mut sink: impl FnMut(&[u8])) -> Result<(), Short> {
        self.give_parts(cells, |part| match part {
            Part::Given(at, within) => sink(&cells[at].bytes[within]),
            Part::Restored(bytes) => sink(bytes),
        })
    }

    /// The same for a caller that has its cells where they may stay: it is told where the stripe's bytes are in them.
    pub fn give_parts(&mut self, cells: &[Given<'_>], mut sink: impl FnMut(Part<'_>)) -> Result<(), Short> {
        Restorer::check(&self.plan, cells)?;
        let number = self.stripes.start;
        let mut made = std::mem::take(&mut self.made);
        let restored = self.restorer.restore(number, &self.plan, cells, &mut made);
        restored.map_err(|_| Short::Count)?;
        self.made = made;
        for piece in self.pieces(number) {
            let read = self.plan.wanted.iter().position(|wanted| wanted.index == piece.cell);
            sink(match read {
                Some(at) => Part::Given(at, piece.within),
                None => Part::Restored(&self.restored(number, piece.cell)[piece.within]),
            });
        }
        self.stripes.start += 1;
        self.plan = Plan::default();
        Ok(())
    }

    fn restored(&self, number: u64, index: usize) -> &[u8] {
        let length = |index: usize| {
            let stripe = self.restorer.geometry.stripe(number);
            stripe.and_then(|stripe| stripe.cell(index)).map_or(0, |cell| cell.bytes)
        };
        let before = self.plan.lost.iter().take_while(|other| **other != index);
        let start: usize = before.map(|other| length(*other)).sum();
        &self.made[start..start + length(index)]
    }

    /// The pieces of the range in a stripe.
    fn pieces(&self, stripe: u64) -> impl Iterator<Item = Piece> + use<> {
        let geometry = self.restorer.geometry;
        let stripe = geometry.stripe(stripe);
        let bytes = stripe.map_or(0..0, |stripe| {
            self.bytes.start.max(stripe.offset)..self.bytes.end.min(stripe.offset + stripe.bytes as u64)
        });
        geometry.pieces(bytes)
    }
}
