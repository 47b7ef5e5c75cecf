//! Packs of which little is referred to, over real connections: what is left of them goes into new packs, by packers that
//! are killed after each of their messages, beside others, and beside writes, deletions and POSTs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst as Order};

use super::packs::{HOLDERS, PACK, body, small};
use super::packs_made::{Work, drawn, nothing, options, pack_of, seen};
use super::*;
use swiftlet_fragments::packs::digest_of_pack;
use swiftlet_node::coded::{PackOptions, Packed, PacksSeen, Stopped};
use swiftlet_store::model::PostMeta;

const OBJECTS: u64 = 20;

/// A partition with a pack of which half is dead, and what its objects are: the timestamps of their versions, 0 of those
/// that were deleted.
struct Half {
    work: Work,
    truth: BTreeMap<u64, u64>,
}

fn rewriting() -> PackOptions {
    PackOptions { live_share: 0.7, ..options() }
}

impl Half {
    fn new() -> Self {
        let work = Work::new(OBJECTS);
        assert_eq!(work.round(1, &|| true).unwrap().packed, OBJECTS as usize);
        let mut half = Self { truth: work.all.iter().map(|number| (*number, 10)).collect(), work };
        for (at, number) in half.work.all.clone().into_iter().enumerate() {
            match at % 4 {
                0 => half.delete(number, 13, &[0, 1, 2]),
                1 => half.write(number, 20, &[0, 1, 2]),
                _ => {}
            }
        }
        half
    }

    fn write(&mut self, number: u64, timestamp: u64, places: &[usize]) {
        self.work.cluster.copy(number, timestamp, places);
        self.truth.insert(number, timestamp);
    }

    fn delete(&mut self, number: u64, timestamp: u64, places: &[usize]) {
        for place in places {
            self.store(*place).delete(small(number), timestamp, b"/a/c/o".to_vec()).unwrap();
        }
        self.truth.insert(number, 0);
    }

    fn store(&self, place: usize) -> &swiftlet_store::Store {
        &self.work.cluster.machines[place].stores[0]
    }

    fn round(&self, number: u64, go_on: &dyn Fn() -> bool) -> Result<Packed, Stopped> {
        self.work.round_with(rewriting(), drawn(number), go_on)
    }

    /// Do rounds until nothing is to be done, and delete what may be deleted.
    fn finish(&self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            let done = self.round(number, &|| true).unwrap();
            for pack in &done.unused {
                self.work.delete(*pack, &|| true).unwrap();
            }
            if (Packed { seen: PacksSeen::default(), ..done }) == nothing() {
                return;
            }
        }
        panic!("it comes to no end: {:?}", self.work.packs());
    }

    /// Every object is what it is, at each holder, with two devices away.
    fn check(&self, what: &str) {
        for (at, (number, truth)) in self.truth.iter().enumerate() {
            for holder in 0..HOLDERS {
                let away = [(at + 3) % 6, (at + 4 + holder) % 6].into_iter().filter(|one| *one != holder);
                let got = seen(&self.work.cluster, *number, holder, &away.collect::<Vec<_>>());
                let expected = (*truth > 0).then(|| (*truth, body(*number)));
                assert!(got == expected, "{what}: {number} at {holder}: {:?}", got.map(|got| got.0));
            }
        }
    }

    /// How many versions are at least this old.
    fn until(&self, timestamp: u64) -> u64 {
        self.truth.values().filter(|truth| (1..=timestamp).contains(*truth)).count() as u64
    }

    fn is_gone(&self, number: u64) -> bool {
        let all = (0..HOLDERS).map(|place| {
            let key = Key { digest: pack_of(number).digest, ..self.work.cluster.fragment(PACK, place) };
            self.store(place).shown_fragment(&key).unwrap().is_none_or(|shown| shown.version.is_deletion())
        });
        all.into_iter().all(|gone| gone)
    }
}

#[test]
fn what_is_left_of_a_pack_goes_into_a_new_one_and_the_old_one_goes() {
    let mut half = Half::new();
    // What is cold goes with it, however little it is.
    let fresh = PACK + 5 * 70;
    half.write(fresh, 11, &[0, 1, 2]);
    let left = half.until(19);
    let done = half.round(2, &|| true).unwrap();
    assert_eq!((done.packed as u64, done.rewritten, done.retired), (left, 1, 1));
    assert_eq!((&done.unused, &done.unfinished), (&vec![pack_of(1)], &Vec::new()));
    assert_eq!((done.seen.packs, done.seen.size, done.seen.below), (1, done.reread, 0));
    assert!((done.seen.live as f64) < 0.7 * done.seen.size as f64 && done.bytes > done.seen.live, "{done:?}");
    assert_eq!(half.work.packs(), BTreeSet::from([(102, vec![left; HOLDERS])]));
    half.check("written anew");
    half.work.delete(pack_of(1), &|| true).unwrap();
    assert!(half.is_gone(1));
    assert_eq!(half.work.listed(), HOLDERS);
    half.check("the old one is gone");
    let again = half.round(3, &|| true).unwrap();
    let live = done.bytes;
    assert_eq!(again, Packed { seen: PacksSeen { packs: 1, size: live, live, below: 0 }, ..nothing() });
}

