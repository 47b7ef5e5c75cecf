//! A store on a real file system, on a disk that fails in four ways at random moments: what was acknowledged is there after the
//! next mount, whole; nothing else half is; the index is what the volumes say. For the machine of `hack/flakey`.
//!
//! Fault model, and what each shows. In all of them the process is killed and its page cache is lost:
//!
//! - `cut`: from a moment on everything fails, reads too. The disk has kept what had reached it. All that was ever acknowledged counts.
//! - `error`: from a moment on writes fail, and syncs with them; reads work, and the process goes on for a while. All that was
//!   acknowledged counts, also behind that moment: nothing may be acknowledged of which a sync has failed.
//! - `drop`: from a moment on writes are dropped and reported as done, syncs too, and the process goes on for a while. A disk that
//!   lies can't be helped: only what was acknowledged before that moment counts. What it shows is that the store comes up at an
//!   earlier state of its disk than it has been in, and goes on from there.
//! - `log`: all writes are recorded with their flushes, and replayed to moments in between: a disk with a volatile cache at the
//!   worst, which holds what a flush has made it keep and nothing else. What was acknowledged before that moment counts. This one
//!   finds a missing sync, which the others may not: there what the kernel has written of itself is on the disk.

#[path = "../common/lives.rs"]
mod lives;
mod replay;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lives::{Acknowledged, Life, check};
use replay::Log;

/// A program that does to the disk below [`ROOT`] what it is told: see `hack/flakey.d/disk.sh`.
const DISK: &str = "SWIFTLET_STORE_DISK";
const ROOT: &str = "SWIFTLET_STORE_DISK_ROOT";
/// How often each fault is injected.
const ROUNDS: &str = "SWIFTLET_STORE_DISK_ROUNDS";
/// How long a process goes on with a disk that lies or fails, and how long its writes are recorded at least.
const GOES_ON: Duration = Duration::from_millis(300);
const RECORDED: Duration = Duration::from_secs(2);
/// Time between two moments that a log may be replayed to, and how many of a round are.
const BETWEEN_MARKS: Duration = Duration::from_millis(40);
const REPLAYS: usize = 6;

#[test]
fn child() {
    if std::env::var_os(lives::CHILD).is_some() {
        // That its disk fails is how it is to end.
        std::panic::set_hook(Box::new(|_| {}));
    }
    lives::write_if_child();
}

/// The machine's disk.
struct Disk {
    program: String,
    root: PathBuf,
    rounds: u64,
}

impl Disk {
    /// None where there is no such machine.
    fn there() -> Option<Self> {
        let (program, root) = (std::env::var(DISK).ok()?, std::env::var_os(ROOT)?);
        let rounds = std::env::var(ROUNDS).map_or(10, |rounds| rounds.parse().expect("a number of rounds"));
        Some(Self { program, root: root.into(), rounds })
    }

    fn tell(&self, arguments: &[&str]) {
        let status = Command::new(&self.program).args(arguments).status().expect("it runs");
        assert!(status.success(), "{arguments:?}");
    }
}

/// A moment in a process's life, other in each round.
fn moment(round: u64) -> Duration {
    Duration::from_micros(2000 + round * 1_047_919 % 900_000)
}

/// How many objects have been acknowledged at a later time than this.
fn later(than: &Acknowledged, all: &Acknowledged) -> usize {
    all.iter().filter(|(number, (_, at))| than.get(number).is_none_or(|(_, before)| before < at)).count()
}

/// From a moment on the disk fails as `fault` says, and then is whole again. Gives how many acknowledged operations were lost.
fn round(disk: &Disk, all: &mut Acknowledged, fault: &str, round: u64) -> usize {
    let what = format!("{fault}, round {round}");
    let mut life = Life::begin(&disk.root, round, None);
    life.until_first();
    std::thread::sleep(moment(round));
    let before = life.acknowledged();
    disk.tell(&[fault]);
    if fault != "cut" {
        std::thread::sleep(GOES_ON);
    }
    life.kill();
    // Without its disk it may have ended first, by an error that it was told.
    let (acknowledged, _) = life.end();
    let mut last = all.clone();
    last.extend(acknowledged);
    if fault == "drop" {
        all.extend(before);
    } else {
        all.clone_from(&last);
    }
    disk.tell(&["restore"]);
    check(&disk.root, all, &last, &what);
    later(all, &last)
}

fn again_and_again(fault: &str) -> usize {
    let Some(disk) = Disk::there() else { return 0 };
    disk.tell(&["new"]);
    let mut all = Acknowledged::new();
    let lost = (0..disk.rounds).map(|number| round(&disk, &mut all, fault, number)).sum();
    let operations: u64 = all.values().map(|(_, at)| at).sum();
    println!(
        "{fault}: {} times in {operations} operations; {lost} objects behind what a lying disk had let be acknowledged",
        disk.rounds
    );
    lost
}

/// Does nothing, as those below, unless there is a disk to fail.
#[test]
fn all_is_there_when_the_disk_is_cut_off() {
    again_and_again("cut");
}

#[test]
fn nothing_is_acknowledged_that_the_disk_has_refused() {
    again_and_again("error");
}

#[test]
fn what_came_before_is_there_when_the_disk_drops_writes() {
    let lost = again_and_again("drop");
    assert!(lost > 0 || Disk::there().is_none(), "nothing was dropped, so nothing was shown");
}

/// Lives of a process, the flushes of which are recorded.
fn recorded(disk: &Disk, round: u64) -> (Vec<Acknowledged>, Acknowledged) {
    let (mut marks, mut all) = (Vec::new(), Acknowledged::new());
    for number in 0..2 {
        let mut life = Life::begin(&disk.root, 2 * round + number, None);
        life.until_first();
        let end = std::time::Instant::now() + RECORDED + moment(round);
        while std::time::Instant::now() < end {
            let mut so_far = all.clone();
            so_far.extend(life.acknowledged());
            disk.tell(&["mark", &marks.len().to_string()]);
            marks.push(so_far);
            std::thread::sleep(BETWEEN_MARKS);
        }
        life.kill();
        all.extend(life.end().0);
    }
    (marks, all)
}

#[test]
fn what_was_acknowledged_had_been_flushed() {
    let Some(disk) = Disk::there() else { return };
    let (mut replays, mut behind) = (0, 0);
    for round in 0..disk.rounds.div_ceil(2) {
        disk.tell(&["record"]);
        let (marks, last) = recorded(&disk, round);
        disk.tell(&["recorded"]);
        let mut log = Log::open(Path::new("/dev/vdc"), Path::new("/dev/vdd")).expect("a log");
        for at in (0..marks.len()).step_by(marks.len().div_ceil(REPLAYS)) {
            let what = format!("recorded, round {round}, mark {at} of {}", marks.len());
            while log.until_next_mark().expect("it is read") != at.to_string() {}
            disk.tell(&["show"]);
            let mut floor = marks[at].clone();
            check(Path::new("/mnt/replay/store"), &mut floor, &last, &what);
            disk.tell(&["hide"]);
            behind += later(&floor, &last);
            replays += 1;
        }
        assert!(log.entries > 0, "nothing was recorded");
    }
    assert!(behind > 0, "every moment was the last one, so nothing was shown");
    println!("log: {replays} moments, all as acknowledged; {behind} objects behind what was acknowledged later");
}
