//! What only RDMA does: bodies are fetched and not sent; where that does not work they are sent after all; and where it
//! works no more, that is noticed. The other process is this test program itself, started anew.

#![cfg(feature = "ucx")]
#![allow(unreachable_pub, clippy::unwrap_used, reason = "tests")]

#[path = "../../transport/tests/common/mod.rs"]
mod common;
mod ucx;

use std::io::{self, BufRead as _, BufReader, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use common::{Client, ECHO, GET, HOLD, PUT, Seen, Server, brief, call, eventually, get_header, pattern};
use swiftlet_transport::{
    Acceptor, Address, Buffer, Call, Carrier, Completions, Error, Fabric, Fetched, Link, Met, Node, Peer, PeerSnapshot,
    TcpAcceptor, TcpFabric,
};
use swiftlet_transport_ucx::{Engine, Settings, UcxAcceptor, UcxFabric};
use ucx::{engine, settings};

const ROLE: &str = "SWIFTLET_TEST_ROLE";
const BYTES: usize = 5 << 20;
const POOL_BYTES: usize = 32 << 20;

fn start_client(fabric: impl FnOnce(&swiftlet_transport::Pool) -> Arc<dyn Fabric>) -> Client {
    let config = brief("client", POOL_BYTES);
    let fabric = fabric(&config.pool);
    let node = Node::start(config, &[fabric], None).unwrap();
    Client { node, events: Completions::new().unwrap(), early: Default::default(), next: Default::default() }
}

fn start_server(acceptor: impl FnOnce(&Node, TcpAcceptor) -> Box<dyn Acceptor>) -> (Node, Arc<Seen>, Address) {
    let server = Server::new();
    let seen = Arc::clone(&server.seen);
    let node = Node::start(brief("server", POOL_BYTES), &[], Some(Arc::new(server))).unwrap();
    let listener = TcpAcceptor::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let tcp = Some(listener.address().unwrap());
    node.listen(acceptor(&node, listener));
    (node, seen, Address { name: "server".to_owned(), tcp })
}

fn counters(node: &Node) -> PeerSnapshot {
    node.report()[0].counters.clone()
}

fn put(client: &Client, peer: &Peer) {
    let token = client.token();
    let upload = peer.upload(call(PUT), Some(BYTES as u64), &client.sink(), token).unwrap();
    let body = pattern(0, BYTES);
    for piece in body.chunks(1 << 20) {
        let mut buffer = client.buffer(piece.len());
        buffer.as_mut_slice().copy_from_slice(piece);
        upload.send(buffer.freeze(piece.len())).unwrap();
    }
    upload.end(swiftlet_hash::xxh3_64(&body).to_be_bytes().to_vec()).unwrap();
    let outcome = client.finish(token);
    assert_eq!((outcome.status, outcome.error), (201, None));
}

fn get(client: &Client, peer: &Peer) {
    let outcome = client.ask(peer, Call { header: get_header(1, 3, 3 << 20), ..call(GET) });
    assert_eq!((outcome.status, outcome.error, outcome.footer), (206, None, b"footer".to_vec()));
    assert!(outcome.body == pattern(3, 3 << 20));
}

#[test]
fn bodies_are_fetched_by_who_receives_them_and_not_sent() {
    let client = start_client(|pool| Arc::new(UcxFabric::new(&engine(pool))));
    let (server, _, address) = start_server(|node, tcp| Box::new(UcxAcceptor::new(tcp, &engine(node.pool()))));
    let peer = client.node.peer(address);
    eventually("both know that the other can fetch", || {
        put(&client, &peer);
        get(&client, &peer);
        counters(&client.node).lent_bytes > 0 && counters(&server).lent_bytes > 0
    });
    let before = (counters(&client.node), counters(&server));
    put(&client, &peer);
    get(&client, &peer);
    let after = (counters(&client.node), counters(&server));
    assert_eq!(after.1.fetched_bytes - before.1.fetched_bytes, BYTES as u64);
    assert_eq!(after.0.fetched_bytes - before.0.fetched_bytes, 3 << 20);
    assert!(after.0.sent_bytes - before.0.sent_bytes < 10_000, "{before:?} {after:?}");
    assert!(after.0.received_bytes - before.0.received_bytes < 10_000, "{before:?} {after:?}");
    assert_eq!((after.0.carrier, after.0.fallbacks), (Some(Carrier::Rdma), 0));
    for node in [&client.node, &server] {
        eventually("all memory comes back", || node.pool().stat().used_bytes == 0);
    }
}

#[test]
fn with_a_peer_that_has_no_rdma_bodies_are_sent() {
    let client = start_client(|pool| Arc::new(UcxFabric::new(&engine(pool))));
    let (server, _, address) = start_server(|_, tcp| Box::new(tcp));
    let peer = client.node.peer(address);
    put(&client, &peer);
    get(&client, &peer);
    let (ours, theirs) = (counters(&client.node), counters(&server));
    assert_eq!((ours.carrier, ours.fallbacks, ours.lent_bytes), (Some(Carrier::Tcp), 0, 0));
    assert_eq!((theirs.carrier, theirs.fallbacks, theirs.lent_bytes), (Some(Carrier::Tcp), 0, 0));

    let client = start_client(|_| Arc::new(TcpFabric));
    let (server, _, address) = start_server(|node, tcp| Box::new(UcxAcceptor::new(tcp, &engine(node.pool()))));
    let peer = client.node.peer(address);
    put(&client, &peer);
    get(&client, &peer);
    assert_eq!((counters(&server).carrier, counters(&server).lent_bytes), (Some(Carrier::Tcp), 0));
}

/// Shows a card by which one can't fetch from it.
struct Unreachable(Box<dyn Link>, Vec<u8>);

impl Unreachable {
    fn new(link: Box<dyn Link>) -> Self {
        // The proof: as if the address led to another process, as it may where networks share addresses.
        let mut card = link.card().unwrap().to_vec();
        card[20] ^= 1;
        Self(link, card)
    }
}

impl Link for Unreachable {
    fn carrier(&self) -> Carrier {
        self.0.carrier()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.descriptor()
    }

    fn connected(&mut self) -> io::Result<()> {
        self.0.connected()
    }

    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.read(into)
    }

    fn write(&mut self, from: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        self.0.write(from, more)
    }

    fn write_file(&mut self, file: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<usize> {
        self.0.write_file(file, offset, bytes)
    }

    fn lends(&self) -> bool {
        true
    }

    fn card(&self) -> Option<&[u8]> {
        Some(&self.1)
    }

    fn meet(&mut self, card: &[u8], then: Met) {
        self.0.meet(card, then);
    }

    fn fetch(&mut self, address: u64, into: Buffer, then: Fetched) {
        self.0.fetch(address, into, then);
    }
}

struct UnreachableFabric(UcxFabric);

impl Fabric for UnreachableFabric {
    fn carrier(&self) -> Carrier {
        Carrier::Rdma
    }

    fn connect(&self, peer: &Address) -> io::Result<Option<Box<dyn Link>>> {
        Ok(self.0.connect(peer)?.map(|link| Box::new(Unreachable::new(link)) as Box<dyn Link>))
    }
}

#[test]
fn who_can_not_be_fetched_from_sends_and_that_is_counted() {
    let client = start_client(|pool| Arc::new(UnreachableFabric(UcxFabric::new(&engine(pool)))));
    let (server, _, address) = start_server(|node, tcp| Box::new(UcxAcceptor::new(tcp, &engine(node.pool()))));
    let peer = client.node.peer(address);
    put(&client, &peer);
    eventually("the server has found out", || counters(&server).fallbacks == 1);
    eventually("the client can fetch all the same", || counters(&client.node).carrier == Some(Carrier::Rdma));
    put(&client, &peer);
    eventually("what the server has is fetched", || {
        get(&client, &peer);
        counters(&server).lent_bytes > 0
    });
    assert_eq!((counters(&client.node).lent_bytes, counters(&server).fetched_bytes), (0, 0));
    assert_eq!(counters(&client.node).connects, 1);
}

/// Uploads for ever, unless it was not started by [`start`].
#[test]
fn the_other_process() {
    let Ok(place) = std::env::var(ROLE) else { return };
    let tcp: SocketAddr = place.parse().unwrap();
    let client = start_client(|pool| Arc::new(UcxFabric::new(&engine(pool))));
    let peer = client.node.peer(Address { name: "server".to_owned(), tcp: Some(tcp) });
    eventually("what it has is fetched", || {
        put(&client, &peer);
        counters(&client.node).lent_bytes > 0
    });
    let token = client.token();
    let upload = peer.upload(call(HOLD), None, &client.sink(), token).unwrap();
    println!("at: {place}");
    loop {
        let chunk = client.buffer(1 << 20).freeze(1 << 20);
        while let Err(_full) = upload.send(chunk.clone()) {
            client.pump(Duration::from_millis(1));
        }
    }
}

fn begin(place: SocketAddr) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["the_other_process", "--exact", "--nocapture"])
        .env(ROLE, place.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn start(place: SocketAddr) -> Child {
    let mut child = begin(place);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("at: ")), "the other process does not begin");
    child
}

