//! Each kernel that this machine has, compared with products taken byte by byte.

use proptest::prelude::*;

use super::{Coefficients, GROUP, Kernel};
use crate::field::multiply;
use crate::scheme::MAX_DATA;

/// Around what a kernel writes, to see that it writes nothing else.
const GUARD: usize = 64;
const MARK: u8 = 0xa5;

/// Sources at odd addresses, all of the same length.
fn inputs() -> impl Strategy<Value = (usize, Vec<(Coefficients, Vec<u8>)>, usize)> {
    (0..33_usize, prop_oneof![0..100_usize, 100..700_usize]).prop_flat_map(|(shift, length)| {
        let source = (any::<Coefficients>(), prop::collection::vec(any::<u8>(), shift + length));
        (Just(shift), prop::collection::vec(source, 1..=MAX_DATA), 1..=GROUP)
    })
}

proptest! {
    #[test]
    fn kernels_make_the_same_bytes_as_single_products((shift, inputs, count) in inputs()) {
        let coefficients: Vec<_> = inputs.iter().map(|(coefficients, _)| *coefficients).collect();
        let sources: Vec<_> = inputs.iter().map(|(_, source)| &source[shift..]).collect();
        let length = sources[0].len();
        let expected: Vec<Vec<u8>> = (0..count)
            .map(|row| {
                let sum = |at: usize| {
                    sources.iter().zip(&coefficients).fold(0, |sum, (source, of)| sum ^ multiply(of[row], source[at]))
                };
                (0..length).map(sum).collect()
            })
            .collect();
        for kernel in Kernel::available() {
            let mut memory = vec![vec![MARK; GUARD + shift + length + GUARD]; count];
            let mut outputs: Vec<&mut [u8]> =
                memory.iter_mut().map(|output| &mut output[GUARD + shift..][..length]).collect();
            kernel.add_products(&coefficients, &sources, &mut outputs);
            for (output, expected) in memory.iter().zip(&expected) {
                let (before, rest) = output.split_at(GUARD + shift);
                prop_assert_eq!(&rest[..length], &expected[..], "{}", kernel.name());
                prop_assert!(before.iter().chain(&rest[length..]).all(|&byte| byte == MARK), "{}", kernel.name());
            }
        }
    }
}

/// What Miri, which runs the instructions of any machine, goes through in place of all: it is slow.
const STEP: usize = if cfg!(miri) { 15 } else { 1 };

#[test]
fn every_length_and_every_number_of_outputs_is_made_in_full_and_nothing_else() {
    let memory: Vec<u8> = (0..300_usize).map(|at| (at * at / 7) as u8).collect();
    let coefficients = [[2, 0x8e, 1, 0], [3, 0xff, 0x1d, 7], [0, 4, 200, 90]];
    for length in (0..=200).step_by(STEP) {
        let sources = [&memory[1..][..length], &memory[42..][..length], &memory[83..][..length]];
        for (kernel, count) in Kernel::available().into_iter().flat_map(|kernel| (1..=GROUP).map(move |n| (kernel, n)))
        {
            let mut made = vec![vec![MARK; length + 2]; count];
            let mut outputs: Vec<&mut [u8]> = made.iter_mut().map(|output| &mut output[1..=length]).collect();
            kernel.add_products(&coefficients, &sources, &mut outputs);
            for (row, output) in made.iter().enumerate() {
                let sum =
                    |at: usize| (0..3).fold(0, |sum, from| sum ^ multiply(coefficients[from][row], sources[from][at]));
                let expected: Vec<u8> = [MARK].into_iter().chain((0..length).map(sum)).chain([MARK]).collect();
                assert_eq!(*output, expected, "{}: {length} bytes, output {row} of {count}", kernel.name());
            }
        }
    }
}

#[test]
fn every_coefficient_multiplies_every_byte() {
    let all: Vec<u8> = (0..=255).collect();
    for kernel in Kernel::available() {
        for coefficient in (0..=255).step_by(STEP) {
            let mut made = [0; 256];
            kernel.add_products(&[[coefficient; GROUP]], &[&all], &mut [&mut made]);
            for (byte, made) in all.iter().zip(made) {
                assert_eq!(made, multiply(coefficient, *byte), "{}: {coefficient} times {byte}", kernel.name());
            }
        }
    }
}

#[test]
fn every_machine_has_a_kernel_and_the_best_is_the_first() {
    let kernels = Kernel::available();
    assert_eq!(kernels.first(), Some(&Kernel::best()));
    assert_eq!(kernels.last().map(|kernel| kernel.name()), Some("scalar"));
}
