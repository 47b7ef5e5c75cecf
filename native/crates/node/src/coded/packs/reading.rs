//! A read of one member of a pack, by whoever was told where it is.
//!
//! Fault model: that of the module above. Nothing is given but the bytes that the member's own check proves.

use std::sync::Arc;
use std::time::Duration;

use swiftlet_transport::Sink;

use super::super::answering::Whole;
use super::super::member::{Member, Referred, Wish};
use super::super::operation::{self, Operation};
use super::super::places::Places;
use crate::client::Failure;

type Asking = operation::Asking<Wish>;

struct State {
    member: Member,
    timeout: Duration,
    is_over: bool,
}

/// A read of a member. Its sink is told `End` when it is over. When it is dropped, nothing more is asked for.
pub struct ReadingMember(Operation<State>);

impl ReadingMember {
    /// Begin to read; `places` are those of the small object. Each request has the time limit. Who
    /// is late is replaced by others, after `hedge` if nobody knows how long its answers take.
    #[must_use]
    pub fn start(
        places: Places,
        referred: Referred,
        (timeout, hedge): (Duration, Duration),
        trace: &str,
        sink: (Arc<dyn Sink>, u64),
    ) -> Self {
        let Referred { pack, reference, pack_bytes } = referred;
        let member = Member::new(&places, pack, reference, pack_bytes);
        let state = State { member, timeout, is_over: false };
        Self(Operation::start(places, state, (timeout, trace), sink, |_, asking| asking.hedge(hedge)))
    }

    /// Time has passed: ask others for what is late. Returns after which time it is to be called again.
    pub fn turn(&self) -> Duration {
        self.0.act(|_, _| ());
        self.0.look(|state, asking| asking.until_late(state.timeout))
    }

    /// How it has ended: with the member's bytes, or without, if the pack can't be read or has something else in this
    /// place. Nothing while it is under way.
    #[must_use]
    pub fn end(&self) -> Option<Option<Vec<u8>>> {
        self.0.look(|state, _| state.member.outcome().map(|outcome| outcome.map(<[u8]>::to_vec)))
    }

    /// Why devices, by their numbers, gave no answer.
    #[must_use]
    pub fn refused(&self) -> Vec<(u32, Failure)> {
        self.0.look(|_, asking| asking.refused.clone())
    }
}

impl State {
    /// Have others stand in for those that are late. Returns whether any do.
    fn replace(&mut self, asking: &Asking) -> bool {
        let mut do_any = false;
        for late in asking.late() {
            if let Some(requests) = self.member.replacing(late.about)
                && asking.may_replace(&late, requests)
            {
                self.member.is_late(late.about);
                do_any = true;
            }
        }
        do_any
    }
}

impl operation::State for State {
    type About = Wish;

    fn answered(&mut self, asking: &mut Asking, wish: Wish, answer: Result<Whole, Failure>) {
        self.member.answered(&asking.places, &wish, answer);
    }

    fn go_on(&mut self, asking: &mut Asking) {
        if self.is_over {
            return;
        }
        loop {
            for wish in self.member.wishes(&asking.places) {
                let request = wish.request(&asking.places, self.member.pack());
                asking.ask(wish.clone(), wish.device(), request);
            }
            if !self.replace(asking) {
                break;
            }
        }
        if self.member.outcome().is_some() {
            self.is_over = true;
            asking.forget();
            asking.end();
        }
    }
}