fn signalled(signal: &str) {
    // A fetch that does not end is to be noticed before the peer's silence is, where the kernel does not answer for it.
    let settings = Settings { stalled: Duration::from_millis(700), ..settings() };
    let (server, seen, address) =
        start_server(|node, tcp| Box::new(UcxAcceptor::new(tcp, &Engine::start(settings, node.pool()).unwrap())));
    let mut other = start(address.tcp.unwrap());
    eventually("in the middle of it", || {
        seen.chunks.lock().unwrap().clear();
        counters(&server).fetched_bytes > 20 << 20
    });
    let begun = Instant::now();
    let done = Command::new("kill").args([signal, &other.id().to_string()]).status().unwrap();
    assert!(done.success());
    eventually("the receiver is told", || {
        seen.chunks.lock().unwrap().clear();
        seen.failed.lock().unwrap().len() == 1
    });
    assert!(begun.elapsed() < Duration::from_millis(2500), "{:?}", begun.elapsed());
    let failed = seen.failed.lock().unwrap().clone();
    assert!(matches!(&failed[..], [Error::Lost(_)]), "{failed:?}");
    other.kill().unwrap();
    other.wait().unwrap();
    seen.chunks.lock().unwrap().clear();
    eventually("all memory comes back", || server.pool().stat().used_bytes == 0);

    let client = start_client(|pool| Arc::new(UcxFabric::new(&engine(pool))));
    let peer = client.node.peer(address);
    put(&client, &peer);
    assert_eq!(client.ask(&peer, call(ECHO)).status, 200);
    assert!(seen.ended.load(SeqCst) >= 1);
}

