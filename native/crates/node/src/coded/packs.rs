//! Packs of small objects, as `docs/design/2026-11-29-packs.md` has them: what reads their members, and what makes them.
//!
//! Fault model: that of the module above.

mod gathering;
mod packing;
mod reading;

pub use packing::{Contents, Done as Packed, PackOptions, Packing, Seen as PacksSeen, Stopped};
pub use reading::ReadingMember;
