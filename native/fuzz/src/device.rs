//! A whole device of which any bytes were changed: what it still serves is what was stored.

use std::io::IoSlice;
use std::sync::{Arc, OnceLock};

use swiftlet_store::disk::{Disk, Faults, SimulatedDisk};
use swiftlet_store::model::{Footer, Key, PostMeta, PutMeta};
use swiftlet_store::{Config, Error, Store};

const OBJECTS: u64 = 6;
/// One change: which file, where in it, how many bytes.
const CHANGE_HEAD: usize = 6;

fn key(number: u64) -> Key {
    Key { policy: 0, partition: number as u32 % 2, digest: swiftlet_hash::xxh3_128(&[number as u8]).to_be_bytes() }
}

/// The content of a version says which version it is.
fn content(timestamp: u64) -> Vec<u8> {
    (0..timestamp * 37 % 6000).map(|at| ((at * timestamp) >> 3) as u8).collect()
}

fn open(disk: &Arc<SimulatedDisk>) -> swiftlet_store::Result<Store> {
    let config = Config { volume_bytes: 24 * 1024, aggregate_below: 3000, threads: false, ..Config::default() };
    Store::open_disk(Arc::clone(disk) as _, config)
}

/// A device with small and large objects, tombstones, POSTs, a checkpoint and records behind it.
///
/// # Errors
/// Never, unless the store is broken.
pub fn lived() -> swiftlet_store::Result<Arc<SimulatedDisk>> {
    let disk = SimulatedDisk::new(7, Faults::default());
    let store = open(&disk)?;
    for round in 1..=3_u64 {
        for number in 0..OBJECTS {
            let timestamp = round * 100 + number;
            let data = content(timestamp);
            let meta = PutMeta { name: b"/a/c/o".to_vec(), timestamp, ..PutMeta::default() };
            let footer = Footer { size: data.len() as u64, etag: Vec::new(), xxh3: swiftlet_hash::xxh3_64(&data) };
            let mut writer = store.create(key(number), None, None)?;
            writer.set_row(1);
            writer.write(&data)?;
            writer.commit(&meta, &footer)?;
        }
        store.post(key(1), PostMeta { timestamp: round * 100 + 50, ..PostMeta::default() })?;
        store.delete(key(2), round * 100 + 50, b"/a/c/o".to_vec())?;
        if round == 2 {
            store.checkpoint()?;
        }
    }
    drop(store);
    Ok(disk)
}

/// Changes: one byte for the file, four for the offset, one for the number of bytes, then the bytes, that many.
pub(crate) fn change(disk: &SimulatedDisk, mut data: &[u8]) {
    let files = disk.files();
    while let Some((head, rest)) = data.split_at_checked(CHANGE_HEAD) {
        let (path, size) = &files[usize::from(head[0]) % files.len()];
        let at = u64::from(u32::from_be_bytes([head[1], head[2], head[3], head[4]]));
        let (bytes, rest) = rest.split_at(usize::from(head[5]).min(rest.len()));
        data = rest;
        if let Ok(file) = disk.open(path)
            && *size > 0
        {
            // The simulated disk has no errors of its own here.
            drop(file.write_at(&[IoSlice::new(bytes)], at % size));
        }
    }
}

/// A device with these changes opens, or is of another format; each of its objects is whole, of some version, or gone.
pub fn device(data: &[u8]) {
    static LIVED: OnceLock<Option<Arc<SimulatedDisk>>> = OnceLock::new();
    let Some(disk) = LIVED.get_or_init(|| lived().ok()) else { panic!("the device could not be made") };
    let disk = disk.copy();
    change(&disk, data);
    let store = match open(&disk) {
        Ok(store) => store,
        Err(Error::Format(_)) => return,
        Err(error) => panic!("{error}"),
    };
    for number in 0..OBJECTS {
        match store.get(&key(number)).and_then(|object| Ok((object.info().clone(), object.read(0, u64::MAX)?))) {
            Ok((info, data)) => assert_eq!(data, content(info.timestamp), "object {number}"),
            Err(Error::NotFound(_) | Error::ChecksumMismatch(_)) => {}
            Err(error) => panic!("object {number}: {error}"),
        }
    }
    for step in
        [store.audit(u64::MAX).map(drop), store.checkpoint(), store.compact().map(drop), store.check().map(drop)]
    {
        assert!(step.is_ok(), "{step:?}");
    }
}
