//! Guests on the same machine: what they and a server show each other, and what a guest can't make of it.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use crate::common::raw::Raw;
use crate::common::{Client, ECHO, FILE_BYTES, GET, HOLD, PUT, World, call, config, eventually, get_header, pattern};
use crate::visited::{MIB, Visited, session};
use rustix::fs::{MemfdFlags, SealFlags};
use swiftlet_transport::{Body, Call, Carrier, Config, Guests, Key, Node, Peer, Pool, Regions, TcpAcceptor};
use swiftlet_wire::frame::{END, Kind, LENT};
use swiftlet_wire::message::{Offer, Place, Request, encode_region, encode_tried};

/// Room for so many regions.
const REGIONS: usize = 2;

fn visited() -> Visited {
    Visited::with(Carrier::SameNode, 8 * MIB, |room| room.shared = Regions::new(REGIONS * 4 * MIB))
}

impl Visited {
    fn guest(&self) -> (Client, Peer) {
        let guest = self.world.client(config("guest", 32 << 20));
        let (session, secret) = session();
        guest.node.set_session(session, secret);
        let peer = guest.node.peer(self.world.address("server"));
        (guest, peer)
    }

    /// What guests were lent, and what was copied from them.
    fn of_guests(&self) -> (u64, u64) {
        let row = self.server.report().into_iter().find(|row| row.name == "guests");
        row.map_or((0, 0), |row| (row.counters.lent_bytes, row.counters.fetched_bytes))
    }
}

fn put(guest: &Client, bytes: usize) -> Call {
    let mut buffer = guest.buffer(bytes);
    buffer.as_mut_slice().copy_from_slice(&pattern(0, bytes));
    let footer = swiftlet_hash::xxh3_64(&pattern(0, bytes)).to_be_bytes().to_vec();
    Call { body: Body::Chunk(buffer.freeze(bytes)), footer, ..call(PUT) }
}

fn get(kind: u8, bytes: usize) -> Call {
    Call { header: get_header(kind, 0, bytes as u64), ..call(GET) }
}

#[test]
fn bodies_go_through_memory_that_is_the_guests_own() {
    let visited = visited();
    let (guest, peer) = visited.guest();
    for _ in 0..10 {
        assert_eq!(guest.ask(&peer, put(&guest, MIB)).status, 201);
    }
    assert_eq!(visited.of_guests(), (0, 10 * MIB as u64));
    assert_eq!(peer.metrics().snapshot().lent_bytes, 10 * MIB as u64);
    // Memory of the handler, a file, a source: all are lent.
    for kind in 0..3 {
        let answer = guest.ask(&peer, get(kind, FILE_BYTES));
        assert_eq!((answer.status, &answer.footer[..]), (206, &b"footer"[..]));
        assert!(answer.body == pattern(0, FILE_BYTES));
    }
    assert_eq!(visited.of_guests(), (3 * FILE_BYTES as u64, 10 * MIB as u64));
    assert_eq!(visited.members.stat().peak_bytes, 0, "nothing of it was in the members' memory");
    eventually("all memory is back", || visited.guests.stat().used_bytes == 0);
    // What is not in the pool is sent.
    let data = pattern(0, 3 * MIB);
    let footer = swiftlet_hash::xxh3_64(&data).to_be_bytes().to_vec();
    let sent = Call { body: Body::Chunk(data.into()), footer, ..call(PUT) };
    assert_eq!(guest.ask(&peer, sent).status, 201);
    assert_eq!(visited.of_guests().1, 10 * MIB as u64);
}

