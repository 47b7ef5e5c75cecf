//! The crate as its users see it. Each kernel has its tests beside it.

mod field;
mod geometry;
mod oracle;
mod patterns;
mod stripes;

use crate::{Encoder, Scheme};

/// Bytes that look random, the same ones each time.
fn known_bytes(count: usize) -> Vec<u8> {
    let mut state = 0_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}

fn scheme(data: usize, parity: usize) -> Scheme {
    Scheme::new(data, parity).expect("a scheme")
}

/// All cells of a stripe with these data cells.
fn encoded(encoder: &Encoder, scheme: Scheme, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let longest = data.iter().map(Vec::len).max().unwrap_or(0);
    let mut parity = vec![vec![0; longest]; scheme.parity()];
    let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|cell| &mut cell[..]).collect();
    encoder.encode(&slices(data), &mut outputs).expect("a stripe");
    [data, &parity].concat()
}

fn slices(cells: &[Vec<u8>]) -> Vec<&[u8]> {
    cells.iter().map(|cell| &cell[..]).collect()
}
