//! Parity from data.

use crate::kernel::Kernel;
use crate::product::{Digests, Product};
use crate::scheme::{Error, MAX_PARITY, Scheme};

/// Makes the parity cells of stripes. It holds nothing of a stripe, so that one serves all threads.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    scheme: Scheme,
    product: Product,
}

impl Encoder {
    /// An encoder with the fastest kernel of this machine.
    #[must_use]
    pub fn new(scheme: Scheme) -> Self {
        Self::with_kernel(scheme, Kernel::best())
    }

    /// An encoder with this kernel: for tests, which compare them, and for measuring.
    #[must_use]
    pub fn with_kernel(scheme: Scheme, kernel: Kernel) -> Self {
        let rows: [_; MAX_PARITY] =
            std::array::from_fn(|row| scheme.row((scheme.data() + row).min(scheme.cells() - 1)));
        Self { scheme, product: Product::new(kernel, &rows[..scheme.parity()]) }
    }

    /// Write the parity cells of a stripe.
    ///
    /// Data cells may be of different lengths, as in the last stripe of an object, or empty: they count as zero behind
    /// their end. Each parity cell has the length of the longest data cell. With an error nothing is written.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), Error> {
        self.check(data, parity)?;
        self.product.make(data, parity);
        Ok(())
    }

    /// Write the parity cells as [`Encoder::encode`] does, and return the digests of all cells, by their indices.
    pub fn encode_with_digests(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<Digests, Error> {
        self.check(data, parity)?;
        Ok(self.product.make_with_digests(data, parity))
    }

    fn check(&self, data: &[&[u8]], parity: &[&mut [u8]]) -> Result<(), Error> {
        if data.len() != self.scheme.data() {
            return Err(Error::Count { given: data.len(), needed: self.scheme.data() });
        }
        if parity.len() != self.scheme.parity() {
            return Err(Error::Count { given: parity.len(), needed: self.scheme.parity() });
        }
        let longest = data.iter().map(|cell| cell.len()).max().unwrap_or(0);
        match parity.iter().find(|cell| cell.len() != longest) {
            Some(cell) => Err(Error::Length { given: longest, needed: cell.len() }),
            None => Ok(()),
        }
    }
}
