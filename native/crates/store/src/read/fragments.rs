//! Reading fragments: cell by cell, each compared with its digest before it is returned.
//!
//! Fault model: as for all reading. A fragment of which anything is unsound is put aside and is missing from then on; its
//! device makes it anew from others.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use swiftlet_erasure::Geometry;
use swiftlet_fragments::Version;
use swiftlet_fragments::block::Block;
use swiftlet_fragments::request::{Answer, Request, answer};
use swiftlet_hash::xxh3_64;

use crate::disk::{File, FromDevice};
use crate::error::{Error, Result};
use crate::index::WholeObject;
use crate::inner::Inner;
use crate::large;
use crate::merge;
use crate::model::{Footer, FragmentInfo, Info, Key, PostMeta};
use crate::post::Post;
use crate::reading::{HEAD_BYTES, Raw, Trouble, load_post, read_record};
use crate::record::{
    ALIGN, CHUNK, HEADER, Kind, Place, change_of, parse_fragment, parse_post, parse_tombstone, version_of,
};
use crate::unsound;
use crate::versions::{Bytes, OfPack, Versions};
use crate::volume::Pinned;

/// A fragment whose record is sound, and whose volume is pinned.
struct Source {
    place: Place,
    info: FragmentInfo,
    /// None if the data are in the volume.
    large: Option<Arc<dyn File>>,
    /// Where the data begin.
    offset: u64,
    pinned: Pinned,
}

/// A fragment, readable until it is dropped even if its version is dead meanwhile.
pub struct Fragment {
    inner: Arc<Inner>,
    key: Key,
    source: Source,
}

/// The answer to a reader who wants the fragment of a version.
pub enum Fetched {
    /// It is here.
    Fragment(Box<Fragment>),
    /// It is not, or is not to be read.
    Not(Answer),
}

/// What a reader is told first.
pub struct Newest {
    /// The newest committed version, or the deletion.
    pub committed: Option<Version>,
    /// The newest one that is known to be settled, whether its fragment is here or not.
    pub floor: Option<Version>,
    /// The fragment of the committed version.
    pub fragment: Option<Fragment>,
    /// The newest POST, which counts for every version that is older.
    pub post: Option<PostMeta>,
}

fn cell_bytes(geometry: &Geometry, index: usize, number: u64) -> usize {
    geometry.stripe(number).and_then(|stripe| stripe.cell(index)).map_or(0, |cell| cell.bytes)
}

impl Fragment {
    /// What is stored with it.
    #[must_use]
    pub fn info(&self) -> &FragmentInfo {
        &self.source.info
    }

    /// How many bytes these cells have together.
    #[must_use]
    pub fn bytes_of(&self, cells: Range<u64>) -> u64 {
        let span = self.source.span(&cells);
        span.end - span.start
    }

    /// These of its cells, one behind the other; those behind the last one are left out. `ChecksumMismatch` after it was
    /// moved to quarantine.
    pub fn cells(&self, cells: Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.bytes_of(cells.clone()) as usize);
        self.source.file().read_ahead(self.source.offset + self.source.span(&cells).start, bytes.capacity() as u64);
        self.checked(self.source.cells(&self.inner, self.source.file(), &cells, &mut bytes))?;
        Ok(bytes)
    }

    /// Fill memory with these cells; it has to be as long as they are.
    pub fn cells_into(&self, cells: Range<u64>, into: &mut [u8]) -> Result<()> {
        self.checked(self.source.cells_into(&self.inner, &cells, into))
    }

    /// So many bytes of it as they are, compared with nothing; `NotFound` if it has not so many from there on.
    pub fn piece(&self, start: u64, bytes: usize) -> Result<Vec<u8>> {
        let Block { geometry, index, .. } = &self.source.info.block;
        if start.checked_add(bytes as u64).is_none_or(|end| end > geometry.fragment_bytes(*index)) {
            return Err(Error::NotFound(None));
        }
        let mut piece = Vec::new();
        let read = self.source.file().append_at(&mut piece, bytes, self.source.offset + start);
        let whole = self.inner.device.io("read a fragment", read)? == bytes;
        if whole { Ok(piece) } else { Err(Error::NotFound(None)) }
    }

    fn checked<T>(&self, outcome: Result<T, Trouble>) -> Result<T> {
        match outcome {
            Ok(value) => Ok(value),
            Err(Trouble::Other(error)) => Err(error),
            Err(Trouble::Unsound(place, what)) => {
                unsound::unless_moved(&self.inner, &self.key, place)?;
                Err(Error::ChecksumMismatch(format!("{what}; the fragment was moved to quarantine")))
            }
        }
    }
}

