//! Requests and answers as `docs/transport.md` has them, without any I/O.

use swiftlet_fragments::Version;
use swiftlet_store::model::{Entry, EntryKind, Footer, Info, Key, PostMeta, PutMeta, SUFFIXES, Suffix};

pub use crate::codec::Malformed;
use crate::codec::{Reader, Writer};

pub mod fragments;
pub mod guests;
pub mod many;
pub mod packs;
pub mod updates;

/// The largest number of versions in one ACKNOWLEDGE.
pub const MAX_ACKNOWLEDGED: usize = 1000;
/// The largest size in bytes of an object that lies as copies in a policy with erasure coding.
pub const MAX_COPY_BYTES: u64 = 1 << 20;

/// Which bytes of an object to read, when its size may not be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToRead {
    /// The first byte.
    pub start: u64,
    /// The byte after the last one; beyond the end means the end.
    pub stop: u64,
    /// An object of at most so many bytes is read whole instead.
    pub whole: u64,
}

impl ToRead {
    /// Nothing but the description.
    pub const NOTHING: Self = Self { start: 0, stop: 0, whole: 0 };

    /// The bytes `[start, stop)` of an object of this size.
    #[must_use]
    pub fn of(self, size: u64) -> (u64, u64) {
        if size <= self.whole {
            return (0, size);
        }
        let start = self.start.min(size);
        (start, self.stop.clamp(start, size))
    }
}

/// A request to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Store a version; its data is the body. With a footer of None the footer follows the body.
    Put {
        /// The object.
        key: Key,
        /// Everything but the data.
        meta: PutMeta,
        /// Size and checksums, if they are already known.
        footer: Option<Footer>,
        /// Container replicas that need an update, as bits; 0 for none.
        row: u32,
    },
    /// Read bytes `[start, stop)`.
    Get {
        /// The object.
        key: Key,
        /// First byte.
        start: u64,
        /// The byte after the last one; beyond the end means the end.
        stop: u64,
        /// Read all of the object instead if it has at most so many bytes.
        whole: u64,
        /// Refuse the request while the partition is in doubt.
        proved: bool,
    },
    /// Describe.
    Head {
        /// The object.
        key: Key,
        /// As in `Get`.
        proved: bool,
    },
    /// Merge metadata.
    Post {
        /// The object.
        key: Key,
        /// The metadata to set.
        meta: PostMeta,
        /// As in `Put`.
        row: u32,
        /// Answer `Unproved` instead of `NotFound` while the partition is in doubt.
        proved: bool,
    },
    /// Store a tombstone.
    Delete {
        /// The object.
        key: Key,
        /// The deletion's timestamp.
        timestamp: u64,
        /// `/account/container/object`.
        name: Vec<u8>,
        /// As in `Put`.
        row: u32,
    },
    /// Remove a copy, if it is still this one.
    Remove {
        /// The object.
        key: Key,
        /// The entry that was seen.
        entry: Entry,
    },
    /// Policies with data on the device.
    Policies,
    /// Partitions of a policy with data.
    Partitions(u16),
    /// Set hashes of a partition's suffixes.
    Suffixes(u16, u32),
    /// What is held in a suffix.
    Entries(u16, u32, Suffix),
    /// The container's replicas have the rows of these versions: acknowledge their updates.
    Acknowledge(Vec<(Key, u64)>),
    /// Grants for a container that were issued before a time, in milliseconds since 1970, do not count any more. It is
    /// for the whole server, whatever the device.
    Revoke {
        /// The account.
        account: Vec<u8>,
        /// The container; empty for all of the account's.
        container: Vec<u8>,
        /// The time.
        before_ms: u64,
    },
    /// Whether a PUT would be accepted; nothing is reserved for it.
    Prepare {
        /// The object.
        key: Key,
        /// The version's timestamp.
        timestamp: u64,
        /// As in `Put`.
        row: u32,
        /// The size of its data, if it is known.
        size: Option<u64>,
    },
    /// About a fragment.
    Fragment(fragments::Request),
    /// About a pack of small objects.
    Pack(packs::Request),
    /// So many requests, which are the body: see [`many`].
    Many(u16),
}

