//! How versions of one object merge: pure rules, the same as in `swiftlet.store.merge`.
//!
//! - The newer of data and tombstone decides whether there is an object; at equal timestamps the tombstone wins.
//! - A POST counts while it is newer than the data; the newest one replaces all metadata of older ones.
//! - The content type is that of whatever set it last. A POST that comes late, behind a newer one, still hands
//!   its type on.

use crate::error::{Error, Result};
use crate::model::{Entry, EntryKind, Footer, Info, PostMeta, PutMeta, Timestamp};

/// What decides merges of an object on this device: its data or its tombstone, and the POST on top.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Data or tombstone with its timestamp; None when the device has neither.
    pub newest: Option<(EntryKind, Timestamp)>,
    /// The POST's timestamp and its content type's, newer than `newest`.
    pub post: Option<(Timestamp, Timestamp)>,
}

impl State {
    /// The data's timestamp if there is an object.
    #[must_use]
    pub fn data(&self) -> Option<Timestamp> {
        self.newest.and_then(|(kind, timestamp)| (kind == EntryKind::Data).then_some(timestamp))
    }

    /// The tombstone's timestamp if there is one.
    #[must_use]
    pub fn tombstone(&self) -> Option<Timestamp> {
        self.newest.and_then(|(kind, timestamp)| (kind == EntryKind::Tombstone).then_some(timestamp))
    }

    /// The object's entry in its partition's comparison.
    #[must_use]
    pub fn entry(&self, digest: [u8; 16]) -> Option<Entry> {
        let (kind, timestamp) = self.newest?;
        let post = if kind == EntryKind::Data { self.post } else { None };
        let (meta_timestamp, content_type) = post.filter(|post| post.0 > timestamp).unwrap_or((0, 0));
        let content_type_timestamp = if content_type > timestamp { content_type } else { 0 };
        Some(Entry { digest, kind, timestamp, meta_timestamp, content_type_timestamp })
    }
}

/// Whether a PUT has to be stored; Superseded when something newer is here.
pub fn check_put(state: &State, timestamp: Timestamp) -> Result<bool> {
    match state.newest {
        Some((EntryKind::Data, held)) if held == timestamp => Ok(false),
        Some((_, held)) if held >= timestamp => Err(Error::Superseded(held)),
        _ => Ok(true),
    }
}

/// Whether a tombstone has to be stored; Superseded when newer data are here.
pub fn check_delete(state: &State, timestamp: Timestamp) -> Result<bool> {
    match state.newest {
        Some((EntryKind::Data, held)) if held > timestamp => Err(Error::Superseded(held)),
        Some((EntryKind::Tombstone, held)) => Ok(held < timestamp),
        _ => Ok(true),
    }
}

/// The result of merging a POST: the record to store (None: nothing changes) and what it lost against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostMerge {
    /// To be stored in place of the one held.
    pub store: Option<PostMeta>,
    /// The newer one's timestamp.
    pub superseded_by: Option<Timestamp>,
}

/// Merge a POST into data with timestamp `data` and the POST held so far (ignored if it is not newer than the data).
#[must_use]
pub fn merge_post(data: Timestamp, held: Option<PostMeta>, new: PostMeta) -> PostMerge {
    if new.timestamp <= data {
        return PostMerge { store: None, superseded_by: Some(data) };
    }
    let Some(held) = held.filter(|held| held.timestamp > data) else {
        return PostMerge { store: Some(with_type(new, data, None)), superseded_by: None };
    };
    if new.timestamp > held.timestamp {
        return PostMerge { store: Some(with_type(new, data, Some(&held))), superseded_by: None };
    }
    let superseded_by = (new.timestamp < held.timestamp).then_some(held.timestamp);
    let before = with_type(held.clone(), data, None).content_type_timestamp;
    let merged = with_type(held, data, Some(&new));
    PostMerge { store: (merged.content_type_timestamp != before).then_some(merged), superseded_by }
}

/// `base` with the newest content type of both that is newer than the data's, or none.
fn with_type(mut base: PostMeta, data: Timestamp, other: Option<&PostMeta>) -> PostMeta {
    let counts = |post: &PostMeta| post.content_type.is_some() && post.content_type_timestamp > data;
    let own = counts(&base).then_some(base.content_type_timestamp);
    match other.filter(|other| counts(other)) {
        Some(other) if own.is_none_or(|own| other.content_type_timestamp > own) => {
            base.content_type.clone_from(&other.content_type);
            base.content_type_timestamp = other.content_type_timestamp;
        }
        _ if own.is_none() => {
            base.content_type = None;
            base.content_type_timestamp = 0;
        }
        _ => {}
    }
    base
}

/// The object that results from data and the newest POST (None or an older one is ignored).
#[must_use]
pub fn info_of(put: PutMeta, footer: Footer, post: Option<PostMeta>) -> Info {
    let mut info = Info {
        name: put.name,
        timestamp: put.timestamp,
        size: footer.size,
        etag: footer.etag,
        xxh3: footer.xxh3,
        content_type: put.content_type,
        metadata: put.metadata,
        sysmeta: put.sysmeta,
        meta_timestamp: put.timestamp,
        content_type_timestamp: put.timestamp,
        delete_at: put.delete_at,
    };
    if let Some(post) = post.filter(|post| post.timestamp > info.timestamp) {
        post_on(&mut info, post);
    }
    info
}

/// Replace what an object has by what was posted to it, where that is newer.
pub fn post_on(info: &mut Info, post: PostMeta) {
    if post.timestamp > info.meta_timestamp {
        info.metadata = post.metadata;
        info.meta_timestamp = post.timestamp;
        info.delete_at = post.delete_at;
    }
    if let Some(content_type) = post.content_type.filter(|_| post.content_type_timestamp > info.content_type_timestamp)
    {
        info.content_type = content_type;
        info.content_type_timestamp = post.content_type_timestamp;
    }
}
