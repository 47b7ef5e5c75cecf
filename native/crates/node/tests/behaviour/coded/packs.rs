//! Packs of small objects at real object servers: proved at all places, adopted where the copies are, and retired.
//!
//! Fault model: as of all objects; a packer asks for what is not so, twice, or late.

use std::os::unix::fs::FileExt;

use super::*;
use swiftlet_fragments::packs::Pack;
use swiftlet_fragments::packs::member;
use swiftlet_fragments::packs::table::{Reference, Table};
use swiftlet_node::Status;
use swiftlet_node::message::packs::{Request as PackRequest, Told, decode_references};
use swiftlet_store::{PackState, Store};

/// Places that have small objects.
pub(super) const HOLDERS: usize = 3;

/// The number of the pack whose members have numbers from here on, of the same partition.
pub(super) const PACK: u64 = 1000;

/// Numbers of small objects in the partition of the pack.
pub(super) fn numbers(count: u64) -> impl Iterator<Item = u64> {
    (1..=count).map(|number| PACK + 5 * number)
}

/// The key of a small object's copies, or of the references to it.
pub(super) fn small(number: u64) -> Key {
    Key { partition: 32 * key(number).partition + 31, ..key(number) }
}

pub(super) fn body(number: u64) -> Vec<u8> {
    content(number, 1000 + (number * 37 % 5000) as usize)
}

/// A pack as it was written, and what places are asked to adopt.
pub(super) struct Written {
    pub(super) table: Table,
    pub(super) checks: Vec<u64>,
}

impl Cluster {
    fn store(&self, place: usize) -> &Store {
        &self.machines[place].stores[0]
    }

    /// A copy at each of these places.
    pub(super) fn copy(&self, number: u64, timestamp: u64, places: &[usize]) {
        for place in places {
            let data = body(number);
            let footer = crate::common::footer(&data);
            assert!(self.store(*place).put(small(number), &meta(timestamp), &footer, data).unwrap());
        }
    }

    /// Write a pack of what the first place has of these objects.
    pub(super) fn pack(&self, number: u64, members: &[u64], timestamp: u64) -> Written {
        self.pack_from(0, number, members, timestamp)
    }

