//! What a packer is: the places that it asks, the terms that it works by, and how its work may end.

use std::collections::BTreeSet;
use std::time::Duration;

use swiftlet_fragments::packs::Digest;
use swiftlet_fragments::packs::table::Table;
use swiftlet_store::model::Key;

use super::super::places::Places;
use crate::client::{Client, Failure, Fetched};
use crate::message::Request;
use crate::message::packs::{Request as PackRequest, Told};

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
    /// A pack of which less than this share is referred to is written anew; 0 for none.
    pub live_share: f64,
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

/// A packer of one partition.
pub struct Packing<'a> {
    client: &'a Client,
    pub(super) places: Places,
    pub(super) options: PackOptions,
    /// Asked before each message: false ends it.
    go_on: &'a dyn Fn() -> bool,
}

impl<'a> Packing<'a> {
    /// A packer of the partition of these places, whichever object they are of.
    #[must_use]
    pub fn new(client: &'a Client, places: Places, options: PackOptions, go_on: &'a dyn Fn() -> bool) -> Self {
        Self { client, places, options, go_on }
    }

    /// # Errors
    /// The caller has ended the packer.
    pub(super) fn must_go_on(&self) -> Result<(), Stopped> {
        if (self.go_on)() { Ok(()) } else { Err(Stopped::Ended) }
    }

    /// What a place answers to a request.
    ///
    /// # Errors
    /// The caller has ended the packer, or the device can't be asked.
    pub(super) fn ask(&self, place: usize, request: impl Into<Request>, timeout: Duration) -> Result<Fetched, Stopped> {
        self.must_go_on()?;
        let target = self.places.at.get(place).and_then(|device| self.places.devices.target(*device));
        let target = target.ok_or(Failure::Damaged("the ring has no such device"))?;
        Ok(self.client.ask(target, &request.into(), None, timeout)?)
    }

    /// What a place tells of a request about a pack.
    ///
    /// # Errors
    /// As of [`ask`](Self::ask).
    pub(super) fn tell(&self, place: usize, request: PackRequest, timeout: Duration) -> Result<Told, Stopped> {
        let fetched = self.ask(place, request, timeout)?;
        Ok(Told::decode(&fetched.header).map_err(Failure::from)?)
    }

    /// The key of an object of the partition at a place.
    pub(super) fn key(&self, place: usize, digest: Digest) -> Key {
        Key { digest, ..self.places.key(place) }
    }
}
