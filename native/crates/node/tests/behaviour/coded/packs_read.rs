//! Members of packs are read: one small read, of whichever devices are left, and proved by themselves.

use super::packs::{PACK, body, numbers, small};
use super::*;
use std::os::unix::fs::FileExt;
use swiftlet_fragments::packs::Pack;
use swiftlet_fragments::packs::table::Reference;
use swiftlet_node::coded::{ReadingMember, Referred};
use swiftlet_store::from_member;

/// A pack of some objects, with where each is in it, and the pack's size.
fn packed(cluster: &Cluster, count: u64) -> (Pack, Vec<(u64, Reference)>, u64) {
    let all: Vec<u64> = numbers(count).collect();
    all.iter().for_each(|number| cluster.copy(*number, 10, &[0, 1, 2]));
    let written = cluster.pack(PACK, &all, 20);
    for place in 0..3 {
        cluster.adopt(PACK, place, &written);
    }
    let found = |number: u64| {
        let found = cluster.machines[1].stores[0].reference(&small(number)).unwrap().unwrap();
        assert_eq!(found.pack, written.table.pack);
        (number, found.reference)
    };
    let found: Vec<_> = all.into_iter().map(found).collect();
    let bytes = found.iter().map(|(_, one)| one.offset + u64::from(one.length)).max().unwrap();
    (written.table.pack, found, bytes)
}

fn member(places: Places, referred: Referred, hedge: Duration) -> Option<Vec<u8>> {
    let events = Completions::new().unwrap();
    let reading = ReadingMember::start(places, referred, (LONG, hedge), "tx", (events.clone(), 7));
    loop {
        if let Some(end) = reading.end() {
            return end;
        }
        drop(events.wait(reading.turn()));
    }
}

/// What a reader gets of an object.
fn object(places: Places, referred: Referred, hedge: Duration) -> Option<Vec<u8>> {
    let bytes = member(places, referred, hedge)?;
    let Reference { digest, timestamp, .. } = referred.reference;
    let (info, body) = from_member(digest, timestamp, &bytes, None).unwrap();
    assert_eq!((info.timestamp, info.size, &info.etag[..]), (10, body.len() as u64, &b"etag"[..]));
    assert_eq!(info.content_type, b"text/plain");
    Some(body.to_vec())
}

impl Cluster {
    /// Reads that were asked of all devices: of bytes as they are, of cells, and of what is stored.
    fn reads(&self) -> [u64; 3] {
        let all = self.machines.iter().flat_map(|machine| machine.server.stats()["d0"].answered.clone());
        all.fold([0; 3], |mut counts, (method, _, count)| {
            if let Some(at) = [23, 17, 16].iter().position(|one| *one == method) {
                counts[at] += count;
            }
            counts
        })
    }

    fn sent(&self) -> u64 {
        self.machines.iter().map(|machine| machine.server.stats()["d0"].sent_bytes).sum()
    }
}

#[test]
fn members_are_read_with_any_two_devices_away() {
    let cluster = Cluster::new(Carrier::Tcp);
    let (pack, found, bytes) = packed(&cluster, 12);
    for away in patterns() {
        for (number, reference) in &found {
            for pack_bytes in [Some(bytes), None] {
                let referred = Referred { pack, reference: *reference, pack_bytes };
                let got = object(cluster.places(*number, 0, &away), referred, LONG);
                assert!(got == Some(body(*number)), "{number} without {away:?}, {pack_bytes:?}");
            }
        }
    }
    for away in [[0, 1, 2], [3, 4, 5], [0, 2, 5]] {
        let places = cluster.places(PACK, 0, &away);
        let referred = Referred { pack, reference: found[0].1, pack_bytes: Some(bytes) };
        // Its own cells may be there, all the same.
        let got = object(places, referred, LONG);
        assert!(got.is_none() || got == Some(body(found[0].0)), "{away:?}");
    }
}