/// Numbers of methods in the transport; 0 is the transport's own.
mod method {
    pub(super) const PUT: u16 = 1;
    pub(super) const GET: u16 = 2;
    pub(super) const HEAD: u16 = 3;
    pub(super) const POST: u16 = 4;
    pub(super) const DELETE: u16 = 5;
    pub(super) const REMOVE: u16 = 6;
    pub(super) const POLICIES: u16 = 7;
    pub(super) const PARTITIONS: u16 = 8;
    pub(super) const SUFFIXES: u16 = 9;
    pub(super) const ENTRIES: u16 = 10;
    pub(super) const ACKNOWLEDGE: u16 = 11;
    pub(super) const PREPARE: u16 = 12;
    pub(super) const REVOKE: u16 = 13;
    pub(super) const MANY: u16 = 19;
}

/// All methods have lower numbers.
pub(crate) const METHODS: usize = 28;
/// An unknown size.
const UNKNOWN: u64 = u64::MAX;

/// The name of a method in counters; None for an unknown number.
#[must_use]
pub fn method_name(number: u16) -> Option<&'static str> {
    Some(match number {
        method::PUT => "put",
        method::GET => "get",
        method::HEAD => "head",
        method::POST => "post",
        method::DELETE => "delete",
        method::REMOVE => "remove",
        method::POLICIES => "policies",
        method::PARTITIONS => "partitions",
        method::SUFFIXES => "suffix-hashes",
        method::ENTRIES => "entries",
        method::ACKNOWLEDGE => "acknowledge",
        method::PREPARE => "prepare",
        method::REVOKE => "revoke",
        fragments::method::KEEP => "keep-fragment",
        fragments::method::ABOUT => "about-fragment",
        fragments::method::NEWEST => "newest-fragment",
        fragments::method::CELLS => "cells",
        fragments::method::INCARNATION => "incarnation",
        fragments::method::UNSETTLED => "unsettled-fragments",
        fragments::method::POST => "post-to-fragment",
        packs::method::ABOUT => "about-pack",
        packs::method::PIECE => "piece",
        packs::method::COLD => "cold",
        packs::method::MEMBERS => "members",
        packs::method::PACKS => "packs",
        packs::method::REFERENCES => "references",
        method::MANY => "many",
        _ => return None,
    })
}

fn put_key(out: &mut Writer, key: &Key) {
    out.u16(key.policy);
    out.u32(key.partition);
    out.raw(&key.digest);
}

fn take_key(from: &mut Reader<'_>) -> Result<Key, Malformed> {
    Ok(Key { policy: from.u16()?, partition: from.u32()?, digest: from.digest()? })
}

fn put_footer(out: &mut Writer, footer: &Footer) {
    out.u64(footer.size);
    out.u64(footer.xxh3);
    out.text(&footer.etag);
}

fn take_footer(from: &mut Reader<'_>) -> Result<Footer, Malformed> {
    let (size, xxh3) = (from.u64()?, from.u64()?);
    Ok(Footer { size, etag: from.text()?, xxh3 })
}

fn put_entry(out: &mut Writer, entry: &Entry) {
    out.raw(&entry.digest);
    out.u8(entry.kind as u8);
    out.u64(entry.timestamp);
    out.u64(entry.meta_timestamp);
    out.u64(entry.content_type_timestamp);
}

const ENTRY_BYTES: usize = 41;

fn take_entry(from: &mut Reader<'_>) -> Result<Entry, Malformed> {
    let digest = from.digest()?;
    let kind = match from.u8()? {
        1 => EntryKind::Data,
        2 => EntryKind::Tombstone,
        _ => return Err(Malformed("an entry of an unknown kind")),
    };
    let (timestamp, meta_timestamp) = (from.u64()?, from.u64()?);
    Ok(Entry { digest, kind, timestamp, meta_timestamp, content_type_timestamp: from.u64()? })
}

