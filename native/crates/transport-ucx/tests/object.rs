//! An object server and a client in two processes, each with RDMA: what is put is fetched from the client's pool, written
//! by the native store, read by it, and fetched by the client. The two may be on two machines:
//!
//! - `SWIFTLET_OBJECT_LISTEN=ADDRESS:PORT` lets the test `the_object_server` be one, until the file
//!   `SWIFTLET_OBJECT_STOP` is there;
//! - `SWIFTLET_OBJECT_SERVER=ADDRESS:PORT` lets the other tests ask it instead of one that they start themselves;
//! - `SWIFTLET_OBJECT_CUT` is the file by which `when_rdma_is_lost_objects_are_sent` asks for RDMA to be cut off, which
//!   has been done when the same with `.done` is there.

#![cfg(feature = "ucx")]
#![allow(unreachable_pub, clippy::unwrap_used, reason = "tests")]

#[path = "../../node/tests/behaviour/common/mod.rs"]
mod common;
mod ucx;

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Directory, LONG, MIB, config, content, footer, get, put, store_config};
use swiftlet_node::{Client, Failure, Limits, Server};
use swiftlet_store::Store;
use swiftlet_transport::{Address, Carrier, Config, Error, Handler, Node, Peer, PeerSnapshot, TcpAcceptor};
use swiftlet_transport_ucx::{UcxAcceptor, UcxFabric};
use ucx::{engine, silence};

const LISTEN: &str = "SWIFTLET_OBJECT_LISTEN";
const STOP: &str = "SWIFTLET_OBJECT_STOP";
const CUT: &str = "SWIFTLET_OBJECT_CUT";
const SERVER: &str = "SWIFTLET_OBJECT_SERVER";
/// Larger than a chunk, and no multiple of one; and one that lies in a volume.
const SIZES: [usize; 2] = [6 * MIB + 123, 200 << 10];

fn counters(node: &Node) -> PeerSnapshot {
    node.report()[0].counters.clone()
}

fn patient(name: &str) -> Config {
    Config { silence: silence(), ..config(name) }
}

/// Does nothing unless it is told where to listen.
#[test]
fn the_object_server() {
    let Ok(listen) = std::env::var(LISTEN) else { return };
    let directory = Directory::new();
    let store = Arc::new(Store::open(&directory.0, store_config()).unwrap());
    let server = Arc::new(Server::start([("d0".to_owned(), Ok(store))], Limits::default()).unwrap());
    let handler = Arc::clone(&server) as Arc<dyn Handler>;
    let node = Node::start(patient("server"), &[], Some(handler)).unwrap();
    let listener = TcpAcceptor::bind(listen.parse().unwrap()).unwrap();
    let address = listener.address().unwrap();
    node.listen(Box::new(UcxAcceptor::new(listener, &engine(node.pool()))));
    println!("at: {address}");
    let stop = std::env::var_os(STOP);
    while stop.as_ref().is_none_or(|stop| !std::path::Path::new(stop).exists()) {
        std::thread::sleep(Duration::from_millis(100));
    }
    let counters = counters(&node);
    println!("the server has fetched {} bytes and lent {}", counters.fetched_bytes, counters.lent_bytes);
    drop(node);
    server.stop();
}

struct Other(Option<Child>);

impl Drop for Other {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

/// The server that the environment names, or a new one.
fn server() -> (Other, SocketAddr) {
    if let Ok(address) = std::env::var(SERVER) {
        return (Other(None), address.parse().unwrap());
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["the_object_server", "--exact", "--nocapture"])
        .env(LISTEN, "127.0.0.1:0")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = lines.map_while(Result::ok).find_map(|line| line.split("at: ").nth(1).map(str::to_owned));
    (Other(Some(child)), said.expect("the server says where it is").parse().unwrap())
}

struct World {
    node: Node,
    client: Client,
    target: (Peer, String),
    _other: Other,
}

impl World {
    fn new() -> Self {
        let (other, address) = server();
        let config = patient("client");
        let fabric = UcxFabric::new(&engine(&config.pool));
        let node = Node::start(config, &[Arc::new(fabric)], None).unwrap();
        let peer = node.peer(Address { name: "server".to_owned(), tcp: Some(address) });
        Self { node, client: Client::new("tx1").unwrap(), target: (peer, "d0".to_owned()), _other: other }
    }

