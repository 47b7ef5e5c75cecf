//! Reading into memory of the caller, who passes it on: no byte is copied a second time.
//!
//! Fault model: as for all reading. Memory in which something unsound was found is returned with undefined content.

use std::sync::Arc;

use swiftlet_hash::{Digests, Hasher};

use super::{Object, found_object, large_file, merged, read_rest, readable};
use crate::aggregate::MAX_AGGREGATE;
use crate::disk::File;
use crate::error::Result;
use crate::inner::Inner;
use crate::model::{Info, Key};
use crate::reading::{HEAD_BYTES, Raw, Trouble, read_record};
use crate::record::{CHUNK, HEADER, Kind};

/// Up to this size a copy costs less than reading the data separately.
pub(super) const WORTH_BYTES: u64 = 64 << 10;

/// The result of a read.
pub enum Got<M> {
    /// All of an object's bytes, checked, in pieces of 1 MiB, the last one shorter.
    Pieces(Info, Vec<M>),
    /// An object that is too small or too large, or for which there was no memory.
    Object(Object),
}

/// An object's bytes in memory that `room` returns, piece by piece, each exactly as large as requested; or the object.
pub(crate) fn get<M: AsMut<[u8]>>(
    inner: &Arc<Inner>,
    key: &Key,
    room: &mut dyn FnMut(usize) -> Option<M>,
) -> Result<Got<M>> {
    readable(inner, key, |found| {
        let slot = &found.held.slot;
        let file = &*found.pinned.file;
        let (place, len) = (slot.place, slot.bytes());
        let want = if len > WORTH_BYTES { HEAD_BYTES } else { len };
        let mut raw = read_record(inner, key, file, place, len, want)?;
        let info = merged(inner, key, &raw, found.post.as_ref())?;
        let size = raw.header.size;
        if size > WORTH_BYTES
            && size <= MAX_AGGREGATE
            && let Some(mut pieces) = pieces_of(size, room)
        {
            if raw.header.kind == Kind::Large {
                let (large, table) = large_file(inner, &raw)?;
                let sound = |number: usize, piece: &[u8]| table.get(number) == Some(&swiftlet_hash::xxh3_64(piece));
                fill(inner, &*large, 0, &mut pieces, sound)?
                    .then_some(())
                    .ok_or(unsound(&raw, "a chunk is damaged"))?;
            } else {
                fill_small(inner, file, &raw, &mut pieces)?;
            }
            return Ok(Got::Pieces(info, pieces));
        }
        read_rest(inner, file, place, &mut raw, len)?;
        found_object(inner, key, found, raw, info).map(Got::Object)
    })
}

fn unsound(raw: &Raw, what: &'static str) -> Trouble {
    Trouble::Unsound(raw.header.place, what)
}

fn pieces_of<M: AsMut<[u8]>>(size: u64, room: &mut dyn FnMut(usize) -> Option<M>) -> Option<Vec<M>> {
    let mut pieces = Vec::with_capacity(size.div_ceil(CHUNK) as usize);
    for start in (0..size).step_by(CHUNK as usize) {
        let bytes = (size - start).min(CHUNK) as usize;
        let mut piece = room(bytes)?;
        assert_eq!(piece.as_mut().len(), bytes, "memory of another size than was asked for");
        pieces.push(piece);
    }
    Some(pieces)
}

fn fill_small<M: AsMut<[u8]>>(inner: &Inner, file: &dyn File, raw: &Raw, pieces: &mut [M]) -> Result<(), Trouble> {
    let start = raw.header.place.offset() + HEADER as u64 + u64::from(raw.header.metadata_len);
    let sum = if pieces.len() == 1 {
        let mut sum = None;
        let took = fill(inner, file, start, pieces, |_, piece| {
            sum = Some(swiftlet_hash::xxh3_64(piece));
            true
        })?;
        sum.filter(|_| took)
    } else {
        let mut hasher = Hasher::new(Digests { md5: false, xxh3: true });
        let took = fill(inner, file, start, pieces, |_, piece| {
            hasher.update(piece);
            true
        })?;
        hasher.xxh3_64().filter(|_| took)
    };
    if sum == Some(raw.header.data_xxh3) { Ok(()) } else { Err(unsound(raw, "its data is damaged")) }
}

/// Read one piece after the other, and pass each on while it is in the cache. Returns whether all were present and
/// sound.
fn fill<M: AsMut<[u8]>>(
    inner: &Inner,
    file: &dyn File,
    mut at: u64,
    pieces: &mut [M],
    mut sound: impl FnMut(usize, &[u8]) -> bool,
) -> Result<bool> {
    file.read_ahead(at, pieces.iter_mut().map(|piece| piece.as_mut().len() as u64).sum());
    for (number, piece) in pieces.iter_mut().enumerate() {
        let piece = piece.as_mut();
        if inner.device.io("read a file", file.read_at(piece, at))? < piece.len() || !sound(number, piece) {
            return Ok(false);
        }
        at += piece.len() as u64;
    }
    Ok(true)
}
