//! What can go wrong, with the names of the Python side.

use std::fmt;
use std::io;

use crate::model::Timestamp;

/// The result of all operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong. Texts say what is wrong and, where possible, what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The object is not here; with the tombstone's timestamp if there is one.
    NotFound(Option<Timestamp>),
    /// This version or a newer one is already here; its timestamp.
    Superseded(Timestamp),
    /// The device is at its reserve, or has no space left.
    DiskFull(String),
    /// The device answered with an I/O error, or is closed.
    DeviceFailed(String),
    /// Bytes differ from the checksum that came or is stored with them.
    ChecksumMismatch(String),
    /// More or fewer bytes came than were announced.
    SizeMismatch(String),
    /// The device is of another format version, or is not a store.
    Format(String),
    /// Another process owns the device.
    Locked(String),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(None) => write!(out, "the device does not have the object"),
            Self::NotFound(Some(tombstone)) => write!(out, "the object was deleted at {tombstone}"),
            Self::Superseded(newer) => write!(out, "the device already has a newer version, {newer}"),
            Self::DiskFull(text)
            | Self::DeviceFailed(text)
            | Self::ChecksumMismatch(text)
            | Self::SizeMismatch(text)
            | Self::Format(text)
            | Self::Locked(text) => out.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

impl Error {
    /// The name of its class in `swiftlet.errors`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "NotFound",
            Self::Superseded(_) => "Superseded",
            Self::DiskFull(_) => "DiskFull",
            Self::DeviceFailed(_) => "DeviceFailed",
            Self::ChecksumMismatch(_) => "ChecksumMismatch",
            Self::SizeMismatch(_) => "SizeMismatch",
            Self::Format(_) => "StoreFormatError",
            Self::Locked(_) => "DeviceLocked",
        }
    }

    /// The domain's error for the system's error while working on `what`.
    #[must_use]
    pub fn of_io(error: &io::Error, what: &str) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::DiskFull(format!("{what}: no space is left; remove data or add devices"))
            }
            _ => Self::DeviceFailed(format!("{what}: {error}")),
        }
    }
}
