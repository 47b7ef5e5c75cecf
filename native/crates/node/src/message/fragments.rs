//! Requests about fragments of objects with erasure coding, and their answers, as `docs/transport.md` has them.
//!
//! Fault model: a peer may send any bytes. What is accepted is written in one way, and is within its limits.

use std::sync::Arc;

use swiftlet_erasure::{MAX_CELL_BYTES, MAX_CELLS};
use swiftlet_fragments::block::Block;
use swiftlet_fragments::request::{Answer, Request as Asked};
use swiftlet_fragments::slot::Shown;
use swiftlet_fragments::{Accepted, Ballot, Device, Outcome, Version};
use swiftlet_store::model::{FragmentInfo, Info, Key, PostMeta, PutMeta};
use swiftlet_store::{Referred, Undecided, Unsettled};

use super::packs::{put_referred, take_referred};
use super::{
    Malformed, Reader, Writer, check_row, put_info, put_key, put_post, put_version, take_info, take_key, take_post,
    take_version,
};

/// The version of these messages.
const VERSION: u8 = 1;
/// The largest number of cells in one answer.
pub const MAX_READ_CELLS: u64 = 1024;
/// The largest number of versions that are not settled in one answer, but for the rest of the last fragment's.
pub const MAX_UNSETTLED: usize = 128;
/// The most bytes of cells in one answer.
pub const MAX_READ_BYTES: u64 = 4 << 20;
/// Bytes of a version in an answer about those that are not settled, without its devices.
const UNSETTLED_BYTES: usize = 40;
/// An unknown size.
const UNKNOWN: u64 = u64::MAX;

/// Numbers of methods in the transport.
pub(super) mod method {
    pub(crate) const KEEP: u16 = 14;
    pub(crate) const ABOUT: u16 = 15;
    pub(crate) const NEWEST: u16 = 16;
    pub(crate) const CELLS: u16 = 17;
    pub(crate) const INCARNATION: u16 = 18;
    pub(crate) const UNSETTLED: u16 = 20;
    pub(crate) const POST: u16 = 21;
}

/// A request about a fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Keep a fragment, whose cells are the body, and whose [`Footer`] follows them.
    Keep {
        /// The fragment's key: its partition has the place.
        key: Key,
        /// Whether its version is for certain: it was rebuilt, or is handed back. Otherwise it is to be prepared.
        certain: bool,
        /// Bytes of a cell, but for the last one.
        cell_bytes: u32,
        /// Bytes of the fragment, if they are known.
        size: Option<u64>,
        /// The object's description.
        meta: PutMeta,
        /// The container replicas (bits) whose update is pending with the fragment.
        row: u32,
    },
    /// Anything that comes without a fragment and changes what is known of one; what other places are shown.
    About {
        /// The fragment's key.
        key: Key,
        /// What is asked.
        asked: Asked,
    },
    /// The newest committed version, and the cells that the device has of these bytes of its object.
    Newest {
        /// The fragment's key.
        key: Key,
        /// Only older versions.
        below: Option<Version>,
        /// The first byte.
        start: u64,
        /// The byte after the last one; beyond the end means the end.
        stop: u64,
    },
    /// Cells of a version.
    Cells {
        /// The fragment's key.
        key: Key,
        /// The version.
        version: Version,
        /// The first cell.
        first: u64,
        /// The cell after the last one; beyond the end means the end.
        end: u64,
    },
    /// Merge metadata into the object, whether a fragment of it is here or not.
    Post {
        /// The fragment's key.
        key: Key,
        /// The timestamp of the version on which they were posted: nothing is kept if the device knows the object deleted
        /// at or after that.
        of: u64,
        /// The metadata.
        meta: PostMeta,
        /// The container replicas (bits) whose update is pending with them, if a fragment is here.
        row: u32,
    },
    /// The device's incarnation, by which a proxy chooses it.
    Incarnation,
    /// Versions of a policy that are not settled.
    Unsettled {
        /// The policy.
        policy: u16,
        /// Only those of fragments behind this partition and digest.
        after: Option<(u32, [u8; 16])>,
    },
}

impl From<Request> for super::Request {
    fn from(request: Request) -> Self {
        Self::Fragment(request)
    }
}

/// What is known of a fragment after its last cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The object's ETag.
    pub etag: Vec<u8>,
    /// The block, without digests of cells.
    pub block: Block,
}

