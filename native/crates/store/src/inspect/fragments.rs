//! What the volumes say of fragments: the changes of their records, made one after the other.

use std::collections::HashMap;
use std::sync::Arc;

use swiftlet_fragments::slot::{Change, Slot};
use swiftlet_fragments::{Accepted, Ballot, Outcome, Version};

use crate::inner::Inner;
use crate::model::{Key, Timestamp};
use crate::record::{Kind, Sound, State};
use crate::versions::Versions;

/// A record's change in the order of sequence numbers, with the state that a fragment's says.
type Changes = Vec<(Change, State)>;

/// What the records of a fragment say.
#[derive(Default)]
pub(super) struct Told {
    changes: Changes,
    /// Of the newest POST: its timestamp, and that of its content type.
    post: Option<(Timestamp, Timestamp)>,
}

/// Records of fragments, by key, and all other ones. Records must be in the order of their sequence numbers.
pub(super) fn apart(records: &[Sound]) -> (HashMap<Key, Told>, Vec<Sound>) {
    let mut fragments: HashMap<Key, Told> = HashMap::new();
    let coded = |kind: Kind| kind.is_of_fragments() || kind == Kind::CodedPost;
    for record in records.iter().filter(|record| coded(record.header.kind)) {
        fragments.entry(record.header.key).or_default();
    }
    let mut objects = Vec::new();
    for record in records {
        let Sound { header, change, .. } = record;
        match (fragments.get_mut(&header.key), header.kind) {
            (Some(told), Kind::Forget) => *told = Told::default(),
            (Some(told), Kind::CodedPost) => {
                told.post = told.post.max(Some((header.timestamp, header.content_type_timestamp)));
            }
            (Some(told), Kind::Tombstone) => {
                told.changes.push((Change::Settled(Version::deletion(header.timestamp)), State::Undecided));
            }
            (Some(told), _) => {
                let state = State::of(header.says).filter(|_| header.kind.is_fragment());
                told.changes.extend(change.as_deref().map(|change| (change.clone(), state.unwrap_or_default())));
            }
            (None, _) => objects.push(record.clone()),
        }
    }
    // Of one that was forgotten nothing is left.
    fragments.retain(|_, told| !told.changes.is_empty() || told.post.is_some());
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

/// The newest settled version, each other one, and what is posted.
type SeenSlot = (Option<Version>, Vec<Seen>, Option<(Timestamp, Timestamp)>);

/// What matters of a slot, and of a POST to it.
fn seen(slot: &Slot, post: Option<(Timestamp, Timestamp)>) -> SeenSlot {
    let kept = slot.kept().filter(|(version, kept)| kept.fragment || slot.floor() != Some(*version));
    let kept = kept.map(|(version, kept)| match kept.decided {
        Some(_) => (version, kept.fragment, Ballot::PROXY, None, kept.decided),
        None => (version, kept.fragment, kept.promised, kept.accepted, None),
    });
    let newer = post.filter(|post| slot.floor().is_none_or(|floor| floor.timestamp < post.0));
    (slot.floor(), kept.collect(), newer)
}

/// Compare what is held of fragments with what their records say; returns each difference as a sentence.
pub(super) fn check(inner: &Inner, said: &HashMap<Key, Told>) -> Vec<String> {
    let mut problems = Vec::new();
    let nothing = Slot::default();
    let mut compare = |key: &Key, held: &Versions| {
        let post = held.post.map(|post| (post.timestamp, post.content_type_timestamp));
        let told = |told: &Told| seen(&replay(&told.changes), told.post);
        let (held, said) = (seen(&held.slot(), post), said.get(key).map_or(seen(&nothing, None), told));
        if held != said {
            problems.push(format!("{key:?}: the index has {held:?}, the volumes say {said:?}"));
        }
    };
    for key in said.keys() {
        match inner.index.versions(key) {
            Ok(versions) => compare(key, &versions),
            Err(_) => compare(key, &Versions::default()),
        }
    }
    inner.index.for_each_fragment(|key, versions| {
        if !said.contains_key(key) {
            compare(key, versions);
        }
    });
    problems
}
