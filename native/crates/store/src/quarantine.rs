//! Taking what is damaged out of service: a copy for people, then a record that it does not count.

use std::io::IoSlice;
use std::sync::atomic::Ordering;

use crate::error::Result;
use crate::large;
use crate::model::Key;
use crate::read;
use crate::record::{ALIGN, HEADER, Header, Parsed, Place};
use crate::store::Inner;

/// The directory of damaged records.
pub(crate) const DIRECTORY: &str = "quarantined";

/// A version or POST was found unsound at a place; unless it has been replaced meanwhile it goes.
pub(crate) fn unless_moved(inner: &Inner, key: &Key, place: Place) -> Result<()> {
    let Some(held) = inner.index.get(key) else { return Ok(()) };
    if held.slot.place == place {
        return set_aside(inner, key, place);
    }
    if held.extra.post.is_some_and(|post| post.place == place) {
        set_post_aside(inner, key, place)?;
    }
    Ok(())
}

/// Copy a record, move its large file, and forget the object.
pub(crate) fn set_aside(inner: &Inner, key: &Key, place: Place) -> Result<()> {
    let Some(held) = inner.index.get(key).filter(|held| held.slot.place == place) else { return Ok(()) };
    copy(inner, place, held.slot.bytes())?;
    inner.device.disk.reach("quarantine-copied");
    if held.extra.large != 0 {
        let target = format!("{DIRECTORY}/large-{:016x}", held.extra.large);
        match inner.device.disk.rename(&large::path_of(held.extra.large), &target) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            other => inner.device.io("move a damaged file", other)?,
        }
    }
    if read::forget(inner, key, place)? {
        inner.counters.quarantined.fetch_add(1, Ordering::Relaxed);
    }
    inner.device.disk.reach("quarantine-forgotten");
    Ok(())
}

/// Copy a damaged POST; the object goes on with what came with its data.
pub(crate) fn set_post_aside(inner: &Inner, key: &Key, place: Place) -> Result<()> {
    let post = inner.index.get(key).and_then(|held| held.extra.post).filter(|post| post.place == place);
    let Some(post) = post else { return Ok(()) };
    copy(inner, place, u64::from(post.units) * ALIGN)?;
    if inner.index.drop_post(key, place) {
        inner.volumes.free(place, post.units);
        inner.counters.quarantined.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn copy(inner: &Inner, place: Place, len: u64) -> Result<()> {
    let device = &inner.device;
    let Some(volume) = inner.volumes.get(place.volume()) else { return Ok(()) };
    let mut raw = vec![0; len as usize];
    let read = device.io("read a volume", volume.file.read_at(&mut raw, place.offset()))?;
    raw.truncate(read);
    let sequence = match raw.get(..HEADER).map(|raw| Header::parse(raw, place, &device.id)) {
        Some(Parsed::Sound(header)) => header.sequence,
        _ => 0,
    };
    let path = format!("{DIRECTORY}/{:08x}-{:010x}-{sequence:016x}", place.volume(), place.offset());
    let file = match device.disk.create(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(()),
        // A full disk must not keep what is damaged in service.
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull => return Ok(()),
        other => device.io("make a file in quarantine", other)?,
    };
    match file.write_at(&[IoSlice::new(&raw)], 0).and_then(|()| file.sync()) {
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull => return Ok(()),
        other => device.io("write to quarantine", other)?,
    }
    device.sync_directory(DIRECTORY)
}
