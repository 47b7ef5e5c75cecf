//! RDMA for the transport, by UCX.
//!
//! A connection is a TCP connection with the handshake, frames, heartbeats and BYE of every other one. After the
//! handshake both ends show each other their pools, and each fetches a few bytes from the other's by RDMA READ. Where that
//! works, chunks are lent and fetched instead of sent; where it does not, the connection stays what it is. Why so:
//! `docs/design/2026-11-21-rdma.md`.
//!
//! One thread per process owns UCX ([`Engine`]). Fault model: devices and peers that stop answering, in the middle of a
//! fetch too; that is given up after [`Settings::stalled`], and its memory kept back until UCX lets go of it.
//! Peers have proved the cluster key before anything that they say comes to UCX, and are trusted as far as that goes.

#![cfg(feature = "ucx")]

mod card;
mod engine;
mod link;
mod registering;
mod ucx;

pub use engine::{Engine, Settings};
pub use link::{UcxAcceptor, UcxFabric};
pub use ucx::version;
