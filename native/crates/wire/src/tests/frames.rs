//! Frames survive any cut; damage, loss, repetition and exchange are found; no bytes make the decoder panic.

use proptest::prelude::*;

use crate::Violation;
use crate::frame::{Decoder, END, Encoder, Found, Kind};
use crate::limits::{HEAD_BYTES, META_BYTES};
use crate::liveness::{Liveness, Pulse};
use crate::message::{
    Offer, Place, Reply, Request, decode_cancel, decode_footer, decode_number, decode_region, decode_tried,
};

const SESSION: u64 = 0x0123_4567_89ab_cdef;

fn pair() -> (Encoder, Decoder) {
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    encoder.begin_session(SESSION);
    decoder.begin_session(SESSION);
    (encoder, decoder)
}

fn pings(encoder: &mut Encoder, count: u64) -> Vec<Vec<u8>> {
    (0..count)
        .map(|token| {
            let mut bytes = Vec::new();
            encoder.encode(&mut bytes, Kind::Ping, 0, 0, &[&token.to_be_bytes()], 0);
            bytes
        })
        .collect()
}

/// Everything that a connection does with bytes from outside, up to where state begins.
fn decode_all(mut bytes: &[u8], mut decoder: Decoder) -> Result<usize, Violation> {
    let mut frames = 0;
    while let Found::Frame(head, meta) = decoder.next(bytes)? {
        match head.kind {
            Kind::Request => _ = Request::decode(meta)?,
            Kind::Reply => _ = Reply::decode(meta)?,
            Kind::Offer => drop(Offer::decode(meta, head.has(crate::frame::LENT))?),
            Kind::Grant | Kind::Data | Kind::Done | Kind::Ping | Kind::Pong => drop(decode_number(meta)?),
            Kind::End => drop(decode_footer(meta)?),
            Kind::Cancel => drop(decode_cancel(meta)?),
            Kind::Region => drop(decode_region(meta)?),
            Kind::Tried => drop(decode_tried(meta)?),
            _ => {}
        }
        frames += 1;
        let Some(rest) = bytes.get(HEAD_BYTES + head.meta_bytes + head.body_bytes..) else { break };
        bytes = rest;
    }
    Ok(frames)
}

#[test]
fn what_is_too_long_is_refused_before_it_is_waited_for() {
    for (at, what) in [(12, "a meta part over the limit"), (16, "a body part over the limit")] {
        let (mut encoder, mut decoder) = pair();
        let mut bytes = pings(&mut encoder, 1).remove(0);
        bytes[at..at + 4].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(decoder.next(&bytes), Err(Violation(what)));
    }
}

#[test]
fn before_the_handshake_only_its_frames_are_taken_and_only_small_ones() {
    let mut bytes = Vec::new();
    Encoder::default().encode(&mut bytes, Kind::Ping, 0, 0, &[&[0; 8]], 0);
    assert!(Decoder::default().next(&bytes).is_err());

    let mut bytes = Vec::new();
    Encoder::default().encode(&mut bytes, Kind::Hello, 0, 0, &[&[0; 4000]], 0);
    assert!(Decoder::default().next(&bytes).is_err());

    let (mut encoder, mut decoder) = pair();
    let mut bytes = Vec::new();
    encoder.encode(&mut bytes, Kind::Hello, 0, 0, &[&[0; 40]], 0);
    assert!(decoder.next(&bytes).is_err());
}

#[test]
fn a_frame_of_another_session_is_refused() {
    let (mut encoder, _) = pair();
    let mut decoder = Decoder::default();
    decoder.begin_session(SESSION + 1);
    assert!(decoder.next(&pings(&mut encoder, 1)[0]).is_err());
}

/// Inputs that once were, or easily could be, mistaken; run with every change.
#[test]
fn the_corpus_is_decoded_without_a_panic() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the corpus") {
        let bytes = std::fs::read(entry.expect("an entry").path()).expect("an input");
        let (_, decoder) = pair();
        drop(decode_all(&bytes, decoder));
        drop(decode_all(&bytes, Decoder::default()));
        count += 1;
    }
    assert!(count >= 8, "{count} inputs");
}

