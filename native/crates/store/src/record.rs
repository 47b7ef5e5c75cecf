//! Records of a volume, byte by byte as in `docs/volumes.md`.
//!
//! Fault model: any bit may flip; a record may be cut off, be at another place than where it was written, or be
//! imitated by an object's content. The header's checksum, which covers the place and the device's secret number, and
//! the metadata's checksum detect all of this except in the data.

mod fragments;
mod tables;

use std::sync::Arc;

use swiftlet_fragments::packs::table::Table;
use swiftlet_fragments::slot::Change;

pub(crate) use self::fragments::{
    State, answers_a_ballot, change_of, change_without, decision_record, is_place_of, is_promise, pack_fragment,
    parse_fragment, version_of,
};
pub(crate) use self::tables::{pack_of, parse_table, table_record};
use crate::model::{Footer, Key, Pairs, PostMeta, PutMeta, Timestamp};

/// Bytes of a header.
pub(crate) const HEADER: usize = 128;
/// Records begin at multiples of this.
pub(crate) const ALIGN: u64 = 64;
/// Batches begin at multiples of this.
pub(crate) const BLOCK: u64 = 4096;
/// Data in large files is checked in pieces of this many bytes.
pub(crate) const CHUNK: u64 = 1024 * 1024;
/// Longer metadata are taken for damage: this is enough for the checksums of 2 TiB in chunks.
pub(crate) const MAX_METADATA: u32 = 16 * 1024 * 1024;
/// The version of records of objects, and of volumes' heads.
pub(crate) const VERSION: u8 = 1;
/// The version of records of fragments, which programs that know nothing of them refuse.
pub(crate) const FRAGMENTS_VERSION: u8 = 2;
/// The version of records of POSTs to coded objects, which programs from before them refuse.
pub(crate) const POSTS_VERSION: u8 = 3;
/// The version of records of references to packs, which programs from before them refuse.
pub(crate) const TABLES_VERSION: u8 = 4;
const MAGIC: [u8; 4] = *b"SWLR";
const CHECK: usize = HEADER - 8;

/// The device's secret number.
pub(crate) type DeviceId = [u8; 16];

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A version followed by its data.
    Put = 1,
    /// A deletion.
    Tombstone = 2,
    /// Metadata on top of a version.
    Post = 3,
    /// A version with its data in a file of its own.
    Large = 4,
    /// Nothing older of this digest counts.
    Forget = 5,
    /// A fragment of a version, followed by its data.
    Fragment = 6,
    /// A fragment with its data in a file of its own.
    LargeFragment = 7,
    /// A decision about a version of which the device has, or may get, a fragment.
    Decision = 8,
    /// Metadata on top of a coded object, whichever of its versions are here.
    CodedPost = 9,
    /// References to a pack, in place of the objects that it has. The key is the pack's.
    Table = 10,
}

impl Kind {
    /// The kind of this number.
    #[must_use]
    pub(crate) fn of(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Put,
            2 => Self::Tombstone,
            3 => Self::Post,
            4 => Self::Large,
            5 => Self::Forget,
            6 => Self::Fragment,
            7 => Self::LargeFragment,
            8 => Self::Decision,
            9 => Self::CodedPost,
            10 => Self::Table,
            _ => return None,
        })
    }

    /// Whether it is a fragment.
    #[must_use]
    pub(crate) fn is_fragment(self) -> bool {
        matches!(self, Self::Fragment | Self::LargeFragment)
    }

    /// Whether it is a fragment, or a decision about one.
    #[must_use]
    pub(crate) fn is_of_fragments(self) -> bool {
        self.is_fragment() || self == Self::Decision
    }

    /// Whether its header has a generation, and says something of it.
    #[must_use]
    fn has_generation(self) -> bool {
        self.is_of_fragments() || self == Self::Table
    }

    /// The version of its records.
    #[must_use]
    pub(crate) fn version(self) -> u8 {
        match self {
            Self::Table => TABLES_VERSION,
            Self::CodedPost => POSTS_VERSION,
            kind if kind.is_of_fragments() => FRAGMENTS_VERSION,
            _ => VERSION,
        }
    }
}

/// The place of a record: volume and offset in one number. 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place(pub u64);

