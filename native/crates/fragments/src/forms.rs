//! Small objects of a coded policy are copies, large ones fragments: what places, writers and readers do about an object
//! that changes from one form to the other.
//!
//! `docs/design/2026-11-26-fragments.md` (small objects) says why it is as it is. The first places, the *holders*, have
//! copies beside fragments. Each form has data or a tombstone, and merges by itself, as everywhere: the newest counts, a
//! tombstone before data of the same timestamp. Of both forms together the newest counts, and data before the tombstone
//! of the other form at the same timestamp, which a write in the new form leaves behind.
//!
//! Nothing in the product uses it yet: small objects are coded like large ones. How a write of fragments commits is not
//! here, but in [`write`](mod@crate::write): here it has happened or not.
//!
//! Fault model: that of the crate. Devices that were replaced by empty ones answer that they have nothing.

use std::collections::BTreeMap;

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

    /// The newest time that is known of the object.
    #[must_use]
    pub fn newest(&self) -> Option<u64> {
        [self.copy, self.fragment].into_iter().flatten().map(|entry| entry.timestamp).max()
    }
}

/// What a place does about a request: what has to be durable before its answer.
#[must_use]
pub fn answer(both: &Both, is_holder: bool, request: Request) -> (Vec<Change>, Answer) {
    let change = |form, entry| Change { form, entry };
    let (timestamp, wanted) = match request {
        Request::Copy(at) => (at, vec![change(Form::Small, Entry::data(at))]),
        Request::Fragment(at) => (at, vec![change(Form::Large, Entry::data(at))]),
        Request::Outdate(at) => (at, vec![change(Form::Large, Entry::tombstone(at))]),
        Request::Delete(at) => (at, vec![change(Form::Large, Entry::tombstone(at))]),
        Request::Learn(learned) => (learned.entry.timestamp, vec![learned]),
    };
    if !is_holder {
        return (wanted, answered(both, timestamp));
    }
    let mut changes = wanted;
    match request {
        Request::Delete(at) => changes.push(change(Form::Small, Entry::tombstone(at))),
        // That counts for certain. A copy alone does not: the fragment before it outlives it until it is outdated.
        Request::Fragment(at) if both.copy.is_some() => changes.push(change(Form::Small, Entry::tombstone(at))),
        Request::Copy(_) | Request::Fragment(_) | Request::Outdate(_) => {}
        Request::Learn(Change { form, entry }) if entry.is_data => {
            let data = |entry: Option<Entry>| entry.filter(|entry| entry.is_data).map(|entry| entry.timestamp);
            match (form, data(both.copy), data(both.fragment)) {
                // It is told to others that they have something older.
                (Form::Small, _, Some(own)) if own > entry.timestamp => {
                    changes = vec![change(form, Entry::tombstone(own))];
                }
                (Form::Large, Some(own), _) if own < entry.timestamp => {
                    changes.push(change(Form::Small, Entry::tombstone(entry.timestamp)));
                }
                _ => {}
            }
        }
        Request::Learn(_) => {}
    }
    (changes, answered(both, timestamp))
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
}

impl SmallWrite {
    /// All holders are asked to keep a copy.
    #[must_use]
    pub fn new(numbers: Numbers) -> Self {
        Self { numbers, knowing: BTreeMap::new() }
    }

    /// A place has answered to [`Request::Copy`] or [`Request::Outdate`].
    pub fn heard(&mut self, place: usize, answer: Answer) {
        self.knowing.insert(place, answer);
    }

    /// Whether older fragments may be outdated.
    #[must_use]
    pub fn may_outdate(&self) -> bool {
        self.knowing.range(..self.numbers.holders).count() >= self.numbers.majority()
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
        let newest = self.answers.values().filter_map(Both::newest).max();
        match data {
            Some((timestamp, form)) if Some(timestamp) == newest => Step::Give(timestamp, form),
            // A tombstone of one form alone may be that of a change of form, and an empty device knows of nothing.
            _ if self.holders() >= self.numbers.terms.absences() => Step::Absent,
            _ => Step::Ask,
        }
    }
}
