//! Metadata for one object: the same at each place, whether its device has a fragment or not.

use std::sync::Arc;

use swiftlet_fragments::posting::{Heard, Post, Posted};
use swiftlet_store::model::{Info, PostMeta};
use swiftlet_transport::Sink;

use super::all_places::{AtAllPlaces, Step, StepOptions, Told};
use super::places::Places;
use crate::client::Failure;
use crate::message::{self, Request, fragments};
use crate::status::Status;

/// The metadata, and what was heard of them.
pub struct Metadata {
    of: u64,
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
        Self::begin(places, Metadata { of, meta, post, info: None }, options, sink)
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

    fn request(&self, places: &Places, place: usize, row: u32) -> Request {
        fragments::Request::Post { key: places.key(place), of: self.of, meta: self.meta.clone(), row }.into()
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
