//! What every carrier must do. Who runs it says over which.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "tests, of which each program runs its own")]

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use crate::common::{self, raw};
use crate::common::{
    DROP, ECHO, FILE_BYTES, GET, HOLD, LONG, PUT, World, brief, call, config, eventually, get_header, keys, pattern,
    silence,
};
use swiftlet_transport::{Answer, Body, Call, Carrier, Error, Peer, Reason, Responder};
use swiftlet_wire::frame::{AGAIN, EARLY, END, Kind, LENT};
use swiftlet_wire::handshake::Credentials;
use swiftlet_wire::limits::HANDSHAKE_MS;
use swiftlet_wire::message::{Offer, Place, Request};

/// "Within 2 s" where a peer may be silent as by default. If it took longer it is measured again: a machine that does
/// many things at once stands still now and then.
fn noticed() -> Duration {
    silence() + (silence() / 4).max(Duration::from_millis(500))
}

/// A time limit that passes while a test waits for it.
const BRIEF: Duration = Duration::from_millis(300);

/// Whether a connection is lost, and not because nothing was heard of the peer for a while.
fn is_cut(error: Option<&Error>) -> bool {
    matches!(error, Some(Error::Lost(why)) if !why.contains("sent nothing"))
}

/// Whether peers are found by a TCP port, which is another one after each start.
fn by_port(carrier: Carrier) -> bool {
    matches!(carrier, Carrier::Tcp | Carrier::Tls | Carrier::Rdma)
}

pub fn put_all(client: &common::Client, peer: &Peer, method: u16, bytes: usize, spoil: bool) -> common::Outcome {
    let token = client.token();
    let upload = peer.upload(call(method), Some(bytes as u64), &client.sink(), token).unwrap();
    let body = pattern(0, bytes);
    for piece in body.chunks(1 << 20) {
        let mut buffer = client.buffer(piece.len());
        buffer.as_mut_slice().copy_from_slice(piece);
        let mut chunk = buffer.freeze(piece.len());
        while let Err(back) = upload.send(chunk) {
            chunk = back;
            client.pump(Duration::from_millis(10));
        }
    }
    let digest = swiftlet_hash::xxh3_64(&body) ^ u64::from(spoil);
    upload.end(digest.to_be_bytes().to_vec()).unwrap();
    client.finish(token)
}

pub fn small_requests_are_answered(carrier: Carrier) {
    let world = World::new(carrier);
    let (client, peer, server, _) = world.pair();
    for bytes in [0, 1, 100, 10 << 10, 64 << 10] {
        for header in [0, 1, 2000, 64 << 10] {
            let (header, body) = (pattern(9, header), pattern(1, bytes));
            let sent = Call { header: header.clone(), body: Body::Chunk(body.clone().into()), ..call(ECHO) };
            let outcome = client.ask(&peer, sent);
            assert_eq!((outcome.status, outcome.error), (200, None));
            assert!(outcome.header == header && outcome.body == body);
        }
    }
    let probe = Call { header: vec![1], body: Body::Chunk(vec![2, 3].into()), ..call(0) };
    let outcome = client.ask(&peer, probe);
    assert_eq!((outcome.header, outcome.body, outcome.error), (vec![1], vec![2, 3], None));
    let counted = peer.metrics().snapshot();
    // With RDMA the pair has made one to see whether it works.
    let asked = 21 + u64::from(carrier == Carrier::Rdma);
    assert_eq!((counted.requests, counted.errors, counted.connects, counted.carrier), (asked, 0, 1, Some(carrier)));
    assert_eq!(counted.latency.iter().sum::<u64>(), asked);
    eventually("all small memory comes back", || server.pool().stat().used_bytes == 0);
    let report = server.report();
    assert!(report.len() == 1 && report[0].is_client && report[0].name == "client");
}

pub fn large_bodies_arrive_and_only_whole_ones_are_committed(carrier: Carrier) {
    let world = World::new(carrier);
    let (client, peer, server, seen) = world.pair();
    for bytes in [1, (1 << 20) - 1, 1 << 20, (5 << 20) + 123] {
        assert_eq!(put_all(&client, &peer, PUT, bytes, false).status, 201, "{bytes} bytes");
    }
    assert_eq!(put_all(&client, &peer, PUT, 2 << 20, true).status, 422);
    // A body in memory, and one that is cut off before its footer.
    let body = pattern(0, (3 << 20) + 1);
    let footer = swiftlet_hash::xxh3_64(&body).to_be_bytes().to_vec();
    let whole = Call { body: Body::Chunk(body.into()), footer, ..call(PUT) };
    assert_eq!(client.ask(&peer, whole).status, 201);
    let ended = seen.ended.load(SeqCst);
    let token = client.token();
    let upload = peer.upload(call(PUT), None, &client.sink(), token).unwrap();
    upload.send(pattern(0, 100_000).into()).unwrap();
    eventually("the piece arrives", || {
        client.pump(Duration::from_millis(1));
        client.sent(token) == 100_000
    });
    upload.ticket().cancel();
    assert_eq!(client.finish(token).error, Some(Error::Cancelled));
    eventually("the receiver is told", || seen.failed.lock().unwrap().contains(&Error::Cancelled));
    assert_eq!(seen.ended.load(SeqCst), ended);
    for node in [&client.node, &server] {
        eventually("all memory comes back", || node.pool().stat().used_bytes == 0);
    }
}

