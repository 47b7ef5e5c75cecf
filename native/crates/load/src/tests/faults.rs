//! Stores that answer wrongly, and connections that end.

use std::cell::Cell;

use super::store::{Store, answer};
use super::*;

type Fault = fn(&Request, Vec<u8>) -> Vec<u8>;

/// Failures of an operation when answers to it are changed so.
fn faulty(kind: Kind, fault: Fault) -> Vec<(String, String)> {
    let mut store = Store::default();
    let is_filled = Cell::new(false);
    let mut plan = plan(&[(kind, 1.0)]);
    plan.sizes = Sizes::new(&[(1.0, Size::Uniform(2000, 3000))]).unwrap();
    let mut bench = Bench::new(plan, |request: &Request, _| {
        let bytes = store.serve(request);
        Reaction::Answer(MS, if is_filled.get() { fault(request, bytes) } else { bytes })
    });
    bench.fill(60);
    is_filled.set(true);
    let tally = bench.run(measured(3, AT_ONCE, Length::Operations(20)));
    let found = failures(&tally);
    assert_eq!(found.iter().map(|(_, _, count, _)| count).sum::<u64>() + tally.operations[&kind].succeeded, 20);
    found.into_iter().map(|(_, failure, _, example)| (failure, example)).collect()
}

fn head_end(bytes: &[u8]) -> usize {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4
}

#[track_caller]
fn assert_corrupt(kind: Kind, fault: Fault, example: &str) {
    let found = faulty(kind, fault);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "corrupt");
    assert!(found[0].1.contains(example), "{}", found[0].1);
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    for kind in [Kind::Read, Kind::Head, Kind::List] {
        assert_eq!(faulty(kind, |_, bytes| bytes), []);
    }
}

#[test]
fn a_changed_bit_is_found() {
    let fault: Fault = |_, mut bytes| {
        let place = head_end(&bytes) + 1234;
        bytes[place] ^= 1;
        bytes
    };
    assert_corrupt(Kind::Read, fault, "byte 1234 of ");
}

#[test]
fn blocks_in_the_wrong_order_are_found() {
    let fault: Fault = |_, mut bytes| {
        let place = head_end(&bytes);
        bytes[place..place + 1024].rotate_left(512);
        bytes
    };
    assert_corrupt(Kind::Read, fault, "byte 0 of ");
}

#[test]
fn another_objects_bytes_are_found() {
    let fault: Fault = |_, bytes| {
        let size = bytes.len() - head_end(&bytes);
        let contents = Contents::new(7);
        let other = contents.piece(contents.start(1_000_000), 0, size as u64).to_vec();
        answer("200 OK", &other)
    };
    assert_corrupt(Kind::Read, fault, "byte 0 of ");
}

#[test]
fn objects_that_are_too_short_or_too_long_are_found() {
    assert_corrupt(Kind::Read, |_, bytes| answer("200 OK", &bytes[head_end(&bytes)..bytes.len() - 1]), "the body has ");
    let longer: Fault = |_, mut bytes| {
        bytes.push(0);
        answer("200 OK", &bytes[head_end(&bytes)..])
    };
    assert_corrupt(Kind::Read, longer, "longer than the object's ");
    assert_corrupt(Kind::Read, |_, _| answer("200 OK", b""), "the body has 0 bytes");
    assert_corrupt(Kind::Head, |_, _| b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".to_vec(), "Content-Length is 5");
    assert_corrupt(Kind::Head, |_, _| b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), "Content-Length is missing");
}

#[test]
fn listings_in_the_wrong_order_before_the_marker_or_too_long_are_found() {
    assert_corrupt(Kind::List, |_, _| answer("200 OK", b"9999999991\n9999999990\n"), "do not ascend");
    assert_corrupt(Kind::List, |_, _| answer("200 OK", b"0\n"), "after the marker");
    let names: Fault =
        |_, _| answer("200 OK", (0..11).map(|one| format!("A{one:02}\n")).collect::<String>().as_bytes());
    assert_corrupt(Kind::List, names, "more names than");
    assert_corrupt(Kind::List, |_, _| answer("200 OK", &[b'x'; 5000]), "too long");
}

#[test]
fn statuses_are_told_apart_with_an_example() {
    let found = faulty(Kind::Read, |_, _| answer("503 Service Unavailable", b"<html>busy</html>"));
    assert_eq!(found[0].0, "status 503");
    assert!(found[0].1.starts_with("GET /v1/AUTH_a/bench-00000"), "{}", found[0].1);
}

