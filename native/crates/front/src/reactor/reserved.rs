//! The memory that answers of more than 64 KiB may have together.
//!
//! Short ones reserve what they may have. Long ones are passed on as they come, and reserve what the transport receives
//! of an answer before it is taken. As they may last for as long as their clients like, they get half of the memory at
//! most.

use swiftlet_transport::WINDOW_BYTES;

use crate::answer::{LARGE_BYTES, MAX_BYTES};
use crate::head::{Asked, Method};

/// What a long answer reserves.
pub(super) const FLOW_BYTES: u64 = WINDOW_BYTES as u64;

/// What is reserved.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reserved {
    /// For all answers.
    pub(super) all: u64,
    /// For long ones among them.
    pub(super) flows: u64,
}

/// What an answer of so many bytes reserves.
pub(super) fn share_of(bytes: u64) -> u64 {
    match bytes {
        0..=MAX_BYTES => 0,
        _ if bytes <= LARGE_BYTES => bytes,
        _ => FLOW_BYTES,
    }
}

impl Reserved {
    /// Whether `large_bytes` are enough for an answer of so many bytes, besides what is reserved but for `without`.
    pub(super) fn has_room(self, bytes: u64, without: u64, large_bytes: u64) -> bool {
        let share = share_of(bytes);
        let is_few = bytes <= LARGE_BYTES || self.flows + share <= large_bytes / 2;
        share == 0 || (is_few && self.all - without + share <= large_bytes)
    }
}

/// How many bytes an answer may have, and how many of them are to be reserved beside those that are; None if there is
/// no room for it.
pub(super) fn limit_for(asked: &Asked<'_>, reserved: Reserved, large_bytes: u64) -> Option<(u64, u64)> {
    let (least, most) = if asked.method == Method::Head { (0, 0) } else { asked.wanted.limits() };
    if most > LARGE_BYTES && reserved.has_room(most, 0, large_bytes) {
        // Most objects are short: a long one reserves more when that is known.
        let share = if least == most { FLOW_BYTES } else { LARGE_BYTES };
        return Some((most, share));
    }
    let short = most.min(LARGE_BYTES);
    if least <= short && reserved.has_room(short, 0, large_bytes) {
        return Some((short, share_of(short)));
    }
    (least <= MAX_BYTES).then_some((MAX_BYTES, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head;

    fn limit(line: &str, all: u64, flows: u64, large_bytes: u64) -> Option<(u64, u64)> {
        let head = format!("GET /v1/a/c/o HTTP/1.1\r\nHost: h\r\n{line}\r\n");
        let asked = head::parse(head.as_bytes()).expect("a request");
        limit_for(&asked, Reserved { all, flows }, large_bytes)
    }

    #[test]
    fn large_answers_have_a_room_of_their_own() {
        let whole = Some((LARGE_BYTES, LARGE_BYTES));
        assert_eq!(limit("", 0, 0, LARGE_BYTES), whole);
        assert_eq!(limit("", 1, 0, LARGE_BYTES), Some((MAX_BYTES, 0)), "a small object is answered with all the same");
        assert_eq!(limit("", 1, 0, LARGE_BYTES + 1), whole);
        let range = "Range: bytes=10-100009\r\n";
        assert_eq!(limit(range, 0, 0, 100_000), Some((100_000, 100_000)));
        assert_eq!(limit(range, 1, 0, 100_000), None);
        assert_eq!(limit("Range: bytes=0-9\r\n", 0, 0, 0), Some((10, 0)));
        assert_eq!(limit("Range: bytes=5-\r\n", 0, 0, 0), Some((MAX_BYTES, 0)));
        assert_eq!(limit("Range: bytes=5-\r\n", 0, 0, LARGE_BYTES), whole);
        assert_eq!(limit("Range: bytes=-5\r\n", 0, 0, 0), Some((MAX_BYTES, 0)));
    }

    #[test]
    fn long_answers_leave_room_for_others() {
        let (room, flow) = (4 * FLOW_BYTES, FLOW_BYTES);
        assert_eq!(limit("", 0, 0, room), Some((u64::MAX, LARGE_BYTES)));
        assert_eq!(limit("", flow, flow, room), Some((u64::MAX, LARGE_BYTES)));
        assert_eq!(limit("", 2 * flow, 2 * flow, room), Some((LARGE_BYTES, LARGE_BYTES)));
        assert_eq!(limit("", 3 * flow + 1, 0, room), Some((LARGE_BYTES, LARGE_BYTES)));
        let range = "Range: bytes=1-1048577\r\n";
        assert_eq!(limit(range, 0, 0, room), Some((LARGE_BYTES + 1, flow)));
        assert_eq!(limit(range, 2 * flow, 2 * flow, room), None);
        let reserved = Reserved { all: 4 * flow, flows: flow };
        assert!(!reserved.has_room(LARGE_BYTES + 1, flow - 1, room));
        assert!(reserved.has_room(LARGE_BYTES + 1, flow, room));
        assert!(reserved.has_room(LARGE_BYTES, flow, room) && reserved.has_room(MAX_BYTES, 0, room));
    }
}
