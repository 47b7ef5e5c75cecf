//! Memory from which whole blocks go to a disk without the page cache: where it begins, and how long it is, are
//! multiples of a block.

use std::ops::Deref;

/// The unit of direct writes: every disk in use writes blocks of this size.
pub(super) const BLOCK: usize = 4096;
/// Memory that is kept for the next blocks.
const KEPT_BYTES: usize = 4 << 20;

/// Bytes that are gathered for one write. Its memory is used again.
#[derive(Debug, Default)]
pub struct Blocks {
    memory: Vec<u8>,
    /// Where the first block begins.
    begin: usize,
    /// Where the next byte goes.
    end: usize,
}

impl Blocks {
    /// Begin anew, with room for so many bytes.
    pub fn begin(&mut self, bytes: usize) {
        let bytes = bytes.next_multiple_of(BLOCK) + BLOCK;
        if self.memory.len() < bytes || self.memory.len() > KEPT_BYTES.max(bytes) {
            self.memory = vec![0; bytes];
            self.begin = self.memory.as_ptr().align_offset(BLOCK).min(BLOCK);
        }
        self.end = self.begin;
    }

    /// Memory for so many bytes, up to the end of its last block, in place of what there was.
    pub(super) fn room(&mut self, bytes: usize) -> &mut [u8] {
        self.begin(bytes);
        self.end = self.begin + bytes.next_multiple_of(BLOCK);
        &mut self.memory[self.begin..self.end]
    }

    /// Append bytes, for which there has to be room.
    pub fn push(&mut self, bytes: &[u8]) {
        self.memory[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Append so many zeros, for which there has to be room.
    pub fn zeros(&mut self, count: usize) {
        self.memory[self.end..self.end + count].fill(0);
        self.end += count;
    }

    /// Fill the last block with zeros.
    pub fn fill(&mut self) {
        self.zeros((self.end - self.begin).next_multiple_of(BLOCK) - (self.end - self.begin));
    }
}

impl Deref for Blocks {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.begin..self.end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_hold_what_was_pushed() {
        let mut blocks = Blocks::default();
        for (round, bytes) in [1, BLOCK, BLOCK + 1, 100 * BLOCK, 5, KEPT_BYTES + 7, 3].into_iter().enumerate() {
            blocks.begin(bytes + 2);
            blocks.push(&vec![round as u8 + 1; bytes]);
            blocks.zeros(2);
            assert_eq!(blocks.as_ptr().align_offset(BLOCK), 0);
            assert_eq!(blocks.len(), bytes + 2);
            blocks.fill();
            assert_eq!(blocks.len(), (bytes + 2).next_multiple_of(BLOCK));
            assert!(blocks[..bytes].iter().all(|byte| *byte == round as u8 + 1));
            assert!(blocks[bytes..].iter().all(|byte| *byte == 0));
        }
        assert!(blocks.memory.len() <= KEPT_BYTES);
    }
}
