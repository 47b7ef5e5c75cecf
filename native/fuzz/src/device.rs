//! A whole device of which any bytes were changed: what it still serves is what was stored.

use std::io::IoSlice;
use std::sync::{Arc, OnceLock};

use swiftlet_erasure::Scheme;
use swiftlet_fragments::block::Block;
use swiftlet_fragments::cutting::Cutter;
use swiftlet_fragments::packs::Pack;
use swiftlet_fragments::packs::table::{Reference, Table};
use swiftlet_fragments::request::Request;
use swiftlet_fragments::{Ballot, Device, Outcome, Version};
use swiftlet_store::disk::{Disk, Faults, SimulatedDisk};
use swiftlet_store::model::{Footer, Key, PostMeta, PutMeta};
use swiftlet_store::{Config, Error, Fetched, Shape, Store};

const OBJECTS: u64 = 6;
/// Fragments, which are the second ones of their objects.
const FRAGMENTS: u64 = 3;
const INDEX: usize = 1;
const CELL: usize = 256;
/// One change: which file, where in it, how many bytes.
const CHANGE_HEAD: usize = 6;

fn key(number: u64) -> Key {
    Key { policy: 0, partition: number as u32 % 2, digest: swiftlet_hash::xxh3_128(&[number as u8]).to_be_bytes() }
}

/// The content of a version says which version it is.
fn content(timestamp: u64) -> Vec<u8> {
    (0..timestamp * 37 % 6000).map(|at| ((at * timestamp) >> 3) as u8).collect()
}

fn fragment_key(number: u64) -> Key {
    Key { policy: 1, partition: 32 + INDEX as u32, ..key(number + OBJECTS) }
}

/// The fragment of a version, and its block; None if the codec is broken.
fn fragment(timestamp: u64) -> Option<(Vec<u8>, Block)> {
    let chosen: Arc<[Device]> = (0..3).map(|number| Device { number, incarnation: 5 }).collect();
    let mut bytes = Vec::new();
    let mut sink = |cells: &[&[u8]]| bytes.extend_from_slice(cells[INDEX]);
    let mut cutter = Cutter::new(Scheme::new(2, 1).ok()?, CELL).ok()?;
    cutter.push(&content(timestamp), &mut sink).ok()?;
    let block = cutter.finish(&mut sink).block(INDEX, timestamp, chosen).ok()?;
    Some((bytes, block))
}