#[test]
fn silence_is_answered_by_a_ping_and_then_by_giving_up() {
    use crate::limits::{DEAD_AFTER_MS, PING_AFTER_MS};
    let mut liveness = Liveness::new(1000, DEAD_AFTER_MS);
    assert_eq!(liveness.pulse(1000), Pulse::QuietUntil(1000 + PING_AFTER_MS));
    assert_eq!(liveness.pulse(1000 + PING_AFTER_MS), Pulse::Ping);
    liveness.said(1000 + PING_AFTER_MS);
    assert_eq!(liveness.pulse(1000 + PING_AFTER_MS), Pulse::QuietUntil(1000 + 2 * PING_AFTER_MS));
    assert_eq!(liveness.pulse(1000 + DEAD_AFTER_MS), Pulse::Dead);
    liveness.heard(1000 + DEAD_AFTER_MS);
    liveness.said(1000 + DEAD_AFTER_MS);
    assert!(matches!(liveness.pulse(1000 + DEAD_AFTER_MS), Pulse::QuietUntil(_)));
    let patient = Liveness::new(1000, 20_000);
    assert_eq!((patient.pulse(20_999), patient.pulse(21_000)), (Pulse::Ping, Pulse::Dead));
}

proptest! {
    #[test]
    fn a_request_comes_out_as_it_went_in(
        method in any::<u16>(), deadline_ms in 1..u32::MAX, body_bytes in any::<u64>(),
        trace in "[A-Za-z0-9._-]{0,80}", header in prop::collection::vec(any::<u8>(), 0..300),
        stream in 1..u64::MAX, inline in 0_usize..65536,
    ) {
        let (mut encoder, mut decoder) = pair();
        let request = Request { method, deadline_ms, body_bytes, trace: &trace, header: &header };
        let mut bytes = Vec::new();
        encoder.encode(&mut bytes, Kind::Request, END, stream, &[&request.encode(), &header], inline);
        for cut in 0..bytes.len() {
            let Ok(Found::Need(needed)) = decoder.next(&bytes[..cut]) else { panic!("cut at {cut}") };
            prop_assert!(needed > cut && needed <= bytes.len());
        }
        let Ok(Found::Frame(head, meta)) = decoder.next(&bytes) else { panic!("whole") };
        prop_assert_eq!((head.kind, head.flags, head.stream, head.body_bytes), (Kind::Request, END, stream, inline));
        prop_assert_eq!(Request::decode(meta), Ok(request));
    }

    #[test]
    fn an_offer_comes_out_as_it_went_in(
        offset in 0..u64::MAX / 2, length in 1_u32..=1 << 20,
        place in prop::option::of((any::<u32>(), any::<u64>())),
    ) {
        let offer = Offer { offset, length, place: place.map(|(region, address)| Place { region, address }) };
        prop_assert_eq!(Offer::decode(&offer.encode(), place.is_some()), Ok(offer));
        prop_assert!(Offer::decode(&offer.encode(), place.is_none()).is_err());
    }

    #[test]
    fn a_flipped_bit_is_found(bit in 0_usize..(HEAD_BYTES + 8) * 8) {
        let (mut encoder, mut decoder) = pair();
        let mut bytes = pings(&mut encoder, 1).remove(0);
        bytes[bit / 8] ^= 1 << (bit % 8);
        // A longer meta part may be waited for, up to the limit; nothing is ever taken for a frame.
        match decoder.next(&bytes) {
            Ok(Found::Frame(..)) => prop_assert!(false, "damage went unnoticed"),
            Ok(Found::Need(bytes)) => prop_assert!(bytes <= HEAD_BYTES + META_BYTES),
            Err(_) => {}
        }
    }

    #[test]
    fn frames_that_are_lost_repeated_or_exchanged_are_found(count in 2_u64..8, first in any::<prop::sample::Index>(), how in 0..3) {
        let (mut encoder, decoder) = pair();
        let mut frames = pings(&mut encoder, count);
        let first = first.index(frames.len() - 1);
        match how {
            0 => drop(frames.remove(first)),
            1 => frames.insert(first, frames[first].clone()),
            _ => frames.swap(first, first + 1),
        }
        prop_assert!(decode_all(&frames.concat(), decoder).is_err());
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), open in any::<bool>()) {
        let decoder = if open { pair().1 } else { Decoder::default() };
        drop(decode_all(&bytes, decoder));
    }

    /// Random bytes nearly never have a right check, so here each frame gets one and only the rest is random.
    #[test]
    fn no_meta_part_makes_it_panic(
        frames in prop::collection::vec((0_usize..16, any::<u8>(), 0_u64..3, prop::collection::vec(any::<u8>(), 0..300)), 1..6),
    ) {
        let (mut encoder, decoder) = pair();
        let mut bytes = Vec::new();
        for (kind, flags, stream, meta) in &frames {
            encoder.encode(&mut bytes, Kind::ALL[*kind], *flags, *stream, &[meta], 0);
        }
        drop(decode_all(&bytes, decoder));
    }
}
