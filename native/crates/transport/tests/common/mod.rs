//! A server whose methods the tests need, ways to set up both ends over each carrier, and waiting with a deadline.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "tests")]

pub mod raw;

use std::collections::HashMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use swiftlet_transport::simulated::Network;
use swiftlet_transport::{
    Acceptor, Address, Answer, Body, Call, Carrier, Chunk, Completions, Config, EncryptedAcceptor, EncryptedFabric,
    Error, Fabric, FileRange, Handler, Incoming, Key, Next, Node, Peer, Pool, Receiver, Responder, SameNodeAcceptor,
    SameNodeFabric, Sink, Source, TcpAcceptor, TcpFabric, Tls, What,
};
use swiftlet_wire::limits::DEAD_AFTER_MS;

pub const ECHO: u16 = 1;
/// Stores nothing, answers 201 if the body's xxh3 is the footer, else 422.
pub const PUT: u16 = 2;
/// Header: kind of body, offset, length. Answers the pattern's bytes.
pub const GET: u16 = 3;
/// Keeps the responder, and the chunks of a body.
pub const HOLD: u16 = 4;
pub const DROP: u16 = 5;

pub const LONG: Duration = Duration::from_secs(120);

/// The bytes that all bodies have from `offset` on.
pub fn fill(offset: u64, to: &mut [u8]) {
    for (at, byte) in to.iter_mut().enumerate() {
        let at = offset + at as u64;
        *byte = (at ^ (at >> 8) ^ (at >> 16).wrapping_mul(31)) as u8;
    }
}

pub fn pattern(offset: u64, bytes: usize) -> Vec<u8> {
    let mut to = vec![0; bytes];
    fill(offset, &mut to);
    to
}

pub fn get_header(kind: u8, offset: u64, bytes: u64) -> Vec<u8> {
    [&[kind][..], &offset.to_be_bytes(), &bytes.to_be_bytes()].concat()
}

/// What the handler has seen.
#[derive(Default)]
pub struct Seen {
    pub responders: Mutex<Vec<Responder>>,
    pub chunks: Mutex<Vec<Chunk>>,
    pub failed: Mutex<Vec<Error>>,
    pub received: AtomicUsize,
    pub ended: AtomicUsize,
}

pub struct Server {
    pub seen: Arc<Seen>,
    file: Arc<File>,
}

/// As large as what tests ask for by GET.
pub const FILE_BYTES: usize = 4 << 20;

