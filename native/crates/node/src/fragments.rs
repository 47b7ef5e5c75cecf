//! Fragments of objects with erasure coding: they come in, are decided about, and are read.
//!
//! Fault model: that of the server and of the store. Only members of the cluster may ask. What the device answers is
//! decided by the store, and durable before it is sent; a device that was put in the place of a chosen one says nothing
//! for it; cells are checked before they are sent, each answer has no more
//! than its limits, and each cell has its digest beside it.

use std::ops::Range;
use std::sync::Arc;

use swiftlet_erasure::Geometry;
use swiftlet_fragments::Outcome;
use swiftlet_fragments::block::Block;
use swiftlet_fragments::packs::{Pack, is_pack};
use swiftlet_fragments::request::{Answer, Request as About};
use swiftlet_store::model::{EntryKind, FragmentInfo, Info, Key, PutMeta};
use swiftlet_store::{Error, Fetched, Fragment, FragmentWriter, Shape, Store, Told};
use swiftlet_transport::limits::CHUNK_BYTES;
use swiftlet_transport::{Body, Chunk, Pool};

use crate::codings::Coding;
use crate::copies;
use crate::device::{Device, Permit};
use crate::message::fragments::{
    Cells, CopyHere, Footer, Given, MAX_READ_BYTES, MAX_READ_CELLS, MAX_UNSETTLED, Newest, Request, encode_answer,
    encode_unsettled,
};
use crate::reading::{Answered, Held};
use crate::reply::Reply;
use crate::status::{Refusal, Status};
use crate::upload::Taking;

/// A fragment that is to be kept.
pub(crate) struct Keeping {
    pub(crate) key: Key,
    pub(crate) certain: bool,
    pub(crate) shape: Shape,
    pub(crate) meta: PutMeta,
    /// How the policy codes its objects, if it is known.
    pub(crate) coding: Option<Coding>,
    /// The container replicas (bits) whose update is pending with it.
    pub(crate) row: u32,
}

impl Taking for Keeping {
    type Writer = FragmentWriter;
    type Footer = Footer;

    fn most(&self) -> u64 {
        self.shape.size.unwrap_or(u64::MAX)
    }

    fn begin(&self, store: &Arc<Store>) -> Result<FragmentWriter, Refusal> {
        let mut writer = store.create_fragment(self.key, self.shape)?;
        writer.set_row(self.row);
        Ok(writer)
    }

    fn write(writer: &mut FragmentWriter, bytes: &[u8]) -> swiftlet_store::Result<()> {
        writer.write(bytes)
    }

    fn footer(&self, raw: &[u8], _from_guest: bool) -> Result<Footer, Refusal> {
        let footer = Footer::decode(raw)?;
        self.coding.map_or(Ok(()), |coding| coding.check(&footer.block))?;
        Ok(footer)
    }

    fn commit(
        &self,
        store: &Arc<Store>,
        (writer, footer): (FragmentWriter, Footer),
        reply: Reply,
        permit: Option<Permit>,
    ) {
        let told = self.told(store, told(reply, permit));
        let block = &footer.block;
        if !self.certain && block.chosen.get(block.index).is_none_or(|chosen| chosen.incarnation != store.incarnation())
        {
            drop(writer);
            told(Ok(Answer::Missing));
        } else if self.certain {
            writer.submit_keep(&self.meta, &footer.etag, footer.block, told);
        } else {
            writer.submit_prepare(&self.meta, &footer.etag, footer.block, told);
        }
    }
}

impl Keeping {
    /// The same version may have been here without a row: its row is pending as well.
    fn told(&self, store: &Arc<Store>, told: Told) -> Told {
        let (store, key, timestamp, row) = (Arc::clone(store), self.key, self.meta.timestamp, self.row);
        let ends = self.certain.then(|| self.meta.name.clone());
        Box::new(move |outcome| {
            if !matches!(outcome, Ok(Answer::Done)) {
                return told(outcome);
            }
            store.keep_pending(key, timestamp, row);
            let Some(name) = ends else { return told(outcome) };
            // It counts for certain, and a copy before it does not any more.
            let until = copies::before(timestamp, false);
            copies::end(&store, &key, until, Some(name), Box::new(move |ended| told(ended.and(outcome))));
        })
    }
}

/// Called by the store with its answer: releases what the request held, then answers.
fn told(reply: Reply, permit: Option<Permit>) -> Told {
    Box::new(move |outcome| {
        drop(permit);
        let header = outcome.map_err(Refusal::from).and_then(|answer| Ok(encode_answer(&answer)?));
        match header {
            Ok(header) => reply.answer(header, Body::Empty),
            Err(refusal) => reply.refuse(&refusal),
        }
    })
}

