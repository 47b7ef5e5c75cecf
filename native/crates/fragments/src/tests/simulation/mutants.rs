//! That the checker sees: each rule is broken on purpose, and a seed finds it.
//!
//! A change to the simulation, or to what it drives, gives seeds other histories. Where the seeds that are tried no
//! longer find a broken rule, `make fragment-mutants` names the first seed that does.

use std::sync::Arc;

use super::{Rules, World, number};
use crate::request::{self, Answer, Request};
use crate::slot::{Change, Shown, Slot};
use crate::sync::{self, Todo};
use crate::{Accepted, Ballot, Outcome, Terms, Version};

/// Seeds that look for a mutant, from the known one on. `FRAGMENT_MUTANT_SEEDS` names another number, from 1 on.
const TRIES: u64 = 40;

type Reaction = (Option<Change>, Answer);

fn commits_without_asking_what_it_promised(slot: &Slot, request: &Request) -> Reaction {
    match (request, request::answer(slot, request)) {
        (Request::Commit(version), (None, Answer::Outbid(_))) => {
            let chosen = slot.get(*version).expect("a promise").chosen.clone();
            let accepted = Accepted { ballot: Ballot::PROXY, outcome: Outcome::Commit };
            (Some(Change::Accepted { version: *version, chosen, accepted }), Answer::Done)
        }
        (_, reaction) => reaction,
    }
}

fn promises_nothing_durable(slot: &Slot, request: &Request) -> Reaction {
    let (change, answer) = request::answer(slot, request);
    (change.filter(|change| !matches!(change, Change::Promised { .. })), answer)
}

fn accepts_nothing_durable(slot: &Slot, request: &Request) -> Reaction {
    let (change, answer) = request::answer(slot, request);
    (change.filter(|change| !matches!(change, Change::Accepted { .. })), answer)
}

fn accepts_lower_ballots(slot: &Slot, request: &Request) -> Reaction {
    match (request, request::answer(slot, request)) {
        (Request::Accept { version, chosen, accepted }, (None, Answer::Outbid(_))) => {
            (Some(Change::Accepted { version: *version, chosen: chosen.clone(), accepted: *accepted }), Answer::Done)
        }
        (_, reaction) => reaction,
    }
}

fn prepares_after_a_promise(slot: &Slot, request: &Request) -> Reaction {
    match (request, request::answer(slot, request)) {
        (Request::Prepare { version, chosen }, (None, Answer::Outbid(_) | Answer::Decided(Outcome::Abort))) => {
            (Some(Change::Rebuilt { version: *version, chosen: chosen.clone() }), Answer::Done)
        }
        (_, reaction) => reaction,
    }
}

fn drops_what_it_had_with_its_own_commit(slot: &Slot, request: &Request) -> Reaction {
    match (request, request::answer(slot, request)) {
        (Request::Commit(version), (Some(Change::Accepted { .. }), answer)) => {
            (Some(Change::Settled(*version)), answer)
        }
        (_, reaction) => reaction,
    }
}

fn commits_below_what_is_settled(slot: &Slot, request: &Request) -> Reaction {
    match (request, request::answer(slot, request)) {
        (Request::Keep { version, chosen }, (None, Answer::Superseded(_))) => {
            (Some(Change::Rebuilt { version: *version, chosen: chosen.clone() }), Answer::Done)
        }
        (_, reaction) => reaction,
    }
}

fn never_settles(slot: &Slot, request: &Request) -> Reaction {
    match request {
        Request::Settle(_) => (None, Answer::Done),
        _ => request::answer(slot, request),
    }
}

fn lets_deletions_pass_prepared_fragments(slot: &Slot, request: &Request) -> Reaction {
    match request {
        Request::Delete { .. } if slot.fragments() > 0 => (None, Answer::Done),
        _ => request::answer(slot, request),
    }
}

fn serves_what_was_aborted(slot: &Slot, request: &Request) -> Reaction {
    match (request, request::answer(slot, request)) {
        (Request::Decide { version, outcome: Outcome::Abort }, (Some(_), answer)) => {
            let chosen: Arc<[_]> =
                slot.get(*version).map_or_else(|| Arc::new([]) as Arc<[_]>, |kept| kept.chosen.clone());
            (Some(Change::Rebuilt { version: *version, chosen }), answer)
        }
        (_, reaction) => reaction,
    }
}

