//! The packer: it makes packs of a partition's cold copies, writes those anew of which little is referred to, and finishes
//! or retires those that another one has left.
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
use swiftlet_fragments::packs::share::{Use, to_rewrite};
use swiftlet_fragments::packs::table::{MAX_MEMBER_BYTES, Table};
use swiftlet_fragments::packs::{Adoption, Answer, Digest, Pack, Retirement, Step, digest_of_pack};
use swiftlet_fragments::write::Verdict;
use swiftlet_store::Cold;
use swiftlet_store::model::PutMeta;
use swiftlet_transport::Completions;

use super::super::writing::{MOST_AT_ONCE, Room, WriteEnd, WriteOptions, Writing};
use super::gathering::{Gathering, Members, at_once};
use super::packer::{Contents, PackOptions, Packing, Stopped};
use crate::client::Failure;
use crate::message::Request;
use crate::message::packs::{Listed, MAX_ADOPTED, Request as PackRequest, Told, decode_cold, decode_listed};
use crate::status::Status;

/// The packs of a partition, as they were before anything was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Packs to which somebody refers.
    pub packs: usize,
    /// Their bytes.
    pub size: u64,
    /// Bytes of members to which the place refers that refers to most of them.
    pub live: u64,
    /// Packs of which less than the live share is referred to, and that were not written anew.
    pub below: usize,
}

/// What was done in a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Members of new packs.
    pub packed: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Packs of which all that is referred to was read, and is in a new pack.
    pub rewritten: usize,
    /// Their bytes.
    pub reread: u64,
    /// The packs that were there.
    pub seen: Seen,
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
    /// Cold copies that places have with other bytes, so that no pack has them: those that were known and are still there,
    /// and new ones.
    pub left_out: Vec<(Digest, u64)>,
}

