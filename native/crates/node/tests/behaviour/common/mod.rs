//! Object servers on temporary directories, over each carrier, and a client.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use swiftlet_node::message::Request;
use swiftlet_node::{Client, Guests, Limits, Server};
use swiftlet_store::disk::{Disk, Faults, SimulatedDisk};
use swiftlet_store::model::{Footer, Key, PutMeta};
use swiftlet_store::{Config as StoreConfig, Store};
use swiftlet_transport::simulated::Network;
use swiftlet_transport::{
    Address, Carrier, Config, Fabric, Guests as GuestRoom, Handler, Key as ClusterKey, Node, Peer, Pool,
    SameNodeAcceptor, SameNodeFabric, TcpAcceptor, TcpFabric,
};

pub const LONG: Duration = Duration::from_secs(120);
pub const MIB: usize = 1 << 20;
/// Objects up to here lie in volumes.
pub const AGGREGATE: u64 = 256 << 10;

pub fn unique() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, SeqCst)
}

/// A directory that goes away.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new() -> Self {
        let path = std::env::temp_dir().join(format!("swiftlet-node-{}-{}", std::process::id(), unique()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Names of large files on it.
    pub fn large(&self) -> usize {
        let Ok(directories) = std::fs::read_dir(self.0.join("large")) else { return 0 };
        directories.map(|entry| std::fs::read_dir(entry.unwrap().path()).unwrap().count()).sum()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

pub fn store_config() -> StoreConfig {
    StoreConfig { aggregate_below: AGGREGATE, volume_bytes: 16 << 20, ..StoreConfig::default() }
}

/// One object server: devices `d0`, `d1`, ... on directories, and perhaps others.
pub struct Machine {
    pub node: Option<Node>,
    pub server: Arc<Server>,
    pub stores: Vec<Arc<Store>>,
    pub directories: Vec<Directory>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.node = None;
        self.server.stop();
    }
}

pub struct World {
    pub carrier: Carrier,
    pub network: Network,
    pub node: Node,
    pub client: Client,
    /// Of sockets.
    directory: Directory,
    /// Servers' own addresses, by name.
    direct: Mutex<HashMap<String, SocketAddr>>,
}

impl World {
    pub fn new(carrier: Carrier) -> Self {
        let network = Network::new();
        let directory = Directory::new();
        let fabric: Arc<dyn Fabric> = match carrier {
            Carrier::Simulated => Arc::new(network.clone()),
            Carrier::SameNode => Arc::new(SameNodeFabric::new(&directory.0)),
            _ => Arc::new(TcpFabric),
        };
        let node = Node::start(config("client"), &[fabric], None).unwrap();
        Self { carrier, network, node, client: Client::new("tx1").unwrap(), directory, direct: Mutex::default() }
    }

    /// Where the sockets of this machine are.
    pub fn sockets(&self) -> &std::path::Path {
        &self.directory.0
    }

    /// Where another client finds the same server, not through the network's faults.
    pub fn address(&self, peer: &Peer) -> Address {
        let tcp = self.direct.lock().unwrap().get(peer.name()).copied();
        Address { name: peer.name().to_owned(), tcp }
    }

    /// A server with so many devices on directories, and its devices as targets.
    pub fn machine(&self, devices: usize, limits: Limits) -> (Machine, Vec<(Peer, String)>) {
        let directories: Vec<Directory> = (0..devices).map(|_| Directory::new()).collect();
        let stores: Vec<Arc<Store>> =
            directories.iter().map(|directory| Arc::new(Store::open(&directory.0, store_config()).unwrap())).collect();
        let (node, server, targets) = self.serve(&stores, limits);
        (Machine { node: Some(node), server, stores, directories }, targets)
    }

    /// The same on one disk that does as it is told.
    pub fn simulated(&self, disk: &Arc<SimulatedDisk>, limits: Limits) -> (Machine, Vec<(Peer, String)>) {
        let disk = Arc::clone(disk) as Arc<dyn Disk>;
        let stores = vec![Arc::new(Store::open_disk(disk, store_config()).unwrap())];
        let (node, server, targets) = self.serve(&stores, limits);
        (Machine { node: Some(node), server, stores, directories: Vec::new() }, targets)
    }

    pub fn serve(&self, stores: &[Arc<Store>], limits: Limits) -> (Node, Arc<Server>, Vec<(Peer, String)>) {
        self.serve_all(stores, limits, None)
    }

    /// The same, for guests as well if there is something known of them.
    pub fn serve_all(
        &self,
        stores: &[Arc<Store>],
        limits: Limits,
        guests: Option<(Arc<Guests>, GuestRoom)>,
    ) -> (Node, Arc<Server>, Vec<(Peer, String)>) {
        let named = stores.iter().enumerate().map(|(at, store)| (format!("d{at}"), Ok(Arc::clone(store))));
        let broken = ("broken".to_owned(), Err("it is not mounted".to_owned()));
        let mut server = Server::start(named.chain([broken]), limits).unwrap();
        let name = format!("server-{}", unique());
        let mut config = config(&name);
        if let Some((known, room)) = guests {
            server = server.with_guests(known);
            config.guests = Some(room);
        }
        let server = Arc::new(server);
        let handler = Arc::clone(&server) as Arc<dyn Handler>;
        let node = Node::start(config, &[], Some(handler)).unwrap();
        let tcp = if self.carrier == Carrier::Simulated {
            node.listen(self.network.listen(&name).unwrap());
            None
        } else if self.carrier == Carrier::SameNode {
            node.listen(Box::new(SameNodeAcceptor::bind(&self.directory.0, &name).unwrap()));
            None
        } else {
            let acceptor = TcpAcceptor::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let direct = acceptor.address().unwrap();
            node.listen(Box::new(acceptor));
            self.direct.lock().unwrap().insert(name.clone(), direct);
            Some(self.network.relay(direct).unwrap())
        };
        let peer = self.node.peer(Address { name, tcp });
        let targets = (0..stores.len()).map(|at| (peer.clone(), format!("d{at}"))).collect();
        (node, server, targets)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.network.end();
    }
}

/// A node that waits for silent peers: tests are not about silence, and on a busy machine many are silent for a while.
pub fn config(name: &str) -> Config {
    let pool = Pool::new(64 << 20).unwrap();
    Config { silence: LONG, ..Config::new(name, "machine", vec![ClusterKey::new(b"secret")], pool) }
}

pub fn disk(seed: u64) -> Arc<SimulatedDisk> {
    SimulatedDisk::new(seed, Faults::default())
}

pub fn key(number: u64) -> Key {
    let digest = swiftlet_hash::xxh3_128(&number.to_be_bytes()).to_be_bytes();
    Key { policy: (number % 2) as u16, partition: (number % 3) as u32, digest }
}

pub fn content(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| ((at ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

pub fn footer(data: &[u8]) -> Footer {
    Footer { size: data.len() as u64, etag: b"etag".to_vec(), xxh3: swiftlet_hash::xxh3_64(data) }
}

pub fn meta(timestamp: u64) -> PutMeta {
    PutMeta {
        name: b"/a/c/o".to_vec(),
        timestamp,
        content_type: b"text/plain".to_vec(),
        metadata: vec![(b"x".to_vec(), timestamp.to_string().into_bytes())],
        sysmeta: vec![(b"s".to_vec(), b"1".to_vec())],
        delete_at: 0,
    }
}

pub fn put(number: u64, timestamp: u64, data: &[u8], row: u32) -> Request {
    Request::Put { key: key(number), meta: meta(timestamp), footer: Some(footer(data)), row }
}

pub fn get(number: u64) -> Request {
    range(number, 0, u64::MAX)
}

pub fn range(number: u64, start: u64, stop: u64) -> Request {
    Request::Get { key: key(number), start, stop, whole: 0, proved: false }
}

/// Wait until it holds; fail after a while.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A file somewhere below, where there is but one.
pub fn only_file(directory: &std::path::Path) -> PathBuf {
    let first = std::fs::read_dir(directory).unwrap().next().unwrap().unwrap().path();
    if first.is_dir() { only_file(&first) } else { first }
}
