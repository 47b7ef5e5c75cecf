//! What a new pack gets: cold copies, and the members of older packs that somebody still refers to, in the order of their
//! digests.
//!
//! An older pack is read from its beginning to its end as any object is, a few megabytes ahead. Of each batch of its
//! members the places with small objects are asked which ones they refer to, so no more than a batch of each pack is held.
//! Of two versions of an object, which places that have missed a write may have, the newer one is taken; a member before a
//! copy of the same version, since places that have it in a pack would not all take the bytes of the copy.
//!
//! Fault model: that of the packer. Each member proves itself; one to which somebody begins to refer, or that somebody
//! overwrites, while it is gathered, is none of the places' that adopt the new pack, and the older pack keeps its reference.

use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use swiftlet_fragments::packs::member::{self, Packed};
use swiftlet_fragments::packs::table::{MAX_MEMBERS, Reference, Table};
use swiftlet_fragments::packs::{Digest, Pack};
use swiftlet_store::{Cold, Referred};
use swiftlet_transport::{Completions, What};

use super::super::reading::{ReadEnd, ReadOptions, Reading};
use super::packer::{Contents, Packing, Stopped};
use crate::client::Failure;
use crate::message::packs::{
    MAX_MEMBERS_ASKED, MAX_MEMBERS_BYTES, Request as PackRequest, decode_members, decode_references,
};

/// Bytes of a pack that are read ahead.
const AHEAD_BYTES: u64 = 4 << 20;

/// A member that is sound, and the bytes that it has in a pack.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) digest: Digest,
    timestamp: u64,
    bytes: Vec<u8>,
}

impl Taken {
    fn of(bytes: &[u8]) -> Option<Self> {
        let Packed { digest, timestamp, .. } = Packed::parse(bytes)?;
        Some(Self { digest, timestamp, bytes: bytes.to_vec() })
    }

    /// The bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Contents {
    /// A pack without members.
    pub(super) fn of(pack: Pack) -> Self {
        Self { table: Table { pack, references: Vec::new() }, checks: Vec::new() }
    }

    /// The member comes next in the pack.
    pub(super) fn push(&mut self, taken: &Taken) -> Result<(), Stopped> {
        let offset = self.table.references.last().map_or(0, |last| last.offset + u64::from(last.length));
        let (digest, timestamp, length) = (taken.digest, taken.timestamp, taken.bytes.len() as u32);
        self.checks.push(member::check_of(&taken.bytes).ok_or_else(damaged)?);
        self.table.references.push(Reference { digest, timestamp, offset, length });
        Ok(())
    }

    /// Bytes of all members.
    pub(super) fn bytes(&self) -> u64 {
        self.table.references.iter().map(|one| u64::from(one.length)).sum()
    }
}

fn damaged() -> Stopped {
    Failure::Damaged("a member of the pack is damaged").into()
}

/// The members of a pack, one after the other, from its own bytes.
pub(super) struct Members {
    pack: Pack,
    reading: Reading,
    events: Arc<Completions>,
    held: Vec<u8>,
    /// How many bytes of what is held were given.
    given: usize,
    is_over: bool,
}

impl Members {
    pub(super) fn of(packing: &Packing<'_>, pack: Pack) -> Result<Self, Stopped> {
        packing.must_go_on()?;
        let (timeout, trace) = (packing.options.timeout, packing.options.trace.clone());
        let options = ReadOptions { timeout, hedge: None, sound: 0, ahead_bytes: AHEAD_BYTES, small: false, trace };
        let events = Completions::new().map_err(|_| Failure::Damaged("there is no room for another request"))?;
        let all: Vec<usize> = (0..packing.places.at.len()).collect();
        let places = packing.places.of_digest(pack.digest);
        let reading = Reading::start(places, &all, 0..u64::MAX, options, (events.clone(), 0));
        Ok(Self { pack, reading, events, held: Vec::new(), given: 0, is_over: false })
    }