/// More members than places are asked about at once, and more bytes than are read ahead, of two packs.
#[test]
fn large_packs_become_one() {
    let mut work = Work::new(1500);
    assert_eq!(work.round(1, &|| true).unwrap().packed, 1500);
    let more: Vec<u64> = (2000..3500).map(|number| PACK + 5 * number).collect();
    more.iter().for_each(|number| work.cluster.copy(*number, 10, &[0, 1, 2]));
    assert_eq!(work.round(2, &|| true).unwrap().packed, 1500);
    work.all.extend(more);
    let mut half = Half { truth: work.all.iter().map(|number| (*number, 10)).collect(), work };
    let dead: Vec<u64> = half.work.all.iter().copied().filter(|number| number / 5 % 5 > 1).collect();
    dead.iter().for_each(|number| half.delete(*number, 13, &[0, 1, 2]));
    let left = half.until(10);
    let done = half.round(3, &|| true).unwrap();
    assert_eq!((done.packed as u64, done.rewritten, done.retired), (left, 2, 2));
    assert_eq!((done.unused, done.unfinished), (vec![pack_of(2), pack_of(1)], Vec::new()));
    assert_eq!(half.work.packs(), BTreeSet::from([(103, vec![left; HOLDERS])]));
    half.truth = half.truth.into_iter().step_by(17).collect();
    half.check("two packs in one");
}

#[test]
fn packs_with_enough_left_or_with_a_share_of_zero_stay() {
    let half = Half::new();
    for (share, below) in [(0.0, 0), (0.3, 0), (0.7, 1)] {
        let skipped = BTreeSet::from([pack_of(1).digest]);
        let skipped = if below == 1 { skipped } else { BTreeSet::new() };
        let some = PackOptions { live_share: share, skipped, ..options() };
        let done = half.work.round_with(some, drawn(2), &|| true).unwrap();
        assert_eq!((done.packed, done.rewritten, done.retired, done.seen.below), (0, 0, 0, below), "{share}");
    }
}

#[test]
fn a_packer_that_writes_anew_may_be_killed_after_each_of_its_messages() {
    for most in 0.. {
        let half = Half::new();
        let left = AtomicUsize::new(most);
        let alive = || left.fetch_update(Order, Order, |left| left.checked_sub(1)).is_ok();
        let outcome = half.round(2, &alive).and_then(|done| half.work.delete(done.unused[0], &alive));
        half.check(&format!("killed after {most}"));
        half.finish(3..9);
        half.check(&format!("gone on after {most}"));
        let packs: Vec<_> = half.work.packs().into_iter().collect();
        assert_eq!(packs.len(), 1, "after {most}: {packs:?}");
        assert_eq!(packs[0].1, vec![half.until(19); HOLDERS], "after {most}");
        assert!(half.is_gone(1), "after {most}");
        assert_eq!(half.work.listed(), HOLDERS, "after {most}");
        if outcome.is_ok() {
            assert!(most > 30, "{most} messages are too few");
            break;
        }
    }
}

/// What comes in between: an object of the pack is overwritten, deleted, or posted to.
#[test]
fn what_is_written_while_a_pack_is_written_anew_counts() {
    for at in 0.. {
        let mut half = Half::new();
        let all: Vec<u64> = half.truth.iter().filter(|(_, truth)| **truth == 10).map(|(number, _)| *number).collect();
        let [newer, deleted, posted] = [all[1], all[4], all[6]];
        let step = AtomicUsize::new(0);
        let meta =
            PostMeta { timestamp: 30, metadata: vec![(b"posted".to_vec(), b"1".to_vec())], ..PostMeta::default() };
        let write = || {
            if step.fetch_add(1, Order) == at {
                half.work.cluster.copy(newer, 12, &[0, 1, 2]);
                for place in 0..HOLDERS {
                    half.store(place).delete(small(deleted), 14, b"/a/c/o".to_vec()).unwrap();
                    half.store(place).post(small(posted), meta.clone()).unwrap();
                }
            }
            true
        };
        let what = format!("at step {at}");
        let done = half.round(2, &write).unwrap();
        assert_eq!(done.rewritten, 1, "{what}");
        half.truth.extend([(newer, 12), (deleted, 0)]);
        let is_over = step.load(Order) <= at;
        if is_over {
            assert!(at > 25, "{at} messages are too few");
            break;
        }
        half.check(&what);
        half.finish(3..9);
        half.check(&what);
        for place in 0..HOLDERS {
            let found = half.store(place).reference(&small(posted)).unwrap().unwrap();
            assert_eq!(found.posted.as_ref().map(|post| &post.metadata), Some(&meta.metadata), "{what}");
            assert!(found.pack != pack_of(1), "{what}");
        }
        assert!(half.is_gone(1), "{what}");
    }
}

