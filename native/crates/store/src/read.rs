//! Reading: nothing is returned before it was checked.
//!
//! Fault model: any bit on the device may have flipped, records may be cut off, large files may be missing. An unsound
//! record is moved to quarantine and counts as missing, and replication restores it.

mod at_once;
pub(crate) mod fragments;
mod into;
pub(crate) mod tables;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::aggregate::MAX_AGGREGATE;
use crate::disk::File;
use crate::error::{Error, Result};
use crate::index::Held;
use crate::inner::Inner;
use crate::large;
use crate::merge;
use crate::model::{Info, Key};
use crate::post::Post;
use crate::reading::{HEAD_BYTES, Raw, Trouble, load_post, put_of, read_record};
use crate::record::{ALIGN, CHUNK, HEADER, Header, Kind, Place, parse_tombstone, u64_at};
use crate::scan;
use crate::unsound;
use crate::volume::Pinned;

pub use at_once::AtOnce;
pub(crate) use at_once::get as get_at_once;
pub use fragments::{Fetched, Fragment, Newest};
pub use into::Got;
pub(crate) use into::get as get_into;
pub use tables::{Referred, from_member};

/// What was written past the page cache is read from the disk the first time: this chunk of a large object, and the next
/// one while this one is checked and sent.
const AHEAD: u64 = 2 * CHUNK;

enum Body {
    /// Checked as a whole; the data begins at this offset.
    Memory(Vec<u8>, usize),
    /// Checked chunk by chunk.
    File(Arc<dyn File>, Vec<u64>),
}

/// Where an object's bytes are, for `sendfile`.
pub struct Range {
    /// The volume or the large file.
    pub file: OwnedFd,
    /// Bytes from its start.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// One version of an object, readable until it is dropped even if it is replaced or deleted meanwhile.
pub struct Object {
    inner: Arc<Inner>,
    key: Key,
    place: Place,
    info: Info,
    body: Body,
    offset: u64,
    pinned: Pinned,
}

impl Object {
    /// The merged object.
    #[must_use]
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// All of a small object's bytes, which have been checked; None for a large one's.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.body {
            Body::Memory(bytes, start) => bytes.get(*start..*start + self.info.size as usize),
            Body::File(..) => None,
        }
    }

    /// Where the bytes are; None on disks that are not real. They stay as long as this object exists. Of a large
    /// object only what was `read` has been checked.
    pub fn range(&self) -> Result<Option<Range>> {
        let file = match &self.body {
            Body::Memory(..) => &self.pinned.file,
            Body::File(file, _) => file,
        };
        let Some(descriptor) = file.descriptor() else { return Ok(None) };
        let file = self.inner.device.io("copy a descriptor", descriptor.as_fd().try_clone_to_owned())?;
        Ok(Some(Range { file, offset: self.offset, len: self.info.size }))
    }

    /// Bytes `[offset, offset + len)`, shorter only at the end.
    pub fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let offset = offset.min(self.info.size);
        let end = offset.saturating_add(len).min(self.info.size);
        match &self.body {
            Body::Memory(bytes, start) => Ok(bytes[start + offset as usize..start + end as usize].to_vec()),
            Body::File(file, table) => self.read_chunks(&**file, table, offset, end),
        }
    }

    fn read_chunks(&self, file: &dyn File, table: &[u64], offset: u64, end: u64) -> Result<Vec<u8>> {
        if offset == end {
            return Ok(Vec::new());
        }
        let first = offset / CHUNK * CHUNK;
        let last = end.next_multiple_of(CHUNK).min(self.info.size);
        let want = (last - first) as usize;
        let mut bytes = Vec::new();
        file.read_ahead(first, (want as u64).max(AHEAD));
        let read = self.inner.device.io("read a large file", file.append_at(&mut bytes, want, first))?;
        self.check_read(table, first, &bytes, read == want)?;
        bytes.truncate((end - first) as usize);
        bytes.drain(..(offset - first) as usize);
        Ok(bytes)
    }

    /// Fill memory with the bytes from `offset` on, checked. False: these are no whole chunks of a large object, which
    /// has to be [read](Self::read).
    pub fn read_into(&self, offset: u64, into: &mut [u8]) -> Result<bool> {
        let Body::File(file, table) = &self.body else { return Ok(false) };
        let end = offset.saturating_add(into.len() as u64);
        let whole = offset.is_multiple_of(CHUNK) && (end == self.info.size || end.is_multiple_of(CHUNK));
        if !whole || end > self.info.size || into.is_empty() {
            return Ok(false);
        }
        file.read_ahead(offset, (into.len() as u64).max(AHEAD));
        let read = self.inner.device.io("read a large file", file.read_at(into, offset))?;
        self.check_read(table, offset, into, read == into.len())?;
        Ok(true)
    }

    /// Check what was read of a large object from a chunk's start on; if it is damaged, the object is set aside.
    fn check_read(&self, table: &[u64], first: u64, bytes: &[u8], whole: bool) -> Result<()> {
        let sums = table.iter().skip((first / CHUNK) as usize);
        let mut chunks = bytes.chunks(CHUNK as usize).zip(sums);
        if whole && chunks.all(|(chunk, sum)| swiftlet_hash::xxh3_64(chunk) == *sum) {
            return Ok(());
        }
        unsound::set_aside(&self.inner, &self.key, self.place)?;
        Err(Error::ChecksumMismatch("a chunk is damaged; the object was moved to quarantine".into()))
    }
}

