//! Parts without the engine: answers in arbitrary pieces, sizes, contents, parts of orders.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::exchange::{Exchange, Expect, Failure};
use crate::random::Random;

static CONTENTS: LazyLock<Contents> = LazyLock::new(|| Contents::new(1));

fn take(
    bytes: &[u8],
    pieces: &[usize],
    method: &str,
    expect: Expect,
) -> Result<(u16, u64, Option<String>, bool), Failure> {
    let contents = &*CONTENTS;
    let mut exchange = Exchange::new();
    exchange.begin(method, "/v1/a/c/o", "Host: h\r\n", None, expect);
    while !exchange.is_sent() {
        exchange.send(contents, |slices| Ok(slices.iter().map(|slice| slice.len()).sum::<usize>().min(7))).unwrap();
    }
    let mut rest = bytes;
    for piece in pieces.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (now, later) = rest.split_at((*piece).min(rest.len()));
        exchange.take(contents, now)?;
        rest = later;
    }
    if !exchange.is_done() {
        exchange.end()?;
    }
    Ok((exchange.status(), exchange.body_received(), exchange.wrong(), exchange.keeps()))
}

proptest! {
    #[test]
    fn answers_may_come_in_any_pieces(pieces in prop::collection::vec(1_usize..40, 1..20)) {
        let of = |bytes: &[u8], method| take(bytes, &pieces, method, Expect::Nothing);
        let sized = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789";
        prop_assert_eq!(of(sized, "GET"), Ok((200, 10, None, true)));
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\n01234\r\nA\r\n0123456789\r\n0\r\nT: 1\r\n\r\n";
        prop_assert_eq!(of(chunked, "GET"), Ok((200, 15, None, true)));
        let closed = b"HTTP/1.0 200 OK\r\n\r\n0123";
        prop_assert_eq!(of(closed, "GET"), Ok((200, 4, None, false)));
        let goodbye = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
        prop_assert_eq!(of(goodbye, "DELETE"), Ok((204, 0, None, false)));
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n";
        prop_assert_eq!(of(head, "HEAD"), Ok((200, 0, None, true)));
        prop_assert_eq!(of(head, "GET"), Err(Failure::Closed));
        let bad = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n01234567\r\n0\r\n\r\n";
        prop_assert_eq!(of(bad, "GET"), Err(Failure::Malformed));
    }

    #[test]
    fn whatever_a_store_sends_is_an_answer_or_a_failure(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        head in 0_usize..4,
        pieces in prop::collection::vec(1_usize..40, 1..20),
    ) {
        let heads = [&b""[..], b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"HTTP/1.1 "];
        let sent = [heads[head], &bytes].concat();
        let listing = Expect::Listing(crate::names::Names::after(b"a", 10));
        for expect in [Expect::Nothing, Expect::Size(5), Expect::Contents { start: 9, size: 100 }, listing] {
            drop(take(&sent, &pieces, "GET", expect));
        }
    }

    #[test]
    fn contents_are_compared_over_the_end_of_the_text(start in 0_usize..1_048_573, position in 0_u64..5_000_000, size in 1_usize..3_000_000) {
        let contents = Contents::new(3);
        let mut bytes = Vec::new();
        while bytes.len() < size {
            bytes.extend_from_slice(contents.piece(start, position + bytes.len() as u64, (size - bytes.len()) as u64));
        }
        prop_assert_eq!(bytes.len(), size);
        prop_assert_eq!(contents.difference(start, position, &bytes), None);
        let place = size / 2;
        bytes[place] ^= 0x10;
        prop_assert_eq!(contents.difference(start, position, &bytes), Some(position + place as u64));
    }

    #[test]
    fn the_parts_of_an_order_are_the_whole(connections in 1_usize..300, threads in 1_usize..12, count in 0_u64..100_000) {
        let order = measured(connections, AT_ONCE, Length::Operations(count));
        let parts: Vec<Order> = (0..threads).filter_map(|thread| order.part(thread, threads)).collect();
        prop_assert_eq!(parts.iter().map(|part| part.connections).sum::<usize>(), connections);
        let of = |part: &Order| match part.phase {
            Phase::Measure(Measure { length: Length::Operations(count), .. }) => count,
            _ => 0,
        };
        prop_assert_eq!(parts.iter().map(of).sum::<u64>(), count);
        let fill = Order { connections, phase: Phase::Fill(count as u32) };
        let filled = (0..threads).filter_map(|thread| fill.part(thread, threads)).map(|part| match part.phase {
            Phase::Fill(objects) => u64::from(objects),
            _ => 0,
        });
        prop_assert_eq!(filled.sum::<u64>(), count);
    }
}