/// Check that with a row the name is `/account/container/object`, with no part empty.
fn check_row(row: u32, name: &[u8]) -> Result<(), Malformed> {
    if row == 0 {
        return Ok(());
    }
    let mut parts = name.splitn(4, |byte| *byte == b'/');
    let rooted = parts.next().is_some_and(<[u8]>::is_empty);
    if rooted && (0..3).all(|_| parts.next().is_some_and(|part| !part.is_empty())) {
        Ok(())
    } else {
        Err(Malformed("a row for a name that is not in a container"))
    }
}

/// Encode a footer that follows a body.
///
/// # Errors
/// An ETag over the limit.
pub fn encode_footer(footer: &Footer) -> Result<Vec<u8>, Malformed> {
    let mut out = Writer::default();
    put_footer(&mut out, footer);
    out.finish()
}

/// The inverse of `encode_footer`.
///
/// # Errors
/// It is none.
pub fn decode_footer(raw: &[u8]) -> Result<Footer, Malformed> {
    let mut from = Reader(raw);
    let footer = take_footer(&mut from)?;
    from.end()?;
    Ok(footer)
}

impl Request {
    /// The method's number in the transport.
    #[must_use]
    pub fn method(&self) -> u16 {
        match self {
            Self::Put { .. } => method::PUT,
            Self::Get { .. } => method::GET,
            Self::Head { .. } => method::HEAD,
            Self::Post { .. } => method::POST,
            Self::Delete { .. } => method::DELETE,
            Self::Remove { .. } => method::REMOVE,
            Self::Policies => method::POLICIES,
            Self::Partitions(_) => method::PARTITIONS,
            Self::Suffixes(..) => method::SUFFIXES,
            Self::Entries(..) => method::ENTRIES,
            Self::Acknowledge(_) => method::ACKNOWLEDGE,
            Self::Prepare { .. } => method::PREPARE,
            Self::Revoke { .. } => method::REVOKE,
            Self::Fragment(request) => request.method(),
            Self::Pack(request) => request.method(),
            Self::Many(_) => method::MANY,
        }
    }

    /// Set the container replicas (bits) that need an update, if it is a request that has them.
    pub fn set_row(&mut self, new: u32) {
        match self {
            Self::Put { row, .. } | Self::Post { row, .. } | Self::Delete { row, .. } | Self::Prepare { row, .. } => {
                *row = new;
            }
            _ => {}
        }
    }

    /// Encode the header, for this device.
    ///
    /// # Errors
    /// Something in it is over its limit.
    pub fn encode(&self, device: &str) -> Result<Vec<u8>, Malformed> {
        let mut out = Writer::default();
        out.text(device.as_bytes());
        self.put_fields(&mut out)?;
        out.finish()
    }

    /// What `encode` appends to the device's name.
    ///
    /// # Errors
    /// As `encode`.
    pub fn fields(&self) -> Result<Vec<u8>, Malformed> {
        let mut out = Writer::default();
        self.put_fields(&mut out)?;
        out.finish()
    }