pub fn ranges_are_read_from_memory_files_and_sources(carrier: Carrier) {
    let world = World::new(carrier);
    let (client, peer, server, _) = world.pair();
    let lent = || server.report().iter().map(|peer| peer.counters.lent_bytes).sum::<u64>();
    for kind in 0..3 {
        for (offset, bytes) in [(0, 0), (5, 1), (7, 64 << 10), (0, (64 << 10) + 1), (4097, 1 << 20), (3, (3 << 20) + 7)]
        {
            assert!(offset + bytes <= FILE_BYTES as u64);
            let before = lent();
            let outcome = client.ask(&peer, Call { header: get_header(kind, offset, bytes), ..call(GET) });
            assert_eq!((outcome.status, outcome.error), (206, None), "{kind} {offset} {bytes}");
            assert!(outcome.body == pattern(offset, bytes as usize), "{kind} {offset} {bytes}");
            if bytes > 64 << 10 {
                assert_eq!(outcome.footer, b"footer");
                // Wherever the body was: if memory can be lent, no link carries what does not fit into a message.
                let lends = matches!(carrier, Carrier::SameNode | Carrier::Rdma);
                assert_eq!(lent() - before, if lends { bytes } else { 0 }, "{kind} {offset} {bytes}");
            }
        }
    }
    // A file that is shorter than announced breaks the body, not the server.
    let outcome = client.ask(&peer, Call { header: get_header(1, 3 << 20, 2 << 20), ..call(GET) });
    assert!(outcome.error.is_some() && outcome.footer.is_empty());
    eventually("it works again", || client.ask(&peer, call(ECHO)).status == 200);
    for node in [&client.node, &server] {
        eventually("all memory comes back", || node.pool().stat().used_bytes == 0);
    }
}

pub fn many_requests_are_in_flight_at_once(carrier: Carrier) {
    let world = World::new(carrier);
    let (server, _) = world.server(config("server", 128 << 20));
    // Replies may come faster than they are taken: all 3000 bodies fit into what there is for small ones.
    let mut limits = config("client", 128 << 20);
    limits.max_waiting = 5000;
    limits.threads = 2;
    let client = world.client(limits);
    let peer = client.node.peer(world.address("server"));
    let body = pattern(3, 3000);
    let tokens: Vec<u64> = (0..3000)
        .map(|at: u32| {
            let header = at.to_be_bytes().to_vec();
            client.start(&peer, Call { header, body: Body::Chunk(body.clone().into()), ..call(ECHO) })
        })
        .collect();
    for (at, token) in tokens.into_iter().enumerate() {
        let outcome = client.finish(token);
        assert_eq!((outcome.status, outcome.error), (200, None));
        assert!(outcome.header == (at as u32).to_be_bytes() && outcome.body == body);
    }
    drop(server);
}

pub fn too_many_waiting_requests_are_refused_at_once(carrier: Carrier) {
    let world = World::new(carrier);
    let mut limits = config("server", 64 << 20);
    limits.max_streams = 4;
    let (_server, seen) = world.server(limits);
    let mut limits = config("client", 64 << 20);
    limits.max_waiting = 6;
    let client = world.client(limits);
    let peer = client.node.peer(world.address("server"));
    assert_eq!(client.ask(&peer, call(ECHO)).status, 200);
    let tokens: Vec<u64> = (0..20).map(|_| client.start(&peer, call(HOLD))).collect();
    eventually("those that may not wait are refused", || client.refused(&Error::Overloaded) == 10);
    eventually("as many are open as may be", || seen.responders.lock().unwrap().len() == 4);
    let mut answered = 0;
    eventually("those that wait follow when these are answered", || {
        let open = std::mem::take(&mut *seen.responders.lock().unwrap());
        assert!(open.len() <= 4);
        answered += open.len();
        open.into_iter().for_each(|responder| responder.answer(Answer { status: 200, ..Answer::default() }));
        answered == 10
    });
    let outcomes: Vec<_> = tokens.into_iter().map(|token| client.finish(token)).collect();
    assert_eq!(outcomes.iter().filter(|outcome| outcome.status == 200).count(), 10);
}