impl Source {
    /// Where these cells are in the fragment.
    fn span(&self, cells: &Range<u64>) -> Range<u64> {
        let Block { geometry, index, .. } = &self.info.block;
        geometry.span(*index, cells.clone())
    }

    fn file(&self) -> &dyn File {
        self.large.as_ref().map_or(&*self.pinned.file, |file| &**file)
    }

    fn cells(&self, inner: &Inner, file: &dyn File, cells: &Range<u64>, into: &mut Vec<u8>) -> Result<(), Trouble> {
        let span = self.span(cells);
        let want = (span.end - span.start) as usize;
        let read = file.append_at(into, want, self.offset + span.start);
        let whole = inner.device.io("read a fragment", read)? == want;
        self.check(cells.start, into, whole)
    }

    fn cells_into(&self, inner: &Inner, cells: &Range<u64>, into: &mut [u8]) -> Result<(), Trouble> {
        let span = self.span(cells);
        if span.end - span.start != into.len() as u64 {
            return Err(Error::SizeMismatch(format!("cells of {} bytes don't fit", span.end - span.start)).into());
        }
        self.file().read_ahead(self.offset + span.start, into.len() as u64);
        let read = self.file().read_at(into, self.offset + span.start);
        let whole = inner.device.io("read a fragment", read)? == into.len();
        self.check(cells.start, into, whole)
    }

    /// Compare cells from this one on with their digests.
    fn check(&self, first: u64, mut bytes: &[u8], whole: bool) -> Result<(), Trouble> {
        let Block { geometry, index, cells, .. } = &self.info.block;
        let mut cells = cells.iter().enumerate().skip(first as usize);
        let mut sound = whole;
        while sound && !bytes.is_empty() {
            let next = cells.next().and_then(|(number, digest)| {
                let (cell, rest) = bytes.split_at_checked(cell_bytes(geometry, *index, number as u64))?;
                (xxh3_64(cell) == *digest).then_some(rest)
            });
            sound = next.is_some();
            bytes = next.unwrap_or_default();
        }
        if sound { Ok(()) } else { Err(Trouble::Unsound(self.place, "a cell is damaged")) }
    }
}

/// The fragment of a version if it is here and may be read.
pub(crate) fn fragment(inner: &Arc<Inner>, key: &Key, version: Version) -> Result<Fetched> {
    inner.device.check()?;
    loop {
        let found = look(inner, key, |versions| match answer(&versions.slot(), &Request::Fetch(version)).1 {
            Answer::Fragment(_) => versions.get(version).and_then(|kept| kept.bytes).ok_or(Answer::Missing),
            other => Err(other),
        })?;
        match found {
            Err(answer) => return Ok(Fetched::Not(answer)),
            Ok(pinned) => {
                if let Some(fragment) = sound(inner, key, version, pinned)? {
                    return Ok(Fetched::Fragment(Box::new(fragment)));
                }
            }
        }
    }
}

/// The newest committed version below another one, with its fragment.
pub(crate) fn newest(inner: &Arc<Inner>, key: &Key, below: Option<Version>) -> Result<Newest> {
    inner.device.check()?;
    loop {
        let (mut committed, mut floor, mut post) = (None, None, None);
        let found = look(inner, key, |versions| {
            // What counts for the version that is found must not be gone with it.
            post = versions.post.map(|post| (post, inner.volumes.get(post.place.volume()).map(|volume| volume.pin())));
            let slot = versions.slot();
            (committed, floor) = (slot.committed(below), slot.floor());
            let version = committed.filter(|version| !version.is_deletion()).ok_or(())?;
            versions.get(version).and_then(|kept| kept.bytes).ok_or(())
        })?;
        let Ok(post) = sound_post(inner, key, post)? else { continue };
        match (found, committed) {
            (Ok(pinned), Some(version)) => {
                if let Some(fragment) = sound(inner, key, version, pinned)? {
                    return Ok(Newest { committed, floor, fragment: Some(fragment), post });
                }
            }
            _ => return Ok(Newest { committed, floor, fragment: None, post }),
        }
    }
}

/// A damaged POST was put aside.
struct PutAside;

/// The POST that was found.
fn sound_post(
    inner: &Inner,
    key: &Key,
    found: Option<(Post, Option<Pinned>)>,
) -> Result<Result<Option<PostMeta>, PutAside>> {
    let Some((post, pinned)) = found else { return Ok(Ok(None)) };
    let Some(pinned) = pinned else {
        return Err(Error::DeviceFailed("the index names a volume that does not exist".into()));
    };
    match load_post(inner, key, &post, &*pinned.file) {
        Ok(meta) => Ok(Ok(Some(meta))),
        Err(Trouble::Other(error)) => Err(error),
        Err(Trouble::Unsound(place, _)) => unsound::unless_moved(inner, key, place).map(|()| Err(PutAside)),
    }
}

