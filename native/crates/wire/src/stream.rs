//! One request: what may come next on it, and how much of its two bodies may be offered, granted and sent.
//!
//! [`Outflow`] is the sender's view of a body, [`Inflow`] the receiver's, [`Stream`] both bodies of a request as one
//! side sees them. Each checks what the other side does: the peer may be of another version, or malicious.

use std::collections::VecDeque;

use crate::limits::{CHUNK_BYTES, EARLY_BYTES, OFFERED_BYTES, OFFERED_CHUNKS};
use crate::message::Offer;
use crate::violation::{Violation, require};

/// The body that we send.
#[derive(Clone, Debug, Default)]
pub struct Outflow {
    offered: u64,
    granted: u64,
    sent: u64,
    /// How much of the begin of the body may be sent before it is granted.
    early: u64,
    /// Lent chunks that were not returned yet: offset and length.
    lent: Vec<(u64, u32)>,
    lent_bytes: u64,
    /// Where chunks end that were offered, and are not both granted and sent.
    waiting: VecDeque<u64>,
    ended: bool,
}

impl Outflow {
    /// `early`: how much of the begin of the body may be sent before it is granted.
    #[must_use]
    pub fn new(early: u64) -> Self {
        Self { early: early.min(EARLY_BYTES), ..Self::default() }
    }

    /// Whether a chunk of this length may be offered now.
    #[must_use]
    pub fn has_room(&self, length: usize) -> bool {
        !self.ended
            && self.in_flight() + length as u64 + self.unconfirmed() <= OFFERED_BYTES
            && self.waiting.len() + self.lent.len() < OFFERED_CHUNKS
    }

    /// Bytes that were offered and are not yet sent, or lent and not yet returned.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.offered - self.sent + self.lent_bytes
    }

    /// Bytes that were sent and are not granted yet.
    #[must_use]
    pub fn unconfirmed(&self) -> u64 {
        self.sent.saturating_sub(self.granted)
    }

    /// Offer the next chunk, to be sent when it is granted, or early. Returns its offset.
    pub fn offer(&mut self, length: u32) -> u64 {
        debug_assert!(self.has_room(length as usize) && length > 0 && length as usize <= CHUNK_BYTES);
        let offset = self.offered;
        self.offered += u64::from(length);
        self.waiting.push_back(self.offered);
        offset
    }

    /// Whether the next chunk may be lent: only when everything before it has been granted and sent.
    #[must_use]
    pub fn may_lend(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Lend the next chunk. Returns its offset.
    pub fn lend(&mut self, length: u32) -> u64 {
        debug_assert!(self.may_lend() && self.has_room(length as usize));
        let offset = self.offered;
        self.offered += u64::from(length);
        self.granted = self.offered;
        self.sent = self.offered;
        self.lent.push((offset, length));
        self.lent_bytes += u64::from(length);
        offset
    }

    /// Handle GRANT. With `again`, what was sent early beyond the last grant is to be sent once more, and nothing is
    /// sent early any more; also an end that was told is to be told again.
    ///
    /// # Errors
    /// It goes back, or beyond what was offered; or nothing was sent early that could be sent again.
    pub fn grant(&mut self, upto: u64, again: bool) -> Result<(), Violation> {
        require(upto >= self.granted, "a grant that is smaller than an earlier one")?;
        require(upto <= self.offered, "a grant beyond what was offered")?;
        if again {
            require(self.unconfirmed() > 0, "a grant that asks for bytes again of which none were sent early")?;
            self.sent = self.granted;
            self.early = 0;
            self.ended = false;
        }
        self.granted = upto;
        self.forget_done();
        Ok(())
    }

    /// How many bytes of the body may be sent now, and from which offset on.
    #[must_use]
    pub fn sendable(&self) -> (u64, u64) {
        (self.sent, self.granted.max(self.early.min(self.offered)).saturating_sub(self.sent))
    }

    /// How many bytes of these the peer has granted; the others are sent early.
    #[must_use]
    pub fn granted(&self) -> u64 {
        self.granted.saturating_sub(self.sent)
    }

    /// How many bytes of the chunk that is being sent are left; those that are sent early never cross its end.
    #[must_use]
    pub fn first_lacks(&self) -> u64 {
        self.waiting.iter().find(|end| **end > self.sent).map_or(0, |end| end - self.sent)
    }

    /// Record that so many bytes are being sent; never more than [`Outflow::sendable`].
    pub fn sent(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.sendable().1);
        self.sent += bytes;
        self.forget_done();
    }

    fn forget_done(&mut self) {
        let done = self.sent.min(self.granted);
        while self.waiting.front().is_some_and(|end| *end <= done) {
            self.waiting.pop_front();
        }
    }

    /// Handle DONE.
    ///
    /// # Errors
    /// Nothing of the kind was lent.
    pub fn done(&mut self, offset: u64) -> Result<(), Violation> {
        let at = self.lent.iter().position(|lent| lent.0 == offset);
        let at = at.ok_or(Violation("a chunk that was returned but not lent"))?;
        self.lent_bytes -= u64::from(self.lent.swap_remove(at).1);
        Ok(())
    }

    /// Whether everything offered has been sent, so that END may follow.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.sent == self.offered
    }

    /// Record that END has been sent, or that the body was empty or inside the frame.
    pub fn end(&mut self) {
        debug_assert!(self.is_flushed());
        self.ended = true;
    }

    /// Whether END has been sent, perhaps early.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Whether the body is complete, and nothing of it can have been dropped.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ended && self.unconfirmed() == 0
    }
}

