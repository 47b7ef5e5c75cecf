//! How many round trips an operation takes: a number, not a time. Requests are held until all are there that need no other
//! answer; then these are let through together.

use super::small::{delete, first, get, post, write_small};
use super::*;
use swiftlet_fragments::deletion::Deleted;
use swiftlet_fragments::posting::Posted;

/// What passes on a request.
type Passing = Box<dyn FnOnce() + Send>;

/// Holds what comes to servers.
#[derive(Default)]
struct Gate(Mutex<Vec<(&'static str, Passing)>>);

impl Gate {
    fn hold(&self, what: &'static str, passing: Passing) {
        self.0.lock().unwrap().push((what, passing));
    }

    /// Let through what is held, once so much of it is there: the requests of a round trip.
    fn trip(&self, requests: usize) -> Vec<&'static str> {
        eventually("all requests of a trip are there", || self.0.lock().unwrap().len() >= requests);
        let mut held = std::mem::take(&mut *self.0.lock().unwrap());
        held.sort_by_key(|(what, _)| *what);
        held.into_iter().map(|(what, passing)| (what, passing()).0).collect()
    }
}

fn named(request: &Request) -> &'static str {
    match request {
        Request::Fragment(FragmentRequest::Incarnation) => "choose",
        Request::Fragment(FragmentRequest::Newest { start, stop, .. }) if start < stop => "newest, cells",
        Request::Fragment(FragmentRequest::Newest { .. }) => "newest",
        Request::Fragment(FragmentRequest::Cells { .. }) => "cells",
        Request::Fragment(FragmentRequest::About { asked, .. }) => match asked {
            Asked::Commit(_) => "commit",
            Asked::Settle(_) => "settle",
            _ => "about",
        },
        Request::Put { .. } => "copy",
        Request::Delete { .. } => "tombstone",
        _ => "other",
    }
}

/// A server behind a gate.
struct Gated(Arc<dyn Handler>, Arc<Gate>);

/// The fragment passes; that it is complete is held.
struct Fragment(Option<Box<dyn Receiver>>, Arc<Gate>);

impl Receiver for Fragment {
    fn chunk(&mut self, chunk: Chunk) {
        self.0.iter_mut().for_each(|inner| inner.chunk(chunk.clone()));
    }

    fn end(&mut self, footer: &[u8]) {
        let (Some(mut inner), footer) = (self.0.take(), footer.to_vec()) else { return };
        self.1.hold("fragment", Box::new(move || inner.end(&footer)));
    }

    fn failed(&mut self, why: &Error) {
        self.0.iter_mut().for_each(|inner| inner.failed(why));
    }
}

impl Handler for Gated {
    fn request(&self, incoming: Incoming, responder: Responder) -> Option<Box<dyn Receiver>> {
        if incoming.body.is_none() {
            let inner = self.0.request(incoming, responder)?;
            return Some(Box::new(Fragment(Some(inner), self.1.clone())));
        }
        let (server, what) = (self.0.clone(), named(&Request::decode(incoming.method, &incoming.header).unwrap().1));
        let passing: Passing = Box::new(move || drop(server.request(incoming, responder)));
        // Nobody waits for what is told at the end.
        if what == "settle" {
            passing()
        } else {
            self.1.hold(what, passing)
        }
        None
    }
}

/// The servers of a cluster behind a gate, as somebody in another region has them.
struct Far {
    cluster: Cluster,
    gate: Arc<Gate>,
    devices: Arc<Devices>,
    _nodes: Vec<Node>,
}

impl Far {
    fn new() -> Self {
        let cluster = Cluster::knowing();
        let (gate, mut nodes, mut targets) = (Arc::new(Gate::default()), Vec::new(), Vec::new());
        for machine in &cluster.machines {
            let name = format!("far-{}", unique());
            let server = Arc::clone(&machine.server) as Arc<dyn Handler>;
            let node = Node::start(config(&name), &[], Some(Arc::new(Gated(server, gate.clone())))).unwrap();
            node.listen(cluster.world.network.listen(&name).unwrap());
            targets.push(Some((cluster.world.node.peer(Address { name, tcp: None }), "d0".to_owned())));
            nodes.push(node);
        }
        Self { cluster, gate, devices: Devices::new(targets), _nodes: nodes }
    }

