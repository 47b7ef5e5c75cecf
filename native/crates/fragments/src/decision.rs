//! What a device makes durable about a write besides the fragment itself: the metadata of a decision's record.
//!
//! The record's header names the object and the timestamp; `docs/design/2026-11-26-fragments.md` has these bytes.

use std::sync::Arc;

use swiftlet_erasure::MAX_CELLS;

use crate::cursor::Cursor;
use crate::slot::Change;
use crate::version::{Accepted, Ballot, Device, Outcome, Version};

const VERSION: u8 = 1;

/// The bytes of a change that needs no fragment. Of a fragment that has come, or was rebuilt, there is none: its record is
/// the fragment's own.
#[must_use]
pub fn encode(change: &Change) -> Option<Vec<u8>> {
    let none: &[Device] = &[];
    let (version, what, ballot, chosen) = match change {
        Change::Promised { version, chosen, ballot } => (version, 1, *ballot, &chosen[..]),
        Change::Accepted { version, chosen, accepted } => {
            (version, if accepted.outcome == Outcome::Commit { 2 } else { 3 }, accepted.ballot, &chosen[..])
        }
        Change::Decided { version, outcome: Outcome::Commit } => (version, 4, Ballot::PROXY, none),
        Change::Decided { version, outcome: Outcome::Abort } => (version, 5, Ballot::PROXY, none),
        // A deletion has a record of its own, the tombstone.
        Change::Settled(version) if !version.is_deletion() => (version, 6, Ballot::PROXY, none),
        Change::Returned(version) => (version, 7, Ballot::PROXY, none),
        Change::Damaged(version) => (version, 8, Ballot::PROXY, none),
        _ => return None,
    };
    let mut out = vec![VERSION, what];
    out.extend(version.generation.to_be_bytes());
    out.extend(ballot.round.to_be_bytes());
    out.extend(ballot.nonce.to_be_bytes());
    out.push(chosen.len() as u8);
    for device in chosen {
        out.extend(device.number.to_be_bytes());
        out.extend(device.incarnation.to_be_bytes());
    }
    Some(out)
}

/// The inverse of [`encode`], with the timestamp of the record's header; nothing if it is no decision, or one that is
/// written in another way.
#[must_use]
pub fn parse(timestamp: u64, bytes: &[u8]) -> Option<Change> {
    let mut cursor = Cursor(bytes);
    let [VERSION, what] = cursor.bytes()? else { return None };
    let version = Version { timestamp, generation: cursor.u64()? };
    let ballot = Ballot { round: cursor.u32()?, nonce: cursor.u64()? };
    let count = usize::from(cursor.u8()?);
    if count > MAX_CELLS {
        return None;
    }
    let chosen: Arc<[Device]> = (0..count).map(|_| cursor.device()).collect::<Option<_>>()?;
    let accepted = |outcome| Accepted { ballot, outcome };
    let change = match what {
        1 => Change::Promised { version, chosen, ballot },
        2 => Change::Accepted { version, chosen, accepted: accepted(Outcome::Commit) },
        3 => Change::Accepted { version, chosen, accepted: accepted(Outcome::Abort) },
        4 => Change::Decided { version, outcome: Outcome::Commit },
        5 => Change::Decided { version, outcome: Outcome::Abort },
        6 => Change::Settled(version),
        7 => Change::Returned(version),
        8 => Change::Damaged(version),
        _ => return None,
    };
    let is_deletion = version.is_deletion() && !matches!(change, Change::Returned(_));
    (!is_deletion && encode(&change).as_deref() == Some(bytes)).then_some(change)
}
