//! What the transport costs against plain sockets, measured in turn in one run.
//! `cargo bench -p swiftlet-transport`.

#![allow(clippy::unwrap_used, reason = "a measurement that can't be made is no measurement")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

#[path = "../../../benches/measured.rs"]
mod measured;

use rustix::time::{ClockId, clock_gettime};
use swiftlet_transport::{
    Address, Answer, Body, Call, Chunk, Config, Error, Event, Fabric, Handler, Incoming, Key, Next, Node, Peer, Pool,
    Receiver, Responder, SameNodeAcceptor, SameNodeFabric, Sink, Source, TcpAcceptor, TcpFabric, What,
};

const CHUNK: usize = 1 << 20;
const CHUNKS: usize = 1536;
const SMALL: usize = 10 << 10;
const TRIPS: u64 = 150_000;
const IN_FLIGHT: u64 = 8;
const ROUNDS: usize = 5;

/// Seconds on the clock, seconds of the processor.
#[derive(Clone, Copy)]
struct Cost(f64, f64);

fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn measure(run: impl FnOnce()) -> Cost {
    let (clock, processor) = (Instant::now(), cpu());
    run();
    Cost(clock.elapsed().as_secs_f64(), cpu() - processor)
}

/// What is done with each chunk at both ends.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    /// Nothing: what moving costs.
    Move,
    /// It is made by a copy at one end and hashed at the other, as in a store.
    Make,
}

fn plain(work: Work, mut to: impl Write + Send, mut from: impl Read + Send) {
    let origin = vec![7_u8; CHUNK];
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut buffer = vec![1_u8; CHUNK];
            for _ in 0..CHUNKS {
                if work == Work::Make {
                    buffer.copy_from_slice(&origin);
                }
                to.write_all(&buffer).unwrap();
            }
        });
        let mut buffer = vec![0_u8; CHUNK];
        let mut sum = 0;
        for _ in 0..CHUNKS {
            from.read_exact(&mut buffer).unwrap();
            if work == Work::Make {
                sum ^= swiftlet_hash::xxh3_64(&buffer);
            }
        }
        std::hint::black_box(sum);
    });
}

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let other = listener.accept().unwrap().0;
    one.set_nodelay(true).unwrap();
    other.set_nodelay(true).unwrap();
    (one, other)
}

/// As many requests in flight as the transport has, each answered by as few bytes as its reply has.
fn plain_trips(request: usize, reply: usize) {
    let (mut one, mut other) = tcp_pair();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut get, put) = (vec![0; request], vec![1; reply]);
            for _ in 0..TRIPS {
                other.read_exact(&mut get).unwrap();
                other.write_all(&put).unwrap();
            }
        });
        let (put, mut get) = (vec![1; request], vec![0; reply]);
        for _ in 0..IN_FLIGHT {
            one.write_all(&put).unwrap();
        }
        for at in 0..TRIPS {
            one.read_exact(&mut get).unwrap();
            if at + IN_FLIGHT < TRIPS {
                one.write_all(&put).unwrap();
            }
        }
    });
}

struct Store(Chunk);

struct Taking(Option<Responder>, u64);

impl Handler for Store {
    fn request(&self, incoming: Incoming, responder: Responder) -> Option<Box<dyn Receiver>> {
        if incoming.body.is_none() {
            return Some(Box::new(Taking(Some(responder), u64::from(incoming.method))));
        }
        let body = if incoming.method == 3 { Body::Chunk(self.0.clone()) } else { Body::Empty };
        responder.answer(Answer { status: 200, body, ..Answer::default() });
        None
    }
}

impl Receiver for Taking {
    fn chunk(&mut self, chunk: Chunk) {
        if self.1 & 1 == 1 {
            std::hint::black_box(swiftlet_hash::xxh3_64(&chunk));
        }
    }

    fn end(&mut self, _footer: &[u8]) {
        self.0.take().unwrap().answer(Answer { status: 201, ..Answer::default() });
    }

    fn failed(&mut self, why: &Error) {
        panic!("{why}");
    }
}

struct Ends {
    client: Node,
    peer: Peer,
    _server: Node,
}

fn config(name: &str) -> Config {
    Config::new(name, "machine", vec![Key::new(b"secret")], Pool::new(64 << 20).unwrap())
}

