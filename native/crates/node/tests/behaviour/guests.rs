//! What guests may do at an object server, and what they may not, however they try.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::common::{LONG, MIB, Machine, World, config, content, eventually};
use swiftlet_fragments::Version;
use swiftlet_fragments::packs::Pack;
use swiftlet_fragments::packs::table::{Reference, Table};
use swiftlet_fragments::request::Request as About;
use swiftlet_node::message::guests::{Told, encode};
use swiftlet_node::message::many::{self, MAX_MANY, MAX_MANY_ANSWER_BYTES, MAX_MANY_BYTES};
use swiftlet_node::message::{Found, Request, Written, fragments, packs};
use swiftlet_node::{Guests, LONGEST_LIFE_MS, Limits, Refusal, Status};
use swiftlet_store::Store;
use swiftlet_store::model::{Entry, EntryKind, Footer, Key, PostMeta, PutMeta};
use swiftlet_transport::guest::{Grant, Operations, Scope, Session};
use swiftlet_transport::{
    Body, Call, Carrier, Chunk, Completions, Error, Fabric, Guests as Room, Key as ClusterKey, Node, Peer, Pool,
    Regions, SameNodeFabric, Sink, TcpFabric, What,
};

mod grants;

const POWER: u8 = 6;
const ROWS: u32 = 0b111;
const RING: u64 = 12;