/// A fragment in each state, and each decision.
fn live_with_fragments(store: &Store, round: u64) -> swiftlet_store::Result<()> {
    for number in 0..FRAGMENTS {
        let (key, timestamp) = (fragment_key(number), round * 100 + number);
        let version = Version { timestamp, generation: timestamp };
        let Some((bytes, block)) = fragment(timestamp) else { continue };
        let mut writer =
            store.create_fragment(key, Shape { cell_bytes: CELL, size: None, aggregate_below: Some(1000) })?;
        writer.write(&bytes)?;
        let meta = PutMeta { name: b"/a/c/o".to_vec(), timestamp, ..PutMeta::default() };
        let chosen = block.chosen.clone();
        writer.prepare(&meta, b"etag", Block { cells: Vec::new(), ..block })?;
        let decided = Request::Decide { version, outcome: Outcome::Abort };
        let ballot = Ballot { round: 1, nonce: round };
        let requests = match number {
            0 => vec![Request::Commit(version), Request::Settle(version)],
            1 => vec![Request::Promise { version, chosen, ballot }],
            _ if round == 2 => vec![decided],
            _ => vec![Request::Commit(version), Request::Decide { version, outcome: Outcome::Commit }],
        };
        for request in requests {
            store.about_fragment(key, request)?;
        }
    }
    // One has the newest metadata on top of what is settled, the other those of the round before.
    for (number, round) in [(0, round), (2, round - 1)] {
        match store.coded_post(fragment_key(number), 100, posted(round * 100 + 50)) {
            Ok(_) | Err(Error::Superseded(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Small objects, most of which are in packs: more than a block of a table has.
const PACKED: u64 = 70;
const PARTITION: (u16, u32) = (2, 31);

fn packed_key(number: u64) -> Key {
    // In the order of their numbers.
    Key { policy: PARTITION.0, partition: PARTITION.1, digest: [number as u8; 16] }
}

/// Where a version is in a pack.
fn reference(number: u64, timestamp: u64) -> Reference {
    let digest = packed_key(number).digest;
    Reference { digest, timestamp, offset: number << 16, length: timestamp as u32 }
}

/// Objects in packs, some of which were overwritten or deleted since, or have metadata on top.
fn live_with_packs(store: &Store, round: u64) -> swiftlet_store::Result<()> {
    for number in (0..PACKED).filter(|number| round == 1 || number % 9 == round) {
        let meta = PutMeta { name: b"/a/c/o".to_vec(), timestamp: round * 100, ..PutMeta::default() };
        let footer = Footer { size: 0, etag: Vec::new(), xxh3: swiftlet_hash::xxh3_64(&[]) };
        store.put(packed_key(number), &meta, &footer, Vec::new())?;
    }
    let pack = Pack { version: Version { timestamp: round, generation: 9 }, digest: [round as u8; 16] };
    let references = (0..PACKED).map(|number| reference(number, if number % 9 == round { round } else { 1 } * 100));
    store.adopt(PARTITION, Table { pack, references: references.collect() })?;
    store.post(packed_key(round), posted(round * 100 + 50))?;
    store.delete(packed_key(60 + round), round * 100 + 50, b"/a/c/o".to_vec())?;
    Ok(())
}

/// The metadata that are posted at a time.
fn posted(timestamp: u64) -> PostMeta {
    let content_type = (timestamp > 200).then(|| b"text/posted".to_vec());
    let content_type_timestamp = if content_type.is_some() { timestamp } else { 0 };
    let metadata = vec![(b"at".to_vec(), timestamp.to_string().into_bytes())];
    PostMeta { timestamp, metadata, content_type, content_type_timestamp, delete_at: timestamp }
}

fn open(disk: &Arc<SimulatedDisk>) -> swiftlet_store::Result<Store> {
    let config = Config { volume_bytes: 24 * 1024, aggregate_below: 3000, threads: false, ..Config::default() };
    Store::open_disk(Arc::clone(disk) as _, config)
}

/// A device with small and large objects, tombstones, POSTs, fragments with POSTs, references to packs, a checkpoint and
/// records behind it.
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
        live_with_fragments(&store, round)?;
        live_with_packs(&store, round)?;
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

/// A device with these changes opens, or is of another format; each of its objects and fragments is whole, of some version, or gone.
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
    for number in 0..PACKED {
        match store.reference(&packed_key(number)) {
            Ok(Some(found)) => {
                assert_eq!(found.reference, reference(number, found.reference.timestamp), "reference {number}");
                assert!(found.pack.version.timestamp * 100 >= found.reference.timestamp, "pack of {number}");
                found.posted.iter().for_each(|post| assert_eq!(*post, posted(post.timestamp), "metadata of {number}"));
            }
            Ok(None) | Err(Error::ChecksumMismatch(_)) => {}
            Err(error) => panic!("reference {number}: {error}"),
        }
    }
    for number in 0..FRAGMENTS {
        match store.posted(&fragment_key(number)) {
            Ok(Some(post)) => assert_eq!(post, posted(post.timestamp), "metadata of fragment {number}"),
            Ok(None) => {}
            Err(error) => panic!("metadata of fragment {number}: {error}"),
        }
    }
    for (number, round) in (0..FRAGMENTS).flat_map(|number| (1..=3).map(move |round| (number, round))) {
        let timestamp = round * 100 + number;
        match store.fragment(&fragment_key(number), Version { timestamp, generation: timestamp }) {
            Ok(Fetched::Fragment(held)) => match held.cells(0..u64::MAX) {
                Ok(cells) => {
                    assert_eq!(Some(cells), fragment(timestamp).map(|(bytes, _)| bytes), "fragment {timestamp}")
                }
                Err(error) => assert!(matches!(error, Error::ChecksumMismatch(_)), "fragment {timestamp}: {error}"),
            },
            Ok(Fetched::Not(_)) => {}
            Err(error) => panic!("fragment {timestamp}: {error}"),
        }
    }
    for step in
        [store.audit(u64::MAX).map(drop), store.checkpoint(), store.compact().map(drop), store.check().map(drop)]
    {
        assert!(step.is_ok(), "{step:?}");
    }
}
