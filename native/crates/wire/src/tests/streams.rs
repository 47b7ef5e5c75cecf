//! A sender and a receiver joined by two ordered queues: whatever the order of events, the body arrives, and no
//! more memory is held than the window allows.

use std::collections::VecDeque;

use proptest::prelude::*;

use crate::limits::{CHUNK_BYTES, OFFERED_BYTES, OFFERED_CHUNKS};
use crate::message::{Offer, Place};
use crate::stream::{Inflow, Outflow, Role, Stream};

enum There {
    Offer(Offer),
    /// Its offset and bytes, and whether they are sent early.
    Data(u64, u32, bool),
    End(bool),
}

enum Back {
    Grant(u64, bool),
    Done(u64),
}

/// What the receiver's upper layer holds: offset, length, whether it is lent.
type Held = (u64, u32, bool);

struct Pair {
    chunks: VecDeque<(u32, bool)>,
    sender: Outflow,
    receiver: Inflow,
    there: VecDeque<There>,
    back: VecDeque<Back>,
    held: Vec<Held>,
    delivered: u64,
    dropped: u64,
}

impl Pair {
    fn new(chunks: &[(u32, bool)], window: u64, early: u64) -> Self {
        Self {
            chunks: chunks.iter().copied().collect(),
            sender: Outflow::new(early),
            receiver: Inflow::new(window),
            there: VecDeque::new(),
            back: VecDeque::new(),
            held: Vec::new(),
            delivered: 0,
            dropped: 0,
        }
    }

    /// The sender's turn: offer or lend, send what was granted (in part, by `share`), end.
    fn send(&mut self, share: u64) {
        if let Some(&(length, lent)) = self.chunks.front()
            && self.sender.has_room(length as usize)
        {
            let lent = lent && self.sender.may_lend();
            let offset = if lent { self.sender.lend(length) } else { self.sender.offer(length) };
            let place = lent.then_some(Place { region: 1, address: offset });
            self.there.push_back(There::Offer(Offer { offset, length, place }));
            self.chunks.pop_front();
        }
        let ((offset, bytes), granted) = (self.sender.sendable(), self.sender.granted());
        // A connection never sends data that are early across the end of a chunk.
        let bytes = if granted > 0 { granted.min(1 << 20) } else { bytes.min(self.sender.first_lacks()) };
        let bytes = bytes.div_ceil(share);
        if bytes > 0 {
            self.sender.sent(bytes);
            self.there.push_back(There::Data(offset, bytes as u32, granted == 0));
        }
        if self.chunks.is_empty() && self.sender.is_flushed() && !self.sender.is_ended() {
            self.there.push_back(There::End(self.sender.unconfirmed() > 0));
            self.sender.end();
        }
    }

    fn receive(&mut self) {
        match self.there.pop_front() {
            Some(There::Offer(offer)) => {
                self.receiver.offer(&offer).expect("offers keep the rules");
                if offer.place.is_some() {
                    self.held.push((offer.offset, offer.length, true));
                    self.delivered += u64::from(offer.length);
                }
            }
            Some(There::Data(offset, mut bytes, early)) => {
                if !self.receiver.admit(offset, u64::from(bytes), early).expect("data keeps the rules") {
                    self.dropped += u64::from(bytes);
                    return;
                }
                while bytes > 0 {
                    let taken = bytes.min(self.receiver.chunk_lacks());
                    bytes -= taken;
                    self.delivered += u64::from(taken);
                    if let Some((offset, length)) = self.receiver.received(taken) {
                        self.held.push((offset, length, false));
                    }
                }
            }
            Some(There::End(early)) if self.receiver.drops_end(early) => {}
            Some(There::End(_)) => self.receiver.end().expect("the end keeps the rules"),
            None => {}
        }
    }

    fn grant(&mut self) {
        if self.receiver.wanted().is_some() {
            let (upto, again) = self.receiver.grant();
            self.back.push_back(Back::Grant(upto, again));
        }
    }

    fn answer(&mut self) {
        match self.back.pop_front() {
            Some(Back::Grant(upto, again)) => self.sender.grant(upto, again).expect("grants keep the rules"),
            Some(Back::Done(offset)) => self.sender.done(offset).expect("returns keep the rules"),
            None => {}
        }
    }