    /// The next one; none behind the last one.
    ///
    /// # Errors
    /// The pack can't be read to its end, or has something else.
    pub(super) fn next(&mut self) -> Result<Option<Taken>, Stopped> {
        loop {
            let rest = &self.held[self.given..];
            if let Some(bytes) = member::length_of(rest).and_then(|length| rest.get(..length)) {
                let taken = Taken::of(bytes).ok_or_else(damaged)?;
                self.given += bytes.len();
                return Ok(Some(taken));
            }
            if self.is_over {
                return if rest.is_empty() { Ok(None) } else { Err(damaged()) };
            }
            for event in self.events.wait(self.reading.turn()) {
                match event.what {
                    What::Chunk(chunk) => {
                        self.held.drain(..std::mem::take(&mut self.given));
                        self.held.extend_from_slice(&chunk);
                        self.reading.taken(chunk.len() as u64);
                    }
                    What::End(_) => {
                        let is_it = self.reading.info().is_some_and(|info| info.version() == self.pack.version);
                        if self.reading.end() != Some(ReadEnd::Whole) || !is_it {
                            return Err(Failure::Damaged("the pack can't be read").into());
                        }
                        self.is_over = true;
                    }
                    _ => {}
                }
            }
        }
    }
}

enum Source {
    /// Copies at the packer's place that are still to be asked for.
    Copies(VecDeque<Cold>),
    /// A pack, and whether it has no more members.
    Pack(Box<Members>, bool),
}

impl Source {
    /// What comes next, at least one member; nothing behind the last one.
    fn more(&mut self, packing: &Packing<'_>) -> Result<VecDeque<Taken>, Stopped> {
        loop {
            let (found, is_over) = match self {
                Self::Copies(rest) => {
                    let count = at_once(rest.make_contiguous());
                    let asked: Vec<Cold> = rest.drain(..count).collect();
                    (packing.copies(&asked)?, rest.is_empty())
                }
                Self::Pack(_, true) => (VecDeque::new(), true),
                Self::Pack(members, is_over) => {
                    let mut batch = Vec::new();
                    let mut bytes = 0;
                    while batch.len() < MAX_MEMBERS_ASKED && bytes < MAX_MEMBERS_BYTES {
                        let Some(taken) = members.next()? else {
                            *is_over = true;
                            break;
                        };
                        bytes += taken.bytes.len();
                        batch.push(taken);
                    }
                    let referred = packing.referred(members.pack, &batch)?;
                    batch.retain(|taken| referred.contains(&taken.digest));
                    (batch.into(), *is_over)
                }
            };
            if is_over || !found.is_empty() {
                return Ok(found);
            }
        }
    }
}

/// What a new pack gets, in its order.
pub(super) struct Gathering<'a> {
    packing: &'a Packing<'a>,
    sources: Vec<(Source, VecDeque<Taken>)>,
    /// How many bytes and members there is room for.
    room: (u64, usize),
}

impl<'a> Gathering<'a> {
    /// Copies of the packer's place, and what is referred to of these packs; so many bytes at most.
    pub(super) fn new(
        packing: &'a Packing<'a>,
        cold: Vec<Cold>,
        olds: impl Iterator<Item = Pack>,
        most_bytes: u64,
    ) -> Result<Self, Stopped> {
        let mut olds: Vec<Pack> = olds.collect();
        olds.sort_unstable_by_key(|pack| Reverse(*pack));
        let packs = olds.into_iter().map(|pack| Ok(Source::Pack(Box::new(Members::of(packing, pack)?), false)));
        let mut sources = packs.collect::<Result<Vec<Source>, Stopped>>()?;
        sources.push(Source::Copies(cold.into()));
        let sources = sources.into_iter().map(|source| (source, VecDeque::new())).collect();
        Ok(Self { packing, sources, room: (most_bytes, MAX_MEMBERS) })
    }

