//! A partition's fragments in a checkpoint, see `docs/volumes.md`.

use std::collections::HashMap;
use std::sync::Arc;

use swiftlet_erasure::MAX_CELLS;
use swiftlet_fragments::{Accepted, Ballot, Device, Outcome, Version};

use crate::index::Partition;
use crate::post::Post;
use crate::record::{Place, State, u32_at, u64_at};
use crate::versions::{Bytes, Floor, Kept, Said, Spot, Versions};

/// What follows of a fragment, or of a version, as bits.
const FLOOR: u8 = 1;
const FLOOR_RECORD: u8 = 2;
const POST: u8 = 4;
const BYTES: u8 = 1;
const DAMAGED: u8 = 2;
const PROMISED: u8 = 4;
const ACCEPTED: u8 = 8;
const DECIDED: u8 = 16;

/// The lists of chosen devices, each once, and all fragments of which anything but a deletion is held.
pub(super) fn pack(partition: &Partition) -> Vec<u8> {
    let mut held: Vec<(&[u8; 16], &Versions)> = partition.fragments().collect();
    held.sort_unstable_by_key(|(digest, _)| *digest);
    let mut lists: Vec<&Arc<[Device]>> = Vec::new();
    let mut numbers: HashMap<&Arc<[Device]>, u32> = HashMap::new();
    for kept in held.iter().flat_map(|(_, versions)| &versions.kept) {
        numbers.entry(&kept.chosen).or_insert_with(|| {
            lists.push(&kept.chosen);
            lists.len() as u32 - 1
        });
    }
    let mut out = Vec::new();
    out.extend((lists.len() as u32).to_be_bytes());
    for list in lists {
        out.push(list.len() as u8);
        for device in list.iter() {
            out.extend(device.number.to_be_bytes());
            out.extend(device.incarnation.to_be_bytes());
        }
    }
    out.extend((held.len() as u32).to_be_bytes());
    for (digest, versions) in held {
        out.extend(digest);
        put_head(&mut out, versions);
        out.extend((versions.kept.len() as u16).to_be_bytes());
        for kept in &versions.kept {
            put_version(&mut out, kept.version);
            out.extend(numbers[&kept.chosen].to_be_bytes());
            put_kept(&mut out, kept);
        }
    }
    out
}

fn put_version(out: &mut Vec<u8>, version: Version) {
    out.extend(version.timestamp.to_be_bytes());
    out.extend(version.generation.to_be_bytes());
}

fn put_spot(out: &mut Vec<u8>, spot: Spot) {
    out.extend(spot.place.0.to_be_bytes());
    out.extend(spot.units.to_be_bytes());
    out.extend(spot.at_s.to_be_bytes());
    out.extend(spot.sequence.to_be_bytes());
}

fn put_ballot(out: &mut Vec<u8>, ballot: Ballot) {
    out.extend(ballot.round.to_be_bytes());
    out.extend(ballot.nonce.to_be_bytes());
}

/// What is settled, and the POST.
fn put_head(out: &mut Vec<u8>, versions: &Versions) {
    let record = versions.floor.and_then(|floor| floor.spot);
    let bits = [(versions.floor.is_some(), FLOOR), (record.is_some(), FLOOR_RECORD), (versions.post.is_some(), POST)];
    out.push(bits.iter().filter(|(there, _)| *there).map(|(_, bit)| bit).sum());
    if let Some(floor) = versions.floor {
        put_version(out, floor.version);
        out.extend(floor.returned.to_be_bytes());
        record.iter().for_each(|spot| put_spot(out, *spot));
    }
    if let Some(post) = versions.post {
        for field in [post.timestamp, post.content_type_timestamp, post.place.0, post.delete_at] {
            out.extend(field.to_be_bytes());
        }
        out.extend(post.units.to_be_bytes());
    }
}

fn put_kept(out: &mut Vec<u8>, kept: &Kept) {
    let Said { damaged, promised, accepted, decided } = kept.said.as_deref().copied().unwrap_or_default();
    let bits = [
        (kept.bytes.is_some(), BYTES),
        (damaged.is_some(), DAMAGED),
        (promised.is_some(), PROMISED),
        (accepted.is_some(), ACCEPTED),
        (decided.is_some(), DECIDED),
    ];
    out.push(bits.iter().filter(|(there, _)| *there).map(|(_, bit)| bit).sum());
    if let Some(bytes) = kept.bytes {
        put_spot(out, bytes.spot);
        out.extend(bytes.large.to_be_bytes());
        out.extend(bytes.delete_at.to_be_bytes());
        out.push(bytes.state as u8);
    }
    damaged.iter().for_each(|((), spot)| put_spot(out, *spot));
    if let Some((ballot, spot)) = promised {
        put_ballot(out, ballot);
        put_spot(out, spot);
    }
    if let Some((accepted, spot)) = accepted {
        put_ballot(out, accepted.ballot);
        put_outcome(out, accepted.outcome);
        put_spot(out, spot);
    }
    if let Some((outcome, spot)) = decided {
        put_outcome(out, outcome);
        put_spot(out, spot);
    }
}

