//! One connection: its handshake, its input, its clock and its end.
//!
//! Fault model: the peer may be of another version, broken or malicious; the link may be cut, or silent, at any byte.
//! Whatever happens, each request of this side gets exactly one last event, and each receiver `end` or `failed`.

mod fetching;
mod handshaking;
mod receiving;
mod requests;
mod sending;
mod stream;

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSliceMut};
use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::{Duration, Instant};

use swiftlet_wire::Violation;
use swiftlet_wire::frame::{Decoder, Encoder, Found, Head, Kind};
use swiftlet_wire::handshake::{self, Denied, Limits, Refusal};
use swiftlet_wire::limits::{HANDSHAKE_MS, HEAD_BYTES};
use swiftlet_wire::liveness::{Liveness, Pulse};
use swiftlet_wire::message::{Reason, decode_region, decode_tried};

use crate::api::{Error, Guest};
use crate::around::{Around, Lent, refuse};
use crate::command::Submit;
use crate::key::Key;
use crate::link::{Carrier, Link, unless_blocked};
use crate::memory::{Region, Shown};
use crate::metrics::PeerMetrics;
use crate::outbox::Outbox;
use crate::pool::{Buffer, Pool};

pub(crate) use stream::Stream;

/// Reads in one turn, so that one busy connection does not make others wait.
const READS: usize = 8;
/// After a part of a chunk that is read directly into its memory, so many bytes more are read: enough for the head of
/// the next frame, and few enough that its data go directly into memory as well.
const SPILL_BYTES: usize = 4096;
/// Our own region's number: there is one per process.
const REGION: u32 = 1;

/// Which end of the connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// It was made to this peer.
    Client(usize),
    /// It was accepted.
    Server,
}

/// Why a connection ends.
#[derive(Debug)]
pub(crate) enum Fail {
    /// The peer closed it.
    Closed,
    Io(io::Error),
    Violation(Violation),
    Denied(Denied),
    /// The peer is silent.
    Silent,
    /// The handshake took too long.
    Slow,
    /// This process stops.
    Stopped,
    /// The peer sent BYE, and all requests are done.
    Drained,
}

impl From<Violation> for Fail {
    fn from(violation: Violation) -> Self {
        Fail::Violation(violation)
    }
}

impl From<io::Error> for Fail {
    fn from(error: io::Error) -> Self {
        Fail::Io(error)
    }
}

impl std::fmt::Display for Fail {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fail::Closed => to.write_str("the peer closed the connection"),
            Fail::Io(error) => error.fmt(to),
            Fail::Violation(violation) => violation.fmt(to),
            Fail::Denied(denied) => denied.fmt(to),
            Fail::Silent => to.write_str("the peer has sent nothing for too long"),
            Fail::Slow => to.write_str("the handshake took too long"),
            Fail::Stopped => to.write_str("this process is ending"),
            Fail::Drained => to.write_str("the peer is ending"),
        }
    }
}

enum Stage {
    Connecting,
    Welcome(handshake::Client),
    Hello(Option<Refusal>),
    Proof(handshake::Server),
    Open,
    /// Refused: when the rest has been written, it is closed.
    Refusing,
}

/// What the next bytes are.
enum Taking {
    Frame,
    /// A DATA frame's body.
    Data {
        stream: u64,
        left: usize,
    },
    /// A body inside REQUEST or REPLY; without a buffer it is dropped.
    Inline {
        head: Head,
        meta: Vec<u8>,
        buffer: Option<Buffer>,
        filled: usize,
    },
}

pub(crate) struct Connection {
    key: Key,
    pub(crate) side: Side,
    link: Box<dyn Link>,
    stage: Stage,
    born: Instant,
    encoder: Encoder,
    decoder: Decoder,
    /// The beginning of a frame whose rest has not arrived.
    partial: Vec<u8>,
    taking: Taking,
    /// Whether the last frame brought data.
    bulk: bool,
    outbox: Outbox,
    writing: bool,
    wanted_write: bool,
    dirty: bool,
    streams: HashMap<u64, Stream>,
    last_stream: u64,
    /// Streams of which data may be sent, in turn.
    ready: VecDeque<u64>,
    /// Chunks that the peer may be reading in our memory.
    lent: Lent,
    region: Option<Arc<Region>>,
    /// The memory that a guest shows: what it lends is copied from it.
    shown: Option<Arc<Shown>>,
    /// The memory from which is lent to a guest.
    guest_region: Option<Pool>,
    /// Whether chunks of our pool may be lent.
    may_lend: bool,
    /// Whether the peer has reported its trial.
    was_tried: bool,
    fetching: fetching::Fetching,
    limits: Limits,
    /// The version of the protocol that both sides speak.
    version: u16,
    /// Until then nothing is sent before it is granted.
    patient_until: Option<Instant>,
    inline_open: usize,
    /// Calls that wait until the peer accepts more.
    waiting: VecDeque<Box<Submit>>,
    liveness: Liveness,
    pub(crate) metrics: Arc<PeerMetrics>,
    pub(crate) peer_name: Arc<str>,
    /// Who the client is if it is a guest.
    guest: Option<Arc<Guest>>,
    /// Whether it counts among the connections of guests, also while its handshake is under way.
    has_guests_place: bool,
    draining: bool,
}

