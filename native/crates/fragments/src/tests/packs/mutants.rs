//! That the checker sees: rules are broken on purpose, one at a time, and a seed finds each. Histories for which it takes
//! too many seeds are in [`rules`](super::rules).

use super::world::{Seen, World};
use super::{Rules, number};
use crate::packs::{Answer, Change, Holdings, Request, answer};

/// Seeds that look for a mutant. `PACK_MUTANT_SEEDS` names another number.
const TRIES: u64 = 5000;

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
        ("adopts what it does not have", Rules { answer: adopts_what_it_does_not_have, ..rules }),
        ("adopts packs that are retired", Rules { answer: adopts_packs_that_are_retired, ..rules }),
        ("proves nothing", Rules { answer: proves_nothing, ..rules }),
        ("retires nothing durable", Rules { answer: retires_nothing_durable, ..rules }),
        ("adopts after a quorum of proofs", Rules { proofs: |places| places - 1, ..rules }),
        ("reads nothing back", Rules { is_read_back: false, ..rules }),
        ("deletes after all but one have no references", Rules { unused: |places| places - 1, ..rules }),
        ("deletes by an old ring", Rules { asks_for_ring: false, ..rules }),
        ("keeps references to what is deleted", Rules { keeps_dangling: true, ..rules }),
        ("brings no metadata", Rules { posts_are_brought: false, ..rules }),
        ("compares no bytes", Rules { compares_bytes: false, ..rules }),
        ("packs copies that others have in a pack", Rules { leaves_out_packed: false, ..rules }),
        ("drops what not all places have shown", Rules { hands_back_to_all: false, ..rules }),
    ];
    let tries = number("PACK_MUTANT_SEEDS", TRIES);
    let mut missed = Vec::new();
    for (name, rules) in mutants {
        let mut seen = Seen::default();
        match (1..=tries).find_map(|seed| World::run(seed, rules, &mut seen).err().map(|broken| (seed, broken))) {
            Some((seed, broken)) => println!("{name}: seed {seed}: {broken}"),
            None => missed.push(name),
        }
    }
    assert!(missed.is_empty(), "no seed finds: {missed:?}");
}
