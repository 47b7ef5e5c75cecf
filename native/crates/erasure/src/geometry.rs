//! Where each byte of an object is.
//!
//! Stripe n has the cell n of each fragment, so that a cell begins in its fragment at n times the size of a cell. Data
//! fills the cells of a stripe one after another. All stripes but the last one are full; the last one divides what is
//! left evenly into shorter cells, so that a small object takes no more than (k+m)/k of its size either. With r bytes
//! left its cells have ceil(r / k) bytes, of which the last ones of the data hold less, or nothing; nothing is padded.

use std::ops::Range;

use crate::scheme::{Error, MAX_CELL_BYTES, Scheme};

/// How an object of some size is divided into cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    scheme: Scheme,
    cell_bytes: usize,
    object_bytes: u64,
}

/// A stripe of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    scheme: Scheme,
    /// Where it begins in the object.
    pub offset: u64,
    /// How many bytes of the object it has.
    pub bytes: usize,
    /// Bytes of each parity cell, which is the most that a data cell has.
    pub cell_bytes: usize,
    /// Where each of its cells begins in its fragment.
    pub fragment_offset: u64,
}

/// A cell of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Its index in the stripe, which is that of its fragment.
    pub index: usize,
    /// Its bytes: of data cells in the last stripe less than in others, or none.
    pub bytes: usize,
    /// Where it begins in its fragment.
    pub fragment_offset: u64,
}

/// Bytes of an object that are in one cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The stripe's number.
    pub stripe: u64,
    /// The cell's index in the stripe, which is that of its fragment.
    pub cell: usize,
    /// Which bytes of the cell these are.
    pub within: Range<usize>,
    /// Where the first of them is in the fragment.
    pub fragment_offset: u64,
}

impl Geometry {
    /// An object of any size, cut into cells of `cell_bytes`.
    pub fn new(scheme: Scheme, cell_bytes: usize, object_bytes: u64) -> Result<Self, Error> {
        if (1..=MAX_CELL_BYTES).contains(&cell_bytes) {
            Ok(Self { scheme, cell_bytes, object_bytes })
        } else {
            Err(Error::CellBytes(cell_bytes))
        }
    }

    /// The scheme of its stripes.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The object's size.
    #[must_use]
    pub fn object_bytes(&self) -> u64 {
        self.object_bytes
    }

    /// How many stripes the object has: none if it is empty.
    #[must_use]
    pub fn stripes(&self) -> u64 {
        self.object_bytes.div_ceil(self.stripe_bytes())
    }

    /// A stripe, if the object has one with this number.
    #[must_use]
    pub fn stripe(&self, number: u64) -> Option<Stripe> {
        let offset = number.checked_mul(self.stripe_bytes()).filter(|&offset| offset < self.object_bytes)?;
        let bytes = (self.object_bytes - offset).min(self.stripe_bytes()) as usize;
        Some(Stripe {
            scheme: self.scheme,
            offset,
            bytes,
            cell_bytes: bytes.div_ceil(self.scheme.data()),
            fragment_offset: number * self.cell_bytes as u64,
        })
    }

    /// The size of a fragment; 0 if the scheme has none with this index.
    #[must_use]
    pub fn fragment_bytes(&self, index: usize) -> u64 {
        self.span(index, 0..self.stripes()).end
    }

    /// The stripes that hold these bytes of the object: what is read of other fragments in place of a lost one.
    #[must_use]
    pub fn stripes_of(&self, bytes: Range<u64>) -> Range<u64> {
        let end = bytes.end.min(self.object_bytes);
        if bytes.start >= end {
            return 0..0;
        }
        bytes.start / self.stripe_bytes()..end.div_ceil(self.stripe_bytes())
    }

    /// Which bytes of fragment `index` are its cells of these stripes: one range, as its cells follow one another.
    #[must_use]
    pub fn span(&self, index: usize, stripes: Range<u64>) -> Range<u64> {
        let last = stripes.end.min(self.stripes()).checked_sub(1).filter(|&last| last >= stripes.start);
        match last.and_then(|last| self.stripe(last)?.cell(index)) {
            Some(cell) => stripes.start * self.cell_bytes as u64..cell.fragment_offset + cell.bytes as u64,
            None => 0..0,
        }
    }

    /// These bytes of the object, cell by cell in their order; what is beyond its end is left out.
    pub fn pieces(&self, bytes: Range<u64>) -> impl Iterator<Item = Piece> + use<> {
        let geometry = *self;
        let (mut at, end) = (bytes.start, bytes.end.min(self.object_bytes));
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let number = at / geometry.stripe_bytes();
            let stripe = geometry.stripe(number)?;
            let in_stripe = (at - stripe.offset) as usize;
            let cell = stripe.cell(in_stripe / stripe.cell_bytes)?;
            let first = in_stripe % stripe.cell_bytes;
            let count = (end - at).min((cell.bytes - first) as u64);
            at += count;
            Some(Piece {
                stripe: number,
                cell: cell.index,
                within: first..first + count as usize,
                fragment_offset: cell.fragment_offset + first as u64,
            })
        })
    }

    fn stripe_bytes(&self) -> u64 {
        (self.cell_bytes * self.scheme.data()) as u64
    }
}

impl Stripe {
    /// A cell, if the scheme has one with this index.
    #[must_use]
    pub fn cell(&self, index: usize) -> Option<Cell> {
        let bytes = if index < self.scheme.data() {
            self.bytes.saturating_sub(index * self.cell_bytes).min(self.cell_bytes)
        } else if index < self.scheme.cells() {
            self.cell_bytes
        } else {
            return None;
        };
        Some(Cell { index, bytes, fragment_offset: self.fragment_offset })
    }
}
