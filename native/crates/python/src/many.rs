//! Many requests in one message for Python: messages to several devices are sent by one call, and their answers told of
//! together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use swiftlet_node::message::guests::{Told, encode};
use swiftlet_node::message::many::{self, MAX_MANY, MAX_MANY_ANSWER_BYTES, MAX_MANY_BYTES};
use swiftlet_node::message::{Malformed, Request};
use swiftlet_node::{Answer, Gather, Status};
use swiftlet_transport::{Body, Call, Chunk, Error, Sink, Ticket, together};

use crate::buffer::Bytes;
use crate::object_wire::{FooterParts, VersionParts, footer_of, meta_of};
use crate::peers::TransportPeer;
use crate::store::{Place, key};
use crate::values::{invalid, kind, seconds};
use crate::writes::{Groups, ToldParts};

fn malformed(error: Malformed) -> PyErr {
    PyValueError::new_err(error.0)
}

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

/// Messages that were sent.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct TransportManySent {
    gather: Arc<Gather>,
    tickets: Vec<Ticket>,
    /// Of each message, and whether a guest has sent it.
    sent: Vec<(usize, bool)>,
}

impl TransportManySent {
    pub(crate) fn send(
        groups: &Groups,
        token: u64,
        messages: &[(PyRef<'_, TransportPeer>, PyRef<'_, TransportMany>)],
        timeout_s: f64,
        trace: &str,
    ) -> PyResult<Self> {
        let mut calls = Vec::with_capacity(messages.len());
        let mut sent = Vec::with_capacity(messages.len());
        for (peer, message) in messages {
            let (call, count) = message.call(timeout_s, trace)?;
            calls.push((peer.peer(), call));
            sent.push((count, message.grant.is_some()));
        }
        // Answers have a status and two lengths beside what is counted.
        let gather = groups.gather(token, messages.len(), MAX_MANY_ANSWER_BYTES + MAX_MANY * 2048);
        let sink = Arc::clone(&gather) as Arc<dyn Sink>;
        let made = together(|| {
            let calls = calls.into_iter().zip(0..);
            calls.map(|((peer, call), number)| peer.call(call, &sink, number)).collect::<Result<Vec<_>, Error>>()
        });
        Ok(Self { gather, tickets: made.map_err(invalid)?, sent })
    }
}

/// An answer to one of many requests.
type OneParts<'py> = (u16, Bound<'py, PyBytes>, Bound<'py, PyBytes>);
/// An answer to a message: its kind, its value, what a guest is told with it.
type AnswerParts<'py> = (&'static str, Bound<'py, PyAny>, Option<ToldParts>);

fn parts<'py>(py: Python<'py>, answer: Answer, (count, is_guest): (usize, bool)) -> PyResult<AnswerParts<'py>> {
    let failed = |kind: &'static str, why: String| Ok(("failed", (kind, why).into_pyobject(py)?.into_any(), None));
    let reply = match answer {
        Ok(reply) => reply,
        Err(error) => return failed(kind(&error), error.to_string()),
    };
    let bad = |Malformed(why): Malformed| failed("invalid", format!("an answer that can't be decoded: {why}"));
    let (told, header) = match Told::decode(&reply.header) {
        Ok((told, header)) if is_guest => (Some((told.ring, told.now_ms)), header),
        Err(malformed) if is_guest => return bad(malformed),
        _ => (None, &reply.header[..]),
    };
    if reply.status != Status::Ok as u16 {
        return Ok(("refused", (reply.status, PyBytes::new(py, header)).into_pyobject(py)?.into_any(), told));
    }
    let all = match many::answers(count, &reply.body) {
        Ok(all) => all,
        Err(malformed) => return bad(malformed),
    };
    let one = |one: many::OneAnswer<'_>| -> OneParts<'py> {
        (one.status, PyBytes::new(py, one.header), PyBytes::new(py, one.body))
    };
    let all: Vec<OneParts<'py>> = all.into_iter().map(one).collect();
    Ok(("many", all.into_pyobject(py)?.into_any(), told))
}

#[pymethods]
impl TransportManySent {
    /// Answers since the last time, with the numbers of their messages, and whether all have come.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<(Vec<(usize, AnswerParts<'py>)>, bool)> {
        let (answers, is_over) = self.gather.take();
        let answers = answers.into_iter().map(|(at, answer)| Ok((at, parts(py, answer, self.sent[at])?)));
        Ok((answers.collect::<PyResult<_>>()?, is_over))
    }

    /// Be told of each answer as it comes.
    fn hurry(&self) {
        self.gather.hurry();
    }

    /// Cancel what has not been answered.
    fn cancel(&self) {
        together(|| self.tickets.iter().for_each(Ticket::cancel));
    }
}
