//! The begin and end of requests: at the client when they are submitted and replied to, at the server when they arrive
//! and are answered.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use swiftlet_wire::Violation;
use swiftlet_wire::frame::{END, Head, Kind};
use swiftlet_wire::limits::INLINE_BYTES;
use swiftlet_wire::message::{Reason, Reply, Request, UNKNOWN_SIZE, encode_cancel};
use swiftlet_wire::stream::Role;

use super::stream::{Item, Owner};
use super::{Connection, Fail, Stream};
use crate::api::{Answer, Body, Error, Incoming, What};
use crate::around::{Around, refuse};
use crate::command::Submit;
use crate::handles::Responder;
use crate::pool::Chunk;

/// The method that the transport itself answers, with the request's own content: to measure a peer, or to see whether
/// it is there.
pub(crate) const PROBE: u16 = 0;

/// The body inside its message, if it is small.
fn inline(body: Body, around: &Around<'_>) -> Result<Option<Chunk>, Body> {
    match body {
        Body::Empty => Ok(None),
        Body::Chunk(chunk) if chunk.len() <= INLINE_BYTES => Ok(Some(chunk)),
        Body::File(range) if range.bytes <= INLINE_BYTES as u64 => {
            use std::os::unix::fs::FileExt as _;
            let bytes = range.bytes as usize;
            let buffer = around.pool.small(bytes);
            let read = buffer.and_then(|mut buffer| {
                range.file.read_exact_at(buffer.as_mut_slice(), range.offset).ok().map(|()| buffer.freeze(bytes))
            });
            // Without memory, or with a file that can't be read, the long way tells what is the matter.
            read.map(Some).ok_or(Body::File(range))
        }
        body => Err(body),
    }
}

impl Connection {
    /// Make a call on this connection; it waits if the peer accepts no more.
    pub(crate) fn submit(&mut self, around: &mut Around<'_>, submit: Box<Submit>) -> Result<(), Fail> {
        if self.waiting.len() >= around.settings.max_waiting {
            refuse(around.outcome, &submit, Error::Overloaded);
            return Ok(());
        }
        self.waiting.push_back(submit);
        self.start_waiting(around);
        Ok(())
    }

    /// Begin waiting calls as far as the peer accepts them.
    pub(crate) fn start_waiting(&mut self, around: &mut Around<'_>) {
        while let Some(first) = self.waiting.front()
            && self.streams.len() < self.limits.streams as usize
        {
            let bytes = first.call.body.bytes().filter(|_| first.upload.is_none()).unwrap_or(0);
            let inline = if bytes <= INLINE_BYTES as u64 { bytes as usize } else { 0 };
            // One request may always be made, else a large one would wait for ever.
            if self.inline_open > 0 && self.inline_open + inline > self.limits.inline_bytes as usize {
                return;
            }
            if let Some(submit) = self.waiting.pop_front() {
                self.begin(around, *submit);
            }
        }
    }

    fn begin(&mut self, around: &mut Around<'_>, submit: Submit) {
        let Submit { stream: id, deadline, mut call, upload, sink, token, queued, pieces, end, .. } = submit;
        let left = deadline.saturating_duration_since(around.now).as_millis().clamp(1, u128::from(u32::MAX));
        let body = std::mem::take(&mut call.body);
        let body_bytes = upload.unwrap_or(body.wire_bytes());
        let request = Request {
            method: call.method,
            deadline_ms: left as u32,
            body_bytes,
            trace: &call.trace,
            header: &call.header,
        };
        let meta = request.encode();
        let owner = Owner::Client { token, sink, begun: around.now, queued };
        let whole = if upload.is_some() { Err(Body::Empty) } else { inline(body, around) };
        let inline_bytes = whole.as_ref().ok().and_then(Option::as_ref).map_or(0, Chunk::len);
        let window = u64::from(around.settings.window_bytes);
        let mut stream = Stream::new(Role::Client, (window, self.early(around)), owner, deadline, inline_bytes);
        self.inline_open += inline_bytes;
        self.last_stream = self.last_stream.max(id);
        self.metrics.requests.fetch_add(1, Relaxed);
        match whole {
            Ok(body) => {
                stream.flow.outflow.end();
                self.frame(Kind::Request, END, id, &[&meta, &call.header], inline_bytes);
                self.outbox.extend(body);
                self.streams.insert(id, stream);
            }
            Err(body) => {
                if upload.is_none() {
                    stream.source = Some(body.into_source(call.footer));
                }
                stream.items.extend(pieces.into_iter().map(Item::Chunk));
                stream.footer = end;
                self.frame(Kind::Request, 0, id, &[&meta, &call.header], 0);
                self.streams.insert(id, stream);
                self.advance(around, id);
            }
        }
    }