#[test]
fn two_packers_that_write_a_pack_anew_leave_one() {
    let half = Half::new();
    std::thread::scope(|scope| {
        for number in 2..5 {
            let half = &half;
            scope.spawn(move || drop(half.round(number, &|| true)));
        }
    });
    half.check("side by side");
    half.finish(5..12);
    half.check("in the end");
    let counts: BTreeMap<u64, Vec<u64>> = half.work.packs().into_iter().collect();
    let sum = |holder: usize| counts.values().map(|all| all[holder]).sum::<u64>();
    assert!(counts.values().all(|all| all.len() == HOLDERS && !all.contains(&0)), "{counts:?}");
    assert_eq!((0..HOLDERS).map(sum).collect::<Vec<_>>(), [half.until(19); HOLDERS]);
    assert!(half.is_gone(1));
}

#[test]
fn a_clock_that_is_late_makes_no_earlier_pack() {
    let half = Half::new();
    let early = (drawn(2).0, Version { timestamp: 16, generation: 2 });
    let done = half.work.round_with(rewriting(), early, &|| true).unwrap();
    assert_eq!((done.rewritten, done.unused.as_slice()), (1, &[pack_of(1)][..]));
    assert_eq!(half.work.packs(), BTreeSet::from([(pack_of(1).version.timestamp + 1, vec![half.until(19); HOLDERS])]));
    let places = half.work.cluster.places(PACK, 0, &[]);
    let client = swiftlet_node::Client::new("tx").unwrap();
    swiftlet_node::coded::Packing::new(&client, places, rewriting(), &|| true).delete(pack_of(1), 17).unwrap();
    assert!(half.is_gone(1));
    half.check("with a late clock");
}

#[test]
fn members_to_which_one_place_alone_refers_are_gathered() {
    let mut half = Half::new();
    let left: Vec<u64> = half.truth.iter().filter(|(_, truth)| **truth == 10).map(|(number, _)| *number).collect();
    // Two places have missed a deletion, or one a write: what they refer to goes with them until sync has told them.
    let (deleted, newer) = (left[0], left[1]);
    half.delete(deleted, 14, &[1]);
    half.write(newer, 20, &[0, 1]);
    let done = half.round(2, &|| true).unwrap();
    assert_eq!((done.packed, done.rewritten, done.retired), (left.len(), 1, 1));
    // Not all places have the same, so this is told.
    assert_eq!(done.unfinished, [digest_of_pack(drawn(2).0)]);
    let count = left.len() as u64;
    assert_eq!(half.work.packs(), BTreeSet::from([(102, vec![count - 1, count - 2, count])]));
    half.delete(deleted, 14, &[0, 2]);
    half.write(newer, 20, &[2]);
    half.check("when all have heard of it");
    half.finish(3..6);
    half.check("in the end");
}

/// A retired pack takes no reference any more, so a place that lacks one could never become equal to one that has it.
#[test]
fn what_refers_to_a_retired_pack_is_moved() {
    let half = Half::new();
    for place in 0..6 {
        let key = Key { digest: pack_of(1).digest, ..half.work.cluster.fragment(PACK, place) };
        let (sender, done) = std::sync::mpsc::channel();
        let retired = Box::new(move |outcome| sender.send(outcome).unwrap());
        half.store(place).submit_retire(key, pack_of(1).version, retired);
        assert!(done.recv().unwrap().is_ok());
    }
    // Whatever the share is.
    let done = half.work.round_with(PackOptions { live_share: 0.0, ..options() }, drawn(2), &|| true).unwrap();
    assert_eq!((done.rewritten, done.retired, done.unused.as_slice()), (1, 1, &[pack_of(1)][..]));
    half.work.delete(pack_of(1), &|| true).unwrap();
    assert_eq!(half.work.packs(), BTreeSet::from([(102, vec![half.until(19); HOLDERS])]));
    half.check("moved");
}