/// Look for a fragment's record in what is held, and pin its volume.
fn look<E>(
    inner: &Inner,
    key: &Key,
    find: impl FnOnce(&Versions) -> Result<Bytes, E>,
) -> Result<Result<(Bytes, Pinned), E>> {
    let found = inner.index.look_at_fragment(key, |versions| {
        let bytes = find(versions)?;
        Ok((bytes, inner.volumes.get(bytes.spot.place.volume()).map(|volume| volume.pin())))
    });
    match found.map_err(WholeObject::into_error)? {
        Ok((bytes, Some(pinned))) => Ok(Ok((bytes, pinned))),
        Ok((_, None)) => Err(Error::DeviceFailed("the index names a volume that does not exist".into())),
        Err(other) => Ok(Err(other)),
    }
}

/// A fragment whose record is sound; None after it was put aside.
fn sound(inner: &Arc<Inner>, key: &Key, version: Version, found: (Bytes, Pinned)) -> Result<Option<Fragment>> {
    let (bytes, pinned) = found;
    match open(inner, key, version, bytes, pinned) {
        Ok(source) => Ok(Some(Fragment { inner: Arc::clone(inner), key: *key, source })),
        Err(Trouble::Other(error)) => Err(error),
        Err(Trouble::Unsound(place, _)) => unsound::unless_moved(inner, key, place).map(|()| None),
    }
}

fn open(inner: &Inner, key: &Key, version: Version, bytes: Bytes, pinned: Pinned) -> Result<Source, Trouble> {
    let (place, len) = (bytes.spot.place, u64::from(bytes.spot.units) * ALIGN);
    let raw = read_record(inner, key, &*pinned.file, place, len, HEAD_BYTES)?;
    let unsound = |what| Trouble::Unsound(place, what);
    let info = info_of(&raw).filter(|info| info.version() == version).ok_or(unsound("its metadata is malformed"))?;
    let mut offset = place.offset() + HEADER as u64 + u64::from(raw.header.metadata_len);
    let mut large = None;
    if raw.header.kind == Kind::LargeFragment {
        let file = match inner.device.disk.open(&large::path_of(raw.header.large)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(unsound("its file is not there")),
            other => inner.device.io("open a large file", other)?,
        };
        if inner.device.io("ask for a file's size", file.size())? != raw.header.size {
            return Err(unsound("its file has another size"));
        }
        (large, offset) = (Some(file), 0);
    }
    Ok(Source { place, info, large, offset, pinned })
}

fn info_of(raw: &Raw) -> Option<FragmentInfo> {
    if raw.header.kind.is_fragment() { parse_fragment(&raw.header, raw.metadata()) } else { None }
}

/// The description of the object that a fragment is of, from its record and the POST on top.
pub(super) fn described(inner: &Inner, key: &Key, raw: &Raw, post: Option<&(Post, Pinned)>) -> Result<Info, Trouble> {
    let info = info_of(raw).ok_or(Trouble::Unsound(raw.header.place, "its metadata is malformed"))?;
    let FragmentInfo { meta, etag, block } = info;
    let footer = Footer { size: block.geometry.object_bytes(), etag, xxh3: block.object_xxh3 as u64 };
    let post = post.map(|(post, volume)| load_post(inner, key, post, &*volume.file)).transpose()?;
    Ok(merge::info_of(meta, footer, post))
}

/// Whether the fragment of a pack is here and settled, as the device itself has it; one that is unsound there is put
/// aside, and is missing.
pub(crate) fn prove(inner: &Inner, key: &Key, pack: Version) -> Result<OfPack> {
    inner.device.check()?;
    loop {
        let found = look(inner, key, |versions| match versions.of_pack(pack) {
            OfPack::Kept(bytes) => Ok(bytes),
            other => Err(other),
        })?;
        let (bytes, pinned) = match found {
            Ok(found) => found,
            Err(other) => return Ok(other),
        };
        match open(inner, key, pack, bytes, pinned).and_then(|source| read_back(inner, key, &source, bytes)) {
            Ok(()) => return Ok(OfPack::Kept(bytes)),
            Err(Trouble::Other(error)) => return Err(error),
            Err(Trouble::Unsound(place, _)) => unsound::unless_moved(inner, key, place)?,
        }
    }
}

