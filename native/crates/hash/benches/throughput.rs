//! How fast one core digests: `cargo bench -p swiftlet-hash`.

use std::hint::black_box;
use std::time::Instant;

#[path = "../../../benches/measured.rs"]
mod measured;

use swiftlet_hash::{Digests, Hasher, md5, xxh3_64, xxh3_128};

const BUFFER_BYTES: usize = 64 << 20;
const ROUNDS: usize = 5;

fn measure(name: &str, mut digest: impl FnMut()) {
    let rates = (0..measured::rounds(ROUNDS)).map(|_| {
        let start = Instant::now();
        digest();
        BUFFER_BYTES as f64 / start.elapsed().as_secs_f64() / 1e9
    });
    measured::tell(name, "GB/s", &rates.collect::<Vec<_>>());
}

fn main() {
    let data: Vec<u8> = (0..BUFFER_BYTES).map(|at| (at % 251) as u8).collect();
    measure("md5", || {
        black_box(md5(black_box(&data)));
    });
    measure("xxh3_64", || {
        black_box(xxh3_64(black_box(&data)));
    });
    measure("xxh3_128", || {
        black_box(xxh3_128(black_box(&data)));
    });
    measure("xxh3 stream", || {
        let mut hasher = Hasher::new(Digests { md5: false, xxh3: true });
        hasher.update(black_box(&data));
        black_box(hasher.xxh3_64());
    });
    measure("md5 + xxh3", || {
        let mut hasher = Hasher::new(Digests::ALL);
        hasher.update(black_box(&data));
        black_box((hasher.md5(), hasher.xxh3_64()));
    });
}
