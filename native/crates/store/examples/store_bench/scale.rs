//! What operations cost by the number of objects on a device, for `bench/scale`: a line of JSON for each number.

use std::path::Path;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use swiftlet_store::model::Key;

use super::{SMALL, WRITERS, bytes, footer, key, meta, open, resident_bytes};

/// Operations of each kind whose times are taken.
const WRITES: u64 = 4_000;
const READS: u64 = 40_000;
/// Numbers of objects from here on are those of puts that are measured.
const MEASURED: u64 = 1 << 40;

/// Put objects without data until there are as many as `count` says, from as many as there are; measure operations.
///
/// Keys have the partitions of a ring of that part power. What the store has to write of its index is written before
/// operations are measured, so that their processor time is their own.
pub(crate) fn measure(root: &Path, part_power: u32, from: u64, count: u64) {
    let store = open(root);
    let data = bytes(SMALL);
    let keyed = |number| ring_key(number, part_power);
    let (begun, cpu) = (Instant::now(), processor_seconds());
    super::put_each(&store, from..count, keyed);
    let (filled, filled_cpu) = (begun.elapsed().as_secs_f64(), processor_seconds() - cpu);
    store.checkpoint().unwrap();
    let objects = store.usage().unwrap().objects;
    let first = MEASURED + (count << 16);
    let numbered = |number| first + number;
    let kinds = [
        by_writers("put", |number| {
            let meta = meta(numbered(number), 1 << 40);
            store.put(keyed(numbered(number)), &meta, &footer(&data), data.clone()).unwrap();
        }),
        by_reader("get", |at| {
            let object = store.get(&keyed(numbered(at * 7919 % WRITES))).unwrap();
            assert_eq!(object.bytes().unwrap().len(), SMALL);
        }),
        by_reader("stat", |at| drop(store.stat(&keyed(at.wrapping_mul(0x9e37_79b9) % count)).unwrap())),
        by_writers("delete", |number| {
            assert!(store.delete(keyed(numbered(number)), 1 << 41, Vec::new()).unwrap());
        }),
    ];
    store.checkpoint().unwrap();
    store.close().unwrap();
    println!(
        "{{\"objects\":{objects},\"fill_s\":{filled:.6},\"fill_cpu_s\":{filled_cpu:.6},\"operations\":[{}]}}",
        kinds.join(",")
    );
}

/// Open a store, and tell what that took, and what the process has grown by.
pub(crate) fn start(root: &Path) {
    let before = resident_bytes();
    let (begun, cpu) = (Instant::now(), processor_seconds());
    let store = open(root);
    let (opened, opened_cpu) = (begun.elapsed().as_secs_f64(), processor_seconds() - cpu);
    let resident = resident_bytes().saturating_sub(before);
    println!("{{\"open_s\":{opened:.6},\"open_cpu_s\":{opened_cpu:.6},\"resident_bytes\":{resident}}}");
    store.close().unwrap();
}

/// The key of the object with this number, as a ring of this part power has it.
fn ring_key(number: u64, part_power: u32) -> Key {
    let found = key(number);
    let digest = found.digest;
    let top = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
    Key { partition: top >> (32 - part_power), ..found }
}

/// A kind of operation by many writers at a time.
fn by_writers(name: &str, operation: impl Fn(u64) + Sync) -> String {
    let (begun, cpu) = (Instant::now(), processor_seconds());
    let each = WRITES / WRITERS;
    let times = std::thread::scope(|scope| {
        let operation = &operation;
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || timed_each(writer * each..(writer + 1) * each, operation)))
            .collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    told(name, times, begun.elapsed().as_secs_f64(), processor_seconds() - cpu)
}

/// A kind of operation by one thread.
fn by_reader(name: &str, operation: impl Fn(u64)) -> String {
    let (begun, cpu) = (Instant::now(), processor_seconds());
    let times = timed_each(0..READS, &operation);
    told(name, times, begun.elapsed().as_secs_f64(), processor_seconds() - cpu)
}

fn timed_each(numbers: std::ops::Range<u64>, operation: &impl Fn(u64)) -> Vec<f64> {
    let mut times = Vec::with_capacity((numbers.end - numbers.start) as usize);
    for number in numbers {
        let begun = Instant::now();
        operation(number);
        times.push(begun.elapsed().as_secs_f64());
    }
    times
}

fn told(name: &str, mut times: Vec<f64>, seconds: f64, cpu: f64) -> String {
    times.sort_by(f64::total_cmp);
    let count = times.len();
    let quantile = |share: f64| times[((count as f64 * share).ceil() as usize).clamp(1, count) - 1];
    format!(
        "{{\"operation\":\"{name}\",\"per_second\":{:.3},\"p50_s\":{:.9},\"p99_s\":{:.9},\"cpu_s\":{:.9}}}",
        count as f64 / seconds,
        quantile(0.5),
        quantile(0.99),
        cpu / count as f64
    )
}

/// Processor time of this process so far, to the nanosecond.
fn processor_seconds() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