impl Place {
    /// A place from an offset that is a multiple of `ALIGN`.
    #[must_use]
    pub(crate) fn new(volume: u32, offset: u64) -> Self {
        debug_assert!(offset.is_multiple_of(ALIGN) && volume < 1 << 24);
        Self((u64::from(volume) << 40) | (offset / ALIGN))
    }

    /// The volume's number.
    #[must_use]
    pub(crate) fn volume(self) -> u32 {
        (self.0 >> 40) as u32
    }

    /// Bytes from the volume's start.
    #[must_use]
    pub(crate) fn offset(self) -> u64 {
        (self.0 & ((1 << 40) - 1)) * ALIGN
    }
}

/// A record's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// What it is.
    pub kind: Kind,
    /// The object.
    pub key: Key,
    /// Bytes of metadata.
    pub metadata_len: u32,
    /// The object's size.
    pub size: u64,
    /// The version's.
    pub timestamp: Timestamp,
    /// Of a POST's content type, else 0.
    pub content_type_timestamp: Timestamp,
    /// Its number in the order of all records.
    pub sequence: u64,
    /// The batch that made it durable.
    pub batch: u64,
    /// Number of the large file, else 0.
    pub large: u64,
    /// Seconds since 1970 at which it expires, 0 never; of a decision, at which it was written.
    pub delete_at: u64,
    /// xxh3-64 of the data.
    pub data_xxh3: u64,
    /// xxh3-64 of the metadata.
    pub metadata_xxh3: u64,
    /// The place of the record.
    pub place: Place,
    /// A forget's highest volume number.
    pub watermark: u32,
    /// Container replicas that need an update, as bits.
    pub row: u32,
    /// Of fragments, decisions and packs: which attempt to write, else 0.
    pub generation: u64,
    /// A fragment's [`State`], what a decision says, else 0.
    pub says: u32,
}

/// A sound record, as far as it is needed to know what counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sound {
    /// Its header.
    pub header: Header,
    /// The change that it makes, if it is of a fragment.
    pub change: Option<Box<Change>>,
    /// The references that it has, if it is a table.
    pub table: Option<Arc<Table>>,
}

/// The result of parsing a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// A sound header.
    Sound(Header),
    /// A sound header of a newer format.
    Newer(u8),
    /// No header, or a damaged one.
    Unsound,
}

impl Header {
    /// A header without sequence number and place.
    #[must_use]
    pub(crate) fn new(kind: Kind, key: Key, timestamp: Timestamp) -> Self {
        Self {
            kind,
            key,
            metadata_len: 0,
            size: 0,
            timestamp,
            content_type_timestamp: 0,
            sequence: 0,
            batch: 0,
            large: 0,
            delete_at: 0,
            data_xxh3: EMPTY_XXH3,
            metadata_xxh3: EMPTY_XXH3,
            place: Place(0),
            watermark: 0,
            row: 0,
            generation: 0,
            says: 0,
        }
    }

    /// Bytes of data in the volume.
    #[must_use]
    pub(crate) fn data_len(&self) -> u64 {
        if matches!(self.kind, Kind::Put | Kind::Fragment) { self.size } else { 0 }
    }

    /// Bytes of the record without padding.
    #[must_use]
    pub(crate) fn used_len(&self) -> u64 {
        HEADER as u64 + u64::from(self.metadata_len) + self.data_len()
    }

    /// Bytes of the whole record.
    #[must_use]
    pub(crate) fn record_len(&self) -> u64 {
        self.used_len().next_multiple_of(ALIGN)
    }

    /// Bytes of the table of chunks' checksums at the metadata's end.
    #[must_use]
    pub(crate) fn table_len(&self) -> usize {
        if self.kind == Kind::Large { self.size.div_ceil(CHUNK) as usize * 8 } else { 0 }
    }

