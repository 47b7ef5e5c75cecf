//! Container updates of erasure-coded writes: they are pending at the devices that owe them, as durable as the fragments,
//! and are listed once it is known what became of the write.

use super::*;

/// Places 0 to 4, a quorum of six, owe the updates of three container replicas.
const ROWS: [u32; 5] = [1, 2, 4, 1, 2];

fn with_rows() -> WriteOptions {
    WriteOptions { rows: ROWS.to_vec(), ..writing() }
}

impl Cluster {
    /// The updates that are due: the device, the timestamp, and the container replicas.
    fn due(&self) -> Vec<(usize, u64, u32)> {
        let of = |(number, machine): (usize, &Machine)| {
            let due = machine.stores[0].pending_updates(100, Duration::ZERO);
            due.into_iter().map(move |update| (number, update.timestamp, update.row)).collect::<Vec<_>>()
        };
        self.machines.iter().enumerate().flat_map(of).collect()
    }

    fn pending(&self) -> usize {
        self.machines.iter().map(|machine| machine.stores[0].pending_count()).sum()
    }
}

#[test]
fn updates_are_pending_where_they_are_owed() {
    let cluster = Cluster::new(Carrier::Tcp);
    for (number, away) in (0..).zip(patterns()) {
        let object = content(number, 9000);
        let written = cluster.written(cluster.places(number, 2, &away), 10, &object, with_rows());
        let (end, owed) = (written.end().unwrap(), written.owed());
        assert_eq!(end.verdict, Verdict::Acknowledged, "{end:?}");
        cluster.is_everywhere(number, 10, &away);
        let mut spares = 6..8;
        let devices: Vec<usize> =
            (0..6).map(|place| if away.contains(&place) { spares.next().unwrap() } else { place }).collect();
        let mut expected: Vec<(usize, u64, u32)> = (0..5).map(|place| (devices[place], 10, ROWS[place])).collect();
        expected.sort_unstable();
        assert_eq!(cluster.due(), expected, "{away:?}");
        // Whoever writes knows of those that were prepared when it was told the outcome, and acknowledges them.
        assert!(owed.len() >= 4, "{owed:?}");
        for (place, device) in devices.iter().enumerate().take(5) {
            let store = &cluster.machines[*device].stores[0];
            let key = Key { partition: 32 * key(number).partition + place as u32, ..key(number) };
            let known = owed.iter().filter(|owed| owed.key == key);
            known.for_each(|owed| assert_eq!((owed.device as usize, owed.row), (*device, ROWS[place])));
            let info = store.stat(&key).unwrap();
            assert_eq!((info.timestamp, info.size, &info.etag[..]), (10, 9000, &b"etag"[..]));
            store.acknowledge(&[(key, 10)]);
        }
        assert_eq!(cluster.pending(), 0);
    }
}

#[test]
fn the_update_of_a_write_that_failed_is_that_of_the_version_before() {
    let mut cluster = Cluster::new(Carrier::Simulated);
    cluster.put(1, 10, &content(1, 9000));
    // They say that they are there, and take no fragment.
    for place in [2, 5] {
        let (machine, mut target) = cluster.world.machine(1, Limits { buffer_bytes: 0, ..Limits::default() });
        cluster.machines[place] = machine;
        cluster.targets[place] = target.pop();
    }
    let end = cluster.write(cluster.places(1, 0, &[]), 11, &content(2, 9000), with_rows());
    assert_eq!(end.verdict, Verdict::Failed, "{end:?}");
    // All that have taken it answer, and hear then that it is given up.
    eventually("all know it", || cluster.undecided() == 0);
    for (place, timestamp, row) in cluster.due() {
        assert_eq!((timestamp, row), (11, ROWS[place]));
        let key = Key { partition: 32 * key(1).partition + place as u32, ..key(1) };
        assert_eq!(cluster.machines[place].stores[0].stat(&key).map(|info| info.timestamp), Ok(10));
    }
}
