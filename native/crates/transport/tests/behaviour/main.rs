//! The transport from outside, in one program: what every carrier must do, run over each that needs no device, and the rest.

#![allow(unreachable_pub, clippy::unwrap_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../suite/mod.rs"]
mod suite;

mod encrypted;
mod guests;
mod shared;
mod visited;

/// Before each test: nothing.
fn prepare() {}

over_any!(Tcp as tcp);
over_any!(SameNode as same_node);
over_any!(Simulated as simulated);
over_any!(Tls as tls);
over_network!(Tcp as tcp_faults);
over_network!(Simulated as simulated_faults);
over_network!(Tls as tls_faults);
