//! Objects with erasure coding: one is written to, and read from, the devices of its places.
//!
//! What is decided is decided by `swiftlet_fragments`; what is here sends, waits and holds bytes. [`Writing`] codes a
//! body as it comes, and holds no more of it than a stripe and what devices have yet to take. [`Reading`] finds the
//! version, asks for the cells of a range ahead of its caller, and replaces those that are missing, late or wrong.
//! [`SmallWriting`] writes a small object as copies, which `Reading` and the others find as well.
//! [`Deleting`] puts a tombstone at each place, [`Posting`] metadata. [`Recovering`] lets devices decide about a write whose
//! proxy is gone, and [`Rebuilding`] makes a fragment that a place lacks. [`Packing`] makes packs of
//! small objects, and [`ReadingMember`] reads one of them.
//!
//! They have one frame (`operation`): the lock, what was asked and not answered, who is told. They go on in the
//! transport's threads and tell a sink what their caller waits for; `turn` tells them that time has passed.
//!
//! Fault model: any device may refuse, be slow, fall silent, send anything, or be lost at any moment, and the caller may
//! go away at any moment. An object is never mixed of two writes, and a write is acknowledged only when a quorum has said
//! that it is durable.

mod all_places;
mod answering;
mod batch;
mod copied;
mod deleting;
mod fetching;
mod member;
mod operation;
mod packs;
mod places;
mod posting;
mod reading;
mod rebuilding;
mod recovering;
mod small;
mod writing;

pub use all_places::StepOptions;
pub use deleting::Deleting;
pub use member::Referred;
pub use packs::{Contents, PackOptions, Packed, Packing, PacksSeen, ReadingMember, Stopped};
pub use places::{Clock, Devices, FAR, MOST_CELL_BYTES, Owed, Places, Target};
pub use posting::Posting;
pub use reading::{HEDGE, ReadEnd, ReadOptions, Reading};
pub use rebuilding::{RebuildEnd, Rebuilding};
pub use recovering::Recovering;
pub use small::{SmallWriting, SmallWritten};
pub use writing::{NotNow, Room, WriteEnd, WriteOptions, Writing};
