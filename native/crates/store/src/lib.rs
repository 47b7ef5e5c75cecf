//! The objects of one device.
//!
//! Volumes are the truth: append-only files of self-describing records. The index over them is in memory, is written
//! to a checkpoint now and then, and can always be rebuilt. Everything acknowledged is in a record that was synced.
//! `docs/volumes.md` has the format; `Store` is the interface for servers.

mod aggregate;
pub mod answers;
mod body;
mod commit;
pub mod copies;
mod cursor;
mod deciding;
mod device;
pub mod differences;
pub mod disk;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod index;
mod inner;
pub mod inspect;
mod large;
pub mod merge;
pub mod model;
pub mod pairs;
mod pending;
mod post;
mod quarantine;
mod queue;
mod read;
mod reading;
mod record;
mod recover;
mod room;
mod scan;
pub mod sethash;
mod store;
mod unsound;
mod upkeep;
mod versions;
mod volume;
mod writer;

pub use aggregate::MAX_AGGREGATE;
pub use error::{Error, Result};
pub use inner::{Answering, Config, Counters};
pub use pending::PendingUpdate;
pub use queue::{Done, Told};
pub use read::{AtOnce, Fetched, Fragment, Got, Newest, Object, Range, Referred, from_member};
pub use recover::Recovery;
pub use store::{
    COPIES, Cold, KeptAs, PARTITIONS, PackHere, PackState, PackUse, Store, Submission, Undecided, Unsettled,
};
pub use writer::{FragmentWriter, Shape, Writer};
