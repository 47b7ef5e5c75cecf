//! The order in which other devices stand in for a partition's primaries; the devices that get its writes where these
//! stay in one region, and those that may have its objects.
//!
//! Python decides the same for all that is done without this thread: by the same order of handoffs
//! (`swiftlet.ring.lookup.Ring.handoffs`) where writes go (`swiftlet.placement.write_plan`) and who is asked for the
//! newest version (`swiftlet.placement.copies`). All of it is compared in `swiftlet.front.tests`.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

/// How many slots are searched per device and kind of tier before handoffs are taken in plain order.
const SEARCH: usize = 8;
/// The distance between two slots of that search, as a share of the ring.
const STRIDE: f64 = 0.618_033_988_749_894_9;

/// The failure domains of a device, each by a number, and whether it has any weight.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// Its region.
    pub region: u32,
    /// Its zone; equal names in two regions are two zones.
    pub zone: u32,
    /// Its node; equal names in two zones are two nodes.
    pub node: u32,
    /// Whether it is not being drained.
    pub weighted: bool,
}

impl Site {
    fn tiers(&self) -> [u32; 3] {
        [self.region, self.zone, self.node]
    }
}

/// Devices of a partition, once they have been asked for.
type Found = OnceLock<Box<[u16]>>;

/// Those of each partition.
#[derive(Debug, Default)]
struct ByPartition(OnceLock<Box<[Found]>>);

impl ByPartition {
    fn get(&self, (partition, partitions): (usize, usize), find: impl FnOnce() -> Box<[u16]>) -> &[u16] {
        let all = self.0.get_or_init(|| (0..partitions).map(|_| Found::new()).collect());
        all.get(partition).map_or(&[], |known| known.get_or_init(find))
    }
}

/// The devices of a ring by their failure domains.
#[derive(Debug)]
pub(crate) struct Handoffs {
    sites: Vec<Option<Site>>,
    /// The region in which all copies of a write are made; None: on the primaries.
    region: Option<u32>,
    /// The number of different regions, zones and nodes.
    counts: [usize; 3],
    /// The number of devices with weight.
    weighted: usize,
    partitions: usize,
    near: ByPartition,
    holders: ByPartition,
}

impl Handoffs {
    /// Those of a ring with so many partitions, by the sites of all of its devices. Writes stay in `region`, if there
    /// is one.
    pub(crate) fn new(sites: Vec<Option<Site>>, partitions: usize, region: Option<u32>) -> Self {
        let count = |tier: usize| sites.iter().flatten().map(|site| site.tiers()[tier]).collect::<HashSet<_>>().len();
        let counts = [count(0), count(1), count(2)];
        let weighted = sites.iter().flatten().filter(|site| site.weighted).count();
        let (near, holders) = (ByPartition::default(), ByPartition::default());
        Self { sites, region, counts, weighted, partitions, near, holders }
    }

    /// The devices that get a partition's writes where these stay in one region: as many as it has replicas, if there
    /// are so many.
    pub(crate) fn near(&self, rows: &[Vec<u16>], partition: u32) -> Option<&[u16]> {
        let (region, at) = (self.region?, partition as usize);
        Some(self.near.get((at, self.partitions), || self.find_near(rows, at, region)))
    }

    /// Whether a device is in the region in which writes stay, if there is one: devices elsewhere miss writes, and know
    /// nothing of that.
    pub(crate) fn knows_writes(&self, id: u16) -> bool {
        self.region.is_none_or(|region| self.site(id).is_some_and(|site| site.region == region))
    }

    /// The devices that may have an acknowledged version of a partition's object: its primaries, and as many handoffs,
    /// or so many in each region where writes stay in one.
    pub(crate) fn may_hold(&self, rows: &[Vec<u16>], partition: u32) -> &[u16] {
        let at = partition as usize;
        self.holders.get((at, self.partitions), || self.find_holders(rows, at))
    }

