//! 200 uploads of 1 GiB at once into one device: both ends together stay within 512 MiB, and what they hold does not grow
//! with what has been sent. A test program of its own: it looks at the memory of the whole process.
//!
//! The device keeps nothing of large files but their length, so that this is about memory alone. Of each body 6 MiB are
//! sent, while all are open; `SWIFTLET_UPLOAD_MIB=1024` sends all of it.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "behaviour/common/mod.rs"]
mod common;

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::{Directory, MIB, World, content, key, meta, store_config};
use swiftlet_node::message::Request;
use swiftlet_node::{Limits, PutStream};
use swiftlet_store::Store;
use swiftlet_store::disk::{Disk, File, RealDisk};
use swiftlet_transport::{Carrier, Chunk};

const UPLOADS: u64 = 200;
const BODY_BYTES: u64 = 1 << 30;
const LIMIT_KIB: u64 = 512 << 10;
/// What may come on top while more is sent: stacks and sockets that had not been used before, not bodies.
const GROWTH_KIB: u64 = 24 << 10;
const PATIENCE: Duration = Duration::from_secs(3600);

/// A file that has a length and nothing in it.
struct Hollow {
    size: AtomicU64,
    received: Arc<AtomicU64>,
}

impl File for Hollow {
    fn read_at(&self, _buffer: &mut [u8], _offset: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.size.fetch_max(offset + bytes as u64, SeqCst);
        self.received.fetch_add(bytes as u64, SeqCst);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.size.load(SeqCst))
    }

    fn allocate(&self, _size: u64) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&self, _size: u64) -> io::Result<()> {
        Ok(())
    }

    fn punch(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A directory in which large files are hollow.
struct HollowDisk {
    below: Arc<RealDisk>,
    received: Arc<AtomicU64>,
}

impl Disk for HollowDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let file = self.below.create(path)?;
        if !path.starts_with("large/") {
            return Ok(file);
        }
        Ok(Arc::new(Hollow { size: AtomicU64::new(0), received: Arc::clone(&self.received) }))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.below.open(path)
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        self.below.list(directory)
    }

    fn make_directory(&self, path: &str) -> io::Result<()> {
        self.below.make_directory(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.below.rename(from, to)
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        self.below.unlink(path)
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        self.below.sync_directory(path)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.below.sync_all()
    }

    /// Always room: nothing is kept.
    fn space(&self) -> io::Result<(u64, u64)> {
        Ok((1 << 50, 1 << 49))
    }

    fn release(&self) {
        self.below.release();
    }

    fn reach(&self, point: &'static str) {
        self.below.reach(point);
    }
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn two_hundred_large_uploads_stay_within_their_limit() {
    let mib: u64 = std::env::var("SWIFTLET_UPLOAD_MIB").map_or(6, |mib| mib.parse().unwrap());
    let world = World::new(Carrier::Tcp);
    let directory = Directory::new();
    let received = Arc::new(AtomicU64::new(0));
    let disk = HollowDisk { below: RealDisk::open(&directory.0).unwrap(), received: Arc::clone(&received) };
    let store = Arc::new(Store::open_disk(Arc::new(disk), store_config()).unwrap());
    let (_node, server, targets) = world.serve(&[Arc::clone(&store)], Limits::default());
    // Always the same MiB: the bodies take no memory at the sender.
    let piece = Chunk::from(content(1, MIB));
    let mut uploads: Vec<PutStream> = (0..UPLOADS)
        .map(|number| {
            let request = Request::Put { key: key(number), meta: meta(10), footer: None, row: 0 };
            world.client.open_put(&targets, &request, Some(BODY_BYTES), PATIENCE).unwrap()
        })
        .collect();
    let end = Instant::now() + PATIENCE;
    let mut send_upto = |from: u64, to: u64| {
        for _ in from..to {
            uploads.iter_mut().for_each(|upload| assert!(upload.send(&piece), "an upload has failed"));
        }
        while received.load(SeqCst) < (UPLOADS * to) << 20 {
            assert!(Instant::now() < end, "not all of it arrives");
            std::thread::sleep(Duration::from_millis(5));
        }
        peak_kib()
    };
    let half = send_upto(0, mib / 2);
    let whole = send_upto(mib / 2, mib);
    assert_eq!(server.stats()["d0"].requests, UPLOADS as usize, "all are open");
    println!("{mib} MiB of each of {UPLOADS} bodies: {} MiB at most, {} after half of it", whole >> 10, half >> 10);
    assert!(whole < LIMIT_KIB, "{whole} KiB, {LIMIT_KIB} KiB allowed");
    assert!(whole < half + GROWTH_KIB, "{half} KiB after half of what was sent, {whole} KiB after all of it");
    if mib << 20 == BODY_BYTES {
        let mut hasher = swiftlet_hash::Hasher::new(swiftlet_hash::Digests { md5: false, xxh3: true });
        (0..mib).for_each(|_| hasher.update(&piece));
        let footer =
            swiftlet_store::model::Footer { size: BODY_BYTES, etag: Vec::new(), xxh3: hasher.xxh3_64().unwrap() };
        for upload in uploads {
            assert!(upload.commit(&footer).iter().all(Result::is_ok));
        }
        assert_eq!(store.usage().unwrap().objects, UPLOADS);
        assert!(peak_kib() < LIMIT_KIB, "{} KiB, {LIMIT_KIB} KiB allowed", peak_kib());
    }
}
