//! Metadata for one object: the same at each place, whether its device has a fragment or not.
//!
//! All places' devices are asked at the same time; one that can't keep them is replaced by the next spare.
//!
//! Fault model: that of the module above. Who posts may go away at any moment; metadata that were sent stay, and spread.
//! Repeated, they change nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use swiftlet_fragments::posting::{Heard, Post, Posted};
use swiftlet_store::model::{Info, PostMeta};
use swiftlet_transport::Sink;

use super::answering::Whole;
use super::operation::{self, Operation};
use super::places::{Owed, Places, row_of};
use crate::client::Failure;
use crate::message::{self, fragments::Request};
use crate::status::Status;

/// How metadata are posted.
#[derive(Clone, Debug)]
pub struct PostOptions {
    /// The time limit of each request.
    pub timeout: Duration,
    /// How long the others are waited for once they count.
    pub after_quorum: Duration,
    /// As with writes, [`WriteOptions::rows`](super::WriteOptions::rows).
    pub rows: Vec<u32>,
    /// The id of the requests.
    pub trace: String,
}

struct State {
    options: PostOptions,
    of: u64,
    meta: PostMeta,
    spares: VecDeque<u32>,
    post: Post,
    /// Since when they have counted.
    durable: Option<Instant>,
    /// The places whose updates are pending, and at which devices.
    owed: Vec<(usize, u32)>,
    info: Option<Info>,
    end: Option<Posted>,
}

/// The place, and the device that was asked.
type About = (usize, u32);
type Asking = operation::Asking<About>;

/// Metadata on their way. Their sink is told `Sent` when they count, and `End` when the outcome is known.
pub struct Posting(Operation<State>);

impl Posting {
    /// Post these metadata on top of the version with the timestamp `of`, which was read before.
    #[must_use]
    pub fn start(
        places: Places,
        (of, meta): (u64, PostMeta),
        options: PostOptions,
        sink: (Arc<dyn Sink>, u64),
    ) -> Self {
        let (timeout, trace) = (options.timeout, options.trace.clone());
        let (spares, post) = (places.spares.iter().copied().collect(), Post::new(places.terms()));
        let (durable, owed, info, end) = (None, Vec::new(), None, None);
        let state = State { options, of, meta, spares, post, durable, owed, info, end };
        Self(Operation::start(places, state, (timeout, &trace), sink, |state, asking| {
            for place in 0..asking.places.at.len() {
                state.ask(asking, place, asking.places.at[place]);
            }
        }))
    }

    /// Time has passed: others are waited for no longer, if they count. Returns after which time it is to be called again.
    pub fn turn(&self) -> Duration {
        self.0.act(|state, _| {
            let since = state.durable.map_or(Duration::ZERO, |durable| durable.elapsed());
            state.options.after_quorum.saturating_sub(since)
        })
    }

    /// The container updates that are pending with the metadata by now.
    #[must_use]
    pub fn owed(&self) -> Vec<Owed> {
        self.0.look(|state, asking| {
            let owed = |(place, device): &(usize, u32)| asking.places.owed(*place, *device, &state.options.rows);
            state.owed.iter().map(owed).collect()
        })
    }

    /// The object as it is since, by the newest that devices have told of it: its container update is made of it.
    #[must_use]
    pub fn info(&self) -> Option<Info> {
        self.0.look(|state, _| state.info.clone())
    }

    /// How it has ended; nothing while it is under way.
    #[must_use]
    pub fn end(&self) -> Option<Posted> {
        self.0.look(|state, _| state.end)
    }

    /// Why devices, by their numbers, did not keep them.
    #[must_use]
    pub fn refused(&self) -> Vec<(u32, Failure)> {
        self.0.look(|_, asking| asking.refused.clone())
    }
}

impl State {
    fn ask(&self, asking: &mut Asking, place: usize, device: u32) {
        let (key, row) = (asking.places.key(place), row_of(place, &self.options.rows));
        asking.ask((place, device), device, Request::Post { key, of: self.of, meta: self.meta.clone(), row });
    }
}

impl operation::State for State {
    type About = About;

    fn answered(&mut self, asking: &mut Asking, (place, device): About, answer: Result<Whole, Failure>) {
        let heard = match answer.and_then(|(header, _)| Ok(message::Posted::decode(&header)?)) {
            Ok(message::Posted { written, info }) => {
                self.owed.extend(written.pending.then_some((place, device)));
                let order = |info: &Info| (info.timestamp, info.meta_timestamp, info.content_type_timestamp);
                if info.as_ref().map(order) > self.info.as_ref().map(order) {
                    self.info = info;
                }
                Heard::Done
            }
            Err(Failure::Refused(refusal)) if refusal.status == Status::Superseded => {
                Heard::Superseded(refusal.timestamp)
            }
            Err(Failure::Refused(refusal)) if refusal.status == Status::NotFound => Heard::Deleted(refusal.timestamp),
            Err(_) => {
                if let Some(spare) = self.spares.pop_front() {
                    return self.ask(asking, place, spare);
                }
                Heard::Refused
            }
        };
        self.post.heard(place, heard);
    }

    fn go_on(&mut self, asking: &mut Asking) {
        if self.end.is_some() {
            return;
        }
        if self.durable.is_none() && self.post.is_durable() {
            self.durable = Some(Instant::now());
            asking.tell();
        }
        let is_over = self.durable.is_some_and(|durable| durable.elapsed() >= self.options.after_quorum);
        if is_over || asking.open().next().is_none() {
            self.end = Some(self.post.verdict());
            asking.end();
        }
    }

    fn dropped(&mut self, _asking: &mut Asking) {}
}
