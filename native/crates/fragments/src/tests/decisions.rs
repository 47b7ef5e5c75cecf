//! Decisions that a person can go through: limits of a slot, what promises lead to, what a handoff remembers.

use std::collections::BTreeMap;
use std::sync::Arc;

use swiftlet_erasure::Scheme;

use crate::read::{Read, Step};
use crate::recovery::{Promise, choose};
use crate::request::{Answer, Request, answer};
use crate::slot::{Change, MAX_FRAGMENTS, MAX_VERSIONS, Shown, Slot};
use crate::sync::returned;
use crate::{Accepted, Ballot, Device, Outcome, Terms, Version};

const HIGHER: Ballot = Ballot { round: 1, nonce: 7 };

fn chosen(places: usize) -> Arc<[Device]> {
    (0..places).map(|at| Device { number: at as u32, incarnation: at as u64 }).collect()
}

fn version(timestamp: u64) -> Version {
    Version { timestamp, generation: 5 }
}

/// Ask, and make durable what has to be.
fn ask(slot: &mut Slot, request: &Request) -> Answer {
    let (change, answer) = answer(slot, request);
    change.iter().for_each(|change| slot.apply(change));
    answer
}

fn prepare(slot: &mut Slot, timestamp: u64) -> Answer {
    ask(slot, &Request::Prepare { version: version(timestamp), chosen: chosen(6) })
}

#[test]
fn a_fifth_fragment_is_refused_until_something_became_of_another_one() {
    let mut slot = Slot::default();
    let most = MAX_FRAGMENTS as u64;
    for timestamp in 1..=most {
        assert_eq!(prepare(&mut slot, timestamp), Answer::Done);
    }
    assert_eq!(prepare(&mut slot, most), Answer::Done, "once more");
    assert_eq!(prepare(&mut slot, most + 1), Answer::Busy);
    let abort = Request::Decide { version: version(1), outcome: Outcome::Abort };
    assert_eq!(ask(&mut slot, &abort), Answer::Done);
    assert_eq!(prepare(&mut slot, 1), Answer::Decided(Outcome::Abort), "for ever");
    assert_eq!(prepare(&mut slot, most + 1), Answer::Done);
}

#[test]
fn what_a_slot_remembers_is_limited_and_a_settled_version_ends_it() {
    let mut slot = Slot::default();
    let promise = |timestamp| Request::Promise { version: version(timestamp), chosen: chosen(6), ballot: HIGHER };
    let most = MAX_VERSIONS as u64;
    for timestamp in 1..=most {
        assert_eq!(ask(&mut slot, &promise(timestamp)), Answer::Promised { accepted: None, fragment: false });
    }
    assert_eq!(ask(&mut slot, &promise(most + 1)), Answer::Busy);
    let accepted = Accepted { ballot: HIGHER, outcome: Outcome::Commit };
    let accept = Request::Accept { version: version(most + 1), chosen: chosen(6), accepted };
    assert_eq!(ask(&mut slot, &accept), Answer::Busy);
    assert_eq!(ask(&mut slot, &Request::Keep { version: version(most + 1), chosen: chosen(6) }), Answer::Busy);
    assert_eq!(ask(&mut slot, &Request::Delete { timestamp: most }), Answer::Done);
    assert_eq!(slot.kept().count(), 0);
    assert_eq!(prepare(&mut slot, most), Answer::Superseded(Version::deletion(most)));
}

/// The outcome for 4+2 (q is 5, and 2 refusals prove that it was missed), from what each device had accepted and
/// whether it has the fragment.
fn chosen_outcome(promises: &[(Option<Accepted>, bool)]) -> Option<Outcome> {
    let terms = Terms::of(Scheme::new(4, 2).expect("a scheme"));
    let all = promises.iter().enumerate();
    let all: BTreeMap<usize, Promise> = all
        .map(|(place, (accepted, fragment))| (place, Promise { accepted: *accepted, fragment: *fragment }))
        .collect();
    choose(terms, &all)
}

#[test]
fn what_may_have_been_acknowledged_is_committed_and_what_was_not_is_aborted() {
    let committed = (Some(Accepted { ballot: Ballot::PROXY, outcome: Outcome::Commit }), true);
    let (prepared, nothing) = ((None, true), (None, false));
    assert_eq!(chosen_outcome(&[prepared; 3]), None, "no majority");
    assert_eq!(chosen_outcome(&[prepared; 6]), Some(Outcome::Abort), "nobody was told anything");
    // Two may have committed that don't answer.
    assert_eq!(chosen_outcome(&[committed, committed, committed, nothing]), Some(Outcome::Commit));
    // With the two that don't answer they are four: not acknowledged, and not as safe as that.
    assert_eq!(chosen_outcome(&[committed, committed, nothing, nothing]), Some(Outcome::Abort));
    // Not acknowledged, and as safe: somebody may have read it.
    assert_eq!(chosen_outcome(&[committed, prepared, prepared, prepared, prepared]), Some(Outcome::Commit));
    let later = (Some(Accepted { ballot: HIGHER, outcome: Outcome::Abort }), true);
    assert_eq!(chosen_outcome(&[committed, committed, committed, later]), Some(Outcome::Abort), "goes on");
}

