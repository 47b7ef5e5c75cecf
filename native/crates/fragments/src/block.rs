//! What is stored with a fragment: which one it is, of which object, and the digests by which it is checked.
//!
//! It follows the metadata that the record of a whole object has, and is the end of a fragment's metadata.
//! `docs/design/2026-11-26-fragments.md` has its bytes. Numbers are big-endian.
//!
//! Fault model: any bytes. What is accepted is written in one way only, and fits together: sizes and numbers of cells,
//! and the digest over the cells' digests.

use std::fmt;
use std::sync::Arc;

use swiftlet_erasure::{Error, Geometry, MAX_CELL_BYTES, Scheme};
use swiftlet_hash::xxh3_64;

use crate::cursor::Cursor;
use crate::version::Device;

/// The version of the block.
const VERSION: u8 = 1;
/// Most stripes of an object: digests of so many cells take half of what a record's metadata may have.
pub const MAX_STRIPES: u64 = 1 << 20;

/// What is stored with a fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The object's scheme, cells and size.
    pub geometry: Geometry,
    /// Bytes of a cell, but for the last stripe's.
    pub cell_bytes: usize,
    /// Which fragment it is.
    pub index: usize,
    /// The attempt to write that made it.
    pub generation: u64,
    /// xxh3 of the object in 128 bits.
    pub object_xxh3: u128,
    /// The devices that the proxy chose, in the order of the fragments.
    pub chosen: Arc<[Device]>,
    /// For each fragment the xxh3 over its cells' digests.
    pub totals: Arc<[u64]>,
    /// xxh3 of each cell of this fragment.
    pub cells: Vec<u64>,
}

/// Why a block is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockError {
    /// It is of another version, which a newer program has written.
    Version(u8),
    /// Its scheme or its cells are none that the codec has.
    Scheme(Error),
    /// It has another number of bytes than its numbers ask for.
    Length,
    /// It is of a fragment that the scheme doesn't have.
    Index(u8),
    /// The object has too many stripes.
    Stripes(u64),
    /// The generation is one that deletions have.
    Generation,
    /// Two fragments were given to one device.
    Repeated(Device),
    /// The digests of its cells are not those that the other fragments know.
    Cells,
}

impl fmt::Display for BlockError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(found) => write!(out, "a fragment's block has version {found}, this program understands 1"),
            Self::Scheme(error) => error.fmt(out),
            Self::Length => write!(out, "a fragment's block has another length than its numbers ask for"),
            Self::Index(index) => write!(out, "the scheme has no fragment {index}"),
            Self::Stripes(count) => write!(out, "an object has {count} stripes, and may have {MAX_STRIPES}"),
            Self::Generation => write!(out, "a fragment has the generation of a deletion"),
            Self::Repeated(device) => write!(out, "device {} was chosen for two fragments", device.number),
            Self::Cells => write!(out, "the digests of a fragment's cells don't have the digest that is stored"),
        }
    }
}

impl std::error::Error for BlockError {}

impl From<Error> for BlockError {
    fn from(error: Error) -> Self {
        Self::Scheme(error)
    }
}

/// xxh3 over digests, as they are stored.
#[must_use]
pub fn total(cells: &[u64]) -> u64 {
    let bytes: Vec<u8> = cells.iter().flat_map(|digest| digest.to_be_bytes()).collect();
    xxh3_64(&bytes)
}

