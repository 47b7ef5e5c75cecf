//! Writes to all of an object's devices for Python: one call sends the same body to each, and one event tells that all
//! have it.

use pyo3::prelude::*;
use swiftlet_node::message::Request;
use swiftlet_node::{Terms, calls};
use swiftlet_transport::Chunk;

use crate::group::{Expected, Groups, TransportGroup, malformed};
use crate::peers::TransportPeer;

/// Who is asked: a peer, a device of it, and the container replicas (bits) whose rows it keeps.
pub(crate) type Target<'py> = (PyRef<'py, TransportPeer>, String, u32);

/// Send a write to several devices.
pub(crate) fn send(
    groups: &Groups,
    token: u64,
    targets: &[Target<'_>],
    mut request: Request,
    data: &Chunk,
    terms: &Terms,
) -> PyResult<TransportGroup> {
    let devices: Vec<(&str, u32)> = targets.iter().map(|(_, device, row)| (device.as_str(), *row)).collect();
    let expected = Expected { many: None, is_guest: terms.guest.is_some() };
    let calls = calls(&mut request, data, &devices, terms).map_err(malformed)?;
    let calls = targets.iter().zip(calls).map(|((peer, _, _), call)| (peer.peer(), call, expected)).collect();
    groups.send(token, calls, 0)
}
