//! What it costs to take rows: processor time of the whole process, for messages of several sizes.
//!
//!     cargo run --release -p swiftlet-updates --example updates_bench [DIRECTORY]
//!
//! One thread submits rows with new names, at most 64 messages or 5,000 rows at a time, and folds every 5,000 rows (without a
//! database). The journal is in the directory, by default the system's for temporary files.

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use swiftlet_updates::{Config, Database, Row, Updates};

const ROWS: usize = 400_000;
const FOLD: usize = 5000;
const OPEN: usize = 64;

fn processor() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// So many rows with names that are not in order, as those of clients.
fn rows(first: usize, count: usize) -> Vec<u8> {
    let mut raw = Vec::new();
    for number in first..first + count {
        let name = format!("photos/2026/{:016x}.jpg", (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let etag = "d41d8cd98f00b204e9800998ecf8427e";
        let content_type = "application/octet-stream";
        let row = Row { name: &name, timestamp: number as u64, size: 10_240, etag, content_type, deleted: false };
        row.encode(&mut raw).expect("short texts");
    }
    raw
}

fn main() {
    let root = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    for count in [1, 10, 100, 1000] {
        let directory = root.join(format!("swiftlet-updates-bench-{}", std::process::id()));
        let updates = Updates::open(&directory, Config::default()).expect("a directory");
        let database = Database::new(1, "AUTH_test", "photos");
        updates.open_database(database.clone());
        let messages: Vec<_> = (0..ROWS / count).map(|at| rows(at * count, count)).collect();
        let (tell, told) = mpsc::channel();
        let (begun, used) = (Instant::now(), processor());
        let (mut open, mut held) = (0, 0);
        for message in messages {
            let tell = tell.clone();
            let taken = move |outcome| tell.send(outcome).expect("the main thread");
            updates.submit(database.clone(), Box::new(message), Box::new(taken));
            open += 1;
            if open == OPEN.min(FOLD / count) {
                told.recv().expect("an answer").expect("taken");
                open -= 1;
                held += count;
            }
            if held >= FOLD {
                held = 0;
                drop(updates.take_out(&database));
                updates.folded(&database, true);
                updates.durable_in_databases(updates.mark());
            }
        }
        for _ in 0..open {
            told.recv().expect("an answer").expect("taken");
        }
        let (took, used) = (begun.elapsed(), processor() - used);
        let each = |time: Duration| time.as_secs_f64() * 1e6 / ROWS as f64;
        println!("{count:5} rows per message: {:.2} us of processor, {:.2} us per row", each(used), each(took));
        updates.stop();
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}
