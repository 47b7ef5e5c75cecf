//! Packs of small objects, as `docs/design/2026-11-29-packs.md` has them: what reads their members.
//!
//! Fault model: that of the module above.

mod fetching;
mod reading;

pub use reading::{ReadingMember, Referred};
