//! The bytes of a long answer on their way from devices to the client: which are wanted next, whether they are right,
//! and which may be sent.
//!
//! A device checks what it reads before it sends it, and tells the digest of all that it has sent. The last bytes are
//! held back until that has been compared, so that bytes which were damaged on their way never make a whole answer. In
//! the place of a device that fails another one is asked for the rest of the same version.
//!
//! Fault model: a device may send anything, too much, too little, or nothing. What was let go can't be taken back: when
//! it turns out to be wrong the answer can't be finished.

use swiftlet_hash::{Digests, Hasher};
use swiftlet_node::message::Found;
use swiftlet_store::model::Info;
use swiftlet_transport::Chunk;

use crate::queue::Queue;

/// Bytes of one version of an object.
pub(crate) struct Flow {
    /// The timestamp of the version.
    version: u64,
    size: u64,
    /// The next byte that a device is to send.
    at: u64,
    /// The byte after the last one.
    stop: u64,
    /// Digests what the device has sent, without what is held back.
    hasher: Hasher,
    /// The digest of all that it sends; None if it follows.
    sum: Option<u64>,
    /// The digest of the object, if all of it is read.
    whole_sum: Option<u64>,
    /// Digests all that was let go, once a device was replaced.
    whole: Option<Hasher>,
    /// Whether bytes of this device were let go.
    has_let_go: bool,
    /// Whether what was let go is wrong.
    is_wrong: bool,
    /// The last bytes, until all are known to be right.
    held: Option<Chunk>,
    /// Whether they are.
    is_checked: bool,
    /// What may be sent to the client.
    pub(crate) queue: Queue,
}

fn hasher() -> Hasher {
    Hasher::new(Digests { md5: false, xxh3: true })
}

impl Flow {
    /// Of `[start, stop)` of an object. The first device has described it, and sends these bytes; their digest is `sum`,
    /// or follows them.
    pub(crate) fn new(info: &Info, (start, stop): (u64, u64), sum: Option<u64>) -> Self {
        Self {
            version: info.timestamp,
            size: info.size,
            at: start,
            stop,
            hasher: hasher(),
            sum,
            whole_sum: (start == 0 && stop == info.size).then_some(info.xxh3),
            whole: None,
            has_let_go: false,
            is_wrong: false,
            held: None,
            is_checked: false,
            queue: Queue::default(),
        }
    }

    /// Take the next bytes; returns whether so many were asked for.
    pub(crate) fn take(&mut self, bytes: Chunk) -> bool {
        let count = bytes.len() as u64;
        if count > self.stop - self.at {
            return false;
        }
        self.at += count;
        if self.at == self.stop {
            self.held = Some(bytes);
        } else {
            self.hasher.update(&bytes);
            self.let_go(bytes);
        }
        true
    }

    fn let_go(&mut self, bytes: Chunk) {
        if let Some(whole) = &mut self.whole {
            whole.update(&bytes);
        }
        self.has_let_go = true;
        self.queue.push(bytes);
    }

    /// The device has sent all; returns whether it is right.
    pub(crate) fn ended(&mut self, footer: &[u8]) -> bool {
        let Some(last) = self.held.take() else { return false };
        let sum = self.sum.or_else(|| footer.try_into().ok().map(u64::from_be_bytes));
        let mut hasher = self.hasher.clone();
        hasher.update(&last);
        if sum.is_none() || hasher.xxh3_64() != sum {
            // Nobody knows which of them are not.
            self.is_wrong = self.has_let_go;
            self.at -= last.len() as u64;
            return false;
        }
        self.let_go(last);
        if self.whole.as_ref().is_some_and(|whole| whole.xxh3_64() != self.whole_sum) {
            // What another device has sent before.
            self.is_wrong = true;
            self.queue.drop_last();
            return false;
        }
        self.is_checked = true;
        true
    }

