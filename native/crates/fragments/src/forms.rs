//! Small objects of a coded policy are copies, large ones fragments: what places, writers and readers do about an object
//! that changes from one form to the other.
//!
//! `docs/design/2026-11-26-fragments.md` (small objects) says why it is as it is. The first places, the *holders*, have
//! copies beside fragments. Each form has data or a tombstone, and merges by itself, as everywhere: the newest counts, a
//! tombstone before data of the same timestamp. Of both forms together the newest counts. A write in the new form leaves
//! a tombstone in the other one, of the time just before its own: so it is older than the write for everybody who compares
//! times, and no deletion of it.
//!
//! How a write of fragments commits is not here, but in [`write`](mod@crate::write): here it has happened or not.
//!
//! Fault model: that of the crate. Devices that were replaced by empty ones answer that they have nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::terms::Terms;

/// How an object is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// As copies.
    Small,
    /// As fragments.
    Large,
}

/// What a place has of one form: of this time, data or a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it was written, or deleted.
    pub timestamp: u64,
    /// Whether there are data.
    pub is_data: bool,
}

impl Entry {
    fn order(self) -> (u64, bool) {
        (self.timestamp, !self.is_data)
    }

    fn data(timestamp: u64) -> Self {
        Self { timestamp, is_data: true }
    }

    fn tombstone(timestamp: u64) -> Self {
        Self { timestamp, is_data: false }
    }
}

/// What a place has of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Both {
    /// The copy; of places that are no holders never anything.
    pub copy: Option<Entry>,
    /// The fragment.
    pub fragment: Option<Entry>,
}

/// What becomes durable at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Of which form.
    pub form: Form,
    /// What it has from now on, unless it has something newer.
    pub entry: Entry,
}

/// What a place is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Keep a copy.
    Copy(u64),
    /// Keep a fragment of a write that counts.
    Fragment(u64),
    /// Older fragments are dead, as more than half of the holders have copies of this time.
    Outdate(u64),
    /// The object is deleted.
    Delete(u64),
    /// Another place shows this.
    Learn(Change),
}

/// What it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is so, or was before, and durable.
    Done,
    /// This is newer.
    Superseded(u64),
}

impl Both {
    /// Take a change in.
    pub fn apply(&mut self, change: Change) {
        let held = match change.form {
            Form::Small => &mut self.copy,
            Form::Large => &mut self.fragment,
        };
        if held.is_none_or(|held| held.order() < change.entry.order()) {
            *held = Some(change.entry);
        }
    }

    /// The newest data of both forms.
    #[must_use]
    pub fn data(&self) -> Option<(u64, Form)> {
        let of = |entry: Option<Entry>, form| {
            entry.filter(|entry| entry.is_data).map(move |entry: Entry| (entry.timestamp, form))
        };
        of(self.copy, Form::Small).max(of(self.fragment, Form::Large))
    }

    /// Up to when everything is dead, in both forms.
    #[must_use]
    pub fn dead(&self) -> Option<u64> {
        [self.copy, self.fragment]
            .into_iter()
            .flatten()
            .filter(|entry| !entry.is_data)
            .map(|entry| entry.timestamp)
            .max()
    }

    /// The newest time that is known of the object.
    #[must_use]
    pub fn newest(&self) -> Option<u64> {
        [self.copy, self.fragment].into_iter().flatten().map(|entry| entry.timestamp).max()
    }
}

/// Up to when copies are dead by what a place knows of fragments.
fn dead_until(both: &Both) -> Option<u64> {
    both.fragment.and_then(ends)
}

/// Up to when the other form is dead by an entry: of a deletion both have the same time.
fn ends(entry: Entry) -> Option<u64> {
    if entry.is_data { entry.timestamp.checked_sub(1) } else { Some(entry.timestamp) }
}

/// What a place does about a request: what has to be durable before its answer, in this order.
#[must_use]
pub fn answer(both: &Both, request: Request) -> (Vec<Change>, Answer) {
    let (form, entry) = match request {
        Request::Copy(at) => (Form::Small, Entry::data(at)),
        Request::Fragment(at) => (Form::Large, Entry::data(at)),
        Request::Outdate(at) => (Form::Large, Entry::tombstone(at.saturating_sub(1))),
        Request::Delete(at) => (Form::Large, Entry::tombstone(at)),
        Request::Learn(Change { form, entry }) => (form, entry),
    };
    let change = |form, entry| Change { form, entry };
    let mut changes = Vec::new();
    match form {
        // It is told to others that they have something older.
        Form::Small if entry.is_data && dead_until(both) >= Some(entry.timestamp) => {
            changes.extend(dead_until(both).map(|until| change(form, Entry::tombstone(until))));
        }
        Form::Small => changes.push(change(form, entry)),
        Form::Large => {
            // That counts for certain. A copy alone does not: the fragment before it outlives it until it is outdated.
            let copy = both.copy.filter(|copy| copy.is_data).map(|copy| copy.timestamp);
            let until = ends(entry).filter(|until| copy.is_some_and(|copy| copy <= *until));
            changes.extend(until.map(|until| change(Form::Small, Entry::tombstone(until))));
            changes.push(change(form, entry));
        }
    }
    (changes, answered(both, entry.timestamp.max(of(request))))
}