fn ends(directory: Option<&Path>) -> Ends {
    let mut body = config("x").pool.small(SMALL).unwrap();
    body.as_mut_slice().fill(3);
    let server = Node::start(config("server"), &[], Some(Arc::new(Store(body.freeze(SMALL))))).unwrap();
    let mut address = Address { name: "server".to_owned(), tcp: None };
    let fabric: Arc<dyn Fabric> = match directory {
        Some(directory) => {
            server.listen(Box::new(SameNodeAcceptor::bind(directory, "server").unwrap()));
            Arc::new(SameNodeFabric::new(directory))
        }
        None => {
            let acceptor = TcpAcceptor::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            address.tcp = Some(acceptor.address().unwrap());
            server.listen(Box::new(acceptor));
            Arc::new(TcpFabric)
        }
    };
    let client = Node::start(config("client"), &[fabric], None).unwrap();
    let peer = client.peer(address);
    Ends { client, peer, _server: server }
}

struct Channel(Mutex<mpsc::Sender<Event>>);

impl Sink for Channel {
    fn events(&self, events: &mut Vec<Event>) {
        let to = self.0.lock().unwrap();
        events.drain(..).for_each(|event| to.send(event).unwrap());
    }
}

fn call(method: u16) -> Call {
    Call { method, timeout: Duration::from_secs(60), ..Call::default() }
}

/// A body of chunks: always the same one, or, with `Make`, each a buffer of the pool that is filled.
struct Chunks {
    left: usize,
    origin: Vec<u8>,
    same: Chunk,
    pool: Option<Pool>,
}

impl Source for Chunks {
    fn next(&mut self) -> Next {
        if self.left == 0 {
            return Next::End(Vec::new());
        }
        self.left -= 1;
        let Some(pool) = &self.pool else { return Next::Chunk(self.same.clone()) };
        let mut buffer = pool.chunk(CHUNK).unwrap();
        buffer.as_mut_slice().copy_from_slice(&self.origin);
        Next::Chunk(buffer.freeze(CHUNK))
    }
}

/// One upload in chunks.
fn upload(ends: &Ends, work: Work) {
    let (tell, told) = mpsc::channel();
    let sink: Arc<dyn Sink> = Arc::new(Channel(Mutex::new(tell)));
    let mut same = ends.client.pool().chunk(CHUNK).unwrap();
    same.as_mut_slice().fill(1);
    let (origin, same) = (vec![7_u8; CHUNK], same.freeze(CHUNK));
    let pool = (work == Work::Make).then(|| ends.client.pool().clone());
    let method = if work == Work::Make { 1 } else { 2 };
    let body = Body::Source(Box::new(Chunks { left: CHUNKS, origin, same, pool }), None);
    ends.peer.call(Call { body, ..call(method) }, &sink, 0).unwrap();
    match told.recv().unwrap().what {
        What::Reply { status: 201, .. } => {}
        other => panic!("{other:?}"),
    }
}

/// Keeps the number of requests in flight from within the I/O thread.
struct Trips {
    peer: Peer,
    body: Option<Chunk>,
    begun: AtomicU64,
    ended: AtomicU64,
    over: Mutex<mpsc::Sender<()>>,
    me: Mutex<Option<Arc<dyn Sink>>>,
}

impl Trips {
    fn one(&self, me: &Arc<dyn Sink>) {
        if self.begun.fetch_add(1, SeqCst) < TRIPS {
            let body = self.body.clone().map_or(Body::Empty, Body::Chunk);
            let method = if self.body.is_some() { 4 } else { 3 };
            self.peer.call(Call { body, ..call(method) }, me, 0).unwrap();
        }
    }
}

impl Sink for Trips {
    fn events(&self, events: &mut Vec<Event>) {
        let me = self.me.lock().unwrap().clone().unwrap();
        for event in events.drain(..) {
            match event.what {
                What::Reply { status: 200, .. } => {}
                other => panic!("{other:?}"),
            }
            self.one(&me);
            if self.ended.fetch_add(1, SeqCst) + 1 == TRIPS {
                self.over.lock().unwrap().send(()).unwrap();
            }
        }
    }
}

