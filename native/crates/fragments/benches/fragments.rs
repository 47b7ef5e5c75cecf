//! How fast one core cuts objects, reads them with and without losses, and rebuilds fragments: `cargo bench -p
//! swiftlet-fragments`. Codec, digests of cells and of the object are in it, and no I/O.
#![allow(clippy::unwrap_used, reason = "a tool for people, who see what went wrong")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

#[path = "../../../benches/measured.rs"]
mod measured;

use swiftlet_erasure::Scheme;
use swiftlet_fragments::Device;
use swiftlet_fragments::assembly::Assembly;
use swiftlet_fragments::block::Block;
use swiftlet_fragments::cutting::Cutter;
use swiftlet_fragments::rebuilding::Rebuild;
use swiftlet_fragments::restoring::{Given, Wanted};

const CELL_BYTES: usize = 64 << 10;
const ROUNDS: usize = 20;
/// How much of an object arrives at a time.
const PIECE: usize = 1 << 20;

/// The seconds that each of some rounds takes.
fn seconds(mut round: impl FnMut()) -> Vec<f64> {
    let rounds = (0..measured::rounds(ROUNDS)).map(|_| {
        let started = Instant::now();
        round();
        started.elapsed().as_secs_f64()
    });
    rounds.collect()
}

fn cells<'a>(fragments: &'a [Vec<u8>], blocks: &[Block], wanted: &[Wanted]) -> Vec<Given<'a>> {
    let cell = |wanted: &Wanted| Given {
        bytes: &fragments[wanted.index][wanted.bytes.start as usize..wanted.bytes.end as usize],
        xxh3: blocks[wanted.index].cells[wanted.stripe as usize],
    };
    wanted.iter().map(cell).collect()
}

fn measure(data: usize, parity: usize, mebibytes: usize) {
    let scheme = Scheme::new(data, parity).unwrap();
    let object: Vec<u8> = (0..mebibytes << 20).map(|at| ((at * 31) >> 3) as u8).collect();
    let cut = |sink: &mut dyn FnMut(&[&[u8]])| {
        let mut cutter = Cutter::new(scheme, CELL_BYTES).unwrap();
        object.chunks(PIECE).for_each(|piece| cutter.push(piece, &mut *sink).unwrap());
        cutter.finish(sink)
    };
    let mut fragments = vec![Vec::new(); scheme.cells()];
    let whole = cut(&mut |cells| {
        fragments.iter_mut().zip(cells).for_each(|(fragment, cell)| fragment.extend_from_slice(cell));
    });
    let chosen: Arc<[Device]> = (0..24).take(scheme.cells()).map(|number| Device { number, incarnation: 1 }).collect();
    let blocks: Vec<Block> = (0..scheme.cells()).map(|index| whole.block(index, 1, chosen.clone()).unwrap()).collect();
    let report = |what: &str, bytes: usize, took: &[f64]| {
        let rates: Vec<f64> = took.iter().map(|seconds| bytes as f64 / seconds / 1e9).collect();
        measured::tell(&format!("{data}+{parity}, object of {mebibytes} MiB, {what}"), "GB/s", &rates);
    };
    let took = seconds(|| {
        cut(&mut |cells| _ = black_box(cells));
    });
    report("cut", object.len(), &took);
    for lost in [0, 1, parity] {
        let usable: Vec<usize> = (lost..scheme.cells()).collect();
        let took = seconds(|| {
            let mut assembly = Assembly::new(blocks[0].geometry, 0..u64::MAX, &usable);
            while let Some(wanted) = assembly.wanted().unwrap().map(<[Wanted]>::to_vec) {
                assembly.give(&cells(&fragments, &blocks, &wanted), |bytes| _ = black_box(bytes)).unwrap();
            }
        });
        report(&format!("read, {lost} data fragments lost"), object.len(), &took);
    }
    let took = seconds(|| {
        let mut rebuild = Rebuild::new(blocks[1].clone(), 0, &(1..scheme.cells()).collect::<Vec<_>>());
        while let Some(wanted) = rebuild.wanted().unwrap().map(<[Wanted]>::to_vec) {
            black_box(rebuild.give(&cells(&fragments, &blocks, &wanted)).unwrap());
        }
        rebuild.finish().unwrap();
    });
    report("rebuilt, of the fragment", fragments[0].len(), &took);
}

fn main() {
    for (data, parity) in [(6, 3), (4, 2)] {
        for mebibytes in [1, 64] {
            measure(data, parity, mebibytes);
        }
    }
}