/// Ask the store about a fragment; it answers when what it says is durable. About a write that has chosen another
/// device, though one of this name, it has no voice.
pub(crate) fn about(store: &Arc<Store>, key: Key, asked: About, reply: Reply, permit: Permit) {
    if let About::Promise { chosen, .. } | About::Accept { chosen, .. } = &asked
        && !chosen.iter().any(|chosen| chosen.incarnation == store.incarnation())
    {
        return told(reply, Some(permit))(Ok(Answer::Missing));
    }
    let certain = match &asked {
        About::Settle(version) | About::Decide { version, outcome: Outcome::Commit } => Some(*version),
        About::Learn(theirs) => Some(theirs.version),
        _ => None,
    };
    let (held, device) = (Arc::clone(store), Arc::clone(&permit.device));
    let ask = move |told: Told| held.submit_about_fragment(key, asked, told);
    let Some(version) = certain else { return ask(told(reply, Some(permit))) };
    // A copy before it does not count any more: that is said first. Its name is read in a thread of the device.
    let until = copies::before(version.timestamp, version.is_deletion());
    let told = told(reply, Some(permit));
    let told = if version.is_deletion() && is_pack(&key.digest) { forgetting(store, &device, key, told) } else { told };
    if !copies::has_dead(store, &key, until) {
        return ask(told);
    }
    let store = Arc::clone(store);
    device.run(move || {
        let then = Box::new(move |ended: swiftlet_store::Result<bool>| match ended {
            Ok(_) => ask(told),
            Err(error) => told(Err(error)),
        });
        copies::end(&store, &key, until, None, then);
    });
}

/// Before it is said that a deletion of a pack is known, the references to it go that a device has from when it was a place
/// before: by their set hashes it would pass for one that has the objects.
fn forgetting(store: &Arc<Store>, device: &Arc<Device>, key: Key, told: Told) -> Told {
    let (store, device) = (Arc::clone(store), Arc::clone(device));
    Box::new(move |outcome| {
        if outcome.is_err() {
            return told(outcome);
        }
        device.run(move || told(store.forget_references_to(&key).and(outcome)));
    })
}

/// Read something of a fragment, in a thread of the device.
pub(crate) fn look(store: &Store, permit: Permit, lends: Option<&Pool>, request: &Request) -> Answered {
    match request {
        Request::Newest { key, below, start, stop } => {
            let found = store.newest_fragment(key, *below)?;
            let (committed, floor, post) = (found.committed, found.floor, found.post);
            let newest = committed.max(floor).map_or(0, |version| version.timestamp);
            let (copy, bytes) = copy(store, key, newest, *start..*stop)?;
            let (fragment, body) = match (found.fragment, bytes) {
                (None, None) => (None, Body::Empty),
                (None, Some(bytes)) => (None, held(bytes, permit)?),
                (Some(fragment), bytes) => {
                    let FragmentInfo { meta, etag, block } = fragment.info();
                    let info = FragmentInfo { meta: meta.clone(), etag: etag.clone(), block: without_cells(block) };
                    let (cells, body) = match bytes {
                        Some(bytes) => (Cells::default(), held(bytes, permit)?),
                        None => {
                            let wanted = touched(&block.geometry, block.index, *start..*stop);
                            cells(&fragment, wanted, permit, lends)?
                        }
                    };
                    (Some((info, cells)), body)
                }
            };
            Ok((Newest { committed, floor, fragment, post, copy }.encode()?, body))
        }
        Request::Cells { key, version, first, end } => match store.fragment(key, *version)? {
            Fetched::Fragment(fragment) => {
                let (cells, body) = cells(&fragment, *first..*end, permit, lends)?;
                Ok((Given::Cells(cells).encode()?, body))
            }
            Fetched::Not(answer) => Ok((Given::Not(answer).encode()?, Body::Empty)),
        },
        Request::Incarnation => Ok((store.incarnation().to_be_bytes().to_vec(), Body::Empty)),
        Request::Unsettled { policy, after } => {
            let (all, more) = store.unsettled_fragments(*policy, *after, MAX_UNSETTLED);
            Ok((encode_unsettled(&all, more)?, Body::Empty))
        }
        Request::Keep { .. } | Request::About { .. } | Request::Post { .. } => {
            Err(Refusal::new(Status::NodeError, "a request that changes something was taken for one that reads"))
        }
    }
}

