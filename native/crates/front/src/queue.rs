//! Bytes on their way to a client, in the memory in which they came.

use std::collections::VecDeque;

use swiftlet_transport::Chunk;

/// Parts of an answer that are given to the kernel at once.
pub(crate) const PARTS: usize = 16;

/// What may be sent.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    ready: VecDeque<Chunk>,
    /// Bytes of the first of these that were sent.
    into_first: usize,
    /// Bytes that were sent in all.
    sent: u64,
}

impl Queue {
    pub(crate) fn push(&mut self, bytes: Chunk) {
        self.ready.push_back(bytes);
    }

    /// Don't send what was added last.
    pub(crate) fn drop_last(&mut self) {
        self.ready.pop_back();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Fill in what is to be sent next; returns how many parts that are. None of them is empty.
    pub(crate) fn fill<'a>(&'a self, parts: &mut [&'a [u8]]) -> usize {
        let mut count = 0;
        for (part, chunk) in parts.iter_mut().zip(&self.ready) {
            *part = if count == 0 { &chunk[self.into_first..] } else { &chunk[..] };
            count += 1;
        }
        count
    }

    /// So many bytes were sent.
    pub(crate) fn sent(&mut self, mut count: usize) {
        self.sent += count as u64;
        while let Some(first) = self.ready.front() {
            let left = first.len() - self.into_first;
            if count < left {
                self.into_first += count;
                return;
            }
            count -= left;
            self.into_first = 0;
            self.ready.pop_front();
        }
    }

    /// Bytes that were sent.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent
    }

    /// Copy what waits out of memory that transfers need.
    pub(crate) fn copy(&mut self) {
        for chunk in self.ready.iter_mut().filter(|chunk| chunk.is_in_any_pool()) {
            *chunk = Chunk::from(chunk.to_vec());
        }
    }

    /// Whether any of it is in memory that others may use anew.
    pub(crate) fn is_in_any_pool(&self) -> bool {
        self.ready.iter().any(Chunk::is_in_any_pool)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use swiftlet_transport::Pool;

    use super::*;

    proptest! {
        #[test]
        fn all_is_sent_once_however_much_the_kernel_takes(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..40),
            steps in proptest::collection::vec(1_usize..100, 1..20),
        ) {
            let (mut queue, mut out) = (Queue::default(), Vec::new());
            let mut left = pieces.iter();
            for step in steps.iter().cycle() {
                if let Some(piece) = left.next() {
                    queue.push(Chunk::from(piece.clone()));
                } else if queue.is_empty() {
                    break;
                }
                let mut parts = [&[][..]; 3];
                let count = queue.fill(&mut parts);
                prop_assert!(parts[..count].iter().all(|part| !part.is_empty()));
                let taken: Vec<u8> = parts[..count].concat().into_iter().take(*step).collect();
                queue.sent(taken.len());
                out.extend(taken);
            }
            prop_assert_eq!(queue.sent_bytes(), out.len() as u64);
            prop_assert_eq!(out, pieces.concat());
        }
    }

    #[test]
    fn what_waits_for_long_leaves_the_pool() {
        let pool = Pool::new(16 << 20).expect("memory");
        let mut queue = Queue::default();
        for _ in 0..2 {
            let mut chunk = pool.chunk(5000).expect("there is room");
            chunk.as_mut()[..3].copy_from_slice(b"abc");
            queue.push(chunk.freeze(3));
        }
        queue.sent(1);
        assert!(queue.is_in_any_pool());
        queue.copy();
        assert!(!queue.is_in_any_pool() && pool.stat().used_bytes == 0);
        let mut parts = [&[][..]; PARTS];
        assert_eq!((queue.fill(&mut parts), parts[0], parts[1]), (2, &b"bc"[..], &b"abc"[..]));
    }
}