impl Connection {
    pub(crate) fn new(
        key: Key,
        link: Box<dyn Link>,
        side: Side,
        (peer_name, metrics): (Arc<str>, Arc<PeerMetrics>),
        around: &Around<'_>,
    ) -> Self {
        Self {
            key,
            side,
            link,
            stage: if side == Side::Server { Stage::Hello(None) } else { Stage::Connecting },
            born: around.now,
            encoder: Encoder::default(),
            decoder: Decoder::default(),
            partial: Vec::new(),
            taking: Taking::Frame,
            bulk: false,
            outbox: Outbox::default(),
            writing: true,
            wanted_write: true,
            dirty: false,
            streams: HashMap::new(),
            last_stream: 0,
            ready: VecDeque::new(),
            lent: HashMap::new(),
            region: None,
            shown: None,
            guest_region: None,
            may_lend: false,
            was_tried: false,
            fetching: fetching::Fetching::Unknown,
            limits: Limits { window_bytes: 0, lent: false, streams: 0, inline_bytes: 0 },
            version: 0,
            patient_until: None,
            inline_open: 0,
            waiting: VecDeque::new(),
            liveness: Liveness::new(around.now_ms, around.settings.silence.as_millis() as u64),
            metrics,
            peer_name,
            guest: None,
            has_guests_place: false,
            draining: false,
        }
    }

    pub(crate) fn carrier(&self) -> Carrier {
        self.link.carrier()
    }

    pub(crate) fn key(&self) -> Key {
        self.key
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.link.descriptor()
    }

    /// Whether a guest is at its other end.
    pub(crate) fn is_guests(&self) -> bool {
        self.guest.is_some()
    }

    /// Whether both ends use each other's memory. A guest on another machine never does: RDMA would show it our pool.
    fn shares_memory(&self, around: &Around<'_>) -> bool {
        let is_member_or_near = self.guest.is_none() || self.may_share_with_guest(around);
        self.link.lends() && self.limits.lent && is_member_or_near
    }

    /// Whether a guest at the other end may show us memory, and be shown some of its own.
    fn may_share_with_guest(&self, around: &Around<'_>) -> bool {
        let has_shared = around.settings.guests.as_ref().is_some_and(|guests| guests.shared.is_some());
        has_shared && self.link.lends() && self.link.card().is_none()
    }