#[test]
fn regions_are_limited_and_come_back_when_guests_die() {
    let visited = visited();
    let lent_to = |guest: &(Client, Peer)| {
        let before = visited.of_guests().0;
        let answer = guest.0.ask(&guest.1, get(0, FILE_BYTES));
        assert!(answer.body == pattern(0, FILE_BYTES), "each is served");
        visited.of_guests().0 - before
    };
    let (first, second, third) = (visited.guest(), visited.guest(), visited.guest());
    assert_eq!(first.0.ask(&first.1, call(ECHO)).status, 200);
    let all = FILE_BYTES as u64;
    assert_eq!((lent_to(&first), lent_to(&second), lent_to(&third)), (all, all, 0), "there are two");
    assert_eq!(third.0.ask(&third.1, put(&third.0, MIB)).status, 201);
    assert_eq!(visited.of_guests().1, MIB as u64, "what it shows itself takes nothing of the server");
    drop(first);
    eventually("it is gone", || visited.server.guests() == 2);
    // What was lent over a connection that broke stays for a moment.
    eventually("a region is free", || lent_to(&visited.guest()) == all);
    visited.is_well();
}

/// A memfd of so many bytes, with these seals.
fn memory(bytes: usize, seals: SealFlags) -> File {
    let file = rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&file, bytes as u64).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file.into()
}

fn sealed() -> File {
    memory(MIB, SealFlags::SHRINK | SealFlags::GROW)
}

fn request(method: u16) -> Vec<u8> {
    Request { method, deadline_ms: 60_000, body_bytes: 10, trace: "t", header: b"" }.encode()
}

fn offer(address: u64, length: u32) -> Vec<u8> {
    Offer { offset: 0, length, place: Some(Place { region: 1, address }) }.encode()
}

#[test]
fn what_a_guest_shows_is_checked() {
    let visited = visited();
    let pipe: OwnedFd = rustix::pipe::pipe().unwrap().0;
    let region = |bytes: usize| encode_region(1, bytes as u64, b"");
    type Wrong<'a> = (&'a str, Box<dyn Fn(&mut Raw) + 'a>);
    let wrong: Vec<Wrong<'_>> = vec![
        ("no descriptor", Box::new(|raw| raw.frame(Kind::Region, 0, 0, &region(MIB)))),
        ("no memory", Box::new(|raw| raw.frame_with(Kind::Region, &region(MIB), pipe.as_fd()))),
        (
            "a file",
            Box::new(|raw| {
                let file = File::open("/proc/self/exe").unwrap();
                raw.frame_with(Kind::Region, &region(file.metadata().unwrap().len() as usize), file.as_fd());
            }),
        ),
        (
            "memory that may shrink",
            Box::new(|raw| raw.frame_with(Kind::Region, &region(MIB), memory(MIB, SealFlags::GROW).as_fd())),
        ),
        ("another size", Box::new(|raw| raw.frame_with(Kind::Region, &region(MIB + 1), sealed().as_fd()))),
        ("a card", Box::new(|raw| raw.frame_with(Kind::Region, &encode_region(1, 1, b"card"), sealed().as_fd()))),
        (
            "a second one",
            Box::new(|raw| {
                raw.frame_with(Kind::Region, &region(MIB), sealed().as_fd());
                raw.frame_with(Kind::Region, &region(MIB), sealed().as_fd());
            }),
        ),
        ("a trial", Box::new(|raw| raw.frame(Kind::Tried, 0, 0, &encode_tried(1, true)))),
        (
            "an address without memory",
            Box::new(|raw| {
                raw.frame(Kind::Request, 0, 1, &request(PUT));
                raw.frame(Kind::Offer, LENT, 1, &offer(0, 10));
            }),
        ),
        (
            "an address outside",
            Box::new(|raw| {
                raw.frame_with(Kind::Region, &region(MIB), sealed().as_fd());
                raw.frame(Kind::Request, 0, 1, &request(PUT));
                raw.frame(Kind::Offer, LENT, 1, &offer(MIB as u64 - 9, 10));
            }),
        ),
        (
            "an address beyond all",
            Box::new(|raw| {
                raw.frame_with(Kind::Region, &region(MIB), sealed().as_fd());
                raw.frame(Kind::Request, 0, 1, &request(PUT));
                raw.frame(Kind::Offer, LENT, 1, &offer(u64::MAX, 10));
            }),
        ),
    ];
    for (what, send) in wrong {
        let mut raw = visited.raw();
        send(&mut raw);
        while let Some((head, ..)) = raw.next() {
            assert_eq!(head.kind, Kind::Region, "{what} of a guest ends its connection");
        }
        visited.is_well();
    }
    eventually("all guests are gone", || visited.server.guests() == 0);
}