/// Cells that follow as a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cells {
    /// The first one.
    pub first: u64,
    /// The digest of each.
    pub xxh3: Vec<u64>,
}

/// The answer to a request for the newest version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newest {
    /// The newest committed version, or the deletion.
    pub committed: Option<Version>,
    /// The newest one that is known to be settled.
    pub floor: Option<Version>,
    /// What is stored with the fragment of the committed version, without digests of cells, and cells of it.
    pub fragment: Option<(FragmentInfo, Cells)>,
    /// The newest metadata that were posted, which count for every version that is older.
    pub post: Option<PostMeta>,
    /// What the device has of the object as a copy.
    pub copy: Option<CopyHere>,
}

/// What a device has of an object that is, or was, small: a copy, beside the fragments of what it was before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyHere {
    /// Copies up to this time are dead: the object was deleted, or has become a large one.
    Dead(u64),
    /// It is this one.
    Is {
        /// The object.
        info: Info,
        /// xxh3 of the bytes that were asked for, which follow in place of cells; None if they don't.
        body_xxh3: Option<u64>,
    },
    /// It is in a pack.
    Packed {
        /// Where, and what was posted to it since.
        referred: Referred,
        /// How many bytes the pack has, if the device has its fragment.
        pack_bytes: Option<u64>,
    },
}

impl CopyHere {
    /// When it was written, or up to when it is dead.
    #[must_use]
    pub fn timestamp(&self) -> u64 {
        match self {
            Self::Dead(timestamp) => *timestamp,
            Self::Is { info, .. } => info.timestamp,
            Self::Packed { referred, .. } => referred.reference.timestamp,
        }
    }
}

/// What follows in an answer about the newest version, as bits.
const FRAGMENT: u8 = 1;
const POST: u8 = 2;
const COPY: u8 = 4;
const DEAD_COPY: u8 = 8;
const PACKED: u8 = 16;

/// The answer to a request for cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// They follow.
    Cells(Cells),
    /// The fragment is not here, or is not to be read.
    Not(Answer),
}

fn put_some_version(out: &mut Writer, version: Option<Version>) {
    out.u8(u8::from(version.is_some()));
    version.iter().for_each(|version| put_version(out, *version));
}

fn take_some_version(from: &mut Reader<'_>) -> Result<Option<Version>, Malformed> {
    if from.flag()? { take_version(from).map(Some) } else { Ok(None) }
}

fn put_chosen(out: &mut Writer, chosen: &[Device]) {
    out.u8(chosen.len() as u8);
    for device in chosen {
        out.u32(device.number);
        out.u64(device.incarnation);
    }
}

fn take_chosen(from: &mut Reader<'_>) -> Result<Arc<[Device]>, Malformed> {
    let count = usize::from(from.u8()?);
    if count > MAX_CELLS {
        return Err(Malformed("more devices than fragments"));
    }
    (0..count).map(|_| Ok(Device { number: from.u32()?, incarnation: from.u64()? })).collect()
}

fn put_ballot(out: &mut Writer, ballot: Ballot) {
    out.u32(ballot.round);
    out.u64(ballot.nonce);
}

fn take_ballot(from: &mut Reader<'_>) -> Result<Ballot, Malformed> {
    Ok(Ballot { round: from.u32()?, nonce: from.u64()? })
}

fn put_shown(out: &mut Writer, shown: &Shown) {
    put_version(out, shown.version);
    out.u8(u8::from(shown.settled));
    put_chosen(out, &shown.chosen);
}

fn take_shown(from: &mut Reader<'_>) -> Result<Shown, Malformed> {
    let (version, settled) = (take_version(from)?, from.flag()?);
    Ok(Shown { version, settled, chosen: take_chosen(from)? })
}

fn put_outcome(out: &mut Writer, outcome: Outcome) {
    out.u8(u8::from(outcome == Outcome::Commit));
}

fn take_outcome(from: &mut Reader<'_>) -> Result<Outcome, Malformed> {
    Ok(if from.flag()? { Outcome::Commit } else { Outcome::Abort })
}

fn put_accepted(out: &mut Writer, accepted: Accepted) {
    put_ballot(out, accepted.ballot);
    put_outcome(out, accepted.outcome);
}

fn take_accepted(from: &mut Reader<'_>) -> Result<Accepted, Malformed> {
    Ok(Accepted { ballot: take_ballot(from)?, outcome: take_outcome(from)? })
}

