//! The answer to a request as it comes in.

use swiftlet_transport::{Error as TransportError, What};

use crate::client::Failure;
use crate::message::{Request, fragments};
use crate::status::{Refusal, Status};

/// A whole answer: its header, and its body.
pub(super) type Whole = (Vec<u8>, Vec<u8>);

/// The most bytes that the body of the answer may have.
pub(super) fn most_bytes(request: &Request, cell_bytes: usize) -> usize {
    match request {
        Request::Fragment(fragments::Request::Newest { start, stop, .. }) if start < stop => {
            fragments::MAX_READ_BYTES as usize + cell_bytes
        }
        Request::Fragment(fragments::Request::Cells { first, end, .. }) => {
            end.saturating_sub(*first) as usize * cell_bytes
        }
        _ => 0,
    }
}

/// An answer of which a part may have come.
#[derive(Debug)]
pub(super) struct Answering {
    header: Option<Vec<u8>>,
    body: Vec<u8>,
    most: usize,
}

impl Answering {
    /// An answer whose body has so many bytes at most.
    pub(super) fn new(most: usize) -> Self {
        Self { header: None, body: Vec::new(), most }
    }

    /// Take the next part; how the request has ended, when it has. Nothing comes after that.
    pub(super) fn take(&mut self, what: What) -> Option<Result<Whole, Failure>> {
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