#[test]
fn a_read_costs_the_members_bytes() {
    let mut cluster = Cluster::new(Carrier::Tcp);
    cluster.cell = 64 << 10;
    let (pack, found, bytes) = packed(&cluster, 150);
    let within = |reference: &Reference| {
        let (first, last) = (reference.offset, reference.offset + u64::from(reference.length) - 1);
        first / (64 << 10) == last / (64 << 10) && last < 256 << 10
    };
    for (number, reference) in found.iter().filter(|(_, reference)| within(reference)).take(20) {
        let referred = Referred { pack, reference: *reference, pack_bytes: Some(bytes) };
        let (reads, sent) = (cluster.reads(), cluster.sent());
        assert!(object(cluster.places(*number, 0, &[]), referred, LONG) == Some(body(*number)));
        assert_eq!(cluster.reads(), [reads[0] + 1, reads[1], reads[2]]);
        assert_eq!(cluster.sent() - sent, u64::from(reference.length));
        // Degraded: so many bytes of four others.
        let place = (reference.offset / (64 << 10)) as usize;
        let sent = cluster.sent();
        assert!(object(cluster.places(*number, 0, &[place]), referred, LONG) == Some(body(*number)));
        assert_eq!(cluster.sent() - sent, 4 * u64::from(reference.length));
        assert_eq!(cluster.reads()[1..], reads[1..], "whole cells");
    }
}

#[test]
fn a_rotten_member_is_restored_without_its_cell() {
    let mut cluster = Cluster::new(Carrier::Tcp);
    cluster.cell = 64 << 10;
    let (pack, found, bytes) = packed(&cluster, 600);
    assert!(bytes / 4 > crate::common::AGGREGATE, "fragments are files");
    let stripe = 256 << 10;
    let (number, reference) = found[3];
    let at = reference.offset + 50;
    assert!(at < bytes / stripe * stripe, "its stripe is full");
    let (place, within) = ((at % stripe / (64 << 10)) as usize, at / stripe * (64 << 10) + at % (64 << 10));
    let path = only_file(&cluster.machines[place].directories[0].0.join("large"));
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, within).unwrap();
    file.write_all_at(&[byte[0] ^ 1], within).unwrap();
    let referred = Referred { pack, reference, pack_bytes: Some(bytes) };
    for away in [vec![], vec![4], vec![(place + 1) % 6]] {
        assert!(object(cluster.places(number, 0, &away), referred, LONG) == Some(body(number)), "without {away:?}");
    }
    let fetched = cluster.machines[place].stores[0].fragment(&cluster.fragment(PACK, place), pack.version).unwrap();
    assert!(matches!(fetched, swiftlet_store::Fetched::Not(_)), "the rotten fragment was put aside");
}

#[test]
fn a_reference_that_leads_nowhere_gives_nothing() {
    let cluster = Cluster::new(Carrier::Tcp);
    let (pack, found, bytes) = packed(&cluster, 5);
    let (number, reference) = found[0];
    let places = || cluster.places(number, 0, &[]);
    let right = Referred { pack, reference, pack_bytes: Some(bytes) };
    assert!(object(places(), right, LONG).is_some());
    let other = found[1].1;
    for wrong in [
        Referred { reference: Reference { offset: reference.offset + 1, ..reference }, ..right },
        Referred { reference: Reference { offset: bytes, ..reference }, ..right },
        Referred { reference: Reference { offset: u64::MAX - 3, ..reference }, ..right },
        Referred { reference: Reference { length: 0, ..reference }, ..right },
        Referred { reference: Reference { offset: other.offset, length: other.length, ..reference }, ..right },
        Referred { reference: Reference { timestamp: 11, ..reference }, ..right },
        Referred { pack: Pack { digest: [9; 16], ..pack }, ..right },
        Referred { pack: Pack { version: Version { timestamp: 21, ..pack.version }, ..pack }, ..right },
        // What a place says of the pack's size is believed as far as it leads to the member.
        Referred { reference: Reference { timestamp: 11, ..reference }, pack_bytes: None, ..right },
    ] {
        assert_eq!(member(places(), wrong, LONG), None, "{wrong:?}");
    }
    for size in [bytes + 1, bytes + 5000, reference.offset + u64::from(reference.length), u64::MAX] {
        assert!(object(places(), Referred { pack_bytes: Some(size), ..right }, LONG).is_some(), "{size}");
    }
}

#[test]
fn a_silent_device_is_replaced_by_others() {
    let mut cluster = Cluster::new(Carrier::Simulated);
    let (pack, found, bytes) = packed(&cluster, 6);
    let _first = cluster.silence(1, None);
    let _second = cluster.silence(2, None);
    for (number, reference) in &found {
        let referred = Referred { pack, reference: *reference, pack_bytes: Some(bytes) };
        assert!(object(cluster.places(*number, 0, &[]), referred, SOON) == Some(body(*number)), "{number}");
    }
}