impl Block {
    /// The block's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let scheme = self.geometry.scheme();
        let mut out = vec![VERSION, scheme.data() as u8, scheme.parity() as u8, self.index as u8];
        out.extend((self.cell_bytes as u32).to_be_bytes());
        out.extend(self.geometry.object_bytes().to_be_bytes());
        out.extend(self.generation.to_be_bytes());
        out.extend(self.object_xxh3.to_be_bytes());
        for device in self.chosen.iter() {
            out.extend(device.number.to_be_bytes());
            out.extend(device.incarnation.to_be_bytes());
        }
        out.extend(self.totals.iter().chain(&self.cells).flat_map(|digest| digest.to_be_bytes()));
        out
    }

    /// A block from its bytes, all of them.
    pub fn parse(bytes: &[u8]) -> Result<Self, BlockError> {
        let complete = Self::parse_with(bytes, true)?;
        complete.check()?;
        Ok(complete)
    }

    /// A block whose bytes end before the digests of its cells, which is what is sent of one.
    pub fn parse_without_cells(bytes: &[u8]) -> Result<Self, BlockError> {
        let block = Self::parse_with(bytes, false)?;
        block.check_devices()?;
        Ok(block)
    }

    fn parse_with(bytes: &[u8], cells: bool) -> Result<Self, BlockError> {
        let mut cursor = Cursor(bytes);
        let [version, data, parity, index] = cursor.bytes().ok_or(BlockError::Length)?;
        if version != VERSION {
            return Err(BlockError::Version(version));
        }
        let scheme = Scheme::new(data.into(), parity.into())?;
        if usize::from(index) >= scheme.cells() {
            return Err(BlockError::Index(index));
        }
        let block = Self::parse_rest(&mut cursor, scheme, index.into(), cells)?;
        if cursor.0.is_empty() { block.ok_or(BlockError::Length) } else { Err(BlockError::Length) }
    }

    /// Nothing if there are too few bytes.
    fn parse_rest(
        cursor: &mut Cursor<'_>,
        scheme: Scheme,
        index: usize,
        with_cells: bool,
    ) -> Result<Option<Self>, BlockError> {
        let (Some(cell_bytes), Some(object_bytes)) = (cursor.u32(), cursor.u64()) else { return Ok(None) };
        let cell_bytes = usize::try_from(cell_bytes).unwrap_or(MAX_CELL_BYTES + 1);
        let geometry = Geometry::new(scheme, cell_bytes, object_bytes)?;
        let stripes = geometry.stripes();
        if stripes > MAX_STRIPES {
            return Err(BlockError::Stripes(stripes));
        }
        let mut rest = || {
            let (generation, object_xxh3) = (cursor.u64()?, u128::from_be_bytes(cursor.bytes()?));
            let chosen: Option<Arc<[Device]>> = (0..scheme.cells()).map(|_| cursor.device()).collect();
            let totals: Option<Arc<[u64]>> = (0..scheme.cells()).map(|_| cursor.u64()).collect();
            let count = if with_cells { stripes } else { 0 };
            let cells: Option<Vec<u64>> = (0..count).map(|_| cursor.u64()).collect();
            let (chosen, totals, cells) = (chosen?, totals?, cells?);
            Some(Self { geometry, cell_bytes, index, generation, object_xxh3, chosen, totals, cells })
        };
        Ok(rest())
    }

    /// Whether it is one that could be read again.
    pub fn check(&self) -> Result<(), BlockError> {
        let (cells, stripes) = (self.geometry.scheme().cells(), self.geometry.stripes());
        if stripes > MAX_STRIPES {
            return Err(BlockError::Stripes(stripes));
        }
        if [self.chosen.len(), self.totals.len()] != [cells; 2] || self.cells.len() as u64 != stripes {
            return Err(BlockError::Length);
        }
        if self.index >= cells {
            return Err(BlockError::Index(self.index as u8));
        }
        self.check_devices()?;
        if total(&self.cells) == self.totals[self.index] { Ok(()) } else { Err(BlockError::Cells) }
    }

    fn check_devices(&self) -> Result<(), BlockError> {
        if self.generation == u64::MAX {
            return Err(BlockError::Generation);
        }
        for (at, device) in self.chosen.iter().enumerate() {
            if self.chosen[..at].iter().any(|other| other.number == device.number) {
                return Err(BlockError::Repeated(*device));
            }
        }
        Ok(())
    }

    /// Bytes of the fragment.
    #[must_use]
    pub fn fragment_bytes(&self) -> u64 {
        self.geometry.fragment_bytes(self.index)
    }

    /// Whether the other one is of the same write, so that the two may be decoded together.
    #[must_use]
    pub fn belongs_to(&self, other: &Self) -> bool {
        self.geometry == other.geometry
            && (self.generation, self.object_xxh3) == (other.generation, other.object_xxh3)
            && self.chosen == other.chosen
            && self.totals == other.totals
    }
}
