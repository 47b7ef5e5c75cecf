//! How many grants one thread signs, and checks when it sees them for the first time: `grants_bench [SECONDS]`.
#![allow(clippy::unwrap_used, reason = "a tool for people, who see what went wrong")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use swiftlet_wire::guest::{Grant, Operations, Scope};
use swiftlet_wire::handshake::Key;

fn rate(seconds: f64, mut work: impl FnMut()) -> f64 {
    let (begun, length) = (Instant::now(), Duration::from_secs_f64(seconds));
    let mut times = 0_u64;
    while begun.elapsed() < length {
        (0..100).for_each(|_| work());
        times += 100;
    }
    times as f64 / begun.elapsed().as_secs_f64()
}

fn main() {
    let seconds = std::env::args().nth(1).map_or(2.0, |text| text.parse().unwrap());
    let keys = [Key::new(&[7; 32]), Key::new(&[8; 32])];
    let grant = Grant {
        session: [7; 16],
        issued_ms: 1000,
        ends_ms: 61_000,
        policy: 3,
        part_power: 10,
        operations: Operations::GET,
        rows: 7,
        object_bytes: 5 << 30,
        slice_objects: 100,
        slice_bytes: 1 << 30,
        account: "AUTH_of_somebody".to_owned(),
        container: "training-data".to_owned(),
        scope: Scope::Prefix("2026/11/".to_owned()),
    };
    let signed = grant.sign(&keys[0]).unwrap();
    let signs = rate(seconds, || drop(black_box(black_box(&grant).sign(&keys[0]))));
    let checks = rate(seconds, || drop(black_box(Grant::verify(&keys, black_box(&signed)))));
    println!("{} bytes; signed {signs:.0}/s, checked {checks:.0}/s", signed.len());
}
