//! Requests about packs of small objects, and their answers, as `docs/transport.md` has them.
//!
//! Fault model: a peer may send any bytes. What is accepted is written in one way, and is within its limits.

use swiftlet_fragments::Version;
use swiftlet_fragments::packs::Pack;
use swiftlet_fragments::packs::table::{MAX_MEMBER_BYTES, MAX_MEMBERS, Reference, Table};
use swiftlet_store::model::Key;
use swiftlet_store::{Cold, Referred};

use super::{Malformed, Reader, Writer, put_key, put_post, put_version, take_key, take_post, take_version};

/// The version of these messages.
const VERSION: u8 = 1;
/// Members that are adopted by one request: their references and checks fit into its header.
pub const MAX_ADOPTED: usize = 1024;
/// Copies of which one answer has the members.
pub const MAX_MEMBERS_ASKED: usize = 1024;
/// Bytes of members in one answer, but for one member at least; those that find no room are left out.
pub const MAX_MEMBERS_BYTES: usize = 4 << 20;
/// Packs in one answer.
pub const MAX_LISTED: usize = 1024;
/// Bytes of a copy in the answer about what is cold.
const COLD_BYTES: usize = 28;
/// Bytes of a pack in a list.
const LISTED_BYTES: usize = 57;
/// In a key of these, the place that no fragment has.
const SMALL: u32 = 31;

/// Numbers of methods in the transport.
pub(super) mod method {
    pub(crate) const ABOUT: u16 = 22;
    pub(crate) const PIECE: u16 = 23;
    pub(crate) const COLD: u16 = 24;
    pub(crate) const MEMBERS: u16 = 25;
    pub(crate) const PACKS: u16 = 26;
    pub(crate) const REFERENCES: u16 = 27;
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
    /// The oldest copies of the partition that a pack may have.
    Cold {
        /// A place's key of the partition, of no object.
        key: Key,
        /// Only those of before this time.
        before: u64,
        /// So many bytes of their records at most.
        most_bytes: u64,
    },
    /// Copies as members of a pack.
    Members {
        /// A place's key of the partition, of no object.
        key: Key,
        /// Of which objects.
        digests: Vec<[u8; 16]>,
    },
    /// Take references in place of versions that are missing here, as another place has them.
    Learn {
        /// The fragment's key, of which the digest is the table's pack.
        key: Key,
        /// The references.
        table: Table,
    },
    /// Where objects are that are in packs, and what was posted to them.
    References {
        /// A place's key of the partition, of no object.
        key: Key,
        /// Of which objects.
        digests: Vec<[u8; 16]>,
    },
    /// The packs of which the place has the fragment.
    List {
        /// A place's key of the partition: only packs with digests behind this one.
        key: Key,
    },
}

/// A pack at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The pack.
    pub pack: Pack,
    /// Whether it is retired.
    pub retired: bool,
    /// How many references to it are here.
    pub references: u64,
    /// Bytes of their members.
    pub live: u64,
    /// Bytes of the pack; 0 if the place can't read its fragment.
    pub size: u64,
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
    pub(super) const LEARN: u8 = 4;
}

/// Numbers of answers.
mod told {
    pub(super) const DONE: u8 = 0;
    pub(super) const MISSING: u8 = 1;
    pub(super) const RETIRED: u8 = 2;
}

fn put_table(out: &mut Writer, table: &Table) -> Result<(), Malformed> {
    if table.references.len() > MAX_ADOPTED {
        return Err(Malformed("too many members at once"));
    }
    out.text(&table.encode().ok_or(Malformed("no references to members of a pack"))?);
    Ok(())
}

