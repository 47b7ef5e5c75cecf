//! What small requests cost natively: three object servers in processes of their own, one client thread.
//! `bench/dataplane/run.sh` runs it, `bench/RESULTS.md` has what it came to.
//!
//!     dataplane_bench DIRECTORY [SECONDS]
#![allow(clippy::unwrap_used, reason = "a benchmark that fails has nothing to say")]

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[path = "../../../benches/measured.rs"]
mod measured;

use swiftlet_node::message::{Found, Request};
use swiftlet_node::{Client, Limits, Server};
use swiftlet_store::model::{Footer, Key, PutMeta};
use swiftlet_store::{Config as StoreConfig, Store};
use swiftlet_transport::{
    Address, Chunk, Config, Fabric, Handler, Key as ClusterKey, Node, Peer, Pool, TcpAcceptor, TcpFabric, What,
};

const SMALL: usize = 10 * 1024;
const SERVERS: usize = 3;
const IN_FLIGHT: usize = 20;
const ROUNDS: usize = 5;
const PUT: &str = "PUT to 3 servers, all durable";
const GET: &str = "GET, checked at both ends";
const TIMEOUT: Duration = Duration::from_secs(30);

fn config(name: &str) -> Config {
    Config::new(name, "", vec![ClusterKey::new(b"benchmark")], Pool::new(64 << 20).unwrap())
}

/// One server until its standard input ends.
fn serve(directory: &Path, name: &str) {
    std::fs::create_dir_all(directory).unwrap();
    let store = Arc::new(Store::open(directory, StoreConfig::default()).unwrap());
    let devices = [("d0".to_owned(), Ok(Arc::clone(&store)))];
    let server = Arc::new(Server::start(devices, Limits::default()).unwrap());
    let node = Node::start(config(name), &[], Some(Arc::clone(&server) as Arc<dyn Handler>)).unwrap();
    let acceptor = TcpAcceptor::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    println!("{}", acceptor.address().unwrap());
    node.listen(Box::new(acceptor));
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    drop(node);
    server.stop();
    store.close().unwrap();
}

fn start(directory: &Path, name: &str) -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["serve".as_ref(), directory.as_os_str(), name.as_ref()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut address = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
    (child, address.trim().to_owned())
}

/// Seconds of processor time that a process has used.
fn cpu_of(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 2..].split(' ').collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").unwrap().split(' ').next().unwrap().to_owned()
}

fn key(number: u64) -> Key {
    let digest = swiftlet_hash::xxh3_128(&number.to_be_bytes()).to_be_bytes();
    Key { policy: 0, partition: u32::from(u16::from_be_bytes([digest[0], digest[1]])) >> 6, digest }
}

fn put(number: u64, xxh3: u64) -> Request {
    let meta = PutMeta {
        name: format!("/AUTH_test/container/object-{number}").into_bytes(),
        timestamp: 1 << 40,
        content_type: b"application/octet-stream".to_vec(),
        ..PutMeta::default()
    };
    let footer = Footer { size: SMALL as u64, etag: b"5d41402abc4b2a76b9719d911017c592".to_vec(), xxh3 };
    Request::Put { key: key(number), meta, footer: Some(footer), row: 0 }
}

/// Requests per second, processor µs per request here and at the servers, the 50th and 99th percentile in ms.
type Cost = [f64; 5];

