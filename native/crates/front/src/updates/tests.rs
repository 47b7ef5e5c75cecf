//! What is sent, and what becomes of it, when container servers and devices answer as they like.

use swiftlet_node::message::updates::{DURABLE, encode_taken};
use swiftlet_node::message::{MAX_ACKNOWLEDGED, Request};
use swiftlet_store::model::Key;
use swiftlet_transport::{Address, Config, Error, Node, Pool};

use super::*;
use crate::row::Row;

const SHARES: [u32; 3] = [1, 2, 4];

/// A call that was made and not answered yet.
#[derive(Clone, Debug)]
struct Called {
    to: String,
    method: u16,
    token: u64,
    header: Vec<u8>,
    body: usize,
    timeout: Duration,
}

/// Three container servers, three devices, and whoever has the rows delivered.
struct World {
    node: Node,
    updates: Updates,
    counts: Arc<Counts>,
    now: Instant,
    holders: Vec<Arc<Device>>,
    calls: Vec<Called>,
    expected: Vec<(u64, usize)>,
    answered: Vec<u64>,
    left: Vec<u64>,
    queued: Vec<u64>,
    reported: Vec<u16>,
    listed: Vec<Listed>,
}

fn ok(header: Vec<u8>) -> What {
    What::Reply { status: Status::Ok as u16, header, body_bytes: None, body: None, whole: true }
}

fn refused(status: Status) -> What {
    What::Reply { status: status as u16, header: Vec::new(), body_bytes: None, body: None, whole: true }
}

fn at(incarnation: u64, position: u64) -> What {
    ok(encode_taken(Position { incarnation, position }))
}

impl World {
    /// All servers are known to be there.
    fn new() -> Self {
        let mut world = Self::unknown();
        world.make(0, "/a/warm/");
        assert_eq!(world.take_left(), [0], "nobody has asked the servers yet");
        world.answer(DURABLE, &refused(Status::NotFound));
        world
    }

