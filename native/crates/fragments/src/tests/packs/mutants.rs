//! That the checker sees: rules are broken on purpose, one at a time, and a seed finds each. Histories of some are in
//! [`rules`](super::rules).

use super::world::{Seen, World};
use super::{Rules, number};
use crate::packs::{Answer, Change, Holdings, Request, answer};

/// Seeds that look for a mutant, from the first one on that has found it. `PACK_MUTANT_SEEDS` has all seeds tried from 1
/// on, so many.
const TRIES: u64 = 50;

type Reaction = (Option<Change>, Answer);

fn adopts_what_it_does_not_have(holdings: &Holdings, request: &Request, reads_back: bool) -> Reaction {
    match (request, answer(holdings, request, reads_back)) {
        (Request::Adopt { pack, members }, (_, Answer::Done)) => {
            let missing = members.iter().find(|member| holdings.object(&member.digest).is_none());
            let change = missing.map(|member| Change::Learned { pack: *pack, member: *member });
            (change.or_else(|| answer(holdings, request, reads_back).0), Answer::Done)
        }
        (_, reaction) => reaction,
    }
}

fn adopts_packs_that_are_retired(holdings: &Holdings, request: &Request, reads_back: bool) -> Reaction {
    match request {
        Request::Adopt { pack, members } if holdings.own(pack).retired => {
            (Some(Change::Adopted { pack: *pack, members: members.to_vec() }), Answer::Done)
        }
        _ => answer(holdings, request, reads_back),
    }
}

fn proves_nothing(holdings: &Holdings, request: &Request, reads_back: bool) -> Reaction {
    match request {
        Request::Prove(_) => (None, Answer::Done),
        _ => answer(holdings, request, reads_back),
    }
}

fn retires_nothing_durable(holdings: &Holdings, request: &Request, reads_back: bool) -> Reaction {
    match (request, answer(holdings, request, reads_back)) {
        (Request::Retire(_), (_, Answer::Retired { references, .. })) => {
            (None, Answer::Retired { before: true, references })
        }
        (_, reaction) => reaction,
    }
}

#[test]
fn every_broken_rule_is_found() {
    let rules = Rules::default();
    let mutants = [
        ("adopts what it does not have", 16, Rules { answer: adopts_what_it_does_not_have, ..rules }),
        ("adopts packs that are retired", 3956, Rules { answer: adopts_packs_that_are_retired, ..rules }),
        ("proves nothing", 2, Rules { answer: proves_nothing, ..rules }),
        ("retires nothing durable", 115, Rules { answer: retires_nothing_durable, ..rules }),
        ("adopts after a quorum of proofs", 13, Rules { proofs: |places| places - 1, ..rules }),
        ("reads nothing back", 13, Rules { is_read_back: false, ..rules }),
        ("deletes after all but one have no references", 65, Rules { unused: |places| places - 1, ..rules }),
        ("deletes by an old ring", 1611, Rules { asks_for_ring: false, ..rules }),
        ("brings no metadata", 27, Rules { posts_are_brought: false, ..rules }),
        ("compares no bytes", 82, Rules { compares_bytes: false, ..rules }),
        ("drops what not all places have shown", 26, Rules { hands_back_to_all: false, ..rules }),
    ];
    let tries = number("PACK_MUTANT_SEEDS", 0);
    let mut missed = Vec::new();
    for (name, known, rules) in mutants {
        let seeds = match known {
            _ if tries > 0 => 1..1 + tries,
            _ => known..known + TRIES,
        };
        let mut seen = Seen::default();
        match seeds.into_iter().find_map(|seed| World::run(seed, rules, &mut seen).err().map(|broken| (seed, broken))) {
            Some((seed, broken)) => println!("{name}: seed {seed}: {broken}"),
            None => missed.push(name),
        }
    }
    assert!(missed.is_empty(), "no seed finds: {missed:?}");
}
