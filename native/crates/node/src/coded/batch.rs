//! Cells of a fragment on their way to a device, several in one message.
//!
//! Each message wakes two threads at either end, and its bytes are one write at the device. A server of this machine, or
//! one that fetches by RDMA, reads them where they were gathered, in the transport's memory, as far as uploads find room
//! in it. Cells are gathered only for a device that has others to take yet, so that a slow body neither waits nor holds
//! memory.

use swiftlet_transport::{Buffer, Carrier, Chunk, Peer};

/// Bytes of a message, but for one cell at least.
pub(super) const BATCH_BYTES: usize = 256 << 10;

#[derive(Debug)]
enum Memory {
    Shared(Buffer),
    Own(Vec<u8>),
}

/// Cells that have not been sent.
#[derive(Debug)]
pub(super) struct Batch {
    memory: Memory,
    filled: usize,
    most: usize,
}

/// How many bytes go in one message, of a fragment of which so many are to come, if that is known.
fn most(cell_bytes: usize, left: Option<u64>) -> usize {
    let cells = (BATCH_BYTES / cell_bytes).max(1) * cell_bytes;
    left.map_or(cells, |left| left.clamp(1, cells as u64) as usize)
}

impl Batch {
    /// A batch for a device of this peer, whose fragment has cells of so many bytes, and so many bytes to come.
    pub(super) fn new(peer: Option<&Peer>, cell_bytes: usize, left: Option<u64>) -> Self {
        let most = most(cell_bytes, left);
        let is_read_in_place =
            |peer: &&Peer| matches!(peer.metrics().snapshot().carrier, Some(Carrier::SameNode | Carrier::Rdma));
        let shared = peer.filter(is_read_in_place).and_then(|peer| peer.pool().spare(most));
        let memory = shared.map_or_else(|| Memory::Own(Vec::with_capacity(most)), Memory::Shared);
        Self { memory, filled: 0, most }
    }

    /// Whether a cell of so many bytes fits behind the others.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.filled + bytes <= self.most
    }

    /// Append a cell, for which there is room.
    pub(super) fn push(&mut self, cell: &[u8]) {
        match &mut self.memory {
            Memory::Shared(buffer) => {
                buffer.as_mut_slice()[self.filled..self.filled + cell.len()].copy_from_slice(cell)
            }
            Memory::Own(bytes) => bytes.extend_from_slice(cell),
        }
        self.filled += cell.len();
    }

    /// The message.
    pub(super) fn into_chunk(self) -> Chunk {
        match self.memory {
            Memory::Shared(buffer) => buffer.freeze(self.filled),
            Memory::Own(bytes) => Chunk::from(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_whole_cells_and_no_more_than_are_to_come() {
        assert_eq!(most(64 << 10, None), 256 << 10);
        assert_eq!(most(100 << 10, None), 200 << 10);
        assert_eq!(most(1 << 20, None), 1 << 20);
        assert_eq!(most(64 << 10, Some(1000)), 1000);
        assert_eq!(most(64 << 10, Some(1 << 40)), 256 << 10);
        assert_eq!(most(64 << 10, Some(0)), 1);
    }

    #[test]
    fn what_was_gathered_is_sent_in_order() {
        let mut batch = Batch::new(None, 3, Some(7));
        assert!(batch.has_room(7) && !batch.has_room(8));
        batch.push(b"abc");
        batch.push(b"def");
        assert!(batch.has_room(1) && !batch.has_room(2));
        batch.push(b"g");
        assert_eq!(&*batch.into_chunk(), b"abcdefg");
    }
}