fn takes_refused_commits_for_done(request: &Request, answer: Answer) -> Answer {
    match (request, &answer) {
        (Request::Commit(_), Answer::Outbid(_)) => Answer::Done,
        _ => answer,
    }
}

fn takes_refused_fragments_for_prepared(request: &Request, answer: Answer) -> Answer {
    match (request, &answer) {
        (Request::Prepare { .. }, Answer::Outbid(_) | Answer::Busy) => Answer::Done,
        (Request::Commit(_), Answer::Missing) => Answer::Done,
        _ => answer,
    }
}

fn overlooks_commits(request: &Request, answer: Answer) -> Answer {
    match (request, answer) {
        (Request::Promise { .. }, Answer::Promised { accepted: Some(accepted), fragment })
            if accepted.ballot == Ballot::PROXY =>
        {
            Answer::Promised { accepted: None, fragment }
        }
        (_, answer) => answer,
    }
}

fn overlooks_higher_ballots(request: &Request, answer: Answer) -> Answer {
    match (request, answer) {
        (Request::Promise { .. }, Answer::Promised { accepted: Some(accepted), fragment })
            if accepted.ballot > Ballot::PROXY =>
        {
            Answer::Promised { accepted: None, fragment }
        }
        (_, answer) => answer,
    }
}

fn takes_silence_for_an_abort(request: &Request, answer: Answer) -> Answer {
    match (request, &answer) {
        (Request::Fetch(_), Answer::Missing) => Answer::Decided(Outcome::Abort),
        _ => answer,
    }
}

fn one_less_to_write(terms: Terms) -> Terms {
    Terms { quorum: terms.quorum - 1, ..terms }
}

fn k_to_write(terms: Terms) -> Terms {
    Terms { quorum: terms.data - 1, ..terms }
}

fn too_few_to_decide(terms: Terms) -> Terms {
    Terms { places: terms.places - 2, quorum: terms.quorum - 2, ..terms }
}

fn refusals_of_one_less(terms: Terms) -> Terms {
    Terms { quorum: terms.quorum + 1, ..terms }
}

fn one_absence(terms: Terms) -> Terms {
    Terms { places: terms.data, ..terms }
}

fn nobody_settles(terms: Terms) -> Terms {
    Terms { quorum: usize::MAX, ..terms }
}

fn settled_with_one_other(terms: Terms) -> Terms {
    Terms { quorum: 2, ..terms }
}

/// What the first design had: places show, and others rebuild, what is committed and undecided.
fn shows_what_is_undecided(slot: &Slot) -> Option<Shown> {
    let committed = slot.committed(None).filter(|version| !version.is_deletion());
    match committed {
        Some(version) if slot.get(version).is_some_and(|kept| kept.decided.is_none()) => {
            let chosen = slot.get(version).expect("committed").chosen.clone();
            Some(Shown { version, settled: false, chosen })
        }
        _ => slot.shown(),
    }
}

fn rebuilds_older_versions(slot: &Slot, theirs: Option<&Shown>) -> Todo {
    match theirs {
        Some(theirs) if !theirs.version.is_deletion() && slot.shown().is_some_and(|it| it.version > theirs.version) => {
            Todo::Append(Change::Rebuilt { version: theirs.version, chosen: theirs.chosen.clone() })
        }
        _ => sync::compare(slot, theirs),
    }
}

fn hands_back_without_a_proof(slot: &Slot, shown: Option<&Shown>) -> Option<Change> {
    let newest = slot.shown().map(|shown| shown.version);
    sync::returned(slot, shown).or(newest.map(Change::Returned))
}

fn hands_back_what_nobody_has_decided(slot: &Slot, shown: Option<&Shown>) -> Option<Change> {
    let newest = slot.kept().map(|(version, _)| version).max();
    shown.and(newest).map(Change::Returned)
}

fn same_timestamp(one: Version, other: Version) -> bool {
    one.timestamp == other.timestamp
}

