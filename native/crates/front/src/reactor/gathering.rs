//! Coded objects: the places of their fragments are asked, and what is put together of them is passed on.
//!
//! What is asked, of whom, and what replaces what is missing, late or wrong is decided by `swiftlet_node::coded`, for
//! Python as well: it goes on in the transport's threads, and puts what it has checked behind the answers of devices.
//! The thread says how far the client has come, and when time has passed.
//!
//! Fault model: that of `swiftlet_node::coded`. Whatever can't be answered before the first byte is handed over; what
//! can't be put together after it ends the connection.

use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use swiftlet_node::coded::{HEDGE, ReadEnd, ReadOptions, Reading};
use swiftlet_node::message::ToRead;
use swiftlet_store::model::Key;
use swiftlet_transport::{Chunk, Sink, What};

use super::flows::UNAVAILABLE;
use super::reserved::{AHEAD_BYTES, share_of, share_of_coded};
use super::{REPLICA_SHIFT, Reactor, Then, number};
use crate::answer::{self, Given};
use crate::connection::{Gathering, Sending, State, Writing};
use crate::head::{self, Asked, Method};
use crate::reading::{Lacks, Told, Weighed};
use crate::routes::Policy;
use crate::source::{Assembling, FromPlaces, STILL, Source};

/// What is known of a request before anybody is asked.
pub(super) struct Begun {
    method: Method,
    target: Range<usize>,
    bytes: usize,
    close: bool,
    /// The bytes to read first.
    range: (u64, u64),
}

impl Begun {
    pub(super) fn of(asked: &Asked<'_>) -> Self {
        let start = asked.method.name().len() + 1;
        let range = if asked.method == Method::Head { (0, 0) } else { asked.wanted.to_gather() };
        let (target, close) = (start..start + asked.target.len(), !asked.keep_alive);
        Self { method: asked.method, target, bytes: asked.bytes, close, range }
    }
}

impl Reactor {
    /// Ask the places of an object.
    pub(super) fn gather(&mut self, index: usize, begun: Begun, (policy, key): (&Policy, Key), now: Instant) -> Then {
        let Begun { method, target, bytes, close, range } = begun;
        let id = self.random.id();
        let Some((range, reading)) = self.assemble(index, (policy, key), range, &id) else { return Then::HandOver };
        let Some(connection) = &mut self.slots[index].connection else { return Then::Wait };
        let (is_second, weighed) = (false, None);
        let gathering =
            Gathering { method, target, bytes, close, id, begun: now, key, range, reading, is_second, weighed };
        connection.active = now;
        connection.state = State::Gathering(Box::new(gathering));
        self.look_later(index, now);
        Then::Wait
    }

    /// Begin to read these bytes, or the first of them where there is no room for more.
    fn assemble(
        &mut self,
        index: usize,
        (policy, key): (&Policy, Key),
        range: (u64, u64),
        id: &str,
    ) -> Option<((u64, u64), Assembling)> {
        let number = number(index, self.slots[index].generation);
        let coding = policy.coding()?;
        let settings = &self.shared.settings;
        let ((start, stop), places, share) =
            self.reserved.to_gather(policy.places(key)?, range, settings.large_bytes)?;
        let (first, sound) = places.in_order(|device| coding.avoids(device), self.random.number());
        let attempt = self.slots[index].connection.as_mut()?.next_attempt();
        let options = ReadOptions {
            timeout: settings.answer_timeout,
            hedge: Some(HEDGE),
            sound,
            ahead_bytes: AHEAD_BYTES,
            small: coding.has_small(),
            trace: id.to_owned(),
        };
        let sink = Arc::clone(&self.devices) as Arc<dyn Sink>;
        let token = number | u64::from(attempt) << REPLICA_SHIFT;
        let reading = Reading::start(places, &first, start..stop, options, (sink, token));
        self.reserved.coded += share;
        Some(((start, stop), Assembling::new(reading, attempt, share, key.policy, &self.shared)))
    }

    /// Do without what a read has reserved.
    pub(super) fn unreserve(&mut self, reading: &Assembling) {
        self.reserved.coded -= reading.reserved;
    }

