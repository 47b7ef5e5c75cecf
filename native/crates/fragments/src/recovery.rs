//! What became of a write whose proxy is gone.
//!
//! A device that has waited long enough for the proxy asks the chosen devices: Paxos about one question, commit or
//! abort, with the chosen devices as acceptors. The proxy's *commit* is ballot 0, and q devices that accept it are a
//! decision; of higher ballots more than half are. Which answers leave a choice, [`choose`] says. How long a device
//! waits has no part in what is right: a proxy that commits late finds that higher ballots were promised, or makes it
//! in time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::request::{Answer, Request};
use crate::terms::Terms;
use crate::version::{Accepted, Ballot, Device, Outcome, Version};
use crate::write::Sent;

/// What a device has promised, by its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// What it had accepted before.
    pub accepted: Option<Accepted>,
    /// Whether it has the fragment.
    pub fragment: bool,
}

/// The outcome that a ballot has to ask for, or may, if there are promises enough.
///
/// What a higher ballot than the proxy's has accepted goes on. Otherwise the write was possibly acknowledged unless
/// enough devices have not committed, and then it is committed. Where it was certainly not, it is committed all the
/// same if somebody may have read it and it is as safe as an acknowledged one, and else aborted: the version before it
/// is then the safer one.
#[must_use]
pub fn choose(terms: Terms, promises: &BTreeMap<usize, Promise>) -> Option<Outcome> {
    if promises.len() < terms.majority() {
        return None;
    }
    let accepted = promises.values().filter_map(|promise| promise.accepted);
    let Some(latest) = accepted.max_by_key(|accepted| accepted.ballot) else { return Some(Outcome::Abort) };
    if latest.ballot > Ballot::PROXY {
        return Some(latest.outcome);
    }
    let refusals = promises.values().filter(|promise| promise.accepted.is_none()).count();
    let fragments = promises.values().filter(|promise| promise.fragment).count();
    let commit = refusals < terms.refusals() || fragments >= terms.quorum();
    Some(if commit { Outcome::Commit } else { Outcome::Abort })
}

/// How an attempt to decide ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// This became of the version: the device that asked takes it, and tells the others.
    Decided(Outcome),
    /// Something newer is settled: sync brings it.
    Superseded,
    /// Too few have answered, or somebody else tries: later again, with a higher round than this.
    Later(u32),
}

/// An attempt to decide.
#[derive(Clone, Debug)]
pub struct Recovery {
    terms: Terms,
    version: Version,
    chosen: Arc<[Device]>,
    ballot: Ballot,
    seen: Ballot,
    promises: BTreeMap<usize, Promise>,
    outcome: Option<Outcome>,
    accepted: BTreeSet<usize>,
    end: Option<End>,
}

impl Recovery {
    /// An attempt with this ballot, which has to be higher than what the device itself has promised.
    #[must_use]
    pub fn new(terms: Terms, version: Version, chosen: Arc<[Device]>, ballot: Ballot) -> Self {
        Self {
            terms,
            version,
            chosen,
            ballot,
            seen: ballot,
            promises: BTreeMap::new(),
            outcome: None,
            accepted: BTreeSet::new(),
            end: None,
        }
    }

    /// What is sent first, to all chosen devices; to itself as well, if the device is one of them.
    #[must_use]
    pub fn start(&self) -> Sent {
        self.to_all(Request::Promise { version: self.version, chosen: self.chosen.clone(), ballot: self.ballot })
    }

    /// The devices that are asked, in the order of the fragments.
    #[must_use]
    pub fn chosen(&self) -> Arc<[Device]> {
        self.chosen.clone()
    }

    /// How the attempt ended, once it has.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// A chosen device has promised, or answered otherwise.
    pub fn promised(&mut self, place: usize, answer: &Answer) -> Sent {
        if let Answer::Promised { accepted, fragment } = answer
            && self.outcome.is_none()
        {
            self.promises.insert(place, Promise { accepted: *accepted, fragment: *fragment });
            if self.promises.len() == self.terms.places() {
                return self.ask();
            }
        }
        self.hear(answer);
        Sent::new()
    }

    /// A chosen device has accepted the outcome, or answered otherwise.
    pub fn accepted(&mut self, place: usize, answer: &Answer) {
        self.hear(answer);
        if let (Answer::Done, Some(outcome)) = (answer, self.outcome) {
            self.accepted.insert(place);
            if self.accepted.len() >= self.terms.majority() {
                self.end = self.end.or(Some(End::Decided(outcome)));
            }
        }
    }

    /// No other answer is waited for: go on with the promises that there are, or end.
    pub fn wait_no_longer(&mut self) -> Sent {
        if self.outcome.is_none() && self.end.is_none() {
            let sent = self.ask();
            if !sent.is_empty() {
                return sent;
            }
        }
        self.end = self.end.or(Some(End::Later(self.seen.round)));
        Sent::new()
    }

    fn hear(&mut self, answer: &Answer) {
        match answer {
            Answer::Decided(outcome) => self.end = self.end.or(Some(End::Decided(*outcome))),
            Answer::Superseded(_) => self.end = self.end.or(Some(End::Superseded)),
            Answer::Outbid(ballot) => self.seen = self.seen.max(*ballot),
            _ => {}
        }
    }

    fn ask(&mut self) -> Sent {
        let Some(outcome) = choose(self.terms, &self.promises) else { return Sent::new() };
        self.outcome = Some(outcome);
        let accepted = Accepted { ballot: self.ballot, outcome };
        self.to_all(Request::Accept { version: self.version, chosen: self.chosen.clone(), accepted })
    }

    fn to_all(&self, request: Request) -> Sent {
        (0..self.chosen.len()).map(|place| (place, request.clone())).collect()
    }
}
