//! A lost fragment from k others, with the proof that it is the one that was lost.

use std::fmt;
use std::ops::Range;

use swiftlet_hash::xxh3_64;

use crate::block::{Block, total};
use crate::restoring::{Given, Plan, Restorer, Short, Wanted};

/// The fragment that was made is not the one that the others know: it must not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unproved;

impl fmt::Display for Unproved {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a rebuilt fragment has other digests than the others have stored for it")
    }
}

impl std::error::Error for Unproved {}

/// A fragment that is being made, cell by cell.
#[derive(Clone, Debug)]
pub struct Rebuild {
    restorer: Restorer,
    index: usize,
    source: Block,
    cells: Vec<u64>,
    plan: Plan,
    made: Vec<u8>,
}

impl Rebuild {
    /// Fragment `index` of the write that `source` is a block of, from these fragments. It may be one of them, if its
    /// bytes come from elsewhere and are to be proved.
    #[must_use]
    pub fn new(source: Block, index: usize, usable: &[usize]) -> Self {
        let restorer = Restorer::new(source.geometry, usable);
        Self { restorer, index, source, cells: Vec::new(), plan: Plan::default(), made: Vec::new() }
    }

    /// A fragment can't be read any more. Ask again what is wanted.
    pub fn lose(&mut self, index: usize) {
        self.restorer.lose(index);
    }

    /// Go on with these fragments, and no others. Ask again what is wanted.
    pub fn read_from(&mut self, usable: &[usize]) {
        self.restorer = Restorer::new(self.restorer.geometry, usable);
        self.plan = Plan::default();
    }

    /// The cells that will have to be read for a later one, as long as the same fragments can be read.
    pub fn later(&self, stripe: u64) -> Result<Vec<Wanted>, Short> {
        Ok(self.restorer.plan(stripe, &[self.index])?.wanted)
    }

    /// The stripes that are yet to come.
    #[must_use]
    pub fn left(&self) -> Range<u64> {
        self.cells.len() as u64..self.source.geometry.stripes()
    }

    /// The cells that have to be read for the next cell of the fragment; nothing after the last one.
    pub fn wanted(&mut self) -> Result<Option<&[Wanted]>, Short> {
        let number = self.cells.len() as u64;
        if number >= self.source.geometry.stripes() {
            return Ok(None);
        }
        self.plan = self.restorer.plan(number, &[self.index])?;
        Ok(Some(&self.plan.wanted))
    }

    /// Take the cells that were wanted, in their order, and return the next cell of the fragment.
    pub fn give(&mut self, cells: &[Given<'_>]) -> Result<&[u8], Short> {
        Restorer::check(&self.plan, cells)?;
        let number = self.cells.len() as u64;
        let restored = self.restorer.restore(number, &self.plan, cells, &mut self.made);
        restored.map_err(|_| Short::Count)?;
        if let (true, [moved]) = (self.plan.lost.is_empty(), cells) {
            self.made.extend_from_slice(moved.bytes);
        }
        self.cells.push(xxh3_64(&self.made));
        self.plan = Plan::default();
        Ok(&self.made)
    }

    /// The block of the fragment, if it is the one that was lost: the digest over its cells' digests is what the other
    /// fragments have stored.
    pub fn finish(self) -> Result<Block, Unproved> {
        let is_whole = self.cells.len() as u64 == self.source.geometry.stripes();
        if is_whole && Some(&total(&self.cells)) == self.source.totals.get(self.index) {
            Ok(Block { index: self.index, cells: self.cells, ..self.source })
        } else {
            Err(Unproved)
        }
    }
}
