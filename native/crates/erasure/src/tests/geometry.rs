//! Where bytes are, against fragments that are cut one byte at a time.

use proptest::prelude::*;

use super::{encoded, known_bytes, scheme};
use crate::{Decoder, Encoder, Error, Geometry, MAX_CELL_BYTES, Scheme};

/// The data fragments of an object, cut as the description says, byte by byte.
fn cut(scheme: Scheme, cell_bytes: usize, object: &[u8]) -> Vec<Vec<u8>> {
    let mut fragments = vec![Vec::new(); scheme.data()];
    for stripe in object.chunks(cell_bytes * scheme.data()) {
        let mut width = 0;
        while width * scheme.data() < stripe.len() {
            width += 1;
        }
        for (at, byte) in stripe.iter().enumerate() {
            fragments[at / width].push(*byte);
        }
    }
    fragments
}

fn objects() -> impl Strategy<Value = (Geometry, usize, Vec<u8>)> {
    (2..=16_usize, 1..=8_usize, 1..40_usize, 0..2000_usize).prop_map(|(data, parity, cell_bytes, size)| {
        let geometry = Geometry::new(scheme(data, parity), cell_bytes, size as u64).expect("a geometry");
        (geometry, cell_bytes, known_bytes(size))
    })
}

/// Slices of the stripe `number` in whole fragments.
fn stripe_of(geometry: &Geometry, fragments: &[Vec<u8>], number: u64) -> Vec<Vec<u8>> {
    let stripe = geometry.stripe(number).expect("a stripe");
    let cell = |index: usize| {
        let cell = stripe.cell(index).expect("a cell");
        fragments[index][cell.fragment_offset as usize..][..cell.bytes].to_vec()
    };
    (0..fragments.len()).map(cell).collect()
}

proptest! {
    #[test]
    fn pieces_are_the_bytes_that_were_asked_for(
        (geometry, cell_bytes, object) in objects(), from in 0..2100_u64, count in 0..2100_u64,
    ) {
        let scheme = geometry.scheme();
        let fragments = cut(scheme, cell_bytes, &object);
        let end = (from + count).min(object.len() as u64);
        let expected = object.get(from as usize..end as usize).unwrap_or(&[]);
        let mut read: Vec<u8> = Vec::new();
        for piece in geometry.pieces(from..from + count) {
            prop_assert!(!piece.within.is_empty());
            let stripe = geometry.stripe(piece.stripe).expect("a stripe");
            let cell = stripe.cell(piece.cell).expect("a cell");
            prop_assert!(piece.within.end <= cell.bytes);
            prop_assert_eq!(cell.fragment_offset + piece.within.start as u64, piece.fragment_offset);
            prop_assert!(geometry.stripes_of(from..from + count).contains(&piece.stripe));
            read.extend(&fragments[piece.cell][piece.fragment_offset as usize..][..piece.within.len()]);
        }
        prop_assert_eq!(&read[..], expected);
    }

    #[test]
    fn fragments_have_the_sizes_of_their_cells((geometry, cell_bytes, object) in objects()) {
        let scheme = geometry.scheme();
        let fragments = cut(scheme, cell_bytes, &object);
        for (index, fragment) in fragments.iter().enumerate() {
            prop_assert_eq!(geometry.fragment_bytes(index), fragment.len() as u64);
        }
        let mut offset = 0;
        for number in 0..geometry.stripes() {
            let stripe = geometry.stripe(number).expect("a stripe");
            prop_assert_eq!(stripe.offset, offset);
            offset += stripe.bytes as u64;
            let data = (0..scheme.data()).map(|index| stripe.cell(index).expect("a cell").bytes);
            prop_assert_eq!(data.clone().sum::<usize>(), stripe.bytes);
            prop_assert_eq!(data.max(), Some(stripe.cell_bytes));
            prop_assert_eq!(stripe.cell(scheme.data()).map(|cell| cell.bytes), Some(stripe.cell_bytes));
            prop_assert_eq!(stripe.cell(scheme.cells()), None);
            for index in 0..scheme.cells() {
                let cell = stripe.cell(index).expect("a cell");
                let span = geometry.span(index, number..number + 1);
                prop_assert_eq!(span, cell.fragment_offset..cell.fragment_offset + cell.bytes as u64);
            }
        }
        prop_assert_eq!(offset, geometry.object_bytes());
        prop_assert_eq!(geometry.stripe(geometry.stripes()), None);
        let parity = geometry.fragment_bytes(scheme.data());
        prop_assert_eq!(parity, geometry.fragment_bytes(0));
        // No more than a byte of each parity fragment is spent because the size is no multiple of k.
        prop_assert!(parity <= geometry.object_bytes().div_ceil(scheme.data() as u64));
    }

    #[test]
    fn an_object_comes_back_from_any_fragments(
        (geometry, cell_bytes, object) in objects(), order in any::<[u8; 24]>(),
    ) {
        let scheme = geometry.scheme();
        let data = cut(scheme, cell_bytes, &object);
        let encoder = Encoder::new(scheme);
        let mut fragments = data.clone();
        fragments.resize(scheme.cells(), Vec::new());
        for number in 0..geometry.stripes() {
            let cells = encoded(&encoder, scheme, &stripe_of(&geometry, &data, number));
            for index in scheme.data()..scheme.cells() {
                fragments[index].extend(&cells[index]);
            }
        }
        let mut indices: Vec<usize> = (0..scheme.cells()).collect();
        indices.sort_by_key(|&index| order[index]);
        let (lost, left) = indices.split_at(scheme.parity());
        let decoder = Decoder::new(scheme, left, lost).expect("a plan");
        for number in 0..geometry.stripes() {
            let cells = stripe_of(&geometry, &fragments, number);
            let given: Vec<&[u8]> = decoder.sources().iter().map(|&index| &cells[index][..]).collect();
            let mut restored: Vec<Vec<u8>> = lost.iter().map(|&index| vec![0; cells[index].len()]).collect();
            let mut outputs: Vec<&mut [u8]> = restored.iter_mut().map(|cell| &mut cell[..]).collect();
            decoder.restore(&given, &mut outputs).expect("cells");
            for (index, cell) in lost.iter().zip(&restored) {
                prop_assert_eq!(cell, &cells[*index]);
            }
        }
    }
}

