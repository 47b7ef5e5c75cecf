//! Entry point of `native/fuzz` to what guests ask: which requests of a message would be carried out, at a given time.

use std::sync::Arc;

use swiftlet_transport::Guest;

use crate::guest_requests::{Covered, covered_at};
use crate::guests::Guests;
use crate::many;
use crate::message::Request;
use crate::message::guests;
use crate::message::many::requests;
use crate::status::Refusal;

/// A request that would be carried out: the object's name, the request, how many bytes of a body it has.
#[derive(Clone, Debug, PartialEq)]
pub struct Allowed {
    /// The name that the guest has given, without account and container.
    pub object: Vec<u8>,
    /// What is asked.
    pub request: Request,
    /// The size of its body.
    pub bytes: u64,
}

/// The requests of a guest's message that its grant covers: of MANY those in it.
///
/// # Errors
/// The message is refused as a whole.
pub fn allowed(
    now_ms: u64,
    known: &Arc<Guests>,
    guest: &Guest,
    (method, header): (u16, &[u8]),
    body: &[u8],
) -> Result<Vec<Allowed>, Refusal> {
    let bytes = body.len() as u64;
    let Covered { request, shown, .. } = covered_at(now_ms, known, guest, (method, header), Some(bytes))?;
    let Request::Many(count) = request else {
        let object = guests::decode(header)?.object;
        return Ok(vec![Allowed { object, request, bytes }]);
    };
    let count = usize::from(count);
    many::check(count, Some(bytes))?;
    let all = requests(count, body)?;
    let allowed = all.iter().filter_map(|one| {
        let request = many::allowed(shown.as_ref(), one).ok()?;
        Some(Allowed { object: one.object.to_vec(), request, bytes: one.body.len() as u64 })
    });
    Ok(allowed.collect())
}

/// Accept no grant for a container, or with an empty one for an account, that was issued before this time.
pub fn revoke(known: &Guests, account: &[u8], container: &[u8], before_ms: u64, now_ms: u64) {
    known.revoke(account, container, before_ms, now_ms);
}