impl Server {
    pub fn new() -> Self {
        let path = std::env::temp_dir().join(format!("swiftlet-transport-{}-{}", std::process::id(), unique()));
        std::fs::write(&path, pattern(0, FILE_BYTES)).unwrap();
        let file = Arc::new(File::open(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        Self { seen: Arc::default(), file }
    }
}

struct Hashing {
    body: Vec<u8>,
    responder: Option<Responder>,
    seen: Arc<Seen>,
}

impl Receiver for Hashing {
    fn chunk(&mut self, chunk: Chunk) {
        self.seen.received.fetch_add(chunk.len(), SeqCst);
        self.body.extend_from_slice(&chunk);
    }

    fn end(&mut self, footer: &[u8]) {
        let right = swiftlet_hash::xxh3_64(&self.body).to_be_bytes() == footer;
        self.seen.ended.fetch_add(1, SeqCst);
        let answer = Answer { status: if right { 201 } else { 422 }, ..Answer::default() };
        self.responder.take().unwrap().answer(answer);
    }

    fn failed(&mut self, why: &Error) {
        self.seen.failed.lock().unwrap().push(why.clone());
    }
}

struct Holding {
    responder: Option<Responder>,
    seen: Arc<Seen>,
}

impl Receiver for Holding {
    fn chunk(&mut self, chunk: Chunk) {
        self.seen.received.fetch_add(chunk.len(), SeqCst);
        self.seen.chunks.lock().unwrap().push(chunk);
    }

    fn end(&mut self, _footer: &[u8]) {
        self.seen.ended.fetch_add(1, SeqCst);
        self.responder.take().unwrap().answer(Answer { status: 201, ..Answer::default() });
    }

    fn failed(&mut self, why: &Error) {
        self.seen.failed.lock().unwrap().push(why.clone());
        if let Some(responder) = self.responder.take() {
            self.seen.responders.lock().unwrap().push(responder);
        }
    }
}

struct Pieces {
    at: u64,
    end: u64,
}

impl Source for Pieces {
    fn next(&mut self) -> Next {
        let bytes = (self.end - self.at).min(300_000) as usize;
        if bytes == 0 {
            return Next::End(b"footer".to_vec());
        }
        let piece = pattern(self.at, bytes);
        self.at += bytes as u64;
        Next::Chunk(piece.into())
    }
}

impl Handler for Server {
    fn request(&self, incoming: Incoming, responder: Responder) -> Option<Box<dyn Receiver>> {
        let seen = Arc::clone(&self.seen);
        match (incoming.method, incoming.body) {
            (ECHO, Some(body)) => {
                let body = if body.is_empty() { Body::Empty } else { Body::Chunk(body) };
                responder.answer(Answer { status: 200, header: incoming.header, body, footer: Vec::new() });
            }
            (PUT, None) => return Some(Box::new(Hashing { body: Vec::new(), responder: Some(responder), seen })),
            (GET, _) => {
                let number = |at: usize| u64::from_be_bytes(incoming.header[at..at + 8].try_into().unwrap());
                let (offset, bytes) = (number(1), number(9));
                let body = match incoming.header[0] {
                    0 => Body::Chunk(pattern(offset, bytes as usize).into()),
                    1 => Body::File(FileRange { file: Arc::clone(&self.file), offset, bytes }),
                    _ => Body::Source(Box::new(Pieces { at: offset, end: offset + bytes }), None),
                };
                responder.answer(Answer { status: 206, header: Vec::new(), body, footer: b"footer".to_vec() });
            }
            (HOLD, None) => return Some(Box::new(Holding { responder: Some(responder), seen })),
            (HOLD, Some(body)) => {
                seen.chunks.lock().unwrap().push(body);
                seen.responders.lock().unwrap().push(responder);
            }
            (_, _) => drop(responder),
        }
        None
    }
}

pub fn unique() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, SeqCst)
}

/// Wait until it holds; fail after a while.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::yield_now();
    }
}

pub fn keys(names: &[&str]) -> Vec<Key> {
    names.iter().map(|name| Key::new(name.as_bytes())).collect()
}

/// A node that waits for silent peers: most tests are not about silence, and on a busy machine many are silent for a
/// while.
pub fn config(name: &str, pool_bytes: usize) -> Config {
    let pool = Pool::new(pool_bytes).unwrap();
    Config { silence: LONG, ..Config::new(name, "machine", keys(&["secret"]), pool) }
}

/// A node that does not: for tests of silence.
pub fn brief(name: &str, pool_bytes: usize) -> Config {
    Config { silence: silence(), ..config(name, pool_bytes) }
}

/// How long a peer may be silent there: as by default, or `SWIFTLET_SILENCE_MS`, for emulated machines, which stand
/// still by themselves for longer.
pub fn silence() -> Duration {
    Duration::from_millis(std::env::var("SWIFTLET_SILENCE_MS").map_or(DEAD_AFTER_MS, |ms| ms.parse().unwrap()))
}

/// How RDMA is made, which this crate knows nothing of.
pub trait Rdma: Send + Sync {
    fn fabric(&self, pool: &Pool) -> Arc<dyn Fabric>;
    fn acceptor(&self, pool: &Pool, listener: TcpAcceptor) -> Box<dyn Acceptor>;
}

/// Set by who tests it.
pub static RDMA: OnceLock<Box<dyn Rdma>> = OnceLock::new();

fn rdma() -> &'static dyn Rdma {
    RDMA.get().expect("somebody makes it").as_ref()
}

