//! Objects that change their form, simulated: writers, readers, sync, and everything that may happen to them.
//!
//! A seed chooses the scheme and all that happens: which places a write reaches and how far it gets, who is away, or is
//! replaced by an empty device, which places are compared, when deletions are forgotten. After each step:
//!
//! - What was acknowledged, or something newer, is kept as a copy or as k fragments.
//! - A read, whoever is asked first, gives what was written. Unless a device was replaced since all places had the same,
//!   it is no older than what was acknowledged; and no read finds nothing where there is something.
//!
//! In the end, when faults are over, all places have the same, in one form, as old as what was acknowledged at most.

use std::collections::BTreeSet;

use swiftlet_erasure::Scheme;

use super::simulation::chance::Chance;
use crate::Terms;
use crate::forms::{self, Answer, Both, Change, Entry, Finding, Form, Numbers, Request, SmallWrite, Step};

/// Seeds that every run of the tests tries. `FORM_SEEDS` names another number, `FORM_SEED` the first one.
const SEEDS: u64 = 20_000;
/// Seeds that look for a mutant.
const TRIES: u64 = 20_000;
const STEPS: usize = 100;
/// How often what happens, by default: small and large writes, deletions, comparisons, tombstones that are forgotten,
/// devices that are replaced, away, and there again.
const EVENTS: [usize; 8] = [3, 3, 1, 6, 1, 1, 2, 3];

/// What can be broken.
#[derive(Clone, Copy)]
struct Rules {
    answer: fn(&Both, Request) -> (Vec<Change>, Answer),
    /// What a reader does next.
    step: fn(&Finding) -> Step,
    /// Whether a write of copies counts.
    is_durable: fn(&SmallWrite, usize, Numbers) -> bool,
    numbers: fn(Terms) -> Numbers,
    /// When a holder's older fragment is dead, by the copies of others.
    outdates: fn(&Both, &[Option<Entry>], Numbers) -> Option<u64>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            answer: forms::answer,
            step: Finding::step,
            is_durable: |write, _, _| write.is_durable(),
            numbers: Numbers::of,
            outdates: |own, shown, numbers| forms::outdates(own, shown.iter().copied(), numbers),
        }
    }
}

/// What has happened, so that a simulation in which nothing does is noticed.
#[derive(Debug, Default)]
struct Seen {
    seeds: usize,
    small: usize,
    outdated: usize,
    large: usize,
    changed: usize,
    deleted: usize,
    superseded: usize,
    unknown: usize,
    replaced: usize,
    forgotten: usize,
    given: usize,
    absent: usize,
    unavailable: usize,
}

impl Seen {
    fn assert_all_kinds(&self) {
        let counts = [
            self.small,
            self.outdated,
            self.large,
            self.changed,
            self.deleted,
            self.superseded,
            self.unknown,
            self.replaced,
            self.forgotten,
            self.given,
            self.absent,
            self.unavailable,
        ];
        assert!(self.seeds < 100 || counts.iter().all(|count| *count > 0), "{self:?}");
    }
}

#[derive(Clone, Copy, Default)]
struct Place {
    both: Both,
    is_away: bool,
}

struct World<'a> {
    chance: Chance,
    rules: Rules,
    numbers: Numbers,
    places: Vec<Place>,
    /// How often what happens in this seed.
    weights: [usize; EVENTS.len()],
    /// Places that may lack what the others have.
    faulted: BTreeSet<usize>,
    /// Whether a device was replaced since all places had the same.
    was_replaced: bool,
    /// What was tried at each time: in which form, or a deletion. Nothing is as old as the first one.
    tried: Vec<Option<Form>>,
    /// The newest time that was acknowledged.
    acknowledged: Option<u64>,
    seen: &'a mut Seen,
    trace: bool,
}