/// A place that waits to deliver an update keeps its reference to the old pack, which stays for so long.
#[test]
fn a_place_that_can_not_adopt_keeps_the_old_pack() {
    let half = Half::new();
    let owed = *half.truth.iter().find(|(_, truth)| **truth == 10).unwrap().0;
    half.store(1).keep_pending(small(owed), 10, 1);
    let done = half.round(2, &|| true).unwrap();
    assert_eq!((done.rewritten, done.retired), (1, 0));
    assert_eq!(done.unfinished, [pack_of(2).digest, pack_of(1).digest]);
    half.check("while it is owed");
    half.store(1).acknowledge(&[(small(owed), 10)]);
    half.finish(3..9);
    half.check("when it was delivered");
    assert!(half.is_gone(1));
    assert_eq!(half.work.packs(), BTreeSet::from([(102, vec![half.until(19); HOLDERS])]));
}

#[test]
fn nothing_is_written_anew_with_a_holder_away() {
    let mut half = Half::new();
    let before = half.work.packs();
    for place in 0..HOLDERS {
        let target = half.work.cluster.targets[place].take();
        assert!(matches!(half.round(2, &|| true), Err(Stopped::Failed(_))));
        half.work.cluster.targets[place] = target;
        assert_eq!(half.work.packs(), before, "without {place}");
    }
    half.finish(3..9);
    half.check("when all are back");
    assert!(half.is_gone(1));
}

#[test]
fn nothing_is_adopted_of_a_pack_that_one_place_has_not_proved() {
    let mut half = Half::new();
    let before = half.work.packs();
    let target = half.work.cluster.targets[4].take();
    assert!(matches!(half.round(2, &|| true), Err(Stopped::Failed(_))));
    half.work.cluster.targets[4] = target;
    assert_eq!(half.work.packs(), before);
    half.check("without a place");
    // The new pack is not there as a whole before a replicator has rebuilt its fragment.
    let quick = PackOptions { settle: Duration::ZERO, ..rewriting() };
    let refused = half.work.round_with(quick, drawn(3), &|| true);
    assert!(matches!(refused, Err(Stopped::Refused { place: 4, .. })), "{refused:?}");
    assert_eq!(half.work.packs(), before);
    half.check("when it is back");
}

/// A device that is no place while a pack is deleted, and is one again, refers to what is gone. Its set hashes are those of
/// places that have the objects: nobody sees what it lacks before it has forgotten that.
#[test]
fn a_device_that_is_a_place_again_forgets_a_pack_when_it_is_told_of_its_deletion() {
    let (mut half, old, place) = (Half::new(), pack_of(1), 2);
    // The last device is there in its stead, with the copies that count and a fragment of the pack.
    half.work.cluster.targets.swap(place, 6);
    let cluster = &half.work.cluster;
    for (number, timestamp) in half.truth.iter().filter(|(_, timestamp)| **timestamp > 0) {
        cluster.copy(*number, *timestamp, &[6]);
    }
    let first = Key { digest: old.digest, ..cluster.fragment(PACK, 0) };
    let at = |place: usize| Key { partition: first.partition + place as u32, ..first };
    let of_ring = Key { digest: old.digest, ..key(PACK) };
    let devices = Devices::new(cluster.targets.clone());
    let places = Places::new(devices, of_ring, (scheme(), cluster.cell), (0..6).collect(), Vec::new()).unwrap();
    let rebuilt = rebuild(places, place, old.version.timestamp, old.version.generation);
    assert_eq!(rebuilt, RebuildEnd::Answered(SlotAnswer::Done));
    half.store(6).about_fragment(at(place), Asked::Settle(old.version)).unwrap();
    half.finish(2..9);
    let deletion = half.store(0).shown_fragment(&at(0)).unwrap().unwrap();
    assert!(deletion.version.is_deletion());
    // It comes back with what it had.
    half.work.cluster.targets.swap(place, 6);
    let cluster = &half.work.cluster;
    let former: Vec<u64> = half.truth.iter().filter(|(_, timestamp)| **timestamp == 10).map(|one| *one.0).collect();
    let is_there = |number: &u64| half.store(place).entry(&small(*number)).unwrap().is_some();
    let id = (2, small(PACK).partition);
    let used: Vec<_> = half.store(place).packs(id).unwrap().iter().map(|one| (one.pack, one.references)).collect();
    assert_eq!((used, former.iter().all(is_there)), (vec![(old, former.len() as u64)], true));
    let told = FragmentRequest::About { key: at(place), asked: Asked::Learn(deletion) };
    let target = cluster.targets[place].as_ref().unwrap();
    cluster.world.client.ask(target, &Request::from(told), None, LONG).unwrap();
    assert_eq!(half.store(place).packs(id).unwrap(), []);
    assert!(!former.iter().any(is_there));
    assert_eq!(half.store(place).check().unwrap(), Vec::<String>::new());
}