fn put_outcome(out: &mut Vec<u8>, outcome: Outcome) {
    out.push(u8::from(outcome == Outcome::Commit));
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, size: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(size)?;
        self.0 = rest;
        Some(head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|raw| raw[0])
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4).map(|raw| u32_at(raw, 0))
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8).map(|raw| u64_at(raw, 0))
    }

    fn version(&mut self) -> Option<Version> {
        Some(Version { timestamp: self.u64()?, generation: self.u64()? })
    }

    fn spot(&mut self) -> Option<Spot> {
        let (place, units, at_s) = (Place(self.u64()?), self.u32()?, self.u32()?);
        Some(Spot { place, units, at_s, sequence: self.u64()? })
    }

    fn ballot(&mut self) -> Option<Ballot> {
        Some(Ballot { round: self.u32()?, nonce: self.u64()? })
    }

    fn outcome(&mut self) -> Option<Outcome> {
        match self.u8()? {
            0 => Some(Outcome::Abort),
            1 => Some(Outcome::Commit),
            _ => None,
        }
    }

    fn list(&mut self) -> Option<Arc<[Device]>> {
        let count = usize::from(self.u8()?);
        if count > MAX_CELLS {
            return None;
        }
        (0..count).map(|_| Some(Device { number: self.u32()?, incarnation: self.u64()? })).collect()
    }

    /// What is settled, and the POST; a version of the checkpoint from before POSTs has none.
    fn head(&mut self) -> Option<(Option<Floor>, Option<Post>)> {
        let bits = self.u8()?;
        if bits > FLOOR | FLOOR_RECORD | POST || bits & (FLOOR | FLOOR_RECORD) == FLOOR_RECORD {
            return None;
        }
        let (mut floor, mut post) = (None, None);
        if bits & FLOOR != 0 {
            let (version, returned) = (self.version()?, self.u64()?);
            let spot = if bits & FLOOR_RECORD == 0 { None } else { Some(self.spot()?) };
            floor = Some(Floor { version, spot, returned });
        }
        if bits & POST != 0 {
            let (timestamp, content_type_timestamp) = (self.u64()?, self.u64()?);
            let (place, delete_at) = (Place(self.u64()?), self.u64()?);
            post = Some(Post { timestamp, content_type_timestamp, place, units: self.u32()?, delete_at });
        }
        Some((floor, post))
    }

    fn kept(&mut self, lists: &[Arc<[Device]>]) -> Option<Kept> {
        let version = self.version()?;
        let chosen = Arc::clone(lists.get(self.u32()? as usize)?);
        let bits = self.u8()?;
        if bits > BYTES | DAMAGED | PROMISED | ACCEPTED | DECIDED {
            return None;
        }
        let mut kept = Kept { version, chosen, bytes: None, said: None };
        let mut said = Said::default();
        if bits & BYTES != 0 {
            let (spot, large, delete_at) = (self.spot()?, self.u64()?, self.u64()?);
            kept.bytes = Some(Bytes { spot, large, delete_at, state: State::of(self.u8()?.into())? });
        }
        if bits & DAMAGED != 0 {
            said.damaged = Some(((), self.spot()?));
        }
        if bits & PROMISED != 0 {
            said.promised = Some((self.ballot()?, self.spot()?));
        }
        if bits & ACCEPTED != 0 {
            let accepted = Accepted { ballot: self.ballot()?, outcome: self.outcome()? };
            said.accepted = Some((accepted, self.spot()?));
        }
        if bits & DECIDED != 0 {
            said.decided = Some((self.outcome()?, self.spot()?));
        }
        kept.said = (said != Said::default()).then(|| Box::new(said));
        Some(kept)
    }
}

/// Put them into a partition; None if they are not as they are written.
pub(super) fn unpack(raw: &[u8], partition: &mut Partition) -> Option<()> {
    let mut cursor = Cursor(raw);
    let lists: Vec<Arc<[Device]>> = (0..cursor.u32()?).map(|_| cursor.list()).collect::<Option<_>>()?;
    let mut last: Option<[u8; 16]> = None;
    for _ in 0..cursor.u32()? {
        let digest: [u8; 16] = *cursor.take(16)?.first_chunk()?;
        if last.replace(digest).is_some_and(|last| last >= digest) || partition.get(&digest).is_some() {
            return None;
        }
        let (floor, post) = cursor.head()?;
        let count = cursor.take(2).map(|raw| u16::from_be_bytes([raw[0], raw[1]]))?;
        let kept = (0..count).map(|_| cursor.kept(&lists)).collect::<Option<_>>()?;
        let versions = Versions { floor, kept, post };
        if !versions.is_sound() {
            return None;
        }
        partition.set_versions(&digest, versions);
    }
    partition.know_lists(lists);
    cursor.0.is_empty().then_some(())
}
