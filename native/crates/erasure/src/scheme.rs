//! How many cells there are, and the matrix that makes them.

use std::fmt;

use crate::field::inverse;

/// Fewest data cells: with one, copies do the same for less work.
pub const MIN_DATA: usize = 2;
/// Most data cells.
pub const MAX_DATA: usize = 16;
/// Most parity cells.
pub const MAX_PARITY: usize = 8;
/// Most cells of a stripe.
pub const MAX_CELLS: usize = MAX_DATA + MAX_PARITY;
/// Most bytes of a cell.
pub const MAX_CELL_BYTES: usize = 16 << 20;

/// A row of the matrix: the coefficient of each data cell, 0 behind the last one.
pub(crate) type Row = [u8; MAX_DATA];

/// Why something can't be coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// So many data and parity cells are not supported.
    Scheme {
        /// Data cells that were asked for.
        data: usize,
        /// Parity cells that were asked for.
        parity: usize,
    },
    /// A cell has to be of 1 to [`MAX_CELL_BYTES`](MAX_CELL_BYTES) bytes.
    CellBytes(usize),
    /// The scheme has no cell with this index.
    NoSuchCell(usize),
    /// A cell was named twice, or as lost and as available at once.
    Repeated(usize),
    /// Fewer cells are left than there are data cells.
    TooFewCells {
        /// Cells that are available.
        available: usize,
        /// Cells that are needed.
        needed: usize,
    },
    /// Another number of cells was given than the scheme or the plan has.
    Count {
        /// Cells that were given.
        given: usize,
        /// Cells that are needed.
        needed: usize,
    },
    /// A cell is longer than the stripe's parity cells are, or a parity cell is shorter than the longest data cell.
    Length {
        /// Bytes of the cell.
        given: usize,
        /// Bytes of a parity cell.
        needed: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme { data, parity } => write!(
                out,
                "{data} data and {parity} parity cells: there have to be {MIN_DATA} to {MAX_DATA} data and 1 to \
                 {MAX_PARITY} parity cells"
            ),
            Self::CellBytes(bytes) => {
                write!(out, "a cell of {bytes} bytes: it has to be of 1 to {} bytes", MAX_CELL_BYTES)
            }
            Self::NoSuchCell(index) => write!(out, "there is no cell {index}"),
            Self::Repeated(index) => write!(out, "cell {index} was named twice"),
            Self::TooFewCells { available, needed } => {
                write!(out, "{available} cells are available, and {needed} are needed")
            }
            Self::Count { given, needed } => write!(out, "{given} cells were given, and {needed} are needed"),
            Self::Length { given, needed } => {
                write!(out, "a cell has {given} bytes, and the stripe's parity cells have {needed}")
            }
        }
    }
}

impl std::error::Error for Error {}

/// k data cells and m parity cells: data cells have the indices 0..k, parity cells k..k+m.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scheme {
    data: usize,
    parity: usize,
}

impl Scheme {
    /// A scheme, if so many cells are supported.
    pub fn new(data: usize, parity: usize) -> Result<Self, Error> {
        if (MIN_DATA..=MAX_DATA).contains(&data) && (1..=MAX_PARITY).contains(&parity) {
            Ok(Self { data, parity })
        } else {
            Err(Error::Scheme { data, parity })
        }
    }

    /// How many data cells a stripe has (k).
    #[must_use]
    pub fn data(&self) -> usize {
        self.data
    }

    /// How many parity cells a stripe has (m), which is how many cells may be lost.
    #[must_use]
    pub fn parity(&self) -> usize {
        self.parity
    }

    /// How many cells a stripe has (k+m).
    #[must_use]
    pub fn cells(&self) -> usize {
        self.data + self.parity
    }

    /// The cell `index` in terms of the data cells: one of them, or the coefficients of a parity cell.
    pub(crate) fn row(&self, index: usize) -> Row {
        debug_assert!(index < self.cells());
        let mut row = [0; MAX_DATA];
        if index < self.data {
            row[index] = 1;
        } else {
            for (column, coefficient) in row[..self.data].iter_mut().enumerate() {
                *coefficient = inverse((index ^ column) as u8);
            }
        }
        row
    }
}
