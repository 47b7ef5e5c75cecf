//! Packs of small objects: what a place does about them, and how a packer goes on.
//!
//! `docs/design/2026-11-29-packs.md` has the protocol and says why it is as it is. A pack is a coded object of the
//! partition whose small objects it holds. A place that *adopts* it replaces its fragments of these objects by
//! references, each only if the version that the pack has is the one that is here. A pack that is *retired* gets no
//! references any more, and is deleted when no place has one.
//!
//! Fault model: that of the crate. Packers stop at any moment, and several may be at work.

pub mod member;
pub mod share;
pub mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::terms::Terms;
use crate::version::Version;

/// The name's digest of an object.
pub type Digest = [u8; 16];

/// The digest of a pack: 64 bits that were drawn, those of its partition in front, and a digest of them. So who has only
/// digests knows packs by theirs: another object has such a one by a chance of 2^-64.
#[must_use]
pub fn digest_of_pack(drawn: u64) -> Digest {
    let mut digest = [0; 16];
    let (front, back) = digest.split_at_mut(8);
    front.copy_from_slice(&drawn.to_be_bytes());
    back.copy_from_slice(&mark_of(front).to_be_bytes());
    digest
}

/// Whether a digest is that of a pack.
#[must_use]
pub fn is_pack(digest: &Digest) -> bool {
    let (front, back) = digest.split_at(8);
    *back == mark_of(front).to_be_bytes()
}

fn mark_of(front: &[u8]) -> u64 {
    swiftlet_hash::xxh3_64(&[b"swiftlet pack", front].concat())
}

/// A pack. Of two that have the same version of an object the later one counts, so that packs may be adopted in any
/// order, and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pack {
    /// Its own version, by which packs are ordered.
    pub version: Version,
    /// Its digest, which is drawn within the partition.
    pub digest: Digest,
}

/// An object in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// The object.
    pub digest: Digest,
    /// The version whose bytes the pack has. It counts for certain.
    pub version: Version,
}

/// What a place has of an object whose newest version is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// The version, or a deletion.
    pub version: Version,
    /// Whether a fragment of it is here.
    pub fragment: bool,
    /// The pack that has its bytes.
    pub reference: Option<Pack>,
}

/// What a place has of a pack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Its fragment is here, and settled.
    pub fragment: bool,
    /// It gets no references any more.
    pub retired: bool,
    /// It was deleted.
    pub deleted: bool,
}

/// What a place has of a partition, as far as packs are concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    objects: BTreeMap<Digest, Object>,
    packs: BTreeMap<Pack, Own>,
}

/// What becomes durable in one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A version was settled with its fragment, or the object was deleted.
    Settled(Member),
    /// The fragment of a pack was settled, or made from others; it is retired if one of these was.
    Stored {
        /// The pack.
        pack: Pack,
        /// Whether it is retired.
        retired: bool,
    },
    /// References replace fragments.
    Adopted {
        /// The pack.
        pack: Pack,
        /// The versions that it has and that are here.
        members: Vec<Member>,
    },
    /// A place that lacked the object takes a reference from another place.
    Learned {
        /// The pack.
        pack: Pack,
        /// The version.
        member: Member,
    },
    /// The pack gets no references any more.
    Retired(Pack),
    /// The pack is deleted.
    Deleted(Pack),
    /// The fragment of the pack is damaged.
    Damaged(Pack),
    /// A deletion is older than `reclaim_age`.
    Forgotten(Digest),
}

/// What a place is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// By a packer: read the fragment of the pack back from the device.
    Prove(Pack),
    /// By a packer to which all places have proved their fragments.
    Adopt {
        /// The pack.
        pack: Pack,
        /// What it has.
        members: Arc<[Member]>,
    },
    /// By a packer whose newer packs have all that counts: let it get no references any more, and say how many it has.
    Retire(Pack),
    /// By a packer to which all places have said that they have none.
    Delete(Pack),
    /// By the place itself, to which another place has shown a reference to what is missing here.
    Learn {
        /// The pack.
        pack: Pack,
        /// The version.
        member: Member,
    },
}

/// What a place answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is as was asked for, and durable.
    Done,
    /// It is retired.
    Retired {
        /// Whether it was before this was asked.
        before: bool,
        /// How many references to it are here.
        references: usize,
    },
    /// The pack is not here, or gets no references any more, or has some.
    Refused,
}

