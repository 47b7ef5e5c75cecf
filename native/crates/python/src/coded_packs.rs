//! Packs of small objects for Python: one round of a packer for one partition, in a thread of its caller, and the messages
//! by which places bring each other references.
//!
//! Fault model: that of `swiftlet_node::coded::Packing`. What is ended anywhere a later round goes on with.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use swiftlet_fragments::Version;
use swiftlet_fragments::packs::Pack;
use swiftlet_fragments::packs::table::Table;
use swiftlet_node::coded::{PackOptions, Packed, Packing, PacksSeen, Places, Stopped};
use swiftlet_node::message::Request;
use swiftlet_node::message::packs::{Request as PackRequest, Told, decode_references};
use swiftlet_node::{Client, Failure};
use swiftlet_store::Referred;
use swiftlet_store::model::Key;

use crate::buffer::Bytes;
use crate::coded::{PlacesParts, places_of};
use crate::coded_repair::VersionParts;
use crate::object_wire::{Message, malformed, message};
use crate::store::{Place, key};
use crate::values::seconds;

/// Seconds: of each request, of a pack's body and of the proof of a fragment, and for which a fragment may take to be
/// settled.
type PackWaits = (f64, f64, f64);
/// Places with small objects, before which timestamp copies are packed, the least and the most bytes of a pack, and below
/// which live share it is written anew.
type PackTerms = (usize, u64, u64, u64, f64);
/// Digests of packs that are left alone, and copies that are left out without being read: digest and timestamp.
type PassedBy = (BTreeSet<[u8; 16]>, BTreeSet<([u8; 16], u64)>);
/// A pack: its digest, and its version.
type PackParts<'py> = (Bound<'py, PyBytes>, (u64, u64));
/// Members of new packs, their bytes, packs of others that are adopted now, packs that are retired now, which of these may
/// be deleted, which packs not all places have adopted as a whole, after whether all others were looked at, which copies
/// were left out, packs that were written anew with their bytes, and the packs that were there.
type PackedParts<'py> = (
    usize,
    u64,
    usize,
    usize,
    Vec<PackParts<'py>>,
    (bool, Vec<Bound<'py, PyBytes>>),
    Vec<(Bound<'py, PyBytes>, u64)>,
    (usize, u64),
    SeenParts,
);
/// Packs that are referred to, their bytes, how many of these count, and packs below the live share that are left.
type SeenParts = (usize, u64, u64, usize);
/// Why not all was done, if so: "ended", "refused" or "failed", and a text.
type Why = Option<(&'static str, String)>;

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
    #[pyo3(signature = (places, waits, terms, passed_by, trace, /))]
    fn new(
        places: PlacesParts<'_>,
        waits: PackWaits,
        terms: PackTerms,
        passed_by: PassedBy,
        trace: String,
    ) -> PyResult<Self> {
        let client = Client::new(&trace).map_err(|error| PyOSError::new_err(error.to_string()))?;
        let (timeout, body_timeout, settle) = waits;
        let (holders, before, least_bytes, most_bytes, live_share) = terms;
        let (skipped, left_out) = passed_by;
        let (timeout, body_timeout, settle) = (seconds(timeout)?, seconds(body_timeout)?, seconds(settle)?);
        let options = PackOptions {
            timeout,
            body_timeout,
            settle,
            holders,
            before,
            least_bytes,
            most_bytes,
            live_share,
            skipped,
            left_out,
            trace,
        };
        Ok(Self { client, places: places_of(places)?, options, is_over: AtomicBool::new(false) })
    }

    /// Do what there is to do in the partition, and wait for it. What was done, and why not all of it.
    #[pyo3(signature = (drawn, version, /))]
    fn round<'py>(&self, py: Python<'py>, drawn: u64, version: VersionParts) -> (PackedParts<'py>, Why) {
        let (timestamp, generation) = version;
        let mut done = Packed::default();
        let outcome =
            py.detach(|| self.packing(|packing| packing.run((drawn, Version { timestamp, generation }), &mut done)));
        let digest = |digest: &[u8; 16]| PyBytes::new(py, digest);
        let Packed {
            packed,
            bytes,
            finished,
            retired,
            unused,
            unfinished,
            looked_at_all,
            left_out,
            rewritten,
            reread,
            seen: PacksSeen { packs, size, live, below },
        } = done;
        let unused =
            unused.iter().map(|pack| (digest(&pack.digest), (pack.version.timestamp, pack.version.generation)));
        let left_out = left_out.iter().map(|(of, timestamp)| (digest(of), *timestamp));
        let unfinished = (looked_at_all, unfinished.iter().map(digest).collect());
        let anew = ((rewritten, reread), (packs, size, live, below));
        let parts =
            (packed, bytes, finished, retired, unused.collect(), unfinished, left_out.collect(), anew.0, anew.1);
        (parts, outcome.err().map(|stopped| why(&stopped)))
    }

    /// Delete a pack that may be deleted, as of a timestamp, and wait for it. Why that was not done at all places.
    #[pyo3(signature = (digest, version, timestamp, /))]
    fn delete(&self, py: Python<'_>, digest: [u8; 16], version: VersionParts, timestamp: u64) -> Why {
        let version = Version { timestamp: version.0, generation: version.1 };
        let outcome = py.detach(|| self.packing(|packing| packing.delete(Pack { version, digest }, timestamp)));
        outcome.err().map(|stopped| why(&stopped))
    }

    /// Send no further message.
    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }
}

