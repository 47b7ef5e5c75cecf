//! Repairing objects with erasure coding for Python: what devices show and are told, fragments that are made anew, and
//! writes whose proxy is gone.
//!
//! Fault model: that of `swiftlet_node::coded`. What is dropped before its end may have happened.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use swiftlet_erasure::Scheme;
use swiftlet_fragments::recovery::End;
use swiftlet_fragments::request::{Answer, Request as Asked};
use swiftlet_fragments::slot::Shown;
use swiftlet_fragments::{Ballot, Device, Outcome, Terms, Version, sync};
use swiftlet_node::coded::{RebuildEnd, Rebuilding, Recovering};
use swiftlet_node::message::fragments::{self, Request};
use swiftlet_store::Unsettled;
use swiftlet_store::model::PostMeta;
use swiftlet_transport::Sink;

use crate::buffer::Bytes;
use crate::coded::{PlacesParts, Refused, places_of, refused};
use crate::object_wire::{Message, malformed, message};
use crate::store::{Place, key};
use crate::values::seconds;

/// Timestamp and generation.
pub(crate) type VersionParts = (u64, u64);
/// Devices by their numbers in the ring, with their incarnations.
pub(crate) type ChosenParts = Vec<(u32, u64)>;

fn version_of((timestamp, generation): VersionParts) -> Version {
    Version { timestamp, generation }
}

/// Rebuilding a fragment; nothing is kept when it is dropped before its end.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct CodedRebuilding(Mutex<Option<Rebuilding>>);

impl CodedRebuilding {
    pub(crate) fn start(
        places: PlacesParts<'_>,
        (place, version, distances): (usize, VersionParts, Vec<u8>),
        ((timeout, body_timeout), trace): ((f64, f64), &str),
        sink: (Arc<dyn Sink>, u64),
    ) -> PyResult<Self> {
        let limits = ((seconds(timeout)?, seconds(body_timeout)?), trace);
        let places = places_of(places)?.seen_from(distances);
        let rebuilding = Rebuilding::start(places, (place, version_of(version)), limits, sink);
        Ok(Self(Mutex::new(Some(rebuilding.map_err(PyValueError::new_err)?))))
    }
}

#[pymethods]
impl CodedRebuilding {
    /// How it has ended, the bytes that were made, and why devices gave no good answer.
    fn ended<'py>(&self, py: Python<'py>) -> Option<(&'static str, u64, Vec<Refused<'py>>)> {
        let rebuilding = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rebuilding = rebuilding.as_ref()?;
        let end = match rebuilding.end()? {
            RebuildEnd::Answered(answer) => said(&answer),
            RebuildEnd::TooFew => "too-few",
            RebuildEnd::Unproved => "unproved",
            RebuildEnd::Failed(_) => "failed",
        };
        Some((end, rebuilding.made(), refused(py, &rebuilding.refused())))
    }

    /// Bytes of the fragment that were made by now.
    fn made(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(0, Rebuilding::made)
    }

    /// Bytes of cells that came from each device by now.
    fn read(&self) -> Vec<(u32, u64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or_else(Vec::new, Rebuilding::read)
    }

    /// Ask for nothing more.
    fn close(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// An attempt to decide about a write; it ends where it is when it is dropped.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct CodedRecovering(Mutex<Option<Recovering>>);

impl CodedRecovering {
    pub(crate) fn start(
        places: PlacesParts<'_>,
        (version, chosen): (VersionParts, ChosenParts),
        (round, nonce): (u32, u64),
        (timeout, trace): (f64, &str),
        sink: (Arc<dyn Sink>, u64),
    ) -> PyResult<Self> {
        let chosen = chosen.into_iter().map(|(number, incarnation)| Device { number, incarnation }).collect();
        let (about, ballot) = ((version_of(version), chosen), Ballot { round, nonce });
        let recovering = Recovering::start(places_of(places)?, about, ballot, (seconds(timeout)?, trace), sink);
        Ok(Self(Mutex::new(Some(recovering.map_err(PyValueError::new_err)?))))
    }
}

#[pymethods]
impl CodedRecovering {
    /// How it has ended, the highest round that was heard of, and why devices gave no good answer.
    fn ended<'py>(&self, py: Python<'py>) -> Option<(&'static str, u32, Vec<Refused<'py>>)> {
        let recovering = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recovering = recovering.as_ref()?;
        let (end, round) = match recovering.end()? {
            End::Decided(Outcome::Commit) => ("committed", 0),
            End::Decided(Outcome::Abort) => ("aborted", 0),
            End::Superseded => ("superseded", 0),
            End::Later(round) => ("later", round),
        };
        Some((end, round, refused(py, &recovering.refused())))
    }

    /// Ask nobody any more.
    fn close(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

fn said(answer: &Answer) -> &'static str {
    match answer {
        Answer::Done => "done",
        Answer::Missing => "missing",
        Answer::Superseded(_) => "superseded",
        Answer::Outbid(_) => "outbid",
        Answer::Decided(Outcome::Commit) => "committed",
        Answer::Decided(Outcome::Abort) => "aborted",
        Answer::Busy => "busy",
        Answer::Promised { .. } | Answer::Showing(_) | Answer::Newest { .. } | Answer::Fragment(_) => "other",
    }
}

/// What an answer shows, which has to be one to SHOW.
fn shown_in(header: &[u8]) -> PyResult<Option<Shown>> {
    match fragments::decode_answer(header).map_err(malformed)? {
        Answer::Showing(shown) => Ok(shown),
        _ => Err(PyValueError::new_err("the answer shows nothing of a fragment")),
    }
}

/// The newest metadata in an answer to NEWEST, and the timestamp of the version on which they are.
fn posted_in(header: &[u8]) -> PyResult<Option<(u64, PostMeta)>> {
    let newest = fragments::Newest::decode(header).map_err(malformed)?;
    let version = newest.committed.filter(|version| !version.is_deletion());
    Ok(version.and_then(|version| Some((version.timestamp, newest.post?))))
}

/// A version's fragment, the version, the devices that were chosen for it, whether it is certain.
type UnsettledParts<'py> = ((u16, u32, Bound<'py, PyBytes>), VersionParts, ChosenParts, bool);

