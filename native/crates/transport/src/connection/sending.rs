//! What is sent: offers as there is room, data as it is granted, streams in turn.

use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use swiftlet_wire::frame::{EARLY, Kind, LENT};
use swiftlet_wire::handshake::WITH_EARLY;
use swiftlet_wire::limits::{CHUNK_BYTES, EARLY_BYTES};
use swiftlet_wire::message::{Offer, Place, Reason};

use super::stream::{Item, Owner};
use super::{Connection, Fail, REGION};
use crate::api::{Error, Next};
use crate::around::Around;
use crate::pool::{Chunk, Pool};

/// The most data that is queued for the link ahead of frames of other requests.
const QUEUED_BYTES: usize = 1 << 20;
/// Bytes of one stream before the next stream's turn.
const SLICE_BYTES: usize = 1 << 20;
/// Bytes that one connection writes in one turn of the loop.
const TURN_BYTES: usize = 8 << 20;

impl Connection {
    /// Write as much as the link accepts, and give it more as long as it does.
    pub(crate) fn flush(&mut self, around: &mut Around<'_>) -> Result<(), Fail> {
        if self.writing {
            return Ok(());
        }
        let mut turn = 0;
        loop {
            self.queue_data(around);
            if self.outbox.len() == 0 {
                // The link may have taken more than it could write.
                self.writing = !self.link.flush()?;
                return Ok(());
            }
            let written = self.outbox.write(&mut *self.link)?;
            if written == 0 {
                self.writing = true;
                return Ok(());
            }
            self.liveness.said(around.now_ms);
            self.metrics.sent_bytes.fetch_add(written as u64, Relaxed);
            turn += written;
            if turn >= TURN_BYTES {
                self.dirty = true;
                return Ok(());
            }
        }
    }

    fn queue_data(&mut self, around: &mut Around<'_>) {
        while self.outbox.len() < QUEUED_BYTES {
            let Some(id) = self.ready.pop_front() else { return };
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            let (offset, sendable) = stream.flow.outflow.sendable();
            let Some(first) = stream.items.front_mut().filter(|_| sendable > 0) else {
                stream.is_ready = false;
                continue;
            };
            let granted = stream.flow.outflow.granted();
            let is_early = granted == 0;
            let sendable = if is_early { sendable } else { granted };
            let bytes = first.len().min(sendable as usize).min(SLICE_BYTES);
            let piece = first.split(bytes);
            if first.len() == 0 {
                stream.items.pop_front();
                stream.offered -= 1;
            }
            stream.flow.outflow.sent(bytes as u64);
            if is_early {
                stream.kept.push_back(piece.clone());
            } else {
                stream.left(around, bytes);
            }
            let more = stream.flow.outflow.sendable().1 > 0;
            stream.is_ready = more;
            if more {
                self.ready.push_back(id);
            }
            self.frame(Kind::Data, if is_early { EARLY } else { 0 }, id, &[&offset.to_be_bytes()], bytes);
            match piece {
                Item::Chunk(chunk) => self.outbox.push(chunk),
                Item::File(range) => self.outbox.push_file(range.file, range.offset, bytes),
            }
            self.advance(around, id);
        }
    }

    /// How much of a body may be sent before it is granted: on links that only carry bytes. Not for a while after some
    /// was dropped: the peer has no memory left, and what it drops was sent in vain.
    pub(super) fn early(&self, around: &Around<'_>) -> u64 {
        let is_late = self.patient_until.is_some_and(|until| around.now < until);
        if self.version < WITH_EARLY || self.link.lends() || is_late {
            return 0;
        }
        u64::from(self.limits.window_bytes).max(CHUNK_BYTES as u64).min(EARLY_BYTES)
    }

    /// Something has changed on the sending side of a stream: get pieces, offer, end.
    pub(super) fn advance(&mut self, around: &mut Around<'_>, id: u64) {
        if !self.offer(around, id) {
            return;
        }
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let outflow = &mut stream.flow.outflow;
        if outflow.sendable().1 > 0 && !stream.is_ready {
            stream.is_ready = true;
            self.ready.push_back(id);
            self.dirty = true;
        }
        if stream.items.is_empty()
            && !outflow.is_ended()
            && let Some(footer) = stream.footer.take()
        {
            let is_early = outflow.unconfirmed() > 0;
            outflow.end();
            self.frame(Kind::End, if is_early { EARLY } else { 0 }, id, &[&footer], 0);
            if is_early && let Some(stream) = self.streams.get_mut(&id) {
                stream.kept_footer = Some(footer);
            }
            self.finish_if_over(around, id);
        }
    }