    /// Encode the header for the device.
    #[must_use]
    pub(crate) fn pack(&self, device: &DeviceId) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[..4].copy_from_slice(&MAGIC);
        out[4] = self.kind.version();
        out[5] = self.kind as u8;
        out[6..8].copy_from_slice(&self.key.policy.to_be_bytes());
        out[8..12].copy_from_slice(&self.key.partition.to_be_bytes());
        out[12..16].copy_from_slice(&self.metadata_len.to_be_bytes());
        out[16..24].copy_from_slice(&self.size.to_be_bytes());
        out[24..40].copy_from_slice(&self.key.digest);
        let (second, number) = if self.kind.has_generation() {
            (self.generation, self.says)
        } else {
            (self.content_type_timestamp, self.watermark)
        };
        let rest = [
            self.timestamp,
            second,
            self.sequence,
            self.batch,
            self.large,
            self.delete_at,
            self.data_xxh3,
            self.metadata_xxh3,
            self.place.0,
        ];
        for (field, value) in out[40..112].chunks_exact_mut(8).zip(rest) {
            field.copy_from_slice(&value.to_be_bytes());
        }
        out[112..116].copy_from_slice(&number.to_be_bytes());
        out[116..120].copy_from_slice(&self.row.to_be_bytes());
        let check = header_check(&out, device);
        out[CHECK..].copy_from_slice(&check.to_be_bytes());
        out
    }

    /// Set magic, version, place and checksum in a header's bytes.
    pub(crate) fn seal(raw: &mut [u8], place: Place, device: &DeviceId) {
        raw[..4].copy_from_slice(&MAGIC);
        raw[4] = Kind::of(raw[5]).map_or(VERSION, Kind::version);
        raw[104..112].copy_from_slice(&place.0.to_be_bytes());
        if let Some(header) = raw.first_chunk::<HEADER>() {
            let check = header_check(header, device);
            raw[CHECK..HEADER].copy_from_slice(&check.to_be_bytes());
        }
    }

    /// Decode a header that is at `place`.
    #[must_use]
    pub(crate) fn parse(raw: &[u8], place: Place, device: &DeviceId) -> Parsed {
        let Some(raw) = raw.first_chunk::<HEADER>() else { return Parsed::Unsound };
        if raw[..4] != MAGIC || header_check(raw, device) != u64_at(raw, CHECK) || u64_at(raw, 104) != place.0 {
            return Parsed::Unsound;
        }
        let kind = Kind::of(raw[5]);
        match (raw[4], kind) {
            (VERSION..=TABLES_VERSION, None) => return Parsed::Unsound,
            (version, Some(kind)) if version < kind.version() => return Parsed::Unsound,
            (version, Some(kind)) if version == kind.version() => {}
            (version, _) => return Parsed::Newer(version),
        }
        let Some(kind) = kind else { return Parsed::Unsound };
        let has_generation = kind.has_generation();
        let (second, number) = (u64_at(raw, 48), u32_at(raw, 112));
        let mut digest = [0; 16];
        digest.copy_from_slice(&raw[24..40]);
        let header = Self {
            kind,
            key: Key { policy: u16::from_be_bytes([raw[6], raw[7]]), partition: u32_at(raw, 8), digest },
            metadata_len: u32_at(raw, 12),
            size: u64_at(raw, 16),
            timestamp: u64_at(raw, 40),
            content_type_timestamp: if has_generation { 0 } else { second },
            sequence: u64_at(raw, 56),
            batch: u64_at(raw, 64),
            large: u64_at(raw, 72),
            delete_at: u64_at(raw, 80),
            data_xxh3: u64_at(raw, 88),
            metadata_xxh3: u64_at(raw, 96),
            place,
            watermark: if has_generation { 0 } else { number },
            row: u32_at(raw, 116),
            generation: if has_generation { second } else { 0 },
            says: if has_generation { number } else { 0 },
        };
        let believable = header.metadata_len <= MAX_METADATA
            && header.size < 1 << 48
            && header.table_len() <= header.metadata_len as usize
            && (!kind.is_of_fragments() || fragments::may_say(kind, number))
            && (kind != Kind::Table || number == 0);
        if believable { Parsed::Sound(header) } else { Parsed::Unsound }
    }
}

fn header_check(raw: &[u8; HEADER], device: &DeviceId) -> u64 {
    let mut covered = [0; CHECK + 16];
    covered[..CHECK].copy_from_slice(&raw[..CHECK]);
    covered[CHECK..].copy_from_slice(device);
    swiftlet_hash::xxh3_64(&covered)
}

/// xxh3-64 of nothing.
pub(crate) const EMPTY_XXH3: u64 = 0x2d06_8005_38d3_94c2;

/// A big-endian number.
#[must_use]
pub(crate) fn u32_at(raw: &[u8], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&raw[at..at + 4]);
    u32::from_be_bytes(bytes)
}

/// A big-endian number.
#[must_use]
pub(crate) fn u64_at(raw: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&raw[at..at + 8]);
    u64::from_be_bytes(bytes)
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text);
}