    fn let_go(&mut self, which: usize) {
        if self.held.is_empty() {
            return;
        }
        let (offset, length, lent) = self.held.swap_remove(which % self.held.len());
        if lent {
            self.receiver.returned(length);
            self.back.push_back(Back::Done(offset));
        } else {
            self.receiver.released(length);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn in_any_order_of_events_all_arrives_within_the_window(
        chunks in prop::collection::vec((1_u32..=CHUNK_BYTES as u32, any::<bool>()), 0..80),
        window in 0_u64..6 << 20,
        early in prop_oneof![Just(0), 0_u64..4 << 20],
        steps in prop::collection::vec((0..5, 1_u64..4, any::<usize>()), 0..400),
    ) {
        let total: u64 = chunks.iter().map(|chunk| u64::from(chunk.0)).sum();
        let mut pair = Pair::new(&chunks, window, early);
        // First at random, then in turn until nothing is left to do.
        let in_turn = (0..200_000).map(|at| (at % 5, 1, 0));
        for (step, share, which) in steps.into_iter().chain(in_turn) {
            match step {
                0 => pair.send(share),
                1 => pair.receive(),
                2 => pair.grant(),
                3 => pair.answer(),
                _ => pair.let_go(which),
            }
            let sent: u64 = pair.held.iter().filter(|held| !held.2).map(|held| u64::from(held.1)).sum();
            prop_assert!(sent <= window.max(CHUNK_BYTES as u64), "{sent} bytes held");
            let lent: u64 = pair.held.iter().filter(|held| held.2).map(|held| u64::from(held.1)).sum();
            prop_assert!(lent <= OFFERED_BYTES && pair.held.len() <= 2 * OFFERED_CHUNKS);
            if pair.receiver.is_ended() && pair.held.is_empty() && pair.sender.is_over() {
                break;
            }
        }
        prop_assert!(pair.receiver.is_ended() && pair.sender.is_over(), "it stands still");
        prop_assert!(pair.dropped <= early);
        prop_assert_eq!((pair.receiver.bytes(), pair.delivered), (total, total));
    }

    /// A receiver keeps its limits whatever a sender says.
    #[test]
    fn a_wicked_sender_gets_no_more_than_was_granted(
        frames in prop::collection::vec((0..6, 0_u64..4 << 20, 1_u32..=CHUNK_BYTES as u32, any::<bool>()), 0..60),
    ) {
        let mut receiver = Inflow::new(2 << 20);
        let mut granted = 0;
        let mut offered = 0;
        for (what, offset, length, right) in frames {
            let offset = if right { if what == 0 { offered } else { receiver.bytes() } } else { offset };
            match what {
                0 => {
                    if receiver.offer(&Offer { offset, length, place: None }).is_ok() {
                        offered += u64::from(length);
                    }
                }
                1 => {
                    if receiver.wanted().is_some() {
                        granted = receiver.grant().0;
                    }
                }
                2 | 3 => {
                    if receiver.admit(offset, u64::from(length), what == 3) == Ok(true) {
                        let taken = length.min(receiver.chunk_lacks());
                        receiver.received(taken);
                    }
                }
                4 if receiver.drops_end(true) => {}
                _ => drop(receiver.end()),
            }
            prop_assert!(receiver.bytes() <= granted && granted <= offered);
            prop_assert!(offered - receiver.bytes() <= OFFERED_BYTES && granted - receiver.bytes() <= 2 << 20);
        }
    }
}

#[test]
fn a_sender_refuses_grants_that_make_no_sense() {
    let mut sender = Outflow::default();
    sender.offer(100);
    assert!(sender.grant(101, false).is_err());
    assert!(sender.grant(100, true).is_err());
    sender.grant(100, false).expect("what was offered");
    assert!(sender.grant(99, false).is_err());
    assert!(sender.done(0).is_err());
}

#[test]
fn what_was_sent_early_and_dropped_is_sent_again_with_its_end() {
    let (mut sender, mut receiver) = (Outflow::new(1000), Inflow::new(0));
    let offset = sender.offer(100);
    receiver.offer(&Offer { offset, length: 100, place: None }).expect("an offer");
    assert_eq!((sender.sendable(), sender.granted()), ((0, 100), 0));
    sender.sent(100);
    sender.end();
    assert!(!sender.is_over());
    // There is no memory yet: data and end are dropped.
    assert_eq!(receiver.admit(0, 100, true), Ok(false));
    assert!(receiver.drops_end(true) && !receiver.drops_end(false));
    let (upto, again) = receiver.grant();
    assert_eq!((upto, again), (100, true));
    // What comes early now is of before.
    assert_eq!(receiver.admit(0, 100, true), Ok(false));
    sender.grant(upto, again).expect("it was sent early");
    assert_eq!((sender.sendable(), sender.granted(), sender.is_ended()), ((0, 100), 100, false));
    sender.sent(100);
    sender.end();
    assert_eq!(receiver.admit(0, 100, false), Ok(true));
    receiver.received(100);
    receiver.end().expect("all is there");
    assert!(sender.is_over());
}

#[test]
fn an_end_before_all_that_was_offered_is_refused_and_a_second_one() {
    let mut receiver = Inflow::new(0);
    receiver.offer(&Offer { offset: 0, length: 1, place: None }).expect("an offer");
    assert!(receiver.end().is_err());
    receiver.grant();
    receiver.received(1);
    receiver.end().expect("all is there");
    assert!(receiver.end().is_err());
    assert!(receiver.offer(&Offer { offset: 1, length: 1, place: None }).is_err());
}

#[test]
fn a_request_is_over_with_its_reply_whatever_is_left_of_its_body() {
    let mut client = Stream::new(Role::Client, 0, 0);
    assert!(client.body_may_come().is_err());
    client.outflow.offer(10);
    client.reply().expect("the first reply");
    assert!(client.reply().is_err() && !client.is_over());
    client.inflow.end().expect("its end");
    assert!(client.is_over());
}
