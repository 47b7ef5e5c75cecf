//! What is received on streams: bodies, into memory that was waited for, and the frames that control them.

use std::time::Duration;

use swiftlet_wire::frame::{AGAIN, EARLY, END, Head, Kind, LENT};
use swiftlet_wire::message::{self, Offer, Reason};
use swiftlet_wire::{Violation, require};

use super::stream::Owner;
use super::{Connection, Fail, Side, Taking};
use crate::api::{Error, What};
use crate::around::Around;
use crate::command::Command;
use crate::pool::{Buffer, Chunk, Hook, HookOf};

/// The number of no stream: what is received for it is dropped.
const NOBODY: u64 = 0;
/// For so long nothing is sent early on a connection whose peer has dropped something.
const AFTER_DROPPED: Duration = Duration::from_secs(1);

impl Connection {
    /// Put bytes of a body where they belong, as far as they go. Returns what follows them.
    pub(super) fn take_body<'a>(&mut self, around: &mut Around<'_>, mut bytes: &'a [u8]) -> Result<&'a [u8], Fail> {
        match std::mem::replace(&mut self.taking, Taking::Frame) {
            Taking::Frame => {}
            Taking::Data { stream, left } => {
                self.taking = Taking::Data { stream, left };
                while let Taking::Data { stream, left } = self.taking
                    && !bytes.is_empty()
                {
                    let slot = self.streams.get_mut(&stream).and_then(|stream| stream.slot(left));
                    // Of a stream that is over the rest is dropped.
                    let taken = slot.as_ref().map_or(left, |slot| slot.len()).min(bytes.len());
                    if let Some(slot) = slot {
                        slot[..taken].copy_from_slice(&bytes[..taken]);
                    }
                    bytes = &bytes[taken..];
                    self.took_data(around, taken);
                }
            }
            Taking::Inline { head, meta, mut buffer, mut filled } => {
                let taken = (head.body_bytes - filled).min(bytes.len());
                if let Some(buffer) = &mut buffer {
                    buffer.as_mut_slice()[filled..filled + taken].copy_from_slice(&bytes[..taken]);
                }
                bytes = &bytes[taken..];
                filled += taken;
                if filled < head.body_bytes {
                    self.taking = Taking::Inline { head, meta, buffer, filled };
                } else {
                    let body = buffer.map(|buffer| buffer.freeze(filled));
                    self.message(around, &head, &meta, body)?;
                }
            }
        }
        Ok(bytes)
    }

