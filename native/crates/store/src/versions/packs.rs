//! What is held of a fragment that is one of a pack.
//!
//! A pack is written once, so there is one version of it. It is *retired* by a POST: that is kept without the fragment,
//! counts for one that is rebuilt later, and spreads as any POST does.

use swiftlet_fragments::Version;

use super::{Bytes, Versions};
use crate::model::Timestamp;

/// What a place has of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfPack {
    /// Its fragment is here, and settled.
    Kept(Bytes),
    /// It isn't, and nothing is known against it.
    Missing,
    /// No reference to it is taken any more, as of this time: it was retired, or deleted.
    Retired(Timestamp),
}

impl Versions {
    /// What is held of this pack.
    #[must_use]
    pub(crate) fn of_pack(&self, version: Version) -> OfPack {
        if let Some(floor) = self.floor.filter(|floor| floor.version > version) {
            return OfPack::Retired(floor.version.timestamp);
        }
        if let Some(post) = self.post_on(version.timestamp) {
            return OfPack::Retired(post.timestamp);
        }
        let settled = self.floor.is_some_and(|floor| floor.version == version);
        let bytes = self.get(version).and_then(|kept| kept.bytes).filter(|_| settled);
        bytes.map_or(OfPack::Missing, OfPack::Kept)
    }
}
