//! Where objects are: a policy's ring, and which of its devices may be asked.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use swiftlet_erasure::Scheme;
use swiftlet_node::coded;
use swiftlet_node::hedging::Latencies;
use swiftlet_store::model::Key;
use swiftlet_transport::{Peer, Pool};

use crate::handoffs::{Handoffs, Site};

/// How long a failed device is not asked.
const FAILED_FOR: Duration = Duration::from_secs(10);
/// How long a device that may have missed writes is not asked for reads.
const UNPROVED_FOR: Duration = Duration::from_secs(1);

/// A device that is reached by the native transport.
#[derive(Debug)]
pub struct Device {
    peer: Peer,
    name: String,
    /// How far away it is: of several devices the nearest are read from.
    distance: u8,
    /// Whether others are to be asked, whatever has come of it here.
    is_avoided: AtomicBool,
    begun: Instant,
    /// Milliseconds after `begun` until which it is not asked.
    failed_until: AtomicU64,
    /// Milliseconds after `begun` until which it is not asked for reads.
    unproved_until: AtomicU64,
    latencies: Mutex<Latencies>,
}

impl Device {
    /// A device with this `name` on its server, as near as any.
    #[must_use]
    pub fn new(peer: Peer, name: &str) -> Self {
        let name = name.to_owned();
        let (is_avoided, begun, latencies) = (AtomicBool::new(false), Instant::now(), Mutex::default());
        let (failed_until, unproved_until) = (0.into(), 0.into());
        Self { peer, name, distance: 0, is_avoided, begun, failed_until, unproved_until, latencies }
    }

    /// The same so far away.
    #[must_use]
    pub fn at(self, distance: u8) -> Self {
        Self { distance, ..self }
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn since(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.begun).as_millis() as u64
    }

    pub(crate) fn failed(&self, now: Instant) {
        self.failed_until.store(self.since(now) + FAILED_FOR.as_millis() as u64, Relaxed);
    }

    pub(crate) fn unproved(&self, now: Instant) {
        self.unproved_until.store(self.since(now) + UNPROVED_FOR.as_millis() as u64, Relaxed);
    }

    fn latencies(&self) -> MutexGuard<'_, Latencies> {
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Note that it has answered a read after so long, or not yet.
    pub(crate) fn took(&self, time: Duration) {
        self.latencies().add(time);
    }

    /// How long it may take until another one is asked for a read, if that is known.
    pub(crate) fn late(&self) -> Option<Duration> {
        self.latencies().late()
    }

    fn is_proved(&self, now: Instant) -> bool {
        self.unproved_until.load(Relaxed) <= self.since(now)
    }

    fn is_sound(&self, now: Instant) -> bool {
        !self.is_avoided.load(Relaxed) && self.failed_until.load(Relaxed) <= self.since(now)
    }
}

/// How the objects of a policy are coded, and who has their fragments.
#[derive(Debug)]
pub struct Coding {
    devices: Arc<coded::Devices>,
    scheme: Scheme,
    cell_bytes: usize,
    /// Whether there are small objects, which are copies.
    has_small: bool,
    /// How far away each device is, by its number.
    distances: Arc<[u8]>,
    /// Devices that others are asked before, by their numbers.
    avoided: Vec<AtomicBool>,
}

impl Coding {
    /// That of objects with fragments of this scheme, whose cells have so many bytes, on these devices. With `has_small`
    /// small ones are copies. `distances` are those of the devices, by their numbers.
    #[must_use]
    pub fn new(
        devices: Arc<coded::Devices>,
        (scheme, cell_bytes): (Scheme, usize),
        has_small: bool,
        distances: Vec<u8>,
    ) -> Self {
        let avoided = distances.iter().map(|_| AtomicBool::new(false)).collect();
        Self { devices, scheme, cell_bytes, has_small, distances: distances.into(), avoided }
    }

    pub(crate) fn has_small(&self) -> bool {
        self.has_small
    }

    pub(crate) fn avoids(&self, number: u32) -> bool {
        self.avoided.get(number as usize).is_some_and(|avoided| avoided.load(Relaxed))
    }
}

/// Why a ring can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unusable;

