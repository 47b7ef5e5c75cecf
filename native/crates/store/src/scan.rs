//! Reads a volume from front to back: which records are in it, and what is damaged.
//!
//! Fault model: what was written after the last sync may be there in parts and in any order; that can only be the last
//! batch, since a batch is written only when the one before it is durable. Anything unsound in an earlier batch is
//! damage.

use std::sync::Arc;

use crate::device::other_version;
use crate::disk::File;
use crate::error::{Error, Result};
use crate::record::{
    ALIGN, BLOCK, CHUNK, DeviceId, EMPTY_XXH3, HEADER, Header, Kind, MAX_METADATA, Parsed, Place, Sound,
    TABLES_VERSION, change_of, parse_table,
};

const WINDOW: usize = 512 * 1024;

/// A record of a batch that was durable, and that is no longer sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Its approximate place.
    pub place: Place,
    /// Its header if that is sound.
    pub header: Option<Header>,
    /// How many records are missing.
    pub records: u64,
}

/// The result of a scan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scanned {
    /// The end of the last sound record.
    pub end: u64,
    /// Sound records.
    pub records: u64,
    /// Damage in it.
    pub damage: Vec<Damage>,
}

/// A part of the file, in memory.
struct Window<'a> {
    file: &'a dyn File,
    start: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// Bytes from `offset` on, at least `len` unless the file ends.
    fn at(&mut self, offset: u64, len: usize) -> std::io::Result<&[u8]> {
        let end = self.start + self.bytes.len() as u64;
        if offset < self.start || offset + len as u64 > end {
            self.bytes.resize(WINDOW.max(len), 0);
            let read = self.file.read_at(&mut self.bytes, offset)?;
            self.bytes.truncate(read);
            self.start = offset;
        }
        Ok(&self.bytes[(offset - self.start) as usize..])
    }
}

/// A batch as far as it was read.
#[derive(Default)]
struct Batch {
    number: u64,
    sound: Vec<Sound>,
    unsound: Vec<Header>,
}

impl Batch {
    /// The next batch has begun at number `next`: this one was durable.
    fn finish(self, next: u64, each: &mut dyn FnMut(&Sound), scanned: &mut Scanned) {
        let read = (self.sound.len() + self.unsound.len()) as u64;
        let missing = (next - self.number).saturating_sub(read);
        if missing > 0 {
            let last = self.sound.last().map(|sound| &sound.header).or(self.unsound.last());
            let place = last.map_or(Place(0), |header| header.place);
            scanned.damage.push(Damage { place, header: None, records: missing });
        }
        for header in self.unsound {
            scanned.damage.push(Damage { place: header.place, header: Some(header), records: 1 });
        }
        scanned.records += self.sound.len() as u64;
        self.sound.iter().for_each(each);
    }
}

