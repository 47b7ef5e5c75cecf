//! A real process that is killed while it writes: what it acknowledged is there, whole; nothing else half is.
//!
//! Fault model: SIGKILL at named points of the store and at random moments. The page cache survives, so this is about
//! orders and half states on a real file system; `crash` is about what power takes along. With a device that can be cut off
//! under a real file system (`hack/vm power`) also: everything that had not reached it is lost, at random moments.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use swiftlet_store::model::{Footer, Key, PutMeta};
use swiftlet_store::{Config, Error, Store};

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

/// A program that cuts the power of the disk below [`POWER_ROOT`] when it is told `cut`, and brings it back, with the file
/// system mounted anew, when it is told `restore`.
const POWER: &str = "SWIFTLET_STORE_POWER";
const POWER_ROOT: &str = "SWIFTLET_STORE_POWER_ROOT";

/// How many times to kill; a few dozen without it.
const KILLS: &str = "SWIFTLET_STORE_KILLS";

/// Says to a process of this test that it is the child: the directory, a space, the seed.
const CHILD: &str = "SWIFTLET_STORE_TEST_CHILD";

/// Nothing, unless this process is the child: then it writes until it dies.
#[test]
fn child() {
    if let Ok(task) = std::env::var(CHILD) {
        let (root, seed) = task.rsplit_once(' ').expect("a directory and a seed");
        write_until_killed(Path::new(root), seed.parse().expect("a number"));
    }
}

/// Prints a line per acknowledged operation: what, object, timestamp. What an object holds follows from its timestamp.
fn write_until_killed(root: &Path, seed: u64) {
    let mut chance = seed;
    let mut random = move |below: u64| {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (chance >> 33) % below
    };
    let config = Config {
        volume_bytes: 256 * 1024,
        aggregate_below: 20_000,
        checkpoint_bytes: 128 * 1024,
        live_share: 0.7,
        ..Config::default()
    };
    let store = Store::open(root, config).expect("it works");
    let mut out = std::io::stdout();
    for step in 1..=100_000_u64 {
        let number = random(8);
        let digest = swiftlet_hash::xxh3_128(&number.to_be_bytes()).to_be_bytes();
        let key = Key { policy: 0, partition: 1, digest };
        // Later lives go on where the ones before them ended.
        let timestamp = store
            .stat(&key)
            .map_or_else(|error| if let Error::NotFound(Some(at)) = error { at } else { 0 }, |info| info.timestamp)
            + 1;
        let what = if random(5) == 0 {
            match store.delete(key, timestamp, Vec::new()) {
                Ok(_) | Err(Error::NotFound(_)) => "delete",
                Err(error) => panic!("{error}"),
            }
        } else {
            let data = vec![(timestamp % 251) as u8; (timestamp * 7919 % 40_000) as usize];
            let mut writer = store.create(key, None, None).expect("it works");
            writer.write(&data).expect("it works");
            let footer = Footer { size: data.len() as u64, etag: Vec::new(), xxh3: swiftlet_hash::xxh3_64(&data) };
            writer.commit(&PutMeta { timestamp, ..PutMeta::default() }, &footer).expect("it works");
            "put"
        };
        writeln!(out, "{what} {number} {timestamp}").expect("it works");
        out.flush().expect("it works");
        match step % 20 {
            7 => store.checkpoint().expect("it works"),
            13 => drop(store.compact().expect("it works")),
            17 => drop(store.punch().expect("it works")),
            _ => {}
        }
    }
}

/// Run the child until it dies, by itself or, so long after its first operation, by what is done then and by SIGKILL; the
/// last acknowledged operation of each object.
fn live(
    root: &Path,
    seed: u64,
    failpoint: Option<&str>,
    kill_after: Option<(Duration, &dyn Fn())>,
) -> HashMap<u64, (bool, u64)> {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "child", "--nocapture"]).stdout(Stdio::piped());
    command.env(CHILD, format!("{} {seed}", root.display()));
    if let Some(point) = failpoint {
        command.env("SWIFTLET_STORE_FAILPOINT", point);
    }
    let mut process = command.spawn().expect("it starts");
    let output = BufReader::new(process.stdout.take().expect("its output"));
    let mut lines = output.lines();
    let mut acknowledged = HashMap::new();
    let mut note = |line: String| {
        let parts: Vec<&str> = line.split(' ').collect();
        if let [what @ ("put" | "delete"), number, timestamp] = parts[..] {
            let (number, timestamp) = (number.parse().expect("a number"), timestamp.parse().expect("a timestamp"));
            acknowledged.insert(number, (what == "put", timestamp));
        }
    };
    if let Some((after, before_kill)) = kill_after {
        // The moment is counted from the first sign of life.
        for line in lines.by_ref().map_while(Result::ok) {
            note(line.clone());
            if line.starts_with("put") {
                break;
            }
        }
        std::thread::sleep(after);
        before_kill();
        process.kill().expect("killed");
    }
    lines.map_while(Result::ok).for_each(&mut note);
    let status = process.wait().expect("it ended");
    let killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
    // Without its disk it may have ended first, by an error that it was told.
    assert!(killed || std::env::var_os(POWER).is_some(), "{failpoint:?}: it was to be killed, and ended with {status}");
    acknowledged
}