    /// Offer what there is room for. Returns `false` if the stream is gone.
    fn offer(&mut self, around: &mut Around<'_>, id: u64) -> bool {
        let lends = self.may_lend.then(|| self.lending(around).clone());
        // More than the receiver takes at once would only lie about, and be out of the cache when its turn comes.
        let ahead = u64::from(self.limits.window_bytes).max(CHUNK_BYTES as u64);
        loop {
            let Some(stream) = self.streams.get_mut(&id) else { return false };
            if stream.items.len() == stream.offered {
                // One at a time: a source is asked only when its piece can be offered.
                let outflow = &stream.flow.outflow;
                if !outflow.has_room(CHUNK_BYTES) || outflow.in_flight() + CHUNK_BYTES as u64 > ahead {
                    return true;
                }
                match stream.source.as_mut().map_or(Next::Later, |source| source.next()) {
                    Next::Chunk(chunk) if chunk.is_empty() => continue,
                    Next::Chunk(chunk) => stream.items.push_back(Item::Chunk(chunk)),
                    Next::File(range) if range.bytes == 0 => continue,
                    Next::File(range) => stream.items.push_back(Item::File(range)),
                    Next::Later => return true,
                    Next::End(footer) => {
                        stream.source = None;
                        stream.footer = Some(footer);
                        return true;
                    }
                    Next::Failed => {
                        let error = Error::Remote(Reason::Failed, "the source of the body failed".to_owned());
                        self.end_stream(around, id, Reason::Failed, error);
                        return false;
                    }
                }
            }
            let length = stream.items[stream.offered].len();
            if length > CHUNK_BYTES {
                let error = Error::Invalid("a piece of the body is larger than the limit");
                self.end_stream(around, id, Reason::Failed, error);
                return false;
            }
            let outflow = &stream.flow.outflow;
            if !outflow.has_room(length) || outflow.in_flight() + length as u64 > ahead {
                return true;
            }
            if let Some(pool) = &lends {
                // A body is lent as a whole or sent: what can't be lent now waits for what is being sent.
                let is_answer = matches!(stream.owner, Owner::Server { .. });
                match lendable(&mut stream.items[stream.offered], is_answer, pool) {
                    Ok(true) if !stream.flow.outflow.may_lend() => return true,
                    Ok(true) => {
                        self.lend(around, id);
                        continue;
                    }
                    Ok(false) => {}
                    Err(_) => {
                        let error = Error::Remote(Reason::Failed, "a file can't be read".to_owned());
                        self.end_stream(around, id, Reason::Failed, error);
                        return false;
                    }
                }
            }
            stream.offered += 1;
            let offset = stream.flow.outflow.offer(length as u32);
            let offer = Offer { offset, length: length as u32, place: None };
            self.frame(Kind::Offer, 0, id, &[&offer.encode()], 0);
        }
    }

    /// Lend the next piece, which [`lendable`] has found to be in the pool.
    fn lend(&mut self, around: &mut Around<'_>, id: u64) {
        let region = Arc::clone(self.lending(around).region());
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Some(Item::Chunk(chunk)) = stream.items.pop_front() else { return };
        let Some(address) = chunk.address_in(&region) else { return };
        let length = chunk.len() as u32;
        let offset = stream.flow.outflow.lend(length);
        let place = Some(Place { region: REGION, address });
        self.metrics.lent_bytes.fetch_add(u64::from(length), Relaxed);
        self.lent.insert((id, offset), chunk);
        self.frame(Kind::Offer, LENT, id, &[&Offer { offset, length, place }.encode()], 0);
    }

    /// Handle DONE: the chunk is ours again.
    pub(super) fn given_back(&mut self, around: &mut Around<'_>, id: u64, offset: u64) -> bool {
        let Some(chunk) = self.lent.remove(&(id, offset)) else { return false };
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.left(around, chunk.len());
        }
        true
    }
}

/// Whether a piece is in our pool; one of a file, or of an answer, is copied into it if there is memory. That copy
/// replaces the one into the socket, and saves the receiver its own. An upload stays where it is: the memory that
/// answers are received into should not wait for slow servers.
fn lendable(item: &mut Item, is_answer: bool, pool: &Pool) -> std::io::Result<bool> {
    match item {
        Item::Chunk(chunk) if chunk.address_in(pool.region()).is_some() => Ok(true),
        Item::Chunk(_) if !is_answer => Ok(false),
        Item::Chunk(chunk) => {
            let Some(mut buffer) = pool.chunk(chunk.len()) else { return Ok(false) };
            buffer.as_mut_slice().copy_from_slice(chunk);
            *chunk = buffer.freeze(chunk.len());
            Ok(true)
        }
        Item::File(range) => {
            let bytes = range.bytes as usize;
            let Some(mut buffer) = pool.chunk(bytes) else { return Ok(false) };
            Arc::clone(&range.file).read_exact_at(buffer.as_mut_slice(), range.offset)?;
            let chunk: Chunk = buffer.freeze(bytes);
            *item = Item::Chunk(chunk);
            Ok(true)
        }
    }
}