pub fn one_chunk_goes_to_three_peers_without_a_copy(carrier: Carrier) {
    let world = World::new(carrier);
    let names = ["server-1", "server-2", "server-3"];
    let servers: Vec<_> = names.iter().map(|name| world.server(config(name, 32 << 20))).collect();
    let client = world.client(config("client", 4 << 20));
    let peers: Vec<Peer> = names.iter().map(|name| client.node.peer(world.address(name))).collect();
    let tokens: Vec<u64> = peers.iter().map(|_| client.token()).collect();
    let uploads: Vec<_> = peers
        .iter()
        .zip(&tokens)
        .map(|(peer, token)| peer.upload(call(PUT), None, &client.sink(), *token).unwrap())
        .collect();
    let body = pattern(0, 16 << 20);
    for piece in body.chunks(1 << 20) {
        // Three chunks of memory are all there is: a copy per peer would not fit.
        let mut buffer = client.buffer(piece.len());
        buffer.as_mut_slice().copy_from_slice(piece);
        let chunk = buffer.freeze(piece.len());
        for upload in &uploads {
            upload.send(chunk.clone()).unwrap();
        }
    }
    for upload in uploads {
        upload.end(swiftlet_hash::xxh3_64(&body).to_be_bytes().to_vec()).unwrap();
    }
    for token in tokens {
        assert_eq!(client.finish(token).status, 201);
    }
    assert!(client.node.pool().stat().peak_bytes <= 3 << 20);
    drop(servers);
}

pub fn a_slow_reader_costs_its_window_and_holds_up_nobody(carrier: Carrier) {
    let world = World::new(carrier);
    let mut limits = config("server", 64 << 20);
    limits.window_bytes = 2 << 20;
    let (_server, seen) = world.server(limits);
    let client = world.client(config("client", 64 << 20));
    let peer = client.node.peer(world.address("server"));
    let token = client.token();
    let upload = peer.upload(call(HOLD), None, &client.sink(), token).unwrap();
    let mut pushed = 0;
    for _ in 0..16 {
        let chunk = client.buffer(1 << 20).freeze(1 << 20);
        if upload.send(chunk).is_ok() {
            pushed += 1 << 20;
        }
    }
    assert!(pushed <= 10 << 20, "{pushed} bytes wait");
    eventually("the window is full", || seen.received.load(SeqCst) >= 2 << 20);
    for _ in 0..50 {
        assert_eq!(client.ask(&peer, call(ECHO)).status, 200);
    }
    // On the same node nothing of the reader's own is used; there the sender's limit holds it.
    let held = if carrier == Carrier::SameNode { 8 << 20 } else { 2 << 20 };
    assert!(seen.received.load(SeqCst) <= held);
    upload.end(Vec::new()).unwrap();
    eventually("all of it arrives as it is let go of", || {
        seen.chunks.lock().unwrap().clear();
        client.pump(Duration::from_millis(1));
        seen.ended.load(SeqCst) == 1
    });
    assert_eq!((client.finish(token).status, seen.received.load(SeqCst)), (201, pushed));
}

pub fn with_little_memory_all_wait_their_turn(carrier: Carrier) {
    let world = World::new(carrier);
    let (server, seen) = world.server(config("server", 3 << 20));
    let client = world.client(config("client", 256 << 20));
    let peer = client.node.peer(world.address("server"));
    let body = pattern(0, 3 << 20);
    let footer = swiftlet_hash::xxh3_64(&body).to_be_bytes().to_vec();
    let tokens: Vec<u64> = (0..20)
        .map(|_| {
            client.start(&peer, Call { body: Body::Chunk(body.clone().into()), footer: footer.clone(), ..call(PUT) })
        })
        .collect();
    for token in tokens {
        let outcome = client.finish(token);
        assert_eq!((outcome.status, outcome.error), (201, None));
    }
    let stat = server.pool().stat();
    assert!(stat.peak_bytes <= stat.limit_bytes && stat.waiting == 0);
    // What is small is refused at once when it can't be held, so that nothing behind it has to wait.
    let large = || Call { body: Body::Chunk(pattern(0, 60 << 10).into()), ..call(HOLD) };
    let tokens: Vec<u64> = (0..30).map(|_| client.start(&peer, large())).collect();
    eventually("what can be held is", || seen.responders.lock().unwrap().len() == 16);
    let held = std::mem::take(&mut *seen.responders.lock().unwrap());
    held.into_iter().for_each(|responder| responder.answer(Answer { status: 200, ..Answer::default() }));
    let outcomes: Vec<_> = tokens.into_iter().map(|token| client.finish(token)).collect();
    let is_refused = |error: &Option<Error>| matches!(error, Some(Error::Remote(Reason::NoMemory, _)));
    let refused = outcomes.iter().filter(|outcome| is_refused(&outcome.error)).count();
    assert_eq!(refused, 30 - 16, "{outcomes:?}");
}