impl<'a> World<'a> {
    fn run(seed: u64, rules: Rules, seen: &'a mut Seen) -> Result<(), String> {
        let mut chance = Chance::new(seed);
        let (data, parity) = [(2, 1), (3, 2), (4, 2), (6, 3), (3, 3), (4, 1)][chance.below(6)];
        let terms = Terms::of(Scheme::new(data, parity).expect("a scheme"));
        seen.seeds += 1;
        let weights = EVENTS.map(|weight| weight * [0, 1, 1, 2, 5][chance.below(5)] + usize::from(chance.percent(50)));
        let mut world = Self {
            chance,
            rules,
            numbers: (rules.numbers)(terms),
            places: vec![Place::default(); terms.places()],
            weights,
            faulted: BTreeSet::new(),
            was_replaced: false,
            tried: vec![None],
            acknowledged: None,
            seen,
            trace: std::env::var("FORM_TRACE").is_ok(),
        };
        for step in 0..5 + world.chance.below(STEPS) {
            world.step();
            world.keeps().map_err(|broken| format!("step {step}: {broken}"))?;
            world.read().map_err(|broken| format!("step {step}: {broken}"))?;
        }
        world.end().map_err(|broken| format!("in the end: {broken}"))
    }

    fn terms(&self) -> Terms {
        self.numbers.terms
    }

    fn is_holder(&self, place: usize) -> bool {
        place < self.numbers.holders
    }

    /// Whether a fault at this place leaves k others without one.
    fn may_fail(&self, place: usize) -> bool {
        let mut failing = self.faulted.clone();
        failing.extend((0..self.places.len()).filter(|place| self.places[*place].is_away));
        failing.insert(place);
        self.places.len() - failing.len() >= self.terms().data()
    }

