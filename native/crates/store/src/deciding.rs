//! What a batch does about each request: decisions on what is durable, without any I/O but for a POST that is merged.

mod fragments;
mod tables;

pub(crate) use self::tables::not_of_a_pack;

use swiftlet_fragments::packs::table::Table;
use swiftlet_fragments::request::{Answer, Request};
use swiftlet_fragments::slot::Change;

use crate::error::{Error, Result};
use crate::index::Held;
use crate::inner::Inner;
use crate::merge::{self, State};
use crate::model::{Key, PostMeta};
use crate::queue::{Asked, Given, Op};
use crate::reading;
use crate::record::{self, Header, Kind};

/// The key of no object. A forget of it changes nothing, and after a batch it proves that the batch was durable: see
/// `scan`.
pub(crate) const MARK: Key = Key { policy: u16::MAX, partition: u32::MAX, digest: [0xff; 16] };

/// What has to be done about one request.
pub(crate) enum Plan {
    /// Nothing is written.
    Answer(Result<Given>),
    /// This is written, and then answered. `change`: of a fragment.
    Write { header: Header, metadata: Vec<u8>, data: Vec<u8>, change: Option<Box<Change>>, answer: Result<Given> },
    /// References are written, and then answered.
    Refer { header: Header, metadata: Vec<u8>, table: Table, answer: Result<Given> },
}

/// Decide on a request.
pub(crate) fn decide(inner: &Inner, key: Key, op: Op) -> Result<Plan> {
    match op {
        // With what was forgotten its row would be lost.
        Op::Remove(_) | Op::Reclaim { .. } if inner.pending.has(&key) => Ok(unchanged()),
        Op::Fragments(Asked::Request(Request::HandBack(_))) if inner.pending.has(&key) => {
            Ok(Plan::Answer(Ok(Given::Answer(Answer::Missing))))
        }
        Op::Fragments(asked) => fragments::decide(inner, key, asked),
        Op::References(taking, table, own) => tables::decide(inner, key, taking, (table, own)),
        op if inner.index.has_fragment(&key) => fragments::decide_plain(inner, key, op),
        op => decide_object(inner, key, op),
    }
}

fn decide_object(inner: &Inner, key: Key, op: Op) -> Result<Plan> {
    let held = inner.index.get(&key);
    let state = held.as_ref().map(Held::state).unwrap_or_default();
    match op {
        Op::Put { header, metadata, data } => Ok(match merge::check_put(&state, header.timestamp) {
            Ok(true) => Plan::Write { header, metadata, data, change: None, answer: Ok(Given::Changed(true)) },
            Ok(false) => unchanged(),
            Err(error) => Plan::Answer(Err(error)),
        }),
        Op::Delete { timestamp, name, row } => {
            let write = merge::check_delete(&state, timestamp)?;
            let newest = timestamp.max(state.tombstone().unwrap_or(0));
            let existed = state.data().is_some();
            let answer = if existed { Ok(Given::Changed(true)) } else { Err(Error::NotFound(Some(newest))) };
            if !write {
                return Ok(Plan::Answer(answer));
            }
            let header = Header { row, ..Header::new(Kind::Tombstone, key, timestamp) };
            Ok(write_metadata(header, record::pack_tombstone(&name), answer))
        }
        Op::Post { meta, row } => decide_post(inner, key, held.as_ref(), &state, (meta, row)),
        Op::Remove(entry) => Ok(if state.entry(key.digest) == Some(entry) { forget(inner, key) } else { unchanged() }),
        Op::Reclaim { before } => {
            let newest = state.tombstone().max(state.post.map(|post| post.0));
            let old = state.tombstone().is_some() && newest.is_some_and(|newest| newest < before);
            Ok(if old { forget(inner, key) } else { unchanged() })
        }
        Op::Forget { place } => {
            let there = held.is_some_and(|held| held.slot.place == place);
            Ok(if there { forget(inner, key) } else { unchanged() })
        }
        Op::ForgetLost => Ok(if held.is_none() { forget(inner, key) } else { unchanged() }),
        Op::Mark => Ok(write_metadata(Header::new(Kind::Forget, MARK, 0), Vec::new(), Ok(Given::Changed(true)))),
        Op::Fragments(asked) => fragments::decide(inner, key, asked),
        Op::References(taking, table, own) => tables::decide(inner, key, taking, (table, own)),
    }
}

/// Nothing is to be done.
pub(crate) fn unchanged() -> Plan {
    Plan::Answer(Ok(Given::Changed(false)))
}

/// A record without data.
fn write_metadata(header: Header, metadata: Vec<u8>, answer: Result<Given>) -> Plan {
    Plan::Write { header, metadata, data: Vec::new(), change: None, answer }
}

/// Nothing of the object counts any more.
fn forget(inner: &Inner, key: Key) -> Plan {
    let header = Header { watermark: inner.volumes.highest(), ..Header::new(Kind::Forget, key, 0) };
    write_metadata(header, Vec::new(), Ok(Given::Changed(true)))
}

fn decide_post(
    inner: &Inner,
    key: Key,
    held: Option<&Held>,
    state: &State,
    (new, row): (PostMeta, u32),
) -> Result<Plan> {
    let Some(data) = state.data() else { return Err(Error::NotFound(state.tombstone())) };
    let old = match held.and_then(|held| held.extra.post) {
        Some(post) => reading::post_at(inner, &key, &post)?,
        None => None,
    };
    let merged = merge::merge_post(data, old, new);
    let answer = merged.superseded_by.map_or(Ok(Given::Changed(true)), |newer| Err(Error::Superseded(newer)));
    let Some(post) = merged.store else { return Ok(Plan::Answer(answer)) };
    Ok(write_post(Kind::Post, key, &post, row, answer))
}

/// The record of a POST.
fn write_post(kind: Kind, key: Key, post: &PostMeta, row: u32, answer: Result<Given>) -> Plan {
    let header = Header {
        content_type_timestamp: post.content_type_timestamp,
        delete_at: post.delete_at,
        row,
        ..Header::new(kind, key, post.timestamp)
    };
    write_metadata(header, record::pack_post(post), answer)
}
