//! A small write as all of an object's devices are asked for it: one request, which differs between them only in the
//! container replicas whose rows a device keeps, and one body, which is shared.
//!
//! The front of a proxy and clients with direct access make their writes by this; which devices are asked, and what
//! their answers are worth together, is decided by them.

use std::time::Duration;

use swiftlet_transport::{Body, Call, Chunk, Error, What};

use crate::message::{Malformed, Request, Written, guests};
use crate::status::Status;

/// What the calls of a write have in common beside the request.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// The time limit of each.
    pub timeout: Duration,
    /// The request's id.
    pub trace: String,
    /// Of a guest: its grant, and the object's name.
    pub guest: Option<(Vec<u8>, Vec<u8>)>,
}

/// The calls of a write to these devices, each with the container replicas (bits) whose rows the device keeps.
///
/// # Errors
/// Something in the request is over its limit.
pub fn calls(
    request: &mut Request,
    data: &Chunk,
    devices: &[(&str, u32)],
    terms: &Terms,
) -> Result<Vec<Call>, Malformed> {
    let call = |(device, row): &(&str, u32)| {
        request.set_row(*row);
        let header = request.encode(device)?;
        let header = match &terms.guest {
            Some((grant, object)) => guests::encode(grant, object, &header)?,
            None => header,
        };
        let body = if data.is_empty() { Body::Empty } else { Body::Chunk(data.clone()) };
        let (method, Terms { timeout, trace, .. }) = (request.method(), terms);
        Ok(Call { method, timeout: *timeout, trace: trace.clone(), header, body, ..Call::default() })
    };
    devices.iter().map(call).collect()
}

/// What is known of a device's part in a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replica {
    /// It has not answered yet.
    Asked,
    /// It is durable there, and its row is pending.
    Done,
    /// The device has not carried it out, or keeps no row for it.
    Refused,
    /// No answer will come; the device may have carried it out.
    Unknown,
}

impl Replica {
    /// What an answer to a member says, and whether there was an object; None for an event that is no answer.
    #[must_use]
    pub fn of(what: &What) -> Option<(Self, bool)> {
        Some(match what {
            What::Sent(_) => return None,
            What::Reply { status, header, .. } if *status == Status::Ok as u16 => match Written::decode(header) {
                Ok(written) => (if written.pending { Self::Done } else { Self::Refused }, written.existed),
                Err(_) => (Self::Unknown, false),
            },
            What::Reply { .. } | What::Failed(Error::Unreachable(_) | Error::Overloaded | Error::Invalid(_)) => {
                (Self::Refused, false)
            }
            _ => (Self::Unknown, false),
        })
    }
}
