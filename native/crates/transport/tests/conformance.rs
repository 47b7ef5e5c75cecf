//! What every carrier must do, run over each of them that needs no device.

mod common;
mod suite;

/// Before each test: nothing.
fn prepare() {}

over_any!(Tcp as tcp);
over_any!(SameNode as same_node);
over_any!(Simulated as simulated);
over_any!(Tls as tls);
over_network!(Tcp as tcp_faults);
over_network!(Simulated as simulated_faults);
over_network!(Tls as tls_faults);