fn put_meta(out: &mut Writer, meta: &PutMeta) {
    out.u64(meta.timestamp);
    out.u64(meta.delete_at);
    out.text(&meta.name);
    out.text(&meta.content_type);
    out.pairs(&meta.metadata);
    out.pairs(&meta.sysmeta);
}

fn take_meta(from: &mut Reader<'_>) -> Result<PutMeta, Malformed> {
    let (timestamp, delete_at) = (from.u64()?, from.u64()?);
    let (name, content_type) = (from.text()?, from.text()?);
    let (metadata, sysmeta) = (from.pairs()?, from.pairs()?);
    Ok(PutMeta { name, timestamp, content_type, metadata, sysmeta, delete_at })
}

fn put_block(out: &mut Writer, block: &Block) {
    out.text(&Block { cells: Vec::new(), ..block.clone() }.encode());
}

fn take_block(from: &mut Reader<'_>) -> Result<Block, Malformed> {
    Block::parse_without_cells(&from.text()?).map_err(|_| Malformed("no block of a fragment"))
}

fn put_cells(out: &mut Writer, cells: &Cells) {
    out.u64(cells.first);
    out.u32(cells.xxh3.len() as u32);
    cells.xxh3.iter().for_each(|digest| out.u64(*digest));
}

fn take_cells(from: &mut Reader<'_>) -> Result<Cells, Malformed> {
    let first = from.u64()?;
    let count = from.count(8)?;
    if count as u64 > MAX_READ_CELLS {
        return Err(Malformed("too many cells at once"));
    }
    Ok(Cells { first, xxh3: (0..count).map(|_| from.u64()).collect::<Result<_, _>>()? })
}

/// Numbers of what is asked in [`Request::About`].
mod about {
    pub(super) const COMMIT: u8 = 1;
    pub(super) const SETTLE: u8 = 2;
    pub(super) const PROMISE: u8 = 3;
    pub(super) const ACCEPT: u8 = 4;
    pub(super) const DECIDE: u8 = 5;
    pub(super) const SHOW: u8 = 6;
    pub(super) const LEARN: u8 = 7;
    pub(super) const HAND_BACK: u8 = 8;
}

fn put_asked(out: &mut Writer, asked: &Asked) -> Result<(), Malformed> {
    match asked {
        Asked::Commit(version) => {
            out.u8(about::COMMIT);
            put_version(out, *version);
        }
        Asked::Settle(version) => {
            out.u8(about::SETTLE);
            put_version(out, *version);
        }
        Asked::Promise { version, chosen, ballot } => {
            out.u8(about::PROMISE);
            put_version(out, *version);
            put_chosen(out, chosen);
            put_ballot(out, *ballot);
        }
        Asked::Accept { version, chosen, accepted } => {
            out.u8(about::ACCEPT);
            put_version(out, *version);
            put_chosen(out, chosen);
            put_accepted(out, *accepted);
        }
        Asked::Decide { version, outcome } => {
            out.u8(about::DECIDE);
            put_version(out, *version);
            put_outcome(out, *outcome);
        }
        Asked::Show => out.u8(about::SHOW),
        Asked::Learn(theirs) => {
            out.u8(about::LEARN);
            put_shown(out, theirs);
        }
        Asked::HandBack(theirs) => {
            out.u8(about::HAND_BACK);
            put_shown(out, theirs);
        }
        Asked::Prepare { .. } | Asked::Keep { .. } | Asked::Delete { .. } | Asked::Newest { .. } | Asked::Fetch(_) => {
            return Err(Malformed("this is asked by another request"));
        }
    }
    Ok(())
}

fn take_asked(from: &mut Reader<'_>) -> Result<Asked, Malformed> {
    Ok(match from.u8()? {
        about::COMMIT => Asked::Commit(take_version(from)?),
        about::SETTLE => Asked::Settle(take_version(from)?),
        about::PROMISE => {
            let (version, chosen) = (take_version(from)?, take_chosen(from)?);
            Asked::Promise { version, chosen, ballot: take_ballot(from)? }
        }
        about::ACCEPT => {
            let (version, chosen) = (take_version(from)?, take_chosen(from)?);
            Asked::Accept { version, chosen, accepted: take_accepted(from)? }
        }
        about::DECIDE => Asked::Decide { version: take_version(from)?, outcome: take_outcome(from)? },
        about::SHOW => Asked::Show,
        about::LEARN => Asked::Learn(take_shown(from)?),
        about::HAND_BACK => Asked::HandBack(take_shown(from)?),
        _ => return Err(Malformed("a question about a fragment that there is not")),
    })
}