    /// What another device is asked for in the place of the last one; None: the answer can't be finished.
    pub(crate) fn rest(&mut self) -> Option<(u64, u64)> {
        if self.is_wrong || self.is_checked {
            return None;
        }
        if let Some(last) = self.held.take() {
            self.at -= last.len() as u64;
        }
        let before = std::mem::replace(&mut self.hasher, hasher());
        if self.whole_sum.is_some() && self.whole.is_none() {
            self.whole = Some(before);
        }
        self.sum = None;
        self.has_let_go = false;
        Some((self.at, self.stop))
    }

    /// Another device begins to send the rest; returns whether it has the same version.
    pub(crate) fn goes_on(&mut self, found: &Found) -> bool {
        self.sum = found.body_xxh3;
        (found.info.timestamp, found.info.size) == (self.version, self.size)
    }

    /// Whether nothing more comes from devices.
    pub(crate) fn is_checked(&self) -> bool {
        self.is_checked
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use swiftlet_hash::xxh3_64;

    use super::*;

    fn info(bytes: &[u8]) -> Info {
        Info {
            name: b"/a/c/o".to_vec(),
            timestamp: 7,
            size: bytes.len() as u64,
            etag: b"abc".to_vec(),
            xxh3: xxh3_64(bytes),
            content_type: b"a/b".to_vec(),
            metadata: Vec::new(),
            sysmeta: Vec::new(),
            meta_timestamp: 0,
            content_type_timestamp: 0,
            delete_at: 0,
        }
    }

    fn chunk(bytes: &[u8]) -> Chunk {
        Chunk::from(bytes.to_vec())
    }

    /// What a client is sent, in steps of so many bytes.
    fn drained(flow: &mut Flow, step: usize) -> Vec<u8> {
        let mut out = Vec::new();
        loop {
            let mut parts = [&[][..]; 2];
            let count = flow.queue.fill(&mut parts);
            if count == 0 {
                return out;
            }
            let both: Vec<u8> = parts.concat().into_iter().take(step).collect();
            flow.queue.sent(both.len());
            out.extend(both);
        }
    }

    fn found(bytes: &[u8], sum: Option<u64>) -> Found {
        Found { info: info(bytes), body_xxh3: sum }
    }

    fn footer(bytes: &[u8]) -> [u8; 8] {
        xxh3_64(bytes).to_be_bytes()
    }

    #[test]
    fn the_last_bytes_wait_for_the_digest() {
        let bytes = b"0123456789";
        let mut flow = Flow::new(&info(bytes), (0, 10), Some(xxh3_64(bytes)));
        assert!(flow.take(chunk(b"0123")) && flow.take(chunk(b"456789")));
        assert_eq!(drained(&mut flow, 3), b"0123");
        assert!(!flow.is_checked());
        assert!(flow.ended(b"") && flow.is_checked());
        assert_eq!((drained(&mut flow, 3), flow.queue.sent_bytes()), (b"456789".to_vec(), 10));
        assert_eq!(flow.rest(), None, "nothing is missing");
    }

    #[test]
    fn what_is_wrong_is_not_finished() {
        let bytes = b"0123456789";
        for (pieces, sum) in [(vec!["0123", "456788"], None), (vec!["0123", "456789"], Some(0)), (vec!["0123"], None)] {
            let mut flow = Flow::new(&info(bytes), (0, 10), sum);
            assert!(pieces.iter().all(|piece| flow.take(chunk(piece.as_bytes()))));
            assert!(!flow.ended(&footer(bytes)), "{pieces:?}");
            assert_eq!(drained(&mut flow, 100), b"0123");
            // What merely ends early may be right so far.
            assert_eq!(flow.rest(), (pieces.len() == 1).then_some((4, 10)));
        }
        let mut flow = Flow::new(&info(bytes), (0, 10), None);
        assert!(flow.take(chunk(b"0123")) && !flow.take(chunk(b"4567890")), "more than was asked for");
        let mut flow = Flow::new(&info(bytes), (2, 4), None);
        assert!(flow.take(chunk(b"24")) && !flow.ended(&footer(b"23")), "damaged");
        assert_eq!(flow.rest(), Some((2, 4)), "and nothing of it was let go");
        assert!(flow.goes_on(&found(bytes, None)) && flow.take(chunk(b"23")) && flow.ended(&footer(b"23")));
        assert_eq!(drained(&mut flow, 100), b"23");
        let mut flow = Flow::new(&info(bytes), (2, 4), None);
        assert!(flow.take(chunk(b"23")) && !flow.ended(b""), "no digest");
    }

    #[test]
    fn another_device_has_to_have_the_same_version() {
        let bytes = b"0123456789";
        let mut flow = Flow::new(&info(bytes), (0, 10), Some(xxh3_64(bytes)));
        assert!(flow.take(chunk(b"0123")));
        assert_eq!(flow.rest(), Some((4, 10)));
        let other = |change: fn(&mut Info)| {
            let mut found = found(bytes, None);
            change(&mut found.info);
            found
        };
        assert!(!flow.goes_on(&other(|info| info.timestamp = 8)));
        assert!(!flow.goes_on(&other(|info| info.size = 11)));
        assert!(flow.goes_on(&other(|info| info.meta_timestamp = 9)), "a POST changes no byte");
    }

    #[test]
    fn damage_is_found_however_often_devices_are_replaced() {
        let bytes = b"0123456789";
        let mut flow = Flow::new(&info(bytes), (0, 10), Some(xxh3_64(bytes)));
        assert!(flow.take(chunk(b"0124")));
        assert_eq!(flow.rest(), Some((4, 10)));
        assert!(flow.goes_on(&found(bytes, None)) && flow.take(chunk(b"45")));
        assert_eq!(flow.rest(), Some((6, 10)));
        assert!(flow.goes_on(&found(bytes, None)) && flow.take(chunk(b"6789")));
        assert!(!flow.ended(&footer(b"6789")), "the first device has sent something else");
        assert_eq!(flow.rest(), None);
        assert_eq!(drained(&mut flow, 100), b"012445");
    }

    proptest! {
        #[test]
        fn all_bytes_come_once_whoever_sends_them(
            bytes in proptest::collection::vec(any::<u8>(), 1..300),
            pieces in proptest::collection::vec((1_usize..60, any::<bool>(), any::<bool>()), 0..40),
            (start, stop) in (0_usize..300, 0_usize..300),
            step in 1_usize..100,
        ) {
            let start = start % bytes.len();
            let stop = start + 1 + stop % (bytes.len() - start);
            let whole_sum = (start == 0 && stop == bytes.len()).then(|| xxh3_64(&bytes));
            let mut flow = Flow::new(&info(&bytes), (start as u64, stop as u64), whole_sum);
            let (mut out, mut from, mut at) = (Vec::new(), start, start);
            let everything = std::iter::repeat((60, false, true));
            for (count, fails, drains) in pieces.into_iter().chain(everything) {
                if fails {
                    let rest = flow.rest();
                    let (next, end) = rest.expect("all is right so far");
                    prop_assert_eq!(end, stop as u64);
                    prop_assert!(flow.goes_on(&found(&bytes, None)));
                    (from, at) = (next as usize, next as usize);
                }
                let end = stop.min(at + count);
                prop_assert!(at == end || flow.take(chunk(&bytes[at..end])));
                at = end;
                if drains {
                    out.extend(drained(&mut flow, step));
                    prop_assert_eq!(&out[..], &bytes[start..start + out.len()]);
                }
                if at == stop && !fails {
                    break;
                }
            }
            prop_assert!(flow.ended(&footer(&bytes[from..stop])) && flow.is_checked());
            out.extend(drained(&mut flow, step));
            prop_assert_eq!(&out[..], &bytes[start..stop]);
            prop_assert_eq!(flow.queue.sent_bytes(), (stop - start) as u64);
        }
    }
}
