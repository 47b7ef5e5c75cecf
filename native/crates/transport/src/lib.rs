//! Requests and data between processes: over TCP, with TLS or without, within a machine, or simulated. Independent of
//! Python.
//!
//! `docs/transport.md` specifies the protocol, `docs/design/2026-11-21-transport.md` has the reasons. A [`Node`] is a
//! process's end: [`Peer`]s to call, a [`Handler`] that answers, and a [`Pool`] for all bodies. Methods, statuses and
//! headers have no meaning here.

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
mod shared;
pub mod simulated;
mod tcp;
mod waking;
mod watch;

pub use api::{Answer, Body, Call, Error, Event, FileRange, Guest, Incoming, Next, Receiver, Sink, Source, What};
pub use completions::Completions;
pub use encrypted::{EncryptedAcceptor, EncryptedFabric};
pub use handles::{Handler, Peer, Responder, Ticket, Upload, Waker};
pub use link::{Acceptor, Address, Carrier, Fabric, Fetched, Link, Met};
pub use memory::Region;
pub use metrics::{LATENCY_BUCKETS, PeerMetrics, PeerSnapshot};
pub use node::{Node, PeerReport};
pub use pool::{Buffer, Chunk, Pool, PoolUse, Then, Window};
pub use samenode::{SameNodeAcceptor, SameNodeFabric};
pub use settings::{Config, Guests, WINDOW_BYTES};
pub use shared::Regions;
pub use swiftlet_tls::Tls;
pub use swiftlet_wire::guest;
pub use swiftlet_wire::handshake::Key;
pub use swiftlet_wire::limits;
pub use swiftlet_wire::message::Reason;
pub use tcp::{TcpAcceptor, TcpFabric};
pub use waking::together;
