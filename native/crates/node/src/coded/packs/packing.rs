//! The packer: it makes packs of a partition's cold copies, and finishes or retires those that another one has left.
//!
//! It asks one device at a time and waits, in a thread of its caller, as nobody is in a hurry. Each of its steps is safe
//! whoever does it, and however often; which ones are needed it finds out anew each time, so that it may be ended
//! anywhere, and several may be at work.
//!
//! Fault model: that of the module above. Members that were read are compared with their checks before they are written;
//! nothing is adopted before all places have proved their fragments.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use swiftlet_fragments::Version;
use swiftlet_fragments::packs::member::{self, Packed};
use swiftlet_fragments::packs::table::{Reference, Table};
use swiftlet_fragments::packs::{Adoption, Answer, Digest, Pack, Retirement, Step, digest_of_pack};
use swiftlet_fragments::write::Verdict;
use swiftlet_store::Cold;
use swiftlet_store::model::{Key, PutMeta};
use swiftlet_transport::{Completions, What};

use super::super::places::Places;
use super::super::reading::{ReadEnd, ReadOptions, Reading};
use super::super::writing::{MOST_AT_ONCE, Room, WriteEnd, WriteOptions, Writing};
use crate::client::{Client, Failure, Fetched};
use crate::message::Request;
use crate::message::packs::{
    Listed, MAX_ADOPTED, MAX_MEMBERS_ASKED, MAX_MEMBERS_BYTES, Request as PackRequest, Told, decode_cold,
    decode_listed, decode_members,
};
use crate::status::Status;

/// How a packer works.
#[derive(Clone, Debug, Default)]
pub struct PackOptions {
    /// The time limit of each request but those below.
    pub timeout: Duration,
    /// The time limit of a pack's body, and of the proof of a fragment.
    pub body_timeout: Duration,
    /// How long a place may take to have its fragment settled after a pack was written.
    pub settle: Duration,
    /// How many places, the first ones, have small objects.
    pub holders: usize,
    /// Only copies that were written before this time are packed.
    pub before: u64,
    /// With fewer bytes no pack is made.
    pub least_bytes: u64,
    /// A pack has so many bytes at most.
    pub most_bytes: u64,
    /// Packs that are left alone: not all places could take what they have when it was tried last.
    pub skipped: BTreeSet<Digest>,
    /// Copies, with their timestamps, that were left out before: they are not read again.
    pub left_out: BTreeSet<(Digest, u64)>,
    /// The id of the requests.
    pub trace: String,
}

/// Why nothing came of it, or not all.
#[derive(Clone, Debug)]
pub enum Stopped {
    /// Its caller has ended it.
    Ended,
    /// A place has refused, or does not have its fragment: a later round goes on.
    Refused {
        /// Which place.
        place: usize,
        /// What it has said.
        told: Told,
    },
    /// A device, or too many of them, could not be asked.
    Failed(Failure),
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// What a pack has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Where its members are.
    pub table: Table,
    /// For each of them its check.
    pub checks: Vec<u64>,
}

/// What was done in a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Members of new packs.
    pub packed: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Packs that another packer had left, and that are adopted now.
    pub finished: usize,
    /// Packs that are retired now.
    pub retired: usize,
    /// Those among the retired ones that may be deleted: all places have said twice that they were retired, and that they
    /// have no reference.
    pub unused: Vec<Pack>,
    /// Packs that not all places with small objects could adopt as a whole, or that could not be finished.
    pub unfinished: Vec<Digest>,
    /// Whether all packs were looked at that are not [skipped](PackOptions::skipped): those that are not unfinished have
    /// nothing to be done.
    pub looked_at_all: bool,
    /// Cold copies that places have with other bytes: no pack has them.
    pub left_out: Vec<(Digest, u64)>,
}

/// A packer of one partition.
pub struct Packing<'a> {
    client: &'a Client,
    places: Places,
    options: PackOptions,
    /// Asked before each message: false ends it.
    go_on: &'a dyn Fn() -> bool,
}

impl<'a> Packing<'a> {
    /// A packer of the partition of these places, whichever object they are of.
    #[must_use]
    pub fn new(client: &'a Client, places: Places, options: PackOptions, go_on: &'a dyn Fn() -> bool) -> Self {
        Self { client, places, options, go_on }
    }

    /// [`run`](Self::run), and return what was done.
    ///
    /// # Errors
    /// Something is left for a later round.
    pub fn round(&self, drawn: (u64, Version)) -> Result<Done, Stopped> {
        let mut done = Done::default();
        self.run(drawn, &mut done).map(|()| done)
    }