    /// The memory from which is lent on this connection: the pool, and to a guest its own region.
    fn lending<'a>(&'a self, around: &'a Around<'_>) -> &'a Pool {
        self.guest_region.as_ref().unwrap_or(around.pool)
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    /// Whether new calls may be made on it.
    pub(crate) fn takes_calls(&self) -> bool {
        self.is_open() && !self.draining
    }

    pub(crate) fn is_busy(&self) -> bool {
        !self.streams.is_empty() || !self.waiting.is_empty() || !self.is_open()
    }

    pub(crate) fn is_drained(&self) -> bool {
        let refused = matches!(self.stage, Stage::Refusing) && self.outbox.len() == 0;
        refused || self.draining && self.streams.is_empty() && self.waiting.is_empty()
    }

    pub(crate) fn wants_write(&self) -> bool {
        self.writing
    }

    /// Whether the interest in writability has changed.
    pub(crate) fn wants_change(&mut self) -> bool {
        mem::replace(&mut self.wanted_write, self.writing) != self.writing
    }

    pub(crate) fn take_dirty(&mut self) -> bool {
        mem::take(&mut self.dirty)
    }

    /// Refuse the client as soon as it has sent HELLO.
    pub(crate) fn refuse_at_hello(&mut self, refusal: Refusal) {
        self.stage = Stage::Hello(Some(refusal));
    }

    fn frame(&mut self, kind: Kind, flags: u8, stream: u64, meta: &[&[u8]], body_bytes: usize) {
        let encoder = &mut self.encoder;
        self.outbox.append(|to| encoder.encode(to, kind, flags, stream, meta, body_bytes));
        self.dirty = true;
    }

    pub(crate) fn writable(&mut self, around: &mut Around<'_>) -> Result<(), Fail> {
        if matches!(self.stage, Stage::Connecting) {
            self.link.connected()?;
            self.greet(around)?;
        }
        self.writing = false;
        self.flush(around)
    }

    pub(crate) fn readable(&mut self, around: &mut Around<'_>, scratch: &mut [u8]) -> Result<(), Fail> {
        if matches!(self.stage, Stage::Connecting) {
            // Ready although nothing was sent: the attempt has failed.
            self.link.connected()?;
        }
        for turn in 0.. {
            if turn >= READS && !self.link.holds() {
                break;
            }
            let slot: &mut [u8] = match &self.taking {
                Taking::Data { stream, left } => {
                    self.streams.get_mut(stream).and_then(|stream| stream.slot(*left)).unwrap_or(&mut [])
                }
                _ => &mut [],
            };
            let direct = slot.len();
            // After data more data is likely: of that, too, only the head should come into the scratch.
            let bulk = direct > SPILL_BYTES || direct == 0 && mem::take(&mut self.bulk);
            let spill = if bulk { SPILL_BYTES } else { scratch.len() };
            let mut into = [IoSliceMut::new(slot), IoSliceMut::new(&mut scratch[..spill])];
            let into = if direct > 0 { &mut into[..] } else { &mut into[1..] };
            // What the link holds nobody would tell of; what it does not hold waits for the next turn.
            let read = if turn < READS { self.link.read(into) } else { self.link.read_held(into) };
            let Some(read) = unless_blocked(read)? else { break };
            if read == 0 && turn >= READS {
                break;
            }
            if read == 0 {
                return Err(Fail::Closed);
            }
            self.liveness.heard(around.now_ms);
            self.metrics.received_bytes.fetch_add(read as u64, Relaxed);
            if direct > 0 {
                self.took_data(around, read.min(direct));
            }
            if read > direct {
                self.parse(around, &scratch[..read - direct])?;
            }
            if read < direct + spill && !self.link.holds() {
                break;
            }
        }
        // What the link has to say by itself.
        self.writing |= !self.link.flush()?;
        Ok(())
    }

    fn parse(&mut self, around: &mut Around<'_>, mut bytes: &[u8]) -> Result<(), Fail> {
        loop {
            if !matches!(self.taking, Taking::Frame) {
                bytes = self.take_body(around, bytes)?;
                if !matches!(self.taking, Taking::Frame) {
                    return Ok(());
                }
                continue;
            }
            if self.partial.is_empty() {
                if bytes.is_empty() {
                    return Ok(());
                }
                match self.decoder.next(bytes)? {
                    Found::Need(_) => {
                        self.partial.extend_from_slice(bytes);
                        return Ok(());
                    }
                    Found::Frame(head, meta) => {
                        bytes = &bytes[HEAD_BYTES + head.meta_bytes..];
                        self.framed(around, head, meta)?;
                    }
                }
                continue;
            }
            let mut partial = mem::take(&mut self.partial);
            match self.decoder.next(&partial)? {
                Found::Need(needed) => {
                    let taken = (needed - partial.len()).min(bytes.len());
                    partial.extend_from_slice(&bytes[..taken]);
                    bytes = &bytes[taken..];
                    let enough = partial.len() == needed;
                    self.partial = partial;
                    if !enough {
                        return Ok(());
                    }
                }
                Found::Frame(head, meta) => self.framed(around, head, meta)?,
            }
        }
    }

    fn framed(&mut self, around: &mut Around<'_>, head: Head, meta: &[u8]) -> Result<(), Fail> {
        match head.kind {
            Kind::Hello | Kind::Welcome | Kind::Proof | Kind::Refuse => self.shake_hands(around, head.kind, meta),
            Kind::Ping => {
                self.frame(Kind::Pong, 0, 0, &[meta], 0);
                Ok(())
            }
            Kind::Pong => Ok(()),
            Kind::Bye => {
                self.draining = true;
                for submit in mem::take(&mut self.waiting) {
                    refuse(around.outcome, &submit, Error::Unreachable(Fail::Drained.to_string()));
                }
                Ok(())
            }
            Kind::Region => self.take_region(around, meta),
            Kind::Tried => self.tried(around, decode_tried(meta)?),
            _ => Ok(self.stream_frame(around, head, meta)?),
        }
    }

    fn take_region(&mut self, around: &Around<'_>, meta: &[u8]) -> Result<(), Fail> {
        let (number, bytes, card) = decode_region(meta)?;
        let expected = self.shares_memory(around) && number == REGION;
        if !expected || self.link.card().is_none() != card.is_empty() {
            return Err(Violation("a memory region that was not expected").into());
        }
        if !card.is_empty() {
            return Ok(self.meet(around, bytes, card)?);
        }
        let descriptor = self.link.detach().ok_or(Violation("a region without a descriptor"))?;
        if self.region.is_some() || self.shown.is_some() {
            return Err(Violation("a second memory region").into());
        }
        if self.is_guests() {
            self.shown = Some(Arc::new(Shown::new(descriptor, bytes)?));
            self.fetching = fetching::Fetching::Works(bytes);
            return Ok(());
        }
        self.region = Some(Arc::new(Region::foreign(descriptor, bytes)?));
        Ok(())
    }

    pub(crate) fn tick(&mut self, around: &mut Around<'_>) -> Result<(), Fail> {
        if !self.is_open() {
            let patience = Duration::from_millis(HANDSHAKE_MS).max(around.settings.silence);
            let over = around.now.saturating_duration_since(self.born) >= patience;
            return if over { Err(Fail::Slow) } else { Ok(()) };
        }
        match self.liveness.pulse(around.now_ms) {
            Pulse::Dead => return Err(Fail::Silent),
            Pulse::Ping => self.frame(Kind::Ping, 0, 0, &[&around.now_ms.to_be_bytes()], 0),
            Pulse::QuietUntil(_) => {}
        }
        let late: Vec<u64> =
            self.streams.iter().filter(|(_, stream)| stream.deadline <= around.now).map(|(id, _)| *id).collect();
        for id in late {
            self.end_stream(around, id, Reason::Deadline, Error::Deadline);
        }
        let waiting = mem::take(&mut self.waiting);
        for submit in waiting {
            if submit.deadline <= around.now {
                refuse(around.outcome, &submit, Error::Deadline);
            } else {
                self.waiting.push_back(submit);
            }
        }
        Ok(())
    }

    /// Ask a client to send no more requests.
    pub(crate) fn leave(&mut self) -> Result<(), Fail> {
        if self.is_open() && matches!(self.side, Side::Server) {
            self.frame(Kind::Bye, 0, 0, &[], 0);
        }
        Ok(())
    }

    /// Send BYE, if that is possible at once.
    pub(crate) fn goodbye(&mut self) {
        if self.is_open() {
            self.frame(Kind::Bye, 0, 0, &[], 0);
            // The process ends: a peer that does not hear it will see the socket being closed.
            let _ = self.outbox.write(&mut *self.link);
        }
    }

    /// The connection is over: tell everybody. Returns the chunks that the peer may still be reading.
    pub(crate) fn fail(&mut self, fail: &Fail, around: &mut Around<'_>) -> Lent {
        let error = Error::Lost(fail.to_string());
        if self.has_guests_place {
            around.settings.guests_open.fetch_sub(1, Relaxed);
        }
        if !matches!(fail, Fail::Drained) {
            self.metrics.connect_failures.fetch_add(1, Relaxed);
        }
        self.metrics.set_carrier(None);
        for (_, stream) in self.streams.drain() {
            stream.failed(around, &self.metrics, error.clone());
        }
        for submit in mem::take(&mut self.waiting) {
            refuse(around.outcome, &submit, Error::Unreachable(fail.to_string()));
        }
        mem::take(&mut self.lent)
    }

    /// End a request from this side: tell the peer, and the request's owner.
    fn end_stream(&mut self, around: &mut Around<'_>, id: u64, reason: Reason, error: Error) {
        let Some(stream) = self.forget(id) else { return };
        self.frame(Kind::Cancel, 0, id, &[&swiftlet_wire::message::encode_cancel(reason, "")], 0);
        stream.failed(around, &self.metrics, error);
    }

    /// Remove a stream, and what it counted for.
    fn forget(&mut self, id: u64) -> Option<Stream> {
        let stream = self.streams.remove(&id)?;
        self.inline_open -= stream.inline_bytes;
        self.give_back_unfetched(id, &stream);
        if let stream::Owner::Server { cancelled, .. } = &stream.owner {
            cancelled.store(true, Release);
        }
        Some(stream)
    }
}
