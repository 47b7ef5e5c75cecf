//! What the generator itself can do and costs, and how exact it is. `cargo bench -p swiftlet-load`.
//!
//! The server of the first part answers at once, from threads that do nothing else; that of the second after known
//! delays, which it waits for by sleeping until a moment, so that only what it is late itself is added to them. Ends with
//! an error when a 99th percentile is off by 5 % or more.

#![allow(clippy::unwrap_used, reason = "a measurement that can't be made is no measurement")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

#[path = "../../../benches/measured.rs"]
mod measured;

use swiftlet_load::sizes::{Size, Sizes};
use swiftlet_load::{Api, Kind, Length, Load, Measure, Order, Outcome, Pace, Pause, Phase, Plan, Target};

const S: u64 = 1_000_000_000;
const SECONDS: u64 = 4;
const CONNECTIONS: usize = 16;
const ROUNDS: usize = 1;
/// By how many percent the 99th percentile may differ from the delays that the server had.
const LIMIT: f64 = 5.0;

/// Serve GET with a body of the object's size, PUT, and nothing else: without looking at names.
fn serve(answer: Vec<u8>, delay: fn(u64) -> Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, answer) = (stream.unwrap(), answer.clone());
            thread::spawn(move || talk(stream, &answer, delay));
        }
    });
    address
}

fn talk(mut stream: TcpStream, answer: &[u8], delay: fn(u64) -> Duration) {
    stream.set_nodelay(true).unwrap();
    let (mut buffer, mut filled, mut number) = (vec![0; 1 << 20], 0, 0);
    while let Ok(size @ 1..) = stream.read(&mut buffer[filled..]) {
        let came = Instant::now();
        filled += size;
        let Some(end) = buffer[..filled].windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let mut left = length(&buffer[..end]).saturating_sub(filled - end - 4);
        filled = 0;
        while left > 0 {
            let most = left.min(buffer.len());
            match stream.read(&mut buffer[..most]) {
                Ok(size @ 1..) => left -= size,
                _ => return,
            }
        }
        number += 1;
        let wanted = delay(number);
        if !wanted.is_zero() {
            thread::sleep(wanted.saturating_sub(came.elapsed()));
        }
        if stream.write_all(answer).is_err() {
            return;
        }
    }
}

fn length(head: &[u8]) -> usize {
    let head = str::from_utf8(head).unwrap();
    let line = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    line.map_or(0, |value| value.parse().unwrap())
}

fn plan(address: SocketAddr, kind: Kind, size: u64) -> Plan {
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
        // A server that knows no objects can't answer with their contents.
        verify: false,
        timeout: 60 * S,
        threads: 1,
    }
}

fn run(load: &Load, connections: usize, phase: Phase) -> Outcome {
    load.begin(Order { connections, phase }).unwrap();
    while !load.wait(Duration::from_secs(1)) {}
    load.finish().unwrap()
}

fn measure(plan: Plan, connections: usize, pace: Pace) -> Outcome {
    let load = Load::new(plan).unwrap();
    run(&load, 1, Phase::Fill(100));
    run(&load, connections, Phase::Measure(Measure { warm_up: S / 2, length: Length::Time(SECONDS * S), pace }))
}

fn answer(status: &str, size: u64) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {status}\r\nContent-Length: {size}\r\nX-Trans-Id: tx0\r\n\r\n").into_bytes();
    bytes.resize(bytes.len() + size as usize, 7);
    bytes
}

fn main() {
    for (kind, size) in [
        (Kind::Read, 100),
        (Kind::Read, 10_000),
        (Kind::Read, 4 << 20),
        (Kind::Create, 100),
        (Kind::Create, 10_000),
        (Kind::Create, 4 << 20),
    ] {
        let bytes = if kind == Kind::Read { answer("200 OK", size) } else { answer("201 Created", 0) };
        let address = serve(bytes, |_| Duration::ZERO);
        let (mut rates, mut costs) = (Vec::new(), Vec::new());
        for _ in 0..measured::rounds(ROUNDS) {
            let outcome = measure(plan(address, kind, size), CONNECTIONS, Pace::Closed(Pause::Even(0)));
            let found = &outcome.tally.operations[&kind];
            rates.push(found.ended as f64 / (outcome.tally.window as f64 / 1e9));
            // The processor time is of the warm-up, too.
            let share = SECONDS as f64 / (SECONDS as f64 + 0.5);
            costs.push(outcome.cpu_s * 1e6 / found.succeeded as f64 * share);
        }
        let what = format!("{} {size} bytes, from a server that answers at once", kind.name());
        measured::tell(&what, "op/s", &rates);
        measured::tell(&what, "CPU µs each", &costs);
    }
    let mut is_exact = true;
    // Of every fifty answers of a connection, one takes 60 ms, the others 5 ms.
    let delay = |number: u64| Duration::from_millis(if number.is_multiple_of(50) { 60 } else { 5 });
    let paces =
        [("closed loop", Pace::Closed(Pause::Even(0))), ("open loop, 400/s", Pace::Open(Pause::Random(S / 400)))];
    for (name, pace) in paces {
        let address = serve(answer("200 OK", 100), delay);
        let rounds = (0..measured::rounds(ROUNDS)).map(|_| measure(plan(address, Kind::Read, 100), CONNECTIONS, pace));
        let rounds: Vec<Outcome> = rounds.collect();
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