    fn put_fields(&self, out: &mut Writer) -> Result<(), Malformed> {
        match self {
            Self::Put { key, meta, footer, row } => {
                put_key(out, key);
                out.u32(*row);
                out.u64(meta.timestamp);
                out.u64(meta.delete_at);
                out.text(&meta.name);
                out.text(&meta.content_type);
                out.pairs(&meta.metadata);
                out.pairs(&meta.sysmeta);
                out.u8(u8::from(footer.is_some()));
                footer.iter().for_each(|footer| put_footer(out, footer));
            }
            Self::Get { key, start, stop, whole, proved } => {
                put_key(out, key);
                out.u64(*start);
                out.u64(*stop);
                out.u64(*whole);
                out.u8(u8::from(*proved));
            }
            Self::Head { key, proved } => {
                put_key(out, key);
                out.u8(u8::from(*proved));
            }
            Self::Post { key, meta, row, proved } => {
                put_key(out, key);
                out.u32(*row);
                put_post(out, meta);
                out.u8(u8::from(*proved));
            }
            Self::Delete { key, timestamp, name, row } => {
                put_key(out, key);
                out.u32(*row);
                out.u64(*timestamp);
                out.text(name);
            }
            Self::Remove { key, entry } => {
                put_key(out, key);
                put_entry(out, entry);
            }
            Self::Policies => {}
            Self::Partitions(policy) => out.u16(*policy),
            Self::Suffixes(policy, partition) => {
                out.u16(*policy);
                out.u32(*partition);
            }
            Self::Entries(policy, partition, suffix) => {
                out.u16(*policy);
                out.u32(*partition);
                out.u16(*suffix);
            }
            Self::Acknowledge(versions) => {
                if versions.len() > MAX_ACKNOWLEDGED {
                    return Err(Malformed("too many rows at once"));
                }
                out.u32(versions.len() as u32);
                for (key, timestamp) in versions {
                    put_key(out, key);
                    out.u64(*timestamp);
                }
            }
            Self::Prepare { key, timestamp, row, size } => {
                put_key(out, key);
                out.u32(*row);
                out.u64(*timestamp);
                out.u64(size.unwrap_or(UNKNOWN));
            }
            Self::Revoke { account, container, before_ms } => {
                out.text(account);
                out.text(container);
                out.u64(*before_ms);
            }
            Self::Fragment(request) => request.put(out)?,
            Self::Pack(request) => request.put(out)?,
            Self::Many(count) => out.u16(*count),
        }
        Ok(())
    }

    /// The inverse of `method` and `encode`: the device and the request.
    ///
    /// # Errors
    /// It is no request.
    pub fn decode(number: u16, header: &[u8]) -> Result<(String, Self), Malformed> {
        let mut from = Reader(header);
        let device = String::from_utf8(from.text()?).map_err(|_| Malformed("a device that is no text"))?;
        let request = Self::take(number, &mut from)?;
        from.end()?;
        Ok((device, request))
    }

    /// The inverse of `method` and `fields`.
    ///
    /// # Errors
    /// It is no request.
    pub fn from_fields(number: u16, fields: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(fields);
        let request = Self::take(number, &mut from)?;
        from.end()?;
        Ok(request)
    }

    fn take(number: u16, from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match number {
            method::PUT => {
                let (key, row) = (take_key(from)?, from.u32()?);
                let (timestamp, delete_at) = (from.u64()?, from.u64()?);
                let (name, content_type) = (from.text()?, from.text()?);
                let (metadata, sysmeta) = (from.pairs()?, from.pairs()?);
                let footer = if from.flag()? { Some(take_footer(from)?) } else { None };
                check_row(row, &name)?;
                let meta = PutMeta { name, timestamp, content_type, metadata, sysmeta, delete_at };
                Self::Put { key, meta, footer, row }
            }
            method::GET => {
                let (key, start, stop, whole) = (take_key(from)?, from.u64()?, from.u64()?, from.u64()?);
                Self::Get { key, start, stop, whole, proved: from.flag()? }
            }
            method::HEAD => Self::Head { key: take_key(from)?, proved: from.flag()? },
            method::POST => {
                let (key, row, meta) = (take_key(from)?, from.u32()?, take_post(from)?);
                Self::Post { key, meta, row, proved: from.flag()? }
            }
            method::DELETE => {
                let (key, row) = (take_key(from)?, from.u32()?);
                let (timestamp, name) = (from.u64()?, from.text()?);
                check_row(row, &name)?;
                Self::Delete { key, timestamp, name, row }
            }
            method::REMOVE => Self::Remove { key: take_key(from)?, entry: take_entry(from)? },
            method::POLICIES => Self::Policies,
            method::PARTITIONS => Self::Partitions(from.u16()?),
            method::SUFFIXES => Self::Suffixes(from.u16()?, from.u32()?),
            method::ENTRIES => {
                let (policy, partition, suffix) = (from.u16()?, from.u32()?, from.u16()?);
                if suffix >= SUFFIXES {
                    return Err(Malformed("a suffix that there is not"));
                }
                Self::Entries(policy, partition, suffix)
            }
            method::ACKNOWLEDGE => {
                let count = from.count(30)?;
                if count > MAX_ACKNOWLEDGED {
                    return Err(Malformed("too many rows at once"));
                }
                let versions = (0..count).map(|_| Ok((take_key(from)?, from.u64()?)));
                Self::Acknowledge(versions.collect::<Result<_, Malformed>>()?)
            }
            method::PREPARE => {
                let (key, row) = (take_key(from)?, from.u32()?);
                let (timestamp, size) = (from.u64()?, from.u64()?);
                Self::Prepare { key, timestamp, row, size: Some(size).filter(|size| *size != UNKNOWN) }
            }
            method::REVOKE => {
                let (account, container) = (from.text()?, from.text()?);
                Self::Revoke { account, container, before_ms: from.u64()? }
            }
            fragments::method::KEEP..=fragments::method::INCARNATION
            | fragments::method::UNSETTLED
            | fragments::method::POST => Self::Fragment(fragments::Request::take(number, from)?),
            packs::method::ABOUT..=packs::method::REFERENCES => Self::Pack(packs::Request::take(number, from)?),
            method::MANY => Self::Many(from.u16()?),
            _ => return Err(Malformed("an unknown method")),
        })
    }
}

