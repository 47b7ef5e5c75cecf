//! When a reader asks another device beside one that is late: by a clock that the test sets, at devices that answer when
//! they may.

use std::collections::BTreeSet;
use std::time::Instant;

use super::*;

/// What passes on a request.
type Passing = Box<dyn FnOnce() + Send>;

/// What a device is asked waits while its door is shut.
#[derive(Default)]
struct Door {
    /// What waits, while it is shut.
    held: Mutex<Option<Vec<Passing>>>,
    /// Requests that have come.
    came: AtomicU64,
}

impl Door {
    fn shut(&self) {
        self.held.lock().unwrap().get_or_insert_default();
    }

    fn open(&self) {
        let held = self.held.lock().unwrap().take();
        held.into_iter().flatten().for_each(|passing| passing());
    }
}

/// A server behind a door.
struct Guarded(Arc<dyn Handler>, Arc<Door>);

impl Handler for Guarded {
    fn request(&self, incoming: Incoming, responder: Responder) -> Option<Box<dyn Receiver>> {
        self.1.came.fetch_add(1, SeqCst);
        let server = self.0.clone();
        let passing: Passing = Box::new(move || drop(server.request(incoming, responder)));
        match &mut *self.1.held.lock().unwrap() {
            Some(held) => held.push(passing),
            None => passing(),
        }
        None
    }
}

/// A read on its way.
struct Begun(Reading, Arc<Completions>);

impl Begun {
    /// Wait until all have answered but these.
    fn waits_for(&self, devices: &[u32]) {
        let devices = BTreeSet::from_iter(devices.iter().copied());
        eventually("the others have answered", || self.0.waits_for() == devices);
    }

    /// Its bytes, when it is over.
    fn bytes(self) -> Vec<u8> {
        let (Self(reading, events), mut bytes) = (self, Vec::new());
        loop {
            for event in events.wait(LONG) {
                match event.what {
                    What::Chunk(chunk) => {
                        reading.taken(chunk.len() as u64);
                        bytes.extend_from_slice(&chunk);
                    }
                    What::End(_) => {
                        assert_eq!(reading.end(), Some(ReadEnd::Whole));
                        return bytes;
                    }
                    _ => {}
                }
            }
        }
    }
}

/// The devices of a cluster behind doors, and a clock.
struct Street {
    _cluster: Cluster,
    devices: Arc<Devices>,
    doors: Vec<Arc<Door>>,
    now: Arc<Mutex<Instant>>,
    object: Vec<u8>,
    _nodes: Vec<Node>,
}

const P95: Duration = Duration::from_millis(5);
const UNKNOWN: Duration = Duration::from_millis(300);
const MS: Duration = Duration::from_millis(1);

impl Street {
    /// With an object of one stripe.
    fn new() -> Self {
        let (cluster, object) = (Cluster::new(Carrier::Simulated), content(1, 4 * CELL));
        cluster.put(1, 10, &object);
        let (mut doors, mut nodes, mut targets) = (Vec::new(), Vec::new(), Vec::new());
        for machine in &cluster.machines {
            let (name, door) = (format!("guarded-{}", unique()), Arc::new(Door::default()));
            let server = Arc::clone(&machine.server) as Arc<dyn Handler>;
            let node = Node::start(config(&name), &[], Some(Arc::new(Guarded(server, door.clone())))).unwrap();
            node.listen(cluster.world.network.listen(&name).unwrap());
            targets.push(Some((cluster.world.node.peer(Address { name, tcp: None }), "d0".to_owned())));
            nodes.push(node);
            doors.push(door);
        }
        let now = Arc::new(Mutex::new(Instant::now()));
        let clock = now.clone();
        let devices = Devices::with_clock(targets, Box::new(move || *clock.lock().unwrap()));
        Self { _cluster: cluster, devices, doors, now, object, _nodes: nodes }
    }

    fn later(&self, time: Duration) {
        *self.now.lock().unwrap() += time;
    }

    fn begin(&self, options: ReadOptions) -> Begun {
        let (at, spares) = ((0..6).collect(), (6..8).collect());
        let places = Places::new(self.devices.clone(), key(1), (scheme(), CELL), at, spares).unwrap();
        let (events, options) = (Completions::new().unwrap(), ReadOptions { hedge: Some(UNKNOWN), ..options });
        Begun(Reading::start(places, &[0, 1, 2, 3, 4, 5], 0..u64::MAX, options, (events.clone(), 7)), events)
    }

    fn read(&self) {
        assert!(self.begin(sound()).bytes() == self.object);
    }

    /// The devices with data have given cells so often that it is known how long these take: no time.
    fn known() -> Self {
        let street = Self::new();
        (0..20).for_each(|_| street.read());
        street
    }