/// A storage policy's ring.
#[derive(Debug)]
pub struct Policy {
    part_power: u32,
    rows: Vec<Vec<u16>>,
    devices: Vec<Option<Arc<Device>>>,
    /// None where it is not known who stands in for whom.
    handoffs: Option<Handoffs>,
    /// How objects are coded, unless they are whole.
    coding: Option<Coding>,
}

impl Policy {
    /// A ring: `rows[replica][partition]` is a device's number; the last row may be shorter. Missing devices are not
    /// asked.
    ///
    /// # Errors
    /// It is no ring.
    pub fn new(part_power: u32, rows: Vec<Vec<u16>>, devices: Vec<Option<Device>>) -> Result<Self, Unusable> {
        let Some((last, full)) = rows.split_last() else { return Err(Unusable) };
        let partitions = if part_power <= 32 { 1_usize << part_power } else { return Err(Unusable) };
        if full.iter().any(|row| row.len() != partitions) || last.len() > partitions {
            return Err(Unusable);
        }
        let devices = devices.into_iter().map(|one| one.map(Arc::new)).collect();
        Ok(Self { part_power, rows, devices, handoffs: None, coding: None })
    }

    /// The same with the sites of all devices. Writes stay in `region`, if there is one.
    #[must_use]
    pub fn with_sites(self, sites: Vec<Option<Site>>, region: Option<u32>) -> Self {
        Self { handoffs: Some(Handoffs::new(sites, 1 << self.part_power, region)), ..self }
    }

    /// The same, of objects that are coded.
    #[must_use]
    pub fn with_coding(self, coding: Coding) -> Self {
        Self { coding: Some(coding), ..self }
    }

    /// The same; these devices are avoided from the beginning on.
    #[must_use]
    pub fn avoiding(self, numbers: &[u32]) -> Self {
        self.avoid(numbers);
        self
    }

    /// Ask others before these devices, and before no others. One that has whole objects is asked only for the rest of a
    /// long answer that nobody else has.
    pub(crate) fn avoid(&self, numbers: &[u32]) {
        let is_avoided = |number: usize| numbers.contains(&(number as u32));
        for (number, device) in self.devices.iter().enumerate() {
            if let Some(device) = device {
                device.is_avoided.store(is_avoided(number), Relaxed);
            }
        }
        for (number, avoided) in self.coding.iter().flat_map(|coding| &coding.avoided).enumerate() {
            avoided.store(is_avoided(number), Relaxed);
        }
    }

    /// How objects are coded; None if they are whole.
    pub(crate) fn coding(&self) -> Option<&Coding> {
        self.coding.as_ref()
    }

    /// Where a coded object is; None if the ring doesn't have one device for each of its fragments. As many handoffs may
    /// stand in for others as it has parity.
    pub(crate) fn places(&self, key: Key) -> Option<coded::Places> {
        let (coding, handoffs) = (self.coding.as_ref()?, self.handoffs.as_ref()?);
        let holders = handoffs.may_hold(&self.rows, key.partition);
        if self.replicas(key.partition) != coding.scheme.cells() {
            return None;
        }
        let (at, others) = holders.split_at_checked(coding.scheme.cells())?;
        let numbers = |ids: &[u16]| ids.iter().map(|id| u32::from(*id)).collect::<Vec<_>>();
        let spares = &others[..others.len().min(coding.scheme.parity())];
        let (devices, how) = (Arc::clone(&coding.devices), (coding.scheme, coding.cell_bytes));
        let places = coded::Places::new(devices, key, how, numbers(at), numbers(spares)).ok()?;
        Some(places.seen_from(Arc::clone(&coding.distances)))
    }