    /// Do what there is to do: finish or retire the packs that are there, then make one of what is cold. `drawn`: 64
    /// random bits, of which those in front are the partition's, then the new pack's version.
    ///
    /// # Errors
    /// Something is left for a later round; what was done before is in `done` all the same.
    pub fn run(&self, (drawn, version): (u64, Version), done: &mut Done) -> Result<(), Stopped> {
        self.finish_all(done)?;
        let mut cold = self.gather(0)?;
        cold.retain(|one| !self.options.left_out.contains(&(one.digest, one.timestamp)));
        let is_enough = |cold: &[Cold]| cold.iter().map(|one| one.bytes).sum::<u64>() >= self.options.least_bytes;
        if !is_enough(&cold) {
            return Ok(());
        }
        done.left_out = self.leave_out(&mut cold)?;
        if !is_enough(&cold) {
            return Ok(());
        }
        let pack = Pack { version, digest: digest_of_pack(drawn) };
        if let Some(contents) = self.write(0, &cold, pack)? {
            self.prove(pack)?;
            if !is_same(&self.adopt(&contents)?) {
                done.unfinished.push(pack.digest);
            }
            done.packed = contents.table.references.len();
            done.bytes = contents.table.references.iter().map(|one| u64::from(one.length)).sum();
        }
        Ok(())
    }

    fn must_go_on(&self) -> Result<(), Stopped> {
        if (self.go_on)() { Ok(()) } else { Err(Stopped::Ended) }
    }

    fn ask(&self, place: usize, request: impl Into<Request>, timeout: Duration) -> Result<Fetched, Stopped> {
        self.must_go_on()?;
        let target = self.places.at.get(place).and_then(|device| self.places.devices.target(*device));
        let target = target.ok_or(Failure::Damaged("the ring has no such device"))?;
        Ok(self.client.ask(target, &request.into(), None, timeout)?)
    }

    fn tell(&self, place: usize, request: PackRequest, timeout: Duration) -> Result<Told, Stopped> {
        let fetched = self.ask(place, request, timeout)?;
        Ok(Told::decode(&fetched.header).map_err(Failure::from)?)
    }

    fn key(&self, place: usize, digest: Digest) -> Key {
        Key { digest, ..self.places.key(place) }
    }

    /// The oldest copies that a place has, as many as a pack may have, in the order of their digests.
    ///
    /// # Errors
    /// The device can't be asked.
    pub fn gather(&self, place: usize) -> Result<Vec<Cold>, Stopped> {
        let (key, before) = (self.key(place, [0; 16]), self.options.before);
        let request = PackRequest::Cold { key, before, most_bytes: self.options.most_bytes };
        let fetched = self.ask(place, request, self.options.timeout)?;
        Ok(decode_cold(&fetched.body).map_err(Failure::from)?)
    }

    /// Leave out copies of which another place has other bytes; returns which these are.
    ///
    /// A place adopts what it has itself. Sync brings a copy with the metadata that were posted in place of its own, so one
    /// that was brought may differ from the others for good; its pack would never be finished.
    ///
    /// # Errors
    /// A device can't be asked.
    pub fn leave_out(&self, cold: &mut Vec<Cold>) -> Result<Vec<(Digest, u64)>, Stopped> {
        let mut differing = BTreeSet::new();
        let mut rest = &cold[..];
        while !rest.is_empty() {
            let (asked, left) = rest.split_at(at_once(rest));
            rest = left;
            let first = self.members(0, asked)?;
            for place in 1..self.options.holders {
                for ((cold, mine), theirs) in asked.iter().zip(&first).zip(self.members(place, asked)?) {
                    // What it lacks it gets by sync, as a reference.
                    if !theirs.is_empty() && *mine != theirs {
                        differing.insert((cold.digest, cold.timestamp));
                    }
                }
            }
        }
        cold.retain(|one| !differing.contains(&(one.digest, one.timestamp)));
        Ok(differing.into_iter().collect())
    }

