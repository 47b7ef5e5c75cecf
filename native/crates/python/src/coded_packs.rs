//! The packer of small objects for Python: one round for one partition, in a thread of its caller.
//!
//! Fault model: that of `swiftlet_node::coded::Packing`. What is ended anywhere a later round goes on with.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use swiftlet_fragments::Version;
use swiftlet_node::coded::{PackOptions, Packed, Packing, Places, Stopped};
use swiftlet_node::{Client, Failure};

use crate::coded::{PlacesParts, places_of};
use crate::coded_repair::VersionParts;
use crate::values::seconds;

/// Seconds: of each request, of a pack's body and of the proof of a fragment, and for which a fragment may take to be
/// settled.
type PackWaits = (f64, f64, f64);
/// Places with small objects, before which timestamp copies are packed, and the least and the most bytes of a pack.
type PackTerms = (usize, u64, u64, u64);
/// Members of new packs, their bytes, packs of others that are adopted now, packs that are retired now.
type PackedParts = (usize, u64, usize, usize);

/// A packer of one partition.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct CodedPacking {
    client: Client,
    places: Places,
    options: PackOptions,
    is_over: AtomicBool,
}

#[pymethods]
impl CodedPacking {
    #[new]
    #[pyo3(signature = (places, waits, terms, trace, /))]
    fn new(places: PlacesParts<'_>, waits: PackWaits, terms: PackTerms, trace: String) -> PyResult<Self> {
        let client = Client::new(&trace).map_err(|error| PyOSError::new_err(error.to_string()))?;
        let (timeout, body_timeout, settle) = waits;
        let (holders, before, least_bytes, most_bytes) = terms;
        let (timeout, body_timeout, settle) = (seconds(timeout)?, seconds(body_timeout)?, seconds(settle)?);
        let options = PackOptions { timeout, body_timeout, settle, holders, before, least_bytes, most_bytes, trace };
        Ok(Self { client, places: places_of(places)?, options, is_over: AtomicBool::new(false) })
    }

    /// Do what there is to do in the partition, and wait for it. What was done, or why not all of it: "ended", "refused" or
    /// "failed", and a text.
    #[pyo3(signature = (drawn, version, /))]
    fn round(
        &self,
        py: Python<'_>,
        drawn: u64,
        version: VersionParts,
    ) -> (PackedParts, Option<(&'static str, String)>) {
        let (timestamp, generation) = version;
        let go_on = || !self.is_over.load(Ordering::Acquire);
        let outcome = py.detach(|| {
            let packing = Packing::new(&self.client, self.places.clone(), self.options.clone(), &go_on);
            packing.round((drawn, Version { timestamp, generation }))
        });
        match outcome {
            Ok(Packed { packed, bytes, finished, retired }) => ((packed, bytes, finished, retired), None),
            Err(stopped) => ((0, 0, 0, 0), Some(why(&stopped))),
        }
    }

    /// Send no further message.
    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }
}

fn why(stopped: &Stopped) -> (&'static str, String) {
    match stopped {
        Stopped::Ended => ("ended", String::new()),
        Stopped::Refused { place, told } => ("refused", format!("place {place} has answered {told:?}")),
        Stopped::Failed(Failure::Lost(error)) => ("failed", error.to_string()),
        Stopped::Failed(Failure::Damaged(what)) => ("failed", (*what).to_owned()),
        Stopped::Failed(Failure::Refused(refusal)) => {
            ("failed", format!("{}: {}", refusal.status.name(), refusal.text))
        }
    }
}
