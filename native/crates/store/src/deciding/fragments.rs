//! What a batch does about a request that concerns fragments.
//!
//! The decisions are those of `swiftlet_fragments`, made in the committing thread on a slot that holds exactly what is
//! durable. What they say is written, and answered when that is durable.

use std::time::{SystemTime, UNIX_EPOCH};

use swiftlet_fragments::Version;
use swiftlet_fragments::request::{Request, answer};
use swiftlet_fragments::slot::{Change, Slot};

use super::{Plan, forget, unchanged, write_post};
use crate::error::{Error, Result};
use crate::index::WholeObject;
use crate::inner::Inner;
use crate::merge;
use crate::model::{Key, PostMeta, Timestamp};
use crate::queue::{Asked, Given, Op};
use crate::reading;
use crate::record::{Header, Kind, State, decision_record, pack_tombstone};
use crate::versions::Versions;

/// What is held of a fragment, a deletion alone as well.
fn held(inner: &Inner, key: &Key) -> Result<Versions> {
    inner.index.versions(key).map_err(WholeObject::into_error)
}

/// Decide on a request.
pub(super) fn decide(inner: &Inner, key: Key, asked: Asked) -> Result<Plan> {
    let versions = held(inner, &key)?;
    match asked {
        Asked::Fragment { request, mut header, metadata, data } => {
            let slot = versions.slot();
            let (Some(change), said) = answer(&slot, &request) else { return Ok(refused(&slot, &request)) };
            if let Change::Rebuilt { version, .. } = change {
                let settled = slot.floor() == Some(version);
                header.says = if settled { State::Settled } else { State::Certain } as u32;
            }
            Ok(Plan::Write { header, metadata, data, change: Some(Box::new(change)), answer: Ok(Given::Answer(said)) })
        }
        Asked::Request(request) => {
            let (change, said) = answer(&versions.slot(), &request);
            let Some(change) = change else { return Ok(Plan::Answer(Ok(Given::Answer(said)))) };
            write(key, without_chosen(&versions, change), Given::Answer(said))
        }
        Asked::Post { of, meta, row } => post(inner, key, &versions, (of, meta, row)),
        Asked::Damaged(place) => write_if(key, versions.without(place)),
        Asked::Rewrite(place) => write_if(key, versions.decision_at(place)),
    }
}

/// Metadata that were posted on top of a version of a time. They are kept without that version, too: it may come later.
fn post(inner: &Inner, key: Key, versions: &Versions, posted: (Timestamp, PostMeta, u32)) -> Result<Plan> {
    let (of, new, row) = posted;
    let floor = versions.floor.map(|floor| floor.version);
    if let Some(deletion) = floor.filter(|floor| floor.is_deletion() && floor.timestamp >= of) {
        return Err(Error::NotFound(Some(deletion.timestamp)));
    }
    let old = match &versions.post {
        Some(post) => reading::post_at(inner, &key, post)?,
        None => None,
    };
    let merged = merge::merge_post(floor.map_or(0, |floor| floor.timestamp), old, new);
    let answer = merged.superseded_by.map_or(Ok(Given::Changed(true)), |newer| Err(Error::Superseded(newer)));
    let Some(post) = merged.store else { return Ok(Plan::Answer(answer)) };
    // Without a fragment nothing is known here that a listing could show.
    let row = if versions.kept.iter().any(|kept| kept.bytes.is_some()) { row } else { 0 };
    Ok(write_post(Kind::CodedPost, key, &post, row, answer))
}

fn write_if(key: Key, change: Option<Change>) -> Result<Plan> {
    change.map_or(Ok(unchanged()), |change| write(key, change, Given::Changed(true)))
}

fn refused(slot: &Slot, request: &Request) -> Plan {
    Plan::Answer(Ok(Given::Answer(answer(slot, request).1)))
}

/// A record of its own for a change without a fragment.
fn write(key: Key, change: Change, answer: Given) -> Result<Plan> {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (header, metadata) = match &change {
        Change::Settled(version) if version.is_deletion() => {
            (Header::new(Kind::Tombstone, key, version.timestamp), pack_tombstone(&[]))
        }
        change => decision_record(key, change, now_s)
            .ok_or_else(|| Error::Format("a fragment is kept by a request without its bytes".into()))?,
    };
    Ok(Plan::Write { header, metadata, data: Vec::new(), change: Some(Box::new(change)), answer: Ok(answer) })
}

/// A change that doesn't say once more which devices were chosen, if the fragment's own record does.
fn without_chosen(versions: &Versions, mut change: Change) -> Change {
    let here = versions.get(change.version()).is_some_and(|kept| kept.bytes.is_some());
    if let (true, Change::Promised { chosen, .. } | Change::Accepted { chosen, .. }) = (here, &mut change) {
        *chosen = std::sync::Arc::new([]);
    }
    change
}

/// Decide on a request for a whole object where there is a fragment.
pub(super) fn decide_plain(inner: &Inner, key: Key, op: Op) -> Result<Plan> {
    let versions = held(inner, &key)?;
    match op {
        Op::Delete { timestamp, name, row } => delete(key, &versions, timestamp, &name, row),
        Op::Reclaim { before } => Ok(if versions.is_memory_before(before) { forget(inner, key) } else { unchanged() }),
        Op::Remove(_) | Op::Forget { .. } | Op::ForgetLost => Ok(unchanged()),
        _ => {
            Err(Error::Format("whole objects and fragments are not kept under one key: this one has a fragment".into()))
        }
    }
}

/// A deletion: answered as that of a whole object.
fn delete(key: Key, versions: &Versions, timestamp: Timestamp, name: &[u8], row: u32) -> Result<Plan> {
    let slot = versions.slot();
    if let Some(newer) = slot.floor().filter(|floor| !floor.is_deletion() && floor.timestamp > timestamp) {
        return Err(Error::Superseded(newer.timestamp));
    }
    let (change, _) = answer(&slot, &Request::Delete { timestamp });
    let existed = slot.committed(None).is_some_and(|version| !version.is_deletion());
    let newest = slot.floor().filter(|floor| floor.is_deletion()).map_or(0, |floor| floor.timestamp).max(timestamp);
    let answer = if existed { Ok(Given::Changed(true)) } else { Err(Error::NotFound(Some(newest))) };
    let Some(change) = change else { return Ok(Plan::Answer(answer)) };
    let header = Header { row, ..Header::new(Kind::Tombstone, key, Version::deletion(timestamp).timestamp) };
    Ok(Plan::Write { header, metadata: pack_tombstone(name), data: Vec::new(), change: Some(Box::new(change)), answer })
}