pub fn a_deadline_ends_a_request_on_both_sides(carrier: Carrier) {
    let world = World::new(carrier);
    let (client, peer, server, seen) = world.pair();
    assert_eq!(client.ask(&peer, call(ECHO)).status, 200);
    // On a busy machine a deadline may pass before the other side has heard of the request: then there is another one.
    eventually("the handler can see it", || {
        let begun = Instant::now();
        let outcome = client.ask(&peer, Call { timeout: BRIEF, ..call(HOLD) });
        assert_eq!(outcome.error, Some(Error::Deadline));
        // The other side counts from when it woke, which may be before the request was sent.
        assert!(begun.elapsed() >= BRIEF / 2);
        seen.responders.lock().unwrap().iter().any(Responder::is_cancelled)
    });
    // Memory that never comes: the chunks that fill the window are never let go of.
    eventually("the receiver is told", || {
        let token = client.token();
        let upload = peer.upload(Call { timeout: BRIEF, ..call(HOLD) }, None, &client.sink(), token).unwrap();
        for _ in 0..8 {
            upload.send(client.buffer(1 << 20).freeze(1 << 20)).unwrap();
        }
        assert_eq!(client.finish(token).error, Some(Error::Deadline));
        let is_told = seen.failed.lock().unwrap().contains(&Error::Deadline);
        seen.chunks.lock().unwrap().clear();
        is_told
    });
    for node in [&client.node, &server] {
        eventually("all memory comes back", || {
            seen.chunks.lock().unwrap().clear();
            node.pool().stat().used_bytes == 0
        });
    }
    assert_eq!(client.ask(&peer, call(ECHO)).status, 200);
    assert_eq!(client.ask(&peer, call(DROP)).error, Some(Error::Remote(Reason::Failed, String::new())));
}

pub fn a_cancelled_request_is_over_on_both_sides(carrier: Carrier) {
    let world = World::new(carrier);
    let (client, peer, _server, seen) = world.pair();
    let token = client.token();
    let ticket = peer.call(call(HOLD), &client.sink(), token).unwrap();
    eventually("it is there", || seen.responders.lock().unwrap().len() == 1);
    ticket.cancel();
    ticket.cancel();
    assert_eq!(client.finish(token).error, Some(Error::Cancelled));
    eventually("the handler can see it", || seen.responders.lock().unwrap()[0].is_cancelled());
    // An answer that comes too late harms nobody.
    let late = seen.responders.lock().unwrap().remove(0);
    late.answer(swiftlet_transport::Answer::default());
    // In the middle of a reply's body, which is far larger than what is on its way.
    for _ in 0..20 {
        let token = client.token();
        let get = Call { header: get_header(2, 0, 1 << 32), ..call(GET) };
        let ticket = peer.call(get, &client.sink(), token).unwrap();
        client.pump(Duration::from_millis(5));
        ticket.cancel();
        assert_eq!(client.finish(token).error, Some(Error::Cancelled));
    }
    assert_eq!(client.ask(&peer, call(ECHO)).status, 200);
    assert_eq!(peer.metrics().snapshot().connects, 1);
}

pub fn a_peer_that_ends_is_noticed_and_found_again(carrier: Carrier) {
    eventually("not by its silence, on a machine that does not stand still", || ended(carrier));
}

/// Whether it is noticed as soon as it ends.
fn ended(carrier: Carrier) -> bool {
    let world = World::new(carrier);
    // A peer whose name is known and that does not answer is given up soon.
    let (client, peer, server, _) = world.pair_of(brief);
    let token = client.start(&peer, call(HOLD));
    if client.ask(&peer, call(ECHO)).status != 200 {
        return false;
    }
    drop(server);
    let outcome = client.finish(token);
    assert!(matches!(outcome.error, Some(Error::Lost(_))), "{outcome:?}");
    if !by_port(carrier) {
        assert!(matches!(client.ask(&peer, call(ECHO)).error, Some(Error::Unreachable(_) | Error::Lost(_))));
        let (_again, _) = world.server(config("server", 8 << 20));
        eventually("it is found again", || client.ask(&peer, call(ECHO)).status == 200);
    }
    is_cut(outcome.error.as_ref())
}