/// TLS with these keys.
pub fn tls(names: &[&str]) -> Arc<Tls> {
    let keys: Vec<_> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(Tls::new(&keys).unwrap())
}

/// Both ends over one carrier.
pub struct World {
    pub carrier: Carrier,
    pub network: Network,
    pub directory: PathBuf,
    /// By name: the TCP address, which leads through the network.
    pub addresses: Mutex<HashMap<String, SocketAddr>>,
}

impl World {
    pub fn new(carrier: Carrier) -> Self {
        let directory = std::env::temp_dir().join(format!("swiftlet-{}-{}", std::process::id(), unique()));
        std::fs::create_dir(&directory).unwrap();
        Self { carrier, network: Network::new(), directory, addresses: Mutex::default() }
    }

    pub fn fabrics(&self, pool: &Pool) -> Vec<Arc<dyn Fabric>> {
        match self.carrier {
            Carrier::SameNode => vec![Arc::new(SameNodeFabric::new(&self.directory)), Arc::new(TcpFabric)],
            Carrier::Simulated => vec![Arc::new(self.network.clone())],
            Carrier::Rdma => vec![rdma().fabric(pool)],
            Carrier::Tls => vec![Arc::new(EncryptedFabric::new(Arc::new(TcpFabric), tls(&["secret"])))],
            _ => vec![Arc::new(TcpFabric)],
        }
    }

    pub fn listen(&self, node: &Node, name: &str) {
        match self.carrier {
            Carrier::SameNode => node.listen(Box::new(SameNodeAcceptor::bind(&self.directory, name).unwrap())),
            Carrier::Simulated => node.listen(self.network.listen(name).unwrap()),
            _ => {
                let acceptor = TcpAcceptor::bind("127.0.0.1:0".parse().unwrap()).unwrap();
                let direct = acceptor.address().unwrap();
                node.listen(match self.carrier {
                    Carrier::Rdma => rdma().acceptor(node.pool(), acceptor),
                    Carrier::Tls => Box::new(EncryptedAcceptor::new(Box::new(acceptor), tls(&["secret"]), true)),
                    _ => Box::new(acceptor),
                });
                let through = self.network.relay(direct).unwrap();
                self.addresses.lock().unwrap().insert(name.to_owned(), through);
            }
        }
    }

    pub fn server(&self, config: Config) -> (Node, Arc<Seen>) {
        let server = Server::new();
        let seen = Arc::clone(&server.seen);
        let name = config.name.clone();
        let node = Node::start(config, &[], Some(Arc::new(server))).unwrap();
        self.listen(&node, &name);
        (node, seen)
    }

    pub fn client(&self, config: Config) -> Client {
        let fabrics = self.fabrics(&config.pool);
        let node = Node::start(config, &fabrics, None).unwrap();
        Client { node, events: Completions::new().unwrap(), early: Mutex::default(), next: AtomicUsize::new(1) }
    }

    pub fn address(&self, name: &str) -> Address {
        Address { name: name.to_owned(), tcp: self.addresses.lock().unwrap().get(name).copied() }
    }

    /// A client and a server with ordinary limits.
    pub fn pair(&self) -> (Client, Peer, Node, Arc<Seen>) {
        self.pair_of(config)
    }

