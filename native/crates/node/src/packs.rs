//! Packs of small objects: they are proved, adopted, read and retired.
//!
//! `docs/design/2026-11-29-packs.md` has the protocol. Whether a reference may be taken is decided by the store, where
//! changes are committed; that a copy has the bytes of its member is found out here before, as versions do not change.
//!
//! Fault model: that of the server and of the store. Only members of the cluster may ask. A packer may ask anything, twice,
//! or late; what is answered is durable.

use std::sync::Arc;
use std::time::Instant;

use swiftlet_fragments::packs::Digest;
use swiftlet_fragments::packs::member;
use swiftlet_fragments::packs::table::{MAX_MEMBERS, Reference, Table};
use swiftlet_fragments::{Version, packs::Pack};
use swiftlet_store::model::Key;
use swiftlet_store::{Error, Fetched, PackHere, PackState, Store};
use swiftlet_transport::{Body, Chunk};

use crate::device::Permit;
use crate::message::packs::{
    Listed, MAX_LISTED, MAX_MEMBERS_BYTES, Request, Told, encode_cold, encode_listed, encode_members, encode_references,
};
use crate::reading::Held;
use crate::reply::Reply;
use crate::status::Refusal;

/// How references are taken.
enum Taking {
    Adopt,
    Learn,
}

/// A request about a pack, and who is told.
pub(crate) struct Asked {
    pub(crate) store: Arc<Store>,
    pub(crate) permit: Permit,
    pub(crate) reply: Reply,
    pub(crate) deadline: Instant,
}

impl Asked {
    /// Handle a request.
    pub(crate) fn handle(self, request: Request) {
        match request {
            Request::Retire { key, pack } => self.retire(key, pack),
            Request::Prove { key, pack } => self.later(move |asked| {
                let told = asked.store.prove_pack(&key, pack).map_err(Refusal::from);
                let told = told.and_then(|state| asked.told(state, &key, pack));
                asked.answer(told);
            }),
            Request::Piece { key, pack, start, bytes } => {
                self.later(move |asked| asked.piece(&key, pack, start, bytes))
            }
            Request::Cold { key, before, most_bytes } => self.later(move |asked| {
                let found = asked.store.cold_copies(&key, before, MAX_MEMBERS, most_bytes);
                asked.give(found.map(|all| (Vec::new(), encode_cold(&all))).map_err(Refusal::from));
            }),
            Request::Members { key, digests } => self.later(move |asked| asked.members(key, &digests)),
            Request::Learn { key, table } => self.take(Taking::Learn, key, table),
            Request::References { key, digests } => self.later(move |asked| {
                let found = asked.references(key, &digests);
                asked.give(found.map(|body| (Vec::new(), body)));
            }),
            Request::List { key } => self.later(move |asked| {
                let listed = asked.listed(&key);
                asked.give(listed.map(|(all, more)| (encode_listed(&all, more), Vec::new())));
            }),
            Request::Adopt { key, table, checks } => self.later(move |asked| asked.adopt(key, table, &checks)),
        }
    }

    /// Go on in a thread of the device, unless nobody waits any more: the transport has said why.
    fn later(self, go_on: impl FnOnce(Self) + Send + 'static) {
        let device = Arc::clone(&self.permit.device);
        device.run(move || {
            if !self.reply.is_cancelled() && Instant::now() < self.deadline {
                go_on(self);
            }
        });
    }

    fn answer(self, told: Result<Told, Refusal>) {
        drop(self.permit);
        match told {
            Ok(told) => self.reply.answer(told.encode(), Body::Empty),
            Err(refusal) => self.reply.refuse(&refusal),
        }
    }

    /// Answer with a header and a body.
    fn give(mut self, found: Result<(Vec<u8>, Vec<u8>), Refusal>) {
        let held = found.and_then(|(header, bytes)| {
            self.permit.hold(bytes.len())?;
            Ok((header, bytes))
        });
        match held {
            Ok((header, bytes)) if bytes.is_empty() => self.reply.answer(header, Body::Empty),
            Ok((header, bytes)) => {
                let body = Body::Chunk(Chunk::from_owner(Box::new(Held::new(bytes, self.permit))));
                self.reply.answer(header, body);
            }
            Err(refusal) => self.reply.refuse(&refusal),
        }
    }

    fn piece(self, key: &Key, pack: Version, start: u64, bytes: u32) {
        let found = match self.store.fragment(key, pack) {
            Ok(Fetched::Fragment(fragment)) => fragment.piece(start, bytes as usize),
            Ok(Fetched::Not(_)) => Err(Error::NotFound(None)),
            Err(error) => Err(error),
        };
        self.give(found.map(|bytes| (Vec::new(), bytes)).map_err(Refusal::from));
    }