pub fn a_wrong_key_or_name_is_refused_and_a_second_key_is_not(carrier: Carrier) {
    let world = World::new(carrier);
    let (_server, _) = world.server(config("server", 8 << 20));
    let mut stranger = config("client", 8 << 20);
    stranger.keys = keys(&["guess"]);
    let client = world.client(stranger);
    let peer = client.node.peer(world.address("server"));
    let refused = client.ask(&peer, call(ECHO)).error;
    assert!(
        matches!(&refused, Some(Error::Unreachable(why)) if why.contains("the two sides have no cluster key in common")),
        "{refused:?}"
    );
    client.node.set_keys(keys(&["guess", "secret"]));
    eventually("with the right key it is let in", || client.ask(&peer, call(ECHO)).status == 200);

    if by_port(carrier) {
        let mut address = world.address("server");
        address.name = "another".to_owned();
        let refused = client.ask(&client.node.peer(address), call(ECHO)).error;
        assert!(
            matches!(&refused, Some(Error::Unreachable(why)) if why.contains("not the expected server")),
            "{refused:?}"
        );
    }
}

pub fn a_handshake_that_was_overheard_opens_nothing(carrier: Carrier) {
    let world = World::new(carrier);
    let (_server, seen) = world.server(config("server", 8 << 20));
    let mut first = raw::connect(&world, "server");
    first.shake_hands("server");
    let request = Request { method: HOLD, deadline_ms: 10_000, body_bytes: 0, trace: "", header: b"" };
    first.frame(Kind::Request, END, 1, &request.encode());
    eventually("the request is there", || seen.responders.lock().unwrap().len() == 1);
    let record = first.record.clone();
    let mut again = raw::connect(&world, "server");
    again.send(&record);
    while again.next().is_some() {}
    assert_eq!(seen.responders.lock().unwrap().len(), 1);
}

pub fn a_peer_that_breaks_the_rules_is_cut_off_and_harms_nobody_else(carrier: Carrier) {
    let world = World::new(carrier);
    let (client, peer, server, _) = world.pair();
    assert_eq!(client.ask(&peer, call(ECHO)).status, 200);
    let request = Request { method: PUT, deadline_ms: 10_000, body_bytes: 0, trace: "", header: b"" }.encode();
    let offer = |offset, length| Offer { offset, length, place: None }.encode();
    let far = Offer { offset: 0, length: 10, place: Some(Place { region: 1, address: u64::MAX - 3 }) }.encode();
    let huge = [&[0; 8][..], &[Kind::Request as u8, 1, 0, 0], &[0xff; 8], &[0, 0, 0, 0, 0, 0, 0, 1]].concat();
    type Wrong<'a> = Box<dyn Fn(&mut raw::Raw) + 'a>;
    let wrongs: Vec<(&str, Wrong<'_>)> = vec![
        ("garbage", Box::new(|raw| raw.send(&[0x5a; 4096]))),
        ("huge lengths", Box::new(|raw| raw.send(&huge))),
        ("a stream never begun", Box::new(|raw| raw.frame(Kind::Grant, 0, 5, &[0; 8]))),
        ("a reply to nobody", Box::new(|raw| raw.frame(Kind::Reply, END, 1, &[0; 10]))),
        ("a request without its fields", Box::new(|raw| raw.frame(Kind::Request, END, 1, &[0; 3]))),
        (
            "a number used twice",
            Box::new(|raw| {
                raw.frame(Kind::Request, 0, 1, &request);
                raw.frame(Kind::Request, 0, 1, &request);
            }),
        ),
        (
            "an offer with a gap",
            Box::new(|raw| {
                raw.frame(Kind::Request, 0, 1, &request);
                raw.frame(Kind::Offer, 0, 1, &offer(10, 10));
            }),
        ),
        (
            "more offers than may be",
            Box::new(|raw| {
                raw.frame(Kind::Request, 0, 1, &request);
                for at in 0..100 {
                    raw.frame(Kind::Offer, 0, 1, &offer(at << 20, 1 << 20));
                }
            }),
        ),
        (
            "an offer in a memory region that was not announced",
            Box::new(|raw| {
                raw.frame(Kind::Request, 0, 1, &request);
                raw.frame(Kind::Offer, LENT, 1, &far);
            }),
        ),
        (
            "a chunk given back that was not lent",
            Box::new(|raw| {
                raw.frame(Kind::Request, 0, 1, &request);
                raw.frame(Kind::Done, 0, 1, &[0; 8]);
            }),
        ),
        ("a region without a descriptor", Box::new(|raw| raw.frame(Kind::Region, 0, 0, &[0; 12]))),
        ("another handshake", Box::new(|raw| raw.frame(Kind::Proof, 0, 0, &[0; 32]))),
    ];
    for (what, wrong) in wrongs {
        let mut raw = raw::connect(&world, "server");
        raw.shake_hands("server");
        wrong(&mut raw);
        // It is cut off at once, as it may be silent for far longer than it waits here.
        while raw.next().is_some() {}
        assert_eq!(client.ask(&peer, call(ECHO)).status, 200, "after {what}");
    }
    assert_eq!(peer.metrics().snapshot().connects, 1);
    eventually("all memory comes back", || server.pool().stat().used_bytes == 0);
}