    /// Write a pack of these copies, as a place has them; None if it has none of them any more.
    ///
    /// # Errors
    /// It was not written, or it is not known to be.
    pub fn write(&self, place: usize, cold: &[Cold], pack: Pack) -> Result<Option<Contents>, Stopped> {
        let PackOptions { timeout, body_timeout, trace, .. } = self.options.clone();
        let options = WriteOptions { timeout, body_timeout, choose: timeout, lag: timeout, rows: Vec::new(), trace };
        let meta = PutMeta {
            name: name_of(self.places.key(0).policy, &pack.digest).into_bytes(),
            timestamp: pack.version.timestamp,
            sysmeta: vec![(b"pack".to_vec(), b"1".to_vec())],
            ..PutMeta::default()
        };
        let events = Completions::new().map_err(|_| Failure::Damaged("there is no room for another request"))?;
        let places = self.places.of_digest(pack.digest);
        let about = (meta, pack.version.generation);
        let writing = Writing::start(places, about, None, options, (events.clone(), 0)).map_err(Failure::Damaged)?;
        let mut contents = Contents { table: Table { pack, references: Vec::new() }, checks: Vec::new() };
        let mut offset = 0;
        let mut rest = cold;
        while !rest.is_empty() {
            let (asked, left) = rest.split_at(at_once(rest));
            rest = left;
            for (cold, bytes) in asked.iter().zip(self.members(place, asked)?) {
                let is_it = |packed: &Packed<'_>| (packed.digest, packed.timestamp) == (cold.digest, cold.timestamp);
                // It was deleted or overwritten meanwhile, or is damaged.
                let Some(check) =
                    member::check_of(&bytes).filter(|_| Packed::parse(&bytes).is_some_and(|it| is_it(&it)))
                else {
                    continue;
                };
                let length = bytes.len() as u32;
                let reference = Reference { digest: cold.digest, timestamp: cold.timestamp, offset, length };
                contents.table.references.push(reference);
                contents.checks.push(check);
                offset += u64::from(length);
                for piece in bytes.chunks(MOST_AT_ONCE) {
                    wait_for_room(&writing, &events, |writing| writing.push(piece).is_ok())?;
                }
            }
        }
        if contents.table.references.is_empty() {
            return Ok(None);
        }
        self.must_go_on()?;
        wait_for_room(&writing, &events, |writing| writing.finish(b"").is_ok())?;
        let end = loop {
            match (writing.end(), writing.turn()) {
                (Some(end), _) => break end,
                (None, Room::Later(wait)) => drop(events.wait(wait)),
                (None, _) => drop(events.wait(timeout)),
            }
        };
        if end.verdict == Verdict::Acknowledged { Ok(Some(contents)) } else { Err(not_written(&end)) }
    }

    fn members(&self, place: usize, asked: &[Cold]) -> Result<Vec<Vec<u8>>, Stopped> {
        let digests = asked.iter().map(|cold| cold.digest).collect();
        let request = PackRequest::Members { key: self.key(place, [0; 16]), digests };
        let fetched = self.ask(place, request, self.options.timeout)?;
        Ok(decode_members(&fetched.header, &fetched.body, asked.len()).map_err(Failure::from)?)
    }

    /// Have all places prove their fragments.
    ///
    /// # Errors
    /// One does not, or can't be asked.
    pub fn prove(&self, pack: Pack) -> Result<(), Stopped> {
        let mut adoption = Adoption::new(self.places.terms(), self.options.holders);
        let until = Instant::now() + self.options.settle;
        for place in 0..self.places.at.len() {
            let told = loop {
                let key = self.key(place, pack.digest);
                let request = PackRequest::Prove { key, pack: pack.version };
                let told = self.tell(place, request, self.options.body_timeout)?;
                // It may be told only now that the pack is settled.
                if told != Told::Missing || Instant::now() >= until {
                    break told;
                }
                std::thread::sleep(AGAIN);
            };
            if adoption.proved(place, answer_of(told)) == Step::GiveUp {
                return Err(Stopped::Refused { place, told });
            }
        }
        Ok(())
    }

    /// Have the places with small objects adopt a pack that all have proved; returns how many references each has.
    ///
    /// # Errors
    /// One does not, or can't be asked.
    pub fn adopt(&self, contents: &Contents) -> Result<Vec<u64>, Stopped> {
        let Table { pack, references } = &contents.table;
        let mut all = vec![0; self.options.holders];
        for (place, count) in all.iter_mut().enumerate() {
            for (references, checks) in references.chunks(MAX_ADOPTED).zip(contents.checks.chunks(MAX_ADOPTED)) {
                let table = Table { pack: *pack, references: references.to_vec() };
                let key = self.key(place, pack.digest);
                let request = PackRequest::Adopt { key, table, checks: checks.to_vec() };
                match self.tell(place, request, self.options.body_timeout)? {
                    Told::Done { references } => *count = references,
                    told => return Err(Stopped::Refused { place, told }),
                }
            }
        }
        Ok(all)
    }

