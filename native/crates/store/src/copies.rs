//! Copies of many objects in one message, read from one store and stored in another one in one group commit.
//!
//! `docs/sync.md` has the format; `swiftlet.sync.moving.copies_wire` is its other implementation. A replicator asks
//! one device for what another lacks and passes the bytes on unchanged.
//!
//! Fault model: bytes from peers may be anything: they are parsed completely before the first object is touched, and
//! each object's data must match its checksum. An object that can't be read or stored does not prevent the others; the
//! caller then transfers it alone. When the answer is made, each is durable, or known not to be.

use std::sync::mpsc;

use crate::commit;
pub use crate::cursor::Malformed;
use crate::cursor::{Cursor, put_bytes, put_pairs, put_varint};
use crate::error::Error;
use crate::model::{Footer, Info, Key, PostMeta, PutMeta, Timestamp};
use crate::queue::Done;
use crate::store::Store;

const DATA: u8 = 1;
const TOMBSTONE: u8 = 2;
const METADATA: u8 = 3;
/// Flag in an item's kind: the two timestamps of a POST follow.
const POSTED: u8 = 0x80;
const LATER: u64 = 0;
const ALONE: u64 = 1;
const GIVEN: u64 = 2;
const TAKEN: u8 = 0;
const CHANGED: u8 = 1;
const REFUSED: u8 = 2;

/// How much is returned at a time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Objects in one question.
    pub objects: usize,
    /// Bytes of copies in one answer.
    pub bytes: usize,
    /// Bytes of an object's data above which it travels alone.
    pub alone: u64,
}

fn put_item(out: &mut Vec<u8>, key: &Key, info: &Info, data: Option<&[u8]>) {
    let posted = info.meta_timestamp > info.timestamp || info.content_type_timestamp > info.timestamp;
    out.push(if data.is_some() { DATA } else { METADATA } | if posted { POSTED } else { 0 });
    put_varint(out, u64::from(key.partition));
    out.extend_from_slice(&key.digest);
    out.extend_from_slice(&info.timestamp.to_be_bytes());
    if posted {
        out.extend_from_slice(&info.meta_timestamp.to_be_bytes());
        out.extend_from_slice(&info.content_type_timestamp.to_be_bytes());
    }
    put_varint(out, info.delete_at);
    put_bytes(out, &info.content_type);
    put_pairs(out, &info.metadata);
    if let Some(data) = data {
        put_pairs(out, &info.sysmeta);
        put_bytes(out, &info.name);
        put_bytes(out, &info.etag);
        out.extend_from_slice(&info.xxh3.to_be_bytes());
        put_bytes(out, data);
    }
}

/// The `wanted` copies, as many as fit, after a list that says which of them they are.
pub fn read(store: &Store, wanted: &[u8], limits: Limits) -> Result<Vec<u8>, Malformed> {
    let mut cursor = Cursor { data: wanted };
    let policy = cursor.policy()?;
    let mut asked = Vec::new();
    while !cursor.data.is_empty() {
        if asked.len() == limits.objects {
            return Err(format!("more than {} objects are requested at once; request fewer", limits.objects));
        }
        let kind = cursor.byte()?;
        if kind != DATA && kind != METADATA {
            return Err(format!("{kind} is not a kind of copy that can be requested"));
        }
        asked.push((kind, cursor.key(policy)?));
    }
    let mut answer = Vec::new();
    put_varint(&mut answer, asked.len() as u64);
    let mut copies = Vec::new();
    put_varint(&mut copies, u64::from(policy));
    let (nothing, mut full) = (copies.len(), false);
    for (kind, key) in asked {
        let before = copies.len();
        let given = if full { Some(LATER) } else { give(store, kind, &key, limits, &mut copies) };
        let over = copies.len() > limits.bytes;
        if over {
            copies.truncate(before);
            full = before > nothing;
        }
        let code = match given {
            Some(_) if over => {
                if full {
                    LATER
                } else {
                    ALONE
                }
            }
            Some(code) => code,
            None => ALONE,
        };
        put_varint(&mut answer, code);
    }
    answer.append(&mut copies);
    Ok(answer)
}

/// Append one copy; returns what the list says of it, None when it can't be returned here.
fn give(store: &Store, kind: u8, key: &Key, limits: Limits, copies: &mut Vec<u8>) -> Option<u64> {
    if kind == DATA {
        let object = store.get(key).ok()?;
        let data = object.bytes().filter(|data| data.len() as u64 <= limits.alone)?;
        put_item(copies, key, object.info(), Some(data));
        return Some(GIVEN + data.len() as u64);
    }
    let info = store.stat(key).ok()?;
    if info.meta_timestamp <= info.timestamp && info.content_type_timestamp <= info.timestamp {
        return None;
    }
    put_item(copies, key, &info, None);
    Some(GIVEN)
}

/// One received copy.
struct Copy<'a> {
    key: Key,
    timestamp: Timestamp,
    put: Option<(PutMeta, Footer, &'a [u8])>,
    post: Option<PostMeta>,
}