pub fn a_body_takes_no_trip_of_its_own(carrier: Carrier) {
    if carrier == Carrier::Rdma {
        return; // What may be lent is not sent.
    }
    let world = World::new(carrier);
    let (_client, _peer, _server, seen) = world.pair();
    let mut raw = raw::connect(&world, "server");
    raw.shake_hands("server");
    // All of a request is sent before anything of its answer is read.
    let body = pattern(0, 300_000);
    let bytes = body.len() as u64;
    let request = Request { method: PUT, deadline_ms: 10_000, body_bytes: bytes, trace: "", header: b"" };
    raw.frame(Kind::Request, 0, 1, &request.encode());
    raw.frame(Kind::Offer, 0, 1, &Offer { offset: 0, length: body.len() as u32, place: None }.encode());
    raw.data(EARLY, 1, 0, &body);
    raw.frame(Kind::End, EARLY, 1, &swiftlet_hash::xxh3_64(&body).to_be_bytes());
    let answered: Vec<_> = (0..2).map(|_| raw.next_of_stream().unwrap()).collect();
    let kinds: Vec<_> = answered.iter().map(|(head, ..)| (head.kind, head.flags)).collect();
    assert_eq!(kinds, [(Kind::Grant, 0), (Kind::Reply, END)]);
    assert_eq!((&answered[1].1[..2], seen.ended.load(SeqCst)), (&201_u16.to_be_bytes()[..], 1));
    // All of an answer arrives although nothing of it is granted.
    let header = get_header(1, 5, bytes);
    let request = Request { method: GET, deadline_ms: 10_000, body_bytes: 0, trace: "", header: &header };
    raw.frame(Kind::Request, END, 2, &[&request.encode()[..], &header].concat());
    let mut arrived = Vec::new();
    loop {
        let (head, _, bytes) = raw.next_of_stream().unwrap();
        assert_eq!(head.has(EARLY), matches!(head.kind, Kind::Data | Kind::End), "{head:?}");
        arrived.extend_from_slice(&bytes);
        if head.kind == Kind::End {
            break;
        }
    }
    assert!(arrived == pattern(5, body.len()));
    // It is sent again to whoever dropped it, and again not before it is granted.
    raw.frame(Kind::Grant, AGAIN, 2, &bytes.to_be_bytes());
    let (head, _, bytes) = raw.next_of_stream().unwrap();
    assert!((head.kind, head.flags) == (Kind::Data, 0) && bytes == arrived);
    assert_eq!(raw.next_of_stream().unwrap().0.kind, Kind::End);
}

pub fn to_an_older_program_nothing_is_sent_before_it_is_granted(carrier: Carrier) {
    let world = World::new(carrier);
    let (_client, _peer, _server, _) = world.pair();
    let mut raw = raw::connect(&world, "server");
    raw.shake_hands_up_to(1, Credentials::Member(keys(&["secret"])), "server", false);
    let header = get_header(1, 0, 300_000);
    let request = Request { method: GET, deadline_ms: 10_000, body_bytes: 0, trace: "", header: &header };
    raw.frame(Kind::Request, END, 1, &[&request.encode()[..], &header].concat());
    let kinds: Vec<_> = (0..2).map(|_| raw.next_of_stream().unwrap().0.kind).collect();
    assert_eq!(kinds, [Kind::Reply, Kind::Offer]);
    // A second request is answered while the first answer waits for its grant.
    raw.frame(Kind::Request, END, 2, &Request { method: 0, header: b"", ..request }.encode());
    let (head, ..) = raw.next_of_stream().unwrap();
    assert_eq!((head.stream, head.kind), (2, Kind::Reply));
    raw.frame(Kind::Grant, 0, 1, &300_000_u64.to_be_bytes());
    let (head, _, bytes) = raw.next_of_stream().unwrap();
    assert!((head.kind, head.flags) == (Kind::Data, 0) && bytes == pattern(0, 300_000));
}

