//! Requests about packs of small objects, and their answers, as `docs/transport.md` has them.
//!
//! Fault model: a peer may send any bytes. What is accepted is written in one way, and is within its limits.

use swiftlet_fragments::Version;
use swiftlet_fragments::packs::table::{MAX_MEMBER_BYTES, Table};
use swiftlet_store::model::Key;

use super::fragments::{put_version, take_version};
use super::{Malformed, Reader, Writer, put_key, take_key};

/// The version of these messages.
const VERSION: u8 = 1;
/// Members that are adopted by one request: their references and checks fit into its header.
pub const MAX_ADOPTED: usize = 1024;
/// In a key of these, the place that no fragment has.
const SMALL: u32 = 31;

/// Numbers of methods in the transport.
pub(super) mod method {
    pub(crate) const ABOUT: u16 = 22;
    pub(crate) const PIECE: u16 = 23;
}

/// A request about a pack. Its key is that of the device's fragment of it: the partition has the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read the fragment back from the device.
    Prove {
        /// The fragment's key.
        key: Key,
        /// The pack's version.
        pack: Version,
    },
    /// Replace copies by references, where a copy has these very bytes.
    Adopt {
        /// The fragment's key, of which the digest is the table's pack.
        key: Key,
        /// The references.
        table: Table,
        /// For each of them the check of its member.
        checks: Vec<u64>,
    },
    /// Take no reference any more, and say how many there are.
    Retire {
        /// The fragment's key.
        key: Key,
        /// The pack's version.
        pack: Version,
    },
    /// Bytes of the fragment as they are: whoever asks has a digest of what they are for.
    Piece {
        /// The fragment's key.
        key: Key,
        /// The pack's version.
        pack: Version,
        /// Where they begin in the fragment.
        start: u64,
        /// How many they are.
        bytes: u32,
    },
}

/// What a place answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It was done: the fragment is here, and settled.
    Done {
        /// How many references to the pack are here now.
        references: u64,
    },
    /// The fragment is not here, or not settled.
    Missing,
    /// The pack is retired.
    Retired {
        /// Whether it was before this was asked.
        before: bool,
        /// How many references are left.
        references: u64,
    },
}

/// Numbers of what is asked.
mod about {
    pub(super) const PROVE: u8 = 1;
    pub(super) const ADOPT: u8 = 2;
    pub(super) const RETIRE: u8 = 3;
    /// By a method of its own.
    pub(super) const PIECE: u8 = 0;
}

/// Numbers of answers.
mod told {
    pub(super) const DONE: u8 = 0;
    pub(super) const MISSING: u8 = 1;
    pub(super) const RETIRED: u8 = 2;
}

impl From<Request> for super::Request {
    fn from(request: Request) -> Self {
        Self::Pack(request)
    }
}

impl Request {
    /// The method's number in the transport.
    #[must_use]
    pub fn method(&self) -> u16 {
        if matches!(self, Self::Piece { .. }) { method::PIECE } else { method::ABOUT }
    }

    /// The key of the fragment.
    #[must_use]
    pub fn key(&self) -> &Key {
        match self {
            Self::Prove { key, .. } | Self::Adopt { key, .. } | Self::Retire { key, .. } | Self::Piece { key, .. } => {
                key
            }
        }
    }

    pub(super) fn put(&self, out: &mut Writer) -> Result<(), Malformed> {
        out.u8(VERSION);
        put_key(out, self.key());
        match self {
            Self::Prove { pack, .. } => {
                out.u8(about::PROVE);
                put_version(out, *pack);
            }
            Self::Adopt { table, checks, .. } => {
                out.u8(about::ADOPT);
                if table.references.len() > MAX_ADOPTED || checks.len() != table.references.len() {
                    return Err(Malformed("too many members at once, or not one check for each"));
                }
                out.text(&table.encode().ok_or(Malformed("no references to members of a pack"))?);
                checks.iter().for_each(|check| out.u64(*check));
            }
            Self::Retire { pack, .. } => {
                out.u8(about::RETIRE);
                put_version(out, *pack);
            }
            Self::Piece { pack, start, bytes, .. } => {
                put_version(out, *pack);
                out.u64(*start);
                out.u32(*bytes);
            }
        }
        Ok(())
    }

    pub(super) fn take(number: u16, from: &mut Reader<'_>) -> Result<Self, Malformed> {
        if from.u8()? != VERSION {
            return Err(Malformed("a request about packs of another version"));
        }
        let key = take_key(from)?;
        if key.partition % 32 == SMALL {
            return Err(Malformed("a fragment at a place that there is not"));
        }
        let request = match if number == method::PIECE { about::PIECE } else { from.u8()? } {
            about::PIECE if number == method::PIECE => {
                let (pack, start, bytes) = (take_version(from)?, from.u64()?, from.u32()?);
                if bytes == 0 || bytes > MAX_MEMBER_BYTES {
                    return Err(Malformed("no bytes of a fragment, or more than a member has"));
                }
                Self::Piece { key, pack, start, bytes }
            }
            about::PROVE => Self::Prove { key, pack: take_version(from)? },
            about::ADOPT => {
                let table = Table::parse(from.slice()?).ok_or(Malformed("no references to members of a pack"))?;
                let count = table.references.len();
                if count > MAX_ADOPTED || table.pack.digest != key.digest {
                    return Err(Malformed("too many members at once, or of another pack"));
                }
                let checks = (0..count).map(|_| from.u64()).collect::<Result<_, _>>()?;
                Self::Adopt { key, table, checks }
            }
            about::RETIRE => Self::Retire { key, pack: take_version(from)? },
            _ => return Err(Malformed("a question about a pack that there is not")),
        };
        if request.pack().is_deletion() { Err(Malformed("a deletion in place of a pack")) } else { Ok(request) }
    }

    /// The pack's version.
    #[must_use]
    pub fn pack(&self) -> Version {
        match self {
            Self::Prove { pack, .. } | Self::Retire { pack, .. } | Self::Piece { pack, .. } => *pack,
            Self::Adopt { table, .. } => table.pack.version,
        }
    }
}

impl Told {
    /// The header of the answer.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::Done { references } => {
                out.u8(told::DONE);
                out.u64(*references);
            }
            Self::Missing => out.u8(told::MISSING),
            Self::Retired { before, references } => {
                out.u8(told::RETIRED);
                out.u8(u8::from(*before));
                out.u64(*references);
            }
        }
        out.into_bytes()
    }

    /// The inverse.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(header: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(header);
        let told = match from.u8()? {
            told::DONE => Self::Done { references: from.u64()? },
            told::MISSING => Self::Missing,
            told::RETIRED => Self::Retired { before: from.flag()?, references: from.u64()? },
            _ => return Err(Malformed("an answer that there is not")),
        };
        from.end()?;
        Ok(told)
    }
}
