//! Fragments of a partition: all versions of each, and the slot of the one that is shown.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use swiftlet_fragments::Device;
use swiftlet_fragments::slot::Change;

use super::{Extra, Held, Partition, Record};
use crate::error::Error;
use crate::index::Applied;
use crate::model::Suffix;
use crate::record::{Header, Kind, Place, State};
use crate::versions::{Spot, Versions};

/// A whole object is held where fragments were looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WholeObject;

impl WholeObject {
    /// The error for whoever asks.
    pub(crate) fn into_error(self) -> Error {
        Error::Format("whole objects and fragments are not kept under one key: this one has an object".into())
    }
}

/// The lists of chosen devices are gone through when they are so many, and twice as many as were needed the last time.
const FEW_LISTS: usize = 64;

/// The fragments of a partition.
#[derive(Default)]
pub(super) struct Fragments {
    held: HashMap<[u8; 16], Versions>,
    /// Those of them that are not settled: few, and looked for in every round of a replicator.
    unsettled: BTreeSet<[u8; 16]>,
    /// The lists of chosen devices, each once: most writes of a partition choose the same.
    chosen: HashSet<Arc<[Device]>>,
    needed: usize,
}

impl Fragments {
    /// The same list, as it is kept here already.
    fn shared(&mut self, chosen: &Arc<[Device]>) -> Arc<[Device]> {
        if let Some(known) = self.chosen.get(chosen) {
            return Arc::clone(known);
        }
        if self.chosen.len() >= FEW_LISTS.max(2 * self.needed) {
            self.chosen.retain(|list| Arc::strong_count(list) > 1);
            self.needed = self.chosen.len();
        }
        self.chosen.insert(Arc::clone(chosen));
        Arc::clone(chosen)
    }
}

/// Records that were live and no longer are.
fn freed(before: &Versions, after: &Versions) -> (Vec<(Place, u32)>, Vec<u64>) {
    let live: Vec<Place> = after.spots().map(|spot| spot.place).collect();
    let dead = before.spots().filter(|spot| !live.contains(&spot.place)).map(|spot| (spot.place, spot.units));
    let kept: Vec<u64> = after.large().collect();
    (dead.collect(), before.large().filter(|large| !kept.contains(large)).collect())
}

impl Partition {
    /// The generation of the fragment that is shown.
    pub(super) fn generation_of(&self, digest: &[u8; 16]) -> u64 {
        let versions = self.fragments.as_ref().and_then(|fragments| fragments.held.get(digest));
        versions.and_then(Versions::shown).map_or(0, |(version, _)| version.generation)
    }

    /// Whether anything but a deletion is held of a fragment.
    #[must_use]
    pub(crate) fn has_fragment(&self, digest: &[u8; 16]) -> bool {
        self.fragments.as_ref().is_some_and(|fragments| fragments.held.contains_key(digest))
    }

    /// Whether there are any fragments.
    #[must_use]
    pub(crate) fn has_fragments(&self) -> bool {
        self.fragments.is_some()
    }

    /// All fragments of which anything but a deletion is held, in no order.
    pub(crate) fn fragments(&self) -> impl Iterator<Item = (&[u8; 16], &Versions)> {
        self.fragments.iter().flat_map(|fragments| fragments.held.iter())
    }

    /// The fragments that are not settled and behind a digest, in order.
    pub(crate) fn unsettled(&self, after: Option<[u8; 16]>) -> impl Iterator<Item = (&[u8; 16], &Versions)> {
        let behind = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        self.fragments.iter().flat_map(move |fragments| {
            let digests = fragments.unsettled.range::<[u8; 16], _>(behind);
            digests.filter_map(|digest| Some((digest, fragments.held.get(digest)?)))
        })
    }

    /// The suffix of a fragment that is wrongly among those that are not settled, or is not.
    pub(super) fn wrongly_settled(&self) -> Option<Suffix> {
        let unsettled = self.fragments.as_ref().map(|fragments| &fragments.unsettled);
        let is_wrong = |digest: &[u8; 16], versions: &Versions| {
            unsettled.is_some_and(|unsettled| unsettled.contains(digest) == versions.is_settled())
        };
        let wrong = self.fragments().find(|(digest, versions)| is_wrong(digest, versions));
        wrong.map(|(digest, _)| u16::from_be_bytes([digest[14] & 0x0f, digest[15]]))
    }

    /// What is held of a fragment, a deletion alone as well.
    pub(crate) fn versions(&self, digest: &[u8; 16]) -> Result<Versions, WholeObject> {
        if let Some(versions) = self.fragments.as_ref().and_then(|fragments| fragments.held.get(digest)) {
            return Ok(versions.clone());
        }
        match self.get(digest) {
            None => Ok(Versions::default()),
            Some(held) if held.slot.kind == Kind::Tombstone => {
                let spot = Spot { place: held.slot.place, units: held.slot.units, ..Spot::default() };
                Ok(Versions::of_deletion(held.slot.timestamp, spot))
            }
            Some(_) => Err(WholeObject),
        }
    }

    /// Merge the record of a fragment, of a decision about one, or of a deletion of one.
    pub(crate) fn merge(&mut self, header: &Header, change: &Change) -> Applied {
        let digest = &header.key.digest;
        let Ok(before) = self.versions(digest) else { return Applied::default() };
        let mut after = before.clone();
        match self.with_shared(change) {
            Some(change) => after.merge(&change, header),
            None => after.merge(change, header),
        }
        let (freed, unlink) = freed(&before, &after);
        let held = after.spots().any(|spot| spot.place == header.place);
        self.set_versions(digest, after);
        Applied { held, freed, unlink }
    }