    /// The same of what another place has.
    pub(super) fn pack_from(&self, place: usize, number: u64, members: &[u64], timestamp: u64) -> Written {
        let mut members: Vec<_> = members.iter().map(|number| small(*number)).collect();
        members.sort_unstable_by_key(|key| key.digest);
        let (mut bytes, mut references, mut checks) = (Vec::new(), Vec::new(), Vec::new());
        for key in members {
            let member = self.store(place).member(&key).unwrap().unwrap();
            let timestamp = member::timestamp_of(&member).unwrap();
            let (offset, length) = (bytes.len() as u64, member.len() as u32);
            references.push(Reference { digest: key.digest, timestamp, offset, length });
            checks.push(member::check_of(&member).unwrap());
            bytes.extend(member);
        }
        self.put(number, timestamp, &bytes);
        let of_pack = self.fragment(number, 0);
        let version = self.store(0).shown_fragment(&of_pack).unwrap().unwrap().version;
        // Who is not asked first may hear of it only now that it is settled.
        for place in (0..6).filter(|place| self.targets[*place].is_some()) {
            let since = std::time::Instant::now();
            let is_kept = || self.store(place).pack_state(&self.fragment(number, place), version).unwrap();
            while is_kept() != PackState::Kept && since.elapsed() < LONG {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        let table = Table { pack: Pack { version, digest: of_pack.digest }, references };
        Written { table, checks }
    }

    pub(super) fn fragment(&self, number: u64, place: usize) -> Key {
        Key { partition: 32 * key(number).partition + place as u32, ..key(number) }
    }

    fn ask(&self, place: usize, request: PackRequest) -> Told {
        let target = self.targets[place].as_ref().unwrap();
        let fetched = self.world.client.ask(target, &request.into(), None, LONG).unwrap();
        Told::decode(&fetched.header).unwrap()
    }

    fn prove(&self, number: u64, place: usize, pack: Version) -> Told {
        self.ask(place, PackRequest::Prove { key: self.fragment(number, place), pack })
    }

    fn retire(&self, number: u64, place: usize, pack: Version) -> Told {
        self.ask(place, PackRequest::Retire { key: self.fragment(number, place), pack })
    }

    pub(super) fn adopt(&self, number: u64, place: usize, written: &Written) -> Told {
        let Written { table, checks } = written;
        let key = self.fragment(number, place);
        self.ask(place, PackRequest::Adopt { key, table: table.clone(), checks: checks.clone() })
    }

    fn is_referred(&self, number: u64, place: usize) -> bool {
        self.store(place).reference(&small(number)).unwrap().is_some()
    }
}

fn retired(before: bool, references: u64) -> Told {
    Told::Retired { before, references }
}

#[test]
fn a_pack_is_proved_adopted_and_retired() {
    let mut cluster = Cluster::new(Carrier::Tcp);
    let all: Vec<u64> = numbers(50).collect();
    all.iter().for_each(|number| cluster.copy(*number, 10, &[0, 1, 2]));
    let written = cluster.pack(PACK, &all, 20);
    let pack = written.table.pack.version;
    for place in 0..6 {
        assert_eq!(cluster.prove(PACK, place, pack), Told::Done { references: 0 }, "{place}");
        let other = Version { generation: pack.generation + 1, ..pack };
        assert_eq!(cluster.prove(PACK, place, other), Told::Missing, "another version");
    }
    assert_eq!(cluster.prove(PACK + 5, 0, pack), Told::Missing, "another pack");
    for place in 0..HOLDERS {
        for _ in 0..2 {
            assert_eq!(cluster.adopt(PACK, place, &written), Told::Done { references: 50 });
        }
        assert!(all.iter().all(|number| cluster.is_referred(*number, place)));
    }
    // Who has no copies has nothing to replace.
    assert_eq!(cluster.adopt(PACK, 3, &written), Told::Done { references: 0 });
    assert_eq!((cluster.retire(PACK, 1, pack), cluster.retire(PACK, 1, pack)), (retired(false, 50), retired(true, 50)));
    // It is durable, and nothing is taken or proved any more.
    let (path, machine) = (cluster.machines[1].directories[0].0.clone(), &mut cluster.machines[1]);
    machine.node = None;
    machine.server.stop();
    machine.stores[0].close().unwrap();
    let reopened = Arc::new(Store::open(&path, crate::common::store_config()).unwrap());
    let (node, server, targets) = cluster.world.serve(std::slice::from_ref(&reopened), Limits::default());
    let machine = &mut cluster.machines[1];
    (machine.node, machine.server, machine.stores) = (Some(node), server, vec![reopened]);
    cluster.targets[1] = targets.into_iter().next();
    assert_eq!(cluster.prove(PACK, 1, pack), retired(true, 50));
    cluster.copy(PACK + 5 * 60, 10, &[0, 1]);
    let later = cluster.pack(PACK + 5 * 99, &[PACK + 5 * 60], 21);
    let of_retired = Written { table: Table { pack: written.table.pack, ..later.table.clone() }, ..later };
    assert_eq!(cluster.adopt(PACK, 1, &of_retired), retired(true, 50));
    assert!(!cluster.is_referred(PACK + 5 * 60, 1));
    // A place that is retired before it has the fragment stays so when that comes.
    assert_eq!(cluster.retire(PACK + 5 * 98, 2, Version { timestamp: 22, generation: 7 }), retired(false, 0));
    assert_eq!(cluster.prove(PACK + 5 * 98, 2, Version { timestamp: 22, generation: 7 }), retired(true, 0));
    // Others have not heard of it.
    assert_eq!(cluster.prove(PACK, 0, pack), Told::Done { references: 50 });
}

#[test]
fn only_what_is_here_with_these_bytes_is_adopted() {
    let cluster = Cluster::new(Carrier::Tcp);
    let all: Vec<u64> = numbers(6).collect();
    let [same, newer, deleted, missing, other, posted] = all[..] else { panic!("six") };
    all.iter().for_each(|number| cluster.copy(*number, 10, &[0]));
    for number in [same, newer, deleted, posted] {
        cluster.copy(number, 10, &[1]);
    }
    cluster.copy(newer, 11, &[1]);
    cluster.store(1).delete(small(deleted), 12, b"/a/c/o".to_vec()).unwrap();
    // A write of the same time with other bytes.
    let data = content(7, 500);
    let footer = crate::common::footer(&data);
    cluster.store(1).put(small(other), &meta(10), &footer, data).unwrap();
    let new = swiftlet_store::model::PostMeta { timestamp: 13, ..Default::default() };
    cluster.store(1).post(small(posted), new).unwrap();
    let written = cluster.pack(PACK, &all, 20);
    assert_eq!(cluster.adopt(PACK, 1, &written), Told::Done { references: 2 });
    let referred = |number: &u64| cluster.is_referred(*number, 1);
    assert_eq!(all.iter().copied().filter(referred).collect::<Vec<_>>(), [same, posted]);
    let found = cluster.store(1).reference(&small(posted)).unwrap().unwrap();
    assert_eq!(found.posted.map(|post| post.timestamp), Some(13));
    assert_eq!(cluster.store(1).get(&small(newer)).unwrap().info().timestamp, 11);
    assert!(cluster.store(1).reference(&small(missing)).unwrap().is_none());
    // Checks of other bytes, a later pack over an earlier one, and an earlier one that comes late.
    let wrong = Written { checks: written.checks.iter().map(|check| check ^ 1).collect(), ..written };
    assert_eq!(cluster.adopt(PACK, 0, &wrong), Told::Done { references: 0 });
    let right = Written { checks: wrong.checks.iter().map(|check| check ^ 1).collect(), ..wrong };
    let later = cluster.pack(PACK + 5 * 99, &all, 21);
    assert_eq!(cluster.adopt(PACK, 0, &right), Told::Done { references: 6 });
    assert_eq!(cluster.adopt(PACK + 5 * 99, 0, &later), Told::Done { references: 6 });
    assert_eq!(cluster.adopt(PACK, 0, &right), Told::Done { references: 0 });
    assert_eq!(cluster.store(0).references_to(&cluster.fragment(PACK, 0), right.table.pack.version).unwrap(), 0);
    // A place without the fragment takes nothing, and neither does one where it isn't settled.
    cluster.copy(same, 10, &[6]);
    assert_eq!(cluster.adopt(PACK, 6, &right), Told::Missing);
    assert!(!cluster.is_referred(same, 6));
}

#[test]
fn a_fragment_that_rots_on_the_device_is_not_proved() {
    let mut cluster = Cluster::new(Carrier::Tcp);
    cluster.cell = 64 << 10;
    cluster.put(PACK, 20, &content(1, 2 << 20));
    let pack = cluster.store(0).shown_fragment(&cluster.fragment(PACK, 0)).unwrap().unwrap().version;
    let rotten = [(1, 100), (4, (512 << 10) - 1)];
    for (place, at) in rotten {
        let path = only_file(&cluster.machines[place].directories[0].0.join("large"));
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
    }
    for place in 0..6 {
        let rots = rotten.iter().any(|(rotten, _)| *rotten == place);
        let expected = if rots { Told::Missing } else { Told::Done { references: 0 } };
        assert_eq!(cluster.prove(PACK, place, pack), expected, "{place}");
        let quarantined = cluster.machines[place].directories[0].0.join("quarantined");
        assert_eq!(quarantined.read_dir().map_or(0, Iterator::count) > 0, rots, "{place}");
    }
    // It is made anew, and proved.
    for (place, _) in rotten {
        let events = Completions::new().unwrap();
        let places = cluster.places(PACK, 0, &[]);
        let options = ((LONG, LONG), "tx");
        let rebuilding = Rebuilding::start(places, (place, pack), options, (events.clone(), 7)).unwrap();
        drop(events.wait(LONG));
        assert_eq!(rebuilding.end(), Some(RebuildEnd::Answered(SlotAnswer::Done)));
        let settle = swiftlet_fragments::request::Request::Settle(pack);
        cluster.store(place).about_fragment(cluster.fragment(PACK, place), settle).unwrap();
        assert_eq!(cluster.prove(PACK, place, pack), Told::Done { references: 0 });
    }
}

#[test]
fn what_is_no_question_about_a_pack_is_refused() {
    let cluster = Cluster::new(Carrier::Tcp);
    let pack = Version { timestamp: 1, generation: 2 };
    let request: Request = PackRequest::Prove { key: cluster.fragment(PACK, 0), pack }.into();
    let refused = |request: &Request| {
        let target = cluster.targets[0].as_ref().unwrap();
        match cluster.world.client.ask(target, request, None, LONG) {
            Err(Failure::Refused(refusal)) => refusal.status,
            other => panic!("{other:?}"),
        }
    };
    let small = PackRequest::Prove { key: small(PACK), pack };
    assert_eq!(refused(&small.into()), Status::WireError);
    let deletion = PackRequest::Retire { key: cluster.fragment(PACK, 0), pack: Version::deletion(1) };
    assert_eq!(refused(&deletion.into()), Status::WireError);
    cluster.machines[0].server.set_codings(std::collections::HashMap::from([(2, None)]));
    assert_eq!(refused(&request), Status::Unavailable);
}

#[test]
fn a_place_that_was_replaced_learns_references() {
    let mut cluster = Cluster::new(Carrier::Tcp);
    let all: Vec<u64> = numbers(20).collect();
    all.iter().for_each(|number| cluster.copy(*number, 10, &[0, 1, 2]));
    let new = swiftlet_store::model::PostMeta { timestamp: 13, ..Default::default() };
    cluster.store(0).post(small(all[2]), new).unwrap();
    let written = cluster.pack(PACK, &all, 20);
    let pack = written.table.pack.version;
    assert_eq!(cluster.adopt(PACK, 0, &written), Told::Done { references: 20 });
    cluster.copy(PACK + 5 * 50, 10, &[0]);
    let mut digests: Vec<_> = all.iter().map(|number| small(*number).digest).collect();
    digests.push(small(PACK + 5 * 50).digest);
    digests.push(small(PACK + 5 * 51).digest);
    let request = PackRequest::References { key: cluster.fragment(PACK, 0), digests };
    let target = cluster.targets[0].as_ref().unwrap();
    let fetched = cluster.world.client.ask(target, &request.into(), None, LONG).unwrap();
    let found = decode_references(&fetched.body).unwrap();
    assert_eq!(found.iter().filter(|one| one.posted.as_ref().is_some_and(|post| post.timestamp == 13)).count(), 1);
    let mut references: Vec<_> = found.iter().map(|one| one.reference).collect();
    references.sort_unstable_by_key(|one| one.digest);
    assert_eq!(references, written.table.references, "of what is a copy, or not there, nothing is told");
    assert!(found.iter().all(|one| one.pack == written.table.pack));
    // An empty device takes nothing before it has the pack.
    cluster.replace(1);
    let table = Table { pack: written.table.pack, references };
    let learn = || cluster.ask(1, PackRequest::Learn { key: cluster.fragment(PACK, 1), table: table.clone() });
    assert_eq!(learn(), Told::Missing);
    assert_eq!(rebuild(cluster.places(PACK, 0, &[]), 1, pack.timestamp, pack.generation), done());
    let settle = || swiftlet_fragments::request::Request::Settle(pack);
    cluster.store(1).about_fragment(cluster.fragment(PACK, 1), settle()).unwrap();
    cluster.copy(all[0], 11, &[1]);
    cluster.store(1).delete(small(all[1]), 12, b"/a/c/o".to_vec()).unwrap_err();
    assert_eq!(learn(), Told::Done { references: 18 });
    assert_eq!(learn(), Told::Done { references: 18 });
    assert_eq!(cluster.store(1).get(&small(all[0])).unwrap().info().timestamp, 11);
    assert!(!cluster.is_referred(all[1], 1) && cluster.is_referred(all[2], 1));
    let entries = |place: usize, number: u64| {
        let key = small(number);
        let suffix = u16::from_be_bytes([key.digest[0], key.digest[1]]) >> 4;
        let all = cluster.store(place).entries((2, key.partition), suffix).unwrap();
        all.into_iter().find(|entry| entry.digest == key.digest)
    };
    assert_eq!(entries(0, all[5]), entries(1, all[5]));
    // Nothing is learned of a retired pack.
    cluster.replace(2);
    assert_eq!(rebuild(cluster.places(PACK, 0, &[]), 2, pack.timestamp, pack.generation), done());
    cluster.store(2).about_fragment(cluster.fragment(PACK, 2), settle()).unwrap();
    assert_eq!(cluster.retire(PACK, 2, pack), retired(false, 0));
    let learn = PackRequest::Learn { key: cluster.fragment(PACK, 2), table };
    assert_eq!(cluster.ask(2, learn), retired(true, 0));
}

#[test]
fn who_makes_a_fragment_anew_takes_over_that_its_pack_is_retired() {
    let mut cluster = Cluster::new(Carrier::Tcp);
    let packs = [7_u64, 8].map(|drawn| {
        let digest = swiftlet_fragments::packs::digest_of_pack(drawn);
        let of_ring = Key { digest, ..key(PACK) };
        let devices = Devices::new(cluster.targets.clone());
        let places = Places::new(devices, of_ring, (scheme(), CELL), (0..6).collect(), Vec::new()).unwrap();
        cluster.write_surely(places, 20, &content(drawn, 9000));
        digest
    });
    let at = |digest: [u8; 16], place: usize| Key { digest, ..cluster.fragment(PACK, place) };
    let keys: Vec<[Key; 6]> = packs.iter().map(|digest| [0, 1, 2, 3, 4, 5].map(|place| at(*digest, place))).collect();
    for keys in &keys {
        eventually("all have it", || {
            (0..6).all(|place| shown(&cluster.machines[place], &keys[place]) == Some((20, true)))
        });
    }
    let versions: Vec<Version> =
        keys.iter().map(|keys| cluster.store(0).shown_fragment(&keys[0]).unwrap().unwrap().version).collect();
    // One place alone has heard of it.
    let retire = PackRequest::Retire { key: keys[0][5], pack: versions[0] };
    assert_eq!(cluster.ask(5, retire), retired(false, 0));
    cluster.replace(1);
    for (at, (keys, pack)) in keys.iter().zip(versions).enumerate() {
        let devices = Devices::new(cluster.targets.clone());
        let of_ring = Key { digest: keys[0].digest, ..key(PACK) };
        let places = Places::new(devices, of_ring, (scheme(), CELL), (0..6).collect(), Vec::new()).unwrap();
        assert_eq!(rebuild(places, 1, pack.timestamp, pack.generation), done());
        let settle = swiftlet_fragments::request::Request::Settle(pack);
        cluster.store(1).about_fragment(keys[1], settle).unwrap();
        let told = cluster.ask(1, PackRequest::Prove { key: keys[1], pack });
        assert_eq!(told, if at == 0 { retired(true, 0) } else { Told::Done { references: 0 } });
    }
}

fn done() -> RebuildEnd {
    RebuildEnd::Answered(SlotAnswer::Done)
}
