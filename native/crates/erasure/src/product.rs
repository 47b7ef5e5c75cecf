//! Cells made from other cells: a matrix of coefficients applied to a stripe, whose cells may be of different lengths.

use std::ops::Deref;

use twox_hash::XxHash3_64;

use crate::kernel::{Coefficients, GROUP, Kernel};
use crate::scheme::{MAX_CELLS, MAX_DATA, MAX_PARITY, Row};

/// xxh3 in 64 bits, seed 0, of the cells of one call: of those that were given, then of those that were made, in the
/// caller's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digests {
    values: [u64; MAX_CELLS],
    count: usize,
}

impl Deref for Digests {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.values[..self.count]
    }
}

/// Coefficients by which cells are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    kernel: Kernel,
    rows: [Row; MAX_PARITY],
    count: usize,
}

impl Product {
    /// A cell for each of `rows`, of which there are at most [`MAX_PARITY`].
    pub(crate) fn new(kernel: Kernel, rows: &[Row]) -> Self {
        let mut all = [[0; MAX_DATA]; MAX_PARITY];
        all[..rows.len()].copy_from_slice(rows);
        Self { kernel, rows: all, count: rows.len() }
    }

    /// How many cells are made.
    pub(crate) fn outputs(&self) -> usize {
        self.count
    }

    /// Make each output from the sources. A source counts as zero behind its end, and an output is made up to its own.
    pub(crate) fn make(&self, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let end = outputs.iter().map(|output| output.len()).max().unwrap_or(0);
        let mut at = 0;
        while at < end {
            let next = next_end(at, sources, outputs);
            self.make_part(at, next, sources, outputs);
            at = next;
        }
    }

    /// Make the outputs, and digest all cells. Digests are computed cell by cell afterwards: of a stripe that fits into
    /// the processor's cache this is faster than in pieces beside the products, as a cell's digest stays in registers.
    pub(crate) fn make_with_digests(&self, sources: &[&[u8]], outputs: &mut [&mut [u8]]) -> Digests {
        self.make(sources, outputs);
        let cells = sources.iter().copied().chain(outputs.iter().map(|output| &**output));
        let mut digests = Digests { values: [0; MAX_CELLS], count: sources.len() + outputs.len() };
        for (digest, cell) in digests.values.iter_mut().zip(cells) {
            *digest = XxHash3_64::oneshot(cell);
        }
        digests
    }

    /// Make the bytes from `at` to `next`, between which no cell ends.
    fn make_part(&self, at: usize, next: usize, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let (mut parts, mut columns, mut given) = ([&[][..]; MAX_DATA], [0; MAX_DATA], 0);
        for (column, source) in sources.iter().enumerate().filter(|(_, source)| source.len() > at) {
            (parts[given], columns[given]) = (&source[at..next], column);
            given += 1;
        }
        let count = outputs.iter().filter(|output| output.len() > at).count();
        // Groups of about the same size: three and two outputs take less time than four and one.
        let group = count.div_ceil(count.div_ceil(GROUP));
        let wanted = outputs.iter_mut().enumerate().filter(|(_, output)| output.len() > at);
        let mut wanted = wanted.map(|(row, output)| (row, &mut output[at..next]));
        loop {
            let mut coefficients: [Coefficients; MAX_DATA] = [[0; GROUP]; MAX_DATA];
            let (mut made, mut count): ([&mut [u8]; GROUP], usize) = (std::array::from_fn(|_| &mut [][..]), 0);
            for (row, output) in wanted.by_ref().take(group) {
                for (coefficients, &column) in coefficients.iter_mut().zip(&columns[..given]) {
                    coefficients[count] = self.rows[row][column];
                }
                made[count] = output;
                count += 1;
            }
            if count == 0 {
                return;
            }
            if given == 0 {
                made.iter_mut().for_each(|output| output.fill(0));
            } else {
                self.kernel.add_products(&coefficients[..given], &parts[..given], &mut made[..count]);
            }
        }
    }
}

/// Where the first of the cells ends that reach beyond `at`.
fn next_end(at: usize, sources: &[&[u8]], outputs: &[&mut [u8]]) -> usize {
    let lengths = sources.iter().map(|source| source.len()).chain(outputs.iter().map(|output| output.len()));
    lengths.filter(|&length| length > at).min().unwrap_or(at)
}
