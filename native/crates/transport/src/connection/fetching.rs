//! Lent chunks that are brought into our memory: by RDMA, and by copying from what a guest on this machine shows.
//!
//! With RDMA nothing is lent before TRIED has reported that a trial fetch succeeded; so where RDMA does not work the connection
//! simply sends its data. The side with the smaller card tries first, and the other one when it has received the
//! outcome: UCX does not cope well with two processes that connect their devices to each other at the same moment.
//! Fault model: a fetch that fails or does not end (the link says so) breaks the connection, and the next one makes a
//! new trial. A peer that lends what it may not is disconnected.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use swiftlet_wire::frame::Kind;
use swiftlet_wire::message::{Offer, Place, encode_tried};
use swiftlet_wire::{Violation, require};

use super::stream::{Fetch, FetchStage};
use super::{Connection, Fail, REGION, Stream};
use crate::around::Around;
use crate::command::Command;
use crate::link::Carrier;
use crate::pool::Buffer;

/// What is known of the peer's region, and its size in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fetching {
    Unknown,
    /// The peer tries first. Its card.
    Waiting(u64, Vec<u8>),
    Trying(u64),
    Works(u64),
    Fails,
}

impl Stream {
    /// The length of the chunk for which memory is needed now, by either way.
    pub(super) fn wanted(&self) -> Option<u32> {
        let mut waiting = self.fetches.iter().filter(|fetch| matches!(fetch.stage, FetchStage::Waiting));
        match waiting.next() {
            Some(next) => Some(next.length).filter(|length| self.flow.inflow.may_fetch(*length)),
            // What is sent comes behind what is fetched.
            None if self.fetches.is_empty() => self.flow.inflow.wanted(),
            None => None,
        }
    }
}

impl Connection {
    /// Handle the peer's card.
    pub(super) fn meet(&mut self, around: &Around<'_>, bytes: u64, card: &[u8]) -> Result<(), Violation> {
        require(self.fetching == Fetching::Unknown, "a second memory region")?;
        if self.link.card().is_some_and(|ours| ours < card) || self.was_tried {
            self.start_trial(around, bytes, card);
        } else {
            self.fetching = Fetching::Waiting(bytes, card.to_vec());
        }
        Ok(())
    }

    fn start_trial(&mut self, around: &Around<'_>, bytes: u64, card: &[u8]) {
        self.fetching = Fetching::Trying(bytes);
        let (shared, key) = (around.shared.clone(), self.key);
        self.link.meet(card, Box::new(move |result| shared.post(Command::Met(key, result))));
    }

    /// Handle the result of the trial: whether the peer's memory can be fetched.
    pub(crate) fn met(&mut self, result: &io::Result<()>) -> Result<(), Fail> {
        let Fetching::Trying(bytes) = self.fetching else { return Ok(()) };
        self.frame(Kind::Tried, 0, 0, &[&encode_tried(REGION, result.is_ok())], 0);
        if result.is_ok() {
            self.fetching = Fetching::Works(bytes);
            self.metrics.set_carrier(Some(Carrier::Rdma));
        } else {
            self.fetching = Fetching::Fails;
            self.metrics.fallbacks.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// Handle TRIED: whether the peer can fetch from our region. It is our turn now, if it was not before.
    pub(super) fn tried(&mut self, around: &Around<'_>, (region, works): (u32, bool)) -> Result<(), Fail> {
        let expected = self.link.card().is_some() && self.shares_memory(around) && region == REGION && !self.was_tried;
        require(expected, "a trial of a memory region that was not announced")?;
        self.was_tried = true;
        if works {
            self.may_lend = true;
            self.metrics.set_carrier(Some(Carrier::Rdma));
        }
        if let Fetching::Waiting(bytes, card) = &self.fetching {
            let (bytes, card) = (*bytes, card.clone());
            self.start_trial(around, bytes, &card);
        }
        Ok(())
    }

    pub(super) fn offered_to_fetch(
        &mut self,
        around: &mut Around<'_>,
        id: u64,
        offer: &Offer,
        place: Place,
    ) -> Result<(), Violation> {
        let Fetching::Works(bytes) = self.fetching else {
            return Err(Violation("a memory region that was not announced"));
        };
        let end = place.address.checked_add(u64::from(offer.length));
        require(place.region == REGION && end.is_some_and(|end| end <= bytes), "a chunk outside of its region")?;
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.takes_body()) else {
            self.frame(Kind::Done, 0, id, &[&offer.offset.to_be_bytes()], 0);
            return Ok(());
        };
        let Offer { offset, length, .. } = *offer;
        stream.fetches.push_back(Fetch { offset, length, address: place.address, stage: FetchStage::Waiting });
        self.want(around, id);
        Ok(())
    }

    /// Fetch the next chunk into this memory, which is returned if there is none to fetch.
    pub(super) fn start_fetch(&mut self, around: &Around<'_>, id: u64, buffer: Buffer) -> Option<Buffer> {
        let Some(stream) = self.streams.get_mut(&id) else { return Some(buffer) };
        let waiting = stream.fetches.iter_mut().find(|fetch| matches!(fetch.stage, FetchStage::Waiting));
        let Some(fetch) = waiting else { return Some(buffer) };
        fetch.stage = FetchStage::Flying;
        stream.flow.inflow.fetch(fetch.length);
        let (shared, key, offset) = (around.shared.clone(), self.key, fetch.offset);
        let then = Box::new(move |result| shared.post(Command::Fetched(key, id, offset, result)));
        match &self.shown {
            Some(shown) => around.settings.copies.copy(shown, fetch.address, buffer, then),
            None => self.link.fetch(fetch.address, buffer, then),
        }
        None
    }

    /// A chunk was fetched, or can't be.
    pub(crate) fn fetched(
        &mut self,
        around: &mut Around<'_>,
        id: u64,
        offset: u64,
        result: io::Result<Buffer>,
    ) -> Result<(), Fail> {
        let buffer = result?;
        self.frame(Kind::Done, 0, id, &[&offset.to_be_bytes()], 0);
        self.metrics.fetched_bytes.fetch_add(buffer.len() as u64, Relaxed);
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let Some(fetch) = stream.fetches.iter_mut().find(|fetch| fetch.offset == offset) else { return Ok(()) };
        stream.flow.inflow.returned(fetch.length);
        fetch.stage = FetchStage::Here(buffer);
        while let Some(stream) = self.streams.get_mut(&id)
            && let Some(fetch) = stream.fetches.pop_front()
        {
            let FetchStage::Here(buffer) = fetch.stage else {
                stream.fetches.push_front(fetch);
                break;
            };
            let hook = self.hook(around, id, fetch.offset, fetch.length, false);
            self.deliver(around, id, buffer.freeze_with(fetch.length as usize, Some(hook)));
        }
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.fetches.is_empty()
            && let Some(footer) = stream.end_ahead.take()
        {
            self.body_ended(around, id, &footer)?;
        }
        self.want(around, id);
        Ok(())
    }

    /// A stream is over: return the chunks whose fetch has not begun. A chunk that is being fetched is returned when
    /// it has arrived.
    pub(super) fn give_back_unfetched(&mut self, id: u64, stream: &Stream) {
        for fetch in stream.fetches.iter().filter(|fetch| matches!(fetch.stage, FetchStage::Waiting)) {
            self.frame(Kind::Done, 0, id, &[&fetch.offset.to_be_bytes()], 0);
        }
    }
}