#[test]
fn what_is_not_http_is_malformed() {
    for bytes in [&b"SSH-2.0-OpenSSH\r\n"[..], b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n"] {
        let mut store = Store::default();
        let mut bench = Bench::new(plan(&[(Kind::Read, 1.0)]), |request: &Request, _| {
            let good = store.serve(request);
            Reaction::Answer(MS, if request.method == "GET" { bytes.to_vec() } else { good })
        });
        bench.fill(5);
        let tally = bench.run(measured(2, AT_ONCE, Length::Operations(5)));
        assert_eq!(failures(&tally)[0].1, "malformed answer");
        assert_eq!(tally.failed(), 5);
    }
}

#[test]
fn more_than_an_answer_is_malformed() {
    let fault: Fault = |_, mut bytes| {
        bytes.extend_from_slice(b"more");
        bytes
    };
    let found = faulty(Kind::Read, fault);
    assert!(found.iter().all(|(failure, _)| failure == "malformed answer"), "{found:?}");
}

#[test]
fn a_connection_that_was_closed_for_being_idle_is_replaced() {
    // Each connection is closed after its answer, without a word about it.
    let mut store = Store::default();
    let mut bench = Bench::new(plan(&[(Kind::Create, 1.0), (Kind::Delete, 1.0)]), |request: &Request, _| {
        Reaction::AnswerAndClose(MS, store.serve(request))
    });
    let pause = Pace::Closed(Pause::Even(MS));
    assert_eq!(bench.run(Order { connections: 1, phase: Phase::CreateContainers }).failed(), 0);
    let tally = bench.run(measured(3, pause, Length::Operations(300)));
    assert_eq!(failures(&tally), []);
}

#[test]
fn a_connection_that_ends_within_an_answer_has_failed() {
    let mut store = Store::default();
    let mut bench = Bench::new(plan(&[(Kind::Read, 1.0)]), |request: &Request, _| {
        let mut bytes = store.serve(request);
        if request.method != "GET" {
            return Reaction::Answer(MS, bytes);
        }
        bytes.truncate(bytes.len() - 1);
        Reaction::AnswerAndClose(MS, bytes)
    });
    bench.plan.sizes = Sizes::new(&[(1.0, Size::Fixed(100))]).unwrap();
    bench.fill(5);
    let tally = bench.run(measured(2, AT_ONCE, Length::Operations(10)));
    assert_eq!(failures(&tally)[0].1, "connection closed");
    assert_eq!((tally.failed(), tally.resent), (10, 0));
}

#[test]
fn a_server_that_closes_without_answering_fails_each_request_once() {
    let mut bench = Bench::new(plan(&[(Kind::Create, 1.0)]), |_: &Request, _| Reaction::AnswerAndClose(MS, Vec::new()));
    let tally = bench.run(measured(2, AT_ONCE, Length::Operations(10)));
    assert_eq!((tally.failed(), failures(&tally)[0].1.as_str()), (10, "connection closed"));
    let population = bench.population.as_ref().unwrap();
    assert_eq!((population.len(), population.left()), (0, 10), "each may exist");
    let mut gone =
        Bench::new(plan(&[(Kind::Read, 1.0)]), |_: &Request, _| Reaction::Answer(MS, answer("404 Gone", b"")));
    gone.population = bench.population.take();
    assert_eq!(gone.run(Order { connections: 2, phase: Phase::Empty }).failed(), 0, "none of them did");
}

#[test]
fn objects_that_could_not_be_deleted_are_kept_in_mind() {
    let mut store = Store::default();
    let fails = Cell::new(false);
    let mut bench = Bench::new(plan(&[(Kind::Read, 1.0)]), |request: &Request, _| {
        let is_refused = fails.get() && request.method == "DELETE";
        Reaction::Answer(MS, if is_refused { answer("503 Busy", b"") } else { store.serve(request) })
    });
    bench.fill(8);
    fails.set(true);
    assert_eq!(bench.run(Order { connections: 2, phase: Phase::Empty }).failed(), 8);
    fails.set(false);
    assert_eq!(bench.population.as_ref().unwrap().left(), 8);
    assert_eq!(bench.run(Order { connections: 2, phase: Phase::Empty }).failed(), 0);
    drop(bench);
    assert!(store.objects.is_empty());
}
