//! What connections and peers need of their I/O thread.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crate::api::{Error, Event, Sink, What};
use crate::command::{Shared, Submit};
use crate::handles::Handler;
use crate::metrics::Registry;
use crate::pool::{Chunk, Pool};
use crate::settings::Settings;

/// Events of one turn, by sink.
#[derive(Default)]
pub(crate) struct Outcome(Vec<(Arc<dyn Sink>, Vec<Event>)>);

impl Outcome {
    pub(crate) fn push(&mut self, sink: &Arc<dyn Sink>, event: Event) {
        let at = self.0.iter().position(|(other, _)| Arc::ptr_eq(other, sink)).unwrap_or_else(|| {
            self.0.push((Arc::clone(sink), Vec::new()));
            self.0.len() - 1
        });
        self.0[at].1.push(event);
    }

    /// Deliver them. Returns whether there were any.
    pub(crate) fn deliver(&mut self) -> bool {
        let mut any = false;
        for (sink, events) in &mut self.0 {
            if !events.is_empty() {
                any = true;
                sink.events(events);
                events.clear();
            }
        }
        // Sinks come and go; nothing is kept of those without events.
        if self.0.len() > 8 {
            self.0.clear();
        }
        any
    }
}

/// What a connection needs of its surroundings.
pub(crate) struct Around<'a> {
    pub(crate) now: Instant,
    pub(crate) now_ms: u64,
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) settings: &'a Settings,
    pub(crate) registry: &'a Registry,
    pub(crate) pool: &'a Pool,
    pub(crate) handler: Option<&'a Arc<dyn Handler>>,
    pub(crate) outcome: &'a mut Outcome,
}

/// Chunks that a peer may be reading, by stream and offset.
pub(crate) type Lent = HashMap<(u64, u64), Chunk>;

/// Refuse a call that could not even wait.
pub(crate) fn refuse(outcome: &mut Outcome, submit: &Submit, error: Error) {
    let what = What::Failed(error);
    outcome.push(&submit.sink, Event { token: submit.token, what });
}
