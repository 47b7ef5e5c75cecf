//! Known answers of RFC 1321, and agreement with another implementation at every length near a block.

use md5_reference::Digest as _;
use proptest::prelude::*;

use super::{BLOCK_BYTES, Md5, compress, compress_in_general_registers};
use crate::md5;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn reference(data: &[u8]) -> [u8; 16] {
    md5_reference::Md5::digest(data).into()
}

#[test]
fn it_answers_as_in_rfc_1321() {
    for (text, digest) in [
        ("", "d41d8cd98f00b204e9800998ecf8427e"),
        ("a", "0cc175b9c0f1b6a831c399e269772661"),
        ("abc", "900150983cd24fb0d6963f7d28e17f72"),
        ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
        ("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"),
        ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "d174ab98d277d9f5a5611c2c9f419d9f"),
        (
            "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
            "57edf4a22be3c955ac49da2e2107b67a",
        ),
    ] {
        assert_eq!(hex(&md5(text.as_bytes())), digest, "MD5 of {text:?}");
    }
}

#[test]
fn every_length_near_a_block_is_padded_right() {
    let data: Vec<u8> = (0..4 * BLOCK_BYTES).map(|at| at as u8).collect();
    for length in 0..data.len() {
        assert_eq!(md5(&data[..length]), reference(&data[..length]), "MD5 of {length} bytes");
    }
}

#[test]
fn every_cut_of_a_short_stream_has_the_digest_of_the_whole() {
    let data: Vec<u8> = (0..3 * BLOCK_BYTES).map(|at| at as u8).collect();
    let whole = reference(&data);
    for first in 0..data.len() {
        for second in first..data.len() {
            let mut stream = Md5::new();
            stream.update(&data[..first]);
            stream.update(&data[first..second]);
            stream.update(&data[second..]);
            assert_eq!(stream.digest(), whole, "cut at {first} and {second}");
        }
    }
}

proptest! {
    #[test]
    fn vector_registers_have_the_same_state(state: [u32; 4], blocks: Vec<[[u8; 32]; 2]>) {
        let blocks: Vec<[u8; BLOCK_BYTES]> = blocks.iter().map(|halves| std::array::from_fn(|at| halves[at / 32][at % 32])).collect();
        let (mut one, mut other) = (state, state);
        compress(&mut one, &blocks);
        compress_in_general_registers(&mut other, &blocks);
        prop_assert_eq!(one, other);
    }

    #[test]
    fn it_agrees_with_another_implementation(data in prop::collection::vec(any::<u8>(), 0..4096)) {
        prop_assert_eq!(md5(&data), reference(&data));
    }
}