    fn find_near(&self, rows: &[Vec<u16>], partition: usize, region: u32) -> Box<[u16]> {
        let primaries = primaries(rows, partition);
        let is_near = |id: &u16| self.site(*id).is_some_and(|site| site.region == region);
        let mut found: Vec<u16> = primaries.iter().copied().filter(is_near).collect();
        if found.len() < primaries.len() {
            self.visit(rows, partition, &primaries, |id| {
                if is_near(&id) {
                    found.push(id);
                }
                found.len() < primaries.len()
            });
        }
        found.into()
    }

    fn find_holders(&self, rows: &[Vec<u16>], partition: usize) -> Box<[u16]> {
        let mut found = primaries(rows, partition);
        let count = found.len();
        // How many are still to be found, by region, or anywhere.
        let mut wanted: HashMap<Option<u32>, usize> = match self.region {
            None => HashMap::from([(None, count)]),
            Some(_) => {
                let regions = self.sites.iter().flatten().filter(|site| site.weighted).map(|site| site.region);
                regions.map(|region| (Some(region), count)).collect()
            }
        };
        self.visit(rows, partition, &found.clone(), |id| {
            let region = self.region.and_then(|_| Some(self.site(id)?.region));
            if let Some(left) = wanted.get_mut(&region).filter(|left| **left > 0) {
                *left -= 1;
                found.push(id);
            }
            wanted.values().any(|left| *left > 0)
        });
        found.into()
    }

    fn site(&self, id: u16) -> Option<Site> {
        self.sites.get(usize::from(id)).copied().flatten()
    }

    /// Visit the handoffs of a partition in their order, while `goes_on` returns true.
    fn visit(&self, rows: &[Vec<u16>], partition: usize, primaries: &[u16], mut goes_on: impl FnMut(u16) -> bool) {
        let mut taken: HashSet<u16> = primaries.iter().copied().collect();
        for tier in 0..self.counts.len() {
            let mut used: HashSet<u32> = taken.iter().filter_map(|id| Some(self.site(*id)?.tiers()[tier])).collect();
            let others = self.scattered(rows, partition).chain(self.rotated(partition));
            for (id, site) in others.filter(|(_, site)| site.weighted) {
                if used.len() == self.counts[tier] {
                    break;
                }
                if !taken.contains(&id) && used.insert(site.tiers()[tier]) {
                    taken.insert(id);
                    if !goes_on(id) {
                        return;
                    }
                }
            }
        }
        let with_weight = taken.iter().filter(|id| self.site(**id).is_some_and(|site| site.weighted)).count();
        // In a small ring there is nothing left to find here.
        let scattered = (with_weight < self.weighted).then(|| self.scattered(rows, partition));
        for (id, site) in scattered.into_iter().flatten() {
            if site.weighted && taken.insert(id) && !goes_on(id) {
                return;
            }
        }
        for weighted in [true, false] {
            let rest = self.rotated(partition).filter(|(_, site)| site.weighted == weighted);
            for (id, _) in rest.filter(|(id, _)| !taken.contains(id)) {
                if !goes_on(id) {
                    return;
                }
            }
        }
    }

    /// The holders of slots spread over the ring; devices come up repeatedly.
    fn scattered<'a>(&'a self, rows: &'a [Vec<u16>], partition: usize) -> impl Iterator<Item = (u16, Site)> + 'a {
        let count = self.partitions;
        let step = (count as f64 * STRIDE) as usize | 1;
        let turns = count.min(SEARCH * self.sites.len());
        (0..turns).filter_map(move |turn| {
            let at = (partition + (turn + 1) * step) % count;
            let id = *rows[turn % rows.len()].get(at)?;
            Some((id, self.site(id)?))
        })
    }

