//! Where the copies of `local` writes are made: the primaries of a partition in one region, and the handoffs there that
//! stand in for the primaries of others.
//!
//! Python decides the same for all that is written without this thread (`swiftlet.placement.write_plan`), by the same
//! order of handoffs (`swiftlet.ring.lookup.Ring.handoffs`): the two are compared in `swiftlet.front.tests`.

use std::collections::HashSet;
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

/// The devices of each partition in one region.
#[derive(Debug)]
pub struct Near {
    region: u32,
    sites: Vec<Option<Site>>,
    /// The number of different regions, zones and nodes.
    counts: [usize; 3],
    /// The number of devices with weight.
    weighted: usize,
    /// By partition, as far as they have been asked for.
    found: Vec<OnceLock<Box<[u16]>>>,
}

impl Near {
    /// Those in `region`, by the sites of all devices of a ring.
    #[must_use]
    pub fn new(region: u32, sites: Vec<Option<Site>>) -> Self {
        let count = |tier: usize| sites.iter().flatten().map(|site| site.tiers()[tier]).collect::<HashSet<_>>().len();
        let counts = [count(0), count(1), count(2)];
        let weighted = sites.iter().flatten().filter(|site| site.weighted).count();
        Self { region, sites, counts, weighted, found: Vec::new() }
    }

    /// The same for a ring of so many partitions.
    pub(crate) fn of(self, partitions: usize) -> Self {
        Self { found: (0..partitions).map(|_| OnceLock::new()).collect(), ..self }
    }

    /// The devices that get a partition's writes, as many as it has replicas if there are so many.
    pub(crate) fn devices(&self, rows: &[Vec<u16>], partition: u32) -> &[u16] {
        let at = partition as usize;
        let Some(known) = self.found.get(at) else { return &[] };
        known.get_or_init(|| self.find(rows, at))
    }

    fn find(&self, rows: &[Vec<u16>], partition: usize) -> Box<[u16]> {
        let holders: Vec<u16> = rows.iter().filter_map(|row| row.get(partition)).copied().collect();
        let is_near = |id: &u16| self.site(*id).is_some_and(|site| site.region == self.region);
        let mut found: Vec<u16> = holders.iter().copied().filter(is_near).collect();
        if found.len() < holders.len() {
            self.handoffs(rows, partition, &holders, |id| {
                if is_near(&id) {
                    found.push(id);
                }
                found.len() < holders.len()
            });
        }
        found.into()
    }

    fn site(&self, id: u16) -> Option<Site> {
        self.sites.get(usize::from(id)).copied().flatten()
    }

    /// Visit the handoffs of a partition in their order, while `goes_on` returns true.
    fn handoffs(&self, rows: &[Vec<u16>], partition: usize, holders: &[u16], mut goes_on: impl FnMut(u16) -> bool) {
        let mut taken: HashSet<u16> = holders.iter().copied().collect();
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
        let count = self.found.len();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Devices that take turns among two regions, each on a node and in a zone of its own.
    fn near(devices: u32) -> Near {
        let site = |number: u32| {
            let weighted = number != 7;
            Some(Site { region: number % 2, zone: number, node: number, weighted })
        };
        Near::new(0, (0..devices).map(site).collect()).of(4)
    }

    #[test]
    fn primaries_come_first_and_handoffs_of_the_region_fill_up() {
        let rows = vec![vec![0, 1, 2, 3], vec![1, 2, 3, 4], vec![2, 4, 5, 5]];
        let near = near(10);
        for partition in 0..4 {
            let found = near.devices(&rows, partition).to_vec();
            let holders: Vec<u16> = rows.iter().map(|row| row[partition as usize]).collect();
            let primaries: Vec<u16> = holders.iter().copied().filter(|id| id % 2 == 0).collect();
            assert_eq!(found[..primaries.len()], primaries, "partition {partition}");
            assert_eq!(found.len(), 3);
            assert!(found.iter().all(|id| id % 2 == 0));
            assert_eq!(found.iter().collect::<HashSet<_>>().len(), 3);
            assert_eq!(near.devices(&rows, partition), found, "it is remembered");
        }
    }

    #[test]
    fn a_small_region_has_what_it_has() {
        let rows = vec![vec![0; 4], vec![1; 4], vec![3; 4]];
        assert_eq!(near(4).devices(&rows, 2), [0, 2]);
        assert_eq!(Near::new(9, vec![None; 4]).of(4).devices(&rows, 2), []);
        assert_eq!(near(4).devices(&rows, 4), [], "there is no such partition");
    }

    #[test]
    fn devices_without_weight_come_last() {
        let rows = vec![vec![0; 4], vec![2; 4], vec![4; 4]];
        let sites = near(10).sites;
        let near = Near::new(1, sites).of(4);
        let all = near.devices(&rows, 0);
        assert!(all.len() == 3 && !all.contains(&7));
        let more = Near::new(1, near.sites.clone()).of(4);
        let rows = vec![vec![0; 4]; 5];
        assert_eq!(more.devices(&rows, 1).last(), Some(&7));
    }
}
