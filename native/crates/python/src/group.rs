//! Calls that Python makes together: one call of the border sends them, and one event tells of their answers.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use swiftlet_node::message::guests::Told;
use swiftlet_node::message::many;
use swiftlet_node::message::{Malformed, Written};
use swiftlet_node::{Answer, Gather, Gathered, Status};
use swiftlet_transport::{Call, Completions, Error, Peer, Sink, Ticket, together};

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

    /// Send calls, whose answers have bodies of at most `most_bytes`, as the group with this token.
    pub(crate) fn send(
        &self,
        token: u64,
        calls: Vec<(Peer, Call, Expected)>,
        most_bytes: usize,
    ) -> PyResult<TransportGroup> {
        let (log, events) = (Arc::clone(&self.log), Arc::clone(&self.events));
        let tell = move || {
            log.lock().unwrap_or_else(PoisonError::into_inner).push(token);
            events.notify();
        };
        let gather = Gather::new(calls.len(), most_bytes, Box::new(tell));
        let sink = Arc::clone(&gather) as Arc<dyn Sink>;
        let mut expected = Vec::with_capacity(calls.len());
        // One wake-up for all of them.
        let made = together(|| {
            let calls = calls.into_iter().zip(0..);
            let send = |((peer, call, one), number): ((Peer, Call, Expected), u64)| {
                expected.push(one);
                peer.call(call, &sink, number)
            };
            calls.map(send).collect::<Result<Vec<_>, Error>>()
        });
        Ok(TransportGroup { gather, tickets: made.map_err(invalid)?, expected })
    }

    /// The tokens of those with something to take.
    pub(crate) fn told(&self) -> Vec<u64> {
        std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a call is answered with.
#[derive(Clone, Copy)]
pub(crate) struct Expected {
    /// So many answers to many requests; None: that of a write.
    pub(crate) many: Option<usize>,
    pub(crate) is_guest: bool,
}

/// What a guest is told with an answer: the ring's version, and the server's clock in milliseconds.
type ToldParts = (u64, u64);
/// An answer to one of many requests.
type OneParts<'py> = (u16, Bound<'py, PyBytes>, Bound<'py, PyBytes>);
/// An answer: its kind, its value, what a guest is told with it.
type AnswerParts<'py> = (&'static str, Bound<'py, PyAny>, Option<ToldParts>);

pub(crate) fn malformed(error: Malformed) -> PyErr {
    PyValueError::new_err(error.0)
}

/// Why an answer has no value for Python.
enum Undecoded {
    Malformed(Malformed),
    Python(PyErr),
}

impl From<Malformed> for Undecoded {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl From<PyErr> for Undecoded {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

fn parts<'py>(py: Python<'py>, answer: Answer, expected: Expected) -> PyResult<AnswerParts<'py>> {
    let (kind, why) = match answer.map(|reply| decoded(py, &reply, expected)) {
        Ok(Ok(parts)) => return Ok(parts),
        Ok(Err(Undecoded::Python(error))) => return Err(error),
        Ok(Err(Undecoded::Malformed(Malformed(why)))) => ("invalid", format!("an answer that can't be decoded: {why}")),
        Err(error) => (kind(&error), error.to_string()),
    };
    Ok(("failed", (kind, why).into_pyobject(py)?.into_any(), None))
}

fn decoded<'py>(py: Python<'py>, reply: &Gathered, expected: Expected) -> Result<AnswerParts<'py>, Undecoded> {
    let (told, header) = if expected.is_guest {
        let (told, header) = Told::decode(&reply.header)?;
        (Some((told.ring, told.now_ms)), header)
    } else {
        (None, &reply.header[..])
    };
    if reply.status != Status::Ok as u16 {
        let refused = (reply.status, PyBytes::new(py, header)).into_pyobject(py)?.into_any();
        return Ok(("refused", refused, told));
    }
    Ok(match expected.many {
        None => {
            let written = Written::decode(header)?;
            ("written", (written.pending, written.existed).into_pyobject(py)?.into_any(), told)
        }
        Some(count) => {
            let one = |one: many::OneAnswer<'_>| -> OneParts<'py> {
                (one.status, PyBytes::new(py, one.header), PyBytes::new(py, one.body))
            };
            let all: Vec<OneParts<'py>> = many::answers(count, &reply.body)?.into_iter().map(one).collect();
            ("many", all.into_pyobject(py)?.into_any(), told)
        }
    })
}

/// Calls that were made together.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct TransportGroup {
    gather: Arc<Gather>,
    tickets: Vec<Ticket>,
    /// By the calls' numbers.
    expected: Vec<Expected>,
}

#[pymethods]
impl TransportGroup {
    /// Answers since the last time, with the numbers of their calls, and whether all have come.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<(Vec<(usize, AnswerParts<'py>)>, bool)> {
        let (answers, is_over) = self.gather.take();
        let answers = answers.into_iter().map(|(at, answer)| Ok((at, parts(py, answer, self.expected[at])?)));
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
