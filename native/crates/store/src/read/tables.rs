//! Reading references to packs.
//!
//! Fault model: as for all reading. A block of a table is proved by itself, so that of a damaged table nothing else is
//! lost: see `unsound`.

use std::sync::atomic::Ordering;

use swiftlet_fragments::packs::Pack;
use swiftlet_fragments::packs::member::Packed;
use swiftlet_fragments::packs::table::{HEAD, Head, MAX_MEMBER_BYTES, Reference};

use super::{Found, sound};
use crate::disk::File;
use crate::error::{Error, Result};
use crate::index::{Member, PartitionId};
use crate::inner::Inner;
use crate::merge;
use crate::model::{Info, Key, PostMeta, Timestamp};
use crate::reading::{Trouble, load_post, put_of, read_record};
use crate::record::{ALIGN, HEADER, Header, Kind, Parsed, Place, pack_of, parse_member, parse_table};
use crate::unsound;

/// Where an object is that is in a pack, and what was posted to it since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referred {
    /// The pack.
    pub pack: Pack,
    /// Which bytes of it.
    pub reference: Reference,
    /// Metadata on top of those that are in the pack.
    pub posted: Option<PostMeta>,
}

/// The error of whoever wants an object whose bytes are elsewhere.
pub(super) fn is_packed() -> Error {
    Error::Format("the object is in a pack: ask for its reference, and read the pack".into())
}

/// The reference to an object; None if it is not in a pack, or not here.
pub(crate) fn reference(inner: &Inner, key: &Key) -> Result<Option<Referred>> {
    let found = sound(inner, key, |found| {
        let Some(member) = found.held.slot.member() else { return Ok(None) };
        let (pack, reference) = read_reference(inner, key, &found, member)?;
        let posted = match &found.post {
            Some((post, volume)) => Some(load_post(inner, key, post, &*volume.file)?),
            None => None,
        };
        Ok(Some(Referred { pack, reference, posted }))
    })?;
    Ok(found.flatten())
}

/// The bytes that a copy has as a member of a pack; None if it is none that a pack may have: something else, one that
/// expires, or one with a file of its own.
pub(crate) fn member(inner: &Inner, key: &Key) -> Result<Option<Vec<u8>>> {
    let found = sound(inner, key, |found| {
        let slot = &found.held.slot;
        if slot.kind != Kind::Put || found.held.extra.delete_at != 0 {
            return Ok(None);
        }
        let raw = read_record(inner, key, &*found.pinned.file, slot.place, slot.bytes(), slot.bytes())?;
        put_of(&raw)?;
        let body = raw
            .bytes
            .get(HEADER + raw.header.metadata_len as usize..)
            .and_then(|rest| rest.get(..raw.header.size as usize));
        let Some(body) = body.filter(|body| swiftlet_hash::xxh3_64(body) == raw.header.data_xxh3) else {
            return Err(Trouble::Unsound(slot.place, "its data is damaged"));
        };
        let mut member = Vec::new();
        let packed = Packed { digest: key.digest, timestamp: slot.timestamp, metadata: raw.metadata(), body };
        packed.encode(&mut member);
        Ok((member.len() <= MAX_MEMBER_BYTES as usize).then_some(member))
    })?;
    Ok(found.flatten())
}

/// An object from the bytes of a pack to which a reference leads; None if they are not those of this version, or damaged.
#[must_use]
pub fn from_member(
    digest: [u8; 16],
    timestamp: Timestamp,
    bytes: &[u8],
    posted: Option<PostMeta>,
) -> Option<(Info, &[u8])> {
    let Packed { metadata, body, .. } =
        Packed::parse(bytes).filter(|packed| (packed.digest, packed.timestamp) == (digest, timestamp))?;
    let (put, footer) = parse_member(timestamp, metadata, body)?;
    Some((merge::info_of(put, footer, posted), body))
}

