//! Regions, the links between them, and the packets that are under way.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::Ipv4Addr;

use crate::Nanos;
use crate::link::{Fate, Link};
use crate::random::Random;

/// The largest number of regions.
pub const MAX_REGIONS: usize = 16;

const IPV4_HEADER: usize = 20;

/// The addresses of a region.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Prefix {
    /// The first of them.
    pub address: Ipv4Addr,
    /// Leading bits that all of them share.
    pub bits: u32,
}

impl Prefix {
    fn has(self, address: Ipv4Addr) -> bool {
        let mask = u32::MAX.checked_shl(32 - self.bits).unwrap_or(0);
        (u32::from(address) ^ u32::from(self.address)) & mask == 0
    }
}

/// A region.
pub struct Region {
    /// Its name.
    pub name: String,
    prefix: Prefix,
}

/// A packet, and the region that it goes to.
#[derive(Debug, Eq, PartialEq)]
pub struct Arrival {
    /// The number of the region.
    pub to: usize,
    /// The IP packet.
    pub packet: Vec<u8>,
}

struct UnderWay {
    at: Nanos,
    order: u64,
    arrival: Arrival,
}

impl PartialEq for UnderWay {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for UnderWay {}

impl PartialOrd for UnderWay {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for UnderWay {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// Regions and links.
pub struct Network {
    regions: Vec<Region>,
    /// By the numbers of the region that sends and of the one that receives.
    links: Vec<Vec<Link>>,
    under_way: BinaryHeap<Reverse<UnderWay>>,
    sent: u64,
    /// Packets for addresses of no region, and what is no IPv4 packet.
    pub strays: u64,
    random: Random,
}

impl Network {
    /// Begin without regions; the seed is that of jitter and loss.
    pub fn new(seed: u64) -> Self {
        let under_way = BinaryHeap::new();
        Self { regions: Vec::new(), links: Vec::new(), under_way, sent: 0, strays: 0, random: Random::new(seed) }
    }

    /// Add a region and return its number; an error when the name or addresses are taken, or there are too many.
    pub fn join(&mut self, name: &str, prefix: Prefix) -> Result<usize, String> {
        if self.regions.len() == MAX_REGIONS {
            return Err(format!("there are {MAX_REGIONS} regions, which is the largest number"));
        }
        for other in &self.regions {
            if other.name == name {
                return Err(format!("there is a region {name}"));
            }
            if other.prefix.has(prefix.address) || prefix.has(other.prefix.address) {
                return Err(format!("region {} has some of these addresses", other.name));
            }
        }
        self.regions.push(Region { name: name.to_owned(), prefix });
        for row in &mut self.links {
            row.push(Link::default());
        }
        self.links.push(self.regions.iter().map(|_| Link::default()).collect());
        Ok(self.regions.len() - 1)
    }

    /// The regions, in the order of their numbers.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The link from one region to another.
    pub fn link(&self, from: usize, to: usize) -> &Link {
        &self.links[from][to]
    }

    /// The link between regions of these names, to change it; an error when there is none.
    pub fn link_of(&mut self, from: &str, to: &str) -> Result<&mut Link, String> {
        let number = |name: &str| {
            let found = self.regions.iter().position(|region| region.name == name);
            found.ok_or_else(|| format!("there is no region {name}"))
        };
        let (from, to) = (number(from)?, number(to)?);
        if from == to {
            return Err("a link is between two regions".to_owned());
        }
        Ok(&mut self.links[from][to])
    }

    /// Send a packet that a region has given out.
    pub fn send(&mut self, now: Nanos, from: usize, packet: &[u8]) {
        let Some(to) = self.destination(packet).filter(|to| *to != from) else {
            self.strays += 1;
            return;
        };
        if let Fate::Arrives(at) = self.links[from][to].send(now, packet.len() as u64, &mut self.random) {
            self.sent += 1;
            let arrival = Arrival { to, packet: packet.to_vec() };
            self.under_way.push(Reverse(UnderWay { at, order: self.sent, arrival }));
        }
    }

    /// The next packet that has arrived.
    pub fn arrived(&mut self, now: Nanos) -> Option<Arrival> {
        if self.next_at()? > now {
            return None;
        }
        self.under_way.pop().map(|Reverse(one)| one.arrival)
    }

    /// When the next packet arrives; None when none is under way.
    pub fn next_at(&self) -> Option<Nanos> {
        self.under_way.peek().map(|Reverse(one)| one.at)
    }

    fn destination(&self, packet: &[u8]) -> Option<usize> {
        if packet.len() < IPV4_HEADER || packet[0] >> 4 != 4 {
            return None;
        }
        let address = Ipv4Addr::new(packet[16], packet[17], packet[18], packet[19]);
        self.regions.iter().position(|region| region.prefix.has(address))
    }
}
