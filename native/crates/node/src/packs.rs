//! Packs of small objects: they are proved, adopted, read and retired.
//!
//! `docs/design/2026-11-29-packs.md` has the protocol. Whether a reference may be taken is decided by the store, where
//! changes are committed; that a copy has the bytes of its member is found out here before, as versions do not change.
//!
//! Fault model: that of the server and of the store. Only members of the cluster may ask. A packer may ask anything, twice,
//! or late; what is answered is durable.

use std::sync::Arc;
use std::time::Instant;

use swiftlet_fragments::packs::member;
use swiftlet_fragments::packs::table::{Reference, Table};
use swiftlet_fragments::{Version, packs::Pack};
use swiftlet_store::model::Key;
use swiftlet_store::{Error, Fetched, PackState, Store};
use swiftlet_transport::{Body, Chunk};

use crate::device::Permit;
use crate::message::packs::{Request, Told};
use crate::reading::Held;
use crate::reply::Reply;
use crate::status::Refusal;

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

    fn piece(mut self, key: &Key, pack: Version, start: u64, bytes: u32) {
        let found = self.permit.hold(bytes as usize).and_then(|()| match self.store.fragment(key, pack)? {
            Fetched::Fragment(fragment) => Ok(fragment.piece(start, bytes as usize)?),
            Fetched::Not(_) => Err(Error::NotFound(None).into()),
        });
        match found {
            Ok(found) => {
                let body = Body::Chunk(Chunk::from_owner(Box::new(Held::new(found, self.permit))));
                self.reply.answer(Vec::new(), body);
            }
            Err(refusal) => self.reply.refuse(&refusal),
        }
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
        let store = Arc::clone(&self.store);
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
        store.submit_adopt_of(key.policy, key.partition, table, Box::new(done));
    }

    /// Whether what a reference leads to is here: a copy with the bytes of the member, or a reference to the same bytes in
    /// another pack.
    fn has(&self, key: &Key, reference: &Reference, check: Option<u64>) -> swiftlet_store::Result<bool> {
        let small = Key { partition: key.partition | 31, digest: reference.digest, ..*key };
        if let Some(bytes) = self.store.member(&small)? {
            let same = bytes.len() == reference.length as usize && member::check_of(&bytes) == check;
            return Ok(same && member::timestamp_of(&bytes) == Some(reference.timestamp));
        }
        let held = self.store.reference(&small)?.map(|held| held.reference);
        Ok(held.is_some_and(|held| (held.timestamp, held.length) == (reference.timestamp, reference.length)))
    }
}
