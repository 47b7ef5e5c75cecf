//! Object servers over the native transport, their client, and the native half of container servers. Independent of
//! Python.
//!
//! [`Server`] answers the methods of `docs/transport.md` from the stores of one process: requests are received,
//! checked, hashed and written in native threads. [`Client`] makes requests, and [`Run`] reads many objects as one
//! stream. [`ContainerServer`] takes container updates; [`coded`] writes and
//! reads objects with erasure coding. [`message`] has the form of requests and answers, without any I/O.

mod ahead;
mod client;
mod codec;
pub mod coded;
mod codings;
mod container_server;
mod copies;
mod device;
mod doubts;
mod download;
mod fragments;
#[doc(hidden)]
pub mod fuzzing;
mod gather;
mod guest_requests;
mod guests;
pub mod hedging;
mod many;
pub mod message;
mod packs;
pub mod parts;
pub mod plain;
mod reading;
mod reply;
mod run;
mod server;
mod status;
mod upload;
mod writes;
mod written;

pub use ahead::Ahead;
pub use client::{Client, ClientEvent, Failure, Fetched, MAX_TARGETS, PutStream, Submitted};
pub use codings::Coding;
pub use container_server::ContainerServer;
pub use device::{DeviceStats, Limits};
pub use doubts::Doubts;
pub use gather::{Answer, Gather, Reply as Gathered};
pub use guest_requests::BEHIND_MS;
pub use guests::{AHEAD_MS, Guests, LONGEST_LIFE_MS};
pub use run::{MAX_PARTS, Marks, Part, Run, RunEnd, RunOptions};
pub use server::Server;
pub use status::{Refusal, Status};
pub use writes::{Replica, Terms, calls};
