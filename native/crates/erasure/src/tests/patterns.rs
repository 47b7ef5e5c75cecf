//! Every pattern of lost cells.

use super::{encoded, known_bytes, scheme, slices};
use crate::{Decoder, Encoder, Error, Kernel, Scheme};

/// Cells of an odd length; the last data cells of the stripe are shorter, and empty.
fn stripe(scheme: Scheme) -> Vec<Vec<u8>> {
    let lengths = |index: usize| match scheme.data() - index {
        1 => 0,
        2 => 40,
        _ => 67,
    };
    let known = known_bytes(scheme.data() * 67);
    known.chunks(67).enumerate().map(|(index, cell)| cell[..lengths(index)].to_vec()).collect()
}

/// The cells of `pattern`, a bit each.
fn chosen(scheme: Scheme, pattern: u32) -> Vec<usize> {
    (0..scheme.cells()).filter(|index| pattern >> index & 1 == 1).collect()
}

/// Restore what is lost, and compare.
fn restore(cells: &[Vec<u8>], decoder: &Decoder, pattern: u32) {
    let given: Vec<&[u8]> = decoder.sources().iter().map(|&index| &cells[index][..]).collect();
    let mut restored: Vec<Vec<u8>> = decoder.wanted().iter().map(|&index| vec![1; cells[index].len()]).collect();
    let mut outputs: Vec<&mut [u8]> = restored.iter_mut().map(|cell| &mut cell[..]).collect();
    decoder.restore(&given, &mut outputs).expect("cells");
    for (index, cell) in decoder.wanted().iter().zip(&restored) {
        assert_eq!(cell, &cells[*index], "cell {index} of pattern {pattern:b}");
    }
}

/// All patterns of up to m lost cells; from the data cells that are left, and from as many parity cells as there are.
fn every_pattern(scheme: Scheme, kernel: Kernel) -> usize {
    let cells = encoded(&Encoder::with_kernel(scheme, kernel), scheme, &stripe(scheme));
    let mut tried = 0;
    for pattern in 1_u32..1 << scheme.cells() {
        let lost = chosen(scheme, pattern);
        if lost.len() > scheme.parity() {
            continue;
        }
        let mut left = chosen(scheme, !pattern);
        for _ in 0..2 {
            restore(&cells, &Decoder::with_kernel(scheme, &left, &lost, kernel).expect("a plan"), pattern);
            left.reverse();
        }
        tried += 1;
    }
    tried
}

#[test]
fn every_pattern_of_the_common_schemes_is_restored() {
    for ((data, parity), patterns) in [((4, 2), 21), ((6, 3), 129), ((8, 3), 231), ((10, 4), 1470)] {
        for kernel in Kernel::available() {
            assert_eq!(every_pattern(scheme(data, parity), kernel), patterns, "{data}+{parity}");
        }
    }
}

#[test]
fn every_scheme_restores_as_many_as_it_has_parity_cells() {
    for data in 2..=16 {
        for parity in 1..=8 {
            let scheme = scheme(data, parity);
            let cells = encoded(&Encoder::new(scheme), scheme, &stripe(scheme));
            // Runs of lost cells, also over the end: data alone, both, parity alone.
            for first in 0..scheme.cells() {
                let lost: Vec<_> = (first..first + parity).map(|index| index % scheme.cells()).collect();
                let left: Vec<_> = (0..scheme.cells()).filter(|index| !lost.contains(index)).collect();
                restore(&cells, &Decoder::new(scheme, &left, &lost).expect("a plan"), 0);
            }
        }
    }
}

#[test]
fn one_more_lost_cell_is_refused() {
    let scheme = scheme(6, 3);
    let refused = Decoder::new(scheme, &[0, 2, 4, 6, 8], &[1]);
    assert_eq!(refused.map(|_| ()), Err(Error::TooFewCells { available: 5, needed: 6 }));
}

#[test]
fn some_of_the_lost_cells_can_be_wanted() {
    let scheme = scheme(6, 3);
    let cells = encoded(&Encoder::new(scheme), scheme, &stripe(scheme));
    let left = [8, 7, 5, 4, 3, 2, 1];
    for wanted in [&[0][..], &[6], &[6, 0], &[]] {
        let decoder = Decoder::new(scheme, &left, wanted).expect("a plan");
        assert_eq!((decoder.sources(), decoder.wanted()), (&left[..6], wanted));
        restore(&cells, &decoder, 0);
    }
    assert_eq!(slices(&cells).len(), 9);
}

#[test]
fn a_plan_names_each_cell_once() {
    let scheme = scheme(2, 2);
    for (available, wanted, error) in [
        (&[0, 0][..], &[1][..], Error::Repeated(0)),
        (&[0, 1], &[1], Error::Repeated(1)),
        (&[0, 1], &[2, 2], Error::Repeated(2)),
        (&[0, 4], &[1], Error::NoSuchCell(4)),
        (&[0, 1], &[9], Error::NoSuchCell(9)),
    ] {
        assert_eq!(Decoder::new(scheme, available, wanted).map(|_| ()), Err(error));
    }
}