impl Packing<'_> {
    /// [`run`](Self::run), and return what was done.
    ///
    /// # Errors
    /// Something is left for a later round.
    pub fn round(&self, drawn: (u64, Version)) -> Result<Done, Stopped> {
        let mut done = Done::default();
        self.run(drawn, &mut done).map(|()| done)
    }

    /// Do what there is to do: finish or retire the packs that are there, then make one of what is cold and of what is
    /// left of packs below the live share. `drawn`: 64 random bits, of which those in front are the partition's, then the
    /// new pack's version.
    ///
    /// # Errors
    /// Something is left for a later round; what was done before is in `done` all the same.
    pub fn run(&self, (drawn, version): (u64, Version), done: &mut Done) -> Result<(), Stopped> {
        let listed = self.listed()?;
        self.finish_all(&listed, done)?;
        let olds = self.below_share(&listed, &mut done.seen);
        let room = olds.iter().fold(self.options.most_bytes, |room, old| room.saturating_sub(old.live));
        let mut cold = self.gather_new(room, done)?;
        let is_enough = |cold: &[Cold]| {
            !olds.is_empty() || cold.iter().map(|one| one.bytes).sum::<u64>() >= self.options.least_bytes
        };
        if !is_enough(&cold) {
            return Ok(());
        }
        done.left_out.extend(self.leave_out(&mut cold)?);
        if !is_enough(&cold) {
            return Ok(());
        }
        // References to the later one of two packs count, whatever the clock says that the packer goes by.
        let after = olds.iter().map(|old| old.pack.version.timestamp.saturating_add(1)).max().unwrap_or(0);
        let version = Version { timestamp: version.timestamp.max(after), ..version };
        let pack = Pack { version, digest: digest_of_pack(drawn) };
        let most_bytes = olds.iter().map(|old| old.size).fold(self.options.most_bytes, u64::max);
        let mut gathering = Gathering::new(self, cold, olds.iter().map(|old| old.pack), most_bytes)?;
        if let Some(contents) = self.write(&mut gathering, pack)? {
            drop(gathering);
            self.prove(pack)?;
            let adopted = self.adopt(&contents)?;
            let (members, most) = (contents.table.references.len(), adopted.iter().copied().max().unwrap_or(0));
            // One that is below the share itself is left alone for a while, or it would be written again and again.
            if !is_same(&adopted) || (most as f64) < self.options.live_share * members as f64 {
                done.unfinished.push(pack.digest);
            }
            (done.packed, done.bytes) = (members, contents.bytes());
        }
        self.retire_rewritten(&olds, done)
    }

    /// The oldest copies that the first place has, but for those that were left out before: these are noted.
    fn gather_new(&self, room: u64, done: &mut Done) -> Result<Vec<Cold>, Stopped> {
        let known = &self.options.left_out;
        if room == 0 {
            done.left_out = known.iter().copied().collect();
            return Ok(Vec::new());
        }
        let mut most_bytes = room;
        loop {
            let all = self.gather(0, most_bytes)?;
            let total: u64 = all.iter().map(|one| one.bytes).sum();
            let (out, cold): (Vec<Cold>, Vec<Cold>) =
                all.into_iter().partition(|one| known.contains(&(one.digest, one.timestamp)));
            let in_the_way = room + out.iter().map(|one| one.bytes).sum::<u64>();
            // Those that are left out are the oldest ones: they may be all that there was room for.
            if total + LARGEST_RECORD <= most_bytes || in_the_way <= most_bytes {
                done.left_out = out.iter().map(|one| (one.digest, one.timestamp)).collect();
                return Ok(cold);
            }
            most_bytes = in_the_way;
        }
    }

    /// The packs that are to be written anew.
    fn below_share(&self, listed: &[Vec<Listed>], seen: &mut Seen) -> Vec<Use> {
        let uses: Vec<Use> = listed.iter().filter_map(|listed| use_of(listed)).collect();
        let share = self.options.live_share;
        let mut olds = uses.clone();
        olds.retain(|one| !self.options.skipped.contains(&one.pack.digest));
        let olds = to_rewrite(&olds, share, self.options.most_bytes);
        let is_left = |one: &&Use| one.is_below(share) && !olds.contains(one);
        *seen = Seen {
            packs: uses.iter().filter(|one| one.references > 0).count(),
            size: uses.iter().filter(|one| one.references > 0).map(|one| one.size).sum(),
            live: uses.iter().map(|one| one.live).sum(),
            below: uses.iter().filter(is_left).count(),
        };
        olds
    }

    /// Retire packs that were written anew, if nobody refers to them any more. Where somebody does, a place could not adopt
    /// the new one as a whole: the next round goes on.
    fn retire_rewritten(&self, olds: &[Use], done: &mut Done) -> Result<(), Stopped> {
        if olds.is_empty() {
            return Ok(());
        }
        (done.rewritten, done.reread) = (olds.len(), olds.iter().map(|old| old.size).sum());
        for listed in self.listed()? {
            let Some(now) = use_of(&listed).filter(|now| olds.iter().any(|old| old.pack == now.pack)) else { continue };
            if now.references == 0 {
                self.give_up(now.pack, done)?;
            } else {
                done.unfinished.push(now.pack.digest);
            }
        }
        Ok(())
    }

    /// The oldest copies that a place has, as many as a pack may have, with so many bytes at most, in the order of their
    /// digests.
    ///
    /// # Errors
    /// The device can't be asked.
    pub fn gather(&self, place: usize, most_bytes: u64) -> Result<Vec<Cold>, Stopped> {
        let (key, before) = (self.key(place, [0; 16]), self.options.before);
        let request = PackRequest::Cold { key, before, most_bytes };
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

    /// Write a pack of what is gathered; None if that is nothing any more.
    ///
    /// # Errors
    /// It was not written, or it is not known to be.
    fn write(&self, gathering: &mut Gathering<'_>, pack: Pack) -> Result<Option<Contents>, Stopped> {
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
        let mut contents = Contents::of(pack);
        while let Some(taken) = gathering.next()? {
            contents.push(&taken)?;
            for piece in taken.bytes().chunks(MOST_AT_ONCE) {
                wait_for_room(&writing, &events, |writing| writing.push(piece).is_ok())?;
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

    /// The packs that places have, the latest one first; for each what its holders have said.
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
        Ok(all.into_values().rev().collect())
    }

    /// Finish or retire all packs, the latest one first: what a place adopts of it, it no longer has in earlier ones. One
    /// that fails does not hold up the others.
    fn finish_all(&self, all: &[Vec<Listed>], done: &mut Done) -> Result<(), Stopped> {
        let mut failures = Vec::new();
        for listed in all {
            let Some(first) = listed.first().filter(|first| !self.options.skipped.contains(&first.pack.digest)) else {
                continue;
            };
            match self.finish(first.pack, listed, done) {
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
            // What is referred to is moved into a new pack, as of one below the live share.
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
            done.unfinished.retain(|digest| *digest != pack.digest);
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
        // Later than the pack and what has retired it, whatever the clock says that the packer goes by.
        let timestamp = timestamp.max(pack.version.timestamp.saturating_add(2));
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
        let mut members = Members::of(self, pack)?;
        let mut contents = Contents::of(pack);
        while let Some(taken) = members.next()? {
            contents.push(&taken)?;
        }
        Ok(contents)
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
/// No record of a copy that a pack may have takes more bytes: of its member, header, and what fills it up.
const LARGEST_RECORD: u64 = MAX_MEMBER_BYTES as u64 + 1024;
/// Packs that could not be finished after which a round does not try others.
const MOST_FAILURES: usize = 4;

/// Whether all places have as many references.
fn is_same(all: &[u64]) -> bool {
    all.iter().all(|references| Some(references) == all.first())
}

/// How much of a pack is referred to, by what its holders have said.
fn use_of(listed: &[Listed]) -> Option<Use> {
    let most = |number: fn(&Listed) -> u64| listed.iter().map(number).max().unwrap_or(0);
    Some(Use {
        pack: listed.first()?.pack,
        retired: listed.iter().any(|one| one.retired),
        references: most(|one| one.references),
        live: most(|one| one.live),
        size: most(|one| one.size),
    })
}

/// The name of a pack. Clients can't have such accounts.
fn name_of(policy: u16, digest: &Digest) -> String {
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("/.packs/{policy}/{digest}")
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
