//! Values: keys, descriptions of objects, entries. The same as `swiftlet.model` has, with bytes for texts:
//! names need not be valid Unicode.

use swiftlet_fragments::Version;
use swiftlet_fragments::block::Block;

/// A version's place in time: ticks of 10 microseconds and a nonce; see `docs/data-on-disk.md`. 0 is older than all
/// others.
pub type Timestamp = u64;

/// The number of a suffix: the digest's last three hexadecimal digits.
pub type Suffix = u16;

/// How many suffixes a partition has.
pub const SUFFIXES: u16 = 4096;

/// The location of an object on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Index of the storage policy.
    pub policy: u16,
    /// Partition in the policy's ring.
    pub partition: u32,
    /// MD5 of the object's name.
    pub digest: [u8; 16],
}

impl Key {
    /// The unit in which partitions are compared.
    #[must_use]
    pub fn suffix(&self) -> Suffix {
        u16::from_be_bytes([self.digest[14] & 0x0f, self.digest[15]])
    }
}

/// Names and values, in the order in which they came.
pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Everything about a new version except its bytes and checksums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutMeta {
    /// `/account/container/object`.
    pub name: Vec<u8>,
    /// Of the version.
    pub timestamp: Timestamp,
    /// May be changed by a POST.
    pub content_type: Vec<u8>,
    /// What a POST replaces as a whole.
    pub metadata: Pairs,
    /// Stays with the data.
    pub sysmeta: Pairs,
    /// Seconds since 1970 at which the object expires; 0 never.
    pub delete_at: u64,
}

/// What is known only after the last byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Bytes of data.
    pub size: u64,
    /// MD5 in hexadecimal digits, or another ETag.
    pub etag: Vec<u8>,
    /// xxh3-64 of the data.
    pub xxh3: u64,
}

/// What is stored with a fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FragmentInfo {
    /// The object's description.
    pub meta: PutMeta,
    /// The object's ETag.
    pub etag: Vec<u8>,
    /// Which fragment it is, and its digests.
    pub block: Block,
}

impl FragmentInfo {
    /// Which version it is of.
    #[must_use]
    pub fn version(&self) -> Version {
        Version { timestamp: self.meta.timestamp, generation: self.block.generation }
    }
}

/// Metadata that replaces an object's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PostMeta {
    /// Its timestamp.
    pub timestamp: Timestamp,
    /// All of it.
    pub metadata: Pairs,
    /// None leaves the type as it is.
    pub content_type: Option<Vec<u8>>,
    /// The timestamp of the content type; 0 without one.
    pub content_type_timestamp: Timestamp,
    /// Seconds since 1970 at which the object expires; 0 never.
    pub delete_at: u64,
}

/// A stored object after all merging.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// `/account/container/object`.
    pub name: Vec<u8>,
    /// Of the data.
    pub timestamp: Timestamp,
    /// Bytes of data.
    pub size: u64,
    /// MD5 in hexadecimal digits, or another ETag.
    pub etag: Vec<u8>,
    /// xxh3-64 of the data.
    pub xxh3: u64,
    /// The content type of the last record that set it.
    pub content_type: Vec<u8>,
    /// Of the newest POST, or the PUT's.
    pub metadata: Pairs,
    /// The PUT's.
    pub sysmeta: Pairs,
    /// Of the newest POST, or the data's.
    pub meta_timestamp: Timestamp,
    /// The timestamp of the record that set the content type last.
    pub content_type_timestamp: Timestamp,
    /// Seconds since 1970 at which the object expires; 0 never.
    pub delete_at: u64,
}

/// The kind of an object's newest record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// There is an object.
    Data = 1,
    /// It was deleted.
    Tombstone = 2,
}

/// One object in a partition's comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// MD5 of the object's name.
    pub digest: [u8; 16],
    /// Whether it exists or is deleted.
    pub kind: EntryKind,
    /// Of data or tombstone.
    pub timestamp: Timestamp,
    /// Of the POST that counts, 0 when none does.
    pub meta_timestamp: Timestamp,
    /// Of the POST's content type, 0 when it set none that counts.
    pub content_type_timestamp: Timestamp,
}

/// A device's fullness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The device's size in bytes.
    pub total_bytes: u64,
    /// Bytes that are free for ordinary users.
    pub free_bytes: u64,
    /// Objects and tombstones.
    pub objects: u64,
    /// Whether bodies are written past the page cache.
    pub writes_directly: bool,
}
