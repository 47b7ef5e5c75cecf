//! What the volumes say of fragments: the changes of their records, made one after the other.

use std::collections::HashMap;
use std::sync::Arc;

use swiftlet_fragments::slot::{Change, Slot};
use swiftlet_fragments::{Accepted, Ballot, Outcome, Version};

use crate::inner::Inner;
use crate::model::Key;
use crate::record::{Header, Kind, Sound, State};

/// A record's change in the order of sequence numbers, with the state that a fragment's says.
type Changes = Vec<(Change, State)>;

/// Records of fragments, by key, and all other ones. Records must be in the order of their sequence numbers.
pub(super) fn apart(records: &[Sound]) -> (HashMap<Key, Changes>, Vec<Header>) {
    let mut fragments: HashMap<Key, Changes> = HashMap::new();
    for record in records.iter().filter(|record| record.header.kind.is_of_fragments()) {
        fragments.entry(record.header.key).or_default();
    }
    let mut objects = Vec::new();
    for Sound { header, change } in records {
        match (fragments.get_mut(&header.key), header.kind) {
            (Some(changes), Kind::Forget) => changes.clear(),
            (Some(changes), Kind::Tombstone) => {
                changes.push((Change::Settled(Version::deletion(header.timestamp)), State::Undecided));
            }
            (Some(changes), _) => {
                let state = State::of(header.says).filter(|_| header.kind.is_fragment());
                changes.extend(change.as_deref().map(|change| (change.clone(), state.unwrap_or_default())));
            }
            (None, _) => objects.push(*header),
        }
    }
    // Of one that was forgotten nothing is left.
    fragments.retain(|_, changes| !changes.is_empty());
    (fragments, objects)
}

/// The slot that changes lead to. What was said of versions below the newest settled one may be left out.
fn replay(changes: &Changes) -> Slot {
    let mut slot = Slot::default();
    for (change, state) in changes {
        let version = change.version();
        if let Change::Decided { .. } | Change::Damaged(_) = change {
            // The fragment's own record may be gone.
            slot.apply(&Change::Promised { version, chosen: Arc::new([]), ballot: Ballot::PROXY });
        }
        slot.apply(change);
        if *state >= State::Certain {
            slot.apply(&Change::Decided { version, outcome: Outcome::Commit });
        }
        if *state == State::Settled {
            slot.apply(&Change::Settled(version));
        }
    }
    let floor = slot.floor();
    floor.iter().for_each(|floor| slot.apply(&Change::Settled(*floor)));
    slot
}

/// What matters of a version: whether its fragment is here, what is promised and accepted, and what is decided.
type Seen = (Version, bool, Ballot, Option<Accepted>, Option<Outcome>);

/// What matters of a slot: the newest settled version, and each other one.
fn seen(slot: &Slot) -> (Option<Version>, Vec<Seen>) {
    let kept = slot.kept().filter(|(version, kept)| kept.fragment || slot.floor() != Some(*version));
    let kept = kept.map(|(version, kept)| match kept.decided {
        Some(_) => (version, kept.fragment, Ballot::PROXY, None, kept.decided),
        None => (version, kept.fragment, kept.promised, kept.accepted, None),
    });
    (slot.floor(), kept.collect())
}

/// Compare what is held of fragments with what their records say; returns each difference as a sentence.
pub(super) fn check(inner: &Inner, said: &HashMap<Key, Changes>) -> Vec<String> {
    let mut problems = Vec::new();
    let nothing = Slot::default();
    let mut compare = |key: &Key, held: &Slot| {
        let (held, said) = (seen(held), said.get(key).map_or(seen(&nothing), |changes| seen(&replay(changes))));
        if held != said {
            problems.push(format!("{key:?}: the index has {held:?}, the volumes say {said:?}"));
        }
    };
    for key in said.keys() {
        match inner.index.versions(key) {
            Ok(versions) => compare(key, &versions.slot()),
            Err(_) => compare(key, &nothing),
        }
    }
    inner.index.for_each_fragment(|key, versions| {
        if !said.contains_key(key) {
            compare(key, &versions.slot());
        }
    });
    problems
}