    /// The packs that places have, by digest; for each what its holders have said.
    fn listed(&self) -> Result<Vec<Vec<Listed>>, Stopped> {
        let mut all: std::collections::BTreeMap<Pack, Vec<Listed>> = std::collections::BTreeMap::new();
        for place in 0..self.options.holders {
            let mut after = None;
            loop {
                let request = PackRequest::List { key: self.key(place, after.unwrap_or([0; 16])) };
                let fetched = self.ask(place, request, self.options.timeout)?;
                let (some, more) = decode_listed(&fetched.header).map_err(Failure::from)?;
                after = some.last().map(|last| last.pack.digest);
                some.into_iter().for_each(|one| all.entry(one.pack).or_default().push(one));
                if !more || after.is_none() {
                    break;
                }
            }
        }
        Ok(all.into_values().collect())
    }

    /// Finish or retire all packs; one of which that fails does not hold up the others.
    fn finish_all(&self, done: &mut Done) -> Result<(), Stopped> {
        let mut failures = Vec::new();
        for listed in self.listed()? {
            let Some(first) = listed.first().filter(|first| !self.options.skipped.contains(&first.pack.digest)) else {
                continue;
            };
            match self.finish(first.pack, &listed, done) {
                Ok(()) => {}
                Err(Stopped::Ended) => return Err(Stopped::Ended),
                Err(stopped) => {
                    done.unfinished.push(first.pack.digest);
                    failures.push(stopped);
                }
            }
            if failures.len() == MOST_FAILURES {
                break;
            }
        }
        done.looked_at_all = failures.len() < MOST_FAILURES;
        failures.into_iter().next().map_or(Ok(()), Err)
    }

    fn finish(&self, pack: Pack, listed: &[Listed], done: &mut Done) -> Result<(), Stopped> {
        let all: Vec<u64> = listed.iter().map(|one| one.references).collect();
        if listed.iter().any(|one| one.retired) {
            // With references it waits until these have moved.
            return if all.iter().all(|references| *references == 0) { self.give_up(pack, done) } else { Ok(()) };
        }
        if listed.len() == self.options.holders && is_same(&all) && all.first() != Some(&0) {
            return Ok(());
        }
        let contents = self.read(pack)?;
        self.prove(pack)?;
        let adopted = self.adopt(&contents)?;
        if adopted.iter().all(|references| *references == 0) {
            return self.give_up(pack, done);
        }
        if is_same(&adopted) {
            done.finished += 1;
        } else {
            done.unfinished.push(pack.digest);
        }
        Ok(())
    }

    /// Retire a pack to which nobody refers.
    fn give_up(&self, pack: Pack, done: &mut Done) -> Result<(), Stopped> {
        if self.retire(pack)? {
            done.retired += 1;
            done.unused.push(pack);
        }
        Ok(())
    }

    /// Delete a pack at all places, of which each has said that it is [unused](Done::unused) while it went by the ring
    /// of these places.
    ///
    /// # Errors
    /// A place can't be asked, or refuses: a later round goes on.
    pub fn delete(&self, pack: Pack, timestamp: u64) -> Result<(), Stopped> {
        let name = name_of(self.places.key(0).policy, &pack.digest).into_bytes();
        for place in 0..self.places.at.len() {
            let key = self.key(place, pack.digest);
            let request = Request::Delete { key, timestamp, name: name.clone(), row: 0 };
            match self.ask(place, request, self.options.timeout) {
                // Another packer has deleted it.
                Err(Stopped::Failed(Failure::Refused(refusal))) if refusal.status == Status::Superseded => {}
                answered => drop(answered?),
            }
        }
        Ok(())
    }

