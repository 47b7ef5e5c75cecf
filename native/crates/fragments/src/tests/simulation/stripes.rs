//! An object of one stripe, with the codec.

use swiftlet_erasure::{Decoder, Encoder, Scheme};

use super::operations::Pieces;

/// Bytes of a cell.
pub(crate) const CELL: usize = 3;

pub(crate) fn encoded(scheme: Scheme, object: &[u8]) -> Vec<Vec<u8>> {
    let mut parity = vec![vec![0; CELL]; scheme.parity()];
    let data: Vec<&[u8]> = object.chunks(CELL).collect();
    let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|cell| &mut cell[..]).collect();
    Encoder::new(scheme).encode(&data, &mut outputs).expect("a stripe");
    data.into_iter().map(<[u8]>::to_vec).chain(parity).collect()
}

pub(crate) fn restored(scheme: Scheme, pieces: &Pieces, index: usize) -> Vec<u8> {
    let available: Vec<usize> = pieces.keys().copied().filter(|at| *at != index).collect();
    let decoder = Decoder::new(scheme, &available, &[index]).expect("cells enough");
    let given: Vec<&[u8]> = decoder.sources().iter().map(|at| &pieces[at][..]).collect();
    let mut made = vec![0; CELL];
    decoder.restore(&given, &mut [&mut made]).expect("cells");
    made
}

pub(crate) fn decoded(scheme: Scheme, pieces: &Pieces) -> Vec<u8> {
    let cell = |index: usize| pieces.get(&index).cloned().unwrap_or_else(|| restored(scheme, pieces, index));
    (0..scheme.data()).flat_map(cell).collect()
}
