//! Measures the speed of a store, beside that of the disk in the same run. `bench/store/run.sh` runs it,
//! `bench/RESULTS.md` has the results.
//!
//!     store_bench DIRECTORY puts|gets|large|flat|fill FROM TO [BEHIND]|open|scale PART_POWER FROM TO|start
#![allow(clippy::unwrap_used, reason = "a benchmark that fails has nothing to say")]

#[path = "../../../../benches/measured.rs"]
mod measured;
mod scale;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use swiftlet_store::model::{Footer, Key, PutMeta};
use swiftlet_store::{Config, Store};

const SMALL: usize = 10 * 1024;
const WRITERS: u64 = 20;

fn key(number: u64) -> Key {
    let digest = swiftlet_hash::xxh3_128(&number.to_be_bytes()).to_be_bytes();
    // The top ten bits of a digest, as a ring of part power 10 would have it.
    Key { policy: 0, partition: u32::from(u16::from_be_bytes([digest[0], digest[1]])) >> 6, digest }
}

fn meta(number: u64, timestamp: u64) -> PutMeta {
    PutMeta {
        name: format!("/AUTH_test/container/object-{number}").into_bytes(),
        timestamp,
        content_type: b"application/octet-stream".to_vec(),
        ..PutMeta::default()
    }
}

fn footer(data: &[u8]) -> Footer {
    Footer {
        size: data.len() as u64,
        etag: b"5d41402abc4b2a76b9719d911017c592".to_vec(),
        xxh3: swiftlet_hash::xxh3_64(data),
    }
}