/// Only deletions have no generation of their own, and they are tombstones: who asks about one as a write is wrong.
fn no_deletion(asked: &Asked) -> Result<(), Malformed> {
    let version = match asked {
        Asked::Commit(version) | Asked::Settle(version) => *version,
        Asked::Promise { version, .. } | Asked::Accept { version, .. } | Asked::Decide { version, .. } => *version,
        _ => return Ok(()),
    };
    if version.is_deletion() { Err(Malformed("a deletion in place of a write")) } else { Ok(()) }
}

impl Request {
    /// The method's number in the transport.
    #[must_use]
    pub fn method(&self) -> u16 {
        match self {
            Self::Keep { .. } => method::KEEP,
            Self::About { .. } => method::ABOUT,
            Self::Newest { .. } => method::NEWEST,
            Self::Cells { .. } => method::CELLS,
            Self::Post { .. } => method::POST,
            Self::Incarnation => method::INCARNATION,
            Self::Unsettled { .. } => method::UNSETTLED,
        }
    }

    pub(super) fn put(&self, out: &mut Writer) -> Result<(), Malformed> {
        out.u8(VERSION);
        match self {
            Self::Keep { key, certain, cell_bytes, size, meta, row } => {
                put_key(out, key);
                out.u32(*row);
                out.u8(u8::from(*certain));
                out.u32(*cell_bytes);
                out.u64(size.unwrap_or(UNKNOWN));
                put_meta(out, meta);
            }
            Self::About { key, asked } => {
                put_key(out, key);
                put_asked(out, asked)?;
            }
            Self::Newest { key, below, start, stop } => {
                put_key(out, key);
                put_some_version(out, *below);
                out.u64(*start);
                out.u64(*stop);
            }
            Self::Cells { key, version, first, end } => {
                put_key(out, key);
                put_version(out, *version);
                out.u64(*first);
                out.u64(*end);
            }
            Self::Post { key, of, meta, row } => {
                put_key(out, key);
                out.u64(*of);
                out.u32(*row);
                put_post(out, meta);
            }
            Self::Incarnation => {}
            Self::Unsettled { policy, after } => {
                out.u16(*policy);
                out.u8(u8::from(after.is_some()));
                if let Some((partition, digest)) = after {
                    out.u32(*partition);
                    out.raw(digest);
                }
            }
        }
        Ok(())
    }

    pub(super) fn take(number: u16, from: &mut Reader<'_>) -> Result<Self, Malformed> {
        if from.u8()? != VERSION {
            return Err(Malformed("a request about fragments of another version"));
        }
        if number == method::INCARNATION {
            return Ok(Self::Incarnation);
        }
        if number == method::UNSETTLED {
            let policy = from.u16()?;
            let after = if from.flag()? { Some((from.u32()?, from.digest()?)) } else { None };
            return Ok(Self::Unsettled { policy, after });
        }
        let key = take_key(from)?;
        Ok(match number {
            method::KEEP => {
                let (row, certain, cell_bytes, size) = (from.u32()?, from.flag()?, from.u32()?, from.u64()?);
                if cell_bytes == 0 || cell_bytes as usize > MAX_CELL_BYTES {
                    return Err(Malformed("cells of a size that there is not"));
                }
                let size = Some(size).filter(|size| *size != UNKNOWN);
                let meta = take_meta(from)?;
                check_row(row, &meta.name)?;
                Self::Keep { key, certain, cell_bytes, size, meta, row }
            }
            method::ABOUT => {
                let asked = take_asked(from)?;
                no_deletion(&asked)?;
                Self::About { key, asked }
            }
            method::NEWEST => {
                let below = take_some_version(from)?;
                Self::Newest { key, below, start: from.u64()?, stop: from.u64()? }
            }
            method::CELLS => {
                let version = take_version(from)?;
                Self::Cells { key, version, first: from.u64()?, end: from.u64()? }
            }
            method::POST => {
                let (of, row) = (from.u64()?, from.u32()?);
                Self::Post { key, of, meta: take_post(from)?, row }
            }
            _ => return Err(Malformed("an unknown method")),
        })
    }
}

impl Footer {
    /// The footer that follows the cells.
    ///
    /// # Errors
    /// Something is over its limit.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        let mut out = Writer::default();
        out.text(&self.etag);
        put_block(&mut out, &self.block);
        out.finish()
    }

    /// The inverse.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(raw: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(raw);
        let footer = Self { etag: from.text()?, block: take_block(&mut from)? };
        from.end()?;
        Ok(footer)
    }
}