    /// So many bytes of a DATA frame are where they belong.
    pub(super) fn took_data(&mut self, around: &mut Around<'_>, bytes: usize) {
        let Taking::Data { stream: id, left } = &mut self.taking else { return };
        *left -= bytes;
        let id = *id;
        if *left == 0 {
            self.taking = Taking::Frame;
        }
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| !stream.fills.is_empty()) else { return };
        stream.filled += bytes;
        let Some((offset, length)) = stream.flow.inflow.received(bytes as u32) else { return };
        stream.filled = 0;
        let Some(buffer) = stream.fills.pop_front() else { return };
        let hook = self.hook(around, id, offset, length, false);
        self.deliver(around, id, buffer.freeze_with(length as usize, Some(hook)));
    }

    pub(super) fn hook(&self, around: &Around<'_>, stream: u64, offset: u64, bytes: u32, lent: bool) -> Hook {
        let of = HookOf { connection: self.key, stream, offset, bytes, lent };
        Hook { whom: around.shared.clone(), of }
    }

    pub(super) fn deliver(&mut self, around: &mut Around<'_>, id: u64, chunk: Chunk) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        match &mut stream.owner {
            Owner::Client { .. } => stream.event(around, What::Chunk(chunk)),
            Owner::Server { receiver, .. } => {
                if let Some(receiver) = receiver {
                    receiver.chunk(chunk);
                }
            }
        }
    }

    /// The last reference to a received chunk was dropped.
    pub(crate) fn released(&mut self, around: &mut Around<'_>, hook: &HookOf) -> Result<(), Fail> {
        if hook.lent {
            self.frame(Kind::Done, 0, hook.stream, &[&hook.offset.to_be_bytes()], 0);
        }
        if let Some(stream) = self.streams.get_mut(&hook.stream) {
            let inflow = &mut stream.flow.inflow;
            if hook.lent {
                inflow.returned(hook.bytes)
            } else {
                inflow.released(hook.bytes)
            }
            self.want(around, hook.stream);
        }
        Ok(())
    }

    /// Get memory for offered chunks, as far as the window allows, and grant them.
    pub(super) fn want(&mut self, around: &mut Around<'_>, id: u64) {
        while let Some(stream) = self.streams.get_mut(&id)
            && stream.takes_body()
            && !stream.waits_for_memory
            && let Some(length) = stream.wanted()
        {
            if let Some(buffer) = around.pool.chunk(length as usize) {
                self.use_memory(around, id, buffer);
                continue;
            }
            stream.waits_for_memory = true;
            let (shared, key) = (around.shared.clone(), self.key);
            let then = move |buffer| shared.post(Command::Memory(key, id, buffer));
            around.pool.chunk_later(length as usize, stream.deadline, Box::new(then));
        }
    }

    /// There is memory for the next chunk: have it fetched, or sent.
    fn use_memory(&mut self, around: &Around<'_>, id: u64, buffer: Buffer) {
        if let Some(buffer) = self.start_fetch(around, id, buffer) {
            self.grant(id, buffer);
        }
    }

    fn grant(&mut self, id: u64, buffer: Buffer) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let (upto, again) = stream.flow.inflow.grant();
        stream.fills.push_back(buffer);
        self.frame(Kind::Grant, if again { AGAIN } else { 0 }, id, &[&upto.to_be_bytes()], 0);
    }

    /// Memory that was waited for is available; or its deadline is over, which is the stream's too.
    pub(crate) fn memory(&mut self, around: &mut Around<'_>, id: u64, buffer: Option<Buffer>) -> Result<(), Fail> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        stream.waits_for_memory = false;
        if let Some(buffer) = buffer {
            self.use_memory(around, id, buffer);
            self.want(around, id);
        }
        Ok(())
    }

    pub(super) fn stream_frame(&mut self, around: &mut Around<'_>, head: Head, meta: &[u8]) -> Result<(), Violation> {
        let id = head.stream;
        if matches!(head.kind, Kind::Request | Kind::Reply) {
            return self.message_begins(around, head, meta);
        }
        if id > self.last_stream {
            return Err(Violation("a frame of a stream that was never begun"));
        }
        match head.kind {
            Kind::Data => self.data(id, &head, message::decode_number(meta)?),
            Kind::Offer => self.offered(around, id, &Offer::decode(meta, head.has(LENT))?),
            Kind::Done => {
                let offset = message::decode_number(meta)?;
                if !self.given_back(around, id, offset) {
                    return Err(Violation("a chunk that was returned but not lent"));
                }
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.flow.outflow.done(offset)?;
                    self.advance(around, id);
                }
                Ok(())
            }
            Kind::Grant => {
                let upto = message::decode_number(meta)?;
                let again = head.has(AGAIN);
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.granted(around, upto, again)?;
                    if again {
                        self.patient_until = Some(around.now + AFTER_DROPPED);
                    }
                    self.advance(around, id);
                    self.finish_if_over(around, id);
                }
                Ok(())
            }
            Kind::End => {
                let footer = message::decode_footer(meta)?;
                let is_dropped =
                    self.streams.get(&id).is_some_and(|stream| stream.flow.inflow.drops_end(head.has(EARLY)));
                if is_dropped { Ok(()) } else { self.body_ended(around, id, footer) }
            }
            Kind::Cancel => {
                let (reason, text) = message::decode_cancel(meta)?;
                if let Some(stream) = self.forget(id) {
                    let error = if self.side == Side::Server && reason == Reason::Cancelled {
                        Error::Cancelled
                    } else if reason == Reason::Deadline {
                        Error::Deadline
                    } else {
                        Error::Remote(reason, text.to_owned())
                    };
                    stream.failed(around, &self.metrics, error);
                }
                Ok(())
            }
            _ => Err(Violation("a frame at the wrong time")),
        }
    }

    fn data(&mut self, id: u64, head: &Head, offset: u64) -> Result<(), Violation> {
        let mut into = id;
        if let Some(stream) = self.streams.get_mut(&id) {
            require(stream.end_ahead.is_none(), "data after the end")?;
            if !stream.flow.inflow.admit(offset, head.body_bytes as u64, head.has(EARLY))? {
                into = NOBODY;
            }
        }
        if head.body_bytes > 0 {
            self.bulk = true;
            self.taking = Taking::Data { stream: into, left: head.body_bytes };
        }
        Ok(())
    }

    fn offered(&mut self, around: &mut Around<'_>, id: u64, offer: &Offer) -> Result<(), Violation> {
        if let Some(stream) = self.streams.get_mut(&id) {
            require(stream.end_ahead.is_none(), "an offer after the end")?;
            stream.flow.body_may_come()?;
            stream.flow.inflow.offer(offer)?;
        }
        let Some(place) = offer.place else {
            self.want(around, id);
            return Ok(());
        };
        if self.link.card().is_some() || self.shown.is_some() {
            return self.offered_to_fetch(around, id, offer, place);
        }
        let region = self.region.as_ref().filter(|_| place.region == super::REGION);
        let region = region.ok_or(Violation("a memory region that was not announced"))?.clone();
        let end = place.address.checked_add(u64::from(offer.length));
        if end.is_none_or(|end| end > region.bytes() as u64) {
            return Err(Violation("a chunk outside of its region"));
        }
        // Of a stream that is over it is let go of at once, and so given back.
        let hook = self.hook(around, id, offer.offset, offer.length, true);
        let chunk = Chunk::foreign(region, place.address as usize, offer.length as usize, hook);
        self.deliver(around, id, chunk);
        Ok(())
    }

    pub(super) fn body_ended(&mut self, around: &mut Around<'_>, id: u64, footer: &[u8]) -> Result<(), Violation> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        stream.flow.body_may_come()?;
        require(stream.end_ahead.is_none(), "a second end of a body")?;
        if !stream.fetches.is_empty() {
            stream.end_ahead = Some(footer.to_vec());
            return Ok(());
        }
        stream.flow.inflow.end()?;
        match &mut stream.owner {
            Owner::Client { .. } => stream.event(around, What::End(footer.to_vec())),
            Owner::Server { receiver, .. } => {
                if let Some(mut receiver) = receiver.take() {
                    receiver.end(footer);
                }
            }
        }
        self.finish_if_over(around, id);
        Ok(())
    }

    /// REQUEST or REPLY: its small body is received first.
    fn message_begins(&mut self, around: &mut Around<'_>, head: Head, meta: &[u8]) -> Result<(), Violation> {
        if head.body_bytes == 0 {
            return self.message(around, &head, meta, None);
        }
        debug_assert!(head.has(END));
        let buffer = around.pool.small(head.body_bytes);
        self.taking = Taking::Inline { head, meta: meta.to_vec(), buffer, filled: 0 };
        Ok(())
    }

    fn message(
        &mut self,
        around: &mut Around<'_>,
        head: &Head,
        meta: &[u8],
        body: Option<Chunk>,
    ) -> Result<(), Violation> {
        let complete = body.is_some() || head.body_bytes == 0;
        match (head.kind, self.side) {
            (Kind::Request, Side::Server) => self.request(around, head, meta, body, complete),
            (Kind::Reply, Side::Client(_)) => self.reply(around, head, meta, body, complete),
            _ => Err(Violation("a message that only the other side may send")),
        }
    }
}
