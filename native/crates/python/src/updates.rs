//! The container updates of a device, for Python: it says which databases are open, and takes the rows out.
//!
//! Calls return at once, but `take` and `stop`. No call waits for the disk with the interpreter's lock.

use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use swiftlet_updates::{Config, Database, Merged, Refused, Row, Status, Updates};

use crate::values::os_error;

/// The difference between a timestamp and its column in a database, as `OFFSET` in `swiftlet.listing.schema`.
const OFFSET: u64 = 1 << 63;

/// A row's columns as databases have them, and 1 for a marker: name, timestamp, size, ETag, content type, and no
/// timestamps of POSTs.
type Packed<'a, 'py> = (&'a str, i64, u64, &'a str, Bound<'py, PyString>, Option<i64>, Option<i64>, u8);

/// The same as Python gives it.
type Given = (String, i64, u64, String, String, Option<i64>, Option<i64>, u8);

/// The place of a database: partition, account, container.
type Place = (u32, String, String);

fn place(database: Database) -> Place {
    (database.partition, database.account, database.container)
}

/// All rows as a list. Content types come in runs: rows that follow each other share one text if it is the same.
fn list<'py>(py: Python<'py>, rows: &Merged) -> PyResult<Bound<'py, PyList>> {
    let mut last = ("", PyString::new(py, ""));
    PyList::new(
        py,
        rows.iter().map(|row| -> Packed<'_, 'py> {
            let Row { name, timestamp, size, etag, content_type, deleted } = row;
            if content_type != last.0 {
                last = (content_type, PyString::new(py, content_type));
            }
            let stamp = (timestamp ^ OFFSET) as i64;
            (name, stamp, size, etag, last.1.clone(), None, None, u8::from(deleted))
        }),
    )
}

/// Rows of Python as those of a message.
fn encode(rows: &[Given]) -> PyResult<Vec<u8>> {
    let mut raw = Vec::new();
    for (name, stamp, size, etag, content_type, typed, posted, deleted) in rows {
        if typed.is_some() || posted.is_some() || *deleted > 1 {
            return Err(PyValueError::new_err("a row of a POST, or no row"));
        }
        let timestamp = (*stamp as u64) ^ OFFSET;
        let row = Row { name, timestamp, size: *size, etag, content_type, deleted: *deleted == 1 };
        row.encode(&mut raw).map_err(|refused| PyValueError::new_err(refused.to_string()))?;
    }
    Ok(raw)
}

fn fields<'py>(py: Python<'py>, status: &Status) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("rows", status.rows)?;
    dict.set_item("bytes", status.bytes)?;
    dict.set_item("databases", status.databases)?;
    dict.set_item("open", status.open)?;
    dict.set_item("journal_files", status.journal_files)?;
    dict.set_item("journal_bytes", status.journal_bytes)?;
    dict.set_item("taken", status.taken)?;
    dict.set_item("refused", status.refused)?;
    dict.set_item("not_taken", status.not_taken)?;
    dict.set_item("failed", status.failed.as_deref())?;
    Ok(dict)
}

/// The updates of one device.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct UpdateTable(Arc<Updates>);

impl UpdateTable {
    pub(crate) fn shared(&self) -> Arc<Updates> {
        Arc::clone(&self.0)
    }
}

#[pymethods]
impl UpdateTable {
    #[new]
    #[pyo3(signature = (directory, device))]
    fn new(py: Python<'_>, directory: PathBuf, device: &str) -> PyResult<Self> {
        let opened = py.detach(|| Updates::open(&directory, Config::default()));
        let named = |error: std::io::Error| match error.raw_os_error() {
            Some(_) => os_error(error),
            None => PyOSError::new_err(format!("updates of device {device}: {error}")),
        };
        Ok(Self(Arc::new(opened.map_err(named)?)))
    }