pub fn who_stays_silent_is_cut_off(carrier: Carrier) {
    eventually("within 2 s, on a machine that does not stand still", || silent(carrier) < noticed());
}

/// How long two clients are waited for, one of which does not say a word.
fn silent(carrier: Carrier) -> Duration {
    let world = World::new(carrier);
    let (_server, seen) = world.server(brief("server", 8 << 20));
    let begun = Instant::now();
    let mut mute = raw::connect(&world, "server");
    let mut half_open = raw::connect(&world, "server");
    half_open.shake_hands("server");
    let request = Request { method: HOLD, deadline_ms: 60_000, body_bytes: 10, trace: "", header: b"" };
    half_open.frame(Kind::Request, 0, 1, &request.encode());
    while half_open.next().is_some() {}
    while mute.next().is_some() {}
    let took = begun.elapsed();
    let failed = seen.failed.lock().unwrap();
    assert!(matches!(&failed[..], [Error::Lost(why)] if why.contains("sent nothing")), "{failed:?}");
    took
}

pub fn a_cut_link_is_noticed_at_once(carrier: Carrier) {
    let world = World::new(carrier);
    let (client, peer, _server, seen) = world.pair();
    let token = client.token();
    let upload = peer.upload(call(HOLD), None, &client.sink(), token).unwrap();
    upload.send(client.buffer(1 << 20).freeze(1 << 20)).unwrap();
    eventually("in mid-transfer", || seen.received.load(SeqCst) == 1 << 20);
    world.network.faults().cut.store(true, SeqCst);
    let outcome = client.finish(token);
    assert!(is_cut(outcome.error.as_ref()), "{outcome:?}");
    eventually("the receiver is told", || seen.failed.lock().unwrap().len() == 1);
    assert!(is_cut(seen.failed.lock().unwrap().first()));
    let refused = client.ask(&peer, call(ECHO)).error;
    assert!(matches!(refused, Some(Error::Unreachable(_))), "{refused:?}");
    world.network.faults().cut.store(false, SeqCst);
    eventually("it comes back", || client.ask(&peer, call(ECHO)).status == 200);
}

pub fn a_frozen_link_is_noticed_within_two_seconds_on_both_sides(carrier: Carrier) {
    eventually("within 2 s, on a machine that does not stand still", || frozen(carrier) < noticed());
}

/// How long it takes until both sides have noticed it.
fn frozen(carrier: Carrier) -> Duration {
    let world = World::new(carrier);
    let (client, peer, _server, seen) = world.pair_of(brief);
    let token = client.token();
    let upload = peer.upload(call(HOLD), None, &client.sink(), token).unwrap();
    upload.send(client.buffer(1 << 20).freeze(1 << 20)).unwrap();
    let mut is_over = false;
    eventually("in mid-transfer", || {
        is_over = client.is_over(token);
        is_over || seen.received.load(SeqCst) == 1 << 20
    });
    if is_over {
        return LONG; // The machine stood still before that.
    }
    let begun = Instant::now();
    world.network.faults().frozen.store(true, SeqCst);
    let error = client.finish(token).error;
    assert!(matches!(&error, Some(Error::Lost(why)) if why.contains("sent nothing")), "{error:?}");
    eventually("the receiver is told", || seen.failed.lock().unwrap().len() == 1);
    begun.elapsed()
}

pub fn calls_do_not_wait_as_long_as_a_silent_peer_is_tried(carrier: Carrier) {
    let attempt = Duration::from_millis(HANDSHAKE_MS);
    let world = World::new(carrier);
    let (client, peer, _server, _) = world.pair_of(brief);
    eventually("it is connected", || client.ask(&peer, call(ECHO)).status == 200);
    world.network.faults().frozen.store(true, SeqCst);
    let timed = || {
        let begun = Instant::now();
        let error = client.ask(&peer, Call { timeout: LONG, ..call(ECHO) }).error;
        let is_silent = matches!(&error, Some(Error::Unreachable(why)) if why.contains("took too long"));
        (is_silent, begun.elapsed())
    };
    eventually("the first attempt holds its call up to the end", || matches!(timed(), (true, took) if took >= attempt));
    // In the pauses between attempts calls are refused in no time at all.
    eventually(
        "a later one lets its call go",
        || matches!(timed(), (true, took) if took >= Duration::from_millis(40) && took < attempt / 2),
    );
    world.network.faults().frozen.store(false, SeqCst);
    eventually("it comes back", || client.ask(&peer, call(ECHO)).status == 200);
}