/// A table of the pack with this digest.
fn take_table(from: &mut Reader<'_>, key: &Key) -> Result<Table, Malformed> {
    let table = Table::parse(from.slice()?).ok_or(Malformed("no references to members of a pack"))?;
    if table.references.len() > MAX_ADOPTED || table.pack.digest != key.digest {
        return Err(Malformed("too many members at once, or of another pack"));
    }
    Ok(table)
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
        match self {
            Self::Prove { .. } | Self::Adopt { .. } | Self::Retire { .. } | Self::Learn { .. } => method::ABOUT,
            Self::References { .. } => method::REFERENCES,
            Self::Piece { .. } => method::PIECE,
            Self::Cold { .. } => method::COLD,
            Self::Members { .. } => method::MEMBERS,
            Self::List { .. } => method::PACKS,
        }
    }

    /// The key of the fragment.
    #[must_use]
    pub fn key(&self) -> &Key {
        match self {
            Self::Prove { key, .. }
            | Self::Adopt { key, .. }
            | Self::Retire { key, .. }
            | Self::Piece { key, .. }
            | Self::Cold { key, .. }
            | Self::Members { key, .. }
            | Self::Learn { key, .. }
            | Self::References { key, .. }
            | Self::List { key } => key,
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
                if checks.len() != table.references.len() {
                    return Err(Malformed("not one check for each member"));
                }
                put_table(out, table)?;
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
            Self::Cold { before, most_bytes, .. } => {
                out.u64(*before);
                out.u64(*most_bytes);
            }
            Self::Learn { table, .. } => {
                out.u8(about::LEARN);
                put_table(out, table)?;
            }
            Self::Members { digests, .. } | Self::References { digests, .. } => {
                if digests.len() > MAX_MEMBERS_ASKED {
                    return Err(Malformed("too many members at once"));
                }
                out.u32(digests.len() as u32);
                digests.iter().for_each(|digest| out.raw(digest));
            }
            Self::List { .. } => {}
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
        let request = match number {
            method::PIECE => {
                let (pack, start, bytes) = (take_version(from)?, from.u64()?, from.u32()?);
                if bytes == 0 || bytes > MAX_MEMBER_BYTES {
                    return Err(Malformed("no bytes of a fragment, or more than a member has"));
                }
                Self::Piece { key, pack, start, bytes }
            }
            method::COLD => Self::Cold { key, before: from.u64()?, most_bytes: from.u64()? },
            method::MEMBERS | method::REFERENCES => {
                let count = from.count(16)?;
                if count > MAX_MEMBERS_ASKED {
                    return Err(Malformed("too many members at once"));
                }
                let digests = (0..count).map(|_| from.digest()).collect::<Result<_, _>>()?;
                if number == method::MEMBERS {
                    Self::Members { key, digests }
                } else {
                    Self::References { key, digests }
                }
            }
            method::PACKS => Self::List { key },
            _ => Self::take_about(key, from)?,
        };
        if request.pack().is_some_and(|pack| pack.is_deletion()) {
            return Err(Malformed("a deletion in place of a pack"));
        }
        Ok(request)
    }

    fn take_about(key: Key, from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match from.u8()? {
            about::PROVE => Self::Prove { key, pack: take_version(from)? },
            about::ADOPT => {
                let table = take_table(from, &key)?;
                let checks = (0..table.references.len()).map(|_| from.u64()).collect::<Result<_, _>>()?;
                Self::Adopt { key, table, checks }
            }
            about::RETIRE => Self::Retire { key, pack: take_version(from)? },
            about::LEARN => Self::Learn { key, table: take_table(from, &key)? },
            _ => return Err(Malformed("a question about a pack that there is not")),
        })
    }

    /// The pack's version, if it is about one.
    #[must_use]
    pub fn pack(&self) -> Option<Version> {
        match self {
            Self::Prove { pack, .. } | Self::Retire { pack, .. } | Self::Piece { pack, .. } => Some(*pack),
            Self::Adopt { table, .. } | Self::Learn { table, .. } => Some(table.pack.version),
            Self::Cold { .. } | Self::Members { .. } | Self::References { .. } | Self::List { .. } => None,
        }
    }
}

/// The body of the answer about what is cold.
#[must_use]
pub fn encode_cold(all: &[Cold]) -> Vec<u8> {
    let mut out = Writer::default();
    for cold in all {
        out.raw(&cold.digest);
        out.u64(cold.timestamp);
        out.u32(cold.bytes as u32);
    }
    out.into_bytes()
}

/// The inverse.
///
/// # Errors
/// It is none, or has more than a pack.
pub fn decode_cold(body: &[u8]) -> Result<Vec<Cold>, Malformed> {
    if !body.len().is_multiple_of(COLD_BYTES) || body.len() / COLD_BYTES > MAX_MEMBERS {
        return Err(Malformed("no list of copies, or more than a pack has"));
    }
    let mut from = Reader(body);
    let all: Vec<Cold> = (0..body.len() / COLD_BYTES)
        .map(|_| Ok(Cold { digest: from.digest()?, timestamp: from.u64()?, bytes: from.u32()?.into() }))
        .collect::<Result<_, Malformed>>()?;
    let sorted = all.is_sorted_by(|one, next| one.digest < next.digest);
    if sorted { Ok(all) } else { Err(Malformed("copies that are not in their order")) }
}