/// The answer to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Whether the device keeps a pending container update for the write until it is acknowledged.
    pub pending: bool,
    /// For DELETE: whether there was an object. For PUT of a copy in a policy with erasure coding: whether the device has
    /// a fragment of the object.
    pub existed: bool,
}

impl Written {
    /// The header of the answer.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        vec![u8::from(self.pending), u8::from(self.existed)]
    }

    /// The inverse.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(header: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(header);
        let written = Self::take(&mut from)?;
        from.end()?;
        Ok(written)
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { pending: from.flag()?, existed: from.flag()? })
    }
}

/// The answer to GET and HEAD: the object, and the xxh3 of the body if it is known before the body's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The object.
    pub info: Info,
    /// xxh3 of the bytes of this answer; with None it follows them.
    pub body_xxh3: Option<u64>,
}

impl Found {
    /// The header of the answer.
    ///
    /// # Errors
    /// Something is over its limit.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        let mut out = Writer::default();
        put_info(&mut out, &self.info);
        out.u8(u8::from(self.body_xxh3.is_some()));
        out.u64(self.body_xxh3.unwrap_or(0));
        out.finish()
    }

    /// The inverse.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(header: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(header);
        let info = take_info(&mut from)?;
        let (known, body_xxh3) = (from.flag()?, from.u64()?);
        from.end()?;
        Ok(Self { info, body_xxh3: known.then_some(body_xxh3) })
    }
}

/// The answer to POST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    /// That to any write.
    pub written: Written,
    /// The object as it is since: its container update is made of it. There is none without an update, and for guests,
    /// whose updates the device brings.
    pub info: Option<Info>,
}

impl Posted {
    /// The header of the answer.
    ///
    /// # Errors
    /// Something is over its limit.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        let mut out = Writer::default();
        self.written.encode().into_iter().for_each(|flag| out.u8(flag));
        out.u8(u8::from(self.info.is_some()));
        if let Some(info) = &self.info {
            put_info(&mut out, info);
        }
        out.finish()
    }

    /// The inverse.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(header: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(header);
        let written = Written::take(&mut from)?;
        let info = if from.flag()? { Some(take_info(&mut from)?) } else { None };
        from.end()?;
        Ok(Self { written, info })
    }
}

fn put_version(out: &mut Writer, version: Version) {
    out.u64(version.timestamp);
    out.u64(version.generation);
}

fn take_version(from: &mut Reader<'_>) -> Result<Version, Malformed> {
    Ok(Version { timestamp: from.u64()?, generation: from.u64()? })
}

fn put_post(out: &mut Writer, meta: &PostMeta) {
    out.u64(meta.timestamp);
    out.u64(meta.delete_at);
    out.pairs(&meta.metadata);
    out.u8(u8::from(meta.content_type.is_some()));
    out.text(meta.content_type.as_deref().unwrap_or_default());
    out.u64(meta.content_type_timestamp);
}