    /// Merge the record of a POST.
    pub(crate) fn merge_post(&mut self, header: &Header) -> Applied {
        let digest = &header.key.digest;
        let Ok(before) = self.versions(digest) else { return Applied::default() };
        let mut after = before.clone();
        let held = after.merge_post(header);
        let (freed, unlink) = freed(&before, &after);
        self.set_versions(digest, after);
        Applied { held, freed, unlink }
    }

    /// Drop the POST if it is at this place.
    pub(crate) fn drop_coded_post(&mut self, digest: &[u8; 16], place: Place) -> bool {
        let Ok(mut versions) = self.versions(digest) else { return false };
        if versions.post.is_none_or(|post| post.place != place) {
            return false;
        }
        versions.post = None;
        self.set_versions(digest, versions);
        true
    }

    /// The same change with a list of chosen devices that others have as well.
    fn with_shared(&mut self, change: &Change) -> Option<Change> {
        let mut change = change.clone();
        match &mut change {
            Change::Prepared { chosen, .. }
            | Change::Rebuilt { chosen, .. }
            | Change::Promised { chosen, .. }
            | Change::Accepted { chosen, .. } => *chosen = self.fragments.get_or_insert_default().shared(chosen),
            _ => return None,
        }
        Some(change)
    }

    /// The record at `old` was copied to `new`, with this state in it if it is a fragment's.
    pub(crate) fn relocate_fragment(&mut self, digest: &[u8; 16], old: Place, new: Place, state: State) -> Applied {
        let Ok(before) = self.versions(digest) else { return Applied::default() };
        let mut after = before.clone();
        if !after.relocate(old, new, state) {
            return Applied::default();
        }
        let (freed, unlink) = freed(&before, &after);
        self.set_versions(digest, after);
        Applied { held: true, freed, unlink }
    }

    /// Forget all of a fragment.
    pub(crate) fn forget_fragment(&mut self, digest: &[u8; 16]) -> Applied {
        let Ok(before) = self.versions(digest) else { return Applied::default() };
        let (freed, unlink) = freed(&before, &Versions::default());
        self.set_versions(digest, Versions::default());
        Applied { held: false, freed, unlink }
    }

    /// Know these lists of chosen devices, which fragments here have.
    pub(crate) fn know_lists(&mut self, lists: Vec<Arc<[Device]>>) {
        self.fragments.iter_mut().for_each(|fragments| fragments.chosen.extend(lists.iter().cloned()));
    }

    /// Hold these versions, and give what they show a slot.
    pub(crate) fn set_versions(&mut self, digest: &[u8; 16], versions: Versions) {
        let before = self.get(digest);
        let deletion = versions.floor.filter(|floor| floor.version.is_deletion());
        let shown = versions.shown().map(|(version, bytes)| {
            let kind = if bytes.large == 0 { Kind::Fragment } else { Kind::LargeFragment };
            let Spot { place, units, .. } = bytes.spot;
            let post = versions.post_on(version.timestamp);
            let extra = Extra { delete_at: bytes.delete_at, post, ..Extra::default() };
            Record { kind, timestamp: version.timestamp, place, units, extra }
        });
        let deleted = deletion.and_then(|floor| {
            let Spot { place, units, .. } = floor.spot?;
            let (kind, timestamp) = (Kind::Tombstone, floor.version.timestamp);
            Some(Record { kind, timestamp, place, units, extra: Extra::default() })
        });
        if versions.is_empty() || versions.only_deletion().is_some() {
            if let Some(fragments) = &mut self.fragments {
                fragments.held.remove(digest);
                fragments.unsettled.remove(digest);
                if fragments.held.is_empty() {
                    self.fragments = None;
                }
            }
        } else {
            let fragments = self.fragments.get_or_insert_default();
            match versions.is_settled() {
                true => fragments.unsettled.remove(digest),
                false => fragments.unsettled.insert(*digest),
            };
            fragments.held.insert(*digest, versions);
        }
        let (_, after) = self.replace(digest, shown.or(deleted).as_ref());
        self.resum(before.as_ref(), after.as_ref());
    }

    /// Digests of everything that is held, also of what no place is shown.
    #[must_use]
    pub(crate) fn all_digests(&self) -> Vec<[u8; 16]> {
        let mut digests: Vec<[u8; 16]> = self.iter().map(|held| held.slot.digest()).collect();
        let not_shown = self.fragments().map(|(digest, _)| *digest).filter(|digest| self.get(digest).is_none());
        let mut not_shown: Vec<[u8; 16]> = not_shown.collect();
        not_shown.sort_unstable();
        digests.append(&mut not_shown);
        digests
    }

    /// The same without references, which are checked with their tables, unless there is a POST on top.
    #[must_use]
    pub(crate) fn audited_digests(&self) -> Vec<[u8; 16]> {
        let mut digests = self.all_digests();
        if self.tables().next().is_some() {
            let is_checked = |held: Held| held.slot.member().is_none() || held.extra.post.is_some();
            digests.retain(|digest| self.get(digest).is_none_or(is_checked));
        }
        digests
    }

    /// Where everything is that is held: digest, place and units. A table's digest is that of its pack.
    pub(crate) fn for_each_place(&self, mut each: impl FnMut(&[u8; 16], Place, u32)) {
        for Held { slot, extra, .. } in self.iter() {
            let digest = slot.digest();
            if !self.has_fragment(&digest) {
                slot.own_record().iter().for_each(|(place, units)| each(&digest, *place, *units));
                extra.post.iter().for_each(|post| each(&digest, post.place, post.units));
            }
        }
        for (digest, versions) in self.fragments() {
            versions.spots().for_each(|spot| each(digest, spot.place, spot.units));
        }
        for (place, table) in self.tables() {
            each(&table.pack.digest, place, table.units);
        }
    }
}