    /// Handle what has come of a read whose answer has not begun.
    pub(super) fn gathered(&mut self, index: usize, attempt: u8, what: What) {
        let Some(connection) = &mut self.slots[index].connection else { return };
        let State::Gathering(gathering) = &mut connection.state else { return };
        if gathering.reading.id != attempt {
            return; // It was dropped.
        }
        match what {
            What::Sent(_) => {
                if gathering.weighed.is_none() {
                    self.described(index);
                }
                self.touch(index);
            }
            What::Chunk(chunk) => match &mut gathering.weighed {
                Some(weighed) if weighed.lacks() == Lacks::Flow => self.begin_passing(index, chunk),
                Some(weighed) => {
                    if weighed.take(chunk) {
                        self.touch(index);
                    } else {
                        self.hand_over(index);
                    }
                }
                None => self.hand_over(index),
            },
            What::End(_) => {
                let is_whole = gathering.reading.reading().end() == Some(ReadEnd::Whole);
                let told = gathering.weighed.take().filter(|_| is_whole).and_then(|weighed| weighed.gathered());
                match told {
                    Some(told) => self.tell(index, told),
                    // Nothing is there, or too little, or too few have answered.
                    None => self.hand_over(index),
                }
            }
            _ => {}
        }
    }

    /// Weigh what the object is, if that is known by now.
    fn described(&mut self, index: usize) {
        let now = Instant::now();
        let now_s = self.clock.now_s();
        let Some(connection) = &mut self.slots[index].connection else { return };
        let State::Gathering(gathering) = &mut connection.state else { return };
        let Some(info) = gathering.reading.reading().description() else { return };
        let (start, stop) = gathering.range;
        let read = ToRead { start, stop, whole: 0 };
        let weigh = |asked: Asked<'_>| Weighed::described_as(asked.method, &asked.wanted, read, (info, None), now_s);
        let Some(weighed) = head::parse(&connection.read).and_then(weigh) else { return self.hand_over(index) };
        match weighed.lacks_then() {
            Lacks::Nothing => self.tell(index, weighed.described()),
            Lacks::Others(start, stop) => self.gather_others(index, (start, stop), now),
            Lacks::Bytes | Lacks::Flow => {
                let count = weighed.sent_bytes();
                gathering.weighed = Some(Box::new(weighed));
                self.reserve_less(index, count);
            }
        }
    }

    /// Keep what a read of so many bytes reserves: it was not known before how many the object has.
    fn reserve_less(&mut self, index: usize, count: u64) {
        let Some(connection) = &mut self.slots[index].connection else { return };
        let State::Gathering(gathering) = &mut connection.state else { return };
        let all = gathering.reading.reading().read_bytes(count);
        let reserved = &mut gathering.reading.reserved;
        let share = share_of_coded(count, all).min(*reserved);
        self.reserved.coded -= mem::replace(reserved, share) - share;
    }

    /// Read other bytes than before, which the description of the object has shown to be those that the client is to get.
    fn gather_others(&mut self, index: usize, range: (u64, u64), now: Instant) {
        let Some(connection) = &mut self.slots[index].connection else { return };
        let State::Gathering(gathering) = &mut connection.state else { return };
        let (key, id) = (gathering.key, gathering.id.clone());
        let before = mem::take(&mut gathering.reading.reserved);
        let was_second = mem::replace(&mut gathering.is_second, true);
        self.reserved.coded -= before;
        let policy = self.shared.policy(key.policy).filter(|_| !was_second);
        let next = policy.and_then(|policy| self.assemble(index, (&policy, key), range, &id));
        let Some(connection) = &mut self.slots[index].connection else { return };
        let State::Gathering(gathering) = &mut connection.state else { return };
        match next {
            Some((range, reading)) => {
                (gathering.range, gathering.reading) = (range, reading);
                connection.active = now;
                self.look_later(index, now);
            }
            None => self.hand_over(index),
        }
    }

    /// Answer with what is all here.
    fn tell(&mut self, index: usize, told: Told) {
        let now = Instant::now();
        self.refresh_date();
        let Told { info, outcome, body } = told;
        let body_bytes = body.iter().map(|part| part.len() as u64).sum();
        let reserved = share_of(body_bytes);
        if !self.reserved.has_room(body_bytes, 0, self.shared.settings.large_bytes) {
            return self.hand_over(index);
        }
        let Some(connection) = &mut self.slots[index].connection else { return };
        let State::Gathering(gathering) = mem::replace(&mut connection.state, State::Idle) else { return };
        let close = gathering.close || (self.leaving && connection.has_only(gathering.bytes));
        let head = answer::head(&info, outcome, &Given { id: &gathering.id, date: &self.date.1, close });
        let path = connection.read[gathering.target.clone()].to_vec();
        let Gathering { method, id, begun, bytes, reading, .. } = *gathering;
        let status = outcome.status();
        let (left, sent, received) = (Vec::new(), 0, 0);
        let writing = Writing { left, sent, reserved, method, path, status, received, body_bytes, close, id, begun };
        self.unreserve(&reading);
        self.reserved.all += reserved;
        drop(reading);
        self.begin_answer(index, bytes, writing, &head, body, now);
    }

