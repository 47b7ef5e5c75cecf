//! What TLS between a caller and an object server costs: requests of several sizes, plain and encrypted in turns.
//! `bench/encryption/run.sh` runs it, `bench/RESULTS.md` has what it came to.
//!
//!     encryption_bench DIRECTORY [SECONDS] [ROUNDS]
#![allow(clippy::unwrap_used, reason = "a benchmark that fails has nothing to say")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[path = "../../../benches/measured.rs"]
mod measured;

use swiftlet_node::message::Request;
use swiftlet_node::{Client, Limits, Server};
use swiftlet_store::model::{Footer, Key, PutMeta};
use swiftlet_store::{Config as StoreConfig, Store};
use swiftlet_transport::{
    Address, Chunk, Config, EncryptedAcceptor, EncryptedFabric, Fabric, Handler, Key as ClusterKey, Node, Peer, Pool,
    TcpAcceptor, TcpFabric, Tls, What,
};

const KEY: &[u8] = b"benchmark";
const TIMEOUT: Duration = Duration::from_secs(60);
/// Without TLS support, with a port that accepts both, and encrypted on that port.
const WAYS: [&str; 3] = ["bare", "none", "TLS"];
/// The requests: name, bytes, requests in flight, whether they are stored.
const WORK: [(&str, usize, usize, bool); 5] = [
    ("PUT 10 KiB, 20 in flight", 10 << 10, 20, true),
    ("GET 10 KiB, 20 in flight", 10 << 10, 20, false),
    ("PUT 1 MiB, 8 in flight", 1 << 20, 8, true),
    ("GET 1 MiB, 8 in flight", 1 << 20, 8, false),
    ("GET 256 MiB, one stream", 256 << 20, 1, false),
];

fn config(name: &str) -> Config {
    Config::new(name, "", vec![ClusterKey::new(KEY)], Pool::new(128 << 20).unwrap())
}

fn tls() -> Arc<Tls> {
    Arc::new(Tls::new(&[KEY.to_vec()]).unwrap())
}

/// A server until its standard input ends; prints its bare port, and the one that accepts both.
fn serve(directory: &Path) {
    std::fs::create_dir_all(directory).unwrap();
    let store = Arc::new(Store::open(directory, StoreConfig::default()).unwrap());
    let devices = [("d0".to_owned(), Ok(Arc::clone(&store)))];
    let server = Arc::new(Server::start(devices, Limits::default()).unwrap());
    let node = Node::start(config("server"), &[], Some(Arc::clone(&server) as Arc<dyn Handler>)).unwrap();
    for both in [false, true] {
        let acceptor = TcpAcceptor::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        println!("{}", acceptor.address().unwrap());
        node.listen(if both {
            Box::new(EncryptedAcceptor::new(Box::new(acceptor), tls(), false))
        } else {
            Box::new(acceptor)
        });
    }
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    drop(node);
    server.stop();
    store.close().unwrap();
}

/// Seconds of processor time that a process has used.
fn cpu_of(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 2..].split(' ').collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

fn key(size: usize, number: u64) -> Key {
    let digest = swiftlet_hash::xxh3_128(&[size as u64, number].map(u64::to_be_bytes).concat()).to_be_bytes();
    Key { policy: 0, partition: u32::from(u16::from_be_bytes([digest[0], digest[1]])) >> 6, digest }
}

fn put(number: u64, body: &Chunk, xxh3: u64) -> Request {
    let meta = PutMeta {
        name: format!("/AUTH_test/container/object-{}-{number}", body.len()).into_bytes(),
        timestamp: 1 << 40,
        content_type: b"application/octet-stream".to_vec(),
        ..PutMeta::default()
    };
    let footer = Footer { size: body.len() as u64, etag: b"5d41402abc4b2a76b9719d911017c592".to_vec(), xxh3 };
    Request::Put { key: key(body.len(), number), meta, footer: Some(footer), row: 0 }
}