pub fn an_idle_connection_lives_on_slow_links_too(carrier: Carrier) {
    let world = World::new(carrier);
    let (client, peer, _server, _) = world.pair_of(brief);
    world.network.faults().delay_us.store(20_000, SeqCst);
    let idle = silence() * 2 + Duration::from_secs(1);
    eventually("it lives, on a machine that does not stand still", || {
        eventually("it is connected", || client.ask(&peer, call(ECHO)).status == 200);
        let connects = peer.metrics().snapshot().connects;
        let held = client.ask(&peer, Call { timeout: idle, ..call(HOLD) });
        held.error == Some(Error::Deadline) && peer.metrics().snapshot().connects == connects
    });
}

pub fn a_damaged_bit_is_never_taken_for_good(carrier: Carrier) {
    let world = World::new(carrier);
    let (client, peer, _server, _) = world.pair();
    assert_eq!(client.ask(&peer, call(ECHO)).status, 200);
    let (mut broken, mut mismatched) = (0, 0);
    for at in [9, 40, 70, 100, 1000, 50_000, 700_000, 1_500_000, 2_000_000] {
        let connects = peer.metrics().snapshot().connects;
        world.network.faults().damage_after.store(at, SeqCst);
        let outcome = put_all_once_more(&client, &peer, 2 << 20);
        let counter = world.network.faults().damage_after.swap(0, SeqCst);
        match (outcome.status, &outcome.error) {
            (422, None) => mismatched += 1,
            (_, Some(Error::Lost(_) | Error::Unreachable(_))) => broken += 1,
            // It hit what the connection said for itself, before the request was made, and was noticed.
            _ if counter == 0 && peer.metrics().snapshot().connects > connects => broken += 1,
            other => assert!(counter > 0, "damage at {at} was taken: {other:?}"),
        }
        eventually("it comes back", || client.ask(&peer, call(ECHO)).status == 200);
        // What is left of a connection that was broken off is not what the next damage should hit.
        eventually("the connection before is over", || world.network.faults().directions.load(SeqCst) == 2);
    }
    // Encrypted, nothing that was damaged gets as far as the body's own sum.
    let right = if carrier == Carrier::Tls { broken == 9 } else { broken >= 2 && mismatched >= 2 };
    assert!(right, "{broken} broken, {mismatched} mismatched");
}

fn put_all_once_more(client: &common::Client, peer: &Peer, bytes: usize) -> common::Outcome {
    let body = pattern(0, bytes);
    let footer = swiftlet_hash::xxh3_64(&body).to_be_bytes().to_vec();
    client.ask(peer, Call { body: Body::Chunk(body.into()), footer, timeout: LONG, ..call(PUT) })
}

/// Make tests of functions of this module.
#[macro_export]
macro_rules! over {
    ($carrier:ident as $module:ident: $($test:ident)*) => {
        mod $module {
            $(
                #[test]
                fn $test() {
                    $crate::prepare();
                    $crate::suite::$test(swiftlet_transport::Carrier::$carrier);
                }
            )*
        }
    };
}

/// All of them over one carrier.
#[macro_export]
macro_rules! over_any {
    ($carrier:ident as $module:ident) => {
        $crate::over! { $carrier as $module:
            small_requests_are_answered
            large_bodies_arrive_and_only_whole_ones_are_committed
            ranges_are_read_from_memory_files_and_sources
            many_requests_are_in_flight_at_once
            too_many_waiting_requests_are_refused_at_once
            one_chunk_goes_to_three_peers_without_a_copy
            a_slow_reader_costs_its_window_and_holds_up_nobody
            with_little_memory_all_wait_their_turn
            a_deadline_ends_a_request_on_both_sides
            a_cancelled_request_is_over_on_both_sides
            a_peer_that_ends_is_noticed_and_found_again
            a_wrong_key_or_name_is_refused_and_a_second_key_is_not
            a_handshake_that_was_overheard_opens_nothing
            a_peer_that_breaks_the_rules_is_cut_off_and_harms_nobody_else
            who_stays_silent_is_cut_off
        }
    };
}

/// Those about the network itself, which there is none of within a machine.
#[macro_export]
macro_rules! over_network {
    ($carrier:ident as $module:ident) => {
        $crate::over! { $carrier as $module:
            a_cut_link_is_noticed_at_once
            a_frozen_link_is_noticed_within_two_seconds_on_both_sides
            calls_do_not_wait_as_long_as_a_silent_peer_is_tried
            an_idle_connection_lives_on_slow_links_too
            a_damaged_bit_is_never_taken_for_good
            a_body_takes_no_trip_of_its_own
            to_an_older_program_nothing_is_sent_before_it_is_granted
        }
    };
}
