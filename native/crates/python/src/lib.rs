//! `swiftlet_native`: the Rust crates for Python.
//!
//! Each file here wraps one crate for Python and has no logic of its own. The interface between the two sides is
//! `python/swiftlet_native/__init__.pyi`; a change here begins there.

mod bodies;
mod buffer;
mod chunks;
mod coded;
mod coded_packs;
mod coded_repair;
mod container_server;
mod copies;
mod doubts;
mod encryption;
mod front;
mod group;
mod guests;
mod hash;
mod inbox;
mod load;
mod many;
mod object_server;
mod object_wire;
mod pairs;
mod peers;
mod rdma;
mod run;
mod serving;
mod store;
mod sync;
mod transport;
mod updates;
mod uploads;
mod values;
mod writes;

/// The compiled half of the package `swiftlet_native`.
#[pyo3::pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::bodies::{TransportBuffer, TransportDigester};
    #[pymodule_export]
    use super::chunks::{TransportChunk, TransportWindow};
    #[pymodule_export]
    use super::coded::{CodedDeleting, CodedDevices, CodedPosting, CodedReading, CodedSmallWriting, CodedWriting};
    #[pymodule_export]
    use super::coded_packs::{CodedPacking, PackWire};
    #[pymodule_export]
    use super::coded_repair::{CodedRebuilding, CodedRecovering, CodedWire};
    #[pymodule_export]
    use super::container_server::ContainerServer;
    #[pymodule_export]
    use super::copies::{read_copies, take_copies};
    #[pymodule_export]
    use super::doubts::Doubts;
    #[pymodule_export]
    use super::encryption::cluster_certificates;
    #[pymodule_export]
    use super::front::{Changes, Front};
    #[pymodule_export]
    use super::group::TransportGroup;
    #[pymodule_export]
    use super::guests::{cluster_key_id, guest_answer, guest_header, guest_session, read_guest_session, sign_grant};
    #[pymodule_export]
    use super::hash::{Hasher, md5, md5_of_each, xxh3_64, xxh3_128};
    #[pymodule_export]
    use super::load::Load;
    #[pymodule_export]
    use super::many::TransportMany;
    #[pymodule_export]
    use super::object_server::ObjectServer;
    #[pymodule_export]
    use super::object_wire::ObjectWire;
    #[pymodule_export]
    use super::pairs::{PairRoots, sync_branches, sync_differing_branches, sync_members, sync_shared};
    #[pymodule_export]
    use super::peers::{TransportPeer, TransportTicket, TransportUpload};
    #[pymodule_export]
    use super::rdma::rdma_version;
    #[pymodule_export]
    use super::run::TransportRun;
    #[pymodule_export]
    use super::store::{Store, StoreError, StoreReader, StoreWriter};
    #[pymodule_export]
    use super::sync::{
        sync_answer, sync_ascending, sync_copies, sync_differing, sync_differing_many, sync_entries, sync_fits,
        sync_in_order, sync_lacked, sync_listing_heads, sync_listings, sync_newer, sync_suffix_heads, sync_suffixes,
    };

    #[pymodule_export]
    use super::transport::TransportNode;
    #[pymodule_export]
    use super::updates::UpdateTable;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