fn trips(ends: &Ends, put: bool) {
    let (tell, told) = mpsc::channel();
    let body = put.then(|| ends.client.pool().small(SMALL).unwrap().freeze(SMALL));
    let trips = Arc::new(Trips {
        peer: ends.peer.clone(),
        body,
        begun: AtomicU64::new(0),
        ended: AtomicU64::new(0),
        over: Mutex::new(tell),
        me: Mutex::new(None),
    });
    let me: Arc<dyn Sink> = Arc::clone(&trips) as Arc<dyn Sink>;
    *trips.me.lock().unwrap() = Some(Arc::clone(&me));
    for _ in 0..IN_FLIGHT {
        trips.one(&me);
    }
    told.recv().unwrap();
    *trips.me.lock().unwrap() = None;
}

type Run<'a> = (&'a str, f64, Box<dyn Fn() + 'a>);

/// Run all in turn several times; tell of each its rate, its processor time, and both beside those of the first.
fn compare(what: &str, runs: &[Run<'_>], rate: &str, (processor, scale): (&str, f64)) {
    let mut costs: Vec<Vec<Cost>> = runs.iter().map(|_| Vec::new()).collect();
    for round in 0..=measured::rounds(ROUNDS) {
        for (at, run) in runs.iter().enumerate() {
            let cost = measure(&run.2);
            // The first round touches memory for the first time.
            if round > 0 {
                costs[at].push(cost);
            }
        }
    }
    for ((over, amount, _), mine) in runs.iter().zip(&costs) {
        let of = |value: &dyn Fn(&Cost) -> f64| mine.iter().map(value).collect::<Vec<f64>>();
        let beside = |value: &dyn Fn(&Cost) -> f64| {
            mine.iter().zip(&costs[0]).map(|(one, first)| value(one) / value(first)).collect::<Vec<f64>>()
        };
        measured::tell(&format!("{what}, {over}"), rate, &of(&|cost| amount / cost.0));
        measured::tell(&format!("{what}, {over}"), processor, &of(&|cost| cost.1 / amount * scale));
        if *over != runs[0].0 {
            measured::tell(&format!("{what}, {over}"), "of the rate of plain TCP", &beside(&|cost| 1.0 / cost.0));
            measured::tell(&format!("{what}, {over}"), "of the CPU of plain TCP", &beside(&|cost| cost.1));
        }
    }
}

fn main() {
    let directory = std::env::temp_dir().join(format!("swiftlet-bench-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let (tcp, same_node) = (ends(None), ends(Some(&directory)));
    let gigabytes = (CHUNKS * CHUNK) as f64 / 1e9;
    let over_tcp = |work| {
        let (one, other) = tcp_pair();
        plain(work, one, other);
    };
    let over_unix = |work| {
        let (one, other) = UnixStream::pair().unwrap();
        plain(work, one, other);
    };

    for (work, name) in [(Work::Move, "moved"), (Work::Make, "copied into at one end, xxh3 at the other")] {
        let runs: [Run<'_>; 4] = [
            ("plain TCP", gigabytes, Box::new(move || over_tcp(work))),
            ("transport, TCP", gigabytes, Box::new(|| upload(&tcp, work))),
            ("plain Unix socket", gigabytes, Box::new(move || over_unix(work))),
            ("transport, same node", gigabytes, Box::new(|| upload(&same_node, work))),
        ];
        compare(&format!("1 MiB chunks, {name}"), &runs, "GB/s", ("CPU s/GB", 1.0));
    }
    for (put, name) in [(true, "10 KiB there"), (false, "10 KiB back")] {
        // Heads and fields as the transport has them.
        let (request, reply) = if put { (SMALL + 44, 38) } else { (44, SMALL + 38) };
        let amount = TRIPS as f64;
        let runs: [Run<'_>; 3] = [
            ("plain TCP", amount, Box::new(move || plain_trips(request, reply))),
            ("transport, TCP", amount, Box::new(|| trips(&tcp, put))),
            ("transport, same node", amount, Box::new(|| trips(&same_node, put))),
        ];
        let what = format!("round trips, {IN_FLIGHT} in flight, {name}");
        compare(&what, &runs, "trips/s", ("CPU µs each", 1e6));
    }
    drop((tcp, same_node));
    std::fs::remove_dir_all(&directory).unwrap();
}