/// How often a peer is killed by the next test.
fn kills() -> u64 {
    std::env::var("SWIFTLET_RDMA_KILLS").map_or(6, |kills| kills.parse().unwrap())
}

/// Of all clients together: requests, and bytes that were fetched from them.
fn asked_and_fetched(server: &Node) -> (u64, u64) {
    let report = server.report();
    let sum = |of: fn(&PeerSnapshot) -> u64| report.iter().map(|peer| of(&peer.counters)).sum();
    (sum(|counters| counters.requests), sum(|counters| counters.fetched_bytes))
}

#[test]
fn peers_that_are_killed_again_and_again_harm_nobody_else() {
    let (server, seen, address) = start_server(|node, tcp| Box::new(UcxAcceptor::new(tcp, &engine(node.pool()))));
    let other = start_client(|pool| Arc::new(UcxFabric::new(&engine(pool))));
    let peer = other.node.peer(address.clone());
    for round in 0..kills() {
        let (asked, fetched) = asked_and_fetched(&server);
        let mut child = begin(address.tcp.unwrap());
        eventually("it is where it is to be killed", || {
            seen.chunks.lock().unwrap().clear();
            let now = asked_and_fetched(&server);
            match round % 3 {
                // While devices are being connected; after the first fetch; in the middle of a body.
                0 => now.0 > asked,
                1 => now.1 > fetched,
                _ => now.1 > fetched + (10 << 20),
            }
        });
        child.kill().unwrap();
        child.wait().unwrap();
        put(&other, &peer);
        get(&other, &peer);
    }
    seen.chunks.lock().unwrap().clear();
    eventually("all memory comes back", || {
        seen.chunks.lock().unwrap().clear();
        server.pool().stat().used_bytes == 0
    });
}

#[test]
fn a_process_that_is_killed_is_noticed_and_leaves_no_memory_behind() {
    signalled("-KILL");
}

#[test]
fn a_process_that_stops_is_noticed_and_leaves_no_memory_behind() {
    signalled("-STOP");
}