/// A rule to break, a seed that finds it, and what is then said.
fn mutants() -> Vec<(&'static str, Rules, u64, &'static str)> {
    let rules = Rules::default;
    let answer = |answer| Rules { answer, ..rules() };
    let heard = |heard| Rules { heard, ..rules() };
    vec![
        (
            "commits_without_asking_what_it_promised",
            answer(commits_without_asking_what_it_promised),
            96,
            "was decided to be",
        ),
        ("promises_nothing_durable", answer(promises_nothing_durable), 22, "is settled, and only"),
        ("accepts_nothing_durable", answer(accepts_nothing_durable), 77, "nothing was found"),
        ("accepts_lower_ballots", answer(accepts_lower_ballots), 1988, "was decided to be"),
        ("prepares_after_a_promise", answer(prepares_after_a_promise), 1, "was read, which was never"),
        (
            "drops_what_it_had_with_its_own_commit",
            answer(drops_what_it_had_with_its_own_commit),
            266,
            "is settled, and only",
        ),
        ("commits_below_what_is_settled", answer(commits_below_what_is_settled), 1418, "keeps"),
        ("never_settles", Rules { settling: nobody_settles, ..answer(never_settles) }, 3, "keeps"),
        (
            "lets_deletions_pass_prepared_fragments",
            answer(lets_deletions_pass_prepared_fragments),
            20,
            "was acknowledged, and",
        ),
        ("serves_what_was_aborted", answer(serves_what_was_aborted), 1, "was read, which was never"),
        ("takes_refused_commits_for_done", heard(takes_refused_commits_for_done), 201, "is settled, and only"),
        ("takes_refused_fragments_for_prepared", heard(takes_refused_fragments_for_prepared), 117, "unreadable"),
        ("overlooks_commits", heard(overlooks_commits), 30, "was acknowledged, and"),
        ("overlooks_higher_ballots", heard(overlooks_higher_ballots), 17_998, "was decided to be"),
        ("takes_silence_for_an_abort", heard(takes_silence_for_an_abort), 35_526, "nothing was found"),
        ("acknowledges_with_one_less", Rules { writing: one_less_to_write, ..rules() }, 42, "is settled, and only"),
        ("acknowledges_with_less_than_k", Rules { writing: k_to_write, ..rules() }, 10, "is settled, and only"),
        ("decides_with_too_few", Rules { recovering: too_few_to_decide, ..rules() }, 2887, "was decided to be"),
        (
            "aborts_with_one_refusal_less",
            Rules { recovering: refusals_of_one_less, ..rules() },
            860,
            "was acknowledged, and",
        ),
        (
            "believes_that_one_place_knows_what_is_missing",
            Rules { reading: one_absence, ..rules() },
            217,
            "nothing was found",
        ),
        (
            "settles_what_one_other_has",
            Rules { settling: settled_with_one_other, ..rules() },
            10_655,
            "is settled, and only",
        ),
        ("shows_what_is_undecided", Rules { shown: shows_what_is_undecided, ..rules() }, 1411, "was decided to be"),
        ("rebuilds_older_versions", Rules { compare: rebuilds_older_versions, ..rules() }, 41, "keeps"),
        ("hands_back_without_a_proof", Rules { returned: hands_back_without_a_proof, ..rules() }, 231, "unreadable"),
        (
            "hands_back_what_nobody_has_decided",
            Rules { returned: hands_back_what_nobody_has_decided, ..rules() },
            59,
            "unreadable",
        ),
        ("repeats_ballots", Rules { nonce: |_| 1, ..rules() }, 9026, "was decided to be"),
        ("lets_a_successor_answer", Rules { is_successor_asked: true, ..rules() }, 2199, "was decided to be"),
        ("mixes_generations", Rules { is_same: same_timestamp, ..rules() }, 30, "gave bytes"),
        ("asks_nobody", Rules { is_recovered: false, ..rules() }, 1, "keeps"),
        ("discards_after_commits", Rules { discards_always: true, ..rules() }, 977, "was decided to be"),
    ]
}

#[test]
fn every_broken_rule_is_found() {
    let tries = number("FRAGMENT_MUTANT_SEEDS", 0);
    let mut missed = Vec::new();
    let wanted = std::env::var("FRAGMENT_MUTANT").ok();
    for (name, rules, known, expected) in mutants() {
        if wanted.as_ref().is_some_and(|wanted| wanted != name) {
            continue;
        }
        let known = number("FRAGMENT_SEED", known);
        let seeds = if tries > 0 { 1..1 + tries } else { known..known + TRIES };
        let found = seeds.into_iter().find_map(|seed| World::run(seed, rules).err().map(|broken| (seed, broken)));
        match found {
            Some((seed, broken)) => {
                println!("{name}: seed {seed}: {broken}");
                // Another seed may find it by another sentence.
                if tries == 0 && !broken.contains(expected) {
                    missed.push(format!("{name}: {broken}"));
                }
            }
            None => missed.push(format!("{name} is not found")),
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