/// Keep requests in flight for a time; `next` makes them and chooses their targets.
fn drive(
    client: &Client,
    children: &[Child],
    span: Duration,
    mut next: impl FnMut() -> (Vec<(Peer, String)>, Request, Option<Chunk>),
    check: impl Fn(&[u8], Option<Chunk>),
) -> Cost {
    let processors =
        || -> (f64, f64) { (cpu_of(std::process::id()), children.iter().map(|child| cpu_of(child.id())).sum()) };
    let (begun, before) = (Instant::now(), processors());
    let mut open: HashMap<u64, (usize, Instant)> = HashMap::new();
    let mut latencies = Vec::new();
    loop {
        while open.len() < IN_FLIGHT && begun.elapsed() < span {
            let (targets, request, body) = next();
            let submitted = client.submit(&targets, &request, body.as_ref(), TIMEOUT).unwrap();
            open.insert(submitted.id, (targets.len(), Instant::now()));
        }
        if open.is_empty() {
            break;
        }
        for event in client.wait(TIMEOUT) {
            match event.what {
                What::Reply { status: 0, header, body, whole: true, .. } => {
                    check(&header, body);
                    let left = open.get_mut(&event.id).unwrap();
                    left.0 -= 1;
                    if left.0 == 0 {
                        latencies.push(left.1.elapsed().as_secs_f64() * 1e3);
                        open.remove(&event.id);
                    }
                }
                What::Sent(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    let (after, took, count) = (processors(), begun.elapsed().as_secs_f64(), latencies.len() as f64);
    latencies.sort_by(f64::total_cmp);
    let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize];
    let each = |seconds: f64| seconds / count * 1e6;
    [count / took, each(after.0 - before.0), each(after.1 - before.1), at(0.5), at(0.99)]
}

/// The total rate of three loops that append groups of the same bytes and sync them, per loop.
fn plain(directory: &Path, span: Duration, group: usize) -> f64 {
    let data = vec![7_u8; SMALL * group];
    let counts: Vec<f64> = std::thread::scope(|scope| {
        let data = &data;
        let loops: Vec<_> = (0..SERVERS)
            .map(|at| {
                scope.spawn(move || {
                    let path = directory.join(format!("plain-{at}"));
                    let mut file = File::create(&path).unwrap();
                    let (begun, mut count) = (Instant::now(), 0);
                    while begun.elapsed() < span {
                        file.write_all(data).unwrap();
                        file.sync_data().unwrap();
                        count += group;
                    }
                    std::fs::remove_file(path).unwrap();
                    count as f64 / begun.elapsed().as_secs_f64()
                })
            })
            .collect();
        loops.into_iter().map(|each| each.join().unwrap()).collect()
    });
    counts.iter().sum::<f64>() / SERVERS as f64
}

fn row(name: &str, cost: Cost, load: &str) {
    let [rate, client, servers, half, most] = cost;
    println!("| {name} | {rate:.0} | {client:.0} | {servers:.0} | {half:.2} | {most:.2} | {load} |");
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments[1] == "serve" {
        return serve(Path::new(&arguments[2]), &arguments[3]);
    }
    let directory = Path::new(&arguments[1]).join(format!("dataplane-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let span = Duration::from_secs(arguments.get(2).map_or(4, |seconds| seconds.parse().unwrap()));
    let (mut children, mut targets) = (Vec::new(), Vec::new());
    let node = Node::start(config("client"), &[Arc::new(TcpFabric) as Arc<dyn Fabric>], None).unwrap();
    for at in 0..SERVERS {
        let name = format!("server-{at}");
        let (child, address) = start(&directory.join(&name), &name);
        children.push(child);
        let peer = node.peer(Address { name, tcp: Some(address.parse().unwrap()) });
        targets.push((peer, "d0".to_owned()));
    }
    let client = Client::new("bench").unwrap();
    let data: Vec<u8> = (0..SMALL as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
    let (xxh3, body) = (swiftlet_hash::xxh3_64(&data), Chunk::from(data));
    println!("| 10 KiB, {IN_FLIGHT} in flight | requests/s | CPU µs each, client | servers | p50 ms | p99 ms | load |");
    println!("|---|---|---|---|---|---|---|");
    let (mut stored, mut asked) = (0, 0_u64);
    let (mut puts, mut gets, mut loops) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..measured::rounds(ROUNDS) {
        let cost = drive(
            &client,
            &children,
            span,
            || {
                stored += 1;
                (targets.clone(), put(stored, xxh3), Some(body.clone()))
            },
            |_, _| {},
        );
        row(PUT, cost, &load());
        puts.push(cost);
        let groups = plain(&directory, span / 2, IN_FLIGHT);
        println!("| 3 loops: append {IN_FLIGHT}, `fdatasync` | {groups:.0} | | | | | {} |", load());
        loops.push(groups);
        let cost = drive(
            &client,
            &children,
            span,
            || {
                asked = asked.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let number = 1 + (asked >> 33) % stored;
                let request = Request::Get { key: key(number), start: 0, stop: u64::MAX, whole: 0, proved: true };
                (vec![targets[(asked >> 20) as usize % SERVERS].clone()], request, None)
            },
            |header, body| {
                let found = Found::decode(header).unwrap();
                assert_eq!(found.body_xxh3, body.map(|body| swiftlet_hash::xxh3_64(&body)));
            },
        );
        row(GET, cost, &load());
        gets.push(cost);
    }
    for (name, costs) in [(PUT, &puts), (GET, &gets)] {
        let each = |of: fn(&Cost) -> f64| costs.iter().map(of).collect::<Vec<f64>>();
        measured::tell(name, "1/s", &each(|one| one[0]));
        measured::tell(&format!("{name}, processor time of all"), "µs", &each(|one| one[1] + one[2]));
        measured::tell(&format!("{name}, 99th percentile"), "ms", &each(|one| one[4]));
    }
    measured::tell("append 20 times 10 KiB and fdatasync, each of 3 loops", "1/s", &loops);
    for mut child in children {
        drop(child.stdin.take());
        child.wait().unwrap();
    }
    std::fs::remove_dir_all(&directory).unwrap();
}