impl Holdings {
    /// What is here of an object.
    #[must_use]
    pub fn object(&self, digest: &Digest) -> Option<&Object> {
        self.objects.get(digest)
    }

    /// What is here of a pack.
    #[must_use]
    pub fn own(&self, pack: &Pack) -> Own {
        self.packs.get(pack).copied().unwrap_or_default()
    }

    /// The packs of which something is known here.
    pub fn packs(&self) -> impl Iterator<Item = (Pack, Own)> {
        self.packs.iter().map(|(pack, own)| (*pack, *own))
    }

    /// Objects and deletions.
    pub fn objects(&self) -> impl Iterator<Item = (Digest, Object)> {
        self.objects.iter().map(|(digest, object)| (*digest, *object))
    }

    /// The references to a pack.
    pub fn references(&self, pack: Pack) -> impl Iterator<Item = Member> {
        let members = self.objects().filter(move |(_, object)| object.reference == Some(pack));
        members.map(|(digest, object)| Member { digest, version: object.version })
    }

    /// Whether a member of a pack is here in the same version, and not in a later pack.
    fn is_replaced(&self, member: Member, by: Pack) -> bool {
        self.objects.get(&member.digest).is_some_and(|object| {
            object.version == member.version
                && object.reference < Some(by)
                && (object.fragment || object.reference.is_some())
        })
    }

    /// Whether the bytes of the object's version are missing here.
    fn is_missing(&self, member: Member) -> bool {
        match self.objects.get(&member.digest) {
            None => true,
            Some(object) if object.version == member.version => !object.fragment && object.reference.is_none(),
            Some(object) => object.version < member.version,
        }
    }

    /// Take a change in.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Settled(member) => {
                let fragment = !member.version.is_deletion();
                let object = Object { version: member.version, fragment, reference: None };
                let held = self.objects.entry(member.digest).or_insert(object);
                if held.version < member.version || (held.version == member.version && held.reference.is_none()) {
                    *held = object;
                }
            }
            Change::Stored { pack, retired } => {
                let own = self.packs.entry(*pack).or_default();
                own.fragment = !own.deleted;
                own.retired |= *retired;
            }
            Change::Adopted { pack, members } => {
                for member in members.iter().filter(|member| self.is_replaced(**member, *pack)).collect::<Vec<_>>() {
                    self.refer(*member, *pack);
                }
            }
            Change::Learned { pack, member } => {
                if self.is_missing(*member) {
                    self.refer(*member, *pack);
                }
            }
            Change::Retired(pack) => self.packs.entry(*pack).or_default().retired = true,
            Change::Deleted(pack) => {
                self.packs.insert(*pack, Own { fragment: false, retired: true, deleted: true });
                // What is left of references to it leads nowhere: the entries are missing, and sync brings them.
                self.objects.retain(|_, object| object.reference != Some(*pack));
            }
            Change::Damaged(pack) => self.packs.entry(*pack).or_default().fragment = false,
            Change::Forgotten(digest) => {
                self.objects.remove(digest);
            }
        }
    }

    fn refer(&mut self, member: Member, pack: Pack) {
        let object = Object { version: member.version, fragment: false, reference: Some(pack) };
        self.objects.insert(member.digest, object);
    }
}

/// What a place answers to a request, and what has to be durable before. `reads_back` says whether the fragment of a pack
/// has the bytes that its digests say, on the device itself.
#[must_use]
pub fn answer(holdings: &Holdings, request: &Request, reads_back: bool) -> (Option<Change>, Answer) {
    match request {
        Request::Prove(pack) => {
            let own = holdings.own(pack);
            let proved = own.fragment && !own.retired && reads_back;
            (None, if proved { Answer::Done } else { Answer::Refused })
        }
        Request::Adopt { pack, members } => {
            let own = holdings.own(pack);
            if !own.fragment || own.retired {
                return (None, Answer::Refused);
            }
            let members: Vec<Member> =
                members.iter().copied().filter(|member| holdings.is_replaced(*member, *pack)).collect();
            let change = (!members.is_empty()).then_some(Change::Adopted { pack: *pack, members });
            (change, Answer::Done)
        }
        Request::Retire(pack) => {
            let before = holdings.own(pack).retired;
            let references = holdings.references(*pack).count();
            ((!before).then_some(Change::Retired(*pack)), Answer::Retired { before, references })
        }
        Request::Delete(pack) => match holdings.own(pack) {
            Own { deleted: true, .. } => (None, Answer::Done),
            _ if holdings.references(*pack).next().is_some() => (None, Answer::Refused),
            _ => (Some(Change::Deleted(*pack)), Answer::Done),
        },
        Request::Learn { pack, member } => {
            let own = holdings.own(pack);
            if !own.fragment || own.retired || !holdings.is_missing(*member) {
                return (None, Answer::Refused);
            }
            (Some(Change::Learned { pack: *pack, member: *member }), Answer::Done)
        }
    }
}