fn parse<'a>(cursor: &mut Cursor<'a>, policy: u16) -> Result<Copy<'a>, Malformed> {
    let head = cursor.byte()?;
    let (kind, posted) = (head & !POSTED, head & POSTED != 0);
    let (key, timestamp) = (cursor.key(policy)?, cursor.u64()?);
    let known = kind == DATA || kind == METADATA && posted || kind == TOMBSTONE && !posted;
    if !known {
        return Err(format!("{head} is not a kind of copy"));
    }
    if kind == TOMBSTONE {
        return Ok(Copy { key, timestamp, put: None, post: None });
    }
    let (meta_timestamp, type_timestamp) = if posted { (cursor.u64()?, cursor.u64()?) } else { (0, 0) };
    let delete_at = cursor.varint()?;
    let content_type = cursor.bytes()?.to_vec();
    let metadata = cursor.pairs()?;
    let post = posted.then(|| PostMeta {
        timestamp: meta_timestamp,
        metadata: metadata.clone(),
        content_type: (type_timestamp > timestamp).then(|| content_type.clone()),
        content_type_timestamp: if type_timestamp > timestamp { type_timestamp } else { 0 },
        delete_at,
    });
    let mut put = None;
    if kind == DATA {
        let sysmeta = cursor.pairs()?;
        let name = cursor.bytes()?.to_vec();
        let etag = cursor.bytes()?.to_vec();
        let xxh3 = cursor.u64()?;
        let data = cursor.bytes()?;
        let footer = Footer { size: data.len() as u64, etag, xxh3 };
        put = Some((PutMeta { name, timestamp, content_type, metadata, sysmeta, delete_at }, footer, data));
    }
    Ok(Copy { key, timestamp, put, post })
}

/// Store copies; returns the outcome of each in their order, once all that were accepted are durable.
pub fn take(store: &Store, copies: &[u8], objects: usize) -> Result<Vec<u8>, Malformed> {
    let mut cursor = Cursor { data: copies };
    let policy = cursor.policy()?;
    let mut found = Vec::new();
    while !cursor.data.is_empty() {
        if found.len() == objects {
            return Err(format!("more than {objects} copies are sent at once; send fewer"));
        }
        found.push(parse(&mut cursor, policy)?);
    }
    let mut outcomes: Vec<(usize, Result<(), Error>)> = found.iter().map(|_| (0, Ok(()))).collect();
    let (tell, told) = mpsc::channel();
    for ((number, copy), (under_way, _)) in found.into_iter().enumerate().zip(&mut outcomes) {
        let mut done = |forgives: bool| -> Done {
            *under_way += 1;
            let tell = tell.clone();
            Box::new(move |outcome| {
                let outcome = match outcome {
                    // It is deleted, and was not there.
                    Err(Error::NotFound(_)) if forgives => Ok(()),
                    other => other.map(|_| ()),
                };
                // Who asked waits until all have told.
                let _ = tell.send((number, outcome));
            })
        };
        let only_deleted = copy.put.is_none() && copy.post.is_none();
        if let Some((meta, footer, data)) = copy.put {
            submit(store, copy.key, &meta, &footer, data, done(false));
        }
        if let Some(meta) = copy.post {
            store.submit_post(copy.key, meta, done(false));
        }
        if only_deleted {
            store.submit_delete(copy.key, copy.timestamp, Vec::new(), done(true));
        }
    }
    drop(tell);
    if !store.inner.config.threads {
        while commit::commit_pending(&store.inner) {}
    }
    while let Ok((number, new)) = told.recv() {
        let Some((under_way, outcome)) = outcomes.get_mut(number) else { continue };
        *under_way -= 1;
        // A put's error says more than that of the POST behind it.
        if outcome.is_ok() {
            *outcome = new;
        }
    }
    let mut answer = Vec::with_capacity(outcomes.len());
    for (under_way, outcome) in outcomes {
        let untold = || Error::DeviceFailed("it is not known whether the copy was stored".into());
        put_outcome(&mut answer, if under_way == 0 { outcome } else { outcome.and_then(|()| Err(untold())) });
    }
    Ok(answer)
}

/// Begin to store an object; one above its policy's limit is written to a file of its own before this returns.
fn submit(store: &Store, key: Key, meta: &PutMeta, footer: &Footer, data: &[u8], done: Done) {
    let size = data.len() as u64;
    if size <= store.aggregate_below(key.policy) {
        return store.submit_put(key, meta, footer, data.to_vec(), done);
    }
    let begun = store.create(key, Some(size), Some(0));
    match begun.and_then(|mut writer| writer.write(data).map(|()| writer)) {
        Ok(writer) => writer.submit_commit(meta, footer, done),
        Err(error) => done(Err(error)),
    }
}

fn put_outcome(answer: &mut Vec<u8>, outcome: Result<(), Error>) {
    match outcome {
        Ok(()) => answer.push(TAKEN),
        Err(Error::Superseded(_) | Error::NotFound(_)) => answer.push(CHANGED),
        Err(error) => {
            answer.push(REFUSED);
            put_bytes(answer, error.name().as_bytes());
            put_bytes(answer, error.to_string().as_bytes());
        }
    }
}