fn geometry(cell_bytes: usize, object_bytes: u64) -> Geometry {
    Geometry::new(scheme(6, 3), cell_bytes, object_bytes).expect("a geometry")
}

fn sizes(geometry: &Geometry) -> Vec<u64> {
    (0..9).map(|index| geometry.fragment_bytes(index)).collect()
}

#[test]
fn fragments_of_some_objects() {
    assert_eq!(sizes(&geometry(1 << 16, 0)), [0; 9]);
    assert_eq!(sizes(&geometry(1 << 16, 1)), [1, 0, 0, 0, 0, 0, 1, 1, 1]);
    // An object that is as large as a cell takes one and a half times its size, not four times.
    assert_eq!(sizes(&geometry(1 << 16, 1 << 16)), [10923, 10923, 10923, 10923, 10923, 10921, 10923, 10923, 10923]);
    assert_eq!(sizes(&geometry(1 << 16, 6 << 16)), [1 << 16; 9]);
    let (whole, more) = (1 << 16, (1 << 16) + 1);
    assert_eq!(sizes(&geometry(1 << 16, (6 << 16) + 2)), [more, more, whole, whole, whole, whole, more, more, more]);
    assert_eq!(geometry(1 << 16, 100).fragment_bytes(9), 0);
}

#[test]
fn a_range_touches_only_the_cells_that_hold_it() {
    let geometry = geometry(100, 1250);
    let pieces = |range| geometry.pieces(range).map(|piece| (piece.cell, piece.fragment_offset, piece.within.len()));
    assert_eq!(pieces(110..120).collect::<Vec<_>>(), [(1, 10, 10)]);
    assert_eq!(pieces(595..605).collect::<Vec<_>>(), [(5, 95, 5), (0, 100, 5)]);
    // The last stripe has 50 bytes, in cells of 9.
    assert_eq!(pieces(1240..9999).collect::<Vec<_>>(), [(4, 204, 5), (5, 200, 5)]);
    assert_eq!(geometry.stripes_of(595..605), 0..2);
    assert_eq!(geometry.stripes_of(600..600), 0..0);
    assert_eq!(geometry.stripes_of(1250..1251), 0..0);
    assert_eq!(
        (geometry.span(0, 1..9), geometry.span(5, 1..9), geometry.span(8, 2..3)),
        (100..209, 100..205, 200..209)
    );
}

#[test]
fn the_largest_object_has_a_geometry() {
    let geometry = geometry(MAX_CELL_BYTES, u64::MAX);
    let last = geometry.stripe(geometry.stripes() - 1).expect("a stripe");
    assert_eq!(last.offset + last.bytes as u64, u64::MAX);
    assert_eq!(geometry.pieces(u64::MAX - 1..u64::MAX).count(), 1);
    assert!(geometry.fragment_bytes(0) >= u64::MAX / 6);
    assert_eq!(geometry.stripe(u64::MAX), None);
}

#[test]
fn cells_have_bounds() {
    assert_eq!(Geometry::new(scheme(6, 3), 0, 1), Err(Error::CellBytes(0)));
    assert_eq!(Geometry::new(scheme(6, 3), MAX_CELL_BYTES + 1, 1), Err(Error::CellBytes(MAX_CELL_BYTES + 1)));
}
