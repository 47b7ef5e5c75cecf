//! Objects that are cut into cells, lose some of them, and are put together again.

use swiftlet_erasure::{Decoder, Encoder, Geometry, Kernel, Scheme};

/// Most bytes of an object: a few stripes of small cells reach every case.
const MOST_BYTES: u64 = 4096;

/// Numbers from the input: data cells, parity cells, bytes of a cell, and an object's size with a range of it in 8
/// bytes each; the rest is the order in which cells are lost, and what the object has.
pub fn erasure(data: &[u8]) {
    let [data_cells, parity_cells, cell_bytes, rest @ ..] = data else { return };
    let Some((numbers, rest)) = rest.split_first_chunk::<24>() else { return };
    let number = |at: usize| numbers[at * 8..][..8].iter().fold(0, |all: u64, byte| all << 8 | u64::from(*byte));
    let scheme = match Scheme::new(usize::from(*data_cells), usize::from(*parity_cells)) {
        Ok(scheme) => scheme,
        Err(_) => return,
    };
    let (size, range) = (number(0), number(1)..number(2));
    let Ok(geometry) = Geometry::new(scheme, usize::from(*cell_bytes), size) else {
        return assert_eq!(*cell_bytes, 0);
    };
    // Of any size, and of a small one, whose pieces can be counted.
    let last = geometry.stripe(geometry.stripes().saturating_sub(1));
    assert_eq!(last.map_or(0, |last| last.offset + last.bytes as u64), size);
    let first = geometry.pieces(range.clone()).next();
    assert_eq!(first.is_some(), range.start < range.end.min(size));
    let small = size % MOST_BYTES;
    let Ok(geometry) = Geometry::new(scheme, usize::from(*cell_bytes), small) else { return };
    let object: Vec<u8> = if rest.is_empty() {
        vec![1; small as usize]
    } else {
        rest.iter().copied().cycle().take(small as usize).collect()
    };
    let fragments = encoded(&geometry, &object);
    pieces(&geometry, &fragments, &object, range.start % MOST_BYTES..range.end % MOST_BYTES);
    restored(&geometry, &fragments, rest);
}

/// All fragments of the object, made from its pieces.
fn encoded(geometry: &Geometry, object: &[u8]) -> Vec<Vec<u8>> {
    let scheme = geometry.scheme();
    let mut fragments = vec![Vec::new(); scheme.cells()];
    let mut at = 0;
    for piece in geometry.pieces(0..u64::MAX) {
        assert_eq!(fragments[piece.cell].len() as u64, piece.fragment_offset, "pieces follow one another");
        fragments[piece.cell].extend_from_slice(&object[at..][..piece.within.len()]);
        at += piece.within.len();
    }
    assert_eq!(at, object.len());
    for number in 0..geometry.stripes() {
        let cells = cells(geometry, &fragments, number, 0..scheme.data());
        let bytes = cells[0].len();
        let mut parity = vec![vec![0; bytes]; scheme.parity()];
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|cell| &mut cell[..]).collect();
        assert_eq!(Encoder::new(scheme).encode(&cells, &mut outputs), Ok(()));
        for (fragment, cell) in fragments[scheme.data()..].iter_mut().zip(parity) {
            fragment.extend(cell);
        }
    }
    for (index, fragment) in fragments.iter().enumerate() {
        assert_eq!(fragment.len() as u64, geometry.fragment_bytes(index), "fragment {index}");
    }
    fragments
}

/// These cells of a stripe.
fn cells<'a>(
    geometry: &Geometry,
    fragments: &'a [Vec<u8>],
    number: u64,
    indices: impl IntoIterator<Item = usize>,
) -> Vec<&'a [u8]> {
    let Some(stripe) = geometry.stripe(number) else { panic!("there is no stripe {number}") };
    let cell = |index: usize| {
        let Some(cell) = stripe.cell(index) else { panic!("there is no cell {index}") };
        &fragments[index][cell.fragment_offset as usize..][..cell.bytes]
    };
    indices.into_iter().map(cell).collect()
}

/// A range that is read from fragments is that of the object.
fn pieces(geometry: &Geometry, fragments: &[Vec<u8>], object: &[u8], range: std::ops::Range<u64>) {
    let mut read: Vec<u8> = Vec::new();
    let stripes = geometry.stripes_of(range.clone());
    for piece in geometry.pieces(range.clone()) {
        let bytes = piece.fragment_offset..piece.fragment_offset + piece.within.len() as u64;
        let span = geometry.span(piece.cell, stripes.clone());
        assert!(span.start <= bytes.start && bytes.end <= span.end, "{bytes:?} is not in {span:?}");
        read.extend_from_slice(&fragments[piece.cell][bytes.start as usize..bytes.end as usize]);
    }
    let end = range.end.min(object.len() as u64) as usize;
    assert_eq!(&read[..], object.get(range.start as usize..end).unwrap_or(&[]));
}

/// Any k fragments give back the others, with each kernel.
fn restored(geometry: &Geometry, fragments: &[Vec<u8>], order: &[u8]) {
    let scheme = geometry.scheme();
    let mut indices: Vec<usize> = (0..scheme.cells()).collect();
    indices.sort_by_key(|&index| order.get(index));
    let (lost, left) = indices.split_at(scheme.parity());
    for kernel in Kernel::available() {
        let Ok(decoder) = Decoder::with_kernel(scheme, left, lost, kernel) else {
            panic!("{lost:?} can't be restored")
        };
        for number in 0..geometry.stripes() {
            let given = cells(geometry, fragments, number, decoder.sources().iter().copied());
            let expected = cells(geometry, fragments, number, lost.iter().copied());
            let mut made: Vec<Vec<u8>> = expected.iter().map(|cell| vec![0; cell.len()]).collect();
            let mut outputs: Vec<&mut [u8]> = made.iter_mut().map(|cell| &mut cell[..]).collect();
            assert_eq!(decoder.restore(&given, &mut outputs), Ok(()));
            assert_eq!(made, expected, "{} of {lost:?}", kernel.name());
        }
    }
}
