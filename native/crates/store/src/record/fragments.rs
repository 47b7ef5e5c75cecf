//! Metadata of fragments and decisions, as in `docs/volumes.md`.
//!
//! Fault model: any bytes behind a right checksum. What is accepted fits together: header, metadata and block say the
//! same, and the fragment has the size that the object's size gives it.

use std::sync::Arc;

use swiftlet_fragments::block::Block;
use swiftlet_fragments::slot::Change;
use swiftlet_fragments::{Ballot, Outcome, Version, decision};

use super::{Header, Kind, pack_put, parse_put_and_rest};
use crate::model::{FragmentInfo, Key, PutMeta};

/// The store's partition of a fragment, modulo this, is the fragment's index.
const PLACES: u32 = 32;
/// The ballot above all others: who has promised it listens to none.
const NEVER: Ballot = Ballot { round: u32::MAX, nonce: u64::MAX };

/// What a decision says. Of the first three, which answer a ballot, the header doesn't say everything.
const PROMISED: u32 = 1;
const ACCEPTED_ABORT: u32 = 3;
const COMMITTED: u32 = 4;
const ABORTED: u32 = 5;
const SETTLED: u32 = 6;
const RETURNED: u32 = 7;
const DAMAGED: u32 = 8;

/// What a fragment's own record says of its version, so that no decision is needed beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// Nothing.
    #[default]
    Undecided = 0,
    /// That the version counts.
    Certain = 1,
    /// That older ones are dead besides.
    Settled = 2,
}

impl State {
    /// The state of this number.
    #[must_use]
    pub(crate) fn of(number: u32) -> Option<Self> {
        [Self::Undecided, Self::Certain, Self::Settled].into_iter().find(|state| *state as u32 == number)
    }
}

/// Whether a record of this kind, a fragment's or a decision's, may say this.
#[must_use]
pub(super) fn may_say(kind: Kind, says: u32) -> bool {
    if kind.is_fragment() { State::of(says).is_some() } else { (PROMISED..=DAMAGED).contains(&says) }
}

/// Whether a fragment of this index belongs under a key.
pub(crate) fn is_place_of(key: &Key, index: usize) -> bool {
    (key.partition % PLACES) as usize == index
}

/// Encode a fragment's metadata for the device.
pub(crate) fn pack_fragment(meta: &PutMeta, etag: &[u8], block: &Block) -> Vec<u8> {
    let mut out = pack_put(meta, etag);
    out.extend(block.encode());
    out
}

/// The inverse; None when it is malformed, or doesn't fit the header.
#[must_use]
pub(crate) fn parse_fragment(header: &Header, metadata: &[u8]) -> Option<FragmentInfo> {
    let (meta, footer, block) = parse_put_and_rest(header, metadata)?;
    let block = Block::parse(block).ok()?;
    let fits = header.size == block.fragment_bytes()
        && header.generation == block.generation
        && is_place_of(&header.key, block.index)
        && (header.kind == Kind::LargeFragment) == (header.large != 0);
    fits.then_some(FragmentInfo { meta, etag: footer.etag, block })
}

/// The version that the record of a fragment or decision is about.
pub(crate) fn version_of(header: &Header) -> Version {
    Version { timestamp: header.timestamp, generation: header.generation }
}

/// The change that a record of a fragment or decision makes; None when its metadata are malformed, or don't fit the
/// header.
#[must_use]
pub(crate) fn change_of(header: &Header, metadata: &[u8]) -> Option<Change> {
    if header.kind.is_fragment() {
        let block = parse_fragment(header, metadata)?.block;
        return Some(Change::Prepared { version: version_of(header), chosen: block.chosen });
    }
    let change = decision::parse(header.timestamp, metadata)?;
    let says = metadata.get(1).copied().map(u32::from);
    (change.version() == version_of(header) && says == Some(header.says)).then_some(change)
}

/// The same where the metadata are damaged, as far as the header says it: which ballot was promised, or accepted, isn't
/// known then, and none is listened to any more.
#[must_use]
pub(crate) fn change_without(header: &Header) -> Change {
    let version = version_of(header);
    match (header.kind, header.says) {
        (Kind::Decision, COMMITTED) => Change::Decided { version, outcome: Outcome::Commit },
        (Kind::Decision, ABORTED) => Change::Decided { version, outcome: Outcome::Abort },
        (Kind::Decision, SETTLED) => Change::Settled(version),
        (Kind::Decision, RETURNED) => Change::Returned(version),
        (Kind::Decision, DAMAGED) => Change::Damaged(version),
        (Kind::Decision, _) => Change::Promised { version, chosen: Arc::new([]), ballot: NEVER },
        _ => Change::Prepared { version, chosen: Arc::new([]) },
    }
}

/// Whether a record answers a ballot, of which its header doesn't say everything.
#[must_use]
pub(crate) fn answers_a_ballot(header: &Header) -> bool {
    header.kind == Kind::Decision && (PROMISED..=ACCEPTED_ABORT).contains(&header.says)
}

/// Whether a record is a promise.
#[must_use]
pub(crate) fn is_promise(header: &Header) -> bool {
    header.kind == Kind::Decision && header.says == PROMISED
}

/// Header and metadata of a decision without place and sequence number, written at this time in seconds since 1970;
/// None for a change that has a record of another kind.
pub(crate) fn decision_record(key: Key, change: &Change, now_s: u64) -> Option<(Header, Vec<u8>)> {
    let metadata = decision::encode(change)?;
    let Version { timestamp, generation } = change.version();
    let says = u32::from(*metadata.get(1)?);
    let header = Header { generation, says, delete_at: now_s, ..Header::new(Kind::Decision, key, timestamp) };
    Some((header, metadata))
}
