//! Fragments of an object that comes in piece by piece: cut, coded and digested in one pass.

use std::fmt;
use std::sync::Arc;

use swiftlet_erasure::{Encoder, Error, Geometry, MAX_CELLS, Scheme};
use swiftlet_hash::{Digests, Hasher};

use crate::block::{Block, MAX_STRIPES, total};
use crate::version::Device;

/// The object has more stripes than an object may have; nothing more is taken of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

impl fmt::Display for TooLarge {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "an object has more than {MAX_STRIPES} stripes: larger cells are needed")
    }
}

impl std::error::Error for TooLarge {}

/// Cuts an object into the cells of its fragments. It holds one stripe, whatever the object's size, and the digests of
/// all cells.
pub struct Cutter {
    scheme: Scheme,
    cell_bytes: usize,
    encoder: Encoder,
    /// Data of a stripe that isn't complete.
    data: Vec<u8>,
    parity: Vec<u8>,
    digests: Vec<Vec<u64>>,
    object: Hasher,
}

impl Cutter {
    /// A cutter of one object.
    pub fn new(scheme: Scheme, cell_bytes: usize) -> Result<Self, Error> {
        Geometry::new(scheme, cell_bytes, 0)?;
        Ok(Self {
            scheme,
            cell_bytes,
            encoder: Encoder::new(scheme),
            data: Vec::with_capacity(scheme.data() * cell_bytes),
            parity: vec![0; scheme.parity() * cell_bytes],
            digests: vec![Vec::new(); scheme.cells()],
            object: Hasher::new(Digests { md5: false, xxh3: true }),
        })
    }

    /// Take the object's next bytes, and give the cells of each stripe that they complete, in the order of fragments.
    /// A stripe that lies in `bytes` as a whole is coded where it is.
    pub fn push(&mut self, mut bytes: &[u8], mut sink: impl FnMut(&[&[u8]])) -> Result<(), TooLarge> {
        let full = self.scheme.data() * self.cell_bytes;
        if (self.object.size() + bytes.len() as u64).div_ceil(full as u64) > MAX_STRIPES {
            return Err(TooLarge);
        }
        self.object.update(bytes);
        while !bytes.is_empty() {
            if self.data.is_empty() && bytes.len() >= full {
                let (stripe, rest) = bytes.split_at(full);
                self.stripe(stripe, &mut sink);
                bytes = rest;
                continue;
            }
            let (part, rest) = bytes.split_at(bytes.len().min(full - self.data.len()));
            self.data.extend_from_slice(part);
            bytes = rest;
            if self.data.len() == full {
                self.held_stripe(&mut sink);
            }
        }
        Ok(())
    }

    /// Give the cells of the last stripe, if it isn't empty, and what the fragments' blocks are made of.
    #[must_use]
    pub fn finish(mut self, mut sink: impl FnMut(&[&[u8]])) -> Cut {
        if !self.data.is_empty() {
            self.held_stripe(&mut sink);
        }
        Cut {
            scheme: self.scheme,
            cell_bytes: self.cell_bytes,
            object_bytes: self.object.size(),
            object_xxh3: self.object.xxh3_128().unwrap_or_default(),
            totals: self.digests.iter().map(|cells| total(cells)).collect(),
            digests: self.digests,
        }
    }

    fn held_stripe(&mut self, sink: &mut impl FnMut(&[&[u8]])) {
        let mut data = std::mem::take(&mut self.data);
        self.stripe(&data, sink);
        data.clear();
        self.data = data;
    }

    /// Code a stripe, which is full or the last one.
    fn stripe(&mut self, data: &[u8], sink: &mut impl FnMut(&[&[u8]])) {
        let (count, bytes) = (self.scheme.data(), data.len().div_ceil(self.scheme.data()));
        let mut cells: [&[u8]; MAX_CELLS] = [&[]; MAX_CELLS];
        for (cell, part) in cells.iter_mut().zip(data.chunks(bytes)) {
            *cell = part;
        }
        let mut outputs: [&mut [u8]; MAX_CELLS] = std::array::from_fn(|_| &mut [][..]);
        for (output, part) in outputs.iter_mut().zip(self.parity.chunks_mut(self.cell_bytes)) {
            *output = &mut part[..bytes];
        }
        let digests = self.encoder.encode_with_digests(&cells[..count], &mut outputs[..self.scheme.parity()]);
        let digests = digests.expect("cells of these lengths are a stripe");
        for (all, digest) in self.digests.iter_mut().zip(digests.iter()) {
            all.push(*digest);
        }
        for (cell, part) in cells[count..].iter_mut().zip(self.parity.chunks(self.cell_bytes)) {
            *cell = &part[..bytes];
        }
        sink(&cells[..self.scheme.cells()]);
    }
}

/// What is known of an object when all of it was cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    scheme: Scheme,
    cell_bytes: usize,
    /// The object's size.
    pub object_bytes: u64,
    /// xxh3 of the object in 128 bits.
    pub object_xxh3: u128,
    /// For each fragment the xxh3 over its cells' digests.
    pub totals: Arc<[u64]>,
    digests: Vec<Vec<u64>>,
}

impl Cut {
    /// The block of a fragment, of a write of this generation to these devices.
    pub fn block(&self, index: usize, generation: u64, chosen: Arc<[Device]>) -> Result<Block, Error> {
        let cells = self.digests.get(index).ok_or(Error::NoSuchCell(index))?.clone();
        let geometry = Geometry::new(self.scheme, self.cell_bytes, self.object_bytes)?;
        let (cell_bytes, object_xxh3, totals) = (self.cell_bytes, self.object_xxh3, self.totals.clone());
        Ok(Block { geometry, cell_bytes, index, generation, object_xxh3, chosen, totals, cells })
    }
}
