//! Outcomes: the errors of `docs/wire.md`, one to one, as numbers.

use std::fmt;

use swiftlet_store::Error;

use crate::codec::{Malformed, Reader, Writer};

/// Bytes of an error's text that travel.
const MAX_TEXT: usize = 1024;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $number:literal),* $(,)?) => {
        /// The outcome of a request; the names are those of `docs/wire.md`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Status { $($(#[$doc])* $name = $number),* }

        impl Status {
            /// All outcomes.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The outcome of this number.
            #[must_use]
            pub fn of(number: u16) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }

            /// Its name in `docs/wire.md`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),* }
            }
        }
    };
}

statuses! {
    /// Done.
    Ok = 0,
    /// The message is malformed, cut off, or over a limit.
    WireError = 1,
    /// A name that no client could have used.
    InvalidName = 2,
    /// A name over the limit.
    NameTooLong = 3,
    /// The sender is not a peer of this cluster.
    Unauthorized = 4,
    /// This peer may not do that.
    Forbidden = 5,
    /// The object is not here; with the tombstone's timestamp if there is one.
    NotFound = 6,
    /// A newer version is stored; its timestamp.
    Superseded = 7,
    /// There are objects in it.
    NotEmpty = 8,
    /// The container has another policy.
    PolicyConflict = 9,
    /// The data's xxh3 is not the footer's.
    ChecksumMismatch = 10,
    /// The data's size is not the footer's.
    SizeMismatch = 11,
    /// Unknown or damaged format.
    StoreFormatError = 12,
    /// Another process owns the device.
    DeviceLocked = 13,
    /// The server has failed, or anything unexpected.
    NodeError = 14,
    /// Not reachable.
    NodeUnreachable = 15,
    /// Too many requests, or too much memory in use.
    NodeBusy = 16,
    /// Too few replicas could be asked.
    Unavailable = 17,
    /// The deadline is over.
    NodeTimeout = 18,
    /// The reserve is reached.
    DiskFull = 19,
    /// I/O error, or no device of that name here.
    DeviceFailed = 20,
    /// The stored version may be older than the acknowledged one; ask another replica.
    Unproved = 21,
    /// Rows of a container that is not in its ordinary state there: Python delivers them.
    NotTaken = 22,
    /// The request's timestamp is too far from the server's clock, which is told.
    ClockDiffers = 23,
    /// The object is not shown as it is stored: only a proxy knows what it means.
    NotPlain = 24,
}

/// A request that was refused, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which error.
    pub status: Status,
    /// The timestamp of the newer version or the tombstone, 0 when there is none.
    pub timestamp: u64,
    /// For people.
    pub text: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}: {}", self.status.name(), self.text)
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    pub(crate) fn new(status: Status, text: &str) -> Self {
        Self { status, timestamp: 0, text: text.to_owned() }
    }

    /// The header of the answer.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut end = self.text.len().min(MAX_TEXT);
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let mut out = Writer::default();
        out.u64(self.timestamp);
        out.text(&self.text.as_bytes()[..end]);
        out.into_bytes()
    }

    /// The inverse of `encode`; a malformed refusal becomes a `NodeError`.
    #[must_use]
    pub fn decode(number: u16, header: &[u8]) -> Self {
        let Some(status) = Status::of(number).filter(|status| *status != Status::Ok) else {
            return Self::new(Status::NodeError, &format!("the answer has the unknown kind {number}"));
        };
        let read = || -> Result<(u64, Vec<u8>), Malformed> {
            let mut reader = Reader(header);
            Ok((reader.u64()?, reader.text()?))
        };
        match read() {
            Ok((timestamp, text)) => Self { status, timestamp, text: String::from_utf8_lossy(&text).into_owned() },
            Err(_) => Self::new(Status::NodeError, "the answer can't be decoded"),
        }
    }
}

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Self {
        Self::new(Status::WireError, malformed.0)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        let (status, timestamp) = match error {
            Error::NotFound(tombstone) => (Status::NotFound, tombstone.unwrap_or(0)),
            Error::Superseded(newer) => (Status::Superseded, newer),
            Error::DiskFull(_) => (Status::DiskFull, 0),
            Error::DeviceFailed(_) => (Status::DeviceFailed, 0),
            Error::ChecksumMismatch(_) => (Status::ChecksumMismatch, 0),
            Error::SizeMismatch(_) => (Status::SizeMismatch, 0),
            Error::Format(_) => (Status::StoreFormatError, 0),
            Error::Locked(_) => (Status::DeviceLocked, 0),
        };
        Self { status, timestamp, text }
    }
}
