//! How many messages bring a fragment, and in which memory cells lie on their way: numbers, not times.

use super::*;
use swiftlet_transport::SameNodeAcceptor;

/// Bytes of a cell.
const WIDE: usize = 64 << 10;
const STRIPE: usize = 4 * WIDE;

fn same_node() -> Cluster {
    let mut cluster = Cluster::new(Carrier::SameNode);
    cluster.cell = WIDE;
    cluster
}

impl Cluster {
    /// Bytes that were lent to servers, and those that sockets have carried to them.
    fn carried(&self) -> (u64, u64) {
        let counters = self.world.node.report().into_iter().map(|peer| peer.counters);
        counters.fold((0, 0), |(lent, sent), of| (lent + of.lent_bytes, sent + of.sent_bytes))
    }

    /// Bytes of the servers' memory that are in use.
    fn in_use(&self) -> usize {
        self.machines.iter().map(|machine| machine.node.as_ref().unwrap().pool().stat().used_bytes).sum()
    }

    /// Put a device on this machine that keeps what it is sent in the place of another one.
    fn hold(&mut self, number: usize) -> (Node, Arc<Odd>) {
        let name = format!("odd-{}", unique());
        let odd = Arc::new(Odd { incarnation: 77, lies: None, kept: Mutex::default(), silent: Mutex::default() });
        let node = Node::start(config(&name), &[], Some(Arc::new(Handling(odd.clone())))).unwrap();
        node.listen(Box::new(SameNodeAcceptor::bind(self.world.sockets(), &name).unwrap()));
        self.targets[number] = Some((self.world.node.peer(Address { name, tcp: None }), "d0".to_owned()));
        (node, odd)
    }
}

fn sizes(odd: &Odd) -> Vec<usize> {
    odd.kept.lock().unwrap().iter().map(|chunk| chunk.len() / WIDE).collect()
}

/// A write of so many stripes, none of which has been given.
fn begin(cluster: &Cluster, stripes: usize) -> (Writing, Arc<Completions>) {
    let events = Completions::new().unwrap();
    let (places, size) = (cluster.places(1, 0, &[]), (stripes * STRIPE) as u64);
    let writing = Writing::start(places, (meta(10), 1), Some(size), writing(), (events.clone(), 7)).unwrap();
    (writing, events)
}

/// Give a piece as soon as there is room.
fn push(writing: &Writing, events: &Completions, piece: &[u8]) {
    while let Room::Later(wait) = writing.turn() {
        drop(events.wait(wait));
    }
    writing.push(piece).unwrap();
}

#[test]
fn fragments_are_lent_to_servers_of_the_same_machine() {
    let cluster = same_node();
    let object = content(1, 20 * STRIPE + 1000);
    cluster.put(1, 10, &object);
    let (lent, sent) = cluster.carried();
    assert_eq!(lent, 6 * (20 * WIDE as u64 + 250), "all of each fragment");
    assert!(sent < WIDE as u64, "{sent} bytes went through sockets");
    assert!(read(cluster.places(1, 0, &[1, 2]), &[0], 0..u64::MAX, reading()) == Ok((10, object)));
}

#[test]
fn a_device_that_is_behind_gets_several_cells_with_a_message() {
    let mut cluster = same_node();
    let (_node, odd) = cluster.hold(4);
    let object = content(1, 15 * STRIPE);
    let (writing, events) = begin(&cluster, 15);
    object.chunks(STRIPE).for_each(|stripe| push(&writing, &events, stripe));
    while let Room::Later(wait) = writing.turn() {
        drop(events.wait(wait));
    }
    writing.finish(b"etag").unwrap();
    eventually("it has all", || sizes(&odd).iter().sum::<usize>() == 15);
    assert_eq!(sizes(&odd), [1, 4, 4, 4, 2]);
    let all = odd.kept.lock().unwrap().iter().all(Chunk::is_in_any_pool);
    assert!(all, "no cell lies in memory that a socket would have to carry it to");
}

#[test]
fn cells_do_not_wait_for_more_of_a_slow_body() {
    let mut cluster = same_node();
    let (_node, odd) = cluster.hold(4);
    let (writing, events) = begin(&cluster, 3);
    push(&writing, &events, &content(1, STRIPE));
    eventually("the first cell is there", || sizes(&odd) == [1]);
    push(&writing, &events, &content(2, STRIPE));
    // It is sent when the one before it is taken, without another piece of the body.
    odd.kept.lock().unwrap().clear();
    eventually("the second cell is there", || sizes(&odd) == [1]);
    odd.kept.lock().unwrap().clear();
}

#[test]
fn cells_are_passed_on_where_they_lie_and_restored_ones_where_they_were_made() {
    let cluster = same_node();
    let object = content(1, 6 * STRIPE);
    cluster.put(1, 10, &object);
    for (away, is_lent) in [(vec![], true), (vec![1], false)] {
        let events = Completions::new().unwrap();
        let options = ReadOptions { ahead_bytes: u64::MAX, ..reading() };
        let range = 1000..object.len() as u64;
        let reading = Reading::start(cluster.places(1, 0, &away), &[0], range, options, (events.clone(), 7));
        let mut chunks: Vec<Chunk> = Vec::new();
        while reading.end().is_none() || chunks.iter().map(|chunk| chunk.len()).sum::<usize>() + 1000 < object.len() {
            chunks.extend(events.wait(LONG).into_iter().filter_map(|event| match event.what {
                What::Chunk(chunk) => Some(chunk),
                _ => None,
            }));
        }
        assert_eq!(chunks.len(), 24, "one for each cell");
        let lent: Vec<bool> = chunks.iter().map(Chunk::is_in_any_pool).collect();
        let expected: Vec<bool> = (0..24).map(|cell| is_lent || cell % 4 != 1).collect();
        assert_eq!(lent, expected, "without {away:?}");
        let got: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.to_vec()).collect();
        assert!(got == object[1000..], "without {away:?}");
    }
}

#[test]
fn a_reader_that_takes_nothing_does_not_keep_the_servers_memory() {
    let cluster = same_node();
    let object = content(1, 40 * STRIPE);
    cluster.put(1, 10, &object);
    eventually("nothing is in use before", || cluster.in_use() == 0);
    let events = Completions::new().unwrap();
    let reading = Reading::start(cluster.places(1, 0, &[]), &[0], 0..u64::MAX, reading(), (events.clone(), 7));
    let mut bytes = Vec::new();
    let mut take = |reading: &Reading| {
        for event in events.wait(SOON) {
            if let What::Chunk(chunk) = event.what {
                bytes.extend_from_slice(&chunk);
                reading.taken(0);
            }
        }
        bytes.len()
    };
    eventually("a stripe is passed on", || take(&reading) >= STRIPE);
    eventually("others wait in the servers' memory", || cluster.in_use() >= STRIPE);
    eventually("it is given back", || {
        reading.copy();
        cluster.in_use() == 0
    });
    while reading.end().is_none() || take(&reading) < object.len() {
        reading.taken(STRIPE as u64);
        take(&reading);
    }
    assert!(bytes == object);
}
