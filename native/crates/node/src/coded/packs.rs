//! Packs of small objects, as `docs/design/2026-11-29-packs.md` has them: what reads their members, and what makes them.
//!
//! Fault model: that of the module above.

mod gathering;
mod packer;
mod packing;
mod reading;

pub use packer::{Contents, PackOptions, Packing, Stopped};
pub use packing::{Done as Packed, Seen as PacksSeen};
pub use reading::ReadingMember;
