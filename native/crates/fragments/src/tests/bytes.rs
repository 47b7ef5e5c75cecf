//! Objects that are cut, lose fragments, and are read and rebuilt.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use proptest::prelude::*;
use swiftlet_erasure::{Geometry, Scheme};

use crate::Device;
use crate::assembly::Assembly;
use crate::block::Block;
use crate::cutting::{Cutter, TooLarge};
use crate::rebuilding::{Rebuild, Unproved};
use crate::restoring::{Given, Short, Wanted};

pub(super) fn scheme(data: usize, parity: usize) -> Scheme {
    Scheme::new(data, parity).expect("a scheme")
}

pub(super) fn devices(count: usize) -> Arc<[Device]> {
    (0..count).map(|at| Device { number: at as u32, incarnation: 1000 + at as u64 }).collect()
}

pub(super) fn known_bytes(count: usize) -> Vec<u8> {
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}

/// Cells by their stripes and fragments.
type Cells = BTreeSet<(u64, usize)>;

/// An object, as devices have it.
pub(super) struct Stored {
    object: Vec<u8>,
    fragments: Vec<Vec<u8>>,
    pub(super) blocks: Vec<Block>,
}

/// Cut an object that comes in pieces of these sizes, over and over.
pub(super) fn stored(scheme: Scheme, cell_bytes: usize, object: &[u8], pieces: &[usize]) -> Stored {
    let mut cutter = Cutter::new(scheme, cell_bytes).expect("cells");
    let mut fragments = vec![Vec::new(); scheme.cells()];
    let mut sink = |cells: &[&[u8]]| {
        assert_eq!(cells.len(), fragments.len());
        fragments.iter_mut().zip(cells).for_each(|(fragment, cell)| fragment.extend_from_slice(cell));
    };
    let (mut rest, mut sizes) = (object, pieces.iter().cycle());
    while !rest.is_empty() {
        let (piece, others) = rest.split_at(rest.len().min(*sizes.next().expect("a size")));
        assert_eq!(cutter.push(piece, &mut sink), Ok(()));
        rest = others;
    }
    let cut = cutter.finish(&mut sink);
    let block = |index| cut.block(index, 99, devices(scheme.cells())).expect("a block");
    Stored { object: object.to_vec(), fragments, blocks: (0..scheme.cells()).map(block).collect() }
}

impl Stored {
    fn geometry(&self) -> Geometry {
        self.blocks[0].geometry
    }

    fn cells(&self, wanted: &[Wanted]) -> Vec<Given<'_>> {
        let cell = |wanted: &Wanted| {
            let bytes = &self.fragments[wanted.index][wanted.bytes.start as usize..wanted.bytes.end as usize];
            Given { bytes, xxh3: self.blocks[wanted.index].cells[wanted.stripe as usize] }
        };
        wanted.iter().map(cell).collect()
    }

    /// Read a range; which cells were read for it.
    fn read(&self, range: Range<u64>, usable: &[usize]) -> Result<(Vec<u8>, Cells), Short> {
        let (mut out, mut touched) = (Vec::new(), BTreeSet::new());
        let mut assembly = Assembly::new(self.geometry(), range, usable);
        while let Some(wanted) = assembly.wanted()?.map(<[Wanted]>::to_vec) {
            touched.extend(wanted.iter().map(|wanted| (wanted.stripe, wanted.index)));
            assembly.give(&self.cells(&wanted), |bytes| out.extend_from_slice(bytes))?;
        }
        Ok((out, touched))
    }

    /// Read a range, and check its bytes, and that no cell was read that isn't needed.
    fn expect(&self, range: Range<u64>, usable: &[usize]) {
        let (found, touched) = self.read(range.clone(), usable).expect("fragments enough");
        let end = range.end.min(self.object.len() as u64) as usize;
        assert_eq!(&found[..], self.object.get(range.start as usize..end).unwrap_or(&[]), "{range:?}");
        let pieces: Cells = self.geometry().pieces(range).map(|piece| (piece.stripe, piece.cell)).collect();
        let stripes: BTreeSet<u64> = pieces.iter().map(|(stripe, _)| *stripe).collect();
        for stripe in stripes {
            let of = |cells: &Cells| -> BTreeSet<usize> {
                cells.iter().filter(|(other, _)| *other == stripe).map(|(_, index)| *index).collect()
            };
            let (needed, read) = (of(&pieces), of(&touched));
            if needed.iter().all(|index| usable.contains(index)) {
                assert_eq!(read, needed, "stripe {stripe}");
            } else {
                assert!(read.len() <= self.geometry().scheme().data(), "stripe {stripe}: {read:?}");
            }
        }
    }

    fn rebuild(&self, index: usize, usable: &[usize]) -> Result<(Vec<u8>, Result<Block, Unproved>), Short> {
        let mut made = Vec::new();
        let source = usable.first().map_or(0, |first| *first);
        let mut rebuild = Rebuild::new(self.blocks[source].clone(), index, usable);
        while let Some(wanted) = rebuild.wanted()?.map(<[Wanted]>::to_vec) {
            made.extend_from_slice(rebuild.give(&self.cells(&wanted))?);
        }
        Ok((made, rebuild.finish()))
    }

    fn expect_rebuilt(&self, index: usize, usable: &[usize]) {
        let (made, block) = self.rebuild(index, usable).expect("fragments enough");
        assert_eq!(made, self.fragments[index], "fragment {index} from {usable:?}");
        assert_eq!(block.as_ref(), Ok(&self.blocks[index]));
    }
}

