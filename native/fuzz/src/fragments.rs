//! What is stored with fragments, and objects that are cut, lose some, and are read and rebuilt.

use std::sync::Arc;

use swiftlet_erasure::Scheme;
use swiftlet_fragments::assembly::Assembly;
use swiftlet_fragments::block::{Block, total};
use swiftlet_fragments::cutting::Cutter;
use swiftlet_fragments::decision;
use swiftlet_fragments::rebuilding::Rebuild;
use swiftlet_fragments::restoring::{Given, Wanted};
use swiftlet_fragments::{Device, Version};

/// Most bytes of an object: a few stripes of small cells reach every case.
const MOST_BYTES: usize = 2048;
/// Bytes of a block before the devices, and of a device with a digest.
const HEAD: usize = 40;

/// The first byte says whether the rest is a block, a decision, or an object with its numbers.
pub fn fragments(data: &[u8]) {
    match data.split_first() {
        Some((0, rest)) => block(rest),
        Some((1, rest)) => {
            if let Some(change) = decision::parse(7, rest) {
                assert_eq!(decision::encode(&change).as_deref(), Some(rest));
            }
        }
        Some((_, rest)) => object(rest),
        None => {}
    }
}

/// What is accepted is written in one way; with the digest over its cells made right as well.
fn block(bytes: &[u8]) {
    let mut sealed = bytes.to_vec();
    if let [_, data, parity, index, ..] = *bytes {
        let places = usize::from(data) + usize::from(parity);
        let (at, end) = (HEAD + places * 12 + usize::from(index) * 8, HEAD + places * 20);
        if let Some(cells) = bytes.get(end..)
            && let Some(place) = sealed.get_mut(at..at + 8)
        {
            let (cells, _) = cells.as_chunks::<8>();
            let cells: Vec<u64> = cells.iter().map(|cell| u64::from_be_bytes(*cell)).collect();
            place.copy_from_slice(&total(&cells).to_be_bytes());
        }
    }
    for bytes in [bytes, &sealed] {
        if let Ok(block) = Block::parse(bytes) {
            assert_eq!(block.encode(), bytes);
            assert!(block.belongs_to(&block));
            assert!(!Version { timestamp: 1, generation: block.generation }.is_deletion());
            assert_eq!(block.cells.len() as u64, block.geometry.stripes());
        }
    }
}

/// Data cells, parity cells, bytes of a cell, an offset and a length in two bytes each, and in which order fragments are
/// lost, a byte each; the rest is the object.
fn object(data: &[u8]) {
    let [data_cells, parity_cells, cell_bytes, rest @ ..] = data else { return };
    let Ok(scheme) = Scheme::new(usize::from(*data_cells), usize::from(*parity_cells)) else { return };
    let Ok(mut cutter) = Cutter::new(scheme, usize::from(*cell_bytes)) else { return };
    let Some((numbers, rest)) = rest.split_first_chunk::<4>() else { return };
    let [start, length] = [0, 2].map(|at| u64::from(u16::from_be_bytes([numbers[at], numbers[at + 1]])));
    let (order, object) = rest.split_at(rest.len().min(scheme.cells()));
    let object = &object[..object.len().min(MOST_BYTES)];
    let mut fragments = vec![Vec::new(); scheme.cells()];
    let mut sink = |cells: &[&[u8]]| {
        fragments.iter_mut().zip(cells).for_each(|(fragment, cell)| fragment.extend_from_slice(cell));
    };
    let (head, tail) = object.split_at(object.len().min(start as usize));
    for piece in [head, tail] {
        assert_eq!(cutter.push(piece, &mut sink), Ok(()));
    }
    let cut = cutter.finish(&mut sink);
    let chosen: Arc<[Device]> = (0..24).take(scheme.cells()).map(|number| Device { number, incarnation: 1 }).collect();
    let blocks: Vec<Block> = (0..scheme.cells()).filter_map(|index| cut.block(index, 5, chosen.clone()).ok()).collect();
    for (block, fragment) in blocks.iter().zip(&fragments) {
        assert_eq!(block.fragment_bytes(), fragment.len() as u64);
        assert_eq!(Block::parse(&block.encode()).as_ref(), Ok(block));
    }
    let mut indices: Vec<usize> = (0..scheme.cells()).collect();
    indices.sort_by_key(|index| order.get(*index));
    let (lost, left) = indices.split_at(scheme.parity());
    let cells = |wanted: &[Wanted]| -> Vec<Given<'_>> {
        let cell = |wanted: &Wanted| Given {
            bytes: &fragments[wanted.index][wanted.bytes.start as usize..wanted.bytes.end as usize],
            xxh3: blocks[wanted.index].cells[wanted.stripe as usize],
        };
        wanted.iter().map(cell).collect()
    };
    let mut read: Vec<u8> = Vec::new();
    let mut assembly = Assembly::new(blocks[0].geometry, start..start + length, left);
    while let Ok(Some(wanted)) = assembly.wanted().map(|wanted| wanted.map(<[Wanted]>::to_vec)) {
        assert_eq!(assembly.give(&cells(&wanted), |bytes| read.extend_from_slice(bytes)), Ok(()));
    }
    let end = (start + length).min(object.len() as u64) as usize;
    assert_eq!(&read[..], object.get(start as usize..end).unwrap_or(&[]));
    for index in lost {
        let mut rebuild = Rebuild::new(blocks[left[0]].clone(), *index, left);
        let mut made: Vec<u8> = Vec::new();
        while let Ok(Some(wanted)) = rebuild.wanted().map(|wanted| wanted.map(<[Wanted]>::to_vec)) {
            match rebuild.give(&cells(&wanted)) {
                Ok(cell) => made.extend_from_slice(cell),
                Err(short) => panic!("{short}"),
            }
        }
        assert_eq!(made, fragments[*index]);
        assert_eq!(rebuild.finish().as_ref(), Ok(&blocks[*index]));
    }
}
