//! Reads of which only a share is compared: which ones, what is still found of the others, and what is dropped unseen.

use std::cell::Cell;

use proptest::prelude::*;

use super::store::{Store, answer};
use super::*;
use crate::share::Share;

proptest! {
    #[test]
    fn a_share_of_any_number_is_taken_evenly_and_the_first_one_always(part in 1_u64..=1_000_000, count in 1_u64..2000) {
        let mut share = Share::new(part as f64 / 1e6);
        let taken: Vec<bool> = (0..count).map(|_| share.takes_next()).collect();
        prop_assert!(taken[0]);
        for upto in 1..=count {
            let found = taken[..upto as usize].iter().filter(|one| **one).count() as u64;
            prop_assert_eq!(found, 1 + (upto - 1) * part / 1_000_000);
        }
    }
}

#[test]
fn a_share_of_nothing_takes_nothing_and_the_smallest_one_something() {
    let taken = |share: f64| {
        let mut share = Share::new(share);
        (0..2000).filter(|_| share.takes_next()).count()
    };
    assert_eq!((taken(0.0), taken(1e-9), taken(1.0)), (0, 1, 2000));
}

/// A store of objects of one size, whose answers to GET are changed so; what forty reads by four connections gave, and
/// the bytes dropped unseen.
fn reads(verify: f64, size: u64, change: fn(Vec<u8>) -> Vec<u8>) -> (Tally, u64) {
    let mut store = Store::default();
    let is_filled = Cell::new(false);
    let mut plan = Plan { verify, ..plan(&[(Kind::Read, 1.0)]) };
    plan.sizes = Sizes::new(&[(1.0, Size::Fixed(size))]).unwrap();
    let mut bench = Bench::new(plan, |request: &Request, _| {
        let bytes = store.serve(request);
        Reaction::Answer(MS, if is_filled.get() { change(bytes) } else { bytes })
    });
    bench.fill(8);
    assert_eq!(bench.dropped, 0);
    is_filled.set(true);
    let tally = bench.run(measured(4, AT_ONCE, Length::Operations(40)));
    (tally, bench.dropped)
}

fn unchanged(bytes: Vec<u8>) -> Vec<u8> {
    bytes
}

fn body(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4..]
}

fn in_a_chunk(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", body.len());
    [head.as_bytes(), body, b"\r\n0\r\n\r\n"].concat()
}

#[test]
fn what_is_not_compared_is_dropped_and_counted_to_the_byte() {
    for (verify, compared) in [(1.0, 40), (0.25, 10), (0.1, 4), (0.0, 0)] {
        let (tally, dropped) = reads(verify, 100_000, unchanged);
        let read = &tally.operations[&Kind::Read];
        assert_eq!((read.succeeded, read.compared, tally.failed()), (40, compared, 0), "{:?}", failures(&tally));
        assert_eq!((read.bytes, tally.moved), (4_000_000, 4_000_000));
        // What came with the head was read, and is less than one read of a head takes.
        let unseen = 40 - compared;
        assert!(dropped <= unseen * 100_000 && dropped >= unseen * 98_000, "{dropped} of {unseen}");
    }
}

#[test]
fn of_corrupt_reads_the_compared_share_is_found() {
    let (tally, _) = reads(0.25, 100_000, |mut bytes| {
        *bytes.last_mut().unwrap() ^= 1;
        bytes
    });
    let read = &tally.operations[&Kind::Read];
    assert_eq!((read.succeeded, read.compared, tally.failed()), (30, 0, 10));
    assert!(failures(&tally)[0].3.contains("byte 99999 of 100000"), "{:?}", failures(&tally));
}

#[test]
fn wrong_sizes_are_found_in_all_reads() {
    type Change = fn(Vec<u8>) -> Vec<u8>;
    let changes: [(Change, &str); 5] = [
        (|bytes| answer("200 OK", &body(&bytes)[1..]), "Content-Length is "),
        (|bytes| answer("200 OK", &[body(&bytes), b"x"].concat()), "Content-Length is "),
        (|bytes| in_a_chunk(&body(&bytes)[1..]), "the body has "),
        (|bytes| in_a_chunk(&[body(&bytes), b"x"].concat()), "the body has "),
        (|bytes| in_a_chunk(body(&bytes)), ""),
    ];
    for size in [100, 100_000] {
        for (change, message) in changes {
            let (tally, _) = reads(0.0, size, change);
            let found = failures(&tally);
            assert_eq!(tally.failed(), if message.is_empty() { 0 } else { 40 }, "{found:?}");
            assert!(found.iter().all(|one| one.1 == "corrupt" && one.3.contains(message)), "{found:?}");
        }
    }
}

#[test]
fn statuses_are_found_in_all_reads() {
    let (tally, _) = reads(0.0, 100_000, |bytes| answer("500 Internal Server Error", body(&bytes)));
    let found = failures(&tally);
    assert_eq!((found[0].1.as_str(), found[0].2), ("status 500", 40));
}