/// Numbers of answers.
mod answers {
    pub(super) const DONE: u8 = 0;
    pub(super) const MISSING: u8 = 1;
    pub(super) const SUPERSEDED: u8 = 2;
    pub(super) const OUTBID: u8 = 3;
    pub(super) const DECIDED: u8 = 4;
    pub(super) const BUSY: u8 = 5;
    pub(super) const PROMISED: u8 = 6;
    pub(super) const SHOWING: u8 = 7;
    pub(super) const CELLS: u8 = 8;
}

fn put_answer(out: &mut Writer, answer: &Answer) -> Result<(), Malformed> {
    match answer {
        Answer::Done => out.u8(answers::DONE),
        Answer::Missing => out.u8(answers::MISSING),
        Answer::Superseded(version) => {
            out.u8(answers::SUPERSEDED);
            put_version(out, *version);
        }
        Answer::Outbid(ballot) => {
            out.u8(answers::OUTBID);
            put_ballot(out, *ballot);
        }
        Answer::Decided(outcome) => {
            out.u8(answers::DECIDED);
            put_outcome(out, *outcome);
        }
        Answer::Busy => out.u8(answers::BUSY),
        Answer::Promised { accepted, fragment } => {
            out.u8(answers::PROMISED);
            out.u8(u8::from(accepted.is_some()));
            accepted.iter().for_each(|accepted| put_accepted(out, *accepted));
            out.u8(u8::from(*fragment));
        }
        Answer::Showing(shown) => {
            out.u8(answers::SHOWING);
            out.u8(u8::from(shown.is_some()));
            shown.iter().for_each(|shown| put_shown(out, shown));
        }
        Answer::Newest { .. } | Answer::Fragment(_) => return Err(Malformed("this is answered in another form")),
    }
    Ok(())
}

fn take_answer(number: u8, from: &mut Reader<'_>) -> Result<Answer, Malformed> {
    Ok(match number {
        answers::DONE => Answer::Done,
        answers::MISSING => Answer::Missing,
        answers::SUPERSEDED => Answer::Superseded(take_version(from)?),
        answers::OUTBID => Answer::Outbid(take_ballot(from)?),
        answers::DECIDED => Answer::Decided(take_outcome(from)?),
        answers::BUSY => Answer::Busy,
        answers::PROMISED => {
            let accepted = if from.flag()? { Some(take_accepted(from)?) } else { None };
            Answer::Promised { accepted, fragment: from.flag()? }
        }
        answers::SHOWING if from.flag()? => Answer::Showing(Some(take_shown(from)?)),
        answers::SHOWING => Answer::Showing(None),
        _ => return Err(Malformed("an answer that there is not")),
    })
}

/// The incarnation in the header of an answer to [`Request::Incarnation`].
///
/// # Errors
/// It is none.
pub fn decode_incarnation(header: &[u8]) -> Result<u64, Malformed> {
    let mut from = Reader(header);
    let incarnation = from.u64()?;
    from.end()?;
    Ok(incarnation)
}

/// The header of an answer to [`Request::Unsettled`]: the versions, and whether there are others behind them.
///
/// # Errors
/// They are too many.
pub fn encode_unsettled(all: &[Unsettled], more: bool) -> Result<Vec<u8>, Malformed> {
    let mut out = Writer::default();
    out.u8(u8::from(more));
    out.u32(all.len() as u32);
    for Unsettled { of: Undecided { key, version, chosen }, certain } in all {
        put_key(&mut out, key);
        put_version(&mut out, *version);
        out.u8(u8::from(*certain));
        put_chosen(&mut out, chosen);
    }
    out.finish()
}

/// The inverse.
///
/// # Errors
/// It is none.
pub fn decode_unsettled(header: &[u8]) -> Result<(Vec<Unsettled>, bool), Malformed> {
    let mut from = Reader(header);
    let more = from.flag()?;
    let count = from.count(UNSETTLED_BYTES)?;
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let (key, version, certain) = (take_key(&mut from)?, take_version(&mut from)?, from.flag()?);
        all.push(Unsettled { of: Undecided { key, version, chosen: take_chosen(&mut from)? }, certain });
    }
    from.end()?;
    Ok((all, more))
}

