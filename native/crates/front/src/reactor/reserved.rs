//! The memory that answers of more than 64 KiB may have together.
//!
//! Short ones reserve what they may have. Long ones are passed on as they come, and reserve what the transport receives
//! of an answer before it is taken. As they may last for as long as their clients like, they get half of the memory at
//! most.
//!
//! What is put together of coded objects has a room of its own, twice as large: the most of it is not in the transport's
//! memory, but copied out of it, or lent by devices of the same node.

use swiftlet_node::coded::Places;
use swiftlet_transport::WINDOW_BYTES;

use crate::answer::{LARGE_BYTES, MAX_BYTES};
use crate::head::{Asked, Method};

/// What a long answer reserves.
pub(super) const FLOW_BYTES: u64 = WINDOW_BYTES as u64;

/// What is asked of a coded object at once: one request for each device that has cells of it.
const GATHERED_BYTES: u64 = 2 << 20;
/// The same while there is room enough: fewer requests, and fewer wakes of threads, bring the same bytes.
const ROOMY_BYTES: u64 = 4 << 20;
/// What may wait for the client of what was put together.
pub(super) const AHEAD_BYTES: u64 = 1 << 20;
/// How many times the room for coded objects is that for all answers.
const FOR_CODED: u64 = 2;

/// What is reserved.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reserved {
    /// For all answers.
    pub(super) all: u64,
    /// For long ones among them.
    pub(super) flows: u64,
    /// For what is put together of coded objects, beside all that.
    pub(super) coded: u64,
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

/// What a read of so many bytes of a coded object reserves, the cells of which take `all`. What is short enough reserves
/// nothing.
pub(super) fn share_of_coded(bytes: u64, all: u64) -> u64 {
    // Whole cells are read of it.
    let is_short = bytes == 0 || (bytes <= MAX_BYTES && all <= LARGE_BYTES);
    if is_short { 0 } else { all }
}

impl Reserved {
    /// Which of these bytes of a coded object to read first, in which windows, and what is reserved for it; None if there
    /// is no room. Windows are large while half of the room is enough for them. Of bytes up to the object's end it is the
    /// first ones if there is no room, as the object may have no others.
    pub(super) fn to_gather(
        self,
        places: Places,
        (start, stop): (u64, u64),
        large_bytes: u64,
    ) -> Option<((u64, u64), Places, u64)> {
        let share_of = |places: &Places, bytes| share_of_coded(bytes, places.read_bytes(bytes, AHEAD_BYTES));
        let (mut places, room) = (places, FOR_CODED * large_bytes);
        for (window, room) in [(ROOMY_BYTES, room / 2), (GATHERED_BYTES, room)] {
            places = places.in_windows_of(window);
            let share = share_of(&places, stop.saturating_sub(start));
            if share == 0 || self.coded + share <= room {
                return Some(((start, stop), places, share));
            }
        }
        let is_open = stop == u64::MAX && share_of(&places, MAX_BYTES) == 0;
        is_open.then(|| ((start, start.saturating_add(MAX_BYTES)), places, 0))
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
    use swiftlet_erasure::Scheme;
    use swiftlet_node::coded::Devices;
    use swiftlet_store::model::Key;

    use super::*;
    use crate::head;

    fn limit(line: &str, all: u64, flows: u64, large_bytes: u64) -> Option<(u64, u64)> {
        let head = format!("GET /v1/a/c/o HTTP/1.1\r\nHost: h\r\n{line}\r\n");
        let asked = head::parse(head.as_bytes()).expect("a request");
        limit_for(&asked, Reserved { all, flows, coded: 0 }, large_bytes)
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
        let reserved = Reserved { all: 4 * flow, flows: flow, coded: 0 };
        assert!(!reserved.has_room(LARGE_BYTES + 1, flow - 1, room));
        assert!(reserved.has_room(LARGE_BYTES + 1, flow, room));
        assert!(reserved.has_room(LARGE_BYTES, flow, room) && reserved.has_room(MAX_BYTES, 0, room));
    }

    /// Of 4+2 with cells of so many bytes.
    fn places(cell_bytes: usize) -> Places {
        let (devices, key) = (Devices::new(Vec::new()), Key { policy: 0, partition: 0, digest: [0; 16] });
        let how = (Scheme::new(4, 2).expect("a scheme"), cell_bytes);
        Places::new(devices, key, how, (0..6).collect(), Vec::new()).expect("places")
    }

    /// What is read first, and what is reserved for it, when so much is reserved already.
    fn given(coded: u64, cell_bytes: usize, range: (u64, u64), large_bytes: u64) -> Option<((u64, u64), u64)> {
        let found = Reserved { all: 0, flows: 0, coded }.to_gather(places(cell_bytes), range, large_bytes);
        found.map(|(range, _, share)| (range, share))
    }

    #[test]
    fn coded_objects_reserve_what_their_windows_take() {
        let all = (0, u64::MAX);
        let [small, large] = [GATHERED_BYTES, ROOMY_BYTES].map(|window| 3 * window + AHEAD_BYTES + (256 << 10));
        let given = |coded, range| given(coded, 64 << 10, range, large);
        assert_eq!(given(0, all), Some((all, large)));
        assert_eq!(given(1, all), Some((all, small)), "large windows leave half of the room to others");
        assert_eq!(given(2 * large - small, all), Some((all, small)));
        assert_eq!(given(2 * large - small + 1, all), Some(((0, MAX_BYTES), 0)), "it may be a small one");
        assert_eq!(given(2 * large - small + 1, (7, u64::MAX)), Some(((7, 7 + MAX_BYTES), 0)));
        assert_eq!(given(2 * large - small + 1, (7, 8 << 20)), None, "it can't be a small range");
        assert_eq!(given(2 * large, (7, 7 + MAX_BYTES)), Some(((7, 7 + MAX_BYTES), 0)));
        assert_eq!(given(2 * large, (0, 0)), Some(((0, 0), 0)));
    }

    #[test]
    fn small_parts_of_large_cells_reserve_the_cells() {
        let mib = 1 << 20;
        let (range, all) = ((5, 10), (0, u64::MAX));
        assert_eq!(given(0, 1 << 20, range, 8 * mib), Some((range, 5 + 8 * mib)));
        assert_eq!(given(0, 1 << 20, range, 4 * mib), None);
        assert_eq!(given(0, 1 << 20, all, 4 * mib), None);
        assert_eq!(given(0, 1 << 20, (0, 0), 0), Some(((0, 0), 0)), "a description");
    }
}