/// What a packer does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Wait for other answers.
    Wait,
    /// Ask the places that have small objects to adopt the pack.
    Adopt,
    /// Ask all places once more to retire it.
    RetireAgain,
    /// Ask all places to delete it.
    Delete,
    /// There is nothing more to do in this round.
    Done,
    /// A later round begins anew.
    GiveUp,
}

/// A pack that is settled, on its way to being adopted.
#[derive(Clone, Debug)]
pub struct Adoption {
    proved: BTreeSet<usize>,
    adopted: BTreeSet<usize>,
    places: usize,
    holders: usize,
}

impl Adoption {
    /// All places are asked to prove their fragments first; so many of them have small objects, and adopt it.
    #[must_use]
    pub fn new(terms: Terms, holders: usize) -> Self {
        Self { proved: BTreeSet::new(), adopted: BTreeSet::new(), places: terms.places(), holders }
    }

    /// A place has answered to [`Request::Prove`].
    pub fn proved(&mut self, place: usize, answer: Answer) -> Step {
        if answer != Answer::Done {
            return Step::GiveUp;
        }
        let is_last = self.proved.insert(place) && self.proved.len() == self.places;
        if is_last { Step::Adopt } else { Step::Wait }
    }

    /// A place has answered to [`Request::Adopt`].
    pub fn adopted(&mut self, place: usize, answer: Answer) -> Step {
        if answer != Answer::Done {
            return Step::GiveUp;
        }
        self.adopted.insert(place);
        if self.adopted.len() == self.holders { Step::Done } else { Step::Wait }
    }
}

/// A pack on its way to being deleted. All places are asked twice: when the second question is sent all of them have
/// retired it, so that a place that has no references then never has any, nor has a device that takes its place.
#[derive(Clone, Debug)]
pub struct Retirement {
    places: usize,
    answered: BTreeSet<usize>,
    /// How often all places have answered.
    passes: usize,
    /// Whether all answers of this pass said so far that it was retired before, and has no references.
    unused: bool,
    /// Whether all answers of this pass said so far that there are no references.
    empty: bool,
    deleted: BTreeSet<usize>,
}

impl Retirement {
    /// All places are asked to retire it.
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        let (answered, deleted) = (BTreeSet::new(), BTreeSet::new());
        Self { places: terms.places(), answered, passes: 0, unused: true, empty: true, deleted }
    }

    /// How often all places have answered: the number of the pass whose questions are out.
    #[must_use]
    pub fn pass(&self) -> usize {
        self.passes
    }

    /// A place has answered to [`Request::Retire`] of a pass; answers of earlier ones say nothing any more.
    pub fn retired(&mut self, pass: usize, place: usize, answer: Answer) -> Step {
        let Answer::Retired { before, references } = answer else { return Step::GiveUp };
        if pass != self.passes || !self.answered.insert(place) {
            return Step::Wait;
        }
        self.unused &= before && references == 0;
        self.empty &= references == 0;
        if self.answered.len() < self.places {
            return Step::Wait;
        }
        let (unused, empty) = (self.unused && self.passes > 0, self.empty);
        self.passes += 1;
        (self.answered, self.unused, self.empty) = (BTreeSet::new(), true, true);
        match (unused, empty) {
            (true, _) => Step::Delete,
            (false, true) => Step::RetireAgain,
            (false, false) => Step::GiveUp,
        }
    }

    /// A place has answered to [`Request::Delete`].
    pub fn deleted(&mut self, place: usize, answer: Answer) -> Step {
        if answer != Answer::Done {
            return Step::GiveUp;
        }
        self.deleted.insert(place);
        if self.deleted.len() == self.places { Step::Done } else { Step::Wait }
    }
}
