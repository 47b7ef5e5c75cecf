//! Guests that keep to no rule, beside members that notice nothing of it.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::atomic::Ordering::SeqCst;

use crate::common::raw::{self, Raw};
use crate::common::{ECHO, HOLD, PUT, call, config, eventually, pattern};
use crate::visited::{MIB, Visited, session};
use swiftlet_transport::{Body, Call, Carrier, Chunk, Guests};
use swiftlet_wire::frame::{END, Kind, LENT};
use swiftlet_wire::handshake::{self, Credentials, Identity, Limits};
use swiftlet_wire::message::{Offer, Place, Request, decode_cancel, encode_region, encode_tried};

/// A server with little memory for guests.
fn visited(carrier: Carrier, change: impl FnOnce(&mut Guests)) -> Visited {
    Visited::with(carrier, 4 * MIB, change)
}

fn request(method: u16) -> Vec<u8> {
    Request { method, deadline_ms: 60_000, body_bytes: 0, trace: "t", header: b"" }.encode()
}

#[test]
fn thousands_of_streams_are_too_many() {
    let visited = visited(Carrier::Tcp, |room| room.max_streams = 4);
    let mut raw = visited.raw();
    for stream in 1..=2000 {
        raw.frame(Kind::Request, END, stream, &request(HOLD));
    }
    for _ in 0..1996 {
        let (head, meta, _) = raw.next_of_stream().unwrap();
        assert_eq!((head.kind, decode_cancel(&meta).unwrap().0 as u16), (Kind::Cancel, 3), "overloaded");
    }
    assert_eq!(visited.seen.responders.lock().unwrap().len(), 4);
    visited.is_well();
}

#[test]
fn memory_is_never_shared_with_guests() {
    for carrier in [Carrier::Tcp, Carrier::SameNode] {
        let visited = visited(carrier, |_| ());
        let mut raw = visited.raw();
        // What comes first is the answer: the server has not announced its memory.
        raw.frame(Kind::Ping, 0, 0, &7_u64.to_be_bytes());
        assert_eq!(raw.next().unwrap().0.kind, Kind::Pong);
        visited.is_well();
        let offer = Offer { offset: 0, length: 10, place: Some(Place { region: 1, address: 0 }) }.encode();
        type Wrong<'a> = (&'a str, Box<dyn Fn(&mut Raw) + 'a>);
        let wrong: [Wrong<'_>; 3] = [
            ("a region", Box::new(|raw| raw.frame(Kind::Region, 0, 0, &encode_region(1, 1 << 20, b"")))),
            ("a trial", Box::new(|raw| raw.frame(Kind::Tried, 0, 0, &encode_tried(1, true)))),
            (
                "a lent chunk",
                Box::new(|raw| {
                    raw.frame(Kind::Request, 0, 1, &request(PUT));
                    raw.frame(Kind::Offer, LENT, 1, &offer);
                }),
            ),
        ];
        for (what, send) in wrong {
            let mut raw = visited.raw();
            send(&mut raw);
            assert!(raw.next_of_stream().is_none(), "{what} of a guest ends its connection");
            visited.is_well();
        }
        drop(raw);
        eventually("all guests are gone", || visited.server.guests() == 0);
    }
}

#[test]
fn guests_that_hold_all_their_memory_keep_no_member_waiting() {
    let visited = visited(Carrier::Tcp, |_| ());
    let guest = visited.world.client(config("guest", 32 << 20));
    let (session, secret) = session();
    guest.node.set_session(session, secret);
    let peer = guest.node.peer(visited.world.address("server"));
    // The server keeps what it receives.
    for _ in 0..8 {
        let body = Body::Chunk(Chunk::from(pattern(0, MIB)));
        guest.start(&peer, Call { body, ..call(HOLD) });
    }
    eventually("no memory of guests is left", || visited.guests.stat().waiting > 0);
    // What has come is counted when the server's thread gets to it.
    eventually("a part has come", || visited.seen.received.load(SeqCst) >= MIB);
    let received = visited.seen.received.load(SeqCst);
    assert!(received < 8 * MIB, "{received}");
    assert_eq!(visited.members.stat().used_bytes, 0, "it is their own");
    let data = pattern(0, 4 * MIB);
    let footer = swiftlet_hash::xxh3_64(&data).to_be_bytes().to_vec();
    let body = Body::Chunk(Chunk::from(data));
    assert_eq!(visited.member.ask(&visited.peer, Call { body, footer, ..call(PUT) }).status, 201);
    drop(guest);
    eventually("the guest is gone", || visited.server.guests() == 0);
    visited.seen.chunks.lock().unwrap().clear();
    eventually("its memory is back", || visited.guests.stat().used_bytes == 0);
}

#[test]
fn a_place_is_taken_with_the_first_word_and_given_back() {
    let visited = visited(Carrier::Tcp, |room| room.max_connections = 3);
    let greet = || {
        let mut raw = raw::connect(&visited.world, "server");
        let (session, secret) = session();
        let limits = Limits { window_bytes: 1 << 20, lent: false, streams: 100, inline_bytes: 1 << 20 };
        let us = Identity { name: "raw".to_owned(), machine: "machine".to_owned(), limits };
        let (_, hello) = handshake::Client::new(Credentials::Guest(session, secret), &us, "server", &[7; 32]);
        raw.frame(Kind::Hello, 0, 0, &hello);
        let answer = raw.next().unwrap().0.kind;
        (raw, answer)
    };
    let (one, two, three) = (greet(), visited.raw(), greet());
    assert_eq!((one.1, three.1, visited.server.guests()), (Kind::Welcome, Kind::Welcome, 3));
    assert_eq!(greet().1, Kind::Refuse, "who has no place is told so before it could send a request");
    visited.is_well();
    drop((one, two, three));
    eventually("all places are free", || visited.server.guests() == 0);
    assert_eq!(greet().1, Kind::Welcome);
}

#[test]
fn many_guests_come_and_go() {
    let visited = visited(Carrier::Tcp, |room| room.max_connections = 100);
    let mut all: Vec<Raw> = (0..100).map(|_| visited.raw()).collect();
    eventually("all are in", || visited.server.guests() == 100);
    for (stream, raw) in (1..).zip(&mut all) {
        raw.frame(Kind::Request, END, stream, &request(ECHO));
    }
    for raw in &mut all {
        assert_eq!(raw.next_of_stream().unwrap().0.kind, Kind::Reply);
    }
    visited.is_well();
    drop(all);
    eventually("all are gone", || visited.server.guests() == 0);
}