    fn places(&self, number: u64) -> Places {
        let (at, spares) = ((0..6).collect(), (6..8).collect());
        Places::new(self.devices.clone(), key(number), (scheme(), CELL), at, spares).unwrap()
    }

    /// Do something that takes these trips, of so many requests each; what it comes to, and what was asked in each trip.
    fn takes<T: Send>(&self, trips: &[usize], work: impl FnOnce() -> T + Send) -> (T, Vec<Vec<&'static str>>) {
        std::thread::scope(|scope| {
            let working = scope.spawn(work);
            let asked = trips.iter().map(|requests| self.gate.trip(*requests)).collect();
            (working.join().unwrap(), asked)
        })
    }
}

#[test]
fn fragments_take_a_trip_and_their_commit_one() {
    let far = Far::new();
    let (object, cluster) = (content(1, 9000), &far.cluster);
    let write = |number: u64| cluster.written(far.places(number), 10, &object, writing()).end().unwrap().verdict;
    let (verdict, asked) = far.takes(&[6, 6, 6], || write(1));
    assert_eq!(
        (verdict, asked),
        (Verdict::Acknowledged, vec![vec!["choose"; 6], vec!["fragment"; 6], vec!["commit"; 6]])
    );
    cluster.is_everywhere(1, 10, &[]);
    // Devices that have answered lately are not asked whether they are there.
    let (verdict, asked) = far.takes(&[6, 6], || write(2));
    assert_eq!((verdict, asked), (Verdict::Acknowledged, vec![vec!["fragment"; 6], vec!["commit"; 6]]));
}

#[test]
fn a_read_takes_one_trip() {
    let far = Far::new();
    let large = content(1, 9 * CELL);
    far.cluster.put(1, 10, &large);
    // The whole object, and bytes of one cell.
    for range in [0..u64::MAX, 1100..1200] {
        let expected = large[range.start as usize..(range.end as usize).min(large.len())].to_vec();
        let (got, asked) = far.takes(&[4], || read(far.places(1), &first(&[]), range.clone(), reading()));
        assert_eq!((got, asked), (Ok((10, expected)), vec![vec!["newest, cells"; 4]]));
    }
    let (got, asked) = far.takes(&[2], || read(far.places(1), &first(&[]), 0..0, reading()));
    assert_eq!((got, asked), (Ok((10, Vec::new())), vec![vec!["newest"; 2]]));
    // That there is nothing is said when everybody was asked, spares about all places.
    let (got, asked) = far.takes(&[4, 6 + 2 * 6], || read(far.places(2), &first(&[]), 0..u64::MAX, reading()));
    assert_eq!((got, asked[1].len()), (Err(ReadEnd::NotFound(None)), 18));
}

#[test]
fn a_small_object_takes_one_trip_and_its_bytes_come_once() {
    let far = Far::new();
    let object = content(1, 100);
    let (end, asked) = far.takes(&[3], || write_small(far.places(1), 10, &object).0);
    assert_eq!((end.verdict, asked), (Verdict::Acknowledged, vec![vec!["copy"; 3]]));
    let (got, asked) = far.takes(&[2], || get(far.places(1), &first(&[])));
    assert_eq!((got, asked), (Ok((10, object)), vec![vec!["newest", "newest, cells"]]));
    let (end, asked) = far.takes(&[3], || post(far.places(1), 15).0);
    assert_eq!((end, asked[0].len()), (Posted::Done, 3));
    let (end, asked) = far.takes(&[6], || delete(far.places(1), 20));
    assert_eq!((end, asked), (Deleted::Done { existed: true }, vec![vec!["tombstone"; 6]]));
}
