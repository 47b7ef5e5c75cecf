//! The answer to a request as it comes in.

use swiftlet_fragments::Outcome;
use swiftlet_fragments::request::Answer as Said;
use swiftlet_transport::{Error as TransportError, What};

use crate::client::Failure;
use crate::message::{MAX_COPY_BYTES, Request, fragments, packs};
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
        Request::Pack(packs::Request::Piece { bytes, .. }) => *bytes as usize,
        Request::Get { .. } => MAX_COPY_BYTES as usize,
        _ => 0,
    }
}

/// Why a device has not prepared or committed, where it has an answer that says so.
pub(super) fn refusal(answer: &Said) -> Option<Refusal> {
    let (status, text) = match answer {
        Said::Done | Said::Superseded(_) | Said::Decided(Outcome::Commit) => return None,
        Said::Busy => (Status::NodeBusy, "too many versions of the object are undecided at this device"),
        Said::Missing => (Status::NodeError, "the device is not the one that was chosen, or has lost the fragment"),
        Said::Outbid(_) => (Status::Unavailable, "other devices decide about the write, as they have not heard of it"),
        Said::Decided(Outcome::Abort) => (Status::Unavailable, "other devices have decided that it never happened"),
        _ => (Status::NodeError, "the device has answered something that it wasn't asked"),
    };
    Some(Refusal::new(status, text))
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