    fn unknown() -> Self {
        let pool = Pool::new(1 << 20).expect("memory");
        let node = Node::start(Config::new("me", "here", Vec::new(), pool), &[], None).expect("threads");
        let counts = Arc::new(Counts::default());
        let updates = Updates::new((b"<".to_vec(), b">".to_vec()), Duration::from_secs(10), Arc::clone(&counts));
        let peer = |name: &str| node.peer(Address { name: name.into(), tcp: None });
        let holders = ["o0", "o1", "o2"].map(|name| Arc::new(Device::new(peer(name), name))).to_vec();
        let (calls, answered, left, reported, listed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (queued, expected) = (Vec::new(), Vec::new());
        let now = Instant::now();
        let mut world =
            Self { node, updates, counts, now, holders, calls, expected, answered, left, queued, reported, listed };
        world.route(3);
        world
    }

    /// The container ring has so many replicas.
    fn route(&mut self, replicas: u16) {
        let peer = |name: &str| self.node.peer(Address { name: name.into(), tcp: None });
        let devices = ["c0", "c1", "c2"].map(|name| Some(Device::new(peer(name), name))).into();
        let rows = (0..replicas).map(|device| vec![device]).collect();
        self.updates.route(Some(Policy::new(0, rows, devices).expect("a ring")));
    }

    fn made(&self, token: u64, container: &str) -> Made {
        let row = Row { name: token.to_string().into_bytes(), timestamp: token, ..Row::default() };
        let key = Key { policy: 0, partition: 1, digest: [0; 16] };
        let (container, rows) = (container.as_bytes().into(), Arc::from(SHARES));
        let (devices, holders) = (vec![0, 1, 2], self.holders.clone());
        let (id, parts) = ("tx".to_owned(), Vec::new());
        Made {
            token,
            container,
            rows,
            awaited: 7,
            row,
            key,
            timestamp: token,
            devices,
            holders,
            id,
            parts,
            is_task: false,
        }
    }

    fn make(&mut self, token: u64, container: &str) {
        self.make_all(&[token], container);
    }

    fn make_all(&mut self, tokens: &[u64], container: &str) {
        let made = tokens.iter().map(|token| self.made(*token, container)).collect();
        self.updates.add(made, self.now);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        loop {
            let todo = self.updates.todo();
            if todo.is_empty() {
                return;
            }
            for one in todo {
                match one {
                    Do::Expect(token, calls) => self.expected.push((token & BATCH, calls)),
                    Do::Call(device, call, token) => {
                        let Call { method, header, timeout, body, .. } = *call;
                        let body = body.bytes().unwrap_or_default() as usize;
                        self.calls.push(Called { to: device.name().to_owned(), method, token, header, body, timeout });
                    }
                    Do::Answer(tokens) => self.answered.extend(tokens),
                    Do::Queued(tokens) => self.queued.extend(tokens),
                    Do::Leave(made) => self.left.extend(made.iter().map(|one| one.token)),
                    Do::Listed(listed) => self.listed.push(listed),
                    Do::Report(number) => self.reported.push(number),
                }
            }
        }
    }

    fn take_left(&mut self) -> Vec<u64> {
        mem::take(&mut self.left)
    }

    fn take_answered(&mut self) -> Vec<u64> {
        mem::take(&mut self.answered)
    }

    /// Give all calls of a method this answer; returns how many there were.
    fn answer(&mut self, method: u16, what: &What) -> usize {
        let (now, later): (Vec<_>, Vec<_>) =
            mem::take(&mut self.calls).into_iter().partition(|one| one.method == method);
        self.calls = later;
        for one in &now {
            self.updates.event(one.token, what, self.now);
        }
        self.carry_out();
        now.len()
    }

    /// Give the call of a method to one server this answer.
    fn answer_from(&mut self, to: &str, method: u16, what: &What) -> Called {
        let found = self.calls.iter().position(|one| one.to == to && one.method == method).expect("such a call");
        let call = self.calls.remove(found);
        self.updates.event(call.token, what, self.now);
        self.carry_out();
        call
    }

    fn later(&mut self, time: Duration) {
        self.now += time;
        self.updates.tick(self.now);
        self.updates.tidy(self.now);
        self.carry_out();
    }

    /// Versions of which devices are being told.
    fn acknowledged(&mut self) -> Vec<(String, Vec<u64>)> {
        let acknowledge = Request::Acknowledge(Vec::new()).method();
        let told = self.calls.iter().filter(|one| one.method == acknowledge).map(|one| {
            let (device, request) = Request::decode(one.method, &one.header).expect("a request");
            assert_eq!(device, one.to);
            let Request::Acknowledge(versions) = request else { panic!("another request") };
            (device, versions.into_iter().map(|(_, timestamp)| timestamp).collect())
        });
        let mut told: Vec<_> = told.collect();
        told.sort();
        self.answer(acknowledge, &ok(Vec::new()));
        told
    }

    fn rows(&self) -> Rows {
        Rows::of(&self.counts)
    }
}

fn all(versions: &[u64]) -> Vec<(String, Vec<u64>)> {
    ["o0", "o1", "o2"].map(|name| (name.to_owned(), versions.to_vec())).to_vec()
}

#[test]
fn clients_are_answered_when_all_replicas_have_taken_a_row_and_devices_told_when_all_are_durable() {
    let mut world = World::new();
    world.make_all(&[1, 2], "/a/c/");
    let sent: Vec<_> = world.calls.iter().map(|one| (one.to.as_str(), one.method, one.timeout)).collect();
    assert_eq!(sent, ["c0", "c1", "c2"].map(|name| (name, UPDATE, SILENCE)));
    world.answer_from("c0", UPDATE, &at(7, 10));
    world.answer_from("c2", UPDATE, &at(9, 20));
    assert!(world.take_answered().is_empty(), "one has not taken them yet");
    world.answer_from("c1", UPDATE, &at(8, 30));
    assert_eq!(world.take_answered(), [1, 2]);
    let asked = world.answer_from("c1", DURABLE, &ok(Vec::new()));
    assert_eq!(asked.header[4..], at_bytes(8, 30));
    world.answer_from("c0", DURABLE, &ok(Vec::new()));
    world.later(Duration::from_secs(1));
    assert!(world.acknowledged().is_empty(), "one has not made them durable yet");
    assert_eq!(world.rows().not_durable, 2);
    world.answer_from("c2", DURABLE, &ok(Vec::new()));
    assert!(world.acknowledged().is_empty(), "others may come");
    world.later(Duration::from_millis(200));
    assert_eq!(world.acknowledged(), all(&[1, 2]));
    let rows = world.rows();
    assert_eq!((rows.taken, rows.acknowledged, rows.delivering, rows.not_durable, rows.acknowledging), (2, 6, 0, 0, 0));
    assert!(world.calls.is_empty() && world.left.is_empty());
}

fn at_bytes(incarnation: u64, position: u64) -> Vec<u8> {
    encode_taken(Position { incarnation, position })
}

#[test]
fn two_batches_of_a_container_are_under_way_and_further_rows_wait_for_one_of_them() {
    let mut world = World::new();
    world.make(1, "/a/c/");
    world.make(2, "/a/c/");
    world.make(3, "/a/c/");
    world.make(4, "/a/d/");
    world.make(5, "/a/c/");
    assert_eq!(world.answer(UPDATE, &at(1, 1)), 9);
    assert_eq!(world.take_answered(), [1, 2, 4]);
    assert_eq!(world.answer(UPDATE, &at(1, 2)), 3, "both that have waited go together");
    assert_eq!(world.take_answered(), [3, 5]);
}

#[test]
fn one_question_at_a_time_for_the_highest_position() {
    let mut world = World::new();
    for (token, position) in [(1, 10), (2, 20), (3, 30)] {
        world.make(token, "/a/c/");
        world.answer(UPDATE, &at(5, position));
    }
    let asked = |world: &World| {
        let questions = world.calls.iter().filter(|one| one.method == DURABLE && one.to == "c0");
        questions.map(|one| one.header[4..].to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(asked(&world), [at_bytes(5, 10)]);
    world.answer(DURABLE, &ok(Vec::new()));
    assert_eq!(asked(&world), [at_bytes(5, 30)]);
    world.answer(DURABLE, &ok(Vec::new()));
    world.later(Duration::from_millis(200));
    assert_eq!(world.acknowledged(), all(&[1, 2, 3]));
}

#[test]
fn a_batch_that_one_replica_does_not_take_goes_to_python_and_the_container_too_for_a_while() {
    for status in [Status::NotTaken, Status::NodeBusy, Status::DeviceFailed, Status::WireError] {
        let mut world = World::new();
        world.make_all(&[1, 2], "/a/c/");
        world.make(20, "/a/c/");
        world.make(3, "/a/c/");
        world.answer_from("c0", UPDATE, &at(1, 1));
        let late = world.calls.clone();
        world.answer_from("c1", UPDATE, &refused(status));
        assert_eq!(world.take_left(), [1, 2, 3]);
        world.answer_from("c1", UPDATE, &refused(status));
        assert_eq!(world.take_left(), [20], "it was under way, too, and is no further reason for a pause");
        for one in late {
            world.updates.event(one.token, &at(1, 1), world.now);
        }
        world.carry_out();
        world.calls.clear();
        world.make(4, "/a/c/");
        assert_eq!(world.take_left(), [4]);
        world.make(5, "/a/other/");
        assert_eq!(world.answer(UPDATE, &at(1, 1)), 3, "it concerns one container");
        assert_eq!(world.take_answered(), [5]);
        // Each refusal in a row doubles the pause; a success ends that.
        let mut pause = PAUSE;
        for token in 6..14 {
            world.later(pause - Duration::from_millis(1));
            world.make(token, "/a/c/");
            assert_eq!(world.take_left(), [token], "still paused");
            world.later(Duration::from_millis(2));
            world.make(token, "/a/c/");
            world.answer(UPDATE, &refused(status));
            assert_eq!(world.take_left(), [token]);
            pause = (pause * 2).min(PAUSE_AT_MOST);
        }
        world.later(PAUSE_AT_MOST);
        world.make(14, "/a/c/");
        world.answer(UPDATE, &at(1, 2));
        assert_eq!(world.take_answered(), [14]);
        let rows = world.rows();
        assert_eq!((rows.refused, rows.others, rows.taken), (3 + 8, 1 + 1 + 1 + 8, 2));
    }
}

#[test]
fn a_server_that_fails_gets_no_rows_until_it_has_answered_a_question() {
    for error in [Error::Deadline, Error::Lost(String::new()), Error::Unreachable(String::new()), Error::Overloaded] {
        let mut world = World::new();
        world.make(1, "/a/c/");
        world.make(10, "/a/c/");
        world.make(2, "/a/c/");
        world.answer_from("c1", UPDATE, &What::Failed(error.clone()));
        assert_eq!(world.take_left(), [1, 2]);
        assert_eq!(world.reported, [1]);
        world.answer_from("c1", UPDATE, &What::Failed(error));
        assert_eq!(world.take_left(), [10]);
        world.calls.clear();
        world.make(3, "/a/other/");
        assert_eq!(world.take_left(), [3]);
        assert!(world.calls.is_empty(), "it has just failed");
        world.later(Duration::from_secs(3));
        world.make(4, "/a/c/");
        world.make(5, "/a/c/");
        assert_eq!(world.take_left(), [4, 5]);
        world.answer_from("c1", DURABLE, &What::Failed(Error::Deadline));
        assert!(world.calls.is_empty(), "it was asked once");
        world.later(Duration::from_secs(3));
        world.make(6, "/a/c/");
        world.answer_from("c1", DURABLE, &refused(Status::NotTaken));
        assert_eq!(world.take_left(), [6]);
        world.make(7, "/a/c/");
        assert_eq!(world.answer(UPDATE, &at(2, 1)), 3);
        assert_eq!(world.take_answered(), [7]);
    }
}

#[test]
fn a_server_without_such_a_device_or_protocol_gets_no_rows() {
    for status in [Status::WireError, Status::DeviceFailed, Status::NodeError] {
        let mut world = World::unknown();
        world.make(1, "/a/c/");
        assert_eq!(world.answer(DURABLE, &refused(status)), 3);
        world.make(2, "/a/c/");
        assert_eq!(world.take_left(), [1, 2]);
        assert!(world.calls.is_empty());
    }
}

#[test]
fn what_a_killed_server_has_taken_stays_pending() {
    // It ends before it has said that rows are durable, or is started anew and knows nothing of them.
    for answer in [What::Failed(Error::Lost(String::new())), What::Failed(Error::Deadline), refused(Status::NotFound)] {
        let mut world = World::new();
        world.make_all(&[1, 2], "/a/c/");
        world.answer(UPDATE, &at(1, 10));
        world.make(3, "/a/c/");
        world.answer(UPDATE, &at(1, 11));
        assert_eq!(world.take_answered(), [1, 2, 3]);
        world.answer_from("c0", DURABLE, &ok(Vec::new()));
        world.answer_from("c2", DURABLE, &ok(Vec::new()));
        world.answer_from("c1", DURABLE, &answer);
        world.answer(DURABLE, &ok(Vec::new()));
        world.later(Duration::from_secs(1));
        assert!(world.acknowledged().is_empty());
        let rows = world.rows();
        assert_eq!((rows.taken, rows.left_pending, rows.not_durable), (3, 3, 0));
        assert!(world.calls.is_empty() && world.left.is_empty());
    }
}

#[test]
fn positions_of_two_incarnations_are_asked_for_apart() {
    let mut world = World::new();
    world.make(1, "/a/c/");
    world.answer(UPDATE, &at(1, 100));
    world.make(2, "/a/c/");
    world.answer(UPDATE, &at(2, 5));
    assert_eq!(world.answer(DURABLE, &refused(Status::NotFound)), 3);
    assert!(world.calls.iter().all(|one| one.header[4..] == at_bytes(2, 5)));
    assert_eq!(world.answer(DURABLE, &ok(Vec::new())), 3);
    world.later(Duration::from_millis(200));
    assert_eq!(world.acknowledged(), all(&[2]));
}

#[test]
fn nothing_is_sent_by_a_ring_with_other_replicas_than_the_devices_keep_updates_for() {
    for replicas in [1, 2] {
        let mut world = World::new();
        world.make(1, "/a/c/");
        // What is under way goes on; it is not found out when it is durable.
        world.route(replicas);
        world.answer(UPDATE, &at(1, 1));
        assert_eq!(world.take_answered(), [1]);
        world.make(2, "/a/c/");
        world.answer(DURABLE, &refused(Status::NotFound));
        world.make(3, "/a/c/");
        assert_eq!(world.take_left(), [2, 3]);
        world.route(3);
        world.make(4, "/a/c/");
        world.answer(DURABLE, &refused(Status::NotFound));
        world.make(5, "/a/c/");
        assert_eq!(world.answer(UPDATE, &at(1, 1)), 3);
        assert_eq!((world.take_left(), world.take_answered()), (vec![4], vec![5]));
    }
    let mut world = World::new();
    world.updates.route(None);
    world.make(1, "/a/c/");
    assert_eq!(world.take_left(), [1]);
}

#[test]
fn messages_and_acknowledgements_are_bounded() {
    let mut world = World::new();
    let tokens: Vec<u64> = (1..=2500).collect();
    world.make_all(&tokens, "/a/c/");
    for rows in [MAX_BATCH_ROWS, MAX_BATCH_ROWS, 500] {
        assert!(world.calls.iter().filter(|one| one.method == UPDATE).all(|one| one.body <= MAX_BYTES));
        world.answer(UPDATE, &at(1, rows as u64));
    }
    assert_eq!(world.take_answered(), tokens);
    while world.answer(DURABLE, &ok(Vec::new())) > 0 {}
    world.later(Duration::from_millis(200));
    let mut told: HashMap<String, Vec<u64>> = HashMap::new();
    loop {
        let found = world.acknowledged();
        if found.is_empty() {
            break;
        }
        for (device, versions) in found {
            assert!(versions.len() <= MAX_ACKNOWLEDGED);
            told.entry(device).or_default().extend(versions);
        }
    }
    assert!(told.values().all(|versions| *versions == tokens));
    assert_eq!(told.len(), 3);

    let big = |world: &World, token| {
        let row = Row { content_type: vec![b'x'; 20 << 10], ..Row::default() };
        Made { row, ..world.made(token, "/a/big/") }
    };
    let made = (0..5).map(|token| big(&world, token)).collect();
    world.updates.add(made, world.now);
    world.carry_out();
    let mut count = 0;
    while let Some(bytes) = world.calls.iter().find(|one| one.method == UPDATE).map(|one| one.body) {
        assert!(bytes <= MAX_BYTES);
        world.answer(UPDATE, &at(1, 1));
        count += 1;
    }
    assert_eq!(count, 3);
    assert_eq!(world.take_answered(), [0, 1, 2, 3, 4]);
}

#[test]
fn rows_that_would_be_too_many_to_wait_for_stay_pending() {
    let mut world = World::new();
    world.counts.not_durable.store(MAX_NOT_DURABLE - 1, Relaxed);
    world.make_all(&[1, 2], "/a/c/");
    world.answer(UPDATE, &at(1, 1));
    assert_eq!(world.take_answered(), [1, 2]);
    assert!(world.calls.is_empty());
    assert_eq!(world.rows().left_pending, 2);
}

#[test]
fn a_device_that_does_not_hear_of_it_delivers_again() {
    let acknowledge = Request::Acknowledge(Vec::new()).method();
    for answer in [What::Failed(Error::Deadline), refused(Status::NodeBusy)] {
        let mut world = World::new();
        world.make(1, "/a/c/");
        world.answer(UPDATE, &at(1, 1));
        world.answer(DURABLE, &ok(Vec::new()));
        world.updates.leave();
        world.carry_out();
        world.answer_from("o0", acknowledge, &answer);
        assert_eq!(world.answer(acknowledge, &ok(Vec::new())), 2, "at the end nobody waits for others");
        let rows = world.rows();
        assert_eq!((rows.acknowledged, rows.lost, rows.acknowledging), (2, 1, 0));
    }
}

#[test]
fn room_is_told_of_rows_that_all_replicas_have_taken() {
    let mut world = World::new();
    let some = |world: &World| vec![Made { parts: vec![10, 20], ..world.made(1, "/a/c/") }, world.made(2, "/a/c/")];
    for (answer, expected) in [(refused(Status::NodeBusy), 0), (at(1, 1), 1)] {
        world.now += PAUSE;
        world.updates.add(some(&world), world.now);
        world.carry_out();
        world.answer_from("c0", UPDATE, &at(1, 1));
        assert_eq!(world.listed.len(), 0);
        world.answer(UPDATE, &answer);
        assert_eq!(world.listed.len(), expected);
    }
    let listed = &world.listed[0];
    assert_eq!((listed.row.as_slice(), listed.timestamp, listed.slices.len()), (&b"1"[..], 1, 2));
}

/// Rows whose writes wait for these container replicas alone.
#[test]
fn answers_are_told_of_together_where_clients_wait_for_all_replicas() {
    let mut world = World::new();
    make_awaiting(&mut world, &[1, 2], 7);
    let [(batch, calls)] = mem::take(&mut world.expected)[..] else { panic!("one batch") };
    let tokens: Vec<u64> = world.calls.iter().map(|call| call.token).collect();
    assert_eq!((tokens.len(), calls), (3, 3));
    assert!(tokens.iter().all(|token| token & BATCH == batch));
    make_awaiting(&mut world, &[3], 5);
    assert_eq!((world.expected.len(), world.calls.len()), (0, 6));
}

fn make_awaiting(world: &mut World, tokens: &[u64], awaited: u32) {
    let made = tokens.iter().map(|token| Made { awaited, ..world.made(*token, "/a/c/") }).collect();
    world.updates.add(made, world.now);
    world.carry_out();
}

#[test]
fn clients_wait_for_the_replicas_of_their_region_alone() {
    let mut world = World::new();
    make_awaiting(&mut world, &[1, 2], 1);
    make_awaiting(&mut world, &[3], 1);
    make_awaiting(&mut world, &[4], 1);
    assert_eq!(world.calls.len(), 6, "a third batch waits");
    world.answer_from("c1", UPDATE, &at(8, 10));
    assert!(world.take_answered().is_empty());
    world.answer_from("c0", UPDATE, &at(7, 10));
    assert_eq!(world.take_answered(), [1, 2]);
    world.answer_from("c0", UPDATE, &at(7, 11));
    world.answer_from("c0", UPDATE, &at(7, 12));
    assert_eq!(world.take_answered(), [3, 4], "it does not wait for what others have not taken");
    let rows = world.rows();
    assert_eq!((rows.taken, rows.delivering, rows.not_durable), (4, 0, 4));
    for position in [11, 12, 13] {
        world.answer_from("c2", UPDATE, &at(9, position));
    }
    world.answer(UPDATE, &at(8, 12));
    while world.answer(DURABLE, &ok(Vec::new())) > 0 {}
    world.later(Duration::from_millis(200));
    assert_eq!(world.acknowledged(), all(&[1, 2, 3, 4]));
    assert_eq!((world.rows().not_durable, world.rows().left_pending), (0, 0));
}

#[test]
fn what_another_region_does_not_take_stays_pending() {
    for answer in [What::Failed(Error::Deadline), refused(Status::NodeBusy)] {
        let mut world = World::new();
        make_awaiting(&mut world, &[1, 2], 1);
        world.answer_from("c0", UPDATE, &at(1, 1));
        assert_eq!(world.take_answered(), [1, 2]);
        world.answer_from("c1", UPDATE, &answer);
        world.answer(UPDATE, &at(1, 1));
        let rows = world.rows();
        assert_eq!((rows.taken, rows.left_pending, rows.not_durable, rows.delivering), (2, 2, 0, 0));
        assert!(world.calls.is_empty() && world.take_left().is_empty());
        make_awaiting(&mut world, &[3], 1);
        assert_eq!(world.take_left(), [3], "Python delivers for a while");
    }
}

#[test]
fn without_a_replica_in_their_region_clients_wait_for_none() {
    let mut world = World::new();
    for token in 1..=4 {
        make_awaiting(&mut world, &[token], 0);
    }
    assert_eq!(world.take_answered(), [1, 2, 3, 4]);
    assert_eq!(world.answer(UPDATE, &at(1, 1)), 12);
    while world.answer(DURABLE, &ok(Vec::new())) > 0 {}
    world.later(Duration::from_millis(200));
    assert_eq!(world.acknowledged(), all(&[1, 2, 3, 4]));
}

#[test]
fn answered_rows_that_are_too_many_stay_pending_at_once() {
    let mut world = World::new();
    world.counts.not_durable.store(MAX_NOT_DURABLE - 1, Relaxed);
    make_awaiting(&mut world, &[1, 2], 1);
    world.answer_from("c0", UPDATE, &at(1, 1));
    assert_eq!(world.take_answered(), [1, 2]);
    world.answer(UPDATE, &at(1, 1));
    assert!(world.calls.is_empty());
    assert_eq!(world.rows().left_pending, 2);
}

const SERVERS: [&str; 3] = ["c0", "c1", "c2"];

/// Two tasks on their way to all servers.
fn with_tasks() -> World {
    let mut world = World::new();
    let task = |token| Made { is_task: true, holders: Vec::new(), ..world.made(token, "/.e/00/") };
    let made = vec![task(1), task(2)];
    world.updates.add(made, world.now);
    world.carry_out();
    world
}

#[test]
fn a_task_counts_once_most_replicas_have_made_it_durable() {
    let mut world = with_tasks();
    for server in SERVERS {
        world.answer_from(server, UPDATE, &at(1, 1));
    }
    assert!(world.queued.is_empty() && world.take_answered().is_empty(), "it is only taken");
    world.answer_from("c0", DURABLE, &ok(Vec::new()));
    assert!(world.queued.is_empty());
    world.answer_from("c1", DURABLE, &ok(Vec::new()));
    assert_eq!(world.queued, [1, 2]);
    world.answer_from("c2", DURABLE, &ok(Vec::new()));
    assert_eq!((world.queued.len(), world.take_answered(), world.take_left()), (2, Vec::new(), Vec::new()));
    assert_eq!(world.rows().not_durable, 0);
}

#[test]
fn a_task_that_may_not_be_durable_is_pythons() {
    for (method, good) in [(UPDATE, 0), (UPDATE, 2), (DURABLE, 0), (DURABLE, 1)] {
        let mut world = with_tasks();
        if method == DURABLE {
            SERVERS.iter().for_each(|server| drop(world.answer_from(server, UPDATE, &at(1, 1))));
        }
        for server in &SERVERS[..good] {
            world.answer_from(server, method, &if method == UPDATE { at(1, 1) } else { ok(Vec::new()) });
        }
        world.answer_from(SERVERS[good], method, &refused(Status::NotTaken));
        assert_eq!((world.take_left(), world.queued.len()), (vec![1, 2], 0), "{method} {good}");
        assert_eq!(world.rows().not_durable, 0);
    }
}
