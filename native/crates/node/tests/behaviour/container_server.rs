//! UPDATE and DURABLE over TCP and the simulated network: what is taken, what is refused and why.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::common::{LONG, World, config, disk, eventually};
use swiftlet_node::message::updates::{AskDurable, DURABLE, MAX_BATCH_BYTES, Row, Taken, UPDATE, Update, decode_taken};
use swiftlet_node::{ContainerServer, Refusal, Status};
use swiftlet_store::disk::{Disk, Faults, SimulatedDisk};
use swiftlet_transport::{
    Address, Body, Call, Carrier, Chunk, Completions, Handler, Node, Peer, Sink, TcpAcceptor, What,
};
use swiftlet_updates::{Config, Database, Updates};

macro_rules! over_each_carrier {
    ($($test:ident),* $(,)?) => {
        mod tcp { $(#[test] fn $test() { super::$test(&super::World::new(super::Carrier::Tcp)); })* }
        mod simulated { $(#[test] fn $test() { super::$test(&super::World::new(super::Carrier::Simulated)); })* }
    };
}

over_each_carrier!(
    rows_of_open_containers_are_taken_and_become_durable,
    others_are_refused_and_nothing_has_happened,
    garbage_is_refused_and_the_connection_lives,
    a_body_that_is_cut_leaves_nothing,
    a_failed_sync_is_told,
);

/// A container server with device `d0`, and a client's end.
struct Server {
    updates: Arc<Updates>,
    disk: Arc<SimulatedDisk>,
    peer: Peer,
    events: Arc<Completions>,
    next: AtomicU64,
    _node: Node,
}

type Answer = Result<Vec<u8>, Refusal>;

impl Server {
    fn new(world: &World) -> Self {
        let disk = disk(1);
        let updates = Arc::new(Updates::open_disk(Arc::clone(&disk) as Arc<dyn Disk>, Config::default()).unwrap());
        let broken = Err("it is not mounted".to_owned());
        let devices = HashMap::from([("d0".to_owned(), Ok(Arc::clone(&updates))), ("broken".to_owned(), broken)]);
        let handler = Arc::new(ContainerServer::new(devices)) as Arc<dyn Handler>;
        let name = format!("containers-{}", crate::common::unique());
        let node = Node::start(config(&name), &[], Some(handler)).unwrap();
        let tcp = if world.carrier == Carrier::Simulated {
            node.listen(world.network.listen(&name).unwrap());
            None
        } else {
            let acceptor = TcpAcceptor::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let address = acceptor.address().unwrap();
            node.listen(Box::new(acceptor));
            Some(address)
        };
        let peer = world.node.peer(Address { name, tcp });
        let events = Completions::new().unwrap();
        Self { updates, disk, peer, events, next: AtomicU64::new(1), _node: node }
    }

    fn open(&self) {
        self.updates.open_database(Database::new(7, "a", "c"));
    }

    /// Names in the table.
    fn names(&self) -> Vec<String> {
        let database = Database::new(7, "a", "c");
        let rows = self.updates.take_out(&database).unwrap();
        let names = rows.iter().flat_map(|rows| rows.iter().map(|row| row.name.to_owned())).collect();
        self.updates.folded(&database, false);
        names
    }

    fn sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.events) as Arc<dyn Sink>
    }

    fn call(&self, method: u16, header: Vec<u8>, body: Body) -> Answer {
        let call = Call { method, timeout: LONG, header, body, ..Call::default() };
        let token = self.next.fetch_add(1, Relaxed);
        self.peer.call(call, &self.sink(), token).unwrap();
        self.answer(token)
    }

    fn answer(&self, token: u64) -> Answer {
        loop {
            for event in self.events.wait(LONG) {
                match event.what {
                    _ if event.token != token => {}
                    What::Reply { status: 0, header, .. } => return Ok(header),
                    What::Reply { status, header, .. } => return Err(Refusal::decode(status, &header)),
                    What::Failed(error) => panic!("{error}"),
                    _ => {}
                }
            }
        }
    }

    fn update(&self, device: &str, rows: Vec<u8>) -> Result<Taken, Refusal> {
        let answer = self.call(UPDATE, header(device), Body::Chunk(Chunk::from(rows)))?;
        Ok(decode_taken(&answer).unwrap())
    }

    fn durable(&self, taken: Taken) -> Answer {
        self.call(DURABLE, AskDurable { device: "d0".to_owned(), taken }.encode().unwrap(), Body::Empty)
    }
}

fn header(device: &str) -> Vec<u8> {
    let (device, account, container) = (device.to_owned(), "a".to_owned(), "c".to_owned());
    Update { device, partition: 7, account, container }.encode().unwrap()
}

fn rows(count: usize, name_bytes: usize) -> Vec<u8> {
    let mut raw = Vec::new();
    for number in 0..count {
        let name = format!("{number:0name_bytes$}");
        let row = Row { name: &name, timestamp: 1, size: 5, etag: "e", content_type: "t", deleted: false };
        row.encode(&mut raw).unwrap();
    }
    raw
}

fn status<T: std::fmt::Debug>(answer: &Result<T, Refusal>) -> Status {
    answer.as_ref().map_or_else(|refusal| refusal.status, |_| Status::Ok)
}

fn rows_of_open_containers_are_taken_and_become_durable(world: &World) {
    let server = Server::new(world);
    server.open();
    // Within the request, and in chunks.
    for (count, name_bytes) in [(1, 3), (1000, 9), (900, 1000)] {
        let raw = rows(count, name_bytes);
        assert!(raw.len() <= MAX_BATCH_BYTES);
        let taken = server.update("d0", raw).unwrap();
        assert_eq!(server.durable(taken), Ok(Vec::new()));
    }
    assert_eq!(server.names().len(), 1901);
}

fn others_are_refused_and_nothing_has_happened(world: &World) {
    let server = Server::new(world);
    let refused = server.update("d0", rows(1, 1));
    assert_eq!(status(&refused), Status::NotTaken, "{refused:?}");
    server.open();
    for device in ["broken", "d1"] {
        assert_eq!(status(&server.update(device, rows(1, 1))), Status::DeviceFailed);
    }
    let taken = server.update("d0", rows(1, 1)).unwrap();
    assert_eq!(status(&server.durable(Taken { incarnation: taken.incarnation ^ 1, ..taken })), Status::NotTaken);
    server.updates.close_all("the device is full");
    let refused = server.update("d0", rows(2, 1)).unwrap_err();
    assert!(refused.status == Status::NotTaken && refused.text.contains("the device is full"), "{refused}");
    assert_eq!(server.names(), ["0"]);
}

fn garbage_is_refused_and_the_connection_lives(world: &World) {
    let server = Server::new(world);
    server.open();
    let bad = |method, header: Vec<u8>, body: Vec<u8>| {
        let body = if body.is_empty() { Body::Empty } else { Body::Chunk(Chunk::from(body)) };
        status(&server.call(method, header, body))
    };
    assert_eq!(bad(UPDATE, header("d0"), Vec::new()), Status::WireError, "without rows");
    assert_eq!(bad(UPDATE, header("d0"), vec![7; 9]), Status::WireError);
    assert_eq!(bad(UPDATE, header("d0"), vec![7; 200_000]), Status::WireError, "in chunks");
    assert_eq!(bad(UPDATE, header("d0"), rows(1, 0x10_000 - 1)[..100].to_vec()), Status::WireError);
    assert_eq!(bad(UPDATE, header("d0")[..5].to_vec(), rows(1, 1)), Status::WireError);
    assert_eq!(bad(UPDATE, header("d0"), rows(1001, 1)), Status::WireError, "too many rows");
    assert_eq!(bad(UPDATE, header("d0"), vec![0; MAX_BATCH_BYTES + 1]), Status::WireError, "too many bytes");
    assert_eq!(bad(DURABLE, vec![0; 3], Vec::new()), Status::WireError);
    assert_eq!(bad(DURABLE, header("d0"), vec![1]), Status::WireError, "a body");
    assert_eq!(bad(7, header("d0"), Vec::new()), Status::WireError, "a method of object servers");
    let mut unnamed = rows(1, 1);
    unnamed[2] = 0xff;
    assert_eq!(bad(UPDATE, header("d0"), unnamed), Status::InvalidName);
    assert!(server.names().is_empty());
    server.update("d0", rows(1, 1)).unwrap();
    assert_eq!(server.peer.metrics().snapshot().connects, 1);
}

fn a_body_that_is_cut_leaves_nothing(world: &World) {
    let server = Server::new(world);
    server.open();
    let raw = rows(1000, 100);
    for bytes in [None, Some(raw.len() as u64)] {
        let call = Call { method: UPDATE, timeout: LONG, header: header("d0"), ..Call::default() };
        let upload = server.peer.upload(call, bytes, &server.sink(), 0).unwrap();
        upload.send(Chunk::from(raw[..70_000].to_vec())).unwrap();
        upload.ticket().cancel();
    }
    // A body of unknown size is limited as well.
    let call = Call { method: UPDATE, timeout: LONG, header: header("d0"), ..Call::default() };
    let upload = server.peer.upload(call, None, &server.sink(), 1 << 32).unwrap();
    (0..3).for_each(|_| upload.send(Chunk::from(vec![0; 400_000])).unwrap());
    assert_eq!(status(&server.answer(1 << 32)), Status::WireError);
    let call = Call { method: UPDATE, timeout: LONG, header: header("d0"), ..Call::default() };
    let upload = server.peer.upload(call, None, &server.sink(), 2 << 32).unwrap();
    upload.send(Chunk::from(raw[..70_000].to_vec())).unwrap();
    upload.send(Chunk::from(raw[70_000..].to_vec())).unwrap();
    assert!(server.updates.status().taken == 0, "it is not complete");
    upload.end(Vec::new()).unwrap();
    assert_eq!(status(&server.answer(2 << 32)), Status::Ok);
    assert_eq!(server.updates.status().taken, 1000);
}

fn a_failed_sync_is_told(world: &World) {
    let server = Server::new(world);
    server.open();
    server.disk.set_faults(Faults { fail_after: Some(3), ..Faults::default() });
    let taken = server.update("d0", rows(1, 1)).unwrap();
    assert_eq!(status(&server.durable(taken)), Status::DeviceFailed);
    eventually("it is closed", || server.updates.status().open == 0);
    assert_eq!(status(&server.update("d0", rows(1, 1))), Status::DeviceFailed);
}