    fn came(&self, device: usize) -> u64 {
        self.doors[device].came.load(SeqCst)
    }
}

fn sound() -> ReadOptions {
    ReadOptions { sound: 6, ..reading() }
}

#[test]
fn who_takes_longer_than_95_of_100_answers_is_replaced() {
    let street = Street::known();
    street.doors[1].shut();
    let begun = street.begin(sound());
    begun.waits_for(&[1]);
    street.later(P95 - MS);
    assert_eq!((begun.0.turn(), begun.0.hedges()), (MS, 0));
    assert_eq!((street.came(4), street.came(5)), (0, 0));
    street.later(MS);
    begun.0.turn();
    assert_eq!(begun.0.hedges(), 1);
    assert!(begun.bytes() == street.object);
    assert_eq!((street.came(4), street.came(5)), (1, 0), "another fragment stands in");
    // It is not taken for one that stands still: the next read asks it again.
    let before = street.came(1);
    let begun = street.begin(sound());
    begun.waits_for(&[1]);
    assert_eq!(street.came(1), before + 1);
    street.doors[1].open();
    assert!(begun.bytes() == street.object);
}

#[test]
fn of_whom_nothing_is_known_is_waited_for_longer_and_then_left_alone_for_a_while() {
    let street = Street::new();
    street.doors[1].shut();
    let begun = street.begin(sound());
    begun.waits_for(&[1]);
    street.later(UNKNOWN - MS);
    assert_eq!((begun.0.turn(), begun.0.hedges()), (MS, 0));
    street.later(MS);
    begun.0.turn();
    assert!(begun.bytes() == street.object);
    // It stands still: others are asked without any delay, but not for ever.
    let before = street.came(1);
    (0..30).for_each(|_| street.read());
    assert_eq!(street.came(1), before);
    street.doors[1].open();
    street.later(Duration::from_secs(10));
    street.read();
    street.read();
    assert_eq!(street.came(1), before + 2);
}

#[test]
fn few_are_asked_besides_however_slow_a_device_is() {
    let street = Street::known();
    street.doors[1].shut();
    let mut hedged = 0;
    for _ in 0..100 {
        let begun = street.begin(sound());
        begun.waits_for(&[1]);
        street.later(P95);
        begun.0.turn();
        if begun.0.hedges() == 0 {
            assert_eq!(begun.0.turn(), UNKNOWN - P95, "until it counts as one that stands still");
            street.doors[1].open();
        }
        hedged += begun.0.hedges();
        assert!(begun.bytes() == street.object);
        street.doors[1].shut();
    }
    // A twentieth of four or five requests in each read, and the five that were saved.
    assert!((20..=30).contains(&hedged), "{hedged}");
}

#[test]
fn who_may_have_missed_a_write_does_not_stand_in_for_one_that_is_late() {
    let street = Street::known();
    street.doors[1].shut();
    let begun = street.begin(ReadOptions { sound: 2, ..reading() });
    begun.waits_for(&[1]);
    street.later(P95);
    assert_eq!((begun.0.turn(), begun.0.hedges()), (UNKNOWN - P95, 0));
    assert_eq!(begun.0.info(), None, "it is not known what the object is");
    street.later(UNKNOWN - P95);
    begun.0.turn();
    assert!(begun.bytes() == street.object);
}

#[test]
fn who_waits_is_woken_when_something_is_late_sooner() {
    let street = Street::known();
    // How long words take is not known; cells are asked for when they have come.
    street.doors[1].shut();
    let begun = street.begin(ReadOptions { small: true, ..sound() });
    begun.waits_for(&[1]);
    street.later(MS);
    assert_eq!(begun.0.turn(), UNKNOWN - MS);
    street.doors[3].shut();
    street.doors[1].open();
    let told = begun.1.wait(LONG);
    assert!(matches!(told[..], [ref event] if matches!(event.what, What::Sent(_))), "{}", told.len());
    begun.waits_for(&[3]);
    assert_eq!(begun.0.turn(), P95);
    street.later(P95);
    begun.0.turn();
    assert!(begun.bytes() == street.object);
}

#[test]
fn a_read_that_is_given_up_asks_nobody_else() {
    let street = Street::new();
    street.doors.iter().for_each(|door| door.shut());
    let begun = street.begin(reading());
    eventually("somebody is asked", || (0..6).any(|device| street.came(device) > 0));
    drop(begun);
    street.doors.iter().for_each(|door| door.open());
    (0..5).for_each(|_| street.read());
    // Who finds nothing at the first places asks those too that stand in for others.
    assert_eq!((street.came(6), street.came(7)), (0, 0));
}
