//! The objects of one device.
//!
//! Volumes are the truth: files that only grow, of records that say what they are. The index over them is in memory,
//! is written out now and then, and can always be rebuilt. What was acknowledged is in a record that was synced.
//! `docs/volumes.md` has the format; `Store` is what servers call.

mod aggregate;
pub mod answers;
mod commit;
pub mod copies;
mod device;
pub mod differences;
pub mod disk;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod index;
pub mod inspect;
mod large;
pub mod merge;
pub mod model;
mod pending;
mod quarantine;
mod read;
mod record;
mod recover;
mod scan;
pub mod sethash;
mod store;
mod upkeep;
mod volume;
mod writer;

pub use commit::Done;
pub use error::{Error, Result};
pub use pending::PendingUpdate;
pub use read::{Got, Object, Range};
pub use recover::Recovery;
pub use store::{Config, Counters, MAX_AGGREGATE, Store};
pub use writer::Writer;
