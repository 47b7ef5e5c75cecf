//! Inspection of a store, for people and for tests: volumes, their records, and whether the index matches them.

mod fragments;
mod tables;

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use swiftlet_fragments::packs::Pack;

use crate::error::Result;
use crate::inner::Inner;
use crate::model::{Key, Timestamp};
use crate::record::{ALIGN, BLOCK, Header, Kind, Place, Sound};
use crate::scan;

/// One volume in numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeStats {
    /// Its number.
    pub id: u32,
    /// Whether compaction writes it.
    pub compaction: bool,
    /// Whether nothing will be appended any more.
    pub sealed: bool,
    /// Bytes up to which it is durable.
    pub end: u64,
    /// Bytes of live records.
    pub live_bytes: u64,
    /// The share of its bytes that is live.
    pub live_share: f64,
}

/// All volumes, by number.
pub(crate) fn volumes(inner: &Inner) -> Vec<VolumeStats> {
    let stats = inner.volumes.all().into_iter().map(|volume| VolumeStats {
        id: volume.id,
        compaction: volume.compaction,
        sealed: volume.sealed.load(Ordering::Relaxed),
        end: volume.end.load(Ordering::Relaxed),
        live_bytes: volume.live.load(Ordering::Relaxed),
        live_share: volume.live_share(),
    });
    stats.collect()
}

/// What the volumes say of one object, found without the index: a second implementation of the rules, by which the
/// first one is checked.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Said {
    version: Option<(Timestamp, bool)>,
    post: Option<(Timestamp, Timestamp)>,
    /// The pack that has its bytes.
    pack: Option<Pack>,
}

/// Compare index, set hashes and volumes; returns each difference as a sentence. Nothing may be written meanwhile.
pub(crate) fn check(inner: &Inner) -> Result<Vec<String>> {
    let mut records = Vec::new();
    let mut problems = Vec::new();
    for volume in inner.volumes.all() {
        let scanned =
            scan::scan(&*volume.file, volume.id, BLOCK, &inner.device.id, &mut |record| records.push(record.clone()))?;
        for damage in scanned.damage {
            problems
                .push(format!("volume {:08x}: {} records damaged near {:?}", volume.id, damage.records, damage.place));
        }
    }
    records.sort_by_key(|record| record.header.sequence);
    let places: HashMap<Place, Header> = records.iter().map(|record| (record.header.place, record.header)).collect();
    let tables = tables::by_place(&records);
    let (fragments, objects) = fragments::apart(&records);
    problems.extend(fragments::check(inner, &fragments));
    let mut said = replay(&objects);
    said.retain(|key, _| !fragments.contains_key(key));
    problems.extend(tables::check(inner, &tables));
    let mut held_count = 0;
    inner.index.for_each(|(policy, partition), held| {
        let key = Key { policy, partition, digest: held.slot.digest() };
        if fragments.contains_key(&key) {
            return;
        }
        held_count += 1;
        let seen = Said {
            version: Some((held.slot.timestamp, held.slot.kind == Kind::Tombstone)),
            post: held.extra.post.map(|post| (post.timestamp, post.content_type_timestamp)),
            pack: held.slot.member().and_then(|_| tables.get(&held.slot.place)).map(|table| table.pack),
        };
        let expected = said.get(&key).copied().unwrap_or_default();
        if seen != expected {
            problems.push(format!("{key:?}: the index has {seen:?}, the volumes say {expected:?}"));
        }
        let post = held.extra.post.map(|post| (post.place, post.timestamp));
        let own = held.slot.own_record().map(|(place, _)| (place, held.slot.timestamp));
        for (place, timestamp) in [own, post].into_iter().flatten() {
            if places.get(&place).is_none_or(|header| header.key != key || header.timestamp != timestamp) {
                problems.push(format!("{key:?}: no such record at {place:?}"));
            }
        }
    });
    let mut live: HashMap<u32, u64> = HashMap::new();
    inner.index.for_each_place(|key, place, units| match places.get(&place) {
        Some(header) if header.key == *key && header.record_len() == u64::from(units) * ALIGN => {
            *live.entry(place.volume()).or_default() += header.record_len();
        }
        _ => problems.push(format!("{key:?}: no record of {units} units at {place:?}")),
    });
    let expected = said.values().filter(|said| said.version.is_some()).count();
    if expected != held_count {
        problems.push(format!("the index holds {held_count} objects, the volumes {expected}"));
    }
    for id in inner.index.ids() {
        if let Some(Some(suffix)) = inner.index.partition(id, crate::index::Partition::check) {
            problems.push(format!("partition {id:?}: the set hash of suffix {suffix:03x} is wrong"));
        }
    }
    for volume in inner.volumes.all() {
        let (counted, known) = (live.get(&volume.id).copied().unwrap_or(0), volume.live.load(Ordering::Relaxed));
        if counted != known {
            problems.push(format!("volume {:08x}: {known} bytes counted as held, {counted} are", volume.id));
        }
    }
    Ok(problems)
}

fn replay(records: &[Sound]) -> HashMap<Key, Said> {
    let mut said: HashMap<Key, Said> = HashMap::new();
    for Sound { header, table, .. } in records {
        if let Some(table) = table {
            tables::replay(header.key, table, &mut said);
            continue;
        }
        let object = said.entry(header.key).or_default();
        match header.kind {
            Kind::Forget => *object = Said::default(),
            Kind::Post => {
                let version = (header.timestamp, header.content_type_timestamp);
                // The version below it may have been replaced since, and its record be gone.
                let counts = object.version.is_none_or(|(timestamp, _)| timestamp < header.timestamp);
                if counts && object.post.is_none_or(|post| post < version) {
                    object.post = Some(version);
                }
            }
            _ => {
                let version = (header.timestamp, header.kind == Kind::Tombstone);
                if object.version.is_none_or(|held| held < version) {
                    (object.version, object.pack) = (Some(version), None);
                    object.post = object.post.filter(|post| post.0 > header.timestamp);
                }
            }
        }
    }
    said
}