/// What the index has of an object, with its volumes pinned.
struct Found {
    held: Held,
    pinned: Pinned,
    post: Option<(Post, Pinned)>,
}

fn find(inner: &Inner, key: &Key) -> Result<Option<Found>> {
    let found = inner.index.look(key, |held| {
        let held = *held?;
        let pin = |place: Place| inner.volumes.get(place.volume()).map(|volume| volume.pin());
        let post = held.extra.post.and_then(|post| Some((post, pin(post.place)?)));
        Some((held, pin(held.slot.place), post))
    });
    match found {
        None => Ok(None),
        Some((held, Some(pinned), post)) => Ok(Some(Found { held, pinned, post })),
        Some(_) => Err(Error::DeviceFailed("the index names a volume that does not exist".into())),
    }
}

/// Try until what is found is sound, or nothing is found.
fn sound<T>(inner: &Inner, key: &Key, mut attempt: impl FnMut(Found) -> Result<T, Trouble>) -> Result<Option<T>> {
    inner.device.check()?;
    loop {
        let Some(found) = find(inner, key)? else { return Ok(None) };
        match attempt(found) {
            Ok(value) => return Ok(Some(value)),
            Err(Trouble::Unsound(place, _)) => unsound::unless_moved(inner, key, place)?,
            Err(Trouble::Other(error)) => return Err(error),
        }
    }
}

/// The same for objects that exist.
fn readable<T>(inner: &Inner, key: &Key, mut attempt: impl FnMut(Found) -> Result<T, Trouble>) -> Result<T> {
    let found = sound(inner, key, |found| match found.held.slot.kind {
        Kind::Tombstone => Err(Error::NotFound(Some(found.held.slot.timestamp)).into()),
        // A fragment is no object.
        kind if kind.is_fragment() => Err(Error::NotFound(None).into()),
        Kind::Table => Err(tables::is_packed().into()),
        _ => attempt(found),
    })?;
    found.ok_or(Error::NotFound(None))
}

/// The name of what is held, which may be a tombstone; None if that is nothing, or in a pack, which alone has the name.
pub(crate) fn name(inner: &Inner, key: &Key) -> Result<Option<Vec<u8>>> {
    let name = sound(inner, key, |found| {
        let slot = &found.held.slot;
        if slot.kind == Kind::Table {
            return Ok(None);
        }
        let raw = read_record(inner, key, &*found.pinned.file, slot.place, slot.bytes(), HEAD_BYTES)?;
        if raw.header.kind == Kind::Tombstone {
            let name = parse_tombstone(raw.metadata());
            return name.ok_or(Trouble::Unsound(slot.place, "its metadata is malformed")).map(Some);
        }
        Ok(Some(put_of(&raw)?.0.name))
    })?;
    Ok(name.flatten())
}

fn merged(inner: &Inner, key: &Key, raw: &Raw, post: Option<&(Post, Pinned)>) -> Result<Info, Trouble> {
    let (put, footer) = put_of(raw)?;
    let post = match post {
        Some((post, volume)) => Some(load_post(inner, key, post, &*volume.file)?),
        None => None,
    };
    Ok(merge::info_of(put, footer, post))
}