fn bytes(size: usize) -> Vec<u8> {
    (0..size as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn open(root: &Path) -> Store {
    std::fs::create_dir_all(root).unwrap();
    Store::open(root, Config::default()).unwrap()
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Durable puts by many writers; puts per second, and records per sync.
fn timed_puts(store: &Store, span: Duration, round: u64) -> (f64, f64) {
    let data = bytes(SMALL);
    let count = AtomicU64::new(0);
    let synced = store.counters().batches.load(Ordering::Relaxed);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (data, count) = (&data, &count);
            scope.spawn(move || {
                let mut number = writer << 40 | round << 32;
                while begun.elapsed() < span {
                    number += 1;
                    store.put(key(number), &meta(number, 1 << 40), &footer(data), data.clone()).unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (done, span) = (count.load(Ordering::Relaxed) as f64, begun.elapsed().as_secs_f64());
    (done / span, done / (store.counters().batches.load(Ordering::Relaxed) - synced) as f64)
}

/// What the disk does: append as many bytes as a batch has, sync, again.
fn timed_appends(root: &Path, span: Duration, group: usize) -> f64 {
    let file = File::create(root.join("appended")).unwrap();
    let data = bytes(SMALL);
    let (mut offset, mut groups) = (0, 0_u64);
    let begun = Instant::now();
    while begun.elapsed() < span {
        for _ in 0..group {
            file.write_all_at(&data, offset).unwrap();
            offset += SMALL as u64;
        }
        file.sync_data().unwrap();
        groups += 1;
    }
    let rate = (groups * group as u64) as f64 / begun.elapsed().as_secs_f64();
    std::fs::remove_file(root.join("appended")).unwrap();
    rate
}

fn puts(root: &Path) {
    let store = open(root);
    let (mut rates, mut ratios) = (Vec::new(), Vec::new());
    for round in 0..measured::rounds(5) as u64 {
        let (rate, group) = timed_puts(&store, Duration::from_secs(3), round);
        let loop_rate = timed_appends(root, Duration::from_secs(3), group.round() as usize);
        rates.push(rate);
        ratios.push(rate / loop_rate);
        println!(
            "puts {rate:8.0}/s, {group:4.1} a sync; append and fdatasync {loop_rate:8.0}/s; ratio {:.2}",
            rate / loop_rate
        );
    }
    println!("median ratio {:.2}", median(ratios.clone()));
    measured::tell("durable puts of 10 KiB, 20 writers", "1/s", &rates);
    measured::tell("the same by appending and fdatasync", "times", &ratios);
}

/// Operations per second, on the clock and of this thread's processor time.
fn timed(span: Duration, mut operation: impl FnMut(u64)) -> (f64, f64) {
    let (begun, cpu) = (Instant::now(), thread_seconds());
    let mut count = 0;
    while begun.elapsed() < span {
        for _ in 0..100 {
            count += 1;
            operation(count);
        }
    }
    (count as f64 / begun.elapsed().as_secs_f64(), count as f64 / (thread_seconds() - cpu))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Store objects of 10 KiB.
fn put_small(store: &Store, numbers: std::ops::Range<u64>) {
    let data = bytes(SMALL);
    for number in numbers.clone() {
        let done: swiftlet_store::Done = Box::new(|done| assert!(done.unwrap()));
        store.submit_put(key(number), &meta(number, 1 << 40), &footer(&data), data.clone(), done);
    }
    store.put(key(numbers.end), &meta(numbers.end, 1 << 40), &footer(&data), data).unwrap();
}

fn gets(root: &Path) {
    let store = open(root);
    let objects = 10_000;
    put_small(&store, 0..objects);
    let file = File::open(root.join("volumes/00000001")).unwrap();
    let mut buffer = vec![0; SMALL];
    let mut all = Vec::new();
    for _ in 0..measured::rounds(15) {
        let (rate, cpu) = timed(Duration::from_millis(400), |count| {
            let object = store.get(&key(count.wrapping_mul(7919) % objects)).unwrap();
            assert_eq!(object.bytes().unwrap().len(), SMALL);
        });
        let (plain, plain_cpu) = timed(Duration::from_millis(400), |count| {
            file.read_exact_at(&mut buffer, 4096 + count.wrapping_mul(7919) % objects * SMALL as u64).unwrap();
            std::hint::black_box(swiftlet_hash::xxh3_64(&buffer));
        });
        println!(
            "gets {rate:8.0}/s, {cpu:8.0} per second of processor; pread and xxh3 alone {plain:8.0}/s, {plain_cpu:8.0}"
        );
        all.push((cpu, plain_cpu));
    }
    let (store_cpu, plain_cpu) =
        (median(all.iter().map(|one| one.0).collect()), median(all.iter().map(|one| one.1).collect()));
    println!("medians per second of processor: gets {store_cpu:.0}, alone {plain_cpu:.0}");
    let each = |of: fn(&(f64, f64)) -> f64| all.iter().map(of).collect::<Vec<f64>>();
    measured::tell("gets of 10 KiB from page cache, checked, one thread", "1/s of processor", &each(|one| one.0));
    measured::tell("pread and xxh3 of as many bytes", "1/s of processor", &each(|one| one.1));
}

/// Send a part of a file into a socket, as the kernel does it.
fn send_all(socket: &std::os::unix::net::UnixStream, file: &impl std::os::fd::AsFd, mut offset: u64, mut left: u64) {
    while left > 0 {
        let sent = rustix::fs::sendfile(socket, file, Some(&mut offset), left as usize).unwrap();
        assert!(sent > 0, "the file ends too soon");
        left -= sent as u64;
    }
}

/// How long `send` takes to bring so many bytes to somebody who reads them; seconds on the clock and of the processor.
fn drained(size: u64, send: impl FnOnce(&std::os::unix::net::UnixStream)) -> (f64, f64) {
    let (here, mut there) = std::os::unix::net::UnixStream::pair().unwrap();
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut buffer = vec![0; 1 << 20];
            let mut left = size;
            while left > 0 {
                let read = std::io::Read::read(&mut there, &mut buffer).unwrap();
                assert!(read > 0, "too little was sent");
                left -= read as u64;
            }
        });
        send(&here);
    });
    (begun.elapsed().as_secs_f64(), cpu_seconds() - cpu)
}

fn large(root: &Path) {
    let store = open(root);
    let piece = bytes(1 << 20);
    let pieces = 512_u64;
    let size = pieces << 20;
    let mut hasher = swiftlet_hash::Hasher::new(swiftlet_hash::Digests { md5: false, xxh3: true });
    (0..pieces).for_each(|_| hasher.update(&piece));
    let footer = Footer { size, etag: Vec::new(), xxh3: hasher.xxh3_64().unwrap() };
    let (mut writes, mut reads, mut sends, mut sends_cpu) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..measured::rounds(7) as u64 {
        let written = || {
            let begun = Instant::now();
            let mut writer = store.create(key(round), Some(size), None).unwrap();
            (0..pieces).for_each(|_| writer.write(&piece).unwrap());
            writer.commit(&meta(round, 1 << 40), &footer).unwrap();
            begun.elapsed().as_secs_f64()
        };
        let plain = || {
            let begun = Instant::now();
            let mut plain = File::create(root.join("plain")).unwrap();
            (0..pieces).for_each(|_| plain.write_all(&piece).unwrap());
            plain.sync_data().unwrap();
            begun.elapsed().as_secs_f64()
        };
        // In turns: whoever comes second writes while the disk still has the first one's.
        let (stored, disk) = if round % 2 == 0 {
            let stored = written();
            (stored, plain())
        } else {
            let disk = plain();
            (written(), disk)
        };
        let file = File::open(root.join("plain")).unwrap();
        let object = store.get(&key(round)).unwrap();
        let range = object.range().unwrap().unwrap();
        let (mut buffer, begun) = (vec![0; 1 << 20], Instant::now());
        (0..pieces).for_each(|at| file.read_exact_at(&mut buffer, at << 20).unwrap());
        let plain_read = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        (0..pieces).for_each(|at| drop(object.read(at << 20, 1 << 20).unwrap()));
        let checked = begun.elapsed().as_secs_f64();
        let (plain_sent, plain_cpu) = drained(size, |socket| send_all(socket, &file, 0, size));
        let (sent, sent_cpu) = drained(size, |socket| send_all(socket, &range.file, range.offset, range.len));
        println!(
            "write: store {:.2} GB/s, plain file {:.2} GB/s; read, checked {:.2}, plain {:.2}; sendfile {:.2}, plain {:.2}",
            gb(size, stored),
            gb(size, disk),
            gb(size, checked),
            gb(size, plain_read),
            gb(size, sent),
            gb(size, plain_sent)
        );
        writes.push(disk / stored);
        reads.push(plain_read / checked);
        sends.push(plain_sent / sent);
        sends_cpu.push(plain_cpu / sent_cpu);
        std::fs::remove_file(root.join("plain")).unwrap();
        store.delete(key(round), 1 << 41, Vec::new()).unwrap();
    }
    println!(
        "median ratios: write {:.2}, read and checked {:.2}, sendfile {:.2}, sendfile by processor time {:.2}",
        median(writes.clone()),
        median(reads.clone()),
        median(sends.clone()),
        median(sends_cpu.clone())
    );
    measured::tell("512 MiB written, by a plain file", "times", &writes);
    measured::tell("512 MiB read and checked, by pread", "times", &reads);
    measured::tell("512 MiB by sendfile, by a plain file's", "times", &sends);
    measured::tell("the same, by processor time", "times", &sends_cpu);
}

/// The same operations on a store with few objects and on one with many, in turn.
fn flat(root: &Path) {
    let (sizes, read) = ([10_000, 1_000_000], 1 << 50);
    let stores = sizes.map(|size| {
        let store = open(&root.join(size.to_string()));
        put_many(&store, 0..size);
        put_small(&store, read..read + 1000);
        store
    });
    let mut costs: [[Vec<f64>; 3]; 2] = Default::default();
    for round in 0..measured::rounds(9) as u64 {
        for (at, store) in stores.iter().enumerate() {
            let (puts, _) = timed_puts(store, Duration::from_secs(2), round);
            let (gets, gets_cpu) = timed(Duration::from_millis(500), |count| {
                let object = store.get(&key(read + count.wrapping_mul(7919) % 1000)).unwrap();
                assert_eq!(object.bytes().unwrap().len(), SMALL);
            });
            let (_, stats_cpu) = timed(Duration::from_millis(500), |count| {
                drop(store.stat(&key(count.wrapping_mul(7919) % sizes[at])).unwrap());
            });
            println!("{:8} objects: durable puts {puts:6.0}/s, gets {gets:7.0}/s", sizes[at]);
            for (all, one) in costs[at].iter_mut().zip([1e6 / puts, 1e6 / gets_cpu, 1e6 / stats_cpu]) {
                all.push(one);
            }
        }
    }
    let [few, many] = costs.map(|costs| costs.map(median));
    for (what, (few, many)) in
        ["durable put, of the clock", "get, of processor", "stat, of processor"].iter().zip(few.iter().zip(&many))
    {
        println!("{what}: {few:.2} us with {}, {many:.2} us with {}: {:.2}", sizes[0], sizes[1], many / few);
        measured::tell(&format!("{what}, 1,000,000 objects by 10,000"), "times", &[many / few]);
    }
    std::process::exit(0);
}

fn gb(size: u64, seconds: f64) -> f64 {
    size as f64 / seconds / 1e9
}

/// Processor time of this thread so far, to the nanosecond.
fn thread_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// Processor time of this process so far; other processes' load leaves it alone, mostly.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

/// Put so many small objects, many under way at once.
fn put_many(store: &Store, numbers: std::ops::Range<u64>) {
    put_each(store, numbers, key);
}

/// Put small objects with keys of these numbers, many under way at once.
fn put_each(store: &Store, numbers: std::ops::Range<u64>, key: impl Fn(u64) -> Key) {
    let waiting = Arc::new(AtomicU64::new(0));
    for number in numbers {
        while waiting.load(Ordering::Acquire) > 2048 {
            std::thread::sleep(Duration::from_micros(200));
        }
        waiting.fetch_add(1, Ordering::AcqRel);
        let left = Arc::clone(&waiting);
        let done = Box::new(move |done: swiftlet_store::Result<bool>| {
            done.unwrap();
            left.fetch_sub(1, Ordering::AcqRel);
        });
        store.submit_put(key(number), &meta(number, 1 << 40), &footer(b""), Vec::new(), done);
    }
    while waiting.load(Ordering::Acquire) > 0 {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Put small objects until there are so many; what a put and a stat cost on the way. Ends without closing.
fn fill(root: &Path, from: u64, to: u64, behind: u64) {
    let before = resident_bytes();
    let store = open(root);
    let mut reached = from;
    for next in [10_000, 100_000, 1_000_000, 2_000_000, 4_000_000, 6_000_000, 8_000_000, 10_000_000] {
        if next > reached && next <= to {
            let extra = 1 << 40 | next << 20;
            put_many(&store, reached..next);
            reached = next;
            let begun = cpu_seconds();
            put_many(&store, extra..extra + 100_000);
            let puts = (cpu_seconds() - begun) * 10.0;
            let begun = cpu_seconds();
            (0..200_000).for_each(|at| drop(store.stat(&key(at * 7919 % reached)).unwrap()));
            let stats = (cpu_seconds() - begun) * 5.0;
            let objects = store.usage().unwrap().objects;
            let memory = resident_bytes().saturating_sub(before) as f64 / objects as f64;
            println!(
                "{objects:9} objects: put {puts:5.2} us, stat {stats:5.2} us of processor; {memory:5.1} bytes resident each"
            );
            std::io::stdout().flush().unwrap();
        }
    }
    let begun = Instant::now();
    store.checkpoint().unwrap();
    println!("checkpoint: {:.1} s", begun.elapsed().as_secs_f64());
    put_many(&store, (1 << 60 | to << 20)..(1 << 60 | to << 20) + behind);
    // As a crash would: nothing is closed, and so many records lie behind the checkpoint.
    std::process::exit(0);
}

fn reopen(root: &Path) {
    let before = resident_bytes();
    let begun = Instant::now();
    let store = open(root);
    let span = begun.elapsed().as_secs_f64();
    let objects = store.usage().unwrap().objects;
    let memory = (resident_bytes() - before) as f64 / objects as f64;
    let (cpu, recovery, volumes) = (cpu_seconds(), store.recovery(), store.volumes().len());
    println!("opened in {span:.2} s, {cpu:.2} s of processor: {objects} objects, {recovery:?}");
    println!("{memory:.1} bytes resident each; {volumes} volumes");
    let (records, megabytes) = (recovery.records, recovery.bytes / 1_000_000);
    let start = format!("start with {objects} objects, {records} records ({megabytes} MB) behind the checkpoint");
    measured::tell(&start, "s", &[span]);
    measured::tell("the same, of processor", "s", &[cpu]);
    measured::tell(&format!("memory with {objects} objects, each"), "bytes", &[memory]);
    measured::tell(&format!("volumes with {objects} objects"), "files", &[volumes as f64]);
    std::process::exit(0);
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let root = Path::new(&arguments[1]);
    match arguments[2].as_str() {
        "puts" => puts(root),
        "gets" => gets(root),
        "large" => large(root),
        "flat" => flat(root),
        "fill" => {
            let behind = arguments.get(5).map_or(200_000, |behind| behind.parse().unwrap());
            fill(root, arguments[3].parse().unwrap(), arguments[4].parse().unwrap(), behind);
        }
        "open" => reopen(root),
        "scale" => {
            let number = |at: usize| arguments[at].parse::<u64>().unwrap();
            scale::measure(root, arguments[3].parse().unwrap(), number(4), number(5));
        }
        "start" => scale::start(root),
        other => panic!("what is {other}?"),
    }
}
