//! Takes damaged fragments out of service, and writes damaged decisions anew.

use std::sync::atomic::Ordering;

use super::move_large;
use crate::commit;
use crate::error::Result;
use crate::inner::Inner;
use crate::model::Key;
use crate::quarantine;
use crate::queue::{Asked, Op};
use crate::record::{ALIGN, Place};

/// The record at a place was found damaged: copy it for people, and go on with what is known of it, unless it is not
/// held any more.
pub(super) fn set_aside(inner: &Inner, key: &Key, place: Place) -> Result<()> {
    let Ok(versions) = inner.index.versions(key) else { return Ok(()) };
    if versions.post.is_some_and(|post| post.place == place) {
        return quarantine::set_post_aside(inner, key, place);
    }
    let Some(spot) = versions.spots().find(|spot| spot.place == place) else { return Ok(()) };
    quarantine::copy(inner, place, u64::from(spot.units) * ALIGN)?;
    inner.device.disk.reach("quarantine-copied");
    let mut gone = false;
    match versions.fragment_at(place) {
        Some((_, bytes)) => {
            move_large(inner, bytes.large)?;
            // What only its own record said is written first, so that it is never unknown.
            while commit::ask(inner, *key, Op::Fragments(Asked::Damaged(place)))? {
                gone = true;
            }
        }
        None => gone = commit::ask(inner, *key, Op::Fragments(Asked::Rewrite(place)))?,
    }
    inner.counters.quarantined.fetch_add(u64::from(gone), Ordering::Relaxed);
    inner.device.disk.reach("quarantine-forgotten");
    Ok(())
}