/// A namespace.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct CodedWire;

#[pymethods]
impl CodedWire {
    /// Encode the question what is shown of a fragment.
    #[staticmethod]
    #[pyo3(signature = (device, place, /))]
    fn show<'py>(py: Python<'py>, device: &str, place: Place) -> PyResult<Message<'py>> {
        about(py, device, place, Asked::Show)
    }

    /// Parse its answer: timestamp and generation, whether it is settled; None where nothing is shown.
    #[staticmethod]
    #[pyo3(signature = (header, /))]
    fn shown(header: Bytes) -> PyResult<Option<(VersionParts, bool)>> {
        let shown = shown_in(header.as_slice())?;
        Ok(shown.map(|Shown { version, settled, .. }| ((version.timestamp, version.generation), settled)))
    }

    /// Encode what another place shows, by its answer.
    #[staticmethod]
    #[pyo3(signature = (device, place, shown, /))]
    fn learn<'py>(py: Python<'py>, device: &str, place: Place, shown: Bytes) -> PyResult<Message<'py>> {
        about(py, device, place, Asked::Learn(something(shown_in(shown.as_slice())?)?))
    }

    /// Encode that a handoff's fragment may go, by what its place shows.
    #[staticmethod]
    #[pyo3(signature = (device, place, shown, /))]
    fn hand_back<'py>(py: Python<'py>, device: &str, place: Place, shown: Bytes) -> PyResult<Message<'py>> {
        about(py, device, place, Asked::HandBack(something(shown_in(shown.as_slice())?)?))
    }

    /// Encode that all older versions are dead.
    #[staticmethod]
    #[pyo3(signature = (device, place, version, /))]
    fn settle<'py>(py: Python<'py>, device: &str, place: Place, version: VersionParts) -> PyResult<Message<'py>> {
        about(py, device, place, Asked::Settle(version_of(version)))
    }

    /// Encode the question for the newest metadata, and their version's timestamp.
    #[staticmethod]
    #[pyo3(signature = (device, place, /))]
    fn newest<'py>(py: Python<'py>, device: &str, place: Place) -> PyResult<Message<'py>> {
        message(py, device, &Request::Newest { key: key(place), below: None, start: 0, stop: 0 }.into())
    }

    /// Whether its answer has metadata that another place may lack.
    #[staticmethod]
    #[pyo3(signature = (newest, /))]
    fn has_post(newest: Bytes) -> PyResult<bool> {
        Ok(posted_in(newest.as_slice())?.is_some())
    }

    /// Encode the metadata of another place, by its answer.
    #[staticmethod]
    #[pyo3(signature = (device, place, newest, /))]
    fn post<'py>(py: Python<'py>, device: &str, place: Place, newest: Bytes) -> PyResult<Message<'py>> {
        let (of, meta) = posted_in(newest.as_slice())?.ok_or_else(|| PyValueError::new_err("nothing is posted"))?;
        message(py, device, &Request::Post { key: key(place), of, meta, row: 0 }.into())
    }

    /// Parse the answer to one of these three.
    #[staticmethod]
    #[pyo3(signature = (header, /))]
    fn said(header: Bytes) -> PyResult<&'static str> {
        Ok(said(&fragments::decode_answer(header.as_slice()).map_err(malformed)?))
    }

    /// Encode the question which versions are not settled, of fragments behind a partition and digest.
    #[staticmethod]
    #[pyo3(signature = (device, policy, after, /))]
    fn unsettled<'py>(
        py: Python<'py>,
        device: &str,
        policy: u16,
        after: Option<(u32, [u8; 16])>,
    ) -> PyResult<Message<'py>> {
        message(py, device, &Request::Unsettled { policy, after }.into())
    }

    /// Parse its answer; whether others follow.
    #[staticmethod]
    #[pyo3(signature = (header, /))]
    fn unsettled_list<'py>(py: Python<'py>, header: Bytes) -> PyResult<(Vec<UnsettledParts<'py>>, bool)> {
        let (all, more) = fragments::decode_unsettled(header.as_slice()).map_err(malformed)?;
        let parts = |Unsettled { of, certain }: Unsettled| {
            let chosen = of.chosen.iter().map(|device| (device.number, device.incarnation)).collect();
            let key = (of.key.policy, of.key.partition, PyBytes::new(py, &of.key.digest));
            (key, (of.version.timestamp, of.version.generation), chosen, certain)
        };
        Ok((all.into_iter().map(parts).collect(), more))
    }

    /// Whether older versions are dead when so many other places show this one in one round under one ring.
    #[staticmethod]
    #[pyo3(signature = (data, parity, equal, /))]
    fn is_settled(data: usize, parity: usize, equal: usize) -> PyResult<bool> {
        let scheme = Scheme::new(data, parity).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(sync::is_settled(Terms::of(scheme), equal))
    }
}

fn about<'py>(py: Python<'py>, device: &str, place: Place, asked: Asked) -> PyResult<Message<'py>> {
    message(py, device, &Request::About { key: key(place), asked }.into())
}

fn something(shown: Option<Shown>) -> PyResult<Shown> {
    shown.ok_or_else(|| PyValueError::new_err("nothing is shown"))
}