    pub(crate) fn partition(&self, digest: &[u8; 16]) -> u32 {
        let top = u64::from(u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]));
        (top >> (32 - self.part_power)) as u32
    }

    /// All devices of the partition in the order of its replicas, with their numbers; None if any must not be asked.
    pub(crate) fn all(&self, partition: u32, now: Instant) -> Option<Vec<(u16, Arc<Device>)>> {
        let at = partition as usize;
        self.rows.iter().filter_map(|row| row.get(at)).map(|id| self.sound(*id, now)).collect()
    }

    fn sound(&self, id: u16, now: Instant) -> Option<(u16, Arc<Device>)> {
        let device = self.devices.get(usize::from(id))?.as_ref()?;
        device.is_sound(now).then(|| (id, Arc::clone(device)))
    }

    /// The devices that get a write of the partition, with their numbers; None if any must not be asked, or where one
    /// region is to have it and has too few for a quorum.
    pub(crate) fn to_write(&self, partition: u32, now: Instant) -> Option<Vec<(u16, Arc<Device>)>> {
        let near = self.handoffs.as_ref().and_then(|handoffs| handoffs.near(&self.rows, partition));
        let Some(found) = near else { return self.all(partition, now) };
        let quorum = self.replicas(partition) / 2 + 1;
        (found.len() >= quorum).then(|| found.iter().map(|id| self.sound(*id, now)).collect())?
    }

    /// The devices that may have an acknowledged version of an object of the partition; None if any must not be asked.
    pub(crate) fn may_hold(&self, partition: u32, now: Instant) -> Option<Vec<Arc<Device>>> {
        let found = self.handoffs.as_ref()?.may_hold(&self.rows, partition);
        found.iter().map(|id| Some(self.sound(*id, now)?.1)).collect()
    }

    /// The memory of the transport to its devices.
    pub(crate) fn pool(&self) -> Option<&Pool> {
        self.devices.iter().flatten().next().map(|device| device.peer.pool())
    }

    /// The number of the partition's replicas.
    pub(crate) fn replicas(&self, partition: u32) -> usize {
        self.rows.iter().filter(|row| row.len() > partition as usize).count()
    }

    /// A device that may have an object of the partition, none of those that were tried: those that have failed or are
    /// avoided come last, primaries before others, the nearest first.
    pub(crate) fn another(&self, partition: u32, tried: &[Arc<Device>], now: Instant) -> Option<Arc<Device>> {
        let at = partition as usize;
        let holders = self.handoffs.as_ref().map_or(&[][..], |handoffs| handoffs.may_hold(&self.rows, partition));
        let primaries = self.rows.iter().filter_map(|row| row.get(at)).map(|id| (false, id));
        let ids = primaries.chain(holders.iter().map(|id| (true, id)));
        let devices = ids.filter_map(|(is_other, id)| Some((is_other, self.devices.get(usize::from(*id))?.as_ref()?)));
        let untried = devices.filter(|(_, device)| tried.iter().all(|one| !Arc::ptr_eq(one, device)));
        let next = untried.min_by_key(|(is_other, device)| (!device.is_sound(now), *is_other, device.distance));
        next.map(|(_, device)| Arc::clone(device))
    }

    /// One of the nearest of the partition's devices that may be asked, chosen by a random number. Where writes stay in
    /// one region, only devices there may be: what others have may be older than what was acknowledged.
    pub(crate) fn choose(&self, partition: u32, random: u64, now: Instant) -> Option<Arc<Device>> {
        self.choose_but(None, partition, random, now)
    }

    /// The same without one of them.
    pub(crate) fn choose_but(
        &self,
        without: Option<&Arc<Device>>,
        partition: u32,
        random: u64,
        now: Instant,
    ) -> Option<Arc<Device>> {
        let at = partition as usize;
        let holding = self.rows.iter().filter_map(|row| row.get(at));
        let knows = |id: &&u16| self.handoffs.as_ref().is_none_or(|handoffs| handoffs.knows_writes(**id));
        let known = holding.filter(knows).filter_map(|id| self.devices.get(usize::from(*id))?.as_ref());
        let known = known.filter(|device| without.is_none_or(|other| !Arc::ptr_eq(device, other)));
        let mut sound: Vec<_> = known.filter(|device| device.is_sound(now) && device.is_proved(now)).collect();
        let nearest = sound.iter().map(|device| device.distance).min()?;
        sound.retain(|device| device.distance == nearest);
        Some(Arc::clone(sound[(random % sound.len() as u64) as usize]))
    }
}

#[cfg(test)]
mod tests {
    use swiftlet_transport::{Address, Config, Node};