    /// The next member; none behind the last one, or if there is no room for it.
    ///
    /// # Errors
    /// Something can't be read.
    pub(super) fn next(&mut self) -> Result<Option<Taken>, Stopped> {
        for (source, ready) in self.sources.iter_mut().filter(|(_, ready)| ready.is_empty()) {
            *ready = source.more(self.packing)?;
        }
        let first = |ready: &VecDeque<Taken>| ready.front().map(|taken| (taken.digest, Reverse(taken.timestamp)));
        let all = self.sources.iter().enumerate().filter_map(|(number, (_, ready))| Some((first(ready)?, number)));
        let Some(((digest, _), chosen)) = all.min() else { return Ok(None) };
        let mut next = None;
        for (number, (_, ready)) in self.sources.iter_mut().enumerate() {
            let same = ready.front().is_some_and(|taken| taken.digest == digest);
            let taken = if same { ready.pop_front() } else { None };
            next = if number == chosen { taken } else { next };
        }
        let bytes = next.as_ref().map_or(0, |taken| taken.bytes.len() as u64);
        match (self.room.0.checked_sub(bytes), self.room.1.checked_sub(1)) {
            (Some(bytes), Some(members)) => {
                self.room = (bytes, members);
                Ok(next)
            }
            _ => Ok(None),
        }
    }
}

/// How many of these copies are asked for at once.
pub(super) fn at_once(cold: &[Cold]) -> usize {
    let mut bytes = 0;
    let fits = cold.iter().take(MAX_MEMBERS_ASKED).take_while(|cold| {
        bytes += cold.bytes;
        bytes <= MAX_MEMBERS_BYTES as u64
    });
    fits.count().max(1).min(cold.len())
}

impl Packing<'_> {
    /// Copies as members, as a place has them; empty ones are not there.
    pub(super) fn members(&self, place: usize, asked: &[Cold]) -> Result<Vec<Vec<u8>>, Stopped> {
        let digests = asked.iter().map(|cold| cold.digest).collect();
        let request = PackRequest::Members { key: self.key(place, [0; 16]), digests };
        let fetched = self.ask(place, request, self.options.timeout)?;
        Ok(decode_members(&fetched.header, &fetched.body, asked.len()).map_err(Failure::from)?)
    }

    /// Copies of the packer's place, without those that were deleted or overwritten meanwhile, or are damaged.
    fn copies(&self, asked: &[Cold]) -> Result<VecDeque<Taken>, Stopped> {
        if asked.is_empty() {
            return Ok(VecDeque::new());
        }
        let found = self.members(0, asked)?;
        let is_it = |taken: &Taken, cold: &Cold| (taken.digest, taken.timestamp) == (cold.digest, cold.timestamp);
        let found = found.iter().zip(asked).filter_map(|(bytes, cold)| Taken::of(bytes).filter(|it| is_it(it, cold)));
        Ok(found.collect())
    }

    /// Which of these members of a pack any place with small objects refers to.
    fn referred(&self, pack: Pack, members: &[Taken]) -> Result<BTreeSet<Digest>, Stopped> {
        let mut found = BTreeSet::new();
        for place in 0..self.options.holders {
            let mut rest: Vec<Digest> = members.iter().map(|taken| taken.digest).collect();
            rest.retain(|digest| !found.contains(digest));
            let all = self.references(place, rest)?;
            found.extend(all.iter().filter(|one| one.pack == pack).map(|one| one.reference.digest));
        }
        Ok(found)
    }

    fn references(&self, place: usize, mut digests: Vec<Digest>) -> Result<Vec<Referred>, Stopped> {
        let mut all: Vec<Referred> = Vec::new();
        while !digests.is_empty() {
            let request = PackRequest::References { key: self.key(place, [0; 16]), digests: digests.clone() };
            let fetched = self.ask(place, request, self.options.timeout)?;
            let some = decode_references(&fetched.body).map_err(Failure::from)?;
            // What has no room in an answer is left out, and asked for once more.
            let last = some.last().filter(|_| fetched.body.len() > MAX_MEMBERS_BYTES / 2);
            let answered = last.and_then(|last| digests.iter().position(|digest| *digest == last.reference.digest));
            digests.drain(..answered.map_or(digests.len(), |at| at + 1));
            all.extend(some);
        }
        Ok(all)
    }
}
