//! Compaction of references: a table is written anew with those that still count, together with those of other tables of
//! its pack.

use swiftlet_fragments::packs::table::{Reference, Table};

use crate::error::Result;
use crate::index::{Applied, HeldTable, Taking, numbered};
use crate::inner::Inner;
use crate::record::{ALIGN, DeviceId, HEADER, Header, Kind, Parsed, Place, pack_of, parse_table};

/// Most tables that become one at a time.
const MAX_JOINED: usize = 64;
/// A table is joined by others that have at most so many times its bytes, so that a large one is not written again for
/// each small one.
const LARGER: u32 = 2;

/// A table that is written anew.
pub(super) struct Rewritten {
    table: Table,
    metadata: Vec<u8>,
    /// The highest of those that it replaces.
    sequence: u64,
    olds: Vec<Place>,
}

/// Other tables of the same pack that are written anew together with one.
fn beside(inner: &Inner, header: &Header) -> Vec<(Place, HeldTable)> {
    let own = (header.record_len() / ALIGN) as u32;
    let joins = |(place, table): &(Place, HeldTable)| {
        *place != header.place && table.pack == pack_of(header) && table.units <= own.saturating_mul(LARGER)
    };
    let id = (header.key.policy, header.key.partition);
    let found = inner.index.partition(id, |partition| partition.tables().filter(joins).take(MAX_JOINED - 1).collect());
    found.unwrap_or_default()
}

/// Bytes of other tables that are written anew together with a record.
pub(super) fn bytes_beside(inner: &Inner, header: &Header) -> u64 {
    if header.kind != Kind::Table {
        return 0;
    }
    beside(inner, header).iter().map(|(_, table)| u64::from(table.units) * ALIGN).sum()
}

/// The references of a table that still count, and its sequence number; none if it is damaged: then it is left where it
/// is, for the auditor, or until its volume should be empty.
fn counting(inner: &Inner, header: &Header, place: Place, units: u32) -> Result<Option<(Vec<Reference>, u64)>> {
    let Some(volume) = inner.volumes.get(place.volume()) else { return Ok(None) };
    let mut raw = Vec::new();
    let bytes = units as usize * ALIGN as usize;
    inner.device.io("read a volume", volume.file.append_at(&mut raw, bytes, place.offset()))?;
    let Parsed::Sound(found) = Header::parse(&raw, place, &inner.device.id) else { return Ok(None) };
    let metadata = raw.get(HEADER..HEADER + found.metadata_len as usize).unwrap_or_default();
    let is_it = found.kind == Kind::Table && found.key == header.key && pack_of(&found) == pack_of(header);
    if !is_it || swiftlet_hash::xxh3_64(metadata) != found.metadata_xxh3 {
        return Ok(None);
    }
    let Some(Table { pack, mut references }) = parse_table(&found, metadata) else { return Ok(None) };
    inner.index.partition((header.key.policy, header.key.partition), |partition| {
        references.retain(|reference| partition.takes(reference, pack, Taking::Mend(place)));
    });
    Ok(Some((references, found.sequence)))
}

impl Rewritten {
    /// What is written in place of a table, and of others of its pack; none if it has no references that count, or is
    /// damaged.
    pub(super) fn of(inner: &Inner, header: &Header) -> Result<Option<Self>> {
        let own = counting(inner, header, header.place, (header.record_len() / ALIGN) as u32)?;
        let Some((references, sequence)) = own else { return Ok(None) };
        let pack = pack_of(header);
        let alone = Self::encoded(Table { pack, references }, sequence, vec![header.place]);
        let Some(mut all) = alone else { return Ok(None) };
        for (place, table) in beside(inner, header) {
            let Some((references, sequence)) = counting(inner, header, place, table.units)? else { continue };
            let mut joined = [all.table.references.as_slice(), &references].concat();
            joined.sort_unstable_by_key(|reference| reference.digest);
            let olds = [all.olds.as_slice(), &[place]].concat();
            // What can't be of one pack stays apart.
            if let Some(joined) = Self::encoded(Table { pack, references: joined }, all.sequence.max(sequence), olds) {
                all = joined;
            }
        }
        Ok(Some(all))
    }

    fn encoded(table: Table, sequence: u64, olds: Vec<Place>) -> Option<Self> {
        Some(Self { metadata: table.encode()?, table, sequence, olds })
    }

    /// Whether the table at a place is one of those that it replaces.
    pub(super) fn replaces(&self, place: Place) -> bool {
        self.olds.contains(&place)
    }

    /// Append its record to those of a batch; its header is this one but for what differs.
    pub(super) fn append(&self, header: Header, batch: &mut Vec<u8>, device: &DeviceId) -> Header {
        let metadata = &self.metadata;
        let (metadata_len, metadata_xxh3) = (metadata.len() as u32, swiftlet_hash::xxh3_64(metadata));
        let moved = Header { metadata_len, metadata_xxh3, sequence: self.sequence, ..header };
        let end = batch.len() + moved.record_len() as usize;
        batch.extend_from_slice(&moved.pack(device));
        batch.extend_from_slice(metadata);
        batch.resize(end, 0);
        moved
    }

    /// Let the index point to it.
    pub(super) fn relocate(&self, inner: &Inner, new: &Header) -> Applied {
        let references: Vec<_> = numbered(&self.table.references).collect();
        inner.index.relocate_table(&self.olds, new, &references)
    }
}