fn key() -> ClusterKey {
    ClusterKey::new(b"secret")
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

fn at(ms: u64) -> u64 {
    (ms * 100) << 14 | 7
}

fn place(object: &str) -> Key {
    let digest = swiftlet_hash::md5(format!("before/AUTH_a/c/{object}after").as_bytes());
    let partition = u32::from_be_bytes(digest[..4].try_into().unwrap()) >> (32 - POWER);
    Key { policy: 1, partition, digest }
}

fn session() -> Session {
    Session { key_id: key().id(), id: [5; 16], ends_s: now_ms() / 1000 + 60 }
}

fn grant() -> Grant {
    Grant {
        session: session().id,
        issued_ms: now_ms() - 10,
        ends_ms: now_ms() + 60_000,
        policy: 1,
        part_power: POWER,
        operations: Operations::of(31).unwrap(),
        rows: ROWS,
        object_bytes: 16 << 20,
        slice_objects: u64::MAX,
        slice_bytes: u64::MAX,
        account: "AUTH_a".to_owned(),
        container: "c".to_owned(),
        scope: Scope::Container,
    }
}

fn etag() -> Vec<u8> {
    vec![b'a'; 32]
}

fn footer(data: &[u8]) -> Footer {
    Footer { size: data.len() as u64, etag: etag(), xxh3: swiftlet_hash::xxh3_64(data) }
}

fn meta(object: &str) -> PutMeta {
    PutMeta {
        name: format!("/AUTH_a/c/{object}").into_bytes(),
        timestamp: at(now_ms()),
        content_type: b"text/plain".to_vec(),
        metadata: vec![(b"X-Object-Meta-Colour".to_vec(), b"red".to_vec())],
        sysmeta: Vec::new(),
        delete_at: 0,
    }
}

fn put(object: &str, data: &[u8]) -> Request {
    Request::Put { key: place(object), meta: meta(object), footer: Some(footer(data)), row: 1 }
}

fn get(object: &str) -> Request {
    Request::Get { key: place(object), start: 0, stop: u64::MAX, whole: 0, proved: false }
}

fn delete(object: &str) -> Request {
    let name = meta(object).name;
    Request::Delete { key: place(object), timestamp: at(now_ms()) + 100, name, row: 2 }
}

/// A server that lets guests in, and a guest.
struct Visit {
    world: World,
    known: Arc<Guests>,
    machine: Machine,
    guest: Peer,
    member: Peer,
    /// The guest's own end.
    _node: Node,
}

/// The outcome, and header and body of the answer.
type Answered = (Status, Vec<u8>, Vec<u8>);

fn call(peer: &Peer, method: u16, header: Vec<u8>, body: &[u8]) -> Result<Answered, Error> {
    let events = Completions::new().unwrap();
    let sink = Arc::clone(&events) as Arc<dyn Sink>;
    let body = if body.is_empty() { Body::Empty } else { Body::Chunk(Chunk::from(body.to_vec())) };
    let call = Call { method, timeout: LONG, trace: "t".into(), header, body, ..Call::default() };
    drop(peer.call(call, &sink, 1).unwrap());
    let (mut answer, mut bytes) = (None, Vec::new());
    loop {
        for event in events.wait(LONG) {
            match event.what {
                What::Reply { status, header, body, whole, .. } => {
                    bytes.extend(body.iter().flat_map(|body| body.iter().copied()));
                    answer = Some((Status::of(status).unwrap(), header));
                    if whole {
                        let (status, header) = answer.unwrap();
                        return Ok((status, header, bytes));
                    }
                }
                What::Chunk(chunk) => bytes.extend_from_slice(&chunk),
                What::End(_) => {
                    let (status, header) = answer.unwrap();
                    return Ok((status, header, bytes));
                }
                What::Failed(error) => return Err(error),
                What::Sent(_) => {}
            }
        }
    }
}

impl Visit {
    fn with(carrier: Carrier, limits: Limits, room: impl FnOnce(&mut Room)) -> Self {
        let world = World::new(carrier);
        let known = Arc::new(Guests::new(vec![key()], (b"before".to_vec(), b"after".to_vec())));
        known.set_ring(1, RING);
        let directory = crate::common::Directory::new();
        let stores = vec![Arc::new(Store::open(&directory.0, crate::common::store_config()).unwrap())];
        let mut space = Room::new(Pool::new(8 << 20).unwrap());
        room(&mut space);
        let (node, server, targets) = world.serve_all(&stores, limits, Some((Arc::clone(&known), space)));
        let member = targets[0].0.clone();
        let address = world.address(&member);
        let fabric: Arc<dyn Fabric> = match carrier {
            Carrier::SameNode => Arc::new(SameNodeFabric::new(world.sockets())),
            _ => Arc::new(TcpFabric),
        };
        let end = Node::start(config("somebody"), &[fabric], None).unwrap();
        end.set_session(session(), session().secret(&key()));
        let guest = end.peer(address);
        let machine = Machine { node: Some(node), server, stores, directories: vec![directory] };
        Self { world, known, machine, guest, member, _node: end }
    }

    fn new() -> Self {
        Self::with(Carrier::Tcp, Limits::default(), |_| ())
    }

    fn ask_by(&self, signed: &[u8], object: &str, request: &Request, body: &[u8]) -> Answered {
        let header = encode(signed, object.as_bytes(), &request.encode("d0").unwrap()).unwrap();
        let (status, header, body) = call(&self.guest, request.method(), header, body).unwrap();
        let (told, header) = Told::decode(&header).unwrap();
        assert!(told.now_ms.abs_diff(now_ms()) < 60_000);
        assert!(told.ring == RING || status != Status::Ok);
        (status, header.to_vec(), body)
    }

    fn ask(&self, grant: &Grant, object: &str, request: &Request, body: &[u8]) -> Answered {
        self.ask_by(&grant.sign(&key()).unwrap(), object, request, body)
    }

    fn status(&self, grant: &Grant, object: &str, request: &Request, body: &[u8]) -> Status {
        self.ask(grant, object, request, body).0
    }

    /// What is answered to each of many requests, and to the message: its status.
    fn ask_many(&self, grant: &Grant, all: &[(&str, Request, &[u8])]) -> (Status, Vec<Answered>) {
        let mut body = Vec::new();
        for (object, request, data) in all {
            many::push(&mut body, object.as_bytes(), request, data).unwrap();
        }
        let (status, _, answers) = self.ask(grant, "", &Request::Many(all.len() as u16), &body);
        if status != Status::Ok {
            return (status, Vec::new());
        }
        let of = |one: many::OneAnswer<'_>| (Status::of(one.status).unwrap(), one.header.to_vec(), one.body.to_vec());
        (status, many::answers(all.len(), &answers).unwrap().into_iter().map(of).collect())
    }

    fn by_member(&self, request: &Request, body: &[u8]) -> Status {
        call(&self.member, request.method(), request.encode("d0").unwrap(), body).unwrap().0
    }
}

fn whole_life(visit: &Visit) {
    for size in [0, 10_240, 300 << 10, 5 * MIB + 3] {
        let (data, name) = (content(1, size), format!("o{size}"));
        let (status, header, _) = visit.ask(&grant(), &name, &put(&name, &data), &data);
        assert_eq!((status, Written::decode(&header).unwrap().pending), (Status::Ok, true), "{size}");
        let (status, header, read) = visit.ask(&grant(), &name, &get(&name), b"");
        assert_eq!(status, Status::Ok);
        assert!(read == data);
        assert_eq!(Found::decode(&header).unwrap().info.metadata, meta(&name).metadata);
        let colours = vec![(b"X-Object-Meta-Colour".to_vec(), b"blue".to_vec())];
        let new = PostMeta { timestamp: at(now_ms()) + 50, metadata: colours.clone(), ..PostMeta::default() };
        let post = Request::Post { key: place(&name), meta: new, row: 7, proved: false };
        assert_eq!(visit.status(&grant(), &name, &post, b""), Status::Ok);
        let head = Request::Head { key: place(&name), proved: false };
        let (_, header, _) = visit.ask(&grant(), &name, &head, b"");
        assert_eq!(Found::decode(&header).unwrap().info.metadata, colours);
        assert_eq!(visit.status(&grant(), &name, &delete(&name), b""), Status::Ok);
        assert_eq!(visit.status(&grant(), &name, &get(&name), b""), Status::NotFound);
    }
    assert_eq!(visit.machine.stores[0].pending_count(), 4, "each object's row is owed");
    let until = Instant::now() + Duration::from_secs(30);
    while visit.machine.stores[0].pending_updates(10, Duration::from_secs(3600)).len() < 4 {
        assert!(Instant::now() < until, "nobody else delivers them, so they are due soon");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_guest_stores_reads_changes_and_deletes() {
    whole_life(&Visit::new());
}

#[test]
fn a_guest_on_the_same_node_is_served_with_and_without_memory_of_its_own() {
    for shared in [0, 4 << 20] {
        let near = || Visit::with(Carrier::SameNode, Limits::default(), |room| room.shared = Regions::new(shared));
        whole_life(&near());
        let visit = near();
        let data = content(2, 3 * MIB);
        let pool = visit.guest.pool();
        let chunk = |data: &[u8]| {
            let mut buffer = pool.chunk(data.len()).unwrap();
            buffer.as_mut_slice().copy_from_slice(data);
            buffer.freeze(data.len())
        };
        let events = Completions::new().unwrap();
        let sink = Arc::clone(&events) as Arc<dyn Sink>;
        let upload = begin(&visit.guest, &grant().sign(&key()).unwrap(), "o", data.len(), &sink);
        data.chunks(MIB).for_each(|piece| upload.send(chunk(piece)).unwrap());
        upload.end(swiftlet_node::message::encode_footer(&footer(&data)).unwrap()).unwrap();
        while !events.wait(LONG).iter().any(|event| matches!(event.what, What::Reply { status: 0, .. })) {}
        assert!(visit.ask(&grant(), "o", &get("o"), b"").2 == data);
        let counters = visit.guest.metrics().snapshot();
        let lent = if shared == 0 { 0 } else { data.len() as u64 };
        assert_eq!((counters.carrier, counters.lent_bytes), (Some(Carrier::SameNode), lent));
        let rows = visit.machine.node.as_ref().unwrap().report();
        let row = rows.iter().find(|row| row.name == "guests").unwrap();
        assert_eq!((row.counters.lent_bytes, row.counters.fetched_bytes), (lent, lent));
        assert_eq!(visit.machine.node.as_ref().unwrap().pool().stat().peak_bytes, 0, "it is not that of members");
    }
}

#[test]
fn what_is_not_shown_to_a_guest_is_not_in_its_memory_either() {
    let visit = Visit::with(Carrier::SameNode, Limits::default(), |room| room.shared = Regions::new(4 << 20));
    for size in [100 << 10, 3 * MIB] {
        let data = content(1, size);
        let hidden = PutMeta { sysmeta: vec![(b"X-Object-Sysmeta-Slo-Etag".to_vec(), b"1".to_vec())], ..meta("o") };
        let request = Request::Put { key: place("o"), meta: hidden, footer: Some(footer(&data)), row: 0 };
        assert_eq!(visit.by_member(&request, &data), Status::Ok);
        assert_eq!(visit.status(&grant(), "o", &get("o"), b""), Status::NotPlain);
        let rows = visit.machine.node.as_ref().unwrap().report();
        assert_eq!(rows.iter().find(|row| row.name == "guests").unwrap().counters.lent_bytes, 0);
    }
}

#[test]
fn a_grant_covers_what_it_says() {
    let visit = Visit::new();
    let data = b"data";
    assert_eq!(visit.status(&grant(), "a/o", &put("a/o", data), data), Status::Ok);
    let only = |bits: u8| Grant { operations: Operations::of(bits).unwrap(), ..grant() };
    let within = |scope: Scope| Grant { scope, ..grant() };
    let head = Request::Head { key: place("a/o"), proved: false };
    for (grant, request, status) in [
        (only(1), head.clone(), Status::Ok),
        (only(2), head, Status::Ok),
        (only(2), get("a/o"), Status::Forbidden),
        (only(1), put("a/o", data), Status::Forbidden),
        (only(4), get("a/o"), Status::Forbidden),
        (only(4), delete("a/o"), Status::Forbidden),
        (within(Scope::Prefix("a/".to_owned())), get("a/o"), Status::Ok),
        (within(Scope::Prefix("b/".to_owned())), get("a/o"), Status::Forbidden),
        (within(Scope::Object("a/o".to_owned())), get("a/o"), Status::Ok),
        (within(Scope::Object("a".to_owned())), get("a/o"), Status::Forbidden),
        (Grant { object_bytes: 3, ..self::grant() }, put("a/o", data), Status::Forbidden),
        (Grant { policy: 2, ..self::grant() }, get("a/o"), Status::Forbidden),
        (Grant { part_power: 5, ..self::grant() }, get("a/o"), Status::Forbidden),
        (Grant { account: "AUTH_b".to_owned(), ..self::grant() }, get("a/o"), Status::Forbidden),
        (Grant { container: "d".to_owned(), ..self::grant() }, get("a/o"), Status::Forbidden),
        (Grant { rows: 2, ..self::grant() }, put("a/o", data), Status::Forbidden),
    ] {
        let body: &[u8] = if matches!(request, Request::Put { .. }) { data } else { b"" };
        assert_eq!(visit.status(&grant, "a/o", &request, body), status, "{grant:?} {request:?}");
    }
}

#[test]
fn what_a_guest_says_of_an_object_is_not_believed() {
    let visit = Visit::new();
    let data = b"data";
    let with = |change: &dyn Fn(&mut PutMeta, &mut Footer, &mut u32, &mut Key)| {
        let (mut meta, mut footer, mut row, mut key) = (meta("o"), footer(data), 1, place("o"));
        change(&mut meta, &mut footer, &mut row, &mut key);
        visit.ask(&grant(), "o", &Request::Put { key, meta, footer: Some(footer), row }, data).0
    };
    let pair = |name: &str, value: &str| vec![(name.as_bytes().to_vec(), value.as_bytes().to_vec())];
    assert_eq!(with(&|_, _, _, _| ()), Status::Ok);
    let forbidden = Status::Forbidden;
    assert_eq!(with(&|meta, _, _, _| meta.name = b"/AUTH_a/c/p".to_vec()), forbidden);
    assert_eq!(with(&|meta, _, _, _| meta.sysmeta = pair("X-Object-Sysmeta-Slo-Etag", "1")), forbidden);
    assert_eq!(with(&|meta, _, _, _| meta.delete_at = now_ms() / 1000 + 5), forbidden);
    assert_eq!(with(&|meta, _, _, _| meta.metadata = pair("X-Delete-At", "1")), forbidden);
    assert_eq!(with(&|meta, _, _, _| meta.metadata = pair("X-Object-Manifest", "c/p")), forbidden);
    assert_eq!(with(&|meta, _, _, _| meta.metadata = pair("X-Object-Meta-A", &"v".repeat(257))), forbidden);
    assert_eq!(with(&|meta, _, _, _| meta.metadata = pair("X-Object-Meta-A", "a\r\nb")), forbidden);
    assert_eq!(with(&|meta, _, _, _| meta.content_type = b"a/b;swift_bytes=5".to_vec()), forbidden);
    assert_eq!(with(&|meta, _, _, _| meta.content_type = Vec::new()), forbidden);
    assert_eq!(with(&|_, footer, _, _| footer.etag = b"mine".to_vec()), forbidden);
    assert_eq!(with(&|_, footer, _, _| footer.size = 3), forbidden);
    assert_eq!(with(&|_, footer, _, _| footer.xxh3 ^= 1), Status::ChecksumMismatch);
    assert_eq!(with(&|_, _, row, _| *row = 0), forbidden);
    assert_eq!(with(&|_, _, row, _| *row = 8), forbidden);
    assert_eq!(with(&|_, _, _, key| key.partition ^= 1), forbidden);
    assert_eq!(with(&|_, _, _, key| key.digest[15] ^= 1), forbidden);
    for (off_ms, status) in [
        (4000, Status::Ok),
        (3_600_000, Status::ClockDiffers),
        (-30_000, Status::Superseded),
        (-3_600_000, Status::ClockDiffers),
    ] {
        let timestamp = at(now_ms().checked_add_signed(off_ms).unwrap());
        assert_eq!(with(&|meta, _, _, _| meta.timestamp = timestamp), status, "{off_ms}");
    }
}

#[test]
fn the_servers_time_is_told_with_the_refusal() {
    let visit = Visit::new();
    let mut late = meta("o");
    late.timestamp = at(now_ms() + 60_000);
    let request = Request::Put { key: place("o"), meta: late, footer: Some(footer(b"")), row: 1 };
    let (status, header, _) = visit.ask(&grant(), "o", &request, b"");
    let refusal = Refusal::decode(status as u16, &header);
    assert_eq!(refusal.status, Status::ClockDiffers);
    assert!(((refusal.timestamp >> 14) / 100).abs_diff(now_ms()) < 60_000);
}

#[test]
fn a_body_is_as_long_as_was_announced() {
    let visit = Visit::new();
    let data = content(1, 3 * MIB);
    let send = |announced: Option<u64>, whole: &[u8], footer: &Footer| {
        let request = Request::Put { key: place("o"), meta: meta("o"), footer: None, row: 1 };
        let signed = grant().sign(&key()).unwrap();
        let header = encode(&signed, b"o", &request.encode("d0").unwrap()).unwrap();
        let events = Completions::new().unwrap();
        let sink = Arc::clone(&events) as Arc<dyn Sink>;
        let call = Call { method: 1, timeout: LONG, trace: "t".into(), header, ..Call::default() };
        let upload = visit.guest.upload(call, announced, &sink, 1).unwrap();
        for piece in whole.chunks(MIB) {
            drop(upload.send(Chunk::from(piece.to_vec())));
        }
        upload.end(swiftlet_node::message::encode_footer(footer).unwrap()).unwrap();
        loop {
            for event in events.wait(LONG) {
                match event.what {
                    What::Reply { status, .. } => return Status::of(status).unwrap(),
                    What::Sent(_) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    };
    let size = data.len() as u64;
    assert_eq!(send(None, &data, &footer(&data)), Status::Forbidden);
    assert_eq!(send(Some(17 << 20), &data, &footer(&data)), Status::Forbidden);
    assert_eq!(send(Some(MIB as u64), &data, &footer(&data)), Status::SizeMismatch);
    assert_eq!(send(Some(size), &data, &Footer { etag: b"x".to_vec(), ..footer(&data) }), Status::Forbidden);
    assert_eq!(send(Some(size), &data, &Footer { xxh3: 1, ..footer(&data) }), Status::ChecksumMismatch);
    assert_eq!(visit.by_member(&get("o"), b""), Status::NotFound, "nothing of these is kept");
    assert_eq!(send(Some(size), &data, &footer(&data)), Status::Ok);
    eventually("nothing is left of what was refused", || visit.machine.directories[0].large() == 1);
}

/// A client's end, and the server as its peer: by a session of its own, or by that of all tests.
fn another(visit: &Visit, session: Session) -> (Node, Peer) {
    let small = swiftlet_transport::Config { pool: Pool::new(2 << 20).unwrap(), ..config("another") };
    let node = Node::start(small, &[Arc::new(TcpFabric) as Arc<dyn Fabric>], None).unwrap();
    node.set_session(session, session.secret(&key()));
    let peer = node.peer(visit.world.address(&visit.member));
    (node, peer)
}

/// Begin an upload of so many bytes by a grant.
fn begin(peer: &Peer, signed: &[u8], object: &str, bytes: usize, sink: &Arc<dyn Sink>) -> swiftlet_transport::Upload {
    let request = Request::Put { key: place(object), meta: meta(object), footer: None, row: 1 };
    let header = encode(signed, object.as_bytes(), &request.encode("d0").unwrap()).unwrap();
    let call = Call { method: 1, timeout: LONG, trace: "t".into(), header, ..Call::default() };
    peer.upload(call, Some(bytes as u64), sink, 1).unwrap()
}

#[test]
fn a_grant_that_ends_in_the_middle_of_a_stream_lets_it_end() {
    let visit = Visit::new();
    let data = content(1, 5 * MIB);
    assert_eq!(visit.status(&grant(), "read", &put("read", &data), &data), Status::Ok);
    // On a machine that stands still it may have ended before anything began: then it gets longer.
    for life_ms in [400, 4_000, 40_000] {
        let short = Grant { ends_ms: now_ms() + life_ms, ..grant() };
        let signed = short.sign(&key()).unwrap();
        let (sending, reading) = (Completions::new().unwrap(), Completions::new().unwrap());
        let (to_send, to_read) = (Arc::clone(&sending) as Arc<dyn Sink>, Arc::clone(&reading) as Arc<dyn Sink>);
        let upload = begin(&visit.guest, &signed, "sent", data.len(), &to_send);
        let header = encode(&signed, b"read", &get("read").encode("d0").unwrap()).unwrap();
        let call = Call { method: 2, timeout: LONG, trace: "t".into(), header, ..Call::default() };
        drop(visit.guest.call(call, &to_read, 1).unwrap());
        // What is read stays in the window until it is taken, so that the answer goes on only then.
        let mut events = Vec::new();
        while !events.iter().any(|event: &swiftlet_transport::Event| matches!(event.what, What::Reply { .. })) {
            events.extend(reading.wait(LONG));
        }
        upload.send(Chunk::from(data[..MIB].to_vec())).unwrap();
        eventually("it has ended", || now_ms() > short.ends_ms);
        assert_eq!(visit.ask_by(&signed, "o", &get("o"), b"").0, Status::Unauthorized, "nothing new by it");
        let mut read = Vec::new();
        let mut refused = false;
        'all: loop {
            for event in std::mem::take(&mut events) {
                match event.what {
                    What::Reply { status, .. } => refused = Status::of(status) == Some(Status::Unauthorized),
                    What::Chunk(chunk) => read.extend_from_slice(&chunk),
                    What::End(_) => break 'all,
                    What::Sent(_) => {}
                    What::Failed(error) => panic!("{error}"),
                }
                if refused {
                    break 'all;
                }
            }
            events = reading.wait(LONG);
        }
        if refused {
            continue;
        }
        assert!(read == data, "what had begun was read to its end");
        for piece in data[MIB..].chunks(MIB) {
            upload.send(Chunk::from(piece.to_vec())).unwrap();
        }
        upload.end(swiftlet_node::message::encode_footer(&footer(&data)).unwrap()).unwrap();
        let mut status = None;
        while status.is_none() {
            for event in sending.wait(LONG) {
                if let What::Reply { status: told, .. } = event.what {
                    status = Status::of(told);
                }
            }
        }
        if status == Some(Status::Ok) {
            assert!(visit.ask(&grant(), "sent", &get("sent"), b"").2 == data);
            return;
        }
    }
    panic!("no stream had begun while its grant counted");
}

#[test]
fn a_guest_that_dies_in_the_middle_of_a_put_leaves_nothing() {
    let mut pool = None;
    let visit = Visit::with(Carrier::Tcp, Limits::default(), |room| pool = Some(room.pool.clone()));
    let pool = pool.unwrap();
    let signed = grant().sign(&key()).unwrap();
    // One that gets a file of its own, one that is collected in memory.
    for bytes in [6 * MIB, 200 << 10] {
        let (end, peer) = another(&visit, session());
        let events = Completions::new().unwrap();
        let sink = Arc::clone(&events) as Arc<dyn Sink>;
        let upload = begin(&peer, &signed, "o", bytes, &sink);
        for piece in content(1, bytes / 2).chunks(MIB) {
            upload.send(Chunk::from(piece.to_vec())).unwrap();
        }
        let stats = || visit.machine.server.stats()["d0"].clone();
        eventually("it is at work", || stats().requests == 1);
        eventually("a part of it has come", || pool.stat().peak_bytes > 0);
        drop(end);
        eventually("it is over", || stats().requests == 0 && stats().buffered_bytes == 0);
        eventually("its memory is back", || pool.stat().used_bytes == 0);
        eventually("its space is back", || visit.machine.directories[0].large() == 0);
        assert_eq!(visit.by_member(&get("o"), b""), Status::NotFound);
        drop(upload);
    }
    assert_eq!(visit.machine.stores[0].pending_count(), 0, "no row is owed for it");
}

#[test]
fn a_crowd_of_guests_stays_within_its_memory() {
    let crowd: usize = std::env::var("SWIFTLET_GUESTS").map_or(60, |count| count.parse().unwrap());
    let room = crowd * 3 / 4;
    let mut pool = None;
    let visit = Visit::with(Carrier::Tcp, Limits::default(), |guests| {
        guests.max_connections = room;
        pool = Some(guests.pool.clone());
    });
    let pool = pool.unwrap();
    let data = content(1, MIB + 5);
    let events = Completions::new().unwrap();
    let sink = Arc::clone(&events) as Arc<dyn Sink>;
    let signed = |session: &Session| Grant { session: session.id, ..grant() }.sign(&key()).unwrap();
    let (mut ends, mut uploads) = (Vec::new(), Vec::new());
    for number in 0..crowd {
        let mut own = session();
        own.id[..8].copy_from_slice(&(number as u64).to_be_bytes());
        let (end, peer) = another(&visit, own);
        let object = format!("o{number}");
        let request = Request::Put { key: place(&object), meta: meta(&object), footer: None, row: 1 };
        let header = encode(&signed(&own), object.as_bytes(), &request.encode("d0").unwrap()).unwrap();
        let call = Call { method: 1, timeout: LONG, trace: "t".into(), header, ..Call::default() };
        let upload = peer.upload(call, Some(data.len() as u64), &sink, number as u64).unwrap();
        // The last bytes follow later, so that all are under way before any is complete.
        drop(upload.send(Chunk::from(data[..MIB].to_vec())));
        ends.push((end, peer));
        uploads.push(upload);
    }
    eventually("there is no more room", || visit.machine.node.as_ref().unwrap().guests() == room);
    for upload in uploads {
        // To who was refused this says so once more.
        drop(upload.send(Chunk::from(data[MIB..].to_vec())));
        drop(upload.end(swiftlet_node::message::encode_footer(&footer(&data)).unwrap()));
    }
    let (mut stored, mut turned_away, mut busy) = (0, 0, 0);
    while stored + turned_away + busy < crowd {
        for event in events.wait(LONG) {
            match event.what {
                What::Reply { status, .. } if Status::of(status) == Some(Status::Ok) => stored += 1,
                What::Reply { status, .. } if Status::of(status) == Some(Status::NodeBusy) => busy += 1,
                What::Failed(Error::Unreachable(why)) if why.contains("too many connections") => turned_away += 1,
                What::Sent(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!((stored + busy, turned_away), (room, crowd - room));
    assert!(stored > 0);
    let usage = pool.stat();
    assert!(usage.peak_bytes <= usage.limit_bytes && usage.limit_bytes == 8 << 20, "{usage:?}");
    eventually("all memory is back", || pool.stat().used_bytes == 0);
    let members = visit.machine.node.as_ref().unwrap().pool().stat();
    assert_eq!(members.peak_bytes, 0, "guests have used nothing of members");
    assert_eq!(visit.machine.server.stats()["d0"].buffered_bytes, 0);
}

#[test]
fn internal_operations_are_for_members() {
    let visit = Visit::new();
    let entry = Entry {
        digest: place("o").digest,
        kind: EntryKind::Data,
        timestamp: 1,
        meta_timestamp: 0,
        content_type_timestamp: 0,
    };
    let version = Version { timestamp: 5, generation: 6 };
    let (key, meta) = (place("o"), meta("o"));
    let keep = fragments::Request::Keep { key, certain: true, cell_bytes: 64, size: Some(1), meta, row: 0 };
    let references = vec![Reference { digest: [1; 16], timestamp: 5, offset: 0, length: 90 }];
    let table = Table { pack: Pack { version, digest: place("o").digest }, references };
    for request in [
        Request::Remove { key: place("o"), entry },
        Request::Policies,
        Request::Partitions(1),
        Request::Suffixes(1, 0),
        Request::Entries(1, 0, 0),
        Request::Acknowledge(vec![(place("o"), 5)]),
        Request::Revoke { account: b"AUTH_a".to_vec(), container: Vec::new(), before_ms: 1 },
        Request::Fragment(fragments::Request::About { key: place("o"), asked: About::Show }),
        Request::Fragment(fragments::Request::About { key: place("o"), asked: About::Commit(version) }),
        Request::Fragment(fragments::Request::Newest { key: place("o"), below: None, start: 0, stop: 9 }),
        Request::Fragment(fragments::Request::Cells { key: place("o"), version, first: 0, end: 1 }),
        Request::Fragment(fragments::Request::Post { key: place("o"), of: 1, meta: PostMeta::default(), row: 0 }),
        Request::Fragment(fragments::Request::Incarnation),
        Request::Fragment(fragments::Request::Unsettled { policy: 0, after: None }),
        Request::Fragment(keep),
        packs::Request::Prove { key: place("o"), pack: version }.into(),
        packs::Request::Retire { key: place("o"), pack: version }.into(),
        packs::Request::Cold { key: place("o"), before: 9, most_bytes: 9 }.into(),
        packs::Request::Members { key: place("o"), digests: vec![[1; 16]] }.into(),
        packs::Request::References { key: place("o"), digests: vec![[1; 16]] }.into(),
        packs::Request::List { key: place("o") }.into(),
        packs::Request::Piece { key: place("o"), pack: version, start: 0, bytes: 1 }.into(),
        packs::Request::Adopt { key: place("o"), table, checks: vec![7] }.into(),
    ] {
        assert_eq!(visit.status(&grant(), "o", &request, b""), Status::Forbidden, "{request:?}");
        // Without what guests have before it, it is no request of a guest.
        let bare = call(&visit.guest, request.method(), request.encode("d0").unwrap(), b"").unwrap();
        assert!(matches!(bare.0, Status::Unauthorized | Status::WireError), "{request:?}");
    }
    assert_eq!(visit.status(&grant(), "o", &get("o"), b""), Status::NotFound, "and the connection lives");
}

#[test]
fn what_only_proxies_understand_is_not_shown() {
    let visit = Visit::new();
    for (name, change) in [("manifest", 0), ("expiring", 1), ("hidden", 2)] {
        let mut meta = meta(name);
        match change {
            0 => meta.sysmeta = vec![(b"X-Object-Sysmeta-Slo-Etag".to_vec(), b"1".to_vec())],
            1 => meta.delete_at = now_ms() / 1000 + 60,
            _ => meta.metadata = vec![(b"X-Object-Manifest".to_vec(), b"c/p".to_vec())],
        }
        let request = Request::Put { key: place(name), meta, footer: Some(footer(b"data")), row: 0 };
        assert_eq!(visit.by_member(&request, b"data"), Status::Ok);
        let head = Request::Head { key: place(name), proved: false };
        let new = PostMeta { timestamp: at(now_ms()), ..PostMeta::default() };
        let post = Request::Post { key: place(name), meta: new, row: 1, proved: false };
        for request in [get(name), head, post] {
            assert_eq!(visit.status(&grant(), name, &request, b""), Status::NotPlain, "{name} {request:?}");
        }
    }
}

#[test]
fn an_epoch_ends_what_was_granted_before() {
    let visit = Visit::new();
    let old = grant().sign(&key()).unwrap();
    let ask = |signed: &[u8]| visit.ask_by(signed, "o", &get("o"), b"").0;
    assert_eq!(ask(&old), Status::NotFound);
    let revoke = |account: &str, container: &str| {
        let (account, container) = (account.as_bytes().to_vec(), container.as_bytes().to_vec());
        let request = Request::Revoke { account, container, before_ms: now_ms() };
        call(&visit.member, request.method(), request.encode("").unwrap(), b"").unwrap().0
    };
    assert_eq!((revoke("AUTH_b", ""), revoke("AUTH_a", "d")), (Status::Ok, Status::Ok));
    assert_eq!(ask(&old), Status::NotFound, "they are for others");
    let new = Grant { issued_ms: now_ms() + 1000, ..grant() };
    assert_eq!(revoke("AUTH_a", "c"), Status::Ok);
    assert_eq!(ask(&old), Status::Unauthorized);
    assert_eq!(visit.status(&new, "o", &get("o"), b""), Status::NotFound, "what is granted after it counts");
    let elsewhere = Grant { container: "d".to_owned(), issued_ms: now_ms() + 1000, ..grant() };
    assert_eq!(visit.status(&elsewhere, "o", &get("o"), b""), Status::Forbidden, "it counts, and is for other objects");
    assert_eq!(revoke("AUTH_a", ""), Status::Ok);
    assert_eq!(visit.status(&new, "o", &get("o"), b""), Status::NotFound);
    let before = Grant { issued_ms: now_ms() - 5000, ..grant() };
    assert_eq!(ask(&before.sign(&key()).unwrap()), Status::Unauthorized);
}

#[test]
fn a_key_that_is_removed_takes_its_grants_with_it() {
    let visit = Visit::new();
    let ask = || visit.status(&grant(), "o", &get("o"), b"");
    assert_eq!(ask(), Status::NotFound);
    visit.known.set_keys(vec![ClusterKey::new(b"next"), key()]);
    assert_eq!(ask(), Status::NotFound, "it is still in use");
    visit.known.set_keys(vec![ClusterKey::new(b"next")]);
    assert_eq!(ask(), Status::Unauthorized, "on the open connection as well");
}

#[test]
fn a_slice_of_a_quota_is_all_that_a_grant_stores() {
    let visit = Visit::new();
    let sliced = Grant { slice_objects: 3, slice_bytes: 10, ..grant() };
    let store = |name: &str, data: &[u8]| visit.status(&sliced, name, &put(name, data), data);
    assert_eq!(store("a", b"12345"), Status::Ok);
    assert_eq!(store("b", b"123456"), Status::Forbidden, "too many bytes");
    assert_eq!(store("c", b"12345"), Status::Ok);
    assert_eq!(store("d", b""), Status::Ok);
    assert_eq!(store("e", b""), Status::Forbidden, "too many objects");
    assert_eq!(visit.status(&grant(), "e", &put("e", b""), b""), Status::Ok, "another grant has its own");
}

#[test]
fn guests_leave_members_their_part() {
    // One request of guests at a time on the device, of four.
    let visit = Visit::with(Carrier::Tcp, Limits { max_requests: 4, ..Limits::default() }, |_| ());
    let request = Request::Put { key: place("o"), meta: meta("o"), footer: None, row: 1 };
    let signed = grant().sign(&key()).unwrap();
    let header = encode(&signed, b"o", &request.encode("d0").unwrap()).unwrap();
    let events = Completions::new().unwrap();
    let sink = Arc::clone(&events) as Arc<dyn Sink>;
    let call = Call { method: 1, timeout: LONG, trace: "t".into(), header, ..Call::default() };
    let upload = visit.guest.upload(call, Some(MIB as u64), &sink, 1).unwrap();
    eventually("it is at work", || visit.machine.server.stats()["d0"].requests == 1);
    assert_eq!(visit.status(&grant(), "p", &put("p", b""), b""), Status::NodeBusy);
    assert_eq!(visit.by_member(&get("o"), b""), Status::NotFound, "members are served");
    upload.ticket().cancel();
    eventually("it is over", || visit.machine.server.stats()["d0"].requests == 0);
    assert_eq!(visit.status(&grant(), "p", &put("p", b""), b""), Status::Ok);
}

#[test]
fn guests_have_connections_of_their_own() {
    let visit = Visit::with(Carrier::Tcp, Limits::default(), |room| room.max_connections = 1);
    assert_eq!(visit.status(&grant(), "o", &get("o"), b""), Status::NotFound);
    let node = visit.machine.node.as_ref().unwrap();
    assert_eq!(node.guests(), 1);
    let second = Node::start(config("second"), &[Arc::new(TcpFabric) as Arc<dyn Fabric>], None).unwrap();
    second.set_session(session(), session().secret(&key()));
    let peer = second.peer(visit.world.address(&visit.member));
    let refused = call(&peer, 2, Vec::new(), b"");
    assert!(matches!(&refused, Err(Error::Unreachable(why)) if why.contains("too many connections")), "{refused:?}");
    assert_eq!(visit.by_member(&get("o"), b""), Status::NotFound);
    let names: Vec<String> = node.report().into_iter().map(|row| row.name).collect();
    assert!(names.contains(&"guests".to_owned()) && !names.contains(&"somebody".to_owned()), "{names:?}");
}

#[test]
fn without_room_for_guests_none_is_let_in() {
    let world = World::new(Carrier::Tcp);
    let (_machine, targets) = world.machine(1, Limits::default());
    let end = Node::start(config("somebody"), &[Arc::new(TcpFabric) as Arc<dyn Fabric>], None).unwrap();
    end.set_session(session(), session().secret(&key()));
    let refused = call(&end.peer(world.address(&targets[0].0)), 2, Vec::new(), b"");
    assert!(matches!(&refused, Err(Error::Unreachable(why)) if why.contains("guests are not let in")), "{refused:?}");
}

#[test]
fn a_guest_that_opens_too_much_is_stopped_and_nobody_else() {
    let visit = Visit::with(Carrier::Tcp, Limits::default(), |room| room.max_streams = 4);
    let events = Completions::new().unwrap();
    let sink = Arc::clone(&events) as Arc<dyn Sink>;
    let signed = grant().sign(&key()).unwrap();
    let header = encode(&signed, b"o", &get("o").encode("d0").unwrap()).unwrap();
    // The client's end keeps to the limit that it is told: all are answered, a few at a time.
    for token in 0..200 {
        let timeout = Duration::from_secs(60);
        let call = Call { method: 2, timeout, trace: "t".into(), header: header.clone(), ..Call::default() };
        drop(visit.guest.call(call, &sink, token).unwrap());
    }
    let mut answered = 0;
    while answered < 200 {
        answered += events.wait(LONG).into_iter().filter(|event| matches!(event.what, What::Reply { .. })).count();
    }
    assert_eq!(visit.by_member(&get("o"), b""), Status::NotFound);
}

/// A GET of an object of at most so many bytes.
fn get_up_to(object: &str, whole: u64) -> Request {
    Request::Get { key: place(object), start: 0, stop: 0, whole, proved: false }
}

#[test]
fn many_requests_in_one_message_are_answered_one_by_one() {
    let visit = Visit::new();
    let names: Vec<String> = (0..64).map(|number| format!("o{number}")).collect();
    let data: Vec<Vec<u8>> = (0..64).map(|number| content(number, 10_240 + number as usize)).collect();
    let puts: Vec<_> =
        names.iter().zip(&data).map(|(name, data)| (name.as_str(), put(name, data), data.as_slice())).collect();
    let batches = || visit.machine.stores[0].counters().batches.load(std::sync::atomic::Ordering::Relaxed);
    let before = batches();
    let (status, answers) = visit.ask_many(&grant(), &puts);
    assert_eq!((status, answers.len()), (Status::Ok, 64));
    let written = Written { pending: true, existed: true }.encode();
    assert!(answers.iter().all(|(status, header, _)| (*status, header) == (Status::Ok, &written)));
    assert_eq!(batches() - before, 1, "they share a commit");

    let mut asked: Vec<(&str, Request, &[u8])> =
        names.iter().map(|name| (name.as_str(), get_up_to(name, 100_000), &b""[..])).collect();
    asked.push(("none", get_up_to("none", 100_000), b""));
    asked.push(("o1", get_up_to("o1", 10_240), b""));
    asked.push(("o2", Request::Head { key: place("o2"), proved: false }, b""));
    let (status, answers) = visit.ask_many(&grant(), &asked);
    assert_eq!(status, Status::Ok);
    for (at, data) in data.iter().enumerate() {
        let (status, header, body) = &answers[at];
        let found = Found::decode(header).unwrap();
        assert_eq!((*status, found.body_xxh3), (Status::Ok, Some(swiftlet_hash::xxh3_64(data))));
        assert!(body == data);
    }
    assert_eq!(answers[64].0, Status::NotFound);
    for (at, size) in [(65, 10_241), (66, 10_242)] {
        let (status, header, body) = &answers[at];
        let size_told = Found::decode(header).unwrap().info.size;
        assert_eq!((*status, size_told, body.len()), (Status::Ok, size, 0), "described alone");
    }

    let deletions: Vec<_> = ["o3", "none"].iter().map(|name| (*name, delete(name), &b""[..])).collect();
    let (_, answers) = visit.ask_many(&grant(), &deletions);
    let existed = |at: usize| Written::decode(&answers[at].1).unwrap().existed;
    assert_eq!((existed(0), existed(1)), (true, false));
    assert_eq!(visit.status(&grant(), "o3", &get("o3"), b""), Status::NotFound);
}

#[test]
fn a_grant_covers_each_of_many_requests() {
    let visit = Visit::new();
    let reading = Grant { operations: Operations::GET, ..grant() };
    let narrow = Grant { scope: Scope::Prefix("a/".to_owned()), ..grant() };
    let small = Grant { slice_objects: 1, ..grant() };
    let data = content(1, 1000);
    for (grant, expected) in [
        (grant(), [Status::Ok, Status::Ok, Status::Forbidden, Status::WireError, Status::Forbidden]),
        (reading, [Status::Forbidden, Status::Forbidden, Status::Forbidden, Status::Forbidden, Status::Forbidden]),
        (narrow, [Status::Forbidden, Status::Ok, Status::Forbidden, Status::Forbidden, Status::Forbidden]),
        (small, [Status::Ok, Status::Forbidden, Status::Forbidden, Status::WireError, Status::Forbidden]),
    ] {
        let all = [
            ("b", put("b", &data), &data[..]),
            ("a/b", put("a/b", &data), &data[..]),
            ("b", put("c", &data), &data[..]),
            (
                "b",
                Request::Post {
                    key: place("b"),
                    meta: PostMeta { timestamp: at(now_ms()), ..PostMeta::default() },
                    row: 1,
                    proved: false,
                },
                &b""[..],
            ),
            ("b", Request::Policies, &b""[..]),
        ];
        let (status, answers) = visit.ask_many(&grant, &all);
        assert_eq!(status, Status::Ok);
        assert_eq!(answers.iter().map(|one| one.0).collect::<Vec<_>>(), expected, "{grant:?}");
    }
    let wrong = content(2, 1000);
    let all = [("b", put("b", &data), &wrong[..]), ("b", put("b", &data), &data[..10]), ("b", get("b"), &b"x"[..])];
    let (_, answers) = visit.ask_many(&grant(), &all);
    let statuses: Vec<_> = answers.iter().map(|one| one.0).collect();
    assert_eq!(statuses, [Status::ChecksumMismatch, Status::Forbidden, Status::WireError]);
    let ended = Grant { issued_ms: now_ms() - 2000, ends_ms: now_ms() - 1000, ..grant() };
    assert_eq!(visit.ask_many(&ended, &[("b", get("b"), b"")]).0, Status::Unauthorized, "the whole message");
}

#[test]
fn many_requests_have_limits() {
    let visit = Visit::new();
    let many = |count: u16, body: &[u8]| visit.status(&grant(), "", &Request::Many(count), body);
    let mut one = Vec::new();
    many::push(&mut one, b"o", &get("o"), b"").unwrap();
    assert_eq!(many(1, &one), Status::Ok);
    for (count, body) in
        [(0, &b""[..]), (2, &one[..]), (1, &one[1..]), (1, &b""[..]), (1, &[&one[..], &[0]].concat()[..])]
    {
        assert_eq!(many(count, body), Status::WireError, "{count}");
    }
    assert_eq!(many(MAX_MANY as u16 + 1, &one.repeat(MAX_MANY + 1)), Status::WireError);
    assert_eq!(many(MAX_MANY as u16, &one.repeat(MAX_MANY)), Status::Ok);
    assert_eq!(many(1, &vec![0; MAX_MANY_BYTES + 1]), Status::WireError);
    assert_eq!(many(1, &vec![0; MAX_MANY_BYTES]), Status::WireError, "no requests");
    assert_eq!(visit.status(&grant(), "o", &Request::Many(1), &one), Status::Forbidden, "a name of its own");

    let large = content(1, MIB);
    assert_eq!(visit.status(&grant(), "large", &put("large", &large), &large), Status::Ok);
    let all: Vec<_> = (0..8).map(|_| ("large", get_up_to("large", 2 << 20), &b""[..])).collect();
    let (_, answers) = visit.ask_many(&grant(), &all);
    let whole = answers.iter().filter(|(status, _, body)| *status == Status::Ok && body.len() == MIB).count();
    let described = answers.iter().filter(|(status, _, body)| *status == Status::Ok && body.is_empty()).count();
    assert_eq!((whole, described), (MAX_MANY_ANSWER_BYTES / MIB - 1, 8 + 1 - MAX_MANY_ANSWER_BYTES / MIB));
    eventually("all bytes are given back", || visit.machine.server.stats()["d0"].buffered_bytes == 0);
}

#[test]
fn members_send_many_requests_too() {
    let visit = Visit::new();
    let mut body = Vec::new();
    let data = content(1, 70_000);
    many::push(&mut body, b"", &put("o", &data), &data).unwrap();
    many::push(&mut body, b"", &Request::Policies, b"").unwrap();
    let request = Request::Many(2);
    let (status, _, answers) = call(&visit.member, request.method(), request.encode("d0").unwrap(), &body).unwrap();
    let statuses: Vec<_> = many::answers(2, &answers).unwrap().iter().map(|one| one.status).collect();
    assert_eq!((status, statuses), (Status::Ok, vec![Status::Ok as u16, Status::WireError as u16]));
    assert_eq!(visit.by_member(&get("o"), b""), Status::Ok);
}