    /// Begin the answer of which the first bytes have come.
    fn begin_passing(&mut self, index: usize, first: Chunk) {
        let now = Instant::now();
        self.refresh_date();
        let Some(connection) = &mut self.slots[index].connection else { return };
        let State::Gathering(gathering) = &mut connection.state else { return };
        let Some(weighed) = gathering.weighed.take() else { return self.hand_over(index) };
        let State::Gathering(gathering) = mem::replace(&mut connection.state, State::Idle) else { return };
        let Gathering { method, target, bytes, close, id, begun, reading, .. } = *gathering;
        let count = weighed.sent_bytes();
        let (info, outcome) = weighed.parts();
        let close = close || (self.leaving && connection.has_only(bytes));
        let head = answer::head(&info, outcome, &Given { id: &id, date: &self.date.1, close });
        let path = connection.read[target].to_vec();
        connection.answers(bytes, now);
        let mut from = FromPlaces::new(reading, count);
        let is_good = from.take(first);
        let (source, status) = (Source::Places(Box::new(from)), outcome.status());
        let (head_sent, waits, seen_sent) = (0, None, 0);
        let sending = Sending { head, head_sent, source, waits, seen_sent, method, path, status, close, id, begun };
        connection.state = State::Sending(Box::new(sending));
        if is_good {
            self.touch(index);
        } else {
            self.cut(index, UNAVAILABLE);
        }
    }

    /// Handle what has come of a read whose answer has begun.
    pub(super) fn assembled(&mut self, index: usize, attempt: u8, what: What) {
        let Some(connection) = &mut self.slots[index].connection else { return };
        let State::Sending(sending) = &mut connection.state else { return };
        let Source::Places(from) = &mut sending.source else { return };
        if from.reading.id != attempt {
            return; // It was dropped.
        }
        let is_good = match what {
            What::Chunk(chunk) => from.take(chunk),
            What::End(_) => from.ended(),
            _ => true,
        };
        if !is_good {
            return self.cut(index, UNAVAILABLE);
        }
        if !from.is_empty() && sending.waits.take().is_some() {
            connection.active = Instant::now();
        }
        self.touch(index);
    }

    /// Go on with a connection once all events were handled: cells come one by one.
    fn touch(&mut self, index: usize) {
        let number = number(index, self.slots[index].generation);
        if self.touched.last() != Some(&number) && !self.touched.contains(&number) {
            self.touched.push(number);
        }
    }

    /// Go on with the connections of which something has come.
    pub(super) fn go_on_with_touched(&mut self) {
        for number in mem::take(&mut self.touched) {
            let Some(index) = self.index_of(number) else { continue };
            if matches!(self.slots[index].connection.as_ref().map(|one| &one.state), Some(State::Gathering(_))) {
                self.look_later(index, Instant::now());
            } else {
                self.go_on(index);
            }
        }
    }

    /// Look at a read all of whose events were handled, and again when something may be late.
    pub(super) fn look_later(&mut self, index: usize, now: Instant) {
        let number = number(index, self.slots[index].generation);
        let Some(reading) = self.slots[index].connection.as_mut().and_then(|one| assembling(&mut one.state)) else {
            return;
        };
        let when = now + reading.reading().turn();
        let token = number | u64::from(reading.id) << REPLICA_SHIFT;
        self.turns.at(when, token, &mut reading.due);
    }

    /// Look at the reads of which something may be late now.
    pub(super) fn look_again(&mut self, now: Instant) {
        while let Some((when, token)) = self.turns.take(now) {
            let Some(index) = self.index_of(token) else { continue };
            let attempt = (token >> REPLICA_SHIFT & 0xff) as u8;
            let Some(reading) = self.slots[index].connection.as_mut().and_then(|one| assembling(&mut one.state)) else {
                continue;
            };
            if reading.id == attempt && reading.due == Some(when) {
                reading.due = None;
                self.look_later(index, now);
            }
        }
    }

    /// Whether what is to be sent may have changed, as this process has stood still since it was checked.
    pub(super) fn may_have_changed(&self, source: &Source, now: Instant) -> bool {
        now.saturating_duration_since(self.ran) > STILL && source.may_have_changed()
    }