fn take_post(from: &mut Reader<'_>) -> Result<PostMeta, Malformed> {
    let (timestamp, delete_at, metadata) = (from.u64()?, from.u64()?, from.pairs()?);
    let (typed, content_type) = (from.flag()?, from.text()?);
    if !typed && !content_type.is_empty() {
        return Err(Malformed("a content type that is not set"));
    }
    let content_type = typed.then_some(content_type);
    Ok(PostMeta { timestamp, metadata, content_type, content_type_timestamp: from.u64()?, delete_at })
}

fn put_info(out: &mut Writer, info: &Info) {
    out.u64(info.timestamp);
    put_footer(out, &Footer { size: info.size, etag: info.etag.clone(), xxh3: info.xxh3 });
    out.u64(info.meta_timestamp);
    out.u64(info.content_type_timestamp);
    out.u64(info.delete_at);
    out.text(&info.name);
    out.text(&info.content_type);
    out.pairs(&info.metadata);
    out.pairs(&info.sysmeta);
}

fn take_info(from: &mut Reader<'_>) -> Result<Info, Malformed> {
    let timestamp = from.u64()?;
    let Footer { size, etag, xxh3 } = take_footer(from)?;
    let (meta_timestamp, content_type_timestamp, delete_at) = (from.u64()?, from.u64()?, from.u64()?);
    let (name, content_type) = (from.text()?, from.text()?);
    let (metadata, sysmeta) = (from.pairs()?, from.pairs()?);
    Ok(Info {
        name,
        timestamp,
        size,
        etag,
        xxh3,
        content_type,
        metadata,
        sysmeta,
        meta_timestamp,
        content_type_timestamp,
        delete_at,
    })
}

/// Lists of numbers and hashes are sent as bodies, as they may be long.
pub mod lists {
    use super::{ENTRY_BYTES, Entry, Malformed, Reader, Suffix, Writer, put_entry, take_entry};

    /// Policies or partitions.
    #[must_use]
    pub fn encode_numbers(numbers: &[u32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
    }

    /// The inverse.
    ///
    /// # Errors
    /// It is none.
    pub fn decode_numbers(raw: &[u8]) -> Result<Vec<u32>, Malformed> {
        whole(raw, 4, |from| from.u32())
    }

    /// Suffixes and their set hashes.
    #[must_use]
    pub fn encode_suffixes(suffixes: &[(Suffix, u128)]) -> Vec<u8> {
        let mut raw = Vec::with_capacity(suffixes.len() * 18);
        for (suffix, sum) in suffixes {
            raw.extend_from_slice(&suffix.to_be_bytes());
            raw.extend_from_slice(&sum.to_be_bytes());
        }
        raw
    }

    /// The inverse.
    ///
    /// # Errors
    /// It is none.
    pub fn decode_suffixes(raw: &[u8]) -> Result<Vec<(Suffix, u128)>, Malformed> {
        whole(raw, 18, |from| Ok((from.u16()?, from.digest().map(u128::from_be_bytes)?)))
    }

    /// Entries.
    #[must_use]
    pub fn encode_entries(entries: &[Entry]) -> Vec<u8> {
        let mut out = Writer::default();
        entries.iter().for_each(|entry| put_entry(&mut out, entry));
        out.into_bytes()
    }

    /// The inverse.
    ///
    /// # Errors
    /// It is none.
    pub fn decode_entries(raw: &[u8]) -> Result<Vec<Entry>, Malformed> {
        whole(raw, ENTRY_BYTES, take_entry)
    }

    fn whole<T>(
        raw: &[u8],
        each: usize,
        take: impl Fn(&mut Reader<'_>) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        if !raw.len().is_multiple_of(each) {
            return Err(Malformed("cut off"));
        }
        let mut from = Reader(raw);
        (0..raw.len() / each).map(|_| take(&mut from)).collect()
    }
}
