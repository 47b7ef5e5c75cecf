//! The native transport's protocol as pure state machines: no sockets, no clock, no threads.
//!
//! `docs/transport.md` is the specification. Bytes come in through [`frame::Decoder`], which finds the frames;
//! [`message`] decodes their meta parts; [`handshake`] proves the cluster key, or a guest's
//! session; [`guest`] has what guests may do; [`stream`] knows what may come next on
//! a request and how much of its body may be sent; [`liveness`] says when a peer is dead.
//!
//! Fault model: a peer may send any bytes. Then a function here returns a [`Violation`], allocates no more than the
//! limits allow, and never panics; the caller closes the connection.

pub mod frame;
pub mod guest;
pub mod handshake;
pub mod limits;
pub mod liveness;
pub mod message;
pub mod stream;

mod key;
mod violation;

pub use violation::{Violation, require};

#[cfg(test)]
mod tests;
