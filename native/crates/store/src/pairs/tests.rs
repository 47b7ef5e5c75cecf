use super::*;

const TOP: Step = Step { from: 14, to: 10 };

fn pair(members: impl IntoIterator<Item = u32>, differing: &[u32]) -> PairRoots {
    let mut pair = PairRoots::new(members.into_iter().collect()).expect("they ascend");
    for member in pair.members().to_vec() {
        pair.put(member, u128::from(member) << 7 | u128::from(differing.contains(&member)));
    }
    pair
}

/// Descend from the top to the partitions that differ, with all limits of one answer as they are.
fn search(mine: &PairRoots, theirs: &PairRoots, shifts: &[u32], limit: usize) -> Vec<u32> {
    let (mut nodes, mut from) = (vec![0], 14);
    for to in shifts {
        let step = Step::new(from, *to).expect("a step");
        let (mut found, mut left) = (Vec::new(), &nodes[..]);
        while !left.is_empty() {
            let (here, there) = (mine.branches(step, left, &[], limit), theirs.branches(step, left, &[], limit));
            assert!(count(&here).is_some() && count(&there).is_some());
            let (compared, some) = differing(&here, &there, step, left).expect("both answer the question");
            assert!(compared > 0);
            found.extend(some);
            left = &left[compared..];
        }
        (nodes, from) = (found, *to);
    }
    nodes
}

#[test]
fn a_search_finds_what_differs_and_nothing_else() {
    let members = || (0..16_384).filter(|number| number % 3 != 1);
    let changed = [0, 2, 600, 9_000, 9_002, 16_382];
    let (mine, theirs) = (pair(members(), &[]), pair(members(), &changed));
    for (shifts, limit) in [(&[10, 6, 4, 0][..], MAX_BRANCHES), (&[7, 0], 1), (&[13, 12, 5, 3, 0], 20)] {
        assert_eq!(search(&mine, &theirs, shifts, limit), changed, "{shifts:?}");
        assert_eq!(search(&mine, &mine, shifts, limit), []);
    }
}

#[test]
fn partitions_that_only_one_side_has_differ() {
    let (mine, theirs) = (pair([1, 5, 900, 16_383], &[]), pair([1, 6, 900, 2_000], &[900]));
    assert_eq!(search(&mine, &theirs, &[10, 4, 0], MAX_BRANCHES), [5, 6, 900, 2_000, 16_383]);
    assert_eq!(search(&pair([], &[]), &theirs, &[10, 4, 0], MAX_BRANCHES), theirs.members());
}

#[test]
fn the_hash_is_of_these_partitions_and_their_roots() {
    let (mine, theirs) = (pair([1, 5, 900], &[]), pair([1, 5, 6, 900], &[5]));
    assert_ne!(mine.hash(&[]), theirs.hash(&[]));
    assert_ne!(mine.hash(&[5]), theirs.hash(&[5]));
    assert_eq!(mine.hash(&[5]), theirs.hash(&[5, 6]));
    assert_eq!(mine.hash(&[0, 5, 6, 7]), theirs.hash(&[0, 5, 6, 7]));
    assert_eq!(pair([1], &[]).hash(&[1]), pair([], &[]).hash(&[]));
    // Equal roots of other partitions are not the same.
    let mut other = PairRoots::new(vec![2]).expect("they ascend");
    other.put(2, 1 << 7);
    assert_ne!(other.hash(&[]), pair([1], &[]).hash(&[]));
}

#[test]
fn branches_leave_out_what_the_question_leaves_out() {
    let (mine, theirs) = (pair([1, 5, 900], &[]), pair([1, 5, 6, 900], &[5]));
    assert_eq!(mine.branches(TOP, &[0], &[5], MAX_BRANCHES), theirs.branches(TOP, &[0], &[5, 6], MAX_BRANCHES));
    assert_ne!(mine.branches(TOP, &[0], &[], MAX_BRANCHES), theirs.branches(TOP, &[0], &[6], MAX_BRANCHES));
}

#[test]
fn all_branches_of_a_node_need_no_places() {
    let step = Step { from: 2, to: 0 };
    let sizes = [3, 4].map(|count| pair(0..count, &[]).branches(step, &[0], &[], 9).len());
    assert_eq!(sizes, [3 + 3 + 3 * SHORT, 3 + 4 * SHORT]);
}

#[test]
fn what_is_not_told_to_its_end_is_refused() {
    let whole = pair([0, 1, 2, 3, 70, 300], &[]).branches(Step { from: 9, to: 2 }, &[0, 1], &[], 99);
    assert_eq!(count(&whole), Some(2));
    for end in 0..whole.len() {
        assert_eq!(count(&whole[..end]), None, "{end} bytes");
    }
    assert_eq!(count(&[&whole[..], &[0]].concat()), None);
    // Too many bits, none, more branches than a node can have, and places beyond it.
    for bad in [&[17, 0][..], &[0, 0], &[1, 1, 3, 0, 0, 0], &[1, 1, 1, 2, 0, 0, 0]] {
        assert_eq!(count(bad), None, "{bad:?}");
    }
    let step = Step { from: 9, to: 2 };
    assert_eq!(differing(&whole, &whole, step, &[0, 1]), Some((2, vec![])));
    assert_eq!(differing(&whole, &whole, step, &[0]), None);
    assert_eq!(differing(&whole, &whole, Step { from: 9, to: 3 }, &[0, 1]), None);
}

#[test]
fn steps_are_bounded() {
    assert!(Step::new(32, 16).is_some() && Step::new(1, 0).is_some());
    assert!([(33, 20), (32, 15), (4, 4), (4, 5)].iter().all(|(from, to)| Step::new(*from, *to).is_none()));
    assert_eq!(PairRoots::new(vec![1, 1]).map(|_| ()), None);
}

#[test]
fn pairs_share_what_both_hold_or_what_is_next_clockwise() {
    let row = |holders: &[u16]| holders.iter().flat_map(|holder| holder.to_ne_bytes()).collect::<Vec<_>>();
    let rows = [row(&[0, 1, 2, 0]), row(&[1, 2, 0, 1]), row(&[2, 0])];
    let rows: Vec<Row<'_>> = rows.iter().map(Vec::as_slice).collect();
    assert_eq!(shared(&rows, 0, 1, &[], false), [0, 1, 3]);
    assert_eq!(shared(&rows, 0, 0, &[], false), [0_u32; 0]);
    assert_eq!(shared(&rows, 0, 1, &[], true), [0, 1, 3]);
    assert_eq!(shared(&rows, 0, 2, &[], true), [2]);
    assert_eq!(shared(&rows, 0, 2, &[1], true), [0, 1, 2]);
    assert_eq!(shared(&rows, 1, 0, &[2], true), [0, 1, 3]);
    assert_eq!(shared(&rows, 7, 0, &[], true), [0_u32; 0]);
}
