//! Runs: the bytes in their order, what is wrong stops them exactly there, and who takes nothing asks for little.
//!
//! Fault model: objects missing, replaced, marked or about to go; damaged bytes on disk; a server that ends in the
//! middle; a taker that stands still, stops or goes away.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{LONG, MIB, World, content, eventually, footer, key, meta, only_file, put};
use swiftlet_node::message::{Found, Request};
use swiftlet_node::{Ahead, Failure, Limits, Marks, Part, Run, RunEnd, RunOptions, Status};
use swiftlet_transport::{Carrier, Chunk, Completions, Peer, Sink, What};

macro_rules! over_each_carrier {
    ($($test:ident),* $(,)?) => {
        mod tcp { $(#[test] fn $test() { super::$test(&super::World::new(super::Carrier::Tcp)); })* }
        mod same_node { $(#[test] fn $test() { super::$test(&super::World::new(super::Carrier::SameNode)); })* }
        mod simulated { $(#[test] fn $test() { super::$test(&super::World::new(super::Carrier::Simulated)); })* }
    };
}

over_each_carrier!(
    all_bytes_come_in_their_order,
    ten_thousand_small_ones,
    what_is_not_as_it_should_be_stops_it_there,
    what_is_gone_or_cannot_be_asked_stops_it_there,
    who_takes_nothing_asks_for_little,
    who_takes_all_there_is_is_read_ahead_for,
    several_ask_for_no_more_ahead_than_all_may,
    many_in_little_memory_come_to_their_end,
    pieces_are_handed_on_as_they_come,
    stopped_it_ends_once,
    damage_is_not_handed_on,
    a_server_that_ends_in_the_middle_stops_it_and_says_of_which_object_bytes_were_handed_on,
);

type Target = (Peer, String);

fn part(target: &Target, number: u64, start: u64, stop: u64) -> Part {
    let (peer, device) = target.clone();
    Part { peer, device, key: key(number), start, stop, size: None, etag: Some(b"etag".to_vec()), unmarked: true }
}

fn options(ahead_bytes: u64, ahead: Arc<Ahead>) -> RunOptions {
    let marks = Marks { metadata: vec![b"manifest".to_vec()], sysmeta: vec![b"large".to_vec()] };
    RunOptions { timeout: LONG, trace: "tx1".to_owned(), ahead_bytes, ahead, marks }
}

struct Taker {
    events: Arc<Completions>,
    run: Arc<Run>,
}

impl Taker {
    fn new(parts: Vec<Part>, ahead_bytes: u64) -> Self {
        Self::beside(parts, ahead_bytes, &Ahead::new(u64::MAX))
    }

    /// One of several.
    fn beside(parts: Vec<Part>, ahead_bytes: u64, ahead: &Arc<Ahead>) -> Self {
        let events = Completions::new().unwrap();
        let sink = Arc::clone(&events) as Arc<dyn Sink>;
        let run = Run::start(parts, options(ahead_bytes, Arc::clone(ahead)), sink, 7).unwrap();
        Self { events, run }
    }

    /// All bytes up to its end, which is its last event.
    fn rest(&self) -> (Vec<u8>, RunEnd) {
        let mut bytes = Vec::new();
        loop {
            let events = self.events.wait(LONG);
            assert!(!events.is_empty(), "nothing for a long time");
            let last = events.len() - 1;
            for (at, event) in events.into_iter().enumerate() {
                assert_eq!(event.token, 7);
                match event.what {
                    What::Chunk(chunk) => {
                        bytes.extend_from_slice(&chunk);
                        self.run.taken(chunk.len() as u64);
                    }
                    What::End(footer) => {
                        assert!(footer.is_empty());
                        assert!(at == last && self.events.drain().is_empty(), "something behind the end");
                        return (bytes, self.run.end().unwrap());
                    }
                    what => panic!("{what:?}"),
                }
            }
        }
    }
}

fn store(world: &World, target: &Target, number: u64, data: &[u8]) {
    let targets = std::slice::from_ref(target);
    world.client.put(targets, &put(number, 10, data, 0), &Chunk::from(data.to_vec()), LONG).remove(0).unwrap();
}

fn all_bytes_come_in_their_order(world: &World) {
    let (_machine, targets) = world.machine(3, Limits::default());
    let sizes = [1, 70_000, 10, 65_536, MIB, 3 * MIB + 7, 2, 5 * MIB + 3, 300_000, 9 * MIB];
    let (mut parts, mut expected) = (Vec::new(), Vec::new());
    for (number, size) in (0..).zip(sizes) {
        let target = &targets[number as usize % 3];
        let data = content(number, size);
        store(world, target, number, &data);
        // Whole, all but the ends, and both halves.
        let size = size as u64;
        for (start, stop) in [(0, size), (size / 3, size - size / 3), (0, size.div_ceil(2)), (size / 2, size)] {
            if start < stop {
                parts.push(Part { size: Some(size), ..part(target, number, start, stop) });
                expected.extend_from_slice(&data[start as usize..stop as usize]);
            }
        }
    }
    for ahead in [0, 100_000, 4 << 20] {
        let (bytes, end) = Taker::new(parts.clone(), ahead).rest();
        assert!(bytes == expected, "other bytes");
        assert_eq!(end, RunEnd { done: parts.len(), ..RunEnd::default() });
    }
}

fn ten_thousand_small_ones(world: &World) {
    let (_machine, targets) = world.machine(2, Limits { max_requests: 64, ..Limits::default() });
    for number in 0..500 {
        store(world, &targets[number as usize % 2], number, &content(number, 1024));
    }
    let parts: Vec<Part> = (0..1000).map(|at| part(&targets[at % 2], at as u64 % 500, 0, 1024)).collect();
    let expected: Vec<u8> = (0..1000).flat_map(|at| content(at % 500, 1024)).collect();
    for _ in 0..10 {
        let (bytes, end) = Taker::new(parts.clone(), 2 << 20).rest();
        assert!(bytes == expected && end.done == 1000, "{end:?}");
    }
}

fn what_is_not_as_it_should_be_stops_it_there(world: &World) {
    let (_machine, targets) = world.machine(1, Limits::default());
    let target = &targets[0];
    let whole = content(1, 1000);
    store(world, target, 1, &whole);
    let made = |number, metadata: Vec<(Vec<u8>, Vec<u8>)>, sysmeta, delete_at| {
        let mut meta = meta(10);
        (meta.metadata, meta.sysmeta, meta.delete_at) = (metadata, sysmeta, delete_at);
        let request = Request::Put { key: key(number), meta, footer: Some(footer(&whole)), row: 0 };
        let body = Chunk::from(whole.clone());
        world.client.put(&targets, &request, &body, LONG).remove(0).unwrap();
    };
    let pair = |name: &[u8]| vec![(name.to_vec(), b"x".to_vec())];
    made(2, pair(b"manifest"), Vec::new(), 0);
    made(3, Vec::new(), pair(b"large"), 0);
    made(4, Vec::new(), Vec::new(), 1);
    made(5, pair(b"large"), pair(b"manifest"), u64::from(u32::MAX));
    let good = part(target, 1, 0, 1000);
    let wrong = [
        Part { size: Some(999), ..good.clone() },
        Part { etag: Some(b"other".to_vec()), ..good.clone() },
        part(target, 1, 0, 1001),
        part(target, 2, 0, 1000),
        part(target, 3, 0, 1000),
        part(target, 4, 0, 1000),
    ];
    for wrong in wrong {
        let parts = vec![good.clone(), part(target, 5, 3, 10), wrong, good.clone()];
        let (bytes, end) = Taker::new(parts, 1 << 20).rest();
        assert!(bytes == [&whole[..], &whole[3..10]].concat(), "{} bytes", bytes.len());
        assert_eq!(end, RunEnd { done: 2, ..RunEnd::default() });
    }
    let marked = Part { unmarked: false, ..part(target, 3, 0, 1000) };
    assert_eq!(Taker::new(vec![marked], 0).rest().1.done, 1);
}

fn what_is_gone_or_cannot_be_asked_stops_it_there(world: &World) {
    let (_machine, targets) = world.machine(1, Limits::default());
    let target = &targets[0];
    store(world, target, 1, &content(1, 100_000));
    let good = part(target, 1, 0, 100_000);
    let broken = (target.0.clone(), "broken".to_owned());
    for (wrong, status) in [(part(target, 99, 0, 1), Status::NotFound), (part(&broken, 1, 0, 1), Status::DeviceFailed)]
    {
        let (bytes, end) = Taker::new(vec![good.clone(), wrong, good.clone()], 1 << 20).rest();
        assert_eq!((bytes.len(), end.done, end.sent, end.found.len()), (100_000, 1, 0, 0));
        assert_eq!(end.failure.and_then(|failure| failure.status()), Some(status));
    }
    let nowhere = world.node.peer(swiftlet_transport::Address { name: "nobody".to_owned(), tcp: None });
    let (bytes, end) = Taker::new(vec![good, part(&(nowhere, "d0".to_owned()), 1, 0, 1)], 1 << 20).rest();
    assert_eq!((bytes.len(), end.done), (100_000, 1));
    assert!(matches!(end.failure, Some(Failure::Lost(_))), "{:?}", end.failure);
}

fn who_takes_nothing_asks_for_little(world: &World) {
    let (machine, targets) = world.machine(1, Limits::default());
    let target = &targets[0];
    store(world, target, 1, &content(1, 100_000));
    let asked = || machine.server.stats()["d0"].answered.iter().filter(|row| row.0 == 2).map(|row| row.2).sum::<u64>();
    let taker = Taker::new((0..100).map(|_| part(target, 1, 0, 100_000)).collect(), 250_000);
    eventually("the first ones are there", || asked() == 3);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(asked(), 3, "as many as make more than may wait");
    taker.run.taken(100_000);
    eventually("one more for what was taken", || asked() == 4);
    assert_eq!(taker.rest().1.done, 100);
    let taker = Taker::new((0..100).map(|_| part(target, 1, 0, 100)).collect(), 1 << 30);
    assert_eq!(taker.rest().1.done, 100);
}

fn who_takes_all_there_is_is_read_ahead_for(world: &World) {
    let (machine, targets) = world.machine(1, Limits::default());
    let target = &targets[0];
    store(world, target, 1, &content(1, 100_000));
    let asked = || machine.server.stats()["d0"].answered.iter().filter(|row| row.0 == 2).map(|row| row.2).sum::<u64>();
    let taker = Taker::new((0..100).map(|_| part(target, 1, 0, 100_000)).collect(), 100_000);
    eventually("the first ones are there", || asked() == 2);
    let mut taken = 0;
    while taken < 50 * 100_000 {
        for event in taker.events.wait(LONG) {
            let What::Chunk(chunk) = event.what else { panic!("{:?}", event.what) };
            taken += chunk.len() as u64;
            taker.run.taken(chunk.len() as u64);
        }
    }
    let ahead = || asked() - taken / 100_000;
    eventually("as many as make more than may wait", || ahead() == 5);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(ahead(), 5, "and no more");
    assert_eq!(taker.rest().1.done, 100);
}

fn several_ask_for_no_more_ahead_than_all_may(world: &World) {
    let (_machine, targets) = world.machine(1, Limits::default());
    let target = &targets[0];
    store(world, target, 1, &content(1, 4 * MIB));
    let ahead = Ahead::new(5 << 20);
    let parts = || vec![part(target, 1, 0, 4 << 20); 5];
    // None of their first ones comes to its end before somebody takes its bytes.
    let takers: Vec<Taker> = (0..3).map(|_| Taker::beside(parts(), 64 << 20, &ahead)).collect();
    eventually("a window each for two objects behind the first ones", || ahead.used() == 4 << 20);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(ahead.used(), 4 << 20, "and for no more");
    takers[0].run.stop();
    for taker in &takers[1..] {
        assert_eq!(taker.rest().1.done, 5);
    }
    assert_eq!(ahead.used(), 0);
}

/// Each has the objects in another order, so that the first of one is behind others of the next.
fn many_in_little_memory_come_to_their_end(world: &World) {
    let (_machine, targets) = world.machine(4, Limits::default());
    let target = |number: u64| &targets[number as usize % 4];
    for number in 0..16 {
        store(world, target(number), number, &content(number, 2 * MIB));
    }
    let ahead = Ahead::new(8 << 20);
    let takers: Vec<Taker> = (0..24)
        .map(|first| {
            let numbers = (0..16).map(|at| (first + at * 5) % 16);
            Taker::beside(numbers.map(|number| part(target(number), number, 0, 2 << 20)).collect(), 32 << 20, &ahead)
        })
        .collect();
    std::thread::scope(|scope| {
        for taker in &takers {
            scope.spawn(|| {
                let (bytes, end) = taker.rest();
                assert_eq!((bytes.len(), end.done), (32 << 20, 16), "{end:?}");
            });
        }
    });
}

/// As much as a sender may send ahead is there to be taken, but for the end of the object.
fn pieces_are_handed_on_as_they_come(world: &World) {
    let (_machine, targets) = world.machine(1, Limits::default());
    store(world, &targets[0], 1, &content(1, 9 * MIB));
    let taker = Taker::new(vec![part(&targets[0], 1, 0, 9 << 20)], 2 << 20);
    let mut held = Vec::new();
    eventually("all of the window", || {
        held.extend(taker.events.drain());
        held.len() == 2
    });
    let bytes: usize =
        held.iter().map(|event| if let What::Chunk(chunk) = &event.what { chunk.len() } else { 0 }).sum();
    assert_eq!(bytes, 2 * MIB);
    drop(held);
    assert_eq!(taker.rest().1.done, 1);
}

fn stopped_it_ends_once(world: &World) {
    let (machine, targets) = world.machine(1, Limits::default());
    let target = &targets[0];
    store(world, target, 1, &content(1, 9 * MIB));
    let taker = Taker::new((0..3).map(|_| part(target, 1, 0, 9 << 20)).collect(), 20 << 20);
    let first = taker.events.wait(LONG);
    assert!(matches!(first[0].what, What::Chunk(_)), "{first:?}");
    taker.run.stop();
    taker.run.stop();
    drop(first);
    let (_, end) = taker.rest();
    assert!(end.done == 0 && end.failure.is_none() && end.sent > 0, "{end:?}");
    assert_eq!(Found::decode(&end.found).unwrap().info.size, 9 << 20);
    taker.run.taken(1 << 20);
    drop(taker);
    eventually("the device lets go of what was asked for", || machine.server.stats()["d0"].requests == 0);
    eventually("and all memory is back", || world.node.pool().stat().used_bytes == 0);
}

fn a_server_that_ends_in_the_middle_stops_it_and_says_of_which_object_bytes_were_handed_on(world: &World) {
    let (mut machine, targets) = world.machine(1, Limits::default());
    let target = &targets[0];
    let data = content(1, 9 * MIB);
    store(world, target, 1, &data);
    let taker = Taker::new((0..2).map(|_| part(target, 1, 0, 9 << 20)).collect(), 1 << 20);
    let held = taker.events.wait(LONG);
    let [swiftlet_transport::Event { what: What::Chunk(first), .. }, ..] = &held[..] else { panic!("{held:?}") };
    machine.node = None;
    assert!(data.starts_with(first));
    let before: usize =
        held.iter().map(|event| if let What::Chunk(chunk) = &event.what { chunk.len() } else { 0 }).sum();
    let (rest, end) = taker.rest();
    assert!((end.done, end.sent) == (0, (before + rest.len()) as u64) && end.sent < 9 << 20, "{end:?}");
    assert!(data[before..].starts_with(&rest));
    assert!(matches!(end.failure, Some(Failure::Lost(_))) && !end.found.is_empty());
}

fn damage_is_not_handed_on(world: &World) {
    let (machine, targets) = world.machine(1, Limits::default());
    let target = &targets[0];
    let (small, large) = (content(0, 1000), content(1, 8 * MIB));
    store(world, target, 0, &small);
    store(world, target, 1, &large);
    let file = only_file(&machine.directories[0].0.join("large"));
    let opened = std::fs::OpenOptions::new().write(true).open(file).unwrap();
    opened.write_at(&[large[5 * MIB] ^ 1], 5 * MIB as u64).unwrap();
    let parts = vec![part(target, 0, 0, 1000), part(target, 1, 0, 8 << 20), part(target, 0, 0, 1000)];
    let (bytes, end) = Taker::new(parts, 1 << 20).rest();
    assert!(bytes.len() <= 1000 + 5 * MIB && [small, large].concat().starts_with(&bytes), "{} bytes", bytes.len());
    assert_eq!((end.done, end.sent), (1, bytes.len() as u64 - 1000));
    assert!(matches!(end.failure, Some(Failure::Lost(_))), "{:?}", end.failure);
}

#[test]
fn a_run_has_parts_and_parts_have_bytes() {
    let world = World::new(Carrier::Tcp);
    let (_machine, targets) = world.machine(1, Limits::default());
    for parts in [vec![], vec![part(&targets[0], 1, 5, 5)], vec![part(&targets[0], 1, 0, 1); 1025]] {
        let sink = Completions::new().unwrap() as Arc<dyn Sink>;
        assert!(Run::start(parts, options(0, Ahead::new(0)), sink, 7).is_err());
    }
}
