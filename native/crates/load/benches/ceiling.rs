//! What the generator itself can do and costs, and how exact it is. `cargo bench -p swiftlet-load`.
//!
//! The server of the first part answers at once, from threads that do nothing else, with what was stored; that of the
//! second after known delays, which it waits for by sleeping until a moment, so that only what it is late itself is added
//! to them. Ends with an error when a 99th percentile is off by 5 % or more.

#![allow(clippy::unwrap_used, reason = "a measurement that can't be made is no measurement")]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

#[path = "../../../benches/measured.rs"]
mod measured;

use rustix::time::{ClockId, clock_gettime};
use swiftlet_load::sizes::{Size, Sizes};
use swiftlet_load::{Api, Kind, Length, Load, Measure, Order, Outcome, Pace, Pause, Phase, Plan, Target};

const S: u64 = 1_000_000_000;
const SECONDS: u64 = 4;
const ROUNDS: usize = 1;
/// By how many percent the 99th percentile may differ from the delays that the server had.
const LIMIT: f64 = 5.0;
/// Sizes of objects with their names, and connections.
const SIZES: [(u64, &str, usize); 5] = [
    (100, "100 bytes", 20),
    (10 << 10, "10 KiB", 20),
    (100 << 10, "100 KiB", 20),
    (1 << 20, "1 MiB", 8),
    (100 << 20, "100 MiB", 1),
];
const AT_ONCE: Pace = Pace::Closed(Pause::Even(0));

/// Answers to GET, by path.
type Kept = Arc<Mutex<HashMap<String, Arc<Vec<u8>>>>>;

/// Serve PUT and GET of what was put; what is put when nothing is kept, is read and forgotten.
fn serve(keeps: bool, delay: fn(u64) -> Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let kept = keeps.then(Kept::default);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, kept) = (stream.unwrap(), kept.clone());
            thread::spawn(move || talk(stream, kept.as_ref(), delay));
        }
    });
    address
}