    fn step(&mut self) {
        let place = self.chance.below(self.places.len());
        let mut at = self.chance.below(self.weights.iter().sum::<usize>().max(1));
        let event = self.weights.iter().position(|weight| {
            let here = at < *weight;
            at = at.saturating_sub(*weight);
            here
        });
        match event {
            Some(0) => self.write_small(),
            Some(1) => self.write_large(),
            Some(2) => self.delete(),
            Some(3) => self.compare_some(place),
            Some(4) => self.forget(),
            Some(5) if self.may_fail(place) => {
                self.places[place].both = Both::default();
                self.faulted.insert(place);
                self.was_replaced = true;
                self.seen.replaced += 1;
                self.tell(|| format!("{place} is replaced"));
            }
            Some(6) if self.may_fail(place) => self.places[place].is_away = true,
            Some(7) => self.places[place].is_away = false,
            _ => {}
        }
        if self.is_whole() {
            self.faulted.clear();
            self.was_replaced = false;
        }
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{}", what());
        }
    }

    /// A time for something that is tried.
    fn now(&mut self, form: Option<Form>) -> u64 {
        self.tried.push(form);
        self.tried.len() as u64 - 1
    }

    fn ask(&mut self, place: usize, request: Request) -> Answer {
        let (changes, answer) = (self.rules.answer)(&self.places[place].both, request);
        self.tell(|| format!("{place}: {request:?} -> {changes:?}, {answer:?}"));
        changes.into_iter().for_each(|change| self.places[place].both.apply(change));
        if matches!(answer, Answer::Superseded(_)) {
            self.seen.superseded += 1;
        }
        answer
    }

    /// Who can be reached, in any order; a message may be lost to one that a fault may be added to.
    fn reachable(&mut self) -> Vec<usize> {
        let mut found: Vec<usize> = (0..self.places.len()).filter(|place| !self.places[*place].is_away).collect();
        if self.chance.percent(40) {
            let lost = self.chance.below(self.places.len());
            if self.may_fail(lost) {
                found.retain(|place| *place != lost);
            }
        }
        self.chance.shuffle(&mut found);
        found
    }

    fn acknowledge(&mut self, timestamp: u64, missed: impl Iterator<Item = usize>) {
        self.acknowledged = self.acknowledged.max(Some(timestamp));
        self.faulted.extend(missed);
    }

    fn write_small(&mut self) {
        let reachable = self.reachable();
        let at = self.now(Some(Form::Small));
        let (before, mut write, holders) = (self.form(), SmallWrite::new(self.numbers), self.numbers.holders);
        let mut reached = 0;
        for place in reachable.iter().copied().filter(|place| *place < holders) {
            let answer = self.ask(place, Request::Copy(at));
            write.heard(place, answer);
            reached += 1;
        }
        // A proxy may stop before it tells anybody that older fragments are dead.
        if write.may_outdate() && self.chance.percent(80) {
            for place in reachable.iter().copied().filter(|place| *place < holders) {
                self.ask(place, Request::Outdate(at));
            }
        }
        for place in reachable.iter().copied().filter(|place| *place >= holders) {
            if reached < self.numbers.majority()
                || write.lacks() == 0
                || (self.rules.is_durable)(&write, reached, self.numbers)
            {
                break;
            }
            let answer = self.ask(place, Request::Outdate(at));
            write.heard(place, answer);
            self.seen.outdated += 1;
        }
        if (self.rules.is_durable)(&write, reached, self.numbers) {
            self.seen.small += 1;
            self.seen.changed += usize::from(before == Some(Form::Large));
            self.acknowledge(at, (0..holders).filter(|place| !reachable.contains(place)));
        } else {
            self.seen.unknown += 1;
        }
    }

    fn form(&self) -> Option<Form> {
        self.places.iter().filter_map(|place| place.both.data()).max().map(|(_, form)| form)
    }

    /// It is committed by a quorum, or nothing comes of it.
    fn write_large(&mut self) {
        let reachable = self.reachable();
        let before = self.form();
        if reachable.len() < self.terms().quorum() {
            return;
        }
        let at = self.now(Some(Form::Large));
        for place in &reachable {
            self.ask(*place, Request::Fragment(at));
        }
        self.seen.large += 1;
        self.seen.changed += usize::from(before == Some(Form::Small));
        let all = self.places.len();
        self.acknowledge(at, (0..all).filter(|place| !reachable.contains(place)));
    }

    fn delete(&mut self) {
        let reachable = self.reachable();
        let at = self.now(None);
        for place in &reachable {
            self.ask(*place, Request::Delete(at));
        }
        let holders = reachable.iter().filter(|place| **place < self.numbers.holders).count();
        if reachable.len() >= self.terms().quorum() && holders >= self.numbers.majority() {
            self.seen.deleted += 1;
            let all = self.places.len();
            self.acknowledge(at, (0..all).filter(|place| !reachable.contains(place)));
        } else {
            self.seen.unknown += 1;
        }
    }

    /// One place learns what another one shows of a form.
    fn compare(&mut self, from: usize, to: usize, form: Form) -> bool {
        let of = |both: &Both| if form == Form::Small { both.copy } else { both.fragment };
        let Some(entry) = of(&self.places[from].both) else { return false };
        let own = of(&self.places[to].both);
        let is_newer = |own: Entry| (own.timestamp, !own.is_data) < (entry.timestamp, !entry.is_data);
        if own.is_some_and(|own| !is_newer(own)) {
            return false;
        }
        if form == Form::Large && entry.is_data {
            // It is rebuilt of k others.
            let has = |place: &&Place| !place.is_away && place.both.fragment == Some(entry);
            if self.places.iter().filter(has).count() < self.terms().data() {
                return false;
            }
        }
        let before = self.places[to].both;
        self.ask(to, Request::Learn(Change { form, entry }));
        self.places[to].both != before
    }

    fn compare_some(&mut self, place: usize) {
        let other = self.chance.below(self.places.len());
        if self.places[place].is_away || self.places[other].is_away {
            return;
        }
        let form = if self.chance.percent(50) { Form::Small } else { Form::Large };
        if form == Form::Large || (self.is_holder(place) && self.is_holder(other)) {
            self.compare(other, place, form);
        }
        if self.is_holder(place) && self.chance.percent(50) {
            self.outdate(place);
        }
    }

    /// A holder sees how many others have its copy.
    fn outdate(&mut self, place: usize) -> bool {
        let before = self.places[place].both;
        let others = (0..self.numbers.holders).filter(|other| *other != place && !self.places[*other].is_away);
        let shown: Vec<_> = others.map(|other| self.places[other].both.copy).collect();
        if let Some(at) = (self.rules.outdates)(&before, &shown, self.numbers) {
            self.ask(place, Request::Outdate(at));
        }
        self.places[place].both != before
    }

    /// Tombstones are forgotten when all places have the same, which they have long before `reclaim_age`.
    fn forget(&mut self) {
        if !self.is_whole() {
            return;
        }
        for Place { both, .. } in &mut self.places {
            let had = *both;
            both.copy = both.copy.filter(|entry| entry.is_data);
            both.fragment = both.fragment.filter(|entry| entry.is_data);
            self.seen.forgotten += usize::from(*both != had);
        }
    }

    /// Whether all places have the same.
    fn is_whole(&self) -> bool {
        let holders = &self.places[..self.numbers.holders];
        self.places.iter().all(|place| place.both.fragment == self.places[0].both.fragment)
            && holders.iter().all(|place| place.both.copy == holders[0].both.copy)
    }

    /// What is there by what was acknowledged: nothing after a deletion.
    fn expected(&self) -> Option<(u64, Form)> {
        let at = self.acknowledged?;
        Some((at, self.tried[at as usize]?))
    }

    /// What was acknowledged is somewhere, or something newer.
    fn keeps(&self) -> Result<(), String> {
        let Some((at, form)) = self.expected() else { return Ok(()) };
        let having = |is_it: &dyn Fn(&Both) -> Option<Entry>, time: u64| {
            let is_there = |place: &&Place| is_it(&place.both) == Some(Entry { timestamp: time, is_data: true });
            self.places.iter().filter(is_there).count()
        };
        let is_kept = (at..self.tried.len() as u64).any(|time| {
            having(&|both| both.copy, time) > 0 || having(&|both| both.fragment, time) >= self.terms().data()
        });
        let is_deleted = self.tried[at as usize..].iter().any(Option::is_none);
        if is_kept || is_deleted { Ok(()) } else { Err(format!("{at}, {form:?}, is lost")) }
    }

    /// Somebody reads, from places in any order.
    fn read(&mut self) -> Result<(), String> {
        let mut order: Vec<usize> = (0..self.places.len()).filter(|place| !self.places[*place].is_away).collect();
        self.chance.shuffle(&mut order);
        let mut finding = Finding::new(self.numbers);
        let mut step = Step::Ask;
        for place in order {
            finding.heard(place, self.places[place].both);
            step = (self.rules.step)(&finding);
            if step != Step::Ask {
                break;
            }
        }
        let newest = self.acknowledged;
        match step {
            Step::Ask => self.seen.unavailable += 1,
            Step::Absent => {
                self.seen.absent += 1;
                let may_be_deleted = |there: u64| self.tried[there as usize..].iter().any(Option::is_none);
                if let Some((there, form)) = self.expected().filter(|(there, _)| !may_be_deleted(*there)) {
                    return Err(format!("nothing is found, and {there} is there, {form:?}"));
                }
            }
            Step::Give(at, form) => {
                if self.tried[at as usize] != Some(form) {
                    return Err(format!("{at} is given as {form:?}, which nobody wrote"));
                }
                if Some(at) < newest && !self.was_replaced {
                    let present = self.places.iter().filter(|place| !place.is_away);
                    let fragments = present.filter(|place| {
                        place.both.fragment.is_some_and(|one| one == Entry { timestamp: at, is_data: true })
                    });
                    if form == Form::Small || fragments.count() >= self.terms().data() {
                        return Err(format!("{at} is given, {form:?}, and {newest:?} was acknowledged"));
                    }
                }
                self.seen.given += 1;
            }
        }
        Ok(())
    }

    /// Faults are over, and places are compared until nothing changes.
    fn end(&mut self) -> Result<(), String> {
        self.places.iter_mut().for_each(|place| place.is_away = false);
        for _ in 0..10 * self.places.len() {
            let mut changes = false;
            let all = 0..self.places.len();
            let pairs: Vec<_> = all.clone().flat_map(|from| all.clone().map(move |to| (from, to))).collect();
            for holder in 0..self.numbers.holders {
                changes |= self.outdate(holder);
            }
            for (from, to) in pairs {
                changes |= self.compare(from, to, Form::Large);
                if self.is_holder(from) && self.is_holder(to) {
                    changes |= self.compare(from, to, Form::Small);
                }
            }
            if !changes {
                break;
            }
        }
        let state: Vec<Both> = self.places.iter().map(|place| place.both).collect();
        if !self.is_whole() {
            return Err(format!("places differ: {state:?}"));
        }
        let both = state[0];
        let data = |entry: Option<Entry>| entry.is_some_and(|entry| entry.is_data);
        if data(both.copy) && data(both.fragment) {
            return Err(format!("it is kept in both forms: {both:?}"));
        }
        let found = both.data().filter(|(at, _)| Some(*at) > both.dead());
        let newest = self.acknowledged;
        match (found, self.expected()) {
            (Some((at, _)), _) if Some(at) < newest => Err(format!("{at} is left, and {newest:?} was acknowledged")),
            (None, Some((there, _))) if self.tried[there as usize..].iter().all(Option::is_some) => {
                Err(format!("{there} is gone: {both:?}"))
            }
            _ => Ok(()),
        }
    }
}

