//! Small objects of policies with erasure coding, which lie as copies beside the fragments of what they were before: how
//! the two forms of an object end each other on one device.
//!
//! Both forms merge by themselves, and of both together the newest counts. What is dead of the one by the other is said
//! by a tombstone, which sync spreads: a deletion has its own time in both forms. A write in the other form has the time
//! just before its own, so that it is no deletion of itself for anybody who compares times, or lists what is deleted.
//!
//! Fault model: that of the server. A stop between the two tombstones leaves the copy's alone, of a deletion or of a write
//! that counts for certain: what is missing sync brings. A copy and a fragment that come at the same time are both looked
//! at after they are durable, so that one of the two sees the other.

use std::sync::Arc;

use swiftlet_store::model::{EntryKind, Footer, Key, PutMeta};
use swiftlet_store::{COPIES, Done, Error, PARTITIONS, Store};

use crate::message::MAX_COPY_BYTES;
use crate::status::{Refusal, Status};

/// Whether it is the key of copies, in a policy that codes its objects.
pub(crate) fn is_of_copies(key: &Key) -> bool {
    key.partition % PARTITIONS == COPIES
}

/// The key of the copies of the same object.
pub(crate) fn copy_key(key: &Key) -> Key {
    Key { partition: key.partition / PARTITIONS * PARTITIONS + COPIES, ..*key }
}

/// Refuse what is no small object.
pub(crate) fn check(footer: Option<&Footer>) -> Result<(), Refusal> {
    match footer {
        Some(footer) if footer.size <= MAX_COPY_BYTES => Ok(()),
        _ => Err(Refusal::new(
            Status::SizeMismatch,
            "a copy of a small object has its size in front of it, and that is 1 MiB at most",
        )),
    }
}

/// Up to when copies are dead by what the device knows of fragments of the object, at any place.
fn dead_until(store: &Store, key: &Key) -> Option<u64> {
    let first = key.partition / PARTITIONS * PARTITIONS;
    let known = (first..first + COPIES).filter_map(|partition| {
        let shown = store.shown_fragment(&Key { partition, ..*key }).ok().flatten()?;
        Some(before(shown.version.timestamp, shown.version.is_deletion()))
    });
    known.max()
}

/// Up to when the other form is dead by a version.
pub(crate) fn before(timestamp: u64, is_deletion: bool) -> u64 {
    if is_deletion { timestamp } else { timestamp.saturating_sub(1) }
}

/// Whether the device has a fragment of the object, at any place.
pub(crate) fn has_fragments(store: &Store, key: &Key) -> bool {
    let first = key.partition / PARTITIONS * PARTITIONS;
    (first..first + COPIES).any(|partition| store.has_fragment(&Key { partition, ..*key }))
}

/// Whether the device has a copy of an object that is this old.
pub(crate) fn has_dead(store: &Store, key: &Key, until: u64) -> bool {
    let entry = store.entry(&copy_key(key)).ok().flatten();
    entry.is_some_and(|entry| entry.kind == EntryKind::Data && entry.timestamp <= until)
}

/// Put a tombstone in the place of a copy of the object that is this old, if the device has one. `then` is told whether it
/// had, when that is durable. The tombstone has this name, or that of the copy.
pub(crate) fn end(store: &Arc<Store>, key: &Key, until: u64, name: Option<Vec<u8>>, then: Done) {
    let copy = copy_key(key);
    if !has_dead(store, key, until) {
        return then(Ok(false));
    }
    let name = match name {
        Some(name) => Ok(name),
        // Of an object in a pack it is not here, unless a fragment counts: then the tombstone has none, as those that sync
        // brings.
        None => store
            .name(key)
            .and_then(|name| name.map_or_else(|| store.name(&copy), |name| Ok(Some(name))))
            .map(Option::unwrap_or_default),
    };
    match name {
        Ok(name) => store.submit_delete(copy, until, name, Box::new(move |outcome| then(unless_gone(outcome)))),
        Err(error) => then(Err(error)),
    }
}

/// Someone else may have ended it, or written something newer.
fn unless_gone(outcome: swiftlet_store::Result<bool>) -> swiftlet_store::Result<bool> {
    match outcome {
        Err(Error::NotFound(_) | Error::Superseded(_)) => Ok(true),
        other => other.map(|_| true),
    }
}

/// Delete a fragment, and a copy before it; `done` is told whether there was either.
pub(crate) fn delete(store: &Arc<Store>, key: Key, (timestamp, name, row): (u64, Vec<u8>, u32), done: Done) {
    let held = Arc::clone(store);
    let first = name.clone();
    let then: Done = Box::new(move |ended| match ended {
        Err(error) => done(Err(error)),
        Ok(had_copy) => {
            let last = Arc::clone(&held);
            let again = name.clone();
            let done: Done = Box::new(move |outcome| {
                let had_one = match &outcome {
                    Ok(_) => true,
                    Err(Error::NotFound(Some(_))) => had_copy,
                    Err(_) => return done(outcome),
                };
                // One may have come meanwhile.
                let told: Done = Box::new(move |ended| match ended {
                    Err(error) => done(Err(error)),
                    Ok(had_another) => done(if had_one || had_another { Ok(true) } else { outcome }),
                });
                end(&last, &key, timestamp, Some(again), told);
            });
            held.submit_delete_with_row(key, timestamp, name, row, done);
        }
    });
    end(store, &key, timestamp, Some(first), then);
}

/// Keep a copy, unless the object was deleted since, or has become a large one.
pub(crate) fn put(
    store: &Arc<Store>,
    key: Key,
    (meta, footer, row): (PutMeta, Footer, u32),
    data: Vec<u8>,
    done: Done,
) {
    let timestamp = meta.timestamp;
    if let Some(until) = dead_until(store, &key).filter(|until| *until >= timestamp) {
        // Who has the copy is to learn that it is dead, also by sync.
        return store.submit_delete(key, until, meta.name, superseded(until, done));
    }
    let (held, name) = (Arc::clone(store), meta.name.clone());
    let kept: Done = Box::new(move |outcome| match dead_until(&held, &key).filter(|until| *until >= timestamp) {
        Some(until) if outcome.is_ok() => held.submit_delete(key, until, name, superseded(until, done)),
        _ => done(outcome),
    });
    store.submit_put_with_row(key, &meta, &footer, data, row, kept);
}

fn superseded(until: u64, done: Done) -> Done {
    Box::new(move |outcome| match outcome {
        Ok(_) | Err(Error::NotFound(_)) => done(Err(Error::Superseded(until))),
        other => done(other),
    })
}
