//! Calls to the devices of an object.

use std::sync::Arc;
use std::time::{Duration, Instant};

use swiftlet_node::message::Request;
use swiftlet_store::model::Key;
use swiftlet_transport::{Call, Sink};

use super::REPLICA_SHIFT;
use crate::attempt::Attempt;
use crate::grants::Granted;
use crate::head::Asked;
use crate::name;
use crate::reading::may_be_long;
use crate::replies::Replies;
use crate::routes::{Device, Policy};
use crate::shared::Shared;

/// The time limit of a call whose answer may be long; what is waited for meanwhile has limits of its own.
const LONG: Duration = Duration::from_secs(86_400);

/// The policy of a request's object, and the object; None if Python has to answer the request.
pub(super) fn place_of(shared: &Shared, asked: &Asked<'_>, granted: &Granted) -> Option<(Arc<Policy>, Key)> {
    let (_, object) = name::split(asked.target)?;
    let secret = &shared.settings.secret;
    let digest = name::digest((&secret.0, &secret.1), &granted.container, object)?;
    let policy = shared.policy(granted.policy)?;
    let key = Key { policy: granted.policy, partition: policy.partition(&digest), digest };
    Some((policy, key))
}

/// Ask a device; `attempt` is the attempt's id for the connection of this number.
pub(super) fn call(
    shared: &Shared,
    devices: &Arc<Replies>,
    device: Arc<Device>,
    request: &Request,
    (number, attempt): (u64, u8),
    id: &str,
    now: Instant,
) -> Option<Attempt> {
    let header = request.encode(device.name()).ok()?;
    let timeout = if may_be_long(request) { LONG } else { shared.settings.answer_timeout };
    let call = Call { method: request.method(), timeout, trace: id.to_owned(), header, ..Call::default() };
    let sink = Arc::clone(devices) as Arc<dyn Sink>;
    let ticket = device.peer().call(call, &sink, number | u64::from(attempt) << REPLICA_SHIFT).ok()?;
    Some(Attempt { id: attempt, device, ticket, begun: now, coming: None })
}
