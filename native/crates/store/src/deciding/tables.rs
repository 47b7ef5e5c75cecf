//! What a batch does about references to a pack.
//!
//! Which of them count is decided in the committing thread, on what is durable, and nothing else is decided in the same
//! batch: so an object that is forgotten is never brought back by a reference that was taken for it before.

use swiftlet_fragments::Version;
use swiftlet_fragments::packs::table::Table;

use super::{Plan, unchanged};
use crate::error::{Error, Result};
use crate::index::{Taking, WholeObject};
use crate::inner::Inner;
use crate::model::Key;
use crate::queue::Given;
use crate::record::table_record;
use crate::versions::OfPack;

/// Decide on references that are offered. `key` is the pack's; `own` that of this place's fragment of it.
pub(super) fn decide(inner: &Inner, key: Key, taking: Taking, offered: (Table, Option<Key>)) -> Result<Plan> {
    let (mut table, own) = offered;
    if let Some(own) = own {
        must_be_kept(inner, &own, table.pack.version)?;
    }
    // A device that has to deliver an object's row needs its record for that.
    let is_owed = |digest: [u8; 16]| inner.pending.has(&Key { digest, ..key });
    let id = (key.policy, key.partition);
    let pack = table.pack;
    let partition = inner.index.partition(id, |partition| {
        table.references.retain(|reference| partition.takes(reference, pack, taking));
    });
    if partition.is_none() && taking != Taking::Learn {
        return Ok(unchanged());
    }
    if !matches!(taking, Taking::Mend(_)) {
        table.references.retain(|reference| !is_owed(reference.digest));
    }
    if table.references.is_empty() {
        return Ok(unchanged());
    }
    let (header, metadata) = table_record(key.policy, key.partition, &table).ok_or_else(not_of_a_pack)?;
    Ok(Plan::Refer { header, metadata, table, answer: Ok(Given::Changed(true)) })
}

/// No reference may lead to what is not here: `NotFound` without the fragment, `Superseded` if the pack is retired.
fn must_be_kept(inner: &Inner, own: &Key, pack: Version) -> Result<()> {
    let versions = inner.index.versions(own).map_err(WholeObject::into_error)?;
    match versions.of_pack(pack) {
        OfPack::Kept(_) => Ok(()),
        OfPack::Missing => Err(Error::NotFound(None)),
        OfPack::Retired(at) => Err(Error::Superseded(at)),
    }
}

/// What is offered can't be written.
pub(crate) fn not_of_a_pack() -> Error {
    Error::Format(
        "these are not references to the members of a pack: they are sorted by digest, one behind the other, and there \
         is at least one"
            .into(),
    )
}