/// The header of an answer to [`Request::Keep`] and [`Request::About`].
///
/// # Errors
/// It is one that has another form.
pub fn encode_answer(answer: &Answer) -> Result<Vec<u8>, Malformed> {
    let mut out = Writer::default();
    put_answer(&mut out, answer)?;
    out.finish()
}

/// The inverse.
///
/// # Errors
/// It is none.
pub fn decode_answer(header: &[u8]) -> Result<Answer, Malformed> {
    let mut from = Reader(header);
    let number = from.u8()?;
    let answer = take_answer(number, &mut from)?;
    from.end()?;
    Ok(answer)
}

impl Newest {
    /// The header of the answer.
    ///
    /// # Errors
    /// Something is over its limit.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        let mut out = Writer::default();
        put_some_version(&mut out, self.committed);
        put_some_version(&mut out, self.floor);
        let fragment = if self.fragment.is_some() { FRAGMENT } else { 0 };
        let copy = match &self.copy {
            None => 0,
            Some(CopyHere::Dead(_)) => DEAD_COPY,
            Some(CopyHere::Is { .. }) => COPY,
            Some(CopyHere::Packed { .. }) => PACKED,
        };
        out.u8(fragment | if self.post.is_some() { POST } else { 0 } | copy);
        if let Some((info, cells)) = &self.fragment {
            put_meta(&mut out, &info.meta);
            out.text(&info.etag);
            put_block(&mut out, &info.block);
            put_cells(&mut out, cells);
        }
        self.post.iter().for_each(|post| put_post(&mut out, post));
        match &self.copy {
            None => {}
            Some(CopyHere::Dead(timestamp)) => out.u64(*timestamp),
            Some(CopyHere::Is { info, body_xxh3 }) => {
                put_info(&mut out, info);
                out.u8(u8::from(body_xxh3.is_some()));
                out.u64(body_xxh3.unwrap_or(0));
            }
            Some(CopyHere::Packed { referred, pack_bytes }) => {
                put_referred(&mut out, referred);
                out.u64(pack_bytes.unwrap_or(0));
            }
        }
        out.finish()
    }

    /// The inverse.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(header: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(header);
        let (committed, floor) = (take_some_version(&mut from)?, take_some_version(&mut from)?);
        let bits = from.u8()?;
        let copy = bits & !(FRAGMENT | POST);
        if ![0, COPY, DEAD_COPY, PACKED].contains(&copy) {
            return Err(Malformed("an answer with more than there is"));
        }
        let fragment = if bits & FRAGMENT != 0 {
            let (meta, etag, block) = (take_meta(&mut from)?, from.text()?, take_block(&mut from)?);
            Some((FragmentInfo { meta, etag, block }, take_cells(&mut from)?))
        } else {
            None
        };
        let post = if bits & POST == 0 { None } else { Some(take_post(&mut from)?) };
        let copy = match copy {
            0 => None,
            COPY => {
                let (info, known, body_xxh3) = (take_info(&mut from)?, from.flag()?, from.u64()?);
                if !known && body_xxh3 != 0 {
                    return Err(Malformed("a digest of no bytes"));
                }
                Some(CopyHere::Is { info, body_xxh3: known.then_some(body_xxh3) })
            }
            PACKED => {
                let (referred, bytes) = (take_referred(&mut from)?, from.u64()?);
                Some(CopyHere::Packed { referred, pack_bytes: Some(bytes).filter(|bytes| *bytes > 0) })
            }
            _ => Some(CopyHere::Dead(from.u64()?)),
        };
        from.end()?;
        let fits = |(info, _): &(FragmentInfo, Cells)| committed == Some(info.version());
        if !fragment.as_ref().is_none_or(fits) {
            return Err(Malformed("a fragment of another version"));
        }
        Ok(Self { committed, floor, fragment, post, copy })
    }
}

impl Given {
    /// The header of the answer.
    ///
    /// # Errors
    /// It is an answer that has another form.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        let mut out = Writer::default();
        match self {
            Self::Cells(cells) => {
                out.u8(answers::CELLS);
                put_cells(&mut out, cells);
            }
            Self::Not(answer) => put_answer(&mut out, answer)?,
        }
        out.finish()
    }

    /// The inverse.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(header: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(header);
        let given = match from.u8()? {
            answers::CELLS => Self::Cells(take_cells(&mut from)?),
            number => Self::Not(take_answer(number, &mut from)?),
        };
        from.end()?;
        Ok(given)
    }
}
