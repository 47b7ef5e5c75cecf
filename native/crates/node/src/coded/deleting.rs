//! A deletion of one object, whatever its form was: a tombstone at each place.
//!
//! All devices are waited for after a quorum has the tombstone, so that it is known whether there was an object.

use std::sync::Arc;

use swiftlet_fragments::deletion::{Deleted, Deletion, Heard};
use swiftlet_transport::Sink;

use super::all_places::{AtAllPlaces, Step, StepOptions, Told};
use super::places::Places;
use crate::client::Failure;
use crate::message::{Request, Written};
use crate::status::Status;

/// The tombstone, and what was heard of it.
pub struct Tombstone {
    timestamp: u64,
    name: Vec<u8>,
    deletion: Deletion,
}

/// A deletion.
pub type Deleting = AtAllPlaces<Tombstone>;

impl Deleting {
    /// Delete the object with this name, `/account/container/object`, as of this timestamp.
    #[must_use]
    pub fn start(
        places: Places,
        (timestamp, name): (u64, Vec<u8>),
        options: StepOptions,
        sink: (Arc<dyn Sink>, u64),
    ) -> Self {
        let deletion = Deletion::new(places.terms());
        Self::begin(places, Tombstone { timestamp, name, deletion }, options, sink)
    }
}

impl Step for Tombstone {
    type Heard = Heard;
    type Verdict = Deleted;

    fn request(&self, places: &Places, place: usize, row: u32) -> Request {
        Request::Delete { key: places.key(place), timestamp: self.timestamp, name: self.name.clone(), row }
    }

    fn told(&mut self, answer: Result<Vec<u8>, Failure>) -> Told<Heard> {
        match answer.and_then(|header| Ok(Written::decode(&header)?)) {
            Ok(Written { pending, existed }) => Told::Heard(Heard::Done { existed }, pending),
            Err(Failure::Refused(refusal)) if refusal.status == Status::Superseded => {
                Told::Heard(Heard::Superseded(refusal.timestamp), false)
            }
            Err(_) => Told::Unable,
        }
    }

    fn heard(&mut self, place: usize, heard: Option<Heard>) {
        self.deletion.heard(place, heard.unwrap_or(Heard::Refused));
    }

    fn is_durable(&self) -> bool {
        self.deletion.is_durable()
    }

    fn verdict(&self) -> Deleted {
        self.deletion.verdict()
    }
}
