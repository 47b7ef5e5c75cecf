//! Takes damaged objects out of service: a copy for people, then a record that it does not count.

mod fragments;
mod tables;

use std::sync::atomic::Ordering;

use crate::commit;
use crate::error::Result;
use crate::inner::Inner;
use crate::large;
use crate::model::Key;
use crate::quarantine::{self, DIRECTORY};
use crate::queue::Op;
use crate::record::Place;

/// A version, a POST or a table was found damaged at a place: remove it unless it has been replaced meanwhile. `key` is
/// an object's, or that of a table's pack.
pub(crate) fn unless_moved(inner: &Inner, key: &Key, place: Place) -> Result<()> {
    if inner.index.table((key.policy, key.partition), place).is_some() {
        return tables::set_aside(inner, (key.policy, key.partition), place);
    }
    if inner.index.has_fragment(key) {
        return fragments::set_aside(inner, key, place);
    }
    let Some(held) = inner.index.get(key) else { return Ok(()) };
    if held.slot.place == place {
        return set_aside(inner, key, place);
    }
    if held.extra.post.is_some_and(|post| post.place == place) {
        quarantine::set_post_aside(inner, key, place)?;
    }
    Ok(())
}

/// Move the file of a damaged record, if it has one.
fn move_large(inner: &Inner, number: u64) -> Result<()> {
    if number == 0 {
        return Ok(());
    }
    match inner.device.disk.rename(&large::path_of(number), &format!("{DIRECTORY}/large-{number:016x}")) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => inner.device.io("move a damaged file", other),
    }
}

/// Copy a record, move its large file, and forget the object.
pub(crate) fn set_aside(inner: &Inner, key: &Key, place: Place) -> Result<()> {
    let Some(held) = inner.index.get(key).filter(|held| held.slot.place == place) else { return Ok(()) };
    quarantine::copy(inner, place, held.slot.bytes())?;
    inner.device.disk.reach("quarantine-copied");
    move_large(inner, held.extra.large)?;
    if commit::ask(inner, *key, Op::Forget { place })? {
        inner.counters.quarantined.fetch_add(1, Ordering::Relaxed);
    }
    inner.device.disk.reach("quarantine-forgotten");
    Ok(())
}