/// Compare a fragment on the device with what was read of it: its record, and each cell with its digest.
fn read_back(inner: &Inner, key: &Key, source: &Source, bytes: Bytes) -> Result<(), Trouble> {
    let (place, len) = (source.place, u64::from(bytes.spot.units) * ALIGN);
    let raw = read_record(inner, key, &FromDevice(&*source.pinned.file), place, len, HEAD_BYTES)?;
    if info_of(&raw).as_ref() != Some(&source.info) {
        return Err(Trouble::Unsound(place, "its record is another one on the device"));
    }
    check_cells(inner, source, &FromDevice(source.file()), &|_| true).map(drop)
}

/// Records that are compacted while they are checked are looked for again at most so often.
const TRIES: usize = 16;

/// Read and check all records of a fragment and its versions; returns the bytes read. `ChecksumMismatch` after something
/// was moved to quarantine. `rest` is called after each piece with its bytes, and ends the reading with false.
pub(crate) fn verify(inner: &Inner, key: &Key, rest: &dyn Fn(u64) -> bool) -> Result<u64> {
    let (mut read, mut damaged) = (0, false);
    let mut checked = Vec::new();
    for _ in 0..TRIES {
        let versions = inner.index.versions(key).map_err(WholeObject::into_error)?;
        let mut moved = false;
        for spot in versions.spots() {
            let fragment = versions.fragment_at(spot.place).map(|(kept, bytes)| (kept.version, bytes));
            if fragment.is_some_and(|(version, _)| checked.contains(&version)) {
                continue;
            }
            let Ok(pinned) = look_at_place(inner, key, spot.place)? else {
                moved = true;
                continue;
            };
            let found = match fragment {
                Some((version, bytes)) => open(inner, key, version, bytes, pinned)
                    .and_then(|source| check_cells(inner, &source, source.file(), rest)),
                None => check_decision(inner, key, (spot.place, u64::from(spot.units) * ALIGN), &pinned),
            };
            match found {
                Ok(bytes) => {
                    read += bytes;
                    checked.extend(fragment.map(|(version, _)| version));
                }
                Err(Trouble::Other(error)) => return Err(error),
                // A long fragment may be compacted while it is checked, and is put aside where it is now.
                Err(Trouble::Unsound(place, _)) if look_at_place(inner, key, place)?.is_err() => moved = true,
                Err(Trouble::Unsound(place, _)) => {
                    unsound::unless_moved(inner, key, place)?;
                    damaged = true;
                }
            }
            if !rest(u64::from(spot.units) * ALIGN) {
                moved = false;
                break;
            }
        }
        // What was compacted meanwhile is elsewhere; its turn would come only an hour later.
        if !moved {
            break;
        }
    }
    inner.counters.audited_bytes.fetch_add(read, Ordering::Relaxed);
    if damaged {
        return Err(Error::ChecksumMismatch("a record is damaged; it was moved to quarantine".into()));
    }
    Ok(read)
}

/// The pinned volume of a record that is held still.
fn look_at_place(inner: &Inner, key: &Key, place: Place) -> Result<Result<Pinned, ()>> {
    let pinned = inner.index.look_at_fragment(key, |versions| {
        let held = versions.spots().any(|spot| spot.place == place);
        held.then(|| inner.volumes.get(place.volume()).map(|volume| volume.pin())).flatten()
    });
    Ok(pinned.map_err(WholeObject::into_error)?.ok_or(()))
}

fn check_cells(inner: &Inner, source: &Source, file: &dyn File, rest: &dyn Fn(u64) -> bool) -> Result<u64, Trouble> {
    let block = &source.info.block;
    let at_once = (CHUNK / block.cell_bytes as u64).max(1);
    let (mut read, mut bytes) = (0, Vec::new());
    for first in (0..block.geometry.stripes()).step_by(at_once as usize) {
        bytes.clear();
        let cells = first..first + at_once;
        let span = source.span(&cells);
        file.read_ahead(source.offset + span.start, span.end - span.start);
        source.cells(inner, file, &cells, &mut bytes)?;
        read += bytes.len() as u64;
        if !rest(bytes.len() as u64) {
            break;
        }
    }
    Ok(read)
}

/// Check a decision, the deletion of a fragment, or a POST.
fn check_decision(inner: &Inner, key: &Key, (place, len): (Place, u64), pinned: &Pinned) -> Result<u64, Trouble> {
    let raw = read_record(inner, key, &*pinned.file, place, len, len)?;
    let sound = match raw.header.kind {
        Kind::Tombstone => parse_tombstone(raw.metadata()).is_some(),
        Kind::CodedPost => parse_post(&raw.header, raw.metadata()).is_some(),
        Kind::Decision => {
            change_of(&raw.header, raw.metadata()).is_some_and(|it| it.version() == version_of(&raw.header))
        }
        _ => false,
    };
    if sound { Ok(len) } else { Err(Trouble::Unsound(place, "its metadata is malformed")) }
}