/// The header of the answer with members: how many bytes each has, 0 of those that are not there.
#[must_use]
pub fn encode_members(lengths: &[u32]) -> Vec<u8> {
    let mut out = Writer::default();
    lengths.iter().for_each(|length| out.u32(*length));
    out.into_bytes()
}

/// The members of an answer, as many as were asked for; empty ones are not there.
///
/// # Errors
/// It is no such answer.
pub fn decode_members(header: &[u8], body: &[u8], count: usize) -> Result<Vec<Vec<u8>>, Malformed> {
    let (mut from, mut body) = (Reader(header), Reader(body));
    let members = (0..count).map(|_| Ok(body.raw(from.u32()? as usize)?.to_vec())).collect::<Result<_, Malformed>>()?;
    from.end()?;
    body.end()?;
    Ok(members)
}

/// Where an object is that is in a pack, and what was posted to it since.
pub(super) fn put_referred(out: &mut Writer, Referred { pack, reference, posted }: &Referred) {
    out.raw(&pack.digest);
    put_version(out, pack.version);
    out.raw(&reference.digest);
    out.u64(reference.timestamp);
    out.u64(reference.offset);
    out.u32(reference.length);
    out.u8(u8::from(posted.is_some()));
    posted.iter().for_each(|post| put_post(out, post));
}

pub(super) fn take_referred(from: &mut Reader<'_>) -> Result<Referred, Malformed> {
    let (digest, version) = (from.digest()?, take_version(from)?);
    let (of, timestamp, offset, length) = (from.digest()?, from.u64()?, from.u64()?, from.u32()?);
    if length > MAX_MEMBER_BYTES || version.is_deletion() {
        return Err(Malformed("a reference to more than a member has, or to a deletion"));
    }
    let reference = Reference { digest: of, timestamp, offset, length };
    let posted = if from.flag()? { Some(take_post(from)?) } else { None };
    Ok(Referred { pack: Pack { version, digest }, reference, posted })
}

/// The body of an answer with references, each with what was posted since. What has no room is left out.
///
/// # Errors
/// Metadata that were posted are over a limit.
pub fn encode_references(all: &[Referred]) -> Result<Vec<u8>, Malformed> {
    let mut body = Vec::new();
    for referred in all {
        let mut out = Writer::default();
        put_referred(&mut out, referred);
        let one = out.finish()?;
        if body.len() + one.len() > MAX_MEMBERS_BYTES {
            break;
        }
        body.extend(one);
    }
    Ok(body)
}

/// The inverse.
///
/// # Errors
/// It is none, or has more than may be asked for.
pub fn decode_references(body: &[u8]) -> Result<Vec<Referred>, Malformed> {
    let (mut from, mut all) = (Reader(body), Vec::new());
    while !from.0.is_empty() {
        if all.len() == MAX_MEMBERS_ASKED {
            return Err(Malformed("more references than were asked for"));
        }
        all.push(take_referred(&mut from)?);
    }
    Ok(all)
}

/// The header of an answer with packs, and whether there are others behind them.
#[must_use]
pub fn encode_listed(all: &[Listed], more: bool) -> Vec<u8> {
    let mut out = Writer::default();
    out.u8(u8::from(more));
    out.u32(all.len() as u32);
    for Listed { pack, retired, references, live, size } in all {
        out.raw(&pack.digest);
        put_version(&mut out, pack.version);
        out.u8(u8::from(*retired));
        [references, live, size].into_iter().for_each(|number| out.u64(*number));
    }
    out.into_bytes()
}

/// The inverse.
///
/// # Errors
/// It is none.
pub fn decode_listed(header: &[u8]) -> Result<(Vec<Listed>, bool), Malformed> {
    let mut from = Reader(header);
    let more = from.flag()?;
    let count = from.count(LISTED_BYTES)?;
    if count > MAX_LISTED {
        return Err(Malformed("too many packs at once"));
    }
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let (digest, version) = (from.digest()?, take_version(&mut from)?);
        let pack = Pack { version, digest };
        let (retired, references, live, size) = (from.flag()?, from.u64()?, from.u64()?, from.u64()?);
        all.push(Listed { pack, retired, references, live, size });
    }
    from.end()?;
    Ok((all, more))
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
