//! Histories that few seeds reach.

use std::sync::Arc;

use swiftlet_erasure::Scheme;

use crate::packs::{Adoption, Answer, Change, Holdings, Member, Pack, Request, Retirement, Step, answer};
use crate::{Terms, Version};

const OBJECT: Member = Member { digest: [1; 16], version: Version { timestamp: 5, generation: 1 } };
const OLD: Pack = Pack { version: Version { timestamp: 10, generation: 2 }, digest: [2; 16] };
const NEW: Pack = Pack { version: Version { timestamp: 20, generation: 3 }, digest: [3; 16] };

fn terms() -> Terms {
    Terms::of(Scheme::new(2, 1).expect("a scheme"))
}

fn with(changes: &[Change]) -> Holdings {
    let mut holdings = Holdings::default();
    changes.iter().for_each(|change| holdings.apply(change));
    holdings
}

fn stored(pack: Pack) -> Change {
    Change::Stored { pack, retired: false }
}

fn ask(holdings: &mut Holdings, request: &Request) -> Answer {
    let (change, answer) = answer(holdings, request, true);
    change.iter().for_each(|change| holdings.apply(change));
    answer
}

fn adopt(pack: Pack) -> Request {
    Request::Adopt { pack, members: Arc::new([OBJECT]) }
}

fn learn(pack: Pack) -> Request {
    Request::Learn { pack, member: OBJECT }
}

/// Two places have adopted the old pack, the third one has not. It says so, and is replaced before the others retire it.
#[test]
fn a_device_that_comes_after_the_first_answer_is_found_by_the_second_question() {
    let packed = || {
        with(&[Change::Settled(OBJECT), stored(OLD), stored(NEW), Change::Adopted { pack: OLD, members: vec![OBJECT] }])
    };
    let mut places = [packed(), packed(), with(&[Change::Settled(OBJECT), stored(OLD), stored(NEW)])];
    let mut retirement = Retirement::new(terms());
    let first = ask(&mut places[2], &Request::Retire(OLD));
    assert_eq!(retirement.retired(0, 2, first), Step::Wait);
    places[2] = with(&[stored(OLD)]);
    assert_eq!(ask(&mut places[2], &learn(OLD)), Answer::Done);
    for place in [0, 1] {
        assert_eq!(ask(&mut places[place], &adopt(NEW)), Answer::Done);
    }
    let mut step = Step::Wait;
    for place in [0, 1] {
        let answer = ask(&mut places[place], &Request::Retire(OLD));
        step = retirement.retired(0, place, answer);
    }
    // Everyone has said once that nothing refers to it, and somebody does.
    assert_eq!((step, places[2].references(OLD).count()), (Step::RetireAgain, 1));
    for (place, holdings) in places.iter_mut().enumerate() {
        let answer = ask(holdings, &Request::Retire(OLD));
        step = retirement.retired(retirement.pass(), place, answer);
    }
    assert_eq!(step, Step::GiveUp);
    assert_eq!(ask(&mut places[2], &Request::Delete(OLD)), Answer::Refused);
    // The new pack comes to it as well, and then the old one may go.
    assert_eq!(ask(&mut places[2], &adopt(NEW)), Answer::Refused);
    places[2].apply(&stored(NEW));
    assert_eq!(ask(&mut places[2], &adopt(NEW)), Answer::Done);
    let mut retirement = Retirement::new(terms());
    let mut steps = Vec::new();
    for pass in [0, 1] {
        for (place, holdings) in places.iter_mut().enumerate() {
            let answer = ask(holdings, &Request::Retire(OLD));
            steps.push(retirement.retired(pass, place, answer));
        }
    }
    assert_eq!(steps, [Step::Wait, Step::Wait, Step::RetireAgain, Step::Wait, Step::Wait, Step::Delete]);
}

#[test]
fn answers_of_an_earlier_pass_and_repeated_ones_count_for_nothing() {
    let unused = Answer::Retired { before: true, references: 0 };
    let mut retirement = Retirement::new(terms());
    assert_eq!([0, 0, 1].map(|place| retirement.retired(0, place, unused)), [Step::Wait; 3]);
    assert_eq!(retirement.retired(0, 2, unused), Step::RetireAgain);
    assert_eq!([0, 1, 2].map(|place| retirement.retired(0, place, unused)), [Step::Wait; 3]);
    assert_eq!([0, 1].map(|place| retirement.retired(1, place, unused)), [Step::Wait; 2]);
    assert_eq!(retirement.retired(1, 2, unused), Step::Delete);
}

/// References that were on their way reach a device that came when all places had retired the pack.
#[test]
fn a_device_that_comes_last_takes_no_reference_to_what_is_retired() {
    let mut fresh = Holdings::default();
    assert_eq!(ask(&mut fresh, &learn(OLD)), Answer::Refused);
    fresh.apply(&Change::Stored { pack: OLD, retired: true });
    assert_eq!(ask(&mut fresh, &learn(OLD)), Answer::Refused);
    assert_eq!(ask(&mut fresh, &Request::Prove(OLD)), Answer::Refused);
    fresh.apply(&Change::Settled(OBJECT));
    assert_eq!(ask(&mut fresh, &adopt(OLD)), Answer::Refused);
    fresh.apply(&Change::Deleted(OLD));
    fresh.apply(&stored(OLD));
    assert!(!fresh.own(&OLD).fragment, "a deleted pack comes back");
}

#[test]
fn a_pack_is_adopted_after_all_have_proved_it() {
    let mut adoption = Adoption::new(terms(), 3);
    assert_eq!([0, 0, 1].map(|place| adoption.proved(place, Answer::Done)), [Step::Wait; 3]);
    assert_eq!(adoption.proved(2, Answer::Done), Step::Adopt);
    // Once is enough.
    assert_eq!(adoption.proved(2, Answer::Done), Step::Wait);
    assert_eq!([2, 0].map(|place| adoption.adopted(place, Answer::Done)), [Step::Wait; 2]);
    assert_eq!(adoption.adopted(1, Answer::Done), Step::Done);
    assert_eq!(Adoption::new(terms(), 3).proved(0, Answer::Refused), Step::GiveUp);
}

/// Packs are adopted in any order, and again, and writes come in between.
#[test]
fn the_order_does_not_matter() {
    let adopted = |pack| Change::Adopted { pack, members: vec![OBJECT] };
    let newer = Change::Settled(Member { version: Version { timestamp: 6, generation: 1 }, ..OBJECT });
    let start = [Change::Settled(OBJECT), stored(OLD), stored(NEW)];
    let after = |changes: &[Change]| {
        let mut holdings = with(&start);
        changes.iter().for_each(|change| holdings.apply(change));
        holdings
    };
    let packed = after(&[adopted(NEW)]);
    assert_eq!(packed.references(NEW).collect::<Vec<_>>(), [OBJECT]);
    assert_eq!(after(&[adopted(OLD), adopted(NEW)]), packed);
    assert_eq!(after(&[adopted(NEW), adopted(OLD), Change::Settled(OBJECT), adopted(NEW)]), packed);
    let overwritten = after(std::slice::from_ref(&newer));
    assert_eq!(after(&[newer.clone(), adopted(NEW)]), overwritten);
    assert_eq!(after(&[adopted(NEW), newer]), overwritten);
}
