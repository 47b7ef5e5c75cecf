//! Takes damaged tables of references out of service: what their sound blocks have is written anew.

use std::sync::atomic::Ordering;

use swiftlet_fragments::packs::table::{self, Table};

use crate::commit;
use crate::error::Result;
use crate::index::{PartitionId, Taking};
use crate::inner::Inner;
use crate::model::Key;
use crate::quarantine;
use crate::queue::Op;
use crate::record::{ALIGN, HEADER, Place};

/// Objects that are forgotten in one batch; waiting writers come next.
const FORGOTTEN_AT_ONCE: usize = 256;

/// The table at a place was found damaged: copy it for people, go on with the references that can still be read, and
/// forget the objects of the others.
pub(super) fn set_aside(inner: &Inner, id: PartitionId, place: Place) -> Result<()> {
    let Some(held) = inner.index.table(id, place) else { return Ok(()) };
    let bytes = u64::from(held.units) * ALIGN;
    quarantine::copy(inner, place, bytes)?;
    inner.device.disk.reach("quarantine-copied");
    let Some(volume) = inner.volumes.get(place.volume()) else { return Ok(()) };
    let mut raw = Vec::new();
    inner.device.io("read a volume", volume.file.append_at(&mut raw, bytes as usize, place.offset()))?;
    let found = raw.get(HEADER..).and_then(table::sound_blocks).filter(|(pack, _)| *pack == held.pack);
    let blocks = found.map(|(_, blocks)| blocks).unwrap_or_default();
    let references = blocks.into_iter().flatten().flatten().collect();
    let key = Key { policy: id.0, partition: id.1, digest: held.pack.digest };
    commit::ask(inner, key, Op::References(Taking::Mend(place), Table { pack: held.pack, references }, None))?;
    inner.device.disk.reach("quarantine-mended");
    let lost = inner.index.partition(id, |partition| partition.pointing_to(place)).unwrap_or_default();
    for some in lost.chunks(FORGOTTEN_AT_ONCE) {
        let keys = some.iter().map(|(digest, _)| Key { digest: *digest, ..key });
        commit::ask_all(inner, keys.map(|key| (key, Op::Forget { place })))?;
    }
    inner.counters.quarantined.fetch_add(1, Ordering::Relaxed);
    inner.device.disk.reach("quarantine-forgotten");
    Ok(())
}
