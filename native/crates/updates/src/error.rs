//! Why rows were not taken, or are not known to be durable.

use std::fmt;
use std::io;

/// A refusal. In each case the rows stay pending at the devices that store the objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The database is not open to native code, or the position is that of an earlier process: send the rows to
    /// Python.
    NotTaken(String),
    /// A limit is reached; later there may be room.
    Busy(String),
    /// The message has another form, or is above a limit.
    Malformed(&'static str),
    /// A name that no client could have used.
    InvalidName(&'static str),
    /// The device has no space for the journal.
    DiskFull(String),
    /// The device has failed: nothing is taken or durable until the process starts again.
    DeviceFailed(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(text) | Self::InvalidName(text) => out.write_str(text),
            Self::NotTaken(text) | Self::Busy(text) | Self::DiskFull(text) | Self::DeviceFailed(text) => {
                out.write_str(text)
            }
        }
    }
}

impl std::error::Error for Refused {}

impl Refused {
    /// The system's error while working on `what`.
    pub(crate) fn of_io(error: &io::Error, what: &str) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::DiskFull(format!("{what}: no space is left; remove data or add devices"))
            }
            _ => Self::DeviceFailed(format!("{what}: {error}")),
        }
    }
}