fn of(request: Request) -> u64 {
    match request {
        Request::Copy(at) | Request::Fragment(at) | Request::Outdate(at) | Request::Delete(at) => at,
        Request::Learn(learned) => learned.entry.timestamp,
    }
}

fn answered(both: &Both, timestamp: u64) -> Answer {
    match both.newest() {
        Some(newer) if newer > timestamp => Answer::Superseded(newer),
        _ => Answer::Done,
    }
}

/// By the copies that holders show to each other: the time up to which a holder's older fragment is dead.
#[must_use]
pub fn outdates(own: &Both, shown: impl Iterator<Item = Option<Entry>>, numbers: Numbers) -> Option<u64> {
    let copy = own.copy.filter(|copy| copy.is_data)?;
    let older = own.fragment.is_some_and(|fragment| fragment.timestamp < copy.timestamp);
    let equal = 1 + shown.filter(|other| *other == own.copy).count();
    (older && equal >= numbers.majority()).then_some(copy.timestamp)
}

/// The numbers of a policy with both forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Those of fragments.
    pub terms: Terms,
    /// Places that have copies, the first ones (c): so many that as many as may be lost leave one.
    pub holders: usize,
}

impl Numbers {
    /// Those of a policy.
    #[must_use]
    pub fn of(terms: Terms) -> Self {
        Self { terms, holders: terms.absences().max(3) }
    }

    /// Holders that a write of copies has to reach: more than half.
    #[must_use]
    pub fn majority(&self) -> usize {
        self.holders / 2 + 1
    }
}

/// A write of a small object: copies first. Older fragments outlive them until more than half of the holders have one:
/// else a write that stops at one holder, which is lost then, would have ended what was acknowledged before. After that
/// they are outdated, and where too few holders have answered, other places are told so before the write counts: any k
/// places then have one that knows, so that nobody puts an older object together.
#[derive(Clone, Debug)]
pub struct SmallWrite {
    numbers: Numbers,
    knowing: BTreeMap<usize, Answer>,
    /// Holders for which another device has a copy. They know nothing themselves.
    stood_in: BTreeSet<usize>,
}

impl SmallWrite {
    /// All holders are asked to keep a copy.
    #[must_use]
    pub fn new(numbers: Numbers) -> Self {
        Self { numbers, knowing: BTreeMap::new(), stood_in: BTreeSet::new() }
    }

    /// A device that stands in for a holder has a copy.
    pub fn stood_in(&mut self, holder: usize) {
        self.stood_in.insert(holder);
    }

    /// How many copies there are.
    #[must_use]
    pub fn copies(&self) -> usize {
        self.knowing.range(..self.numbers.holders).count() + self.stood_in.len()
    }

    /// A place has answered to [`Request::Copy`] or [`Request::Outdate`].
    pub fn heard(&mut self, place: usize, answer: Answer) {
        self.knowing.insert(place, answer);
    }

    /// Whether older fragments may be outdated.
    #[must_use]
    pub fn may_outdate(&self) -> bool {
        self.copies() >= self.numbers.majority()
    }

    /// How many places are to be asked to outdate their fragments when no other holder answers.
    #[must_use]
    pub fn lacks(&self) -> usize {
        self.numbers.terms.absences().saturating_sub(self.knowing.len())
    }

    /// Whether it counts, whatever happens to as many devices as may be lost.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.may_outdate() && self.lacks() == 0
    }
}

/// What a reader does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask another place; if there is none, the object can't be read now.
    Ask,
    /// Give the object: of this time, and in this form.
    Give(u64, Form),
    /// There is none.
    Absent,
}

/// What a reader knows of an object.
#[derive(Clone, Debug)]
pub struct Finding {
    pub(crate) numbers: Numbers,
    pub(crate) answers: BTreeMap<usize, Both>,
}

impl Finding {
    /// Nobody has answered yet.
    #[must_use]
    pub fn new(numbers: Numbers) -> Self {
        Self { numbers, answers: BTreeMap::new() }
    }

    /// A place has said what it has.
    pub fn heard(&mut self, place: usize, both: Both) {
        self.answers.insert(place, both);
    }

    fn holders(&self) -> usize {
        self.answers.range(..self.numbers.holders).count()
    }

    /// Whether whoever has the newest acknowledged version is among those that have answered: of fragments a quorum has
    /// it; of copies a majority of the holders, and so many places know it that any k of all have one of them.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        let Numbers { terms, holders } = self.numbers;
        let all = self.answers.len();
        all >= terms.refusals() && (self.holders() > holders - self.numbers.majority() || all >= terms.data())
    }

    /// What follows from the answers.
    #[must_use]
    pub fn step(&self) -> Step {
        if !self.is_enough() {
            return Step::Ask;
        }
        let data = self.answers.values().filter_map(Both::data).max();
        let dead = self.answers.values().filter_map(Both::dead).max();
        match data {
            Some((timestamp, form)) if Some(timestamp) > dead => Step::Give(timestamp, form),
            // A tombstone of one form alone may be that of a change of form, and an empty device knows of nothing.
            _ if self.holders() >= self.numbers.terms.absences() => Step::Absent,
            _ => Step::Ask,
        }
    }
}
