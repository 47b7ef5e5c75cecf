//! The answer to a request as it comes in.
//!
//! A body stays in the memory in which it came, as far as that can be spared: so cells are checked, and passed on,
//! without a copy. What is lent by a server of this machine takes none of our memory, and of its own no more than it has
//! to spare. What was received takes our pool's, which everybody needs: above a share of it, and of each request's
//! window, a body is copied out of it.

use std::ops::Range;

use swiftlet_fragments::Outcome;
use swiftlet_fragments::request::Answer as Said;
use swiftlet_transport::limits::CHUNK_BYTES;
use swiftlet_transport::{Chunk, Error as TransportError, Pool, What};

use crate::client::Failure;
use crate::message::{MAX_COPY_BYTES, Request, fragments, packs};
use crate::status::{Refusal, Status};

/// A whole answer: its header, and its body.
pub(super) type Whole = (Vec<u8>, Came);

/// Bodies are left in the pool while no more than this share of it is in use: uploads of clients may have half.
const SHARE_OF_POOL: usize = 4;

/// The body of an answer, in the pieces in which it came.
#[derive(Clone, Debug, Default)]
pub(super) struct Came {
    pieces: Vec<Chunk>,
    bytes: usize,
}

impl Came {
    /// How many bytes there are.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// All of them.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        self.copied(0..self.bytes)
    }

    fn copied(&self, range: Range<usize>) -> Vec<u8> {
        let (mut bytes, mut start) = (Vec::with_capacity(range.len()), 0);
        for piece in &self.pieces {
            let end = start + piece.len();
            let within = range.start.clamp(start, end)..range.end.clamp(start, end);
            bytes.extend_from_slice(&piece[within.start - start..within.end - start]);
            start = end;
        }
        bytes
    }

    /// These bytes, which are there: where they are, unless they lie in two pieces.
    pub(super) fn part(&self, range: Range<usize>) -> Chunk {
        let mut start = 0;
        for piece in &self.pieces {
            let end = start + piece.len();
            if (start..=end).contains(&range.start) && range.end <= end {
                return piece.part(range.start - start..range.end - start);
            }
            start = end;
        }
        Chunk::from(self.copied(range))
    }
}

/// The most bytes that the body of the answer may have.
pub(super) fn most_bytes(request: &Request, cell_bytes: usize) -> usize {
    match request {
        Request::Fragment(fragments::Request::Newest { start, stop, .. }) if start < stop => {
            fragments::MAX_READ_BYTES as usize + cell_bytes
        }
        Request::Fragment(fragments::Request::Cells { first, end, .. }) => {
            end.saturating_sub(*first) as usize * cell_bytes
        }
        Request::Pack(packs::Request::Piece { bytes, .. }) => *bytes as usize,
        Request::Get { .. } => MAX_COPY_BYTES as usize,
        _ => 0,
    }
}

/// Why a device has not prepared or committed, where it has an answer that says so.
pub(super) fn refusal(answer: &Said) -> Option<Refusal> {
    let (status, text) = match answer {
        Said::Done | Said::Superseded(_) | Said::Decided(Outcome::Commit) => return None,
        Said::Busy => (Status::NodeBusy, "too many versions of the object are undecided at this device"),
        Said::Missing => (Status::NodeError, "the device is not the one that was chosen, or has lost the fragment"),
        Said::Outbid(_) => (Status::Unavailable, "other devices decide about the write, as they have not heard of it"),
        Said::Decided(Outcome::Abort) => (Status::Unavailable, "other devices have decided that it never happened"),
        _ => (Status::NodeError, "the device has answered something that it wasn't asked"),
    };
    Some(Refusal::new(status, text))
}

/// An answer of which a part may have come.
#[derive(Debug)]
pub(super) struct Answering {
    header: Option<Vec<u8>>,
    body: Came,
    most: usize,
    /// Where the body is received.
    pool: Option<Pool>,
}

impl Answering {
    /// An answer whose body has so many bytes at most, and is received into this pool.
    pub(super) fn new(most: usize, pool: Option<Pool>) -> Self {
        Self { header: None, body: Came::default(), most, pool }
    }