/// The body that we receive.
#[derive(Clone, Debug)]
pub struct Inflow {
    window: u64,
    offered: u64,
    granted: u64,
    received: u64,
    /// Bytes that were granted or lent, and that the layer above has not released.
    held: u64,
    lent: u64,
    offers: VecDeque<u32>,
    lent_chunks: usize,
    /// Bytes of the current chunk that were received; 0 before its first one.
    into_chunk: u32,
    unreceived: VecDeque<u32>,
    /// Whether data was dropped that was sent early: all that is sent early after it is dropped too.
    dropped: bool,
    /// Whether the sender has to be told that.
    tell: bool,
    ended: bool,
}

impl Inflow {
    /// `window`: how much of the body may be granted beyond what was released; at least one chunk.
    #[must_use]
    pub fn new(window: u64) -> Self {
        Self {
            window: window.max(CHUNK_BYTES as u64),
            offered: 0,
            granted: 0,
            received: 0,
            held: 0,
            lent: 0,
            offers: VecDeque::new(),
            lent_chunks: 0,
            into_chunk: 0,
            unreceived: VecDeque::new(),
            dropped: false,
            tell: false,
            ended: false,
        }
    }

    /// Handle OFFER.
    ///
    /// # Errors
    /// It leaves a gap, is too much, or comes after the end.
    pub fn offer(&mut self, offer: &Offer) -> Result<(), Violation> {
        require(!self.ended, "an offer after the end")?;
        require(offer.offset == self.offered, "an offer that does not follow the earlier one")?;
        let waiting = self.offered - self.received + self.lent + u64::from(offer.length);
        require(waiting <= OFFERED_BYTES, "more offered bytes than are allowed")?;
        let chunks = self.offers.len() + self.unreceived.len() + self.lent_chunks;
        require(chunks < OFFERED_CHUNKS, "more offered chunks than are allowed")?;
        self.offered += u64::from(offer.length);
        if offer.place.is_some() {
            require(self.offers.is_empty() && self.unreceived.is_empty(), "a chunk lent before others were sent")?;
            self.granted = self.offered;
            self.received = self.offered;
            self.lent += u64::from(offer.length);
            self.lent_chunks += 1;
        } else {
            self.offers.push_back(offer.length);
        }
        Ok(())
    }

    /// The length of the chunk for which memory is needed now, if the window allows another one.
    #[must_use]
    pub fn wanted(&self) -> Option<u32> {
        let next = *self.offers.front()?;
        (self.held == 0 || self.held + u64::from(next) <= self.window).then_some(next)
    }

    /// There is memory for the chunk that was [wanted](Self::wanted). Returns what GRANT says, and whether what was
    /// sent early has to be sent again.
    pub fn grant(&mut self) -> (u64, bool) {
        if let Some(length) = self.offers.pop_front() {
            self.granted += u64::from(length);
            self.held += u64::from(length);
            self.unreceived.push_back(length);
        }
        (self.granted, std::mem::take(&mut self.tell))
    }