    /// What a pack has, from its own bytes.
    ///
    /// # Errors
    /// It can't be read.
    pub fn read(&self, pack: Pack) -> Result<Contents, Stopped> {
        self.must_go_on()?;
        let PackOptions { timeout, trace, .. } = self.options.clone();
        let options = ReadOptions { timeout, hedge: timeout, ahead_bytes: AHEAD_BYTES, small: false, trace };
        let events = Completions::new().map_err(|_| Failure::Damaged("there is no room for another request"))?;
        let all: Vec<usize> = (0..self.places.at.len()).collect();
        let places = self.places.of_digest(pack.digest);
        let reading = Reading::start(places, &all, 0..u64::MAX, options, (events.clone(), 0));
        let mut contents = Contents { table: Table { pack, references: Vec::new() }, checks: Vec::new() };
        let (mut held, mut offset) = (Vec::new(), 0);
        loop {
            for event in events.wait(reading.turn()) {
                match event.what {
                    What::Chunk(chunk) => {
                        held.extend_from_slice(&chunk);
                        reading.taken(chunk.len() as u64);
                        let parsed = parse_members(&held, &mut offset, &mut contents)?;
                        held.drain(..parsed);
                    }
                    What::End(_) => {
                        let is_it = reading.info().is_some_and(|info| info.version() == pack.version);
                        return match reading.end() {
                            Some(ReadEnd::Whole) if held.is_empty() && is_it => Ok(contents),
                            _ => Err(Failure::Damaged("the pack can't be read").into()),
                        };
                    }
                    _ => {}
                }
            }
        }
    }

    /// Have all places retire a pack, until all have said that it was retired before and has no references; returns whether
    /// they have.
    ///
    /// # Errors
    /// A place can't be asked.
    pub fn retire(&self, pack: Pack) -> Result<bool, Stopped> {
        let mut retirement = Retirement::new(self.places.terms());
        loop {
            let pass = retirement.pass();
            for place in 0..self.places.at.len() {
                let key = self.key(place, pack.digest);
                let request = PackRequest::Retire { key, pack: pack.version };
                let told = self.tell(place, request, self.options.timeout)?;
                match retirement.retired(pass, place, answer_of(told)) {
                    Step::Delete => return Ok(true),
                    Step::GiveUp => return Ok(false),
                    _ => {}
                }
            }
        }
    }
}

/// How long it takes to ask a place again that does not have its fragment yet.
const AGAIN: Duration = Duration::from_millis(50);
/// Packs that could not be finished after which a round does not try others.
const MOST_FAILURES: usize = 4;
/// Bytes of a pack that are read ahead.
const AHEAD_BYTES: u64 = 4 << 20;

/// Whether all places have as many references.
fn is_same(all: &[u64]) -> bool {
    all.iter().all(|references| Some(references) == all.first())
}

/// The name of a pack. Clients can't have such accounts.
fn name_of(policy: u16, digest: &Digest) -> String {
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("/.packs/{policy}/{digest}")
}

/// How many of these copies are asked for at once.
fn at_once(cold: &[Cold]) -> usize {
    let mut bytes = 0;
    let fits = cold.iter().take(MAX_MEMBERS_ASKED).take_while(|cold| {
        bytes += cold.bytes;
        bytes <= MAX_MEMBERS_BYTES as u64
    });
    fits.count().max(1)
}

fn not_written(end: &WriteEnd) -> Stopped {
    let failure = end.refused.first().map(|(_, failure)| failure.clone());
    Stopped::Failed(failure.unwrap_or(Failure::Damaged("too few devices have written the pack")))
}

/// Wait until the write takes something.
fn wait_for_room(
    writing: &Writing,
    events: &Completions,
    mut take: impl FnMut(&Writing) -> bool,
) -> Result<(), Stopped> {
    loop {
        match writing.turn() {
            Room::Over => {
                let end = writing.end();
                return Err(end.as_ref().map_or(Stopped::Ended, not_written));
            }
            Room::Later(wait) => drop(events.wait(wait)),
            Room::Now if take(writing) => return Ok(()),
            Room::Now => {}
        }
    }
}

fn answer_of(told: Told) -> Answer {
    match told {
        Told::Done { .. } => Answer::Done,
        Told::Missing => Answer::Refused,
        Told::Retired { before, references } => Answer::Retired { before, references: references as usize },
    }
}

/// Take the members that are here as a whole; returns how many bytes they are.
fn parse_members(held: &[u8], offset: &mut u64, contents: &mut Contents) -> Result<usize, Stopped> {
    let mut parsed = 0;
    while let Some(length) = member::length_of(&held[parsed..]) {
        let Some(bytes) = held[parsed..].get(..length) else { break };
        let damaged = || Stopped::Failed(Failure::Damaged("a member of the pack is damaged"));
        let packed = Packed::parse(bytes).ok_or_else(damaged)?;
        let (digest, timestamp) = (packed.digest, packed.timestamp);
        let reference = Reference { digest, timestamp, offset: *offset, length: length as u32 };
        contents.table.references.push(reference);
        contents.checks.push(member::check_of(bytes).ok_or_else(damaged)?);
        *offset += length as u64;
        parsed += length;
    }
    Ok(parsed)
}
