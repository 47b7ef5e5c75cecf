//! All methods of the object server, its errors and its limits, over TCP and the simulated network; what it reads also
//! on one machine, where its answers are lent.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use crate::common::{
    AGGREGATE, LONG, MIB, World, content, disk, eventually, footer, get, key, meta, only_file, put, range,
};
use swiftlet_node::message::{Request, Written, lists};
use swiftlet_node::{Failure, Limits, Status};
use swiftlet_store::disk::Faults;
use swiftlet_store::model::{EntryKind, PostMeta};
use swiftlet_transport::{Call, Carrier, Chunk, Completions, Error, Sink, What};

macro_rules! over_each_carrier {
    ($($test:ident),* $(,)?) => {
        mod tcp { $(#[test] fn $test() { super::$test(&super::World::new(super::Carrier::Tcp)); })* }
        mod simulated { $(#[test] fn $test() { super::$test(&super::World::new(super::Carrier::Simulated)); })* }
    };
}

over_each_carrier!(
    objects_of_all_sizes_come_back,
    ranges_are_what_was_asked_for,
    deletions_posts_and_their_errors,
    what_partitions_hold_and_forget,
    wrong_sums_and_sizes_are_refused,
    updates_are_pending_until_acknowledged,
    too_many_pending_updates_are_refused,
    garbage_is_refused_and_the_connection_lives,
    a_stream_goes_to_several_devices,
    what_would_not_be_taken_is_told_before_its_data_is_sent,
    uploads_that_are_cut_leave_nothing,
    a_peer_that_is_killed_is_known_at_once_and_the_others_go_on,
    a_full_device_refuses_and_the_others_go_on,
    a_failed_device_refuses_and_the_others_go_on,
    too_many_requests_are_refused,
    writers_and_readers_at_once,
    damage_is_never_served,
    small_ones_that_are_damaged_are_not_begun,
    small_ones_in_memory_are_read_at_once,
    each_policy_has_its_own_limit,
);

mod same_node {
    macro_rules! over_shared_memory {
        ($($test:ident),* $(,)?) => { $(#[test] fn $test() { super::$test(&super::World::new(super::Carrier::SameNode)); })* };
    }
    over_shared_memory!(
        objects_of_all_sizes_come_back,
        ranges_are_what_was_asked_for,
        writers_and_readers_at_once,
        damage_is_never_served,
        small_ones_that_are_damaged_are_not_begun,
        who_takes_nothing_of_an_answer_keeps_nobody_waiting,
    );
}

const STORED: Result<Written, Failure> = Ok(Written { pending: false, existed: true });

/// Which error each of several answers is.
fn statuses<T>(answers: &[Result<T, Failure>]) -> Vec<Option<Status>> {
    answers.iter().map(|answer| answer.as_ref().err().and_then(Failure::status)).collect()
}

fn objects_of_all_sizes_come_back(world: &World) {
    let (_machine, targets) = world.machine(2, Limits::default());
    let aggregate = AGGREGATE as usize;
    let sizes = [0, 1, 10_240, 65_536, 65_537, aggregate, aggregate + 1, MIB, 3 * MIB + 7, 4 * MIB + 1, 9 * MIB + 123];
    for (number, size) in (0..).zip(sizes) {
        let data = content(number, size);
        let body = Chunk::from(data.clone());
        let answers = world.client.put(&targets, &put(number, 10, &data, 0), &body, LONG);
        assert_eq!(answers, [STORED, STORED], "{size}");
        for target in &targets {
            let (found, read) = world.client.get(target, &get(number), LONG).unwrap();
            assert!(read == data, "{size}");
            assert_eq!((found.info.size, found.info.name), (size as u64, b"/a/c/o".to_vec()));
            assert_eq!(found.info.metadata, meta(10).metadata);
            let (found, nothing) =
                world.client.get(target, &Request::Head { key: key(number), proved: false }, LONG).unwrap();
            assert_eq!((found.info.xxh3, nothing.len()), (footer(&data).xxh3, 0));
        }
    }
}

fn ranges_are_what_was_asked_for(world: &World) {
    let (_machine, targets) = world.machine(1, Limits::default());
    for (number, size) in (0..).zip([1000, 700_000, 2 * MIB + 17, 6 * MIB + 5]) {
        let data = content(number, size);
        world.client.put(&targets, &put(number, 10, &data, 0), &Chunk::from(data.clone()), LONG);
        let (size, mib) = (size as u64, MIB as u64);
        let asked =
            [(0, 1), (size - 1, u64::MAX), (3, size - 3), (mib - 1, mib + 1), (mib, 2 * mib), (size, size + 5), (9, 3)];
        for (start, stop) in asked {
            let (found, read) = world.client.get(&targets[0], &range(number, start, stop), LONG).unwrap();
            let from = start.min(size) as usize;
            let upto = (stop.min(size) as usize).max(from);
            assert!(read == data[from..upto], "{size}: {start}..{stop} gave {} bytes", read.len());
            assert_eq!(found.info.size, size);
        }
    }
}

fn deletions_posts_and_their_errors(world: &World) {
    let (_machine, targets) = world.machine(1, Limits::default());
    let ask = |request: &Request| world.client.ask(&targets[0], request, None, LONG);
    let deleted = |timestamp| Request::Delete { key: key(1), timestamp, name: b"/a/c/o".to_vec(), row: 0 };
    let posted = |timestamp| Request::Post {
        key: key(1),
        meta: PostMeta { timestamp, metadata: vec![(b"p".to_vec(), b"1".to_vec())], ..PostMeta::default() },
        row: 0,
        proved: false,
    };
    let refused = |answer: Result<swiftlet_node::Fetched, Failure>| match answer {
        Err(Failure::Refused(refusal)) => (refusal.status, refusal.timestamp),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(ask(&get(1))), (Status::NotFound, 0));
    assert_eq!(refused(ask(&posted(5))), (Status::NotFound, 0));
    let store =
        |timestamp| world.client.put(&targets, &put(1, timestamp, b"hello", 0), &Chunk::from(b"hello".to_vec()), LONG);
    assert_eq!(store(10), [STORED]);
    assert_eq!(store(10), [STORED], "the same write again");
    assert_eq!(statuses(&store(9)), [Some(Status::Superseded)]);
    assert_eq!(refused(ask(&deleted(9))), (Status::Superseded, 10));
    ask(&posted(11)).unwrap();
    let (found, _) = world.client.get(&targets[0], &get(1), LONG).unwrap();
    assert_eq!((found.info.metadata, found.info.meta_timestamp), (vec![(b"p".to_vec(), b"1".to_vec())], 11));
    let existed = |answer: swiftlet_node::Fetched| Written::decode(&answer.header).unwrap().existed;
    assert!(existed(ask(&deleted(20)).unwrap()));
    assert!(!existed(ask(&deleted(20)).unwrap()));
    assert_eq!(refused(ask(&get(1))), (Status::NotFound, 20));
    assert_eq!(statuses(&store(19)), [Some(Status::Superseded)]);
    let big = content(1, 5 * MIB);
    let answers = world.client.put(&targets, &put(1, 19, &big, 0), &Chunk::from(big.clone()), LONG);
    assert_eq!(statuses(&answers), [Some(Status::Superseded)], "before its data is sent");
}

fn what_partitions_hold_and_forget(world: &World) {
    let (machine, targets) = world.machine(1, Limits::default());
    let ask = |request: &Request| world.client.ask(&targets[0], request, None, LONG);
    for number in 0..12 {
        world.client.put(&targets, &put(number, 10 + number, b"x", 0), &Chunk::from(b"x".to_vec()), LONG);
    }
    assert_eq!(lists::decode_numbers(&ask(&Request::Policies).unwrap().body).unwrap(), [0, 1]);
    assert_eq!(lists::decode_numbers(&ask(&Request::Partitions(1)).unwrap().body).unwrap(), [0, 1, 2]);
    assert_eq!(ask(&Request::Partitions(7)).unwrap().body, []);
    let suffixes = lists::decode_suffixes(&ask(&Request::Suffixes(1, 2)).unwrap().body).unwrap();
    assert_eq!(suffixes, machine.stores[0].suffixes((1, 2)).unwrap());
    for (suffix, _) in suffixes {
        let entries = lists::decode_entries(&ask(&Request::Entries(1, 2, suffix)).unwrap().body).unwrap();
        assert_eq!(entries, machine.stores[0].entries((1, 2), suffix).unwrap());
        for entry in entries {
            assert_eq!(entry.kind, EntryKind::Data);
            let key = swiftlet_store::model::Key { policy: 1, partition: 2, digest: entry.digest };
            let other = swiftlet_store::model::Entry { timestamp: 1, ..entry };
            assert_eq!(ask(&Request::Remove { key, entry: other }).unwrap().header, [0]);
            assert_eq!(ask(&Request::Remove { key, entry }).unwrap().header, [1]);
            assert_eq!(ask(&Request::Remove { key, entry }).unwrap().header, [0]);
        }
    }
    assert_eq!(ask(&Request::Suffixes(1, 2)).unwrap().body, []);
    let many: Vec<_> = (0..30_000).map(|number: u64| (key(number * 6), number)).collect();
    for (key, timestamp) in &many {
        // Straight into the store: a list that is longer than what fits into a message.
        let done = Box::new(|outcome: swiftlet_store::Result<bool>| assert!(outcome.is_ok()));
        let digest = (u128::from_be_bytes(key.digest) & !0xfff).to_be_bytes();
        let key = swiftlet_store::model::Key { digest, ..*key };
        machine.stores[0].submit_delete(key, 100 + timestamp, b"/a/c/o".to_vec(), Box::new(move |_| done(Ok(true))));
    }
    eventually("all are there", || machine.stores[0].entries((0, 0), 0).unwrap().len() >= 30_000);
    let entries = lists::decode_entries(&ask(&Request::Entries(0, 0, 0)).unwrap().body).unwrap();
    assert_eq!(entries, machine.stores[0].entries((0, 0), 0).unwrap());
}

fn wrong_sums_and_sizes_are_refused(world: &World) {
    let (machine, targets) = world.machine(1, Limits::default());
    for (number, size) in (0..).zip([100, 200_000, 2 * MIB, 6 * MIB]) {
        let data = content(1, size);
        let body = Chunk::from(data.clone());
        let mut wrong = footer(&data);
        wrong.xxh3 ^= 1;
        let request = Request::Put { key: key(number), meta: meta(10), footer: Some(wrong), row: 1 };
        assert_eq!(statuses(&world.client.put(&targets, &request, &body, LONG)), [Some(Status::ChecksumMismatch)]);
        let mut short = footer(&data);
        short.size -= 1;
        let request = Request::Put { key: key(number), meta: meta(10), footer: Some(short), row: 1 };
        assert_eq!(statuses(&world.client.put(&targets, &request, &body, LONG)), [Some(Status::SizeMismatch)]);
        let answer = world.client.ask(&targets[0], &get(number), None, LONG);
        assert_eq!(statuses(&[answer]), [Some(Status::NotFound)]);
    }
    assert_eq!(machine.directories[0].large(), 0);
    assert_eq!(machine.stores[0].pending_count(), 0, "a write that was not made has no pending update");
}

fn updates_are_pending_until_acknowledged(world: &World) {
    let (machine, targets) = world.machine(1, Limits::default());
    let pending = Ok(Written { pending: true, existed: true });
    for (number, size) in [(1, 100), (2, 6 * MIB)] {
        let data = content(1, size);
        let answers = world.client.put(&targets, &put(number, 10, &data, 0b101), &Chunk::from(data.clone()), LONG);
        assert_eq!(answers.as_slice(), std::slice::from_ref(&pending));
    }
    let rows = machine.stores[0].pending_updates(10, Duration::ZERO);
    assert_eq!(rows.iter().map(|row| (row.timestamp, row.row)).collect::<Vec<_>>(), [(10, 0b101), (10, 0b101)]);
    let acknowledge = Request::Acknowledge(vec![(key(1), 10), (key(2), 9)]);
    world.client.ask(&targets[0], &acknowledge, None, LONG).unwrap();
    assert_eq!(machine.stores[0].pending_updates(10, Duration::ZERO)[0].key, key(2), "an older version is another row");
    assert_eq!(machine.stores[0].pending_count(), 1);
    let nameless = Request::Delete { key: key(3), timestamp: 1, name: b"/a/c".to_vec(), row: 1 };
    let answer = world.client.ask(&targets[0], &nameless, None, LONG);
    assert_eq!(statuses(&[answer]), [Some(Status::WireError)]);
}

fn too_many_pending_updates_are_refused(world: &World) {
    let (machine, targets) = world.machine(1, Limits::default());
    (0..100_000).for_each(|number| machine.stores[0].keep_pending(key(number), 1, 1));
    for (number, size) in [(1, 100), (2, 2 * MIB)] {
        let data = content(1, size);
        let store = |row| world.client.put(&targets, &put(number, 10, &data, row), &Chunk::from(data.clone()), LONG);
        assert_eq!(statuses(&store(1)), [Some(Status::NodeBusy)]);
        assert_eq!(store(0), [STORED], "without a row there is room");
    }
    let versions: Vec<_> =
        machine.stores[0].pending_updates(1000, Duration::ZERO).iter().map(|row| (row.key, row.timestamp)).collect();
    world.client.ask(&targets[0], &Request::Acknowledge(versions), None, LONG).unwrap();
    assert!(world.client.put(&targets, &put(3, 10, b"x", 1), &Chunk::from(b"x".to_vec()), LONG)[0].is_ok());
}

fn garbage_is_refused_and_the_connection_lives(world: &World) {
    let (_machine, targets) = world.machine(1, Limits::default());
    let events = Completions::new().unwrap();
    let sink = Arc::clone(&events) as Arc<dyn Sink>;
    let good = put(1, 10, b"hello", 0).encode("d0").unwrap();
    let mut tried = 0;
    for method in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 99] {
        for cut in (0..good.len()).step_by(7) {
            let header = good[..cut].to_vec();
            let call = Call { method, timeout: LONG, trace: "t".into(), header, ..Call::default() };
            targets[0].0.call(call, &sink, tried).unwrap();
            tried += 1;
        }
    }
    let mut refused = 0;
    while refused < tried {
        let some = events.wait(LONG);
        assert!(!some.is_empty());
        for event in some {
            let What::Reply { status, .. } = event.what else { panic!("{event:?}") };
            // A cut PUT may be a sound GET.
            let expected = [Status::WireError, Status::DeviceFailed, Status::NotFound];
            assert!(expected.iter().any(|one| *one as u16 == status), "{status}");
            refused += 1;
        }
    }
    assert_eq!(targets[0].0.metrics().snapshot().connects, 1, "it is the same connection");
    let elsewhere = (targets[0].0.clone(), "nowhere".to_owned());
    let broken = (targets[0].0.clone(), "broken".to_owned());
    let answers = world.client.ask_all(&[elsewhere, broken], &get(1), None, LONG);
    assert_eq!(statuses(&answers), [Some(Status::DeviceFailed), Some(Status::DeviceFailed)]);
}

fn stream(number: u64) -> Request {
    Request::Put { key: key(number), meta: meta(10), footer: None, row: 0 }
}

fn a_stream_goes_to_several_devices(world: &World) {
    let (machine, targets) = world.machine(3, Limits::default());
    for (number, size, known) in [(1, 20 * MIB + 3, true), (2, 300_000, false), (3, 7 * MIB, false), (4, 0, false)] {
        let data = Chunk::from(content(number, size));
        let mut upload = world.client.open_put(&targets, &stream(number), known.then_some(size as u64), LONG).unwrap();
        for at in (0..size).step_by(MIB) {
            assert!(upload.send(&data.part(at..(at + MIB).min(size))));
        }
        assert_eq!(upload.commit(&footer(&data)), [STORED, STORED, STORED]);
        for target in &targets {
            assert!(world.client.get(target, &get(number), LONG).unwrap().1 == data[..], "{number}");
        }
    }
    nothing_is_held(&machine);
}

fn what_would_not_be_taken_is_told_before_its_data_is_sent(world: &World) {
    let (machine, targets) = world.machine(1, Limits::default());
    let ask = |timestamp, size| {
        let request = Request::Prepare { key: key(1), timestamp, row: 1, size };
        statuses(&[world.client.ask(&targets[0], &request, None, LONG)])
    };
    let stored = world.client.put(&targets, &put(1, 10, b"x", 0), &Chunk::from(b"x".to_vec()), LONG);
    assert_eq!(stored, [STORED]);
    assert_eq!(ask(9, Some(1)), [Some(Status::Superseded)]);
    assert_eq!(ask(10, None), [None]);
    (0..100_000).for_each(|number| machine.stores[0].keep_pending(key(number), 1, 1));
    assert_eq!(ask(11, None), [Some(Status::NodeBusy)], "there was no room for its pending update");
    nothing_is_held(&machine);
    let stats = &machine.server.stats()["d0"];
    let counted =
        stats.answered.iter().filter(|(method, ..)| *method == 12).map(|(_, status, count)| (*status, *count));
    let counted: Vec<_> = counted.collect();
    let once = |status| (status, 1);
    assert_eq!(counted, [Status::Ok, Status::Superseded, Status::NodeBusy].map(once));
    assert_eq!((stats.received_bytes, stats.sent_bytes), (1, 0));
}

fn uploads_that_are_cut_leave_nothing(world: &World) {
    let (machine, targets) = world.machine(1, Limits::default());
    let piece = Chunk::from(content(1, MIB));
    let mut upload = world.client.open_put(&targets, &stream(1), None, LONG).unwrap();
    (0..6).for_each(|_| assert!(upload.send(&piece)));
    eventually("a file is written to", || machine.directories[0].large() == 1);
    drop(upload);
    eventually("it is given up", || machine.directories[0].large() == 0);
    // A deadline in the middle.
    let mut upload = world.client.open_put(&targets, &stream(1), None, Duration::from_millis(300)).unwrap();
    (0..3).for_each(|_| assert!(upload.send(&piece)));
    eventually("its deadline is over", || machine.directories[0].large() == 0 && !upload.send(&piece));
    // The connection in the middle.
    let mut upload = world.client.open_put(&targets, &stream(1), None, LONG).unwrap();
    (0..6).for_each(|_| assert!(upload.send(&piece)));
    eventually("a file is written to", || machine.directories[0].large() == 1);
    world.network.faults().cut.store(true, SeqCst);
    eventually("it is given up", || machine.directories[0].large() == 0);
    let answers = upload.commit(&footer(&piece));
    assert!(matches!(answers[0], Err(Failure::Lost(_))), "{answers:?}");
    world.network.faults().cut.store(false, SeqCst);
    eventually("nothing is held", || machine.server.stats()["d0"].requests == 0);
    assert_eq!(machine.server.stats()["d0"].buffered_bytes, 0);
    assert!(machine.stores[0].partitions().unwrap().is_empty());
}

fn a_peer_that_is_killed_is_known_at_once_and_the_others_go_on(world: &World) {
    let (mut one, mut targets) = world.machine(1, Limits::default());
    let (_two, more) = world.machine(2, Limits::default());
    targets.extend(more);
    let piece = Chunk::from(content(1, MIB));
    let mut upload = world.client.open_put(&targets, &stream(1), None, LONG).unwrap();
    assert!(upload.send(&piece));
    eventually("it has begun", || one.server.stats()["d0"].requests == 1);
    one.node = None;
    let begun = Instant::now();
    assert!(upload.send(&piece));
    let all = content(1, MIB).repeat(2);
    let answers = upload.commit(&footer(&all));
    assert!(matches!(&answers[0], Err(Failure::Lost(Error::Lost(_)))), "{answers:?}");
    assert_eq!(answers[1..], [STORED, STORED]);
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(world.client.get(&targets[1], &get(1), LONG).unwrap().1 == all);
    eventually("nothing is left of it", || one.directories[0].large() == 0);
}

fn a_full_device_refuses_and_the_others_go_on(world: &World) {
    let full = disk(1);
    let (machine, mut targets) = world.simulated(&full, Limits::default());
    let (_other, more) = world.machine(1, Limits::default());
    targets.extend(more);
    full.set_faults(Faults { full: true, ..Faults::default() });
    for (number, size) in [(1, 5000), (2, 8 * MIB)] {
        let data = content(1, size);
        let answers = world.client.put(&targets, &put(number, 10, &data, 1), &Chunk::from(data.clone()), LONG);
        assert_eq!(statuses(&answers), [Some(Status::DiskFull), None]);
    }
    full.set_faults(Faults::default());
    let answers = world.client.put(&targets, &put(3, 10, b"x", 0), &Chunk::from(b"x".to_vec()), LONG);
    assert_eq!(answers, [STORED, STORED], "there is room again");
    assert_eq!(machine.stores[0].pending_count(), 0);
}

fn a_failed_device_refuses_and_the_others_go_on(world: &World) {
    let failing = disk(2);
    let (_machine, mut targets) = world.simulated(&failing, Limits::default());
    let (_other, more) = world.machine(1, Limits::default());
    targets.extend(more);
    let store = |number| world.client.put(&targets, &put(number, 10, b"x", 0), &Chunk::from(b"x".to_vec()), LONG);
    assert_eq!(store(1), [STORED, STORED]);
    failing.set_faults(Faults { fail_after: Some(1), ..Faults::default() });
    assert_eq!(statuses(&store(2)), [Some(Status::DeviceFailed), None]);
    failing.set_faults(Faults::default());
    assert_eq!(statuses(&store(3)), [Some(Status::DeviceFailed), None], "until it is opened again");
    let answers = world.client.ask_all(&targets, &get(1), None, LONG);
    assert_eq!(statuses(&answers), [Some(Status::DeviceFailed), None]);
}

fn too_many_requests_are_refused(world: &World) {
    let limits = Limits { threads: 1, max_requests: 4, buffer_bytes: 2 * MIB };
    let (machine, targets) = world.machine(2, limits);
    let held: Vec<_> =
        (0..4).map(|number| world.client.open_put(&targets[..1], &stream(number), None, LONG).unwrap()).collect();
    eventually("all are at work", || machine.server.stats()["d0"].requests == 4);
    let answers = world.client.ask_all(&targets, &get(1), None, LONG);
    assert_eq!(statuses(&answers), [Some(Status::NodeBusy), Some(Status::NotFound)]);
    drop(held);
    eventually("they are gone", || machine.server.stats()["d0"].requests == 0);
    // Bytes: an object of 3 MiB can't be held to be read.
    let data = content(1, 3 * MIB);
    let answers = world.client.put(&targets[..1], &put(9, 10, &data, 0), &Chunk::from(data.clone()), LONG);
    assert_eq!(answers, [STORED]);
    let answers = world.client.ask_all(&targets[..1], &get(9), None, LONG);
    assert_eq!(statuses(&answers), [Some(Status::NodeBusy)]);
    eventually("nothing is held", || machine.server.stats()["d0"].buffered_bytes == 0);
}

fn writers_and_readers_at_once(world: &World) {
    let (machine, targets) = world.machine(3, Limits::default());
    std::thread::scope(|scope| {
        for writer in 0..4_u64 {
            let targets = &targets;
            scope.spawn(move || {
                for version in 1..30_u64 {
                    let size = if version.is_multiple_of(7) { 5 * MIB } else { 3000 };
                    let data = content(version, size);
                    let request = put(writer % 2, version * 4 + writer, &data, 0);
                    for answer in world.client.put(targets, &request, &Chunk::from(data), LONG) {
                        let status = answer.err().map(|failure| failure.status());
                        assert!(matches!(status, None | Some(Some(Status::Superseded))), "{status:?}");
                    }
                }
            });
        }
        for reader in 0..3_usize {
            let targets = &targets;
            scope.spawn(move || {
                for round in 0..60_u64 {
                    match world.client.get(&targets[reader], &get(round % 2), LONG) {
                        Ok((found, data)) => assert_eq!(found.info.size, data.len() as u64),
                        Err(failure) => assert_eq!(failure.status(), Some(Status::NotFound)),
                    }
                }
            });
        }
    });
    for number in 0..2 {
        let answers: Vec<_> =
            targets.iter().map(|target| world.client.get(target, &get(number), LONG).unwrap()).collect();
        assert!(answers.iter().all(|answer| answer == &answers[0]), "the newest is everywhere");
    }
    nothing_is_held(&machine);
}

fn damage_is_never_served(world: &World) {
    let (machine, targets) = world.machine(1, Limits::default());
    let data = content(1, 8 * MIB);
    world.client.put(&targets, &put(1, 10, &data, 0), &Chunk::from(data.clone()), LONG);
    let file = only_file(&machine.directories[0].0.join("large"));
    use std::os::unix::fs::FileExt as _;
    let opened = std::fs::OpenOptions::new().write(true).open(file).unwrap();
    opened.write_at(&[data[5 * MIB] ^ 1], 5 * MIB as u64).unwrap();
    let (_, sound) = world.client.get(&targets[0], &range(1, 0, 5 * MIB as u64), LONG).unwrap();
    assert!(sound == data[..5 * MIB]);
    match world.client.get(&targets[0], &get(1), LONG) {
        Err(Failure::Lost(Error::Remote(..))) => {}
        other => panic!("{:?}", other.map(|(_, data)| data.len())),
    }
    let answer = world.client.ask(&targets[0], &get(1), None, LONG);
    assert_eq!(statuses(&[answer]), [Some(Status::NotFound)], "it was set aside");
}

/// Bodies that come as a whole, and in chunks.
fn each_policy_has_its_own_limit(world: &World) {
    let (machine, targets) = world.machine(1, Limits::default());
    machine.stores[0].set_aggregate_below(&[(0, 1000), (1, 4 << 20)]);
    // Numbers are of policy 0 and 1 in turns.
    for (number, size, in_file) in [(0, 1000, 0), (2, 1001, 1), (4, 2 * MIB, 1), (1, 900_000, 0), (3, 3 * MIB, 0)] {
        let before = machine.directories[0].large();
        let data = content(number, size);
        let answers = world.client.put(&targets, &put(number, 10, &data, 0), &Chunk::from(data.clone()), LONG);
        assert_eq!(answers, [STORED], "{size}");
        assert_eq!(machine.directories[0].large() - before, in_file, "{size}");
        assert!(world.client.get(&targets[0], &get(number), LONG).unwrap().1 == data, "{size}");
    }
    let (older, data) = (machine.directories[0].large(), content(2, 5000));
    let refused = world.client.put(&targets, &put(2, 9, &data, 0), &Chunk::from(data.clone()), LONG);
    assert_eq!(statuses(&refused), [Some(Status::Superseded)]);
    assert_eq!(machine.directories[0].large(), older, "what is older leaves nothing");
    nothing_is_held(&machine);
}

/// In a volume, and in a file of its own.
fn small_ones_that_are_damaged_are_not_begun(world: &World) {
    use std::os::unix::fs::FileExt as _;
    for (bytes, directory) in [(200_000, "volumes"), (3 * MIB + 5, "large")] {
        let (machine, targets) = world.machine(1, Limits::default());
        let data = content(1, bytes);
        world.client.put(&targets, &put(1, 10, &data, 0), &Chunk::from(data.clone()), LONG);
        assert!(world.client.get(&targets[0], &get(1), LONG).unwrap().1 == data);
        let file = only_file(&machine.directories[0].0.join(directory));
        let stored = std::fs::read(&file).unwrap();
        let at = stored.windows(1000).position(|window| *window == data[bytes - 1000..]).unwrap() as u64;
        std::fs::OpenOptions::new().write(true).open(file).unwrap().write_at(b"damaged", at).unwrap();
        for _ in 0..2 {
            let answer = world.client.ask(&targets[0], &range(1, 0, 70_000), None, LONG);
            assert_eq!(statuses(&[answer]), [Some(Status::NotFound)], "{directory}: it was set aside");
        }
        nothing_is_held(&machine);
    }
}

/// By the I/O thread; those that are not in memory, or larger, by a thread of the device.
fn small_ones_in_memory_are_read_at_once(world: &World) {
    let disk = disk(2);
    let (machine, targets) = world.simulated(&disk, Limits::default());
    let sizes = [(1, 10_240), (2, 131_000), (3, 100_000)];
    for (number, size) in sizes {
        let data = content(number, size);
        assert_eq!(world.client.put(&targets, &put(number, 10, &data, 0), &Chunk::from(data), LONG), [STORED]);
    }
    let same = |number: u64, size: usize, (start, stop): (usize, usize)| {
        let asked = range(number, start as u64, stop as u64);
        let (found, read) = world.client.get(&targets[0], &asked, LONG).unwrap();
        assert_eq!((found.info.size, found.info.timestamp), (size as u64, 10));
        assert!(read == content(number, size)[start..stop.min(size)], "{number}: {start}..{stop}");
        disk.reads_at_once()
    };
    assert_eq!(same(1, 10_240, (0, usize::MAX)), 1);
    assert_eq!(same(1, 10_240, (5, 9000)), 2);
    assert_eq!(same(1, 10_240, (10_240, usize::MAX)), 3);
    assert_eq!(same(2, 131_000, (0, usize::MAX)), 3);
    assert_eq!(same(3, 100_000, (0, usize::MAX)), 4);
    assert_eq!(same(3, 100_000, (7, 99_998)), 5);
    assert_eq!(same(3, 100_000, (99_990, 99_995)), 6);
    assert_eq!(same(3, 100_000, (100_000, usize::MAX)), 7);
    disk.set_faults(Faults { cold: true, ..Faults::default() });
    assert_eq!(same(1, 10_240, (0, usize::MAX)), 7);
    assert_eq!(same(3, 100_000, (0, usize::MAX)), 7);
    nothing_is_held(&machine);
}

/// More is read ahead for those than there is memory for: what has none is sent from its file, as without any.
fn who_takes_nothing_of_an_answer_keeps_nobody_waiting(world: &World) {
    let (machine, targets) = world.machine(1, Limits::default());
    let data = content(1, 9 * MIB);
    world.client.put(&targets, &put(1, 10, &data, 0), &Chunk::from(data.clone()), LONG);
    let idle: Vec<_> = (0..12)
        .map(|_| {
            let events = Completions::new().unwrap();
            let sink = Arc::clone(&events) as Arc<dyn Sink>;
            let header = get(1).encode("d0").unwrap();
            let call = Call { method: get(1).method(), timeout: LONG, header, ..Call::default() };
            (targets[0].0.call(call, &sink, 0).unwrap(), events)
        })
        .collect();
    eventually("all have begun", || machine.server.stats()["d0"].answered.iter().any(|row| row.0 == 2 && row.2 >= 12));
    assert!(world.client.get(&targets[0], &get(1), LONG).unwrap().1 == data);
    let other = content(2, 5 * MIB);
    let answers = world.client.put(&targets, &put(2, 10, &other, 0), &Chunk::from(other.clone()), LONG);
    assert_eq!(answers, [STORED]);
    idle.iter().for_each(|(ticket, _)| ticket.cancel());
    drop(idle);
    nothing_is_held(&machine);
}

/// What was sent is let go of by the transport a moment after the peer has it.
fn nothing_is_held(machine: &crate::common::Machine) {
    let idle = |stats: swiftlet_node::DeviceStats| stats.requests == 0 && stats.buffered_bytes == 0;
    eventually("nothing is held", || machine.server.stats().into_values().all(idle));
}
