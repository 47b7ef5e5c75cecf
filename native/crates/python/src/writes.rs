//! Writes to all of an object's devices for Python: one call sends the same body to each, and one event tells that all
//! have it.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use swiftlet_node::message::guests::Told;
use swiftlet_node::message::{Malformed, Request, Written};
use swiftlet_node::{Answer, Gather, Status, Terms, calls};
use swiftlet_transport::{Chunk, Completions, Error, Sink, Ticket, together};

use crate::peers::TransportPeer;
use crate::values::{invalid, kind};

/// Python's numbers of groups of calls of which there is something to take.
type Log = Arc<Mutex<Vec<u64>>>;

/// The groups of one node.
pub(crate) struct Groups {
    log: Log,
    events: Arc<Completions>,
}

impl Groups {
    pub(crate) fn new(events: &Arc<Completions>) -> Self {
        Self { log: Arc::default(), events: Arc::clone(events) }
    }

    /// Collect so many answers, each with a body of at most `most_bytes`, for the group with this token.
    pub(crate) fn gather(&self, token: u64, calls: usize, most_bytes: usize) -> Arc<Gather> {
        let (log, events) = (Arc::clone(&self.log), Arc::clone(&self.events));
        let tell = move || {
            log.lock().unwrap_or_else(PoisonError::into_inner).push(token);
            events.notify();
        };
        Gather::new(calls, most_bytes, Box::new(tell))
    }

    /// The tokens of those with something to take.
    pub(crate) fn told(&self) -> Vec<u64> {
        std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn malformed(error: Malformed) -> PyErr {
    PyValueError::new_err(error.0)
}

/// Who is asked: a peer, a device of it, and the container replicas (bits) whose rows it keeps.
pub(crate) type Target<'py> = (PyRef<'py, TransportPeer>, String, u32);

/// A write that was sent to several devices.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct TransportWrite {
    gather: Arc<Gather>,
    tickets: Vec<Ticket>,
    is_guest: bool,
}

impl TransportWrite {
    pub(crate) fn send(
        groups: &Groups,
        token: u64,
        targets: &[Target<'_>],
        mut request: Request,
        data: &Chunk,
        terms: &Terms,
    ) -> PyResult<Self> {
        let devices: Vec<(&str, u32)> = targets.iter().map(|(_, device, row)| (device.as_str(), *row)).collect();
        let calls = calls(&mut request, data, &devices, terms).map_err(malformed)?;
        let gather = groups.gather(token, targets.len(), 0);
        let sink = Arc::clone(&gather) as Arc<dyn Sink>;
        let peers: Vec<_> = targets.iter().map(|(peer, _, _)| peer.peer()).collect();
        // One wake-up for all of them.
        let made = together(|| {
            let calls = peers.iter().zip(calls).zip(0..);
            calls.map(|((peer, call), number)| peer.call(call, &sink, number)).collect::<Result<Vec<_>, Error>>()
        });
        Ok(Self { gather, tickets: made.map_err(invalid)?, is_guest: terms.guest.is_some() })
    }
}

/// What a guest is told with an answer: the ring's version, and the server's clock in milliseconds.
pub(crate) type ToldParts = (u64, u64);

/// An answer: its kind, its value, what a guest is told with it.
type AnswerParts<'py> = (&'static str, Bound<'py, PyAny>, Option<ToldParts>);

fn parts<'py>(py: Python<'py>, answer: Answer, is_guest: bool) -> PyResult<AnswerParts<'py>> {
    let reply = match answer {
        Ok(reply) => reply,
        Err(error) => return Ok(("failed", (kind(&error), error.to_string()).into_pyobject(py)?.into_any(), None)),
    };
    let bad = |Malformed(why): Malformed| {
        Ok((
            "failed",
            ("invalid", format!("an answer that can't be decoded: {why}")).into_pyobject(py)?.into_any(),
            None,
        ))
    };
    let (told, header) = if is_guest {
        match Told::decode(&reply.header) {
            Ok((told, header)) => (Some((told.ring, told.now_ms)), header),
            Err(malformed) => return bad(malformed),
        }
    } else {
        (None, &reply.header[..])
    };
    if reply.status != Status::Ok as u16 {
        return Ok(("refused", (reply.status, PyBytes::new(py, header)).into_pyobject(py)?.into_any(), told));
    }
    match Written::decode(header) {
        Ok(written) => Ok(("written", (written.pending, written.existed).into_pyobject(py)?.into_any(), told)),
        Err(malformed) => bad(malformed),
    }
}

#[pymethods]
impl TransportWrite {
    /// Answers since the last time, with the numbers of their targets, and whether all have come.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<(Vec<(usize, AnswerParts<'py>)>, bool)> {
        let (answers, is_over) = self.gather.take();
        let answers = answers.into_iter().map(|(at, answer)| Ok((at, parts(py, answer, self.is_guest)?)));
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