/// Sizes at which something begins or ends, in cells of `cell` bytes.
fn sizes(scheme: Scheme, cell: usize) -> Vec<usize> {
    let (data, stripe) = (scheme.data(), scheme.data() * cell);
    let edges = [data, cell, 2 * cell, stripe - cell, stripe, stripe + data, 2 * stripe, 2 * stripe + cell];
    let around = edges.iter().flat_map(|edge| [edge - 1, *edge, edge + 1]);
    let all: BTreeSet<usize> = around.chain([0, 1, 2]).collect();
    all.into_iter().collect()
}

fn every_pattern_of_losses(data: usize, parity: usize) -> usize {
    const CELL: usize = 8;
    let scheme = scheme(data, parity);
    let mut patterns = 0;
    for size in sizes(scheme, CELL) {
        let stored = stored(scheme, CELL, &known_bytes(size), &[5, 100]);
        for pattern in 0_u32..1 << scheme.cells() {
            if pattern.count_ones() as usize != parity {
                continue;
            }
            patterns += 1;
            let lost = |index: &usize| pattern >> index & 1 == 1;
            let (lost, mut left): (Vec<usize>, Vec<usize>) = (0..scheme.cells()).partition(lost);
            if patterns % 2 == 0 {
                left.reverse();
            }
            let size = size as u64;
            for range in [0..u64::MAX, size / 3..size / 3 + 1, size / 2..size, size.saturating_sub(9)..size] {
                stored.expect(range, &left);
            }
            lost.iter().for_each(|index| stored.expect_rebuilt(*index, &left));
        }
    }
    patterns / sizes(scheme, CELL).len()
}

#[test]
fn every_pattern_of_m_lost_fragments_is_read_and_rebuilt() {
    assert_eq!(every_pattern_of_losses(4, 2), 15);
    assert_eq!(every_pattern_of_losses(6, 3), 84);
}

#[test]
fn with_all_fragments_there_only_the_cells_of_the_range_are_read() {
    let stored = stored(scheme(4, 2), 8, &known_bytes(75), &[75]);
    for start in 0..75 {
        for end in start + 1..=75 {
            stored.expect(start..end, &[5, 4, 3, 2, 1, 0]);
        }
    }
}

#[test]
fn one_loss_more_is_refused_with_the_numbers() {
    let stored = stored(scheme(4, 2), 8, &known_bytes(40), &[7]);
    let short = Short::TooFew { usable: 3, needed: 4 };
    assert_eq!(stored.read(0..40, &[0, 1, 5]), Err(short));
    assert_eq!(stored.rebuild(4, &[0, 1, 5]).err(), Some(short));
    assert_eq!(short.to_string(), "3 fragments can be read, and 4 are needed");
    // What those that are left have is read all the same.
    stored.expect(0..16, &[0, 1]);
    // The last cells of a small object are empty, and known.
    let small = self::stored(scheme(4, 2), 8, &[7], &[1]);
    small.expect(0..1, &[5]);
    assert!(small.read(0..1, &[1, 2, 3]).is_err());
}

