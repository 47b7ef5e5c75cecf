//! Links and commands in a simulated clock.

use std::net::Ipv4Addr;

use proptest::prelude::*;

use crate::Nanos;
use crate::command::{Command, MAX_BYTES};
use crate::link::{Counts, Fate, Link, Shape};
use crate::network::{MAX_REGIONS, Network, Prefix};
use crate::random::Random;

const MS: Nanos = 1_000_000;

fn run(network: &mut Network, text: &str) -> Result<String, String> {
    Command::parse(text)?.run(network)
}

/// Two regions, east of 10.1.0.0/16 and west of 10.2.0.0/16.
fn two() -> Network {
    let mut network = Network::new(1);
    for text in ["join east 10.1.0.0/16", "join west 10.2.0.0/16"] {
        run(&mut network, text).expect("regions join");
    }
    network
}

fn packet(to: [u8; 4], bytes: usize) -> Vec<u8> {
    let mut packet = vec![0; bytes];
    packet[0] = 0x45;
    packet[16..20].copy_from_slice(&to);
    packet
}

fn counts(network: &mut Network, from: &str, to: &str) -> Counts {
    network.link_of(from, to).expect("there is a link").counts
}

#[test]
fn a_packet_takes_its_time_on_the_link_and_the_delay() {
    let mut network = two();
    run(&mut network, "link east west delay_ms=12.5 rate_mbit=8").expect("a link");
    // 1,000 bytes are 1 ms at 8 Mbit/s; the second one waits for the first.
    for number in 0..2 {
        network.send(0, 0, &packet([10, 2, 0, number], 1000));
    }
    assert_eq!(network.next_at(), Some(13_500_000));
    assert!(network.arrived(13_499_999).is_none());
    let first = network.arrived(13_500_000).expect("it arrives");
    assert_eq!((first.to, first.packet), (1, packet([10, 2, 0, 0], 1000)));
    assert_eq!(network.next_at(), Some(14_500_000));
    // The other direction is as it was.
    network.send(0, 1, &packet([10, 1, 0, 1], 1000));
    assert_eq!(network.arrived(200).expect("it is fast").to, 0);
}

#[test]
fn a_queue_that_is_full_drops() {
    let mut network = two();
    run(&mut network, "link east west rate_mbit=8 queue_kib=10").expect("a link");
    for _ in 0..20 {
        network.send(0, 0, &packet([10, 2, 0, 1], 1024));
    }
    let found = counts(&mut network, "east", "west");
    assert_eq!((found.packets, found.dropped), (10, 10));
    // There is room again once half of them have been sent.
    network.send(5 * 1024 * 1000, 0, &packet([10, 2, 0, 1], 1024));
    assert_eq!(counts(&mut network, "east", "west").packets, 11);
}

#[test]
fn one_direction_is_cut_and_healed() {
    let mut network = two();
    run(&mut network, "cut east west").expect("it is cut");
    network.send(0, 0, &packet([10, 2, 0, 1], 100));
    network.send(0, 1, &packet([10, 1, 0, 1], 100));
    assert_eq!((counts(&mut network, "east", "west").cut, counts(&mut network, "west", "east").packets), (1, 1));
    run(&mut network, "heal east west").expect("it is healed");
    network.send(MS, 0, &packet([10, 2, 0, 1], 100));
    assert_eq!(counts(&mut network, "east", "west"), Counts { packets: 1, bytes: 100, cut: 1, ..Counts::default() });
    let told = run(&mut network, "stats").expect("stats");
    assert!(told.contains("east west packets=1 bytes=100 cut=1 lost=0 dropped=0\n"), "{told}");
}

#[test]
fn packets_are_lost_in_the_share_that_was_asked_for() {
    let mut network = two();
    run(&mut network, "link east west loss_percent=10").expect("a link");
    for number in 0..10_000 {
        network.send(number * MS, 0, &packet([10, 2, 0, 1], 100));
    }
    let lost = counts(&mut network, "east", "west").lost;
    assert!((900..1100).contains(&lost), "{lost}");
}

#[test]
fn what_is_for_nobody_is_counted() {
    let mut network = two();
    let strays = [packet([10, 3, 0, 1], 100), packet([10, 1, 0, 1], 100), vec![0x60; 60], vec![0x45; 10], vec![]];
    for stray in &strays {
        network.send(0, 0, stray);
    }
    assert_eq!((network.strays, network.next_at()), (5, None));
}

#[test]
fn bad_commands_say_what_is_wrong() {
    let mut network = two();
    let long = format!("join {} 10.9.0.0/16", "x".repeat(MAX_BYTES));
    for (text, reason) in [
        ("", "the commands are"),
        ("jump east", "the commands are"),
        ("join east 10.3.0.0/16", "there is a region east"),
        ("join north 10.2.128.0/17", "region west has some of these addresses"),
        ("join north 10.0.0.0/8", "region east has some of these addresses"),
        ("join north 10.3.0.0", "addresses are written as"),
        ("join north 10.3.0.0/33", "addresses are written as"),
        ("join no_rth 10.3.0.0/16", "letters, digits and hyphens"),
        (&long, "letters, digits and hyphens"),
        ("link east north", "there is no region north"),
        ("link east east", "between two regions"),
        ("link east west speed=1", "the fields are"),
        ("link east west rate_mbit", "NAME=NUMBER"),
        ("link east west rate_mbit=fast", "not a number"),
        ("link east west rate_mbit=0", "rate_mbit is from"),
        ("link east west delay_ms=NaN", "delay_ms is from"),
        ("link east west loss_percent=100", "loss_percent is from"),
        ("cut east", "the commands are"),
    ] {
        let error = run(&mut network, text).expect_err(text);
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn there_are_no_more_regions_than_the_limit() {
    let mut network = Network::new(1);
    for number in 0..MAX_REGIONS as u8 {
        let prefix = Prefix { address: Ipv4Addr::new(10, number, 0, 0), bits: 16 };
        assert_eq!(network.join(&format!("r{number}"), prefix), Ok(usize::from(number)));
    }
    let prefix = Prefix { address: Ipv4Addr::new(10, 99, 0, 0), bits: 16 };
    assert!(network.join("more", prefix).is_err());
}

proptest! {
    #[test]
    fn packets_stay_in_order_and_the_rate_is_kept(
        delay in 0..50 * MS,
        jitter in 0..50 * MS,
        rate in 1e5..1e9f64,
        gaps in prop::collection::vec((0..5 * MS, 20..1500u64), 1..200),
    ) {
        let shape = Shape { delay, jitter, rate, ..Shape::default() };
        let mut link = Link::default();
        link.shape = shape;
        let mut random = Random::new(7);
        let (mut now, mut last, mut sent) = (0, 0, 0);
        for (gap, bytes) in gaps {
            now += gap;
            sent += bytes;
            let Fate::Arrives(at) = link.send(now, bytes, &mut random) else { panic!("nothing is lost") };
            prop_assert!(at >= last && at >= now + delay);
            // Never more than the rate since the first packet was sent.
            prop_assert!(at as f64 + 1000.0 >= delay as f64 + sent as f64 / rate * 1e9);
            last = at;
        }
    }
}