#[test]
fn the_rate_of_an_open_loop_is_shared_by_connections() {
    let order = measured(3, Pace::Open(Pause::Even(600)), Length::Time(S));
    let intervals: Vec<Pace> = (0..2)
        .filter_map(|thread| order.part(thread, 2))
        .map(|part| match part.phase {
            Phase::Measure(measure) => measure.pace,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(intervals, [Pace::Open(Pause::Even(900)), Pace::Open(Pause::Even(1800))]);
}

#[test]
fn sizes_follow_from_seed_and_number() {
    let sizes = Sizes::new(&[
        (3.0, Size::Fixed(10)),
        (1.0, Size::Uniform(100, 199)),
        (1.0, Size::Lognormal { median: 100_000, sigma: 1.5, least: 1000, most: 10_000_000 }),
    ])
    .unwrap();
    let drawn: Vec<u64> = (0..50_000).map(|number| sizes.of(1, number)).collect();
    assert_eq!(drawn, (0..50_000).map(|number| sizes.of(1, number)).collect::<Vec<_>>());
    assert_ne!(drawn, (0..50_000).map(|number| sizes.of(2, number)).collect::<Vec<_>>());
    let share = |from: u64, to: u64| drawn.iter().filter(|size| (from..=to).contains(size)).count() as f64 / 50_000.0;
    assert!((share(10, 10) - 0.6).abs() < 0.01);
    assert!((share(100, 199) - 0.2).abs() < 0.01);
    assert!((share(1000, 100_000) - 0.1).abs() < 0.01, "half of them are below the median");
    assert!((share(1000, 10_000_000) - 0.2).abs() < 0.01);
    let even: u64 = drawn.iter().filter(|size| (100..=199).contains(*size)).sum();
    assert!((even as f64 / (share(100, 199) * 50_000.0) - 149.5).abs() < 1.5);
}

#[test]
fn a_seed_means_the_same_in_every_version() {
    let mut random = Random::new(1, 2);
    let sizes = Sizes::new(&[(1.0, Size::Uniform(0, 1_000_000))]).unwrap();
    let contents = Contents::new(1);
    let drawn = [random.next(), random.below(1000), random.next()];
    let stored = (sizes.of(1, 0), sizes.of(2, 1), contents.start(0), contents.piece(0, 0, 4).to_vec());
    let expected = (
        [13_782_664_598_465_056_799, 599, 15_153_185_287_229_151_088],
        (963_484, 406_717, 514_739, vec![10, 111, 47, 130]),
    );
    assert_eq!((drawn, stored), expected);
}

#[test]
fn impossible_sizes_are_refused() {
    for wrong in [
        vec![],
        vec![(0.0, Size::Fixed(1))],
        vec![(-1.0, Size::Fixed(1)), (3.0, Size::Fixed(1))],
        vec![(1.0, Size::Uniform(2, 1))],
        vec![(1.0, Size::Fixed(6 << 40))],
        vec![(1.0, Size::Lognormal { median: 0, sigma: 1.0, least: 0, most: 1 })],
        vec![(f64::NAN, Size::Fixed(1))],
    ] {
        assert!(Sizes::new(&wrong).is_err(), "{wrong:?}");
    }
}