impl CodedPacking {
    fn packing<T>(&self, act: impl FnOnce(Packing<'_>) -> T) -> T {
        let go_on = || !self.is_over.load(Ordering::Acquire);
        act(Packing::new(&self.client, self.places.clone(), self.options.clone(), &go_on))
    }
}

/// A message, and the objects that it is about.
type About<'py> = (Message<'py>, Vec<Bound<'py, PyBytes>>);

/// A namespace.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct PackWire;

#[pymethods]
impl PackWire {
    /// Encode the question which of these objects are in packs, and where; the place is any one of their partition.
    #[staticmethod]
    #[pyo3(signature = (device, place, digests, /))]
    fn references<'py>(py: Python<'py>, device: &str, place: Place, digests: Vec<[u8; 16]>) -> PyResult<Message<'py>> {
        message(py, device, &Request::from(PackRequest::References { key: key(place), digests }))
    }

    /// Parse its answer: the objects that are in packs.
    #[staticmethod]
    #[pyo3(signature = (body, /))]
    fn referred<'py>(py: Python<'py>, body: Bytes) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let all = decode_references(body.as_slice()).map_err(malformed)?;
        Ok(all.iter().map(|one| PyBytes::new(py, &one.reference.digest)).collect())
    }

    /// Encode what an answer says of these objects for another place of the partition, each pack by itself.
    #[staticmethod]
    #[pyo3(signature = (device, place, body, digests, /))]
    fn learn<'py>(
        py: Python<'py>,
        device: &str,
        place: Place,
        body: Bytes,
        digests: Vec<[u8; 16]>,
    ) -> PyResult<Vec<About<'py>>> {
        let mut all = referred_of(&body, &digests)?;
        all.sort_unstable_by_key(|one| (one.pack, one.reference.digest));
        let about = |of_pack: &[Referred]| -> PyResult<Option<About<'py>>> {
            let Some(Referred { pack, .. }) = of_pack.first() else { return Ok(None) };
            let references = of_pack.iter().map(|one| one.reference).collect();
            let request = PackRequest::Learn {
                key: Key { digest: pack.digest, ..key(place) },
                table: Table { pack: *pack, references },
            };
            let digests = of_pack.iter().map(|one| PyBytes::new(py, &one.reference.digest)).collect();
            Ok(Some((message(py, device, &request.into())?, digests)))
        };
        all.chunk_by(|one, next| one.pack == next.pack).filter_map(|of_pack| about(of_pack).transpose()).collect()
    }

    /// Whether references were taken, by the answer: the fragment of the pack is at the place, and the pack isn't retired.
    #[staticmethod]
    #[pyo3(signature = (header, /))]
    fn is_taken(header: Bytes) -> PyResult<bool> {
        Ok(matches!(Told::decode(header.as_slice()).map_err(malformed)?, Told::Done { .. }))
    }

    /// Encode what was posted to these objects, by an answer, for another place of the partition.
    #[staticmethod]
    #[pyo3(signature = (device, place, body, digests, /))]
    fn posts<'py>(
        py: Python<'py>,
        device: &str,
        place: Place,
        body: Bytes,
        digests: Vec<[u8; 16]>,
    ) -> PyResult<Vec<About<'py>>> {
        let posted =
            referred_of(&body, &digests)?.into_iter().filter_map(|one| Some((one.reference.digest, one.posted?)));
        let about = |(digest, meta): ([u8; 16], _)| {
            let key = Key { digest, ..key(place) };
            let request = Request::Post { key, meta, row: 0, proved: false };
            Ok((message(py, device, &request)?, vec![PyBytes::new(py, &digest)]))
        };
        posted.map(about).collect()
    }
}

fn referred_of(body: &Bytes, digests: &[[u8; 16]]) -> PyResult<Vec<Referred>> {
    let mut all = decode_references(body.as_slice()).map_err(malformed)?;
    all.retain(|one| digests.contains(&one.reference.digest));
    Ok(all)
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