fn put_pairs(out: &mut Vec<u8>, pairs: &Pairs) {
    out.extend_from_slice(&(pairs.len() as u32).to_be_bytes());
    for (name, value) in pairs {
        put_text(out, name);
        put_text(out, value);
    }
}

/// Encode a PUT's metadata for the device.
#[must_use]
pub(crate) fn pack_put(meta: &PutMeta, etag: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    put_text(&mut out, &meta.name);
    put_text(&mut out, &meta.content_type);
    put_text(&mut out, etag);
    put_pairs(&mut out, &meta.metadata);
    put_pairs(&mut out, &meta.sysmeta);
    out
}

/// Encode a tombstone's metadata for the device.
#[must_use]
pub(crate) fn pack_tombstone(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + 4);
    put_text(&mut out, name);
    out
}

/// Encode a POST's metadata for the device.
#[must_use]
pub(crate) fn pack_post(meta: &PostMeta) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    put_text(&mut out, meta.content_type.as_deref().unwrap_or_default());
    put_pairs(&mut out, &meta.metadata);
    out
}

struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn count(&mut self) -> Option<usize> {
        let (head, rest) = self.0.split_at_checked(4)?;
        self.0 = rest;
        Some(u32_at(head, 0) as usize)
    }

    fn text(&mut self) -> Option<Vec<u8>> {
        let len = self.count()?;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(text.to_vec())
    }

    fn pairs(&mut self) -> Option<Pairs> {
        let count = self.count()?;
        let mut pairs = Vec::with_capacity(count.min(self.0.len() / 8));
        for _ in 0..count {
            pairs.push((self.text()?, self.text()?));
        }
        Some(pairs)
    }
}

/// The inverse of `pack_put`; None when it is malformed.
#[must_use]
pub(crate) fn parse_put(header: &Header, metadata: &[u8]) -> Option<(PutMeta, Footer)> {
    let (meta, footer, _) = parse_put_and_rest(header, metadata)?;
    Some((meta, footer))
}

/// The same with what follows in the metadata, up to the table of chunks' checksums.
#[must_use]
pub(crate) fn parse_put_and_rest<'a>(header: &Header, metadata: &'a [u8]) -> Option<(PutMeta, Footer, &'a [u8])> {
    let mut cursor = Cursor(metadata.get(..metadata.len().checked_sub(header.table_len())?)?);
    let (name, content_type, etag) = (cursor.text()?, cursor.text()?, cursor.text()?);
    let (metadata, sysmeta) = (cursor.pairs()?, cursor.pairs()?);
    let (timestamp, delete_at) = (header.timestamp, header.delete_at);
    let meta = PutMeta { name, timestamp, content_type, metadata, sysmeta, delete_at };
    Some((meta, Footer { size: header.size, etag, xxh3: header.data_xxh3 }, cursor.0))
}

/// What the metadata of a record of data say, from a member of a pack, which has no record; None when they are malformed.
#[must_use]
pub(crate) fn parse_member(timestamp: Timestamp, metadata: &[u8], body: &[u8]) -> Option<(PutMeta, Footer)> {
    let key = Key { policy: 0, partition: 0, digest: [0; 16] };
    let header = Header {
        size: body.len() as u64,
        data_xxh3: swiftlet_hash::xxh3_64(body),
        ..Header::new(Kind::Put, key, timestamp)
    };
    let (meta, footer, rest) = parse_put_and_rest(&header, metadata)?;
    rest.is_empty().then_some((meta, footer))
}

/// The inverse of `pack_post`; None when it is malformed.
#[must_use]
pub(crate) fn parse_post(header: &Header, metadata: &[u8]) -> Option<PostMeta> {
    let mut cursor = Cursor(metadata);
    let (content_type, metadata) = (cursor.text()?, cursor.pairs()?);
    Some(PostMeta {
        timestamp: header.timestamp,
        metadata,
        content_type: (header.content_type_timestamp != 0).then_some(content_type),
        content_type_timestamp: header.content_type_timestamp,
        delete_at: header.delete_at,
    })
}

/// The name in a tombstone's metadata.
#[must_use]
pub(crate) fn parse_tombstone(metadata: &[u8]) -> Option<Vec<u8>> {
    Cursor(metadata).text()
}

#[cfg(test)]
mod tests;