    /// End the connections whose bytes may have changed, as this process has stood still.
    pub(super) fn stood_still(&mut self) {
        let has_changed = |slot: &super::Slot| match slot.connection.as_ref().map(|one| &one.state) {
            Some(State::Sending(sending)) => sending.source.may_have_changed(),
            // It is not certain of what waits to be put together either; others can do it anew.
            Some(State::Gathering(_)) => true,
            _ => false,
        };
        let found: Vec<usize> =
            self.slots.iter().enumerate().filter(|(_, slot)| has_changed(slot)).map(|(index, _)| index).collect();
        for index in found {
            if matches!(self.slots[index].connection.as_ref().map(|one| &one.state), Some(State::Gathering(_))) {
                self.hand_over(index);
            } else {
                self.cut(index, UNAVAILABLE);
            }
        }
    }
}

/// The read of a coded object of a connection in this state, unless it is over.
fn assembling(state: &mut State) -> Option<&mut Assembling> {
    match state {
        State::Gathering(gathering) => Some(&mut gathering.reading),
        State::Sending(sending) => match &mut sending.source {
            Source::Places(from) if !from.is_over() => Some(&mut from.reading),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use swiftlet_erasure::Scheme;
    use swiftlet_hash::xxh3_64;
    use swiftlet_node::coded::{Devices, Places};
    use swiftlet_node::message::Request;
    use swiftlet_store::model::Info;
    use swiftlet_transport::{Address, Config, Node, Pool};

    use super::super::Slot;
    use super::super::calls::call;
    use super::super::reserved::FLOW_BYTES;
    use super::*;
    use crate::changes::Changes;
    use crate::connection::Connection;
    use crate::flow::Flow;
    use crate::routes::Device;
    use crate::shared::{Settings, Shared, lock};
    use crate::source::FromDevice;

    fn reactor() -> Reactor {
        let shared = Shared::new(Settings::patient(8 << 20), Arc::new(Changes::new(1).expect("memory")), None)
            .expect("descriptors");
        Reactor::new(Arc::new(shared)).expect("descriptors")
    }

    /// A read of an object that no device has.
    fn read(reactor: &Reactor) -> Assembling {
        let key = Key { policy: 0, partition: 0, digest: [0; 16] };
        let how = (Scheme::new(4, 2).expect("a scheme"), 1024);
        let places = Places::new(Devices::new(Vec::new()), key, how, (0..6).collect(), Vec::new()).expect("places");
        let options = ReadOptions {
            timeout: Duration::from_secs(60),
            hedge: None,
            sound: 0,
            ahead_bytes: 0,
            small: false,
            trace: String::new(),
        };
        let sink = Arc::clone(&reactor.devices) as Arc<dyn Sink>;
        let reading = Reading::start(places, &[0, 1, 2], 0..10, options, (sink, 7));
        Assembling::new(reading, 40, 0, 0, &reactor.shared)
    }

    /// An object of which this is the next part of ten bytes, and no device has the rest.
    fn of_places(reactor: &Reactor, chunk: Chunk) -> Source {
        let mut from = FromPlaces::new(read(reactor), 10);
        assert!(from.take(chunk) && !from.ended());
        Source::Places(Box::new(from))
    }

    /// An object of ten bytes of which one device has sent this; the device that nobody reaches.
    fn of_device(reactor: &mut Reactor, chunk: Chunk) -> (Source, Node) {
        reactor.reserved.all += FLOW_BYTES;
        reactor.reserved.flows += FLOW_BYTES;
        let pool = Pool::new(1 << 20).expect("memory");
        let node = Node::start(Config::new("me", "here", Vec::new(), pool), &[], None).expect("threads");
        let device = Arc::new(Device::new(node.peer(Address { name: "o0".into(), tcp: None }), "o0"));
        let (key, now) = (Key { policy: 0, partition: 0, digest: [0; 16] }, Instant::now());
        let request = Request::Get { key, start: 0, stop: 10, whole: 0, proved: true };
        let attempt = call(&reactor.shared, &reactor.devices, device, &request, (0, 40), "", now).expect("a peer");
        let info = Info {
            name: b"/a/c/o".to_vec(),
            timestamp: 7,
            size: 10,
            etag: Vec::new(),
            xxh3: xxh3_64(b"abc0123456"),
            content_type: Vec::new(),
            metadata: Vec::new(),
            sysmeta: Vec::new(),
            meta_timestamp: 0,
            content_type_timestamp: 0,
            delete_at: 0,
        };
        let mut flow = Flow::new(&info, (0, 10), Some(info.xxh3));
        assert!(flow.take(chunk) && !flow.is_checked());
        (Source::Device(Box::new(FromDevice::new(flow, key, attempt))), node)
    }

    /// A connection on which a longer answer is sent; the client's end.
    fn sending(reactor: &mut Reactor, source: Source) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("somebody listens");
        let (socket, _) = listener.accept().expect("a client");
        let now = Instant::now();
        let mut connection = Connection::new(socket.into(), 0, None, now).expect("a connected socket");
        connection.state = State::Sending(Box::new(Sending {
            head: b"head ".to_vec(),
            head_sent: 0,
            source,
            waits: None,
            seen_sent: 0,
            method: Method::Get,
            path: Vec::new(),
            status: 200,
            close: false,
            id: String::new(),
            begun: now,
        }));
        reactor.slots.push(Slot { generation: 0, connection: Some(connection) });
        client
    }

    fn source(reactor: &mut Reactor) -> &mut Source {
        match reactor.slots[0].connection.as_mut().map(|one| &mut one.state) {
            Some(State::Sending(sending)) => &mut sending.source,
            _ => panic!("it is being sent"),
        }
    }

    fn statuses(reactor: &Reactor) -> Vec<u16> {
        lock(&reactor.shared.served).iter().map(|served| served.status).collect()
    }

    fn lent(pool: &Pool) -> Chunk {
        let mut buffer = pool.chunk(3).expect("there is room");
        buffer.as_mut()[..3].copy_from_slice(b"abc");
        buffer.freeze(3)
    }

    #[test]
    fn what_was_checked_before_a_standstill_is_not_sent_from_memory_that_may_have_changed() {
        let pool = Pool::new(16 << 20).expect("memory");
        let cases = (0..8).map(|number| (number & 1 > 0, number & 2 > 0, number & 4 > 0));
        for (before_turn, is_lent, is_coded) in cases {
            let mut reactor = reactor();
            let chunk = if is_lent { lent(&pool) } else { Chunk::from(b"abc".to_vec()) };
            let (mut client, _node) = if is_coded {
                let source = of_places(&reactor, chunk);
                (sending(&mut reactor, source), None)
            } else {
                let (source, node) = of_device(&mut reactor, chunk);
                (sending(&mut reactor, source), Some(node))
            };
            if before_turn {
                reactor.stood_still();
            } else {
                // In the middle of a turn.
                reactor.ran = Instant::now().checked_sub(STILL * 2).expect("a machine that runs for a while");
            }
            reactor.go_on(0);
            assert_eq!(statuses(&reactor), if is_lent { vec![503] } else { vec![] }, "{before_turn} {is_coded}");
            drop(reactor);
            let mut found = Vec::new();
            client.read_to_end(&mut found).expect("an end");
            assert_eq!(found, if is_lent { &b""[..] } else { b"head abc" }, "{before_turn} {is_coded}");
        }
    }

    #[test]
    fn what_nobody_takes_leaves_the_memory_of_devices() {
        let pool = Pool::new(16 << 20).expect("memory");
        let mut reactor = reactor();
        let from = of_places(&reactor, lent(&pool));
        let _client = sending(&mut reactor, from);
        assert!(source(&mut reactor).may_have_changed());
        reactor.check_flows(Instant::now());
        assert!(!source(&mut reactor).may_have_changed() && pool.stat().used_bytes == 0);
    }

    #[test]
    fn what_nobody_takes_leaves_the_memory_of_a_device_that_sends_no_more() {
        let pool = Pool::new(16 << 20).expect("memory");
        for is_lost in [false, true] {
            let mut reactor = reactor();
            let (from, _node) = of_device(&mut reactor, lent(&pool));
            let _client = sending(&mut reactor, from);
            reactor.check_flows(Instant::now());
            let Source::Device(from) = source(&mut reactor) else { panic!("it is of a device") };
            assert!(from.flow.queue.is_in_any_pool(), "the device is to wait for the client");
            if is_lost {
                from.lost(true, Instant::now());
            } else {
                assert!(from.flow.take(Chunk::from(b"0123456".to_vec())) && from.flow.ended(&[]));
                reactor.check_flows(Instant::now());
            }
            assert!(!source(&mut reactor).may_have_changed() && pool.stat().used_bytes == 0, "{is_lost}");
        }
    }
}