/// An object's description; with a fragment, that of the newest version that is for certain.
pub(crate) fn stat(inner: &Inner, key: &Key) -> Result<Info> {
    let described = sound(inner, key, |found| {
        let slot = &found.held.slot;
        if slot.kind == Kind::Tombstone {
            return Err(Error::NotFound(Some(slot.timestamp)).into());
        }
        if slot.kind == Kind::Table {
            return Err(tables::is_packed().into());
        }
        let raw = read_record(inner, key, &*found.pinned.file, slot.place, slot.bytes(), HEAD_BYTES)?;
        if slot.kind.is_fragment() {
            return fragments::described(inner, key, &raw, found.post.as_ref());
        }
        merged(inner, key, &raw, found.post.as_ref())
    })?;
    described.ok_or(Error::NotFound(None))
}

/// An object for reading.
pub(crate) fn get(inner: &Arc<Inner>, key: &Key) -> Result<Object> {
    readable(inner, key, |found| {
        let slot = &found.held.slot;
        let raw = read_record(inner, key, &*found.pinned.file, slot.place, slot.bytes(), slot.bytes())?;
        let info = merged(inner, key, &raw, found.post.as_ref())?;
        found_object(inner, key, found, raw, info)
    })
}

/// An object for reading if it has at most so many bytes, else its description.
pub(crate) fn get_up_to(inner: &Arc<Inner>, key: &Key, most: u64) -> Result<Result<Object, Info>> {
    readable(inner, key, |found| {
        let slot = &found.held.slot;
        let (place, len) = (slot.place, slot.bytes());
        let want = if len > most.saturating_add(HEAD_BYTES) { HEAD_BYTES } else { len };
        let mut raw = read_record(inner, key, &*found.pinned.file, place, len, want)?;
        let info = merged(inner, key, &raw, found.post.as_ref())?;
        if raw.header.size > most {
            return Ok(Err(info));
        }
        read_rest(inner, &*found.pinned.file, place, &mut raw, len)?;
        found_object(inner, key, found, raw, info).map(Ok)
    })
}

/// Read what is missing of a record of so many bytes in a volume.
fn read_rest(inner: &Inner, file: &dyn File, place: Place, raw: &mut Raw, len: u64) -> Result<()> {
    let had = raw.bytes.len() as u64;
    if raw.header.kind != Kind::Large && had < len {
        inner.device.io("read a volume", file.append_at(&mut raw.bytes, (len - had) as usize, place.offset() + had))?;
    }
    Ok(())
}

/// The object of a record that was read up to the end of its part in the volume.
fn found_object(inner: &Arc<Inner>, key: &Key, found: Found, raw: Raw, info: Info) -> Result<Object, Trouble> {
    let Found { pinned, held, .. } = found;
    let place = held.slot.place;
    let body = if raw.header.kind == Kind::Large { open_large(inner, &raw)? } else { check_small(raw)? };
    let offset = if let Body::Memory(_, start) = &body { place.offset() + *start as u64 } else { 0 };
    Ok(Object { inner: Arc::clone(inner), key: *key, place, info, body, offset, pinned })
}

/// Where a record has the data of a small object, which are checked.
fn sound_data(header: &Header, record: &[u8]) -> Result<std::ops::Range<usize>, Trouble> {
    let start = HEADER + header.metadata_len as usize;
    let within = start..start + header.size as usize;
    match record.get(within.clone()) {
        Some(data) if swiftlet_hash::xxh3_64(data) == header.data_xxh3 => Ok(within),
        _ => Err(Trouble::Unsound(header.place, "its data is damaged")),
    }
}

fn check_small(raw: Raw) -> Result<Body, Trouble> {
    let data = sound_data(&raw.header, &raw.bytes)?;
    Ok(Body::Memory(raw.bytes, data.start))
}

/// A large object's file, and the checksums of its chunks.
fn large_file(inner: &Inner, raw: &Raw) -> Result<(Arc<dyn File>, Vec<u64>), Trouble> {
    let header = &raw.header;
    let unsound = |what| Trouble::Unsound(header.place, what);
    let file = match inner.device.disk.open(&large::path_of(header.large)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(unsound("its file is not there")),
        other => inner.device.io("open a large file", other)?,
    };
    let size = inner.device.io("ask for a file's size", file.size())?;
    if size != header.size {
        return Err(unsound("its file has another size"));
    }
    let metadata = raw.metadata();
    let table = metadata[metadata.len() - header.table_len()..].chunks_exact(8).map(|raw| u64_at(raw, 0)).collect();
    Ok((file, table))
}

