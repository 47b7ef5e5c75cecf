//! Entry points of `native/fuzz` to the decoders of stored data: any bytes, given the right checksums.
//!
//! Fault model: any content after a right checksum. No decoder may panic, trust a length beyond the data, or accept
//! what it could not have written.

use std::io::IoSlice;

use crate::disk::{Disk, Faults, SimulatedDisk};
use crate::index::checkpoint;
use crate::pairs::{self, Step};
use crate::record::{
    DeviceId, HEADER, Header, Kind, Parsed, Place, change_of, change_without, parse_post, parse_put, parse_table,
    parse_tombstone, table_record,
};

const DEVICE: DeviceId = *b"a device's secre";

/// Branches of two sides, which answer a question about the first nodes: the step, how long the first side's are, both.
pub fn branches(data: &[u8]) {
    let Some(([from, to, length], rest)) = data.split_first_chunk() else { return };
    let Some(step) = Step::new(u32::from(*from), u32::from(*to)) else { return };
    let (mine, theirs) = rest.split_at(usize::from(*length).min(rest.len()));
    let Some(count) = pairs::count(mine) else { return };
    let nodes: Vec<u32> = (0..count as u32).collect();
    if let Some((compared, found)) = pairs::differing(mine, theirs, step, &nodes) {
        assert!(compared <= nodes.len() && found.is_sorted_by(|one, next| one < next));
        assert_eq!(pairs::differing(theirs, mine, step, &nodes), Some((compared, found)));
    }
    if let Some((compared, found)) = pairs::differing(mine, mine, step, &nodes) {
        assert_eq!((compared, found.len()), (nodes.len(), 0));
    }
}

/// A record: its header, sealed, and its metadata.
pub fn record(data: &[u8]) {
    let mut raw = data.to_vec();
    let place = Place::new(1, 4096);
    let _ = Header::parse(&raw, place, &DEVICE);
    if raw.len() < HEADER {
        return;
    }
    Header::seal(&mut raw, place, &DEVICE);
    let Parsed::Sound(header) = Header::parse(&raw, place, &DEVICE) else { return };
    assert!(header.record_len() >= header.used_len() && header.table_len() <= header.metadata_len as usize);
    assert_eq!(header.pack(&DEVICE)[..], raw[..HEADER]);
    let metadata = &raw[HEADER..];
    let metadata = &metadata[..metadata.len().min(header.metadata_len as usize)];
    match header.kind {
        Kind::Put | Kind::Large => drop(parse_put(&header, metadata)),
        Kind::Post | Kind::CodedPost => drop(parse_post(&header, metadata)),
        Kind::Tombstone => drop(parse_tombstone(metadata)),
        Kind::Forget => {}
        Kind::Table => {
            if let Some(table) = parse_table(&header, metadata) {
                let again = table_record(header.key.policy, header.key.partition, &table);
                assert!(again.is_some_and(|(_, bytes)| bytes == metadata), "what is taken is written in another way");
            }
        }
        Kind::Fragment | Kind::LargeFragment | Kind::Decision => {
            if let Some(change) = change_of(&header, metadata) {
                assert_eq!(change.version().generation, header.generation);
            }
            assert_eq!(change_without(&header).version().timestamp, header.timestamp);
        }
    }
}

/// A checkpoint: its head and blocks, with checksums as far as their own counts go. An accepted one is written and
/// read again.
pub fn checkpoint(data: &[u8]) {
    for raw in [data.to_vec(), checkpoint::sealed_anew(data, &DEVICE)] {
        let disk = SimulatedDisk::new(0, Faults::default());
        let Ok(file) = disk.create("it") else { panic!("a new disk has room") };
        let written = file.write_at(&[IoSlice::new(&raw)], 0);
        let Ok(Some((reach, index))) = written.and_then(|()| checkpoint::read(&*file, &DEVICE)) else { continue };
        let mut count = 0;
        index.for_each(|_, _| count += 1);
        assert_eq!(count, index.len());
        let Ok(again) = disk.create("again") else { panic!("a new disk has room") };
        let written = checkpoint::write(&*again, &DEVICE, &reach, &index);
        let taken = written.and_then(|_| checkpoint::read(&*again, &DEVICE));
        let Ok(Some((reach_again, index_again))) = taken else { panic!("what was taken and written is not taken") };
        assert_eq!((reach_again, index_again.len()), (reach, index.len()));
        for id in index.ids() {
            assert_eq!(index.root(id), index_again.root(id));
        }
        index.for_each_fragment(|key, versions| assert_eq!(index_again.versions(key).as_ref(), Ok(versions)));
    }
}