    /// The next piece of an upload.
    pub(crate) fn push(&mut self, around: &mut Around<'_>, id: u64, chunk: Chunk) -> Result<(), Fail> {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.items.push_back(Item::Chunk(chunk));
            self.advance(around, id);
        } else if let Some(submit) = self.waiting.iter_mut().find(|submit| submit.stream == id) {
            submit.pieces.push_back(chunk);
        }
        Ok(())
    }

    /// The end of an upload.
    pub(crate) fn finish(&mut self, around: &mut Around<'_>, id: u64, footer: Vec<u8>) -> Result<(), Fail> {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.footer = Some(footer);
            self.advance(around, id);
        } else if let Some(submit) = self.waiting.iter_mut().find(|submit| submit.stream == id) {
            submit.end = Some(footer);
        }
        Ok(())
    }

    /// Cancel a call for its caller.
    pub(crate) fn cancel(&mut self, around: &mut Around<'_>, id: u64) -> Result<(), Fail> {
        if let Some(at) = self.waiting.iter().position(|submit| submit.stream == id) {
            if let Some(submit) = self.waiting.remove(at) {
                refuse(around.outcome, &submit, Error::Cancelled);
            }
        } else {
            self.end_stream(around, id, Reason::Cancelled, Error::Cancelled);
        }
        Ok(())
    }

    /// Handle REPLY, with its small body if it has one. `complete`: there was memory for the body.
    pub(super) fn reply(
        &mut self,
        around: &mut Around<'_>,
        head: &Head,
        meta: &[u8],
        body: Option<Chunk>,
        complete: bool,
    ) -> Result<(), Violation> {
        let id = head.stream;
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let reply = Reply::decode(meta)?;
        stream.flow.reply()?;
        if !complete {
            self.end_stream(around, id, Reason::NoMemory, Error::NoMemory);
            return Ok(());
        }
        let whole = head.has(END);
        if whole {
            stream.flow.inflow.end()?;
        }
        let (status, header) = (reply.status, reply.header.to_vec());
        let body_bytes = Some(reply.body_bytes).filter(|bytes| *bytes != UNKNOWN_SIZE);
        stream.event(around, What::Reply { status, header, body_bytes, body, whole });
        self.finish_if_over(around, id);
        Ok(())
    }

    pub(super) fn finish_if_over(&mut self, around: &mut Around<'_>, id: u64) {
        if self.streams.get(&id).is_some_and(|stream| stream.flow.is_over())
            && let Some(stream) = self.forget(id)
        {
            stream.succeeded(around, &self.metrics);
        }
    }

    /// Handle REQUEST, with its small body if it has one. `complete`: there was memory for the body.
    pub(super) fn request(
        &mut self,
        around: &mut Around<'_>,
        head: &Head,
        meta: &[u8],
        body: Option<Chunk>,
        complete: bool,
    ) -> Result<(), Violation> {
        let id = head.stream;
        if id <= self.last_stream {
            return Err(Violation("a request with the number of another one"));
        }
        self.last_stream = id;
        let request = Request::decode(meta)?;
        self.metrics.requests.fetch_add(1, Relaxed);
        if request.method == PROBE && head.has(END) && complete {
            let bytes = body.as_ref().map_or(0, Chunk::len);
            let meta = Reply { status: 0, body_bytes: bytes as u64, header: request.header }.encode();
            self.frame(Kind::Reply, END, id, &[&meta, request.header], bytes);
            self.outbox.extend(body);
            return Ok(());
        }
        let settings = around.settings;
        let limits = settings.guest_limits(false).filter(|_| self.is_guests()).unwrap_or(settings.limits(false));
        let inline_bytes = body.as_ref().map_or(0, Chunk::len);
        let too_many = self.streams.len() >= limits.streams as usize
            || self.inline_open > 0 && self.inline_open + inline_bytes > limits.inline_bytes as usize;
        let refusal = match around.handler {
            _ if too_many => Some(Reason::Overloaded),
            _ if !complete => Some(Reason::NoMemory),
            None => Some(Reason::Failed),
            Some(_) => None,
        };
        let (Some(handler), None) = (around.handler, refusal) else {
            self.metrics.errors.fetch_add(1, Relaxed);
            self.frame(Kind::Cancel, 0, id, &[&encode_cancel(refusal.unwrap_or(Reason::Failed), "")], 0);
            return Ok(());
        };

        let deadline = around.now + Duration::from_millis(u64::from(request.deadline_ms));
        let cancelled = Arc::new(AtomicBool::new(false));
        let incoming = Incoming {
            peer: Arc::clone(&self.peer_name),
            guest: self.guest.clone(),
            method: request.method,
            deadline,
            trace: request.trace.to_owned(),
            header: request.header.to_vec(),
            body: if head.has(END) { Some(body.unwrap_or_else(|| Chunk::from(Vec::new()))) } else { None },
            body_bytes: Some(request.body_bytes).filter(|bytes| *bytes != UNKNOWN_SIZE),
        };
        let responder = Responder {
            shared: Arc::clone(around.shared),
            connection: self.key,
            stream: id,
            cancelled: Arc::clone(&cancelled),
            lends: self.may_lend.then(|| self.lending(around).clone()),
            answered: false,
        };
        let mut receiver = handler.request(incoming, responder);
        let window = u64::from(limits.window_bytes);
        if head.has(END) {
            receiver = None;
        }
        let owner = Owner::Server { receiver, cancelled, begun: around.now };
        let mut stream = Stream::new(Role::Server, (window, self.early(around)), owner, deadline, inline_bytes);
        if head.has(END) {
            stream.flow.inflow.end()?;
        }
        self.inline_open += inline_bytes;
        self.streams.insert(id, stream);
        Ok(())
    }

    /// The handler's answer.
    pub(crate) fn answer(&mut self, around: &mut Around<'_>, id: u64, answer: Answer) -> Result<(), Fail> {
        let Answer { status, header, body, footer } = answer;
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        stream.flow.reply()?;
        let meta = Reply { status, body_bytes: body.wire_bytes(), header: &header }.encode();
        match inline(body, around) {
            Ok(body) => {
                stream.flow.outflow.end();
                let bytes = body.as_ref().map_or(0, Chunk::len);
                self.frame(Kind::Reply, END, id, &[&meta, &header], bytes);
                self.outbox.extend(body);
                self.finish_if_over(around, id);
            }
            Err(body) => {
                stream.source = Some(body.into_source(footer));
                self.frame(Kind::Reply, 0, id, &[&meta, &header], 0);
                self.advance(around, id);
            }
        }
        Ok(())
    }

    /// The handler dropped the request.
    pub(crate) fn abandon(&mut self, around: &mut Around<'_>, id: u64) -> Result<(), Fail> {
        let error = Error::Remote(Reason::Failed, "the server did not answer the request".to_owned());
        self.end_stream(around, id, Reason::Failed, error);
        Ok(())
    }

    /// A source has more.
    pub(crate) fn refill(&mut self, around: &mut Around<'_>, id: u64) -> Result<(), Fail> {
        self.advance(around, id);
        Ok(())
    }
}
