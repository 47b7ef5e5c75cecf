//! Uploads that peers bring to themselves, by RDMA or from what a guest shows a server on its machine: only bytes in the
//! pool can be brought, so they are copied there.
//!
//! The copy replaces the one that a socket would make. One is enough for all replicas of an object, as the same bytes
//! are sent to each. At most half of the pool is used for it, and it never waits: answers are received into the same
//! memory, and should not wait for slow servers. Bytes that find no room are sent from where they are, by TCP.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use swiftlet_transport::limits::{CHUNK_BYTES, INLINE_BYTES};
use swiftlet_transport::{Carrier, Chunk, Peer, Pool};

/// Copies that are kept for the other replicas: as many as are given to one before they are given to the next.
const KEPT: usize = 4;
/// Shorter bytes are sent in a frame: a fetch has a cost, too.
const LEAST_BYTES: usize = 4096;

/// Copies uploads into the pool of a node whose peers bring them to themselves.
pub(crate) struct Uploads {
    pool: Pool,
    /// By what.
    carrier: Carrier,
    /// The last bytes that were copied, and their copies. As long as an original is kept, no other bytes can have its
    /// address.
    last: Mutex<VecDeque<(Chunk, Chunk)>>,
}

impl Uploads {
    /// For the peers on connections of this kind.
    pub(crate) fn new(pool: &Pool, carrier: Carrier) -> Self {
        Self { pool: pool.clone(), carrier, last: Mutex::default() }
    }

    /// A piece in the form in which this peer should get it; `whole`: it is the complete body, which is part of the
    /// request if it is short.
    pub(crate) fn piece(&self, py: Python<'_>, peer: &Peer, piece: Chunk, whole: bool) -> Chunk {
        let least = if whole { INLINE_BYTES + 1 } else { LEAST_BYTES };
        let fits = (least..=CHUNK_BYTES).contains(&piece.len());
        if !fits || piece.is_in(&self.pool) || peer.metrics().snapshot().carrier != Some(self.carrier) {
            return piece;
        }
        py.detach(|| self.copy(piece))
    }

    fn copy(&self, piece: Chunk) -> Chunk {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, copy)) = last.iter().find(|(original, _)| std::ptr::eq::<[u8]>(&**original, &*piece)) {
            return copy.clone();
        }
        // First of all the memory of an earlier one.
        if last.len() == KEPT {
            last.pop_front();
        }
        let stat = self.pool.stat();
        if stat.used_bytes + piece.len() > stat.limit_bytes / 2 {
            return piece;
        }
        let Some(mut buffer) = self.pool.chunk(piece.len()) else { return piece };
        buffer.as_mut_slice().copy_from_slice(&piece);
        let copy = buffer.freeze(piece.len());
        last.push_back((piece, copy.clone()));
        copy
    }
}