fn open_large(inner: &Inner, raw: &Raw) -> Result<Body, Trouble> {
    let (file, table) = large_file(inner, raw)?;
    if raw.header.size <= MAX_AGGREGATE {
        // Small enough to be checked before the first byte leaves.
        let unsound = |what| Trouble::Unsound(raw.header.place, what);
        check_chunks(inner, &*file, raw.header.size, &table, &|_| true)?.map_err(unsound)?;
    }
    Ok(Body::File(file, table))
}

fn check_chunks(
    inner: &Inner,
    file: &dyn File,
    size: u64,
    table: &[u64],
    rest: &dyn Fn(u64) -> bool,
) -> Result<Result<(), &'static str>> {
    let mut buffer = vec![0; size.min(CHUNK) as usize];
    for (number, sum) in table.iter().enumerate() {
        let start = number as u64 * CHUNK;
        let want = (size - start).min(CHUNK) as usize;
        let read = inner.device.io("read a large file", file.read_at(&mut buffer[..want], start))?;
        if read < want || swiftlet_hash::xxh3_64(&buffer[..want]) != *sum {
            return Ok(Err("a chunk is damaged"));
        }
        if !rest(want as u64) {
            break;
        }
    }
    Ok(Ok(()))
}

/// Read and check all of an object; returns the bytes read. `ChecksumMismatch` after it was moved to quarantine.
/// `rest` is called after each piece with its bytes, and ends the reading with false.
pub(crate) fn verify(inner: &Inner, key: &Key, rest: &dyn Fn(u64) -> bool) -> Result<u64> {
    inner.device.check()?;
    if inner.index.has_fragment(key) {
        return fragments::verify(inner, key, rest);
    }
    loop {
        let Some(found) = find(inner, key)? else { return Err(Error::NotFound(None)) };
        match check_all(inner, key, &found, rest) {
            Ok(bytes) => {
                inner.counters.audited_bytes.fetch_add(bytes, Ordering::Relaxed);
                return Ok(bytes);
            }
            Err(Trouble::Other(error)) => return Err(error),
            Err(Trouble::Unsound(place, what)) => {
                if is_held(inner, key, place) {
                    unsound::unless_moved(inner, key, place)?;
                    return Err(Error::ChecksumMismatch(format!("{what}; moved to quarantine")));
                }
            }
        }
    }
}

fn is_held(inner: &Inner, key: &Key, place: Place) -> bool {
    inner
        .index
        .get(key)
        .is_some_and(|held| held.slot.place == place || held.extra.post.is_some_and(|post| post.place == place))
}

fn check_all(inner: &Inner, key: &Key, found: &Found, rest: &dyn Fn(u64) -> bool) -> Result<u64, Trouble> {
    let slot = &found.held.slot;
    let file = &*found.pinned.file;
    if slot.kind == Kind::Table {
        let bytes = tables::check_reference(inner, key, found)?;
        rest(bytes);
        return Ok(bytes);
    }
    let raw = read_record(inner, key, file, slot.place, slot.bytes(), HEAD_BYTES)?;
    let mut bytes = slot.bytes();
    match raw.header.kind {
        Kind::Tombstone => {
            parse_tombstone(raw.metadata()).ok_or(Trouble::Unsound(slot.place, "its metadata is malformed"))?;
        }
        Kind::Large => {
            put_of(&raw)?;
            let Body::File(large, table) = open_large(inner, &raw)? else { return Ok(bytes) };
            let checked = check_chunks(inner, &*large, raw.header.size, &table, rest)?;
            checked.map_err(|what| Trouble::Unsound(slot.place, what))?;
            bytes += raw.header.size;
        }
        _ => {
            put_of(&raw)?;
            if !inner.device.io("read a volume", scan::check_data(file, &raw.header))? {
                return Err(Trouble::Unsound(slot.place, "its data is damaged"));
            }
        }
    }
    if let Some((post, volume)) = &found.post {
        load_post(inner, key, post, &*volume.file)?;
        bytes += u64::from(post.units) * ALIGN;
    }
    rest(slot.bytes());
    Ok(bytes)
}