    /// Handle the head of a DATA frame: whether its bytes are received. If not, they were sent early and are dropped.
    ///
    /// # Errors
    /// It is neither granted nor early, or not what comes next.
    pub fn admit(&mut self, offset: u64, bytes: u64, early: bool) -> Result<bool, Violation> {
        require(bytes > 0, "a data frame without data")?;
        if early && self.dropped {
            return Ok(false);
        }
        require(!self.ended, "data after the end")?;
        require(offset == self.received, "data that does not follow the earlier data")?;
        if !early || bytes <= self.granted - self.received {
            return require(bytes <= self.granted - self.received, "data that was not granted").map(|()| true);
        }
        require(self.granted == self.received, "early data that is not in one chunk")?;
        require(bytes <= self.offered - self.received, "early data that was not offered")?;
        (self.dropped, self.tell) = (true, true);
        Ok(false)
    }

    /// Whether an end that was sent early is dropped, because data before it was.
    #[must_use]
    pub fn drops_end(&self, early: bool) -> bool {
        early && self.dropped
    }

    /// How many bytes the chunk that is being received still needs.
    #[must_use]
    pub fn chunk_lacks(&self) -> u32 {
        self.unreceived.front().map_or(0, |length| length - self.into_chunk)
    }

    /// So many bytes were received into the current chunk, at most [`Inflow::chunk_lacks`]. Returns offset and length
    /// of the chunk if it is complete now.
    pub fn received(&mut self, bytes: u32) -> Option<(u64, u32)> {
        debug_assert!(bytes <= self.chunk_lacks());
        self.received += u64::from(bytes);
        self.into_chunk += bytes;
        if self.chunk_lacks() > 0 {
            return None;
        }
        self.into_chunk = 0;
        let length = self.unreceived.pop_front()?;
        Some((self.received - u64::from(length), length))
    }

    /// The layer above has released a chunk that was sent.
    pub fn released(&mut self, length: u32) {
        self.held = self.held.saturating_sub(u64::from(length));
    }

    /// Whether the window has room for fetching a lent chunk into memory of our own.
    #[must_use]
    pub fn may_fetch(&self, length: u32) -> bool {
        self.held == 0 || self.held + u64::from(length) <= self.window
    }

    /// A lent chunk is being fetched into memory of our own.
    pub fn fetch(&mut self, length: u32) {
        self.held += u64::from(length);
    }

    /// The layer above has released a chunk that was lent, or it has been fetched; DONE is sent.
    pub fn returned(&mut self, length: u32) {
        self.lent = self.lent.saturating_sub(u64::from(length));
        self.lent_chunks = self.lent_chunks.saturating_sub(1);
    }

    /// Handle END, or the flag in the frame that began the body.
    ///
    /// # Errors
    /// Something that was offered is missing, or it had ended before.
    pub fn end(&mut self) -> Result<(), Violation> {
        require(!self.ended, "a second end of a body")?;
        require(self.offered == self.received, "an end of a body before all that was offered")?;
        self.ended = true;
        Ok(())
    }

    /// Whether the body is complete.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Bytes received (or lent) so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.received
    }
}

/// The side of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It sends the request.
    Client,
    /// It answers.
    Server,
}

/// Both bodies of a request, seen from one side.
#[derive(Clone, Debug)]
pub struct Stream {
    role: Role,
    /// Whether REPLY has been sent or received.
    replied: bool,
    /// The body that we send.
    pub outflow: Outflow,
    /// The body that we receive.
    pub inflow: Inflow,
}

impl Stream {
    /// A request that has just been sent or received. `window`: of what we receive; `early`: how much of what we send
    /// may be sent before it is granted.
    #[must_use]
    pub fn new(role: Role, window: u64, early: u64) -> Self {
        Self { role, replied: false, outflow: Outflow::new(early), inflow: Inflow::new(window) }
    }

    /// REPLY has been sent or received.
    ///
    /// # Errors
    /// It is the second one.
    pub fn reply(&mut self) -> Result<(), Violation> {
        require(!self.replied, "a second reply")?;
        self.replied = true;
        Ok(())
    }

    /// Whether REPLY has been sent or received.
    #[must_use]
    pub fn is_replied(&self) -> bool {
        self.replied
    }

    /// Whether the body that we receive has begun, so that OFFER, DATA and END are allowed.
    ///
    /// # Errors
    /// The server speaks before its reply.
    pub fn body_may_come(&self) -> Result<(), Violation> {
        require(self.role == Role::Server || self.replied, "a reply's body before the reply")
    }

    /// Whether the reply is complete, and with it the stream, whatever is left of the request's body.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.replied
            && match self.role {
                Role::Client => self.inflow.is_ended(),
                Role::Server => self.outflow.is_over(),
            }
    }
}
