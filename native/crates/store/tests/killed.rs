//! A real process that is killed while it writes: what it acknowledged is there, whole; nothing else half is.
//!
//! Fault model: SIGKILL at named points of the store and at random moments. The page cache survives, so this is about
//! orders and half states on a real file system; `crash` is about what power takes along, `power` about the same on real ones.

#[path = "common/lives.rs"]
mod lives;

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use lives::{Acknowledged, Life, check};

const POINTS: [&str; 25] = [
    "format-written",
    "format-placed",
    "volume-created",
    "volume-allocated",
    "volume-head-written",
    "volume-synced",
    "volume-placed",
    "volume-marked",
    "batch-decided",
    "batch-written",
    "batch-synced",
    "batch-applied",
    "large-created",
    "large-written",
    "large-synced",
    "large-placed",
    "large-unlink",
    "checkpoint-begun",
    "checkpoint-written",
    "checkpoint-synced",
    "checkpoint-renamed",
    "checkpoint-placed",
    "compaction-copied",
    "compaction-synced",
    "compaction-switched",
];

/// How many times to kill; a few dozen without it.
const KILLS: &str = "SWIFTLET_STORE_KILLS";

#[test]
fn child() {
    lives::write_if_child();
}

/// Run the child until it dies, by itself or by SIGKILL so long after its first operation; what it has acknowledged.
fn live(root: &Path, seed: u64, failpoint: Option<&str>, kill_after: Option<Duration>) -> Acknowledged {
    let mut life = Life::begin(root, seed, failpoint);
    if let Some(after) = kill_after {
        // The moment is counted from the first sign of life.
        life.until_first();
        std::thread::sleep(after);
        life.kill();
    }
    let (acknowledged, status) = life.end();
    let killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
    assert!(killed, "{failpoint:?}: it was to be killed, and ended with {status}");
    acknowledged
}

/// All of it is there, and at most the operation under way besides.
fn check_all(root: &Path, all: &mut Acknowledged, what: &str) {
    let last = all.clone();
    check(root, all, &last, what);
}

#[test]
fn killed_at_named_points_and_at_random_moments() {
    let root = std::env::temp_dir().join(format!("swiftlet-killed-{}", std::process::id()));
    let wanted: u64 = std::env::var(KILLS).map_or(0, |kills| kills.parse().expect("a number of kills"));
    let mut kills = 0;
    for (number, point) in POINTS.iter().enumerate() {
        let number = number as u64;
        std::fs::create_dir_all(&root).expect("a directory");
        // Once in a new store, and, where it can be reached again, later in its life and in later lives.
        let mut all = live(&root, number, Some(point), None);
        check_all(&root, &mut all, point);
        kills += 1;
        let lives = if point.starts_with("format") { 0 } else { (wanted / 2 / POINTS.len() as u64).max(1) };
        for life in 0..lives {
            let at = format!("{point}:{}", 1 + (life + 2) % 4);
            all.extend(live(&root, number + 100 * (life + 1), Some(&at), None));
            check_all(&root, &mut all, &format!("{at}, life {life}"));
            kills += 1;
        }
        std::fs::remove_dir_all(&root).expect("cleaned up");
    }
    std::fs::create_dir_all(&root).expect("a directory");
    let mut all = HashMap::new();
    for round in 0..wanted.saturating_sub(kills).max(12) {
        let after = Duration::from_micros(1000 + round * 7919 % 60_000);
        all.extend(live(&root, round, None, Some(after)));
        check_all(&root, &mut all, &format!("killed at random, round {round}"));
        kills += 1;
    }
    std::fs::remove_dir_all(&root).expect("cleaned up");
    println!("killed {kills} times, at {} named points and at random moments", POINTS.len());
}