/// Keep requests in flight for a time. Returns how many there were, processor seconds here and at the server, and
/// seconds.
fn drive(
    client: &Client,
    (target, child): (&(Peer, String), &Child),
    (in_flight, span): (usize, Duration),
    mut next: impl FnMut() -> (Request, Option<Chunk>),
) -> [f64; 4] {
    let begun = Instant::now();
    let before = (cpu_of(std::process::id()), cpu_of(child.id()));
    let (mut open, mut done) = (HashMap::new(), 0);
    loop {
        while open.len() < in_flight && begun.elapsed() < span {
            let (request, body) = next();
            let submitted = client.submit(std::slice::from_ref(target), &request, body.as_ref(), TIMEOUT).unwrap();
            open.insert(submitted.id, ());
        }
        if open.is_empty() {
            break;
        }
        for event in client.wait(TIMEOUT) {
            match event.what {
                What::Reply { status: 0, whole, .. } if !whole => {}
                What::Reply { status: 0, .. } | What::End(_) => {
                    open.remove(&event.id).unwrap();
                    done += 1;
                }
                What::Sent(_) | What::Chunk(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    let took = begun.elapsed().as_secs_f64();
    [f64::from(done), cpu_of(std::process::id()) - before.0, cpu_of(child.id()) - before.1, took]
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments[1] == "serve" {
        return serve(Path::new(&arguments[2]));
    }
    let directory = Path::new(&arguments[1]).join(format!("encryption-{}", std::process::id()));
    let span = Duration::from_secs_f64(arguments.get(2).map_or(2.0, |seconds| seconds.parse().unwrap()));
    let rounds = arguments.get(3).map_or_else(|| measured::rounds(5), |rounds| rounds.parse().unwrap());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["serve".as_ref(), directory.as_os_str()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let [bare, both] = [(); 2].map(|()| lines.next().unwrap().unwrap().parse().unwrap());
    let tcp = || Arc::new(TcpFabric) as Arc<dyn Fabric>;
    let fabrics: [Arc<dyn Fabric>; 3] = [tcp(), tcp(), Arc::new(EncryptedFabric::new(tcp(), tls()))];
    let nodes = fabrics.map(|fabric| Node::start(config("client"), &[fabric], None).unwrap());
    let addresses = [bare, both, both].map(|tcp| Address { name: "server".to_owned(), tcp: Some(tcp) });
    let peers: Vec<_> = nodes.iter().zip(addresses).map(|(node, to)| (node.peer(to), "d0".to_owned())).collect();
    let client = Client::new("bench").unwrap();

    for (name, size, in_flight, stores) in WORK {
        let data: Vec<u8> = (0..size as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
        let (xxh3, body) = (swiftlet_hash::xxh3_64(&data), Chunk::from(data));
        client.put(&peers[0..1], &put(0, &body, xxh3), &body, TIMEOUT);
        let mut stored = 0;
        let mut found: [Vec<[f64; 4]>; 3] = Default::default();
        for _ in 0..rounds {
            for (way, peer) in peers.iter().enumerate() {
                let next = || {
                    stored += 1;
                    match stores {
                        true => (put(stored, &body, xxh3), Some(body.clone())),
                        false => (
                            Request::Get { key: key(size, 0), start: 0, stop: u64::MAX, whole: 0, proved: false },
                            None,
                        ),
                    }
                };
                found[way].push(drive(&client, (peer, &child), (in_flight, span), next));
            }
        }
        let both = |[count, caller, server, _]: &[f64; 4]| (caller + server) / count * 1e6;
        for (way, runs) in WAYS.iter().zip(&found) {
            let tell = |unit: &str, values: Vec<f64>| measured::tell(&format!("{name}, {way}"), unit, &values);
            tell("requests/s", runs.iter().map(|run| run[0] / run[3]).collect());
            tell("CPU µs each, caller", runs.iter().map(|run| run[1] / run[0] * 1e6).collect());
            tell("CPU µs each, server", runs.iter().map(|run| run[2] / run[0] * 1e6).collect());
            // Of rounds next to each other: what the machine does besides changes from minute to minute.
            tell("of the CPU of bare", runs.iter().zip(&found[0]).map(|(run, bare)| both(run) / both(bare)).collect());
        }
    }
    drop(child.stdin.take());
    child.wait().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
}
