//! Requests and data between processes: over TCP, with TLS or without, within a machine, simulated. Knows no Python.
//!
//! `docs/transport.md` is the protocol, `docs/design/2026-11-21-transport.md` says why it is made so. A [`Node`] is a
//! process's end: [`Peer`]s to call, a [`Handler`] that answers, a [`Pool`] that all bodies live in. Methods,
//! statuses and headers mean nothing here.

mod api;
mod arena;
mod around;
mod command;
mod completions;
mod connection;
mod encrypted;
mod handles;
mod key;
mod link;
mod memory;
mod metrics;
mod node;
mod outbox;
mod peers;
mod pool;
mod reactor;
mod samenode;
mod settings;
pub mod simulated;
mod tcp;
mod watch;

pub use api::{Answer, Body, Call, Error, Event, FileRange, Incoming, Next, Receiver, Sink, Source, What};
pub use completions::Completions;
pub use encrypted::{EncryptedAcceptor, EncryptedFabric};
pub use handles::{Handler, Peer, Responder, Ticket, Upload, Waker};
pub use link::{Acceptor, Address, Carrier, Fabric, Fetched, Link, Met};
pub use memory::Region;
pub use metrics::{LATENCY_BUCKETS, PeerMetrics, PeerSnapshot};
pub use node::{Node, PeerReport};
pub use pool::{Buffer, Chunk, Pool, PoolUse, Then, Window};
pub use samenode::{SameNodeAcceptor, SameNodeFabric};
pub use settings::{Config, WINDOW_BYTES};
pub use swiftlet_tls::Tls;
pub use swiftlet_wire::handshake::Key;
pub use swiftlet_wire::limits;
pub use swiftlet_wire::message::Reason;
pub use tcp::{TcpAcceptor, TcpFabric};