#[test]
fn a_handoff_remembers_that_what_it_has_handed_back_counts() {
    let mut slot = Slot::default();
    prepare(&mut slot, 1);
    ask(&mut slot, &Request::Settle(version(1)));
    let mut shown = slot.shown().expect("a version");
    assert_eq!(returned(&slot, None), None);
    let change = returned(&slot, Some(&shown)).expect("the place has it");
    assert_eq!(change, Change::Returned(version(1)));
    let undecided = {
        let mut slot = slot.clone();
        prepare(&mut slot, 2);
        returned(&slot, Some(&shown))
    };
    assert_eq!(undecided, None, "something newer is not decided");
    shown.settled = false;
    assert_eq!(returned(&slot, Some(&shown)), None, "older versions are needed");
    slot.apply(&change);
    assert_eq!((slot.fragments(), slot.shown()), (0, None));
    // A device that was away, and is still in doubt: were all others to say that they know nothing, it would abort.
    let promise = Request::Promise { version: version(1), chosen: chosen(6), ballot: HIGHER };
    assert_eq!(ask(&mut slot, &promise), Answer::Decided(Outcome::Commit));
}

/// A read of 4+2, in which the first place has named this version.
fn reading(first: Version) -> Read {
    let mut read = Read::new(Terms::of(Scheme::new(4, 2).expect("a scheme")));
    assert_eq!(read.newest(Some(0), &newest(Some(first))), Step::Fetch(first));
    read
}

fn newest(committed: Option<Version>) -> Answer {
    Answer::Newest { committed, floor: None }
}

#[test]
fn a_read_falls_back_to_an_older_version_with_a_proof_alone() {
    let (old, new) = (version(1), version(2));
    let fragment = Answer::Fragment(chosen(6));
    let mut read = reading(new);
    assert_eq!(read.fetched(new, 0, &fragment), Step::Wait);
    assert_eq!(read.fetched(new, 0, &fragment), Step::Wait, "the same once more");
    assert_eq!(read.fetched(old, 1, &fragment), Step::Wait, "of another version");
    assert_eq!(read.wait_no_longer(), Step::Ask(None), "whether somebody has a newer one");
    assert_eq!(read.newest(Some(1), &newest(Some(old))), Step::Wait);
    assert_eq!(read.wait_no_longer(), Step::Unavailable, "who has the newer one doesn't answer");

    let mut read = reading(new);
    assert_eq!(read.fetched(new, 1, &Answer::Decided(Outcome::Abort)), Step::Wait);
    assert_eq!(read.wait_no_longer(), Step::Ask(Some(new)));
    assert_eq!(read.newest(Some(1), &newest(Some(old))), Step::Wait);
    assert_eq!(read.wait_no_longer(), Step::Fetch(old));
    for index in 0..3 {
        assert_eq!(read.fetched(old, index, &fragment), Step::Wait);
    }
    assert_eq!(read.fetched(old, 5, &fragment), Step::Give(old));
}

#[test]
fn a_read_finds_nothing_when_three_places_of_six_say_so() {
    let terms = Terms::of(Scheme::new(4, 2).expect("a scheme"));
    for (answers, expected) in [([0, 1, 1], Step::Unavailable), ([0, 1, 5], Step::NotFound)] {
        let mut read = Read::new(terms);
        for place in answers {
            // A deletion in one place may be all that an empty device has heard of.
            let deletion = (place == 1).then(|| Version::deletion(3));
            assert_eq!(read.newest(Some(place), &newest(deletion)), Step::Wait);
        }
        assert_eq!(read.newest(None, &newest(None)), Step::Wait, "a handoff doesn't count");
        assert_eq!(read.wait_no_longer(), expected);
    }
}

#[test]
fn what_another_place_shows_is_learned_step_by_step() {
    let shown = |version: Version, settled| Request::Learn(Shown { version, settled, chosen: chosen(6) });
    let mut slot = Slot::default();
    assert_eq!(ask(&mut slot, &shown(version(1), true)), Answer::Missing, "the fragment is lacking");
    assert_eq!(prepare(&mut slot, 1), Answer::Done);
    assert_eq!(ask(&mut slot, &shown(version(1), true)), Answer::Done, "it counts");
    assert_eq!(slot.floor(), None);
    assert_eq!(ask(&mut slot, &shown(version(1), true)), Answer::Done, "and is settled");
    assert_eq!(slot.floor(), Some(version(1)));
    assert_eq!(ask(&mut slot, &shown(version(1), true)), Answer::Decided(Outcome::Commit), "equal");
    assert_eq!(ask(&mut slot, &shown(version(0), true)), Answer::Superseded(version(1)));
    let deletion = Version::deletion(2);
    assert_eq!(ask(&mut slot, &shown(deletion, true)), Answer::Done);
    assert_eq!(slot.shown().map(|shown| shown.version), Some(deletion));
    assert_eq!(ask(&mut slot, &shown(deletion, true)), Answer::Decided(Outcome::Commit));
}

#[test]
fn only_what_its_place_has_settled_is_handed_back() {
    let back = |settled| Request::HandBack(Shown { version: version(1), settled, chosen: chosen(6) });
    let mut slot = Slot::default();
    assert_eq!(ask(&mut slot, &back(true)), Answer::Missing, "there is nothing");
    assert_eq!(prepare(&mut slot, 1), Answer::Done);
    assert_eq!(ask(&mut slot, &back(false)), Answer::Missing);
    assert_eq!(prepare(&mut slot, 2), Answer::Done);
    assert_eq!(ask(&mut slot, &back(true)), Answer::Missing, "something newer is undecided");
    let abort = Request::Decide { version: version(2), outcome: Outcome::Abort };
    assert_eq!(ask(&mut slot, &abort), Answer::Done);
    assert_eq!(ask(&mut slot, &back(true)), Answer::Done);
    assert_eq!(slot.fragments(), 0);
}