    /// Let rows of a database be taken.
    #[pyo3(signature = (partition, account, container))]
    fn open(&self, partition: u32, account: &str, container: &str) {
        self.0.open_database(Database::new(partition, account, container));
    }

    /// Let no more rows of a database be taken.
    #[pyo3(signature = (partition, account, container))]
    fn close(&self, partition: u32, account: &str, container: &str) {
        self.0.close_database(&Database::new(partition, account, container));
    }

    /// Close all databases.
    #[pyo3(signature = (reason))]
    fn close_all(&self, reason: &str) {
        self.0.close_all(reason);
    }

    /// Whether there are rows of a database.
    #[pyo3(signature = (partition, account, container))]
    fn has(&self, partition: u32, account: &str, container: &str) -> bool {
        self.0.has(&Database::new(partition, account, container))
    }

    /// Do what an UPDATE does, and wait for its answer: whether the rows were taken, or are Python's.
    #[pyo3(signature = (partition, account, container, rows))]
    fn take(&self, py: Python<'_>, partition: u32, account: &str, container: &str, rows: Vec<Given>) -> PyResult<bool> {
        let raw = encode(&rows)?;
        let database = Database::new(partition, account, container);
        let answer = py.detach(|| {
            let (tell, told) = mpsc::channel();
            // Nobody listens any more: then nobody is told.
            self.0.submit(database, Box::new(raw), Box::new(move |outcome| drop(tell.send(outcome))));
            told.recv()
        });
        match answer {
            Ok(Ok(_)) => Ok(true),
            Ok(Err(Refused::NotTaken(_))) => Ok(false),
            Ok(Err(refused @ (Refused::Malformed(_) | Refused::InvalidName(_)))) => {
                Err(PyValueError::new_err(refused.to_string()))
            }
            Ok(Err(refused)) => Err(PyOSError::new_err(refused.to_string())),
            Err(mpsc::RecvError) => Err(PyOSError::new_err("the update was dropped")),
        }
    }

    /// Take a database's rows out.
    #[pyo3(signature = (partition, account, container))]
    fn take_out<'py>(
        &self,
        py: Python<'py>,
        partition: u32,
        account: &str,
        container: &str,
    ) -> PyResult<Bound<'py, PyList>> {
        let taken = self.0.take_out(&Database::new(partition, account, container));
        match taken.map_err(|error| PyValueError::new_err(error.to_string()))? {
            Some(rows) => list(py, &rows),
            None => Ok(PyList::empty(py)),
        }
    }

    /// End a `take_out`.
    #[pyo3(signature = (partition, account, container, merged))]
    fn folded(&self, py: Python<'_>, partition: u32, account: &str, container: &str, merged: bool) {
        let database = Database::new(partition, account, container);
        py.detach(|| self.0.folded(&database, merged));
    }

    /// Forget a database and its rows.
    #[pyo3(signature = (partition, account, container))]
    fn drop(&self, partition: u32, account: &str, container: &str) {
        self.0.forget(&Database::new(partition, account, container));
    }

    /// All databases with rows.
    fn databases(&self) -> Vec<Place> {
        self.0.databases().into_iter().map(place).collect()
    }

    /// Readable while databases are due, or once the device has failed.
    fn fileno(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }

    /// Databases that have become due, and whether at once.
    fn due(&self) -> Vec<(Place, bool)> {
        self.0.due().into_iter().map(|(database, many)| (place(database), many)).collect()
    }

    /// A number that says which rows there are.
    fn mark(&self) -> u64 {
        self.0.mark()
    }

    /// Let files below a mark go.
    #[pyo3(signature = (upto))]
    fn durable_in_databases(&self, upto: u64) {
        self.0.durable_in_databases(upto);
    }

    /// Why nothing is taken or durable any more.
    fn failed(&self) -> Option<String> {
        self.0.failed()
    }

    /// Append and sync what was taken, and end the threads.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.0.stop());
    }

    /// What there is, and counters.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        fields(py, &self.0.status())
    }
}
