//! Many requests in one message for Python: messages to several devices are sent by one call, and their answers told of
//! together.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use swiftlet_node::message::Request;
use swiftlet_node::message::guests::encode;
use swiftlet_node::message::many::{self, MAX_MANY, MAX_MANY_ANSWER_BYTES, MAX_MANY_BYTES};
use swiftlet_transport::{Body, Call, Chunk};

use crate::buffer::Bytes;
use crate::group::{Expected, Groups, TransportGroup, malformed};
use crate::object_wire::{FooterParts, VersionParts, footer_of, meta_of};
use crate::peers::TransportPeer;
use crate::store::{Place, key};
use crate::values::seconds;

#[derive(Default)]
struct Building {
    count: u16,
    body: Vec<u8>,
}

/// A message to a device, until it is sent.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct TransportMany {
    device: String,
    grant: Option<Vec<u8>>,
    building: Mutex<Building>,
}

impl TransportMany {
    fn lock(&self) -> MutexGuard<'_, Building> {
        self.building.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Append a request; false, and nothing is appended, if there is no room for it.
    fn push(&self, object: &[u8], request: &Request, body: &[u8]) -> PyResult<bool> {
        let mut building = self.lock();
        let before = building.body.len();
        if usize::from(building.count) >= MAX_MANY || before + body.len() > MAX_MANY_BYTES {
            return Ok(false);
        }
        many::push(&mut building.body, object, request, body).map_err(malformed)?;
        if building.body.len() > MAX_MANY_BYTES {
            building.body.truncate(before);
            return Ok(false);
        }
        building.count += 1;
        Ok(true)
    }

    fn call(&self, timeout_s: f64, trace: &str) -> PyResult<(Call, usize)> {
        let Building { count, body } = std::mem::take(&mut *self.lock());
        let request = Request::Many(count);
        let header = request.encode(&self.device).map_err(malformed)?;
        let header = match &self.grant {
            Some(grant) => encode(grant, b"", &header).map_err(malformed)?,
            None => header,
        };
        let (method, timeout, body) = (request.method(), seconds(timeout_s)?, Body::Chunk(Chunk::from(body)));
        Ok((Call { method, timeout, trace: trace.to_owned(), header, body, ..Call::default() }, usize::from(count)))
    }
}

#[pymethods]
impl TransportMany {
    #[new]
    #[pyo3(signature = (device, grant, /))]
    fn new(device: String, grant: Option<Vec<u8>>) -> Self {
        Self { device, grant, building: Mutex::default() }
    }

    /// Store a small object.
    #[pyo3(signature = (object, place, row, version, footer, body, /))]
    fn put(
        &self,
        object: Bytes,
        place: Place,
        row: u32,
        version: VersionParts,
        footer: FooterParts,
        body: Bytes,
    ) -> PyResult<bool> {
        let request = Request::Put { key: key(place), meta: meta_of(version), footer: Some(footer_of(footer)), row };
        self.push(object.as_slice(), &request, body.as_slice())
    }

    /// Read an object that has at most `whole` bytes, else describe it.
    #[pyo3(signature = (object, place, whole, proved, /))]
    fn get(&self, object: Bytes, place: Place, whole: u64, proved: bool) -> PyResult<bool> {
        self.push(object.as_slice(), &Request::Get { key: key(place), start: 0, stop: 0, whole, proved }, b"")
    }

    /// Describe an object.
    #[pyo3(signature = (object, place, proved, /))]
    fn head(&self, object: Bytes, place: Place, proved: bool) -> PyResult<bool> {
        self.push(object.as_slice(), &Request::Head { key: key(place), proved }, b"")
    }

    /// Store a tombstone.
    #[pyo3(signature = (object, place, row, timestamp, name, /))]
    fn delete(&self, object: Bytes, place: Place, row: u32, timestamp: u64, name: Vec<u8>) -> PyResult<bool> {
        self.push(object.as_slice(), &Request::Delete { key: key(place), timestamp, name, row }, b"")
    }
}

/// Send messages.
pub(crate) fn send(
    groups: &Groups,
    token: u64,
    messages: &[(PyRef<'_, TransportPeer>, PyRef<'_, TransportMany>)],
    timeout_s: f64,
    trace: &str,
) -> PyResult<TransportGroup> {
    let calls = messages.iter().map(|(peer, message)| {
        let (call, count) = message.call(timeout_s, trace)?;
        Ok((peer.peer(), call, Expected { many: Some(count), is_guest: message.grant.is_some() }))
    });
    // Answers have a status and two lengths beside what is counted.
    groups.send(token, calls.collect::<PyResult<_>>()?, MAX_MANY_ANSWER_BYTES + MAX_MANY * 2048)
}