/// A place that others have passed by learns of a newer write, or shows an older one: of no place's form anything is left
/// that nobody else knows to be dead. Few seeds reach it.
#[test]
fn what_is_learned_of_one_form_ends_what_is_older_of_the_other() {
    let entry = |timestamp, is_data| Entry { timestamp, is_data };
    let after = |mut both: Both, form, learned| {
        let (changes, _) = forms::answer(&both, Request::Learn(Change { form, entry: learned }));
        changes.into_iter().for_each(|change| both.apply(change));
        both
    };
    let small = Both { copy: Some(entry(5, true)), fragment: None };
    let large = Both { copy: None, fragment: Some(entry(5, true)) };
    // Only this place has had the copy, so that no other one has a tombstone of it.
    let ended = Both { copy: Some(entry(5, false)), fragment: Some(entry(6, true)) };
    assert_eq!(after(small, Form::Large, entry(6, true)), ended);
    // A copy is not known to count yet.
    let kept = Both { copy: Some(entry(6, true)), fragment: Some(entry(5, true)) };
    assert_eq!(after(large, Form::Small, entry(6, true)), kept);
    // What is older there is dead, and is told so; fragments only once more than half of the holders have the copy.
    assert_eq!(after(large, Form::Small, entry(4, true)).copy, Some(entry(4, false)));
    let both = after(small, Form::Large, entry(4, true));
    assert_eq!(both.fragment, Some(entry(4, true)));
    let numbers = Numbers::of(Terms::of(Scheme::new(3, 3).expect("a scheme")));
    let outdates = |others: &[Option<Entry>]| forms::outdates(&both, others.iter().copied(), numbers);
    assert_eq!(outdates(&[small.copy, None]), None);
    assert_eq!(outdates(&[small.copy, None, small.copy]), Some(5));
    // A tombstone among fragments is a deletion, or older than the copy that has made them dead.
    assert_eq!(after(small, Form::Large, entry(6, false)).copy, Some(entry(6, false)));
    assert_eq!(after(small, Form::Large, entry(4, false)).copy, small.copy);
    // Those among copies say nothing of fragments, which know themselves that they are deleted.
    assert_eq!(after(large, Form::Small, entry(6, false)).fragment, large.fragment);
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn an_object_keeps_what_was_acknowledged_in_whichever_form() {
    let first = number("FORM_SEED", 1);
    let mut seen = Seen::default();
    for seed in first..first + number("FORM_SEEDS", SEEDS) {
        if let Err(broken) = World::run(seed, Rules::default(), &mut seen) {
            panic!("seed {seed}: {broken}\nFORM_SEED={seed} FORM_SEEDS=1 FORM_TRACE=1 tells its history");
        }
    }
    println!("{seen:#?}");
    seen.assert_all_kinds();
}

type Reaction = (Vec<Change>, Answer);

/// Without tombstones of a form that follow from a request of this kind.
fn without(form: Form, request: Request, is_it: fn(&Request) -> bool, (mut changes, answer): Reaction) -> Reaction {
    if is_it(&request) {
        changes.retain(|change| change.form != form || change.entry.is_data);
    }
    (changes, answer)
}

fn copies_end_fragments_at_once(both: &Both, request: Request) -> Reaction {
    let (mut changes, answer) = forms::answer(both, request);
    if let (Request::Copy(timestamp), Some(_)) = (request, both.fragment) {
        changes.push(Change { form: Form::Large, entry: Entry { timestamp, is_data: false } });
    }
    (changes, answer)
}

fn fragments_leave_copies(both: &Both, request: Request) -> Reaction {
    let is_fragment = |request: &Request| matches!(request, Request::Fragment(_));
    without(Form::Small, request, is_fragment, forms::answer(both, request))
}

fn deletes_fragments_alone(both: &Both, request: Request) -> Reaction {
    let is_deletion = |request: &Request| matches!(request, Request::Delete(_));
    without(Form::Small, request, is_deletion, forms::answer(both, request))
}

fn asks_any_places(finding: &Finding) -> Step {
    let data = finding.answers.values().filter_map(Both::data).max();
    match data.filter(|_| finding.answers.len() >= finding.numbers.terms.refusals()) {
        Some((timestamp, form)) => Step::Give(timestamp, form),
        None => finding.step(),
    }
}

fn takes_one_holder_s_word_for_nothing(finding: &Finding) -> Step {
    let has_holder = finding.answers.keys().any(|place| *place < finding.numbers.holders);
    match finding.step() {
        Step::Ask if finding.is_enough() && has_holder => Step::Absent,
        step => step,
    }
}

#[test]
fn every_broken_rule_is_found() {
    let rules = Rules::default();
    let mutants = [
        ("copies end fragments at once", Rules { answer: copies_end_fragments_at_once, ..rules }),
        ("nobody outdates by sync", Rules { outdates: |_, _, _| None, ..rules }),
        ("fragments leave copies", Rules { answer: fragments_leave_copies, ..rules }),
        ("deletes fragments alone", Rules { answer: deletes_fragments_alone, ..rules }),
        ("asks any places", Rules { step: asks_any_places, ..rules }),
        ("takes one holder's word for nothing", Rules { step: takes_one_holder_s_word_for_nothing, ..rules }),
        (
            "a majority of copies is enough",
            Rules { is_durable: |_, reached, numbers| reached >= numbers.majority(), ..rules },
        ),
        ("three holders always", Rules { numbers: |terms| Numbers { terms, holders: 3 }, ..rules }),
    ];
    let mut missed = Vec::new();
    for (name, rules) in mutants {
        let mut seen = Seen::default();
        match (1..=TRIES).find_map(|seed| World::run(seed, rules, &mut seen).err().map(|broken| (seed, broken))) {
            Some((seed, broken)) => println!("{name}: seed {seed}: {broken}"),
            None => missed.push(name),
        }
    }
    assert!(missed.is_empty(), "no seed finds: {missed:?}");
}