    /// Take the next part; how the request has ended, when it has. Nothing comes after that.
    pub(super) fn take(&mut self, what: What) -> Option<Result<Whole, Failure>> {
        match what {
            What::Sent(_) => None,
            What::Failed(error) => Some(Err(Failure::Lost(error))),
            What::Reply { status, header, .. } if status != Status::Ok as u16 => {
                Some(Err(Failure::Refused(Refusal::decode(status, &header))))
            }
            What::Reply { header, body, whole, .. } => {
                self.header = Some(header);
                // Memory for small bodies is scarce.
                let more = body.and_then(|body| self.more(Chunk::from(body.to_vec())));
                more.or_else(|| whole.then(|| self.end()))
            }
            What::Chunk(chunk) => self.more(chunk),
            What::End(_) => Some(self.end()),
        }
    }

    fn more(&mut self, chunk: Chunk) -> Option<Result<Whole, Failure>> {
        if chunk.len() > self.most - self.body.bytes {
            return Some(Err(Failure::Damaged("more than was asked for")));
        }
        self.body.bytes += chunk.len();
        let chunk = if self.may_stay(&chunk) { chunk } else { Chunk::from(chunk.to_vec()) };
        self.body.pieces.push(chunk);
        None
    }

    /// Whether a piece that has come may stay where it is: what stays holds the request's window, of which the rest of
    /// the answer needs a part.
    fn may_stay(&self, chunk: &Chunk) -> bool {
        let has_room = |pool: &Pool| {
            let used = pool.stat();
            !chunk.is_in(pool) || used.used_bytes <= used.limit_bytes / SHARE_OF_POOL
        };
        self.body.bytes <= CHUNK_BYTES && self.pool.as_ref().is_some_and(has_room)
    }

    fn end(&mut self) -> Result<Whole, Failure> {
        let header = self.header.take().ok_or(Failure::Lost(TransportError::Cancelled))?;
        Ok((header, std::mem::take(&mut self.body)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn received(pool: &Pool, bytes: usize) -> Chunk {
        pool.chunk(bytes).expect("there is room").freeze(bytes)
    }

    fn reply(body: Option<Chunk>) -> What {
        What::Reply { status: Status::Ok as u16, header: b"header".to_vec(), body_bytes: None, body, whole: false }
    }

    /// Which pieces of an answer that comes in these stay in the pool.
    fn staying(pool: &Pool, first: Option<Chunk>, pieces: Vec<Chunk>) -> Vec<bool> {
        let mut answering = Answering::new(8 * MIB, Some(pool.clone()));
        assert!(answering.take(reply(first)).is_none());
        for piece in pieces {
            assert!(answering.take(What::Chunk(piece)).is_none());
        }
        let ended = answering.take(What::End(Vec::new())).expect("it is over");
        let (header, came) = ended.expect("an answer");
        assert_eq!(header, b"header");
        came.pieces.iter().map(|piece| piece.is_in(pool)).collect()
    }

    #[test]
    fn a_body_stays_where_it_came_while_the_pool_has_room() {
        // Of 16 MiB 2 are for small bodies.
        let pool = Pool::new(16 * MIB).expect("memory");
        assert_eq!(staying(&pool, None, vec![received(&pool, MIB / 2)]), [true]);
        let held: Vec<Chunk> = (0..3).map(|_| received(&pool, MIB)).collect();
        assert_eq!(staying(&pool, None, vec![received(&pool, MIB)]), [true], "a quarter is in use");
        let more = received(&pool, 4096);
        assert_eq!(staying(&pool, None, vec![received(&pool, MIB)]), [false], "more than that");
        drop((held, more));
        assert_eq!(pool.stat().used_bytes, 0);
    }

    #[test]
    fn the_rest_of_a_long_body_finds_room_in_the_window() {
        let pool = Pool::new(64 * MIB).expect("memory");
        let pieces = (0..4).map(|_| received(&pool, MIB / 2)).collect();
        assert_eq!(staying(&pool, None, pieces), [true, true, false, false]);
    }

    #[test]
    fn small_bodies_leave_their_memory_at_once() {
        let pool = Pool::new(64 * MIB).expect("memory");
        let small = pool.small(100).expect("there is room").freeze(100);
        assert_eq!(staying(&pool, Some(small), Vec::new()), [false]);
    }

    #[test]
    fn parts_are_found_within_and_across_pieces() {
        let pieces: [&[u8]; 3] = [b"abc", b"", b"defgh"];
        let came = Came { pieces: pieces.iter().map(|piece| Chunk::from(piece.to_vec())).collect(), bytes: 8 };
        for start in 0..=8 {
            for end in start..=8 {
                assert_eq!(&*came.part(start..end), &b"abcdefgh"[start..end], "{start}..{end}");
            }
        }
        assert_eq!((came.len(), came.to_vec()), (8, b"abcdefgh".to_vec()));
    }
}