    /// Whether it was stored, and came back.
    fn put_and_get(&self, number: u64, size: usize) -> Result<(), Failure> {
        let data = content(number, size);
        let request = put(number, 10, &data, 0);
        let targets = std::slice::from_ref(&self.target);
        let mut stream = self.client.open_put(targets, &request, Some(size as u64), LONG)?;
        for piece in data.chunks(MIB) {
            let mut buffer = loop {
                match self.node.pool().chunk(piece.len()) {
                    Some(buffer) => break buffer,
                    None => std::thread::sleep(Duration::from_millis(1)),
                }
            };
            buffer.as_mut_slice().copy_from_slice(piece);
            if !stream.send(&buffer.freeze(piece.len())) {
                break;
            }
        }
        stream.commit(&footer(&data)).pop().unwrap()?;
        let (found, read) = self.client.get(&self.target, &get(number), LONG)?;
        assert!(found.info.size == size as u64 && read == data, "{size}");
        Ok(())
    }

    /// Put and get until bodies go by RDMA, which takes both sides a while to find out.
    fn until_lent(&self) {
        // Connections of a machine that stands still end before their trials do: it may take many of them.
        let end = Instant::now() + 20 * LONG;
        for number in 1.. {
            let before = counters(&self.node);
            for (at, size) in (0..).zip(SIZES) {
                if let Err(failure) = self.put_and_get(2 * number + at, size) {
                    // An emulated machine may stand still for longer than a peer may be silent.
                    println!("once more: {failure:?}");
                }
            }
            let after = counters(&self.node);
            let (lent, fetched) = (after.lent_bytes - before.lent_bytes, after.fetched_bytes - before.fetched_bytes);
            println!("lent {lent} bytes, fetched {fetched}; carrier {:?}", after.carrier);
            // What the server sends is fetched as far as it lies in its pool.
            if lent as usize == SIZES[0] + SIZES[1] && fetched as usize >= SIZES[0] {
                assert_eq!((after.carrier, after.fallbacks), (Some(Carrier::Rdma), 0));
                return;
            }
            assert!(Instant::now() < end, "bodies are not fetched");
        }
    }
}

#[test]
fn objects_are_put_and_got_by_rdma() {
    World::new().until_lent();
}

/// Does nothing unless somebody cuts RDMA off.
#[test]
fn when_rdma_is_lost_objects_are_sent() {
    let Ok(cut) = std::env::var(CUT) else { return };
    let world = World::new();
    world.until_lent();
    std::fs::write(&cut, "").unwrap();
    while !std::path::Path::new(&format!("{cut}.done")).exists() {
        std::thread::sleep(Duration::from_millis(50));
    }
    let begun = Instant::now();
    let failure = world.put_and_get(1000, SIZES[0]).unwrap_err();
    let noticed = begun.elapsed();
    println!("noticed after {noticed:?}: {failure:?}");
    assert!(matches!(&failure, Failure::Lost(Error::Lost(_))), "{failure:?}");
    assert!(noticed < silence() + Duration::from_secs(5), "{noticed:?}");
    let end = Instant::now() + LONG;
    while let Err(failure) = world.put_and_get(1001, SIZES[0]) {
        assert!(Instant::now() < end, "{failure:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("an object is stored by TCP {:?} after RDMA was lost", begun.elapsed());
    let before = counters(&world.node);
    world.put_and_get(1002, SIZES[0]).unwrap();
    let after = counters(&world.node);
    assert_eq!((after.lent_bytes, after.fetched_bytes), (before.lent_bytes, before.fetched_bytes));
    // Two trials have to run out of time, if the server's comes first.
    let end = Instant::now() + 3 * LONG;
    while counters(&world.node).fallbacks == 0 {
        assert!(Instant::now() < end, "the fallback is not counted");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(counters(&world.node).carrier, Some(Carrier::Tcp));
}
