//! The wide-area lab's router: it passes packets between network namespaces, one for each region, over links with
//! delay, jitter, rate, queue, loss and partition for each direction.
//!
//! TCP stays the kernel's on both sides, so slow start, retransmission and window growth are real; a relay of TCP
//! connections would hide them. [`link`] says when a packet arrives, [`network`] keeps the packets that are under way,
//! [`command`] is what can be asked for; none of them has sockets or a clock. [`router`] has both.
//!
//! Limits: [`network::MAX_REGIONS`], [`link::Shape::queue_bytes`] for each direction, [`command::MAX_BYTES`].

pub mod command;
pub mod link;
pub mod network;
mod random;
pub mod router;
#[cfg(test)]
mod tests;

pub use network::Network;
pub use router::Router;

/// Nanoseconds since the router began.
pub type Nanos = u64;