/// What the device has of the object as a copy, with these bytes of it if it is newer than all fragments.
fn copy(
    store: &Store,
    key: &Key,
    newest: u64,
    wanted: Range<u64>,
) -> Result<(Option<CopyHere>, Option<Vec<u8>>), Refusal> {
    let place = key;
    let key = copies::copy_key(key);
    let Some(entry) = store.entry(&key)? else { return Ok((None, None)) };
    if entry.kind == EntryKind::Tombstone {
        return Ok((Some(CopyHere::Dead(entry.timestamp)), None));
    }
    let referred = || -> swiftlet_store::Result<Option<CopyHere>> {
        let Some(referred) = store.reference(&key)? else { return Ok(None) };
        let Pack { digest, version } = referred.pack;
        let pack_bytes = match store.fragment(&Key { digest, ..*place }, version)? {
            Fetched::Fragment(fragment) => Some(fragment.info().block.geometry.object_bytes()),
            Fetched::Not(_) => None,
        };
        Ok(Some(CopyHere::Packed { referred, pack_bytes }))
    };
    if let Some(packed) = referred()? {
        return Ok((Some(packed), None));
    }
    let read = || -> swiftlet_store::Result<(Info, Option<Vec<u8>>)> {
        if wanted.is_empty() || entry.timestamp <= newest {
            return Ok((store.stat(&key)?, None));
        }
        let object = store.get(&key)?;
        let info = object.info().clone();
        let (start, stop) = (wanted.start.min(info.size), wanted.end.min(info.size));
        let bytes = object.read(start, stop - start)?;
        Ok((info, Some(bytes)))
    };
    match read() {
        Ok((info, bytes)) => {
            let body_xxh3 = bytes.as_deref().map(swiftlet_hash::xxh3_64);
            Ok((Some(CopyHere::Is { info, body_xxh3 }), bytes))
        }
        // It was deleted meanwhile.
        Err(Error::NotFound(deleted)) => Ok((deleted.map(CopyHere::Dead), None)),
        // It may have been packed meanwhile.
        Err(error) => match referred()? {
            Some(packed) => Ok((Some(packed), None)),
            None => Err(error.into()),
        },
    }
}

fn held(bytes: Vec<u8>, mut permit: Permit) -> Result<Body, Refusal> {
    permit.hold(bytes.len())?;
    Ok(if bytes.is_empty() { Body::Empty } else { Body::Chunk(Chunk::from_owner(Box::new(Held::new(bytes, permit)))) })
}

fn without_cells(block: &Block) -> Block {
    Block {
        geometry: block.geometry,
        chosen: block.chosen.clone(),
        totals: block.totals.clone(),
        cells: Vec::new(),
        ..*block
    }
}

/// The cells of a data fragment that have some of these bytes of the object.
pub(crate) fn touched(geometry: &Geometry, index: usize, bytes: Range<u64>) -> Range<u64> {
    if index >= geometry.scheme().data() {
        return 0..0;
    }
    let mut stripes = geometry.stripes_of(bytes.clone());
    let has_some = |number: u64| {
        let within = geometry
            .stripe(number)
            .map_or(0..0, |stripe| bytes.start.max(stripe.offset)..bytes.end.min(stripe.offset + stripe.bytes as u64));
        geometry.pieces(within).any(|piece| piece.cell == index)
    };
    // Of those between the first and the last one all data cells are.
    if !stripes.is_empty() && !has_some(stripes.start) {
        stripes.start += 1;
    }
    if !stripes.is_empty() && !has_some(stripes.end - 1) {
        stripes.end -= 1;
    }
    stripes
}

/// As many of these cells as one answer has: read into the memory that is lent, where there is any to spare.
fn cells(
    fragment: &Fragment,
    wanted: Range<u64>,
    mut permit: Permit,
    lends: Option<&Pool>,
) -> Result<(Cells, Body), Refusal> {
    let block = &fragment.info().block;
    let most = (MAX_READ_BYTES / block.cell_bytes as u64).clamp(1, MAX_READ_CELLS);
    let end = wanted.end.min(block.geometry.stripes()).min(wanted.start.saturating_add(most));
    if wanted.start >= end {
        return Ok((Cells { first: wanted.start, xxh3: Vec::new() }, Body::Empty));
    }
    let wanted = wanted.start..end;
    let told = Cells { first: wanted.start, xxh3: block.cells[wanted.start as usize..end as usize].to_vec() };
    if let Some(lent) = lends.and_then(|pool| lent(fragment, &wanted, pool).transpose()) {
        return Ok((told, lent?));
    }
    permit.hold(fragment.bytes_of(wanted.clone()) as usize)?;
    let bytes = fragment.cells(wanted)?;
    let body = match bytes.is_empty() {
        true => Body::Empty,
        false => Body::Chunk(Chunk::from_owner(Box::new(Held::new(bytes, permit)))),
    };
    Ok((told, body))
}

/// These cells in the memory that is lent, in pieces of whole cells; nothing if it has no room for them.
fn lent(fragment: &Fragment, wanted: &Range<u64>, pool: &Pool) -> Result<Option<Body>, Refusal> {
    let in_a_piece = (CHUNK_BYTES / fragment.info().block.cell_bytes) as u64;
    if in_a_piece == 0 || fragment.bytes_of(wanted.clone()) == 0 {
        return Ok(None);
    }
    let mut pieces = Vec::new();
    let mut first = wanted.start;
    while first < wanted.end {
        let piece = first..wanted.end.min(first + in_a_piece);
        let bytes = fragment.bytes_of(piece.clone()) as usize;
        let Some(mut buffer) = pool.spare(bytes) else { return Ok(None) };
        fragment.cells_into(piece.clone(), buffer.as_mut_slice())?;
        pieces.push(buffer.freeze(bytes));
        first = piece.end;
    }
    Ok(Some(pieces.into()))
}
