//! What operations cost by the number of objects on a device, for `bench/scale`: a line of JSON for each number.

use std::path::Path;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use swiftlet_store::Store;
use swiftlet_store::model::Key;

use super::{SMALL, WRITERS, bytes, footer, key, meta, open, put_many, resident_bytes};

/// Operations of each kind whose times are taken.
const WRITES: u64 = 4_000;
const READS: u64 = 40_000;
/// Numbers of objects from here on are those of puts that are measured.
const MEASURED: u64 = 1 << 40;

/// Put objects without data until there are as many as each of `counts` says; measure with each.
pub(crate) fn measure(root: &Path, counts: &[u64]) {
    let before = resident_bytes();
    let mut store = open(root);
    let (data, mut reached) = (bytes(SMALL), 0);
    for &count in counts {
        let (begun, cpu) = (Instant::now(), processor_seconds());
        put_many(&store, reached..count);
        let (filled, filled_cpu) = (begun.elapsed().as_secs_f64(), processor_seconds() - cpu);
        let resident = resident_bytes().saturating_sub(before);
        let objects = store.usage().unwrap().objects;
        let first = MEASURED + (count << 16);
        let numbered = |number| first + number;
        let kinds = [
            by_writers("put", |number| {
                let meta = meta(numbered(number), 1 << 40);
                store.put(key(numbered(number)), &meta, &footer(&data), data.clone()).unwrap();
            }),
            by_reader("get", |at| {
                let object = store.get(&key(numbered(at * 7919 % WRITES))).unwrap();
                assert_eq!(object.bytes().unwrap().len(), SMALL);
            }),
            by_reader("stat", |at| drop(store.stat(&key(at.wrapping_mul(0x9e37_79b9) % count)).unwrap())),
            by_writers("delete", |number| {
                assert!(store.delete(key(numbered(number)), 1 << 41, Vec::new()).unwrap());
            }),
        ];
        reached = count;
        store.checkpoint().unwrap();
        store.close().unwrap();
        drop(store);
        let (begun, cpu) = (Instant::now(), processor_seconds());
        store = open(root);
        println!(
            "{{\"objects\":{objects},\"resident_bytes\":{resident},\"fill_s\":{filled:.6},\"fill_cpu_s\":{filled_cpu:.6},\
             \"open_s\":{:.6},\"open_cpu_s\":{:.6},\"operations\":[{}]}}",
            begun.elapsed().as_secs_f64(),
            processor_seconds() - cpu,
            kinds.join(",")
        );
    }
    store.close().unwrap();
}

/// Put so many objects without data, as a ring of this part power has them, and close the store.
pub(crate) fn populate(root: &Path, count: u64, part_power: u32) {
    let store = open(root);
    put_many_keyed(&store, count, part_power);
    store.close().unwrap();
}

fn put_many_keyed(store: &Store, count: u64, part_power: u32) {
    super::put_each(store, 0..count, |number| {
        let found = key(number);
        let digest = found.digest;
        let top = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
        Key { partition: top >> (32 - part_power), ..found }
    });
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