/// Read a volume from `from` on; `each` is called with every sound record.
pub(crate) fn scan(
    file: &dyn File,
    volume: u32,
    from: u64,
    device: &DeviceId,
    each: &mut dyn FnMut(&Sound),
) -> Result<Scanned> {
    let failed = |error: std::io::Error| Error::of_io(&error, "read a volume");
    let size = file.size().map_err(failed)?;
    let mut window = Window { file, start: 0, bytes: Vec::new() };
    let mut scanned = Scanned { end: from.max(BLOCK), ..Scanned::default() };
    let mut offset = scanned.end;
    let mut batch: Option<Batch> = None;
    let mut lost = false;
    while offset + HEADER as u64 <= size {
        let place = Place::new(volume, offset);
        let header = match Header::parse(window.at(offset, HEADER).map_err(failed)?, place, device) {
            Parsed::Sound(header) if offset + header.used_len() <= size => header,
            Parsed::Newer(version) => {
                let what = format!("a record in volume {volume}");
                return Err(other_version(&what, version.into(), TABLES_VERSION.into()));
            }
            _ => {
                let next = search(&mut window, offset + ALIGN, size).map_err(failed)?;
                // Between batches there is nothing but the way to the next multiple of a block.
                lost |= offset.is_multiple_of(BLOCK) && next.is_some();
                match next {
                    Some(next) => offset = next,
                    None => break,
                }
                continue;
            }
        };
        if batch.as_ref().is_none_or(|batch| batch.number != header.batch) {
            match batch.take() {
                Some(before) => before.finish(header.batch, each, &mut scanned),
                // A whole batch is missing before this record, which begins one.
                None if lost && header.sequence == header.batch => {
                    scanned.damage.push(Damage { place, header: None, records: 1 });
                }
                None => {}
            }
            batch = Some(Batch { number: header.batch, ..Batch::default() });
        }
        let metadata = offset + HEADER as u64;
        let sound = read_metadata(&mut window, header, metadata).map_err(failed)?;
        if let Some(batch) = &mut batch {
            match sound {
                Some(sound) => batch.sound.push(sound),
                None => batch.unsound.push(header),
            }
        }
        offset += header.record_len();
        scanned.end = offset;
    }
    if let Some(last) = batch {
        for sound in last.sound {
            if check_data(file, &sound.header).map_err(failed)? {
                scanned.records += 1;
                each(&sound);
            }
        }
    }
    Ok(scanned)
}

/// Where the next header may be.
fn search(window: &mut Window<'_>, mut offset: u64, size: u64) -> std::io::Result<Option<u64>> {
    while offset + HEADER as u64 <= size {
        let bytes = window.at(offset, HEADER)?;
        if bytes.is_empty() {
            break;
        }
        let found = bytes.chunks(ALIGN as usize).position(|chunk| chunk.starts_with(b"SWLR"));
        if let Some(found) = found {
            return Ok(Some(offset + found as u64 * ALIGN));
        }
        offset += (bytes.len() as u64).next_multiple_of(ALIGN);
    }
    Ok(None)
}

/// The record if its metadata are sound.
fn read_metadata(window: &mut Window<'_>, header: Header, offset: u64) -> std::io::Result<Option<Sound>> {
    debug_assert!(header.metadata_len <= MAX_METADATA);
    let len = header.metadata_len as usize;
    let metadata = if len == 0 { &[] } else { window.at(offset, len)? };
    let Some(metadata) = metadata.get(..len) else { return Ok(None) };
    let digest = if len == 0 { EMPTY_XXH3 } else { swiftlet_hash::xxh3_64(metadata) };
    if digest != header.metadata_xxh3 {
        return Ok(None);
    }
    let nothing_else = Sound { header, change: None, table: None };
    if header.kind == Kind::Table {
        let table = parse_table(&header, metadata);
        return Ok(table.map(|table| Sound { table: Some(Arc::new(table)), ..nothing_else }));
    }
    if !header.kind.is_of_fragments() {
        return Ok(Some(nothing_else));
    }
    let change = change_of(&header, metadata);
    Ok(change.map(|change| Sound { change: Some(Box::new(change)), ..nothing_else }))
}

/// Whether a record's data in the volume is sound.
pub(crate) fn check_data(file: &dyn File, header: &Header) -> std::io::Result<bool> {
    let start = header.place.offset() + HEADER as u64 + u64::from(header.metadata_len);
    let len = header.data_len();
    if len == 0 {
        return Ok(true);
    }
    let mut hasher = swiftlet_hash::Hasher::new(swiftlet_hash::Digests { md5: false, xxh3: true });
    let mut buffer = vec![0; len.min(CHUNK) as usize];
    while hasher.size() < len {
        let want = (len - hasher.size()).min(CHUNK) as usize;
        if file.read_at(&mut buffer[..want], start + hasher.size())? < want {
            return Ok(false);
        }
        hasher.update(&buffer[..want]);
    }
    Ok(hasher.xxh3_64() == Some(header.data_xxh3))
}
