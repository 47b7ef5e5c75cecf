//! What one side keeps of one request.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Instant;

use swiftlet_wire::Violation;
use swiftlet_wire::stream::{Role, Stream as Flow};

use crate::api::{Error, Event, FileRange, Receiver, Sink, Source, What};
use crate::around::Around;
use crate::metrics::PeerMetrics;
use crate::pool::{Buffer, Chunk};

/// Who a request belongs to.
pub(crate) enum Owner {
    Client { token: u64, sink: Arc<dyn Sink>, begun: Instant, queued: Arc<AtomicUsize> },
    Server { receiver: Option<Box<dyn Receiver>>, cancelled: Arc<AtomicBool>, begun: Instant },
}

/// A piece of the body that we send.
#[derive(Clone)]
pub(super) enum Item {
    Chunk(Chunk),
    File(FileRange),
}

impl Item {
    pub(super) fn len(&self) -> usize {
        match self {
            Item::Chunk(chunk) => chunk.len(),
            Item::File(range) => range.bytes as usize,
        }
    }

    /// Take `bytes` off its front.
    pub(super) fn split(&mut self, bytes: usize) -> Item {
        match self {
            Item::Chunk(chunk) => {
                let front = chunk.part(0..bytes);
                *chunk = chunk.part(bytes..chunk.len());
                Item::Chunk(front)
            }
            Item::File(range) => {
                let front = FileRange { bytes: bytes as u64, ..range.clone() };
                range.offset += bytes as u64;
                range.bytes -= bytes as u64;
                Item::File(front)
            }
        }
    }
}

/// A chunk that the peer has lent, while it is brought into our memory.
pub(super) struct Fetch {
    pub(super) offset: u64,
    pub(super) length: u32,
    pub(super) address: u64,
    pub(super) stage: FetchStage,
}

pub(super) enum FetchStage {
    /// It waits for memory.
    Waiting,
    /// The link is fetching it.
    Flying,
    /// It has arrived; chunks before it have not.
    Here(Buffer),
}

pub(crate) struct Stream {
    pub(super) flow: Flow,
    pub(super) owner: Owner,
    pub(crate) deadline: Instant,
    pub(super) inline_bytes: usize,
    /// What is to be sent: first the pieces that were offered (`offered` of them), then the others.
    pub(super) items: VecDeque<Item>,
    pub(super) offered: usize,
    pub(super) source: Option<Box<dyn Source>>,
    /// The footer, when the body is complete on our side.
    pub(super) footer: Option<Vec<u8>>,
    /// What was sent early and is not granted yet, should it have been dropped.
    pub(super) kept: VecDeque<Item>,
    /// The footer that was sent after that.
    pub(super) kept_footer: Option<Vec<u8>>,
    pub(super) is_ready: bool,
    /// Memory for granted chunks; the first one is being filled.
    pub(super) fills: VecDeque<Buffer>,
    pub(super) filled: usize,
    pub(super) waits_for_memory: bool,
    /// Lent chunks that are being fetched, in their order in the body.
    pub(super) fetches: VecDeque<Fetch>,
    /// The footer, if END arrived before all chunks were fetched.
    pub(super) end_ahead: Option<Vec<u8>>,
}

impl Stream {
    /// `flow`: the window of what we receive, and how much of what we send may be sent before it is granted.
    pub(super) fn new(role: Role, flow: (u64, u64), owner: Owner, deadline: Instant, inline_bytes: usize) -> Self {
        Self {
            flow: Flow::new(role, flow.0, flow.1),
            owner,
            deadline,
            inline_bytes,
            items: VecDeque::new(),
            offered: 0,
            source: None,
            footer: None,
            kept: VecDeque::new(),
            kept_footer: None,
            is_ready: false,
            fills: VecDeque::new(),
            filled: 0,
            waits_for_memory: false,
            fetches: VecDeque::new(),
            end_ahead: None,
        }
    }

    /// Where the next bytes of a DATA frame go: at most `left`, at most to the end of the chunk.
    pub(super) fn slot(&mut self, left: usize) -> Option<&mut [u8]> {
        let lacks = self.flow.inflow.chunk_lacks() as usize;
        let filled = self.filled;
        let buffer = self.fills.front_mut()?;
        buffer.as_mut_slice().get_mut(filled..filled + left.min(lacks))
    }

    /// Whether somebody receives the body.
    pub(super) fn takes_body(&self) -> bool {
        !matches!(&self.owner, Owner::Server { receiver: None, .. })
    }

    pub(super) fn event(&self, around: &mut Around<'_>, what: What) {
        if let Owner::Client { token, sink, .. } = &self.owner {
            around.outcome.push(sink, Event { token: *token, what });
        }
    }

    /// Handle GRANT. What was sent early and has arrived is let go of; with `again` it is sent once more.
    pub(super) fn granted(&mut self, around: &mut Around<'_>, upto: u64, again: bool) -> Result<(), Violation> {
        let before = self.flow.outflow.unconfirmed();
        self.flow.outflow.grant(upto, again)?;
        if again {
            self.offered += self.kept.len();
            self.kept.drain(..).rev().for_each(|item| self.items.push_front(item));
            self.footer = self.kept_footer.take().or(self.footer.take());
            return Ok(());
        }
        let arrived = before - self.flow.outflow.unconfirmed();
        let mut left = arrived;
        // A grant is of whole chunks, and so of whole pieces.
        while let Some(item) = self.kept.front()
            && item.len() as u64 <= left
        {
            left -= item.len() as u64;
            self.kept.pop_front();
        }
        if self.kept.is_empty() {
            self.kept_footer = None;
        }
        self.left(around, arrived as usize);
        Ok(())
    }

    /// So much of the client's body has been sent.
    pub(super) fn left(&self, around: &mut Around<'_>, bytes: usize) {
        if bytes > 0
            && let Owner::Client { queued, .. } = &self.owner
        {
            // Only pieces of an upload were counted; a call's own body was not.
            let counted = queued.fetch_update(AcqRel, Relaxed, |now| now.checked_sub(bytes)).is_ok();
            if counted {
                self.event(around, What::Sent(bytes));
            }
        }
    }

    fn begun(&self) -> Instant {
        match &self.owner {
            Owner::Client { begun, .. } | Owner::Server { begun, .. } => *begun,
        }
    }

    /// The stream has ended regularly.
    pub(super) fn succeeded(&self, around: &Around<'_>, metrics: &PeerMetrics) {
        metrics.took(around.now.saturating_duration_since(self.begun()));
    }

    /// The stream has failed.
    pub(super) fn failed(self, around: &mut Around<'_>, metrics: &PeerMetrics, error: Error) {
        metrics.errors.fetch_add(1, Relaxed);
        metrics.took(around.now.saturating_duration_since(self.begun()));
        match self.owner {
            Owner::Client { token, sink, .. } => {
                around.outcome.push(&sink, Event { token, what: What::Failed(error) });
            }
            Owner::Server { receiver, cancelled, .. } => {
                cancelled.store(true, Release);
                if let Some(mut receiver) = receiver {
                    receiver.failed(&error);
                }
            }
        }
    }
}
