//! Quarantine: copies of damaged records, for people.

use std::io::IoSlice;
use std::sync::atomic::Ordering;

use crate::error::Result;
use crate::inner::Inner;
use crate::model::Key;
use crate::record::{ALIGN, HEADER, Header, Parsed, Place};

/// The directory of damaged records.
pub(crate) const DIRECTORY: &str = "quarantined";

/// Copy a damaged POST; the object continues with the metadata of its data.
pub(crate) fn set_post_aside(inner: &Inner, key: &Key, place: Place) -> Result<()> {
    let post = inner.index.post(key).filter(|post| post.place == place);
    let Some(post) = post else { return Ok(()) };
    copy(inner, place, u64::from(post.units) * ALIGN)?;
    if inner.index.drop_post(key, place) {
        inner.volumes.free(place, post.units);
        inner.counters.quarantined.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Copy a record to the quarantine, if there is space.
pub(crate) fn copy(inner: &Inner, place: Place, len: u64) -> Result<()> {
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
