//! What the volumes say of references to packs, and whether the index points to what is there.

use std::collections::HashMap;
use std::sync::Arc;

use swiftlet_fragments::packs::table::{BLOCK, Table};

use super::Said;
use crate::inner::Inner;
use crate::model::Key;
use crate::record::{Place, Sound};

/// The tables of all volumes.
pub(super) fn by_place(records: &[Sound]) -> HashMap<Place, Arc<Table>> {
    let tables = records.iter().filter_map(|record| Some((record.header.place, Arc::clone(record.table.as_ref()?))));
    tables.collect()
}

/// Take the references of a table in. `of` is its pack's key.
pub(super) fn replay(of: Key, table: &Table, said: &mut HashMap<Key, Said>) {
    for reference in &table.references {
        let object = said.entry(Key { digest: reference.digest, ..of }).or_default();
        let version = Some((reference.timestamp, false));
        if (object.version, object.pack) < (version, Some(table.pack)) {
            object.post = object.post.filter(|post| post.0 > reference.timestamp);
            (object.version, object.pack) = (version, Some(table.pack));
        }
    }
}

/// Compare what slots and counters say of references with the tables; returns each difference as a sentence.
pub(super) fn check(inner: &Inner, tables: &HashMap<Place, Arc<Table>>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut counted: HashMap<Place, (u32, u64)> = HashMap::new();
    inner.index.for_each(|id, held| {
        let Some(member) = held.slot.member() else { return };
        let (place, digest) = (held.slot.place, held.slot.digest());
        let counts = counted.entry(place).or_default();
        *counts = (counts.0 + 1, counts.1 + u64::from(member.length));
        let block = tables.get(&place).and_then(|table| table.references.chunks(BLOCK).nth(member.block));
        let is_it = block.is_some_and(|block| {
            block.iter().any(|reference| {
                (reference.digest, reference.timestamp, reference.length)
                    == (digest, held.slot.timestamp, member.length)
            })
        });
        if !is_it {
            problems.push(format!("{id:?}, {digest:02x?}: no such reference in block {} at {place:?}", member.block));
        }
    });
    for id in inner.index.ids() {
        inner.index.partition(id, |partition| {
            for (place, table) in partition.tables() {
                let (known, found) = ((table.references, table.bytes), counted.remove(&place).unwrap_or_default());
                if known != found || tables.get(&place).is_none_or(|there| there.pack != table.pack) {
                    problems.push(format!("{id:?}: {table:?} at {place:?} has {found:?} references and bytes"));
                }
            }
        });
    }
    if !counted.is_empty() {
        problems.push(format!("slots point to tables that are not known: {counted:?}"));
    }
    problems
}
