//! Lost cells from those that are left.

use crate::kernel::Kernel;
use crate::matrix::{Matrix, invert, times};
use crate::product::{Digests, Product};
use crate::scheme::{Error, MAX_CELLS, MAX_DATA, MAX_PARITY, Row, Scheme};

/// Restores certain cells of stripes from certain others. The matrix is inverted when it is made, once for all stripes;
/// it holds nothing of a stripe.
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    scheme: Scheme,
    /// Indices of the cells that are read, k of them.
    sources: [usize; MAX_DATA],
    /// Indices of the cells that are restored.
    wanted: [usize; MAX_PARITY],
    product: Product,
}

impl Decoder {
    /// A plan to restore the cells `wanted` while these are `available`, with the fastest kernel of this machine.
    ///
    /// Of more than k available cells the first k are read, so that the caller chooses: who is near, who has answered.
    pub fn new(scheme: Scheme, available: &[usize], wanted: &[usize]) -> Result<Self, Error> {
        Self::with_kernel(scheme, available, wanted, Kernel::best())
    }

    /// The same with this kernel: for tests, which compare them, and for measuring.
    pub fn with_kernel(scheme: Scheme, available: &[usize], wanted: &[usize], kernel: Kernel) -> Result<Self, Error> {
        let mut named = [false; MAX_CELLS];
        for &index in available.iter().chain(wanted) {
            if index >= scheme.cells() {
                return Err(Error::NoSuchCell(index));
            }
            if std::mem::replace(&mut named[index], true) {
                return Err(Error::Repeated(index));
            }
        }
        let size = scheme.data();
        // All that is named is named once: with k available cells, at most m others are wanted.
        let Some(chosen) = available.get(..size) else {
            return Err(Error::TooFewCells { available: available.len(), needed: size });
        };
        let mut matrix: Matrix = [[0; MAX_DATA]; MAX_DATA];
        let (mut sources, mut restored) = ([0; MAX_DATA], [0; MAX_PARITY]);
        for (at, &index) in chosen.iter().enumerate() {
            (sources[at], matrix[at]) = (index, scheme.row(index));
        }
        restored[..wanted.len()].copy_from_slice(wanted);
        // Any k rows of the identity and a Cauchy matrix below it are independent.
        let inverse = invert(matrix, size).expect("any k cells restore the others");
        let mut rows: [Row; MAX_PARITY] = [[0; MAX_DATA]; MAX_PARITY];
        for (row, &index) in rows.iter_mut().zip(wanted) {
            *row = times(&scheme.row(index), &inverse, size);
        }
        Ok(Self { scheme, sources, wanted: restored, product: Product::new(kernel, &rows[..wanted.len()]) })
    }

    /// Indices of the cells that are to be given, in this order: k of them.
    #[must_use]
    pub fn sources(&self) -> &[usize] {
        &self.sources[..self.scheme.data()]
    }

    /// Indices of the cells that are restored, in this order.
    #[must_use]
    pub fn wanted(&self) -> &[usize] {
        &self.wanted[..self.product.outputs()]
    }

    /// Restore cells of a stripe, each up to the length of its slice.
    ///
    /// Data cells of a last stripe are shorter than its parity cells, or empty, both where they are given and where
    /// they are restored: the caller knows their lengths from [`Geometry`](crate::Geometry). With an error nothing is
    /// written. The bytes of all that is given have to be right, see the fault model of this crate.
    pub fn restore(&self, given: &[&[u8]], restored: &mut [&mut [u8]]) -> Result<(), Error> {
        self.check(given, restored)?;
        self.product.make(given, restored);
        Ok(())
    }

    /// Restore cells as [`Decoder::restore`] does, and return the digests of what was given and of what was restored.
    pub fn restore_with_digests(&self, given: &[&[u8]], restored: &mut [&mut [u8]]) -> Result<Digests, Error> {
        self.check(given, restored)?;
        Ok(self.product.make_with_digests(given, restored))
    }

    /// Parity cells are of one length, and no data cell is longer.
    fn check(&self, given: &[&[u8]], restored: &[&mut [u8]]) -> Result<(), Error> {
        for (count, needed) in [(given.len(), self.sources().len()), (restored.len(), self.wanted().len())] {
            if count != needed {
                return Err(Error::Count { given: count, needed });
            }
        }
        let indices = self.sources().iter().chain(self.wanted());
        let lengths = given.iter().map(|cell| cell.len()).chain(restored.iter().map(|cell| cell.len()));
        let longest = lengths.clone().max().unwrap_or(0);
        for (&index, length) in indices.zip(lengths) {
            let too_short = index >= self.scheme.data() && length < longest;
            if too_short {
                return Err(Error::Length { given: longest, needed: length });
            }
        }
        Ok(())
    }
}