    /// All devices by number, beginning with a different one for every partition.
    fn rotated(&self, partition: usize) -> impl Iterator<Item = (u16, Site)> + '_ {
        let count = self.sites.len();
        (0..count).filter_map(move |turn| {
            let at = (turn + partition) % count;
            Some((at as u16, self.sites[at]?))
        })
    }
}

/// The devices that a ring assigns a partition to.
fn primaries(rows: &[Vec<u16>], partition: usize) -> Vec<u16> {
    rows.iter().filter_map(|row| row.get(partition)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Devices that take turns among two regions, each on a node and in a zone of its own.
    fn handoffs(devices: u32, region: Option<u32>) -> Handoffs {
        let site = |number: u32| {
            let weighted = number != 7;
            Some(Site { region: number % 2, zone: number, node: number, weighted })
        };
        Handoffs::new((0..devices).map(site).collect(), 4, region)
    }

    #[test]
    fn primaries_come_first_and_handoffs_of_the_region_fill_up() {
        let rows = vec![vec![0, 1, 2, 3], vec![1, 2, 3, 4], vec![2, 4, 5, 5]];
        let handoffs = handoffs(10, Some(0));
        for partition in 0..4 {
            let found = handoffs.near(&rows, partition).expect("a region").to_vec();
            let of_it = primaries(&rows, partition as usize).into_iter().filter(|id| id % 2 == 0).collect::<Vec<_>>();
            assert_eq!(found[..of_it.len()], of_it, "partition {partition}");
            assert_eq!(found.len(), 3);
            assert!(found.iter().all(|id| id % 2 == 0));
            assert_eq!(found.iter().collect::<HashSet<_>>().len(), 3);
            assert_eq!(handoffs.near(&rows, partition), Some(&found[..]), "it is remembered");
        }
    }

    #[test]
    fn a_small_region_has_what_it_has() {
        let rows = vec![vec![0; 4], vec![1; 4], vec![3; 4]];
        assert_eq!(handoffs(4, Some(0)).near(&rows, 2), Some(&[0, 2][..]));
        assert_eq!(Handoffs::new(vec![None; 4], 4, Some(9)).near(&rows, 2), Some(&[][..]));
        assert_eq!(handoffs(4, Some(0)).near(&rows, 4), Some(&[][..]), "there is no such partition");
        assert_eq!(handoffs(4, None).near(&rows, 2), None, "writes stay in no region");
    }

    #[test]
    fn devices_without_weight_come_last() {
        let rows = vec![vec![0; 4], vec![2; 4], vec![4; 4]];
        let all = handoffs(10, Some(1)).near(&rows, 0).expect("a region").to_vec();
        assert!(all.len() == 3 && !all.contains(&7));
        let rows = vec![vec![0; 4]; 5];
        assert_eq!(handoffs(10, Some(1)).near(&rows, 1).and_then(<[u16]>::last), Some(&7));
    }

    #[test]
    fn as_many_handoffs_as_primaries_may_have_an_object() {
        let rows = vec![vec![0; 4], vec![1; 4], vec![3; 4]];
        for (devices, count) in [(4, 4), (5, 5), (6, 6), (10, 6)] {
            let handoffs = handoffs(devices, None);
            let found = handoffs.may_hold(&rows, 1);
            assert_eq!((&found[..3], found.len()), (&[0, 1, 3][..], count), "{devices}");
            assert_eq!(found.iter().collect::<HashSet<_>>().len(), count);
            assert_eq!(handoffs.may_hold(&rows, 1), found, "it is remembered");
        }
        // So many in each region, of those that have any weight there.
        let handoffs = handoffs(14, Some(0));
        let found = handoffs.may_hold(&rows, 1);
        let in_region = |region| found[3..].iter().filter(|id| **id % 2 == region).count();
        assert_eq!((found.len(), in_region(0), in_region(1)), (9, 3, 3));
        assert!(!found.contains(&7));
        assert!(handoffs.may_hold(&rows, 4).is_empty(), "there is no such partition");
    }
}
