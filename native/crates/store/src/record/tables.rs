//! Records of references to packs, as in `docs/volumes.md`.
//!
//! Fault model: any bytes behind a right checksum. What is accepted fits together: header and references name the same
//! pack.

use swiftlet_fragments::Version;
use swiftlet_fragments::packs::Pack;
use swiftlet_fragments::packs::table::Table;

use super::{Header, Kind};
use crate::model::Key;

/// The pack that a table's references lead to.
#[must_use]
pub(crate) fn pack_of(header: &Header) -> Pack {
    let version = Version { timestamp: header.timestamp, generation: header.generation };
    Pack { version, digest: header.key.digest }
}

/// Header and metadata of a table without place and sequence number; None if its references are not those of a pack.
pub(crate) fn table_record(policy: u16, partition: u32, table: &Table) -> Option<(Header, Vec<u8>)> {
    let Pack { version, digest } = table.pack;
    let key = Key { policy, partition, digest };
    let header = Header { generation: version.generation, ..Header::new(Kind::Table, key, version.timestamp) };
    Some((header, table.encode()?))
}

/// The references of a table; None when they are malformed, or don't fit the header.
#[must_use]
pub(crate) fn parse_table(header: &Header, metadata: &[u8]) -> Option<Table> {
    Table::parse(metadata).filter(|table| table.pack == pack_of(header))
}
