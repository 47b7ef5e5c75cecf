//! RDMA for the transport, by UCX.
//!
//! A connection is a TCP connection with handshake, frames, heartbeats and BYE like any other. After the handshake
//! both ends show each other their pools, and each fetches a few bytes from the other's by RDMA READ. Where that
//! works, chunks are lent and fetched instead of sent; otherwise the connection is used as it is.
//! `docs/design/2026-11-21-rdma.md` has the reasons.
//!
//! One thread per process owns UCX ([`Engine`]). Fault model: devices and peers may stop answering, also in the middle
//! of a fetch; the fetch is given up after [`Settings::stalled`], and its memory is kept until UCX releases it. Peers
//! have proved the cluster key before anything from them reaches UCX, and are trusted to that extent.

#![cfg(feature = "ucx")]

mod card;
mod engine;
mod link;
mod registering;
mod ucx;

pub use engine::{Engine, Settings};
pub use link::{UcxAcceptor, UcxFabric};
pub use ucx::version;