    fn members(self, key: Key, digests: &[Digest]) {
        let (mut lengths, mut bytes) = (Vec::with_capacity(digests.len()), Vec::new());
        for digest in digests {
            let small = Key { partition: key.partition | 31, digest: *digest, ..key };
            let member = match self.store.member(&small) {
                Ok(member) => member.unwrap_or_default(),
                Err(error) => return self.give(Err(error.into())),
            };
            let fits = bytes.is_empty() || bytes.len() + member.len() <= MAX_MEMBERS_BYTES;
            lengths.push(if fits { member.len() as u32 } else { 0 });
            if fits {
                bytes.extend(member);
            }
        }
        self.give(Ok((encode_members(&lengths), bytes)));
    }

    fn listed(&self, key: &Key) -> Result<(Vec<Listed>, bool), Refusal> {
        let mut all = self.store.packs_at(key)?;
        all.retain(|one| one.pack.digest > key.digest);
        let more = all.len() > MAX_LISTED;
        all.truncate(MAX_LISTED);
        let listed = |PackHere { pack, state, references, live, size }: PackHere| {
            let retired = state == PackState::Retired;
            Listed { pack, retired, references, live, size }
        };
        Ok((all.into_iter().map(listed).collect(), more))
    }

    fn told(&self, state: PackState, key: &Key, pack: Version) -> Result<Told, Refusal> {
        let references = || self.store.references_to(key, pack);
        Ok(match state {
            PackState::Kept => Told::Done { references: references()? },
            PackState::Missing => Told::Missing,
            PackState::Retired => Told::Retired { before: true, references: references()? },
        })
    }

    fn retire(self, key: Key, pack: Version) {
        let before = match self.store.pack_state(&key, pack) {
            Ok(state) => state == PackState::Retired,
            Err(error) => return self.answer(Err(error.into())),
        };
        let store = Arc::clone(&self.store);
        let done = move |outcome: swiftlet_store::Result<bool>| {
            // No reference was taken since it is durable, so there are so many at most from now on.
            let references = outcome.and_then(|_| self.store.references_to(&key, pack));
            self.answer(references.map(|references| Told::Retired { before, references }).map_err(Refusal::from));
        };
        store.submit_retire(key, pack, Box::new(done));
    }

    fn adopt(self, key: Key, mut table: Table, checks: &[u64]) {
        let Pack { version: pack, .. } = table.pack;
        let mut checks = checks.iter();
        let mut refusal = None;
        table.references.retain(|reference| {
            let check = checks.next();
            if refusal.is_some() || self.reply.is_cancelled() {
                return false;
            }
            match self.has(&key, reference, check.copied()) {
                Ok(has) => has,
                Err(error) => {
                    refusal = Some(error);
                    false
                }
            }
        });
        if let Some(error) = refusal {
            return self.answer(Err(error.into()));
        }
        if table.references.is_empty() {
            let told = self.store.pack_state(&key, pack).map_err(Refusal::from);
            let told = told.and_then(|state| self.told(state, &key, pack));
            return self.answer(told);
        }
        self.take(Taking::Adopt, key, table);
    }

    /// Have the store decide on references.
    fn take(self, taking: Taking, key: Key, table: Table) {
        let (store, pack) = (Arc::clone(&self.store), table.pack.version);
        let done = move |outcome| {
            let state = match outcome {
                Ok(_) => PackState::Kept,
                Err(Error::NotFound(_)) => PackState::Missing,
                Err(Error::Superseded(_)) => PackState::Retired,
                Err(error) => return self.answer(Err(error.into())),
            };
            let told = self.told(state, &key, pack);
            self.answer(told);
        };
        match taking {
            Taking::Adopt => store.submit_adopt_of(key.policy, key.partition, table, Box::new(done)),
            Taking::Learn => store.submit_learn_of(key.policy, key.partition, table, Box::new(done)),
        }
    }

    fn references(&self, key: Key, digests: &[Digest]) -> Result<Vec<u8>, Refusal> {
        let mut all = Vec::new();
        for digest in digests {
            all.extend(self.store.reference(&Key { partition: key.partition | 31, digest: *digest, ..key })?);
        }
        Ok(encode_references(&all)?)
    }

    /// Whether what a reference leads to is here: a copy with the bytes of the member, or a reference to the same bytes in
    /// another pack.
    ///
    /// Sync brings a copy with the newest metadata in its bytes, and then beside it. Once they lie beside, these count, and
    /// not those in the bytes: so bytes with other metadata will do.
    fn has(&self, key: &Key, reference: &Reference, check: Option<u64>) -> swiftlet_store::Result<bool> {
        let small = Key { partition: key.partition | 31, digest: reference.digest, ..*key };
        let (timestamp, is_same) = if let Some(bytes) = self.store.member(&small)? {
            let is_same = bytes.len() == reference.length as usize && member::check_of(&bytes) == check;
            (member::timestamp_of(&bytes), is_same)
        } else if let Some(held) = self.store.reference(&small)? {
            (Some(held.reference.timestamp), held.reference.length == reference.length)
        } else {
            return Ok(false);
        };
        Ok(timestamp == Some(reference.timestamp) && (is_same || self.store.is_posted(&small)))
    }
}