#[test]
fn a_wrong_cell_is_named_and_another_one_takes_its_place() {
    let mut stored = stored(scheme(4, 2), 8, &known_bytes(75), &[75]);
    stored.fragments[1][9] ^= 1;
    let (mut out, mut assembly) = (Vec::new(), Assembly::new(stored.geometry(), 0..75, &[0, 1, 2, 3, 4, 5]));
    let mut wrong = Vec::new();
    while let Some(wanted) = assembly.wanted().expect("fragments enough").map(<[Wanted]>::to_vec) {
        match assembly.give(&stored.cells(&wanted), |bytes| out.extend_from_slice(bytes)) {
            Ok(()) => {}
            Err(Short::Wrong { index }) => {
                wrong.push((wanted[0].stripe, index));
                assembly.lose(index);
            }
            Err(short) => panic!("{short}"),
        }
    }
    assert_eq!((out, wrong), (stored.object.clone(), vec![(1, 1)]));
    assert_eq!(stored.rebuild(0, &[1, 2, 3, 4, 5]).err(), Some(Short::Wrong { index: 1 }));
    let mut assembly = Assembly::new(stored.geometry(), 0..75, &[0]);
    assert_eq!(assembly.give(&[Given { bytes: b"", xxh3: 0 }], |_| panic!("nothing")), Err(Short::Count));
}

#[test]
fn a_rebuilt_fragment_that_others_know_otherwise_is_not_proved() {
    let mut stored = stored(scheme(4, 2), 8, &known_bytes(75), &[75]);
    // A cell of another write, with the digest that its own device has for it.
    let other = self::stored(scheme(4, 2), 8, &[3; 75], &[75]);
    (stored.fragments[2], stored.blocks[2].cells) = (other.fragments[2].clone(), other.blocks[2].cells.clone());
    let (_, block) = stored.rebuild(0, &[1, 2, 3, 4]).expect("fragments enough");
    assert_eq!(block, Err(Unproved));
    let unfinished = Rebuild::new(stored.blocks[1].clone(), 0, &[1, 2, 3, 4]);
    assert_eq!(unfinished.finish(), Err(Unproved));
    // A handoff's, moved to its place, is proved in the same way.
    stored.expect_rebuilt(5, &[5]);
}

#[test]
fn an_object_of_too_many_stripes_is_refused() {
    let mut cutter = Cutter::new(scheme(2, 1), 1).expect("cells");
    let most = 2 << 20;
    assert_eq!(cutter.push(&vec![1; most - 1], |_| ()), Ok(()));
    assert_eq!(cutter.push(&[1; 2], |_| ()), Err(TooLarge));
    assert_eq!(cutter.push(&[1], |_| ()), Ok(()));
    let cut = cutter.finish(|_| panic!("nothing is left"));
    assert_eq!(cut.object_bytes, most as u64);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn objects_of_mebibytes_in_cells_of_64_kib(
        (data, parity) in prop::sample::select(vec![(4, 2), (6, 3), (2, 1), (10, 4)]),
        size in 0_usize..3 << 20,
        pieces in prop::collection::vec(1_usize..1 << 20, 1..4),
        order in Just((0..14).collect::<Vec<usize>>()).prop_shuffle(),
        ranges in prop::collection::vec((0_u64..3 << 20, 0_u64..1 << 20), 4),
    ) {
        let scheme = scheme(data, parity);
        let stored = stored(scheme, 64 << 10, &known_bytes(size), &pieces);
        let order: Vec<usize> = order.into_iter().filter(|index| *index < scheme.cells()).collect();
        let (left, lost) = order.split_at(data);
        stored.expect(0..u64::MAX, left);
        for (start, length) in ranges {
            stored.expect(start..start + length, left);
        }
        lost.iter().for_each(|index| stored.expect_rebuilt(*index, left));
    }
}