    /// The same with nodes that are made so, of a name and the bytes of a pool.
    pub fn pair_of(&self, make: fn(&str, usize) -> Config) -> (Client, Peer, Node, Arc<Seen>) {
        let (server, seen) = self.server(make("server", 64 << 20));
        let client = self.client(make("client", 64 << 20));
        let peer = client.node.peer(self.address("server"));
        if self.carrier == Carrier::Rdma {
            // Else what is tested would have been sent before RDMA is found to work.
            assert_eq!(client.ask(&peer, call(ECHO)).status, 200);
            for node in [&client.node, &server] {
                eventually("RDMA is found to work", || node.report()[0].counters.carrier == Some(Carrier::Rdma));
            }
        }
        (client, peer, server, seen)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.network.end();
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

/// What became of a call.
#[derive(Debug, Default)]
pub struct Outcome {
    pub status: u16,
    pub header: Vec<u8>,
    pub body: Vec<u8>,
    pub footer: Vec<u8>,
    pub sent: usize,
    pub chunks: usize,
    pub error: Option<Error>,
    pub over: bool,
}

impl Outcome {
    fn take(&mut self, what: What) {
        assert!(!self.over, "something after the last event: {what:?}");
        match what {
            What::Sent(bytes) => self.sent += bytes,
            What::Reply { status, header, body, whole, .. } => {
                self.status = status;
                self.header = header;
                self.body = body.map(|body| body.to_vec()).unwrap_or_default();
                self.over = whole;
            }
            What::Chunk(chunk) => {
                self.chunks += 1;
                self.body.extend_from_slice(&chunk);
            }
            What::End(footer) => {
                self.footer = footer;
                self.over = true;
            }
            What::Failed(error) => {
                self.error = Some(error);
                self.over = true;
            }
        }
    }
}

pub struct Client {
    pub node: Node,
    pub events: Arc<Completions>,
    pub early: Mutex<HashMap<u64, Outcome>>,
    pub next: AtomicUsize,
}

pub fn call(method: u16) -> Call {
    Call { method, timeout: LONG, trace: "tx1".to_owned(), ..Call::default() }
}

impl Client {
    pub fn sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.events) as Arc<dyn Sink>
    }

    pub fn token(&self) -> u64 {
        self.next.fetch_add(1, SeqCst) as u64
    }

    pub fn start(&self, peer: &Peer, call: Call) -> u64 {
        let token = self.token();
        peer.call(call, &self.sink(), token).unwrap();
        token
    }

    pub fn pump(&self, timeout: Duration) {
        for event in self.events.wait(timeout) {
            self.early.lock().unwrap().entry(event.token).or_default().take(event.what);
        }
    }

    /// Wait until a call is over.
    pub fn finish(&self, token: u64) -> Outcome {
        let end = Instant::now() + LONG + Duration::from_secs(5);
        loop {
            let over = self.early.lock().unwrap().get(&token).is_some_and(|outcome| outcome.over);
            if over {
                return self.early.lock().unwrap().remove(&token).unwrap();
            }
            assert!(Instant::now() < end, "a call without an end");
            self.pump(Duration::from_millis(50));
        }
    }

    /// Whether a call has ended by now.
    pub fn is_over(&self, token: u64) -> bool {
        self.pump(Duration::from_millis(1));
        self.early.lock().unwrap().get(&token).is_some_and(|outcome| outcome.over)
    }

    /// How many calls have ended with this error and were not asked for.
    pub fn refused(&self, error: &Error) -> usize {
        self.pump(Duration::from_millis(1));
        self.early.lock().unwrap().values().filter(|outcome| outcome.error.as_ref() == Some(error)).count()
    }

    pub fn ask(&self, peer: &Peer, call: Call) -> Outcome {
        let token = self.start(peer, call);
        self.finish(token)
    }

    pub fn sent(&self, token: u64) -> usize {
        self.early.lock().unwrap().get(&token).map_or(0, |outcome| outcome.sent)
    }

    /// Memory for a chunk, as soon as there is some.
    pub fn buffer(&self, bytes: usize) -> swiftlet_transport::Buffer {
        let (tell, told) = std::sync::mpsc::channel();
        let then = move |buffer| drop(tell.send(buffer));
        self.node.pool().chunk_later(bytes, Instant::now() + LONG, Box::new(then));
        loop {
            if let Ok(buffer) = told.try_recv() {
                return buffer.expect("memory in time");
            }
            self.pump(Duration::from_millis(1));
        }
    }
}

pub fn socket_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{:032x}.sock", swiftlet_hash::xxh3_128(name.as_bytes())))
}
