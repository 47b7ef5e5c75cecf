//! Records of objects and of references to packs come to the same in any order, and any number of times.

use std::collections::{BTreeMap, HashMap};

use swiftlet_fragments::Version;
use swiftlet_fragments::packs::table::Table;

use super::*;
use crate::index::{Index, numbered};
use crate::model::Key;
use crate::record::table_record;

const ID: (u16, u32) = (0, 31);
const OBJECTS: u64 = 8;

/// A generator of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn key(number: u64) -> Key {
    Key { policy: ID.0, partition: ID.1, digest: [number as u8; 16] }
}

type Log = Vec<(Header, Option<Table>)>;

/// Records of a life, each object's version once as a copy at most.
fn life(random: &mut Random) -> Log {
    let mut log: BTreeMap<(u64, u64, u64), (Header, Option<Table>)> = BTreeMap::new();
    for sequence in 1..30 {
        let (number, timestamp) = (random.below(OBJECTS), random.below(5) + 1);
        let new = |kind| Header { size: 300, ..Header::new(kind, key(number), timestamp) };
        let (at, (header, table)) = match random.below(6) {
            0 | 1 => ((1, number, timestamp), (new(Kind::Put), None)),
            2 => ((2, number, timestamp), (Header { size: 0, ..new(Kind::Tombstone) }, None)),
            _ => {
                let version = Version { timestamp: random.below(2), generation: 1 };
                let pack = Pack { version, digest: [100 + random.below(2) as u8; 16] };
                let members = (0..OBJECTS).filter_map(|number| {
                    let length = (10 * number + version.timestamp) as u32;
                    let member =
                        |timestamp| Reference { digest: key(number).digest, timestamp, offset: number * 100, length };
                    (random.below(2) == 0).then(|| member(random.below(5) + 1))
                });
                let references: Vec<_> = members.collect();
                let Some((header, metadata)) =
                    table_record(ID.0, ID.1, &Table { pack, references: references.clone() })
                else {
                    continue;
                };
                let header = Header { metadata_len: metadata.len() as u32, ..header };
                ((3, sequence, 0), (header, Some(Table { pack, references })))
            }
        };
        log.insert(at, (Header { sequence, place: Place::new(1, 4096 * sequence), ..header }, table));
    }
    log.into_values().collect()
}

/// What a record says of each object, as numbers of which the highest counts: timestamp, rank of the kind, pack and
/// sequence number.
type Claim = (u64, u8, Option<(Pack, u64)>);

fn claims((header, table): &(Header, Option<Table>)) -> Vec<([u8; 16], Claim)> {
    let of_reference = |table: &Table, reference: &Reference| {
        (reference.digest, (reference.timestamp, 1, Some((table.pack, header.sequence))))
    };
    match table {
        Some(table) => table.references.iter().map(|reference| of_reference(table, reference)).collect(),
        None => {
            let rank = if header.kind == Kind::Tombstone { 2 } else { 0 };
            vec![(header.key.digest, (header.timestamp, rank, None))]
        }
    }
}

#[test]
fn records_come_to_the_same_in_any_order() {
    let mut references = 0;
    for seed in 0..3000 {
        let mut random = Random(seed * 7919 + 1);
        let log = life(&mut random);
        let mut expected: BTreeMap<[u8; 16], (Claim, Place)> = BTreeMap::new();
        for record in &log {
            for (digest, claim) in claims(record) {
                let best = expected.entry(digest).or_insert((claim, record.0.place));
                *best = (*best).max((claim, record.0.place));
            }
        }
        // All of them, and then some again.
        let mut order: Vec<usize> = (0..log.len()).chain(0..log.len() / 2).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at as u64 + 1) as usize);
        }
        let index = Index::default();
        let mut live: HashMap<Place, u32> = HashMap::new();
        for at in order {
            let (header, table) = &log[at];
            let applied = match table {
                Some(table) => index.apply_table(header, numbered(&table.references), |_| true),
                None => index.apply(header, None),
            };
            if applied.held {
                live.insert(header.place, units(header));
            }
            applied.freed.iter().for_each(|(place, size)| assert_eq!(live.remove(place), Some(*size), "seed {seed}"));
        }
        let mut held = BTreeMap::new();
        index.for_each(|_, found| {
            held.insert(found.slot.digest(), found.slot.place);
        });
        let places: BTreeMap<_, _> = expected.iter().map(|(digest, (_, place))| (*digest, *place)).collect();
        assert_eq!(held, places, "seed {seed}");
        let mut counted = HashMap::new();
        index.for_each_place(|_, place, units| {
            counted.insert(place, units);
        });
        assert_eq!(counted, live, "seed {seed}: what is live is counted as it comes and dies");
        index.partition(ID, |partition| {
            for (place, table) in partition.tables() {
                let own = partition.iter().filter(|held| held.slot.place == place);
                let lengths: Vec<u64> = own.filter_map(|held| Some(held.slot.member()?.length.into())).collect();
                assert_eq!((table.references as usize, table.bytes), (lengths.len(), lengths.iter().sum()));
                references += lengths.len();
            }
        });
    }
    assert!(references > 3000, "{references}");
}