/// Check a reference, and the POST on top; returns the bytes read.
pub(super) fn check_reference(inner: &Inner, key: &Key, found: &Found) -> Result<u64, Trouble> {
    let Some(member) = found.held.slot.member() else { return Ok(0) };
    read_reference(inner, key, found, member)?;
    let mut bytes = ALIGN;
    if let Some((post, volume)) = &found.post {
        load_post(inner, key, post, &*volume.file)?;
        bytes += u64::from(post.units) * ALIGN;
    }
    Ok(bytes)
}

/// The reference at a place, from its block.
fn read_reference(inner: &Inner, key: &Key, found: &Found, member: Member) -> Result<(Pack, Reference), Trouble> {
    let slot = &found.held.slot;
    let file = &*found.pinned.file;
    let unsound = |what| Trouble::Unsound(slot.place, what);
    let read = |at: usize, count: usize| -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let from = slot.place.offset() + at as u64;
        inner.device.io("read a volume", file.append_at(&mut bytes, count, from))?;
        Ok(bytes)
    };
    let raw = read(0, HEADER + HEAD)?;
    let header = header_of(inner, (key.policy, key.partition), slot.place, &raw)
        .ok_or(unsound("the header of its table is damaged"))?;
    let block = unsound("its block of a table is damaged");
    let head = raw.get(HEADER..).and_then(Head::parse).filter(|head| head.pack() == pack_of(&header));
    let Some(head) = head else { return Err(block) };
    let Some(at) = head.entry_at(member.block) else { return Err(block) };
    let Some(entry) = head.entry(member.block, &read(HEADER + at.start, at.len())?) else { return Err(block) };
    let at = head.block_at(&entry);
    if at.end > header.metadata_len as usize {
        return Err(block);
    }
    let references = head.block(&entry, &read(HEADER + at.start, at.len())?).unwrap_or_default();
    let is_it =
        |one: &&Reference| (one.digest, one.timestamp, one.length) == (key.digest, slot.timestamp, member.length);
    match references.iter().find(is_it) {
        Some(reference) => Ok((head.pack(), *reference)),
        None => Err(block),
    }
}

/// The header of a table at a place, if it is one of this partition.
fn header_of(inner: &Inner, id: PartitionId, place: Place, raw: &[u8]) -> Option<Header> {
    match Header::parse(raw, place, &inner.device.id) {
        Parsed::Sound(header) if header.kind == Kind::Table => {
            ((header.key.policy, header.key.partition) == id).then_some(header)
        }
        _ => None,
    }
}

/// Read and check a whole table; returns the bytes read, and the pack's key if it was damaged.
pub(crate) fn verify(inner: &Inner, id: PartitionId, place: Place) -> Result<(u64, Option<Key>)> {
    let found = inner.index.partition(id, |partition| {
        let table = partition.table(place)?;
        Some((table, inner.volumes.get(place.volume())?.pin()))
    });
    let Some((table, volume)) = found.flatten() else { return Ok((0, None)) };
    let bytes = u64::from(table.units) * ALIGN;
    let is_sound = is_sound(inner, id, place, bytes, &*volume.file)?;
    inner.counters.audited_bytes.fetch_add(bytes, Ordering::Relaxed);
    if is_sound {
        return Ok((bytes, None));
    }
    let key = Key { policy: id.0, partition: id.1, digest: table.pack.digest };
    unsound::unless_moved(inner, &key, place)?;
    Ok((bytes, Some(key)))
}

fn is_sound(inner: &Inner, id: PartitionId, place: Place, bytes: u64, file: &dyn File) -> Result<bool> {
    let mut raw = Vec::new();
    inner.device.io("read a volume", file.append_at(&mut raw, bytes as usize, place.offset()))?;
    let Some(header) = header_of(inner, id, place, &raw) else { return Ok(false) };
    let metadata = raw.get(HEADER..HEADER + header.metadata_len as usize);
    Ok(header.record_len() == bytes
        && metadata.is_some_and(|metadata| {
            swiftlet_hash::xxh3_64(metadata) == header.metadata_xxh3 && parse_table(&header, metadata).is_some()
        }))
}
