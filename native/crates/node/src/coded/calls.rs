//! One request to one device, and its answer as it comes in.

use std::sync::Arc;
use std::time::Duration;

use swiftlet_transport::{Call, Error as TransportError, Sink, Ticket, What};

use super::places::{Places, Target};
use crate::client::Failure;
use crate::message::{Request, fragments};
use crate::status::{Refusal, Status};

/// The call that a request about fragments is.
pub(crate) fn call(
    (_, device): &Target,
    request: fragments::Request,
    timeout: Duration,
    trace: &str,
) -> Result<Call, Failure> {
    let request = Request::Fragment(request);
    let header = request.encode(device)?;
    Ok(Call { method: request.method(), timeout, trace: trace.to_owned(), header, ..Call::default() })
}

/// Ask a device by its number in the ring.
pub(crate) fn ask(
    places: &Places,
    number: u32,
    request: fragments::Request,
    (timeout, trace): (Duration, &str),
    (sink, token): (&Arc<dyn Sink>, u64),
) -> Result<Ticket, Failure> {
    let target = places.devices.target(number).ok_or(Failure::Damaged("the ring has no such device"))?;
    target.0.call(call(target, request, timeout, trace)?, sink, token).map_err(Failure::Lost)
}

/// A whole answer: its header, and its body.
pub(crate) type Whole = (Vec<u8>, Vec<u8>);

/// An answer of which a part may have come.
#[derive(Debug)]
pub(crate) struct Answering {
    header: Option<Vec<u8>>,
    body: Vec<u8>,
    most: usize,
}

impl Answering {
    /// An answer whose body has so many bytes at most.
    pub(crate) fn new(most: usize) -> Self {
        Self { header: None, body: Vec::new(), most }
    }

    /// Take the next part; how the request has ended, when it has. Nothing comes after that.
    pub(crate) fn take(&mut self, what: What) -> Option<Result<Whole, Failure>> {
        match what {
            What::Sent(_) => None,
            What::Failed(error) => Some(Err(Failure::Lost(error))),
            What::Reply { status, header, .. } if status != Status::Ok as u16 => {
                Some(Err(Failure::Refused(Refusal::decode(status, &header))))
            }
            What::Reply { header, body, body_bytes, whole, .. } => {
                self.header = Some(header);
                self.body.reserve_exact(body_bytes.map_or(0, |bytes| bytes.min(self.most as u64)) as usize);
                self.more(body.as_deref().unwrap_or_default()).or_else(|| whole.then(|| self.end()))
            }
            What::Chunk(chunk) => self.more(&chunk),
            What::End(_) => Some(self.end()),
        }
    }

    fn more(&mut self, bytes: &[u8]) -> Option<Result<Whole, Failure>> {
        if bytes.len() > self.most - self.body.len() {
            return Some(Err(Failure::Damaged("more than was asked for")));
        }
        self.body.extend_from_slice(bytes);
        None
    }

    fn end(&mut self) -> Result<Whole, Failure> {
        let header = self.header.take().ok_or(Failure::Lost(TransportError::Cancelled))?;
        Ok((header, std::mem::take(&mut self.body)))
    }
}