#[test]
fn a_guest_that_changes_what_it_has_sent_changes_nothing() {
    let visited = visited();
    let mut raw = visited.raw();
    let file = sealed();
    file.write_all_at(&pattern(0, MIB), 0).unwrap();
    raw.frame_with(Kind::Region, &encode_region(1, MIB as u64, b""), file.as_fd());
    raw.frame(Kind::Request, 0, 1, &request(HOLD));
    raw.frame(Kind::Offer, LENT, 1, &offer(100, 10_000));
    let (head, meta, _) = raw.next_of_stream().unwrap();
    assert_eq!((head.kind, &meta[..]), (Kind::Done, &[0; 8][..]), "it was copied");
    file.write_all_at(&vec![0xff; MIB], 0).unwrap();
    eventually("it has come", || visited.seen.received.load(SeqCst) == 10_000);
    assert!(visited.seen.chunks.lock().unwrap()[0][..] == pattern(100, 10_000));
    // It dies with its request open.
    drop((raw, file));
    eventually("the guest is gone", || visited.server.guests() == 0);
    visited.seen.chunks.lock().unwrap().clear();
    eventually("its memory is back", || visited.guests.stat().used_bytes == 0);
    visited.is_well();
}

#[test]
fn a_socket_under_a_servers_name_is_not_the_server() {
    let world = World::new(Carrier::SameNode);
    let room = || Some(Guests { shared: Regions::new(4 * MIB), ..Guests::new(Pool::new(8 << 20).unwrap()) });
    // It has another key, so it knows no secret of the session.
    let stranger = Config { keys: vec![Key::new(b"other")], guests: room(), ..config("server", 8 << 20) };
    let (_stranger, seen) = world.server(stranger);
    let server = Config { guests: room(), ..config("server", 8 << 20) };
    let node = Node::start(server, &[], Some(Arc::new(crate::common::Server::new()))).unwrap();
    let acceptor = TcpAcceptor::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    world.addresses.lock().unwrap().insert("server".to_owned(), acceptor.address().unwrap());
    node.listen(Box::new(acceptor));
    let guest = world.client(config("guest", 32 << 20));
    let (session, secret) = session();
    guest.node.set_session(session, secret);
    let peer = guest.node.peer(world.address("server"));
    assert_eq!(guest.ask(&peer, put(&guest, MIB)).status, 201);
    let counters = peer.metrics().snapshot();
    assert_eq!((counters.carrier, counters.lent_bytes), (Some(Carrier::Tcp), 0), "it has been shown nothing");
    assert_eq!(seen.received.load(SeqCst), 0);
}

#[test]
fn a_guest_that_gives_nothing_back_keeps_only_its_own_waiting() {
    let visited = visited();
    let mut raw = visited.raw();
    // More than its region has; it never says DONE.
    for stream in 1..=3 {
        let request = Request {
            method: GET,
            deadline_ms: 60_000,
            body_bytes: 0,
            trace: "t",
            header: &get_header(0, 0, FILE_BYTES as u64),
        };
        raw.frame(Kind::Request, END, stream, &[request.encode(), request.header.to_vec()].concat());
    }
    eventually("it has all of its region", || visited.of_guests().0 >= 3 * MIB as u64);
    let (guest, peer) = visited.guest();
    assert!(guest.ask(&peer, get(0, FILE_BYTES)).body == pattern(0, FILE_BYTES));
    assert_eq!(guest.ask(&peer, put(&guest, MIB)).status, 201);
    visited.is_well();
    assert!(visited.of_guests().0 <= (4 * MIB + FILE_BYTES) as u64);
}
