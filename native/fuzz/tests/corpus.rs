//! The corpus is gone through with every change, each input as it is and changed a little, by chance with a fixed seed.

use std::path::Path;

/// Changes of each input that are tried, besides the input itself.
const CHANGES: u64 = 20;
/// The same where an input makes a whole device.
const CHANGES_OF_DEVICES: u64 = 2;

fn inputs(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).expect("a corpus").map(|entry| entry.expect("it").path()).collect();
    paths.sort_unstable();
    paths.iter().map(|path| std::fs::read(path).expect("an input")).collect()
}

/// A bit flipped, a piece removed, a number set to one that often does harm.
fn changed(input: &[u8], random: &mut impl FnMut(u64) -> u64) -> Vec<u8> {
    let mut input = input.to_vec();
    for _ in 0..=random(3) {
        let at = random(input.len() as u64 + 1) as usize;
        match random(4) {
            0 if at < input.len() => input[at] ^= 1 << random(8),
            1 => drop(input.drain(at..(at + random(9) as usize).min(input.len()))),
            2 => input.insert(at, random(256) as u8),
            _ => {
                let end = (at + 1 + random(8) as usize).min(input.len());
                input[at..end].fill([0, 1, 0x7f, 0x80, 0xff][random(5) as usize]);
            }
        }
    }
    input
}

#[test]
fn every_decoder_takes_its_corpus_and_what_is_near_it() {
    let mut chance = 1_u64;
    let mut random = move |below: u64| {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (chance >> 33) % below
    };
    for (name, target) in swiftlet_fuzz::TARGETS {
        let inputs = inputs(name);
        assert!(inputs.len() >= 8, "{name}: {} inputs", inputs.len());
        for input in inputs {
            target(&input);
            let changes = if *name == "device" { CHANGES_OF_DEVICES } else { CHANGES };
            (0..changes).for_each(|_| target(&changed(&input, &mut random)));
        }
    }
}
