//! Metadata for one object: the same at each place, whether its device has a fragment or not; of a small one at those that
//! have its copies.

use std::sync::Arc;

use swiftlet_fragments::posting::{Heard, Post, Posted};
use swiftlet_store::model::{Info, Key, PostMeta};
use swiftlet_transport::Sink;

use super::all_places::{AtAllPlaces, Step, StepOptions, Told};
use super::places::Places;
use crate::client::Failure;
use crate::message::{self, Request, fragments};
use crate::status::Status;

/// The metadata, and what was heard of them.
pub struct Metadata {
    /// The version; None of a small object, whose copies say themselves which one they are.
    of: Option<u64>,
    meta: PostMeta,
    post: Post,
    info: Option<Info>,
}

/// Metadata on their way.
pub type Posting = AtAllPlaces<Metadata>;

impl Posting {
    /// Post these metadata on top of the version with the timestamp `of`, which was read before.
    #[must_use]
    pub fn start(
        places: Places,
        (of, meta): (u64, PostMeta),
        options: StepOptions,
        sink: (Arc<dyn Sink>, u64),
    ) -> Self {
        let post = Post::new(places.terms());
        Self::begin(places, Metadata { of: Some(of), meta, post, info: None }, options, sink)
    }

    /// Post these metadata on top of an object that was read as a copy.
    #[must_use]
    pub fn start_small(places: Places, meta: PostMeta, options: StepOptions, sink: (Arc<dyn Sink>, u64)) -> Self {
        let post = Post::of_copies(places.numbers());
        Self::begin(places, Metadata { of: None, meta, post, info: None }, options, sink)
    }

    /// The object as it is since, by the newest that devices have told of it: its container update is made of it.
    #[must_use]
    pub fn info(&self) -> Option<Info> {
        self.look(|metadata| metadata.info.clone())
    }
}

impl Step for Metadata {
    type Heard = Heard;
    type Verdict = Posted;

    fn count(&self, places: &Places) -> usize {
        self.of.map_or(places.numbers().holders, |_| places.at.len())
    }

    fn key(&self, places: &Places, place: usize) -> Key {
        self.of.map_or_else(|| places.copy_key(), |_| places.key(place))
    }

    fn request(&self, places: &Places, place: usize, row: u32) -> Request {
        let (key, meta) = (self.key(places, place), self.meta.clone());
        match self.of {
            Some(of) => fragments::Request::Post { key, of, meta, row }.into(),
            None => Request::Post { key, meta, row, proved: false },
        }
    }

    fn told(&mut self, answer: Result<Vec<u8>, Failure>) -> Told<Heard> {
        match answer.and_then(|header| Ok(message::Posted::decode(&header)?)) {
            Ok(message::Posted { written, info }) => {
                let order = |info: &Info| (info.timestamp, info.meta_timestamp, info.content_type_timestamp);
                if info.as_ref().map(order) > self.info.as_ref().map(order) {
                    self.info = info;
                }
                Told::Heard(Heard::Done, written.pending)
            }
            Err(Failure::Refused(refusal)) if refusal.status == Status::Superseded => {
                Told::Heard(Heard::Superseded(refusal.timestamp), false)
            }
            // One without a copy may have missed it.
            Err(Failure::Refused(refusal)) if refusal.status == Status::NotFound && refusal.timestamp == 0 => {
                Told::Unable
            }
            Err(Failure::Refused(refusal)) if refusal.status == Status::NotFound => {
                Told::Heard(Heard::Deleted(refusal.timestamp), false)
            }
            Err(_) => Told::Unable,
        }
    }

    fn heard(&mut self, place: usize, heard: Option<Heard>) {
        self.post.heard(place, heard.unwrap_or(Heard::Refused));
    }

    fn is_durable(&self) -> bool {
        self.post.is_durable()
    }

    fn verdict(&self) -> Posted {
        self.post.verdict()
    }
}