/// Compare the device with what was acknowledged; from here on it is known what became of the operation under way.
fn check(root: &Path, acknowledged: &mut HashMap<u64, (bool, u64)>, what: &str) {
    let config = Config { threads: false, volume_bytes: 256 * 1024, ..Config::default() };
    let store = Store::open(root, config).unwrap_or_else(|error| panic!("{what}: {error}"));
    for number in 0..8_u64 {
        let digest = swiftlet_hash::xxh3_128(&number.to_be_bytes()).to_be_bytes();
        let key = Key { policy: 0, partition: 1, digest };
        let (is_put, timestamp) = acknowledged.get(&number).copied().unwrap_or((false, 0));
        match store.get(&key) {
            Ok(object) => {
                let at = object.info().timestamp;
                // The next one may have been under way.
                assert!(
                    (at == timestamp && is_put) || at == timestamp + 1,
                    "{what}: {number} is at {at}, not {timestamp}"
                );
                let data = object.read(0, u64::MAX).expect("sound");
                assert_eq!(data, vec![(at % 251) as u8; (at * 7919 % 40_000) as usize], "{what}: {number}");
                acknowledged.insert(number, (true, at));
            }
            Err(Error::NotFound(tombstone)) => {
                let at = tombstone.unwrap_or(0);
                assert!(
                    (at == timestamp && !is_put) || at == timestamp + 1,
                    "{what}: {number} went at {at}, not {timestamp}"
                );
                acknowledged.insert(number, (false, at));
            }
            Err(error) => panic!("{what}: {number}: {error}"),
        }
    }
    assert_eq!(store.check().expect("checked"), Vec::<String>::new(), "{what}");
    assert_eq!(store.recovery().damaged, 0, "{what}");
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
        check(&root, &mut all, point);
        kills += 1;
        let lives = if point.starts_with("format") { 0 } else { (wanted / 2 / POINTS.len() as u64).max(1) };
        for life in 0..lives {
            let at = format!("{point}:{}", 1 + (life + 2) % 4);
            all.extend(live(&root, number + 100 * (life + 1), Some(&at), None));
            check(&root, &mut all, &format!("{at}, life {life}"));
            kills += 1;
        }
        std::fs::remove_dir_all(&root).expect("cleaned up");
    }
    std::fs::create_dir_all(&root).expect("a directory");
    let mut all = HashMap::new();
    for round in 0..wanted.saturating_sub(kills).max(12) {
        let after = Duration::from_micros(1000 + round * 7919 % 60_000);
        all.extend(live(&root, round, None, Some((after, &|| {}))));
        check(&root, &mut all, &format!("killed at random, round {round}"));
        kills += 1;
    }
    std::fs::remove_dir_all(&root).expect("cleaned up");
    println!("killed {kills} times, at {} named points and at random moments", POINTS.len());
}

/// Does nothing unless there is power to be cut.
#[test]
fn power_lost_at_random_moments() {
    let (Ok(power), Ok(root)) = (std::env::var(POWER), std::env::var(POWER_ROOT)) else { return };
    let root = Path::new(&root);
    let switch = |what| assert!(Command::new(&power).arg(what).status().expect("it runs").success(), "{what}");
    let mut all = HashMap::new();
    let mut operations = 0;
    for round in 0..25_u64 {
        let after = Duration::from_micros(2000 + round * 1_047_919 % 900_000);
        let acknowledged = live(root, round, None, Some((after, &|| switch("cut"))));
        operations += acknowledged.len();
        all.extend(acknowledged);
        switch("restore");
        check(root, &mut all, &format!("power lost, round {round}"));
    }
    println!("25 times without power; {operations} objects written to in between, all as acknowledged");
}
