//! Reading small objects that are in memory, without a wait for the device.
//!
//! Fault model: as for all reading, but nothing is done about it here. Whatever is the matter is found, and handled, by
//! who reads the object as usual. Memory in which something unsound was found is returned with undefined content.

use std::ops::Range;
use std::sync::Arc;

use super::into::WORTH_BYTES;
use super::{Object, find, found_object, merged, sound_data};
use crate::inner::Inner;
use crate::model::{Info, Key};
use crate::reading::{head_of_record, whole_record};
use crate::record::Kind;

/// Records up to this size are read at once: that takes about as long as handing the request to another thread, which
/// would have to be woken, and to wake this one.
const AT_ONCE_BYTES: u64 = 128 << 10;

/// An object that was read at once.
pub enum AtOnce<M> {
    /// In memory of its own.
    Object(Object),
    /// Its record in memory of the caller, and where in it the checked bytes of the object are.
    Record(Info, M, Range<usize>),
}

/// A small object whose record is in memory. A record above [`WORTH_BYTES`] is read into what `room` returns, if it
/// returns some, exactly as large as requested. None says nothing about the object.
pub(crate) fn get<M: AsMut<[u8]>>(
    inner: &Arc<Inner>,
    key: &Key,
    room: &mut dyn FnMut(usize) -> Option<M>,
) -> Option<AtOnce<M>> {
    inner.device.check().ok()?;
    let found = find(inner, key).ok()??;
    let (place, len) = (found.held.slot.place, found.held.slot.bytes());
    if found.held.slot.kind != Kind::Put || found.held.extra.post.is_some() || len > AT_ONCE_BYTES {
        return None;
    }
    let file = &found.pinned.file;
    if len > WORTH_BYTES
        && let Some(mut memory) = room(len as usize)
    {
        let bytes = memory.as_mut();
        assert_eq!(bytes.len() as u64, len, "memory of another size than was asked for");
        if !file.read_at_once(bytes, place.offset()) {
            return None;
        }
        let raw = head_of_record(inner, key, bytes, place).ok()?;
        let info = merged(inner, key, &raw, None).ok()?;
        let data = sound_data(&raw.header, bytes).ok()?;
        return Some(AtOnce::Record(info, memory, data));
    }
    let mut bytes = vec![0; len as usize];
    if !file.read_at_once(&mut bytes, place.offset()) {
        return None;
    }
    let raw = whole_record(inner, key, bytes, place).ok()?;
    let info = merged(inner, key, &raw, None).ok()?;
    found_object(inner, key, found, raw, info).ok().map(AtOnce::Object)
}