fn talk(mut stream: TcpStream, kept: Option<&Kept>, delay: fn(u64) -> Duration) {
    stream.set_nodelay(true).unwrap();
    let (mut buffer, mut filled, mut number) = (vec![0; 1 << 20], 0, 0);
    while let Ok(size @ 1..) = stream.read(&mut buffer[filled..]) {
        let came = Instant::now();
        filled += size;
        let Some(end) = buffer[..filled].windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = str::from_utf8(&buffer[..end]).unwrap();
        let (method, path) =
            head.split_once(' ').map(|(method, rest)| (method, rest.split(' ').next().unwrap())).unwrap();
        let answer = if method == "GET" {
            Arc::clone(&kept.unwrap().lock().unwrap()[path])
        } else {
            let (length, path) = (length(head), path.to_owned());
            let mut body = buffer[end + 4..filled].to_vec();
            if !receive(&mut stream, &mut buffer, length, &mut body, kept.is_some()) {
                return;
            }
            if let Some(kept) = kept {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nX-Trans-Id: tx0\r\n\r\n");
                kept.lock().unwrap().insert(path, Arc::new([head.as_bytes(), &body].concat()));
            }
            Arc::new(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\nX-Trans-Id: tx0\r\n\r\n".to_vec())
        };
        filled = 0;
        number += 1;
        let wanted = delay(number);
        if !wanted.is_zero() {
            thread::sleep(wanted.saturating_sub(came.elapsed()));
        }
        if stream.write_all(&answer).is_err() {
            return;
        }
    }
}

/// Receive the rest of a body, of which the beginning is there; false when it does not come.
fn receive(stream: &mut TcpStream, buffer: &mut [u8], length: usize, body: &mut Vec<u8>, keeps: bool) -> bool {
    let mut left = length.saturating_sub(body.len());
    while left > 0 {
        let most = left.min(buffer.len());
        match stream.read(&mut buffer[..most]) {
            Ok(size @ 1..) => {
                if keeps {
                    body.extend_from_slice(&buffer[..size]);
                }
                left -= size;
            }
            _ => return false,
        }
    }
    true
}

fn length(head: &str) -> usize {
    let line = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    line.map_or(0, |value| value.parse().unwrap())
}

fn plan(address: SocketAddr, kind: Kind, size: u64, verify: f64) -> Plan {
    let path = "/v1/AUTH_bench".to_owned();
    Plan {
        target: Target {
            api: Api::Swift,
            addresses: vec![address],
            host: "bench".to_owned(),
            path,
            headers: Vec::new(),
            trust: None,
        },
        prefix: "bench".to_owned(),
        containers: 1,
        sizes: Sizes::new(&[(1.0, Size::Fixed(size))]).unwrap(),
        mix: vec![(kind, 1.0)],
        page: 1000,
        seed: 1,
        verify,
        timeout: 60 * S,
        threads: 1,
    }
}

/// What a part of a measurement took.
struct Cost {
    outcome: Outcome,
    /// Processor time of the server, in seconds.
    server_s: f64,
}

fn run(load: &Load, connections: usize, phase: Phase) -> Cost {
    let before = process_cpu_s();
    load.begin(Order { connections, phase }).unwrap();
    while !load.wait(Duration::from_secs(1)) {}
    let outcome = load.finish().unwrap();
    assert_eq!(outcome.tally.failed(), 0, "{:?}", outcome.tally.operations);
    let server_s = process_cpu_s() - before - outcome.cpu_s;
    Cost { outcome, server_s }
}

fn process_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn measure(plan: Plan, connections: usize, pace: Pace, warm_up: u64) -> Cost {
    let objects = if plan.sizes.of(1, 0) > 1 << 20 { 1 } else { 50 };
    let load = Load::new(plan).unwrap();
    run(&load, 1, Phase::Fill(objects));
    run(&load, connections, Phase::Measure(Measure { warm_up, length: Length::Time(SECONDS * S), pace }))
}

/// Operations per second, processor time of each, and its share of the server's.
fn ceiling(kind: Kind, verify: f64, what: &str) {
    for (size, name, connections) in SIZES {
        let (mut rates, mut costs, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..measured::rounds(ROUNDS) {
            let address = serve(kind == Kind::Read, |_| Duration::ZERO);
            let Cost { outcome, server_s } = measure(plan(address, kind, size, verify), connections, AT_ONCE, 0);
            let found = &outcome.tally.operations[&kind];
            rates.push(found.ended as f64 / (outcome.tally.window as f64 / 1e9));
            costs.push(outcome.cpu_s * 1e6 / found.succeeded as f64);
            shares.push(outcome.cpu_s / server_s * 100.0);
        }
        let what = format!("{what} {name}, {connections} clients");
        measured::tell(&what, "op/s", &rates);
        measured::tell(&what, "CPU µs each", &costs);
        measured::tell(&what, "% of the server's CPU", &shares);
    }
}

fn main() {
    ceiling(Kind::Create, 1.0, "PUT");
    ceiling(Kind::Read, 1.0, "GET, all compared,");
    ceiling(Kind::Read, 0.1, "GET, a tenth compared,");
    let mut is_exact = true;
    // Of every fifty answers of a connection, one takes 60 ms, the others 5 ms.
    let delay = |number: u64| Duration::from_millis(if number.is_multiple_of(50) { 60 } else { 5 });
    let paces = [("closed loop", AT_ONCE), ("open loop, 400/s", Pace::Open(Pause::Random(S / 400)))];
    for (name, pace) in paces {
        let address = serve(true, delay);
        let one = || measure(plan(address, Kind::Read, 100, 1.0), 16, pace, S / 2).outcome;
        let rounds: Vec<Outcome> = (0..measured::rounds(ROUNDS)).map(|_| one()).collect();
        for (share, real) in [(0.5, 5.0), (0.99, 60.0)] {
            let error = |outcome: &Outcome| {
                let found = outcome.tally.operations[&Kind::Read].latency.quantile(share) as f64 / 1e6;
                (found / real - 1.0) * 100.0
            };
            let errors: Vec<f64> = rounds.iter().map(error).collect();
            measured::tell(&format!("{name}, quantile {share} of {real} ms, too long by"), "%", &errors);
            is_exact &= share < 0.99 || median(errors).abs() < LIMIT;
        }
    }
    if !is_exact {
        eprintln!("error: a 99th percentile is off by {LIMIT} % or more; measure again on a quieter machine");
        std::process::exit(1);
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