    use super::*;

    fn name_of(device: Option<Arc<Device>>) -> Option<String> {
        device.map(|one| one.name().to_owned())
    }

    #[test]
    fn a_primary_that_may_be_asked() {
        let pool = Pool::new(1 << 20).expect("memory");
        let node = Node::start(Config::new("me", "here", Vec::new(), pool), &[], None).expect("threads");
        let device = |name: &str| Some(Device::new(node.peer(Address { name: name.into(), tcp: None }), name));
        let rows = vec![vec![0, 1], vec![2, 2], vec![]];
        let policy = Policy::new(1, rows.clone(), vec![device("a"), None, device("c")]).expect("a ring");
        let now = Instant::now();
        let mut high = [0; 16];
        high[0] = 0x80;
        assert_eq!((policy.partition(&[0; 16]), policy.partition(&high)), (0, 1));
        let name = |partition, random, now| name_of(policy.choose(partition, random, now));
        assert_eq!(name(0, 0, now).as_deref(), Some("a"));
        assert_eq!(name(0, 1, now).as_deref(), Some("c"));
        assert_eq!(name(1, 5, now).as_deref(), Some("c"));
        assert!(policy.all(1, now).is_none(), "one is not spoken to");
        let all = policy.all(0, now);
        assert_eq!(all.map(|all| all.iter().map(|(id, _)| *id).collect()), Some(vec![0, 2]));
        policy.choose(1, 0, now).expect("c").failed(now);
        assert!(policy.all(0, now).is_none());
        assert_eq!(name(0, 1, now).as_deref(), Some("a"));
        assert_eq!(name(1, 0, now), None);
        assert_eq!(name(1, 0, now + FAILED_FOR + Duration::from_millis(2)).as_deref(), Some("c"));
        let later = now + FAILED_FOR + Duration::from_millis(2);
        policy.choose(1, 0, later).expect("c").unproved(later);
        assert_eq!(name(1, 0, later), None, "others know what is acknowledged");
        assert_eq!(name(0, 1, later).as_deref(), Some("a"));
        assert!(policy.all(0, later).is_some(), "it is written to");
        assert_eq!(name(1, 0, later + UNPROVED_FOR + Duration::from_millis(2)).as_deref(), Some("c"));
        let far = device("a").map(|one| one.at(2));
        let policy = Policy::new(1, rows.clone(), vec![far, None, device("c").map(|one| one.at(1))]).expect("a ring");
        let name = |random, now| name_of(policy.choose(0, random, now));
        assert_eq!([name(0, now), name(1, now)].map(|one| one.expect("one")), ["c", "c"], "the nearest");
        policy.choose(0, 0, now).expect("c").failed(now);
        assert_eq!(name(0, now).as_deref(), Some("a"), "the next one");
        let reading = |region| {
            let devices = vec![device("a"), None, device("c").map(|one| one.at(2))];
            let sites = [0, 0, 1].map(|region| Some(Site { region, zone: region, node: region, weighted: true }));
            Policy::new(1, rows.clone(), devices).expect("a ring").with_sites(sites.to_vec(), region)
        };
        for (region, then) in [(None, Some("c")), (Some(0), None)] {
            let policy = reading(region);
            let first = policy.choose(0, 1, now).expect("the near one");
            assert_eq!(first.name(), "a");
            assert_eq!(name_of(policy.choose_but(Some(&first), 0, 1, now)).as_deref(), then, "beside it");
            first.unproved(now);
            assert_eq!(name_of(policy.choose(0, 1, now)).as_deref(), then, "in its place");
        }
        let sites = [0, 1, 0].map(|region| Some(Site { region, zone: region, node: region, weighted: true }));
        let writing = |region| {
            let policy = Policy::new(1, rows.clone(), vec![device("a"), None, device("c")]).expect("a ring");
            policy.with_sites(sites.to_vec(), Some(region))
        };
        let written = |policy: &Policy, now| {
            let found = policy.to_write(0, now)?;
            Some(found.iter().map(|(id, _)| *id).collect::<Vec<_>>())
        };
        assert_eq!(written(&writing(0), now), Some(vec![0, 2]));
        assert_eq!(written(&writing(1), now), None, "one device is no quorum of two");
        let policy = writing(0);
        policy.all(0, now).expect("both")[1].1.failed(now);
        assert_eq!(written(&policy, now), None);
        let policy = Policy::new(1, rows.clone(), vec![device("a"), None, device("c")]).expect("a ring");
        assert!(policy.may_hold(0, now).is_none(), "nobody knows where they are");
        let policy = policy.with_sites(vec![sites[0], None, sites[2]], None);
        let names = |found: Vec<Arc<Device>>| found.iter().map(|one| one.name().to_owned()).collect::<Vec<_>>();
        assert_eq!(policy.may_hold(0, now).map(names), Some(vec!["a".to_owned(), "c".to_owned()]));
        assert!(policy.may_hold(1, now).is_none(), "one is not spoken to");
        policy.choose(0, 0, now).expect("a").failed(now);
        assert!(policy.may_hold(0, now).is_none());
        let policy = Policy::new(1, rows.clone(), vec![device("a"), None, device("c")]).expect("a ring");
        let first = policy.another(0, &[], now).expect("a");
        let second = policy.another(0, &[Arc::clone(&first)], now).expect("c");
        assert_eq!([first.name(), second.name()], ["a", "c"]);
        first.failed(now);
        assert_eq!(policy.another(0, &[], now).expect("c").name(), "c", "one that has failed comes last");
        assert!(policy.another(0, &[first, second], now).is_none());
        let policy = Policy::new(1, rows.clone(), vec![device("a"), None, device("c")]).expect("a ring");
        let policy = policy.avoiding(&[2, 100]);
        let asked = |policy: &Policy| [0, 1].map(|random| name_of(policy.choose(0, random, now)));
        assert_eq!(asked(&policy), ["a", "a"].map(|one| Some(one.to_owned())));
        assert!(policy.all(0, now).is_none());
        let first = policy.another(0, &[], now).expect("a");
        assert_eq!(first.name(), "a", "others come before one that is avoided");
        assert_eq!(name_of(policy.another(0, &[first], now)).as_deref(), Some("c"), "nobody else is left");
        policy.avoid(&[]);
        assert_eq!(asked(&policy), ["a", "c"].map(|one| Some(one.to_owned())));
        assert!(Policy::new(2, rows, Vec::new()).is_err());
        assert!(Policy::new(33, vec![vec![]], Vec::new()).is_err());
    }
    #[test]
    fn the_places_of_a_coded_object() {
        let devices: Vec<Option<Device>> = (0..8).map(|_| None).collect();
        let site = |number| Some(Site { region: 0, zone: number, node: number, weighted: true });
        let rows: Vec<Vec<u16>> = (0..6).map(|row| vec![row, 7 - row]).collect();
        let ring = || Policy::new(1, rows.clone(), (0..8).map(|_| None).collect()).expect("a ring");
        let key = Key { policy: 1, partition: 1, digest: [0; 16] };
        let coding = |data, parity| {
            let scheme = Scheme::new(data, parity).expect("a scheme");
            Coding::new(coded::Devices::new(Vec::new()), (scheme, 1024), false, vec![0; devices.len()])
        };
        let policy = ring().with_sites((0..8).map(site).collect(), None).with_coding(coding(4, 2));
        let places = policy.places(key).expect("six devices");
        let coding_of = policy.coding().expect("coded");
        policy.avoid(&[7, 100]);
        let (order, sound) = places.in_order(|number| coding_of.avoids(number), 3);
        assert_eq!((order.len(), sound, order[5]), (6, 5, 0), "device 7 is at place 0 of partition 1");
        policy.avoid(&[]);
        assert_eq!(places.in_order(|number| coding_of.avoids(number), 3).1, 6);
        assert!(ring().with_coding(coding(4, 2)).places(key).is_none(), "nobody knows who stands in");
        let policy = ring().with_sites((0..8).map(site).collect(), None);
        assert!(policy.places(key).is_none() && policy.coding().is_none());
        let policy = policy.with_coding(coding(8, 1));
        assert!(policy.places(key).is_none(), "too few devices");
    }
}
