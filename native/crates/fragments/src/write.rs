//! How a proxy goes on with a write.
//!
//! It sends *prepare* with a fragment to each chosen device, *commit* when q have prepared, tells its client 201 when q
//! have committed, and then that older versions are dead. A device that has settled something newer counts as one that
//! did what it was asked for: the write is past there, and what superseded it is as durable.

use std::sync::Arc;

use crate::request::{Answer, Request};
use crate::terms::Terms;
use crate::version::{Device, Outcome, Version};

/// What the client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The version is durable on q devices.
    Acknowledged,
    /// It never happened, and never will have.
    Failed,
    /// It may turn out to have happened.
    Unknown,
}

/// How a device stands to the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Silent,
    Refused,
    Prepared,
    Committed,
    Past,
}

/// A write of one version.
#[derive(Clone, Debug)]
pub struct Write {
    terms: Terms,
    version: Version,
    chosen: Arc<[Device]>,
    at: Vec<At>,
    committing: bool,
    verdict: Option<Verdict>,
}

/// What to send, and to which of the chosen devices.
pub type Sent = Vec<(usize, Request)>;

impl Write {
    /// A write to these devices, one for each place.
    #[must_use]
    pub fn new(terms: Terms, version: Version, chosen: Arc<[Device]>) -> Self {
        debug_assert_eq!(chosen.len(), terms.places());
        Self { terms, version, at: vec![At::Silent; chosen.len()], chosen, committing: false, verdict: None }
    }

    /// What is sent first, each with its fragment.
    #[must_use]
    pub fn start(&self) -> Sent {
        let prepare = Request::Prepare { version: self.version, chosen: self.chosen.clone() };
        (0..self.at.len()).map(|place| (place, prepare.clone())).collect()
    }

    /// What the client is told, once that is known.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        self.verdict
    }

    /// A device has answered to *prepare*.
    pub fn prepared(&mut self, place: usize, answer: &Answer) -> Sent {
        if self.at[place] != At::Silent || self.verdict == Some(Verdict::Failed) {
            return Sent::new();
        }
        self.at[place] = match answer {
            Answer::Done => At::Prepared,
            Answer::Superseded(_) => At::Past,
            _ => At::Refused,
        };
        if self.committing {
            return self.to([place], At::Prepared, Request::Commit(self.version));
        }
        if self.count(&[At::Prepared, At::Past]) < self.terms.quorum() {
            return Sent::new();
        }
        self.committing = true;
        self.end();
        self.to(0..self.at.len(), At::Prepared, Request::Commit(self.version))
    }

    /// A device has answered to *commit*.
    pub fn committed(&mut self, place: usize, answer: &Answer) -> Sent {
        if self.at[place] != At::Prepared {
            return Sent::new();
        }
        self.at[place] = match answer {
            Answer::Done | Answer::Decided(Outcome::Commit) => At::Committed,
            Answer::Superseded(_) => At::Past,
            _ => At::Refused,
        };
        self.end();
        match self.count(&[At::Committed]).cmp(&self.terms.quorum()) {
            std::cmp::Ordering::Less => Sent::new(),
            // What others are told late, they would ask for.
            std::cmp::Ordering::Equal => {
                let settle = Request::Settle(self.version);
                let mut sent = self.to(0..self.at.len(), At::Committed, settle.clone());
                sent.extend(self.to(0..self.at.len(), At::Prepared, settle));
                sent
            }
            std::cmp::Ordering::Greater => self.to([place], At::Committed, Request::Settle(self.version)),
        }
    }

    /// No other answer is waited for. Only where no commit was ever sent is it certain that the write never happened,
    /// so that the devices may be told so.
    pub fn give_up(&mut self) -> Sent {
        if self.verdict.is_some() {
            return Sent::new();
        }
        if self.committing {
            self.verdict = Some(Verdict::Unknown);
            return Sent::new();
        }
        self.verdict = Some(Verdict::Failed);
        let abort = Request::Decide { version: self.version, outcome: Outcome::Abort };
        (0..self.at.len()).map(|place| (place, abort.clone())).collect()
    }

    fn end(&mut self) {
        if self.committing && self.count(&[At::Committed, At::Past]) >= self.terms.quorum() {
            self.verdict = Some(Verdict::Acknowledged);
        }
    }

    fn count(&self, wanted: &[At]) -> usize {
        self.at.iter().filter(|at| wanted.contains(at)).count()
    }

    fn to(&self, places: impl IntoIterator<Item = usize>, wanted: At, request: Request) -> Sent {
        let places = places.into_iter().filter(|place| self.at[*place] == wanted);
        places.map(|place| (place, request.clone())).collect()
    }
}
