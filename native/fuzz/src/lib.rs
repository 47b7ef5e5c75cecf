//! What must hold of every decoder for any bytes: it returns, without a panic and within its limits, and what it
//! accepts means one thing only.
//!
//! Fault model: a peer, or a disk, may hold out any bytes. Most of them end at a checksum, so each function here also
//! seals what it was given with the right one, as a peer with the key could: what lies behind the checksum is tried as
//! well. `make fuzz-wire` lets libFuzzer look for bytes that break something; `corpus` keeps what reaches every
//! branch that it has found, and is gone through with every `cargo test`.

mod device;
mod erasure;
mod fragments;
mod guests;
mod node;
mod updates;
mod wire;

pub use device::{device, lived};
pub use erasure::erasure;
pub use fragments::fragments;
pub use guests::guests;
pub use node::objects;
pub use swiftlet_store::fuzzing::{branches, checkpoint, record};
pub use updates::{journal, rows};
pub use wire::{frames, grants, handshake, messages};

/// One of the functions here.
pub type Target = fn(&[u8]);

/// All of them, by the names of their folders in `corpus`.
pub const TARGETS: &[(&str, Target)] = &[
    ("frames", frames),
    ("messages", messages),
    ("handshake", handshake),
    ("grants", grants),
    ("guests", guests),
    ("objects", objects),
    ("record", record),
    ("checkpoint", checkpoint),
    ("device", device),
    ("rows", rows),
    ("journal", journal),
    ("erasure", erasure),
    ("fragments", fragments),
    ("branches", branches),
];
