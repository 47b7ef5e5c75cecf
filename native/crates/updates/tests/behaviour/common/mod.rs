//! Rows and devices for the tests.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use swiftlet_store::disk::{Disk, Faults, SimulatedDisk};
use swiftlet_updates::{Config, Database, Limits, Merged, Refused, Row, Taken, Updates};

pub const LONG: Duration = Duration::from_secs(120);

/// A row of its own: timestamp, size, ETag, content type, whether it is a marker.
pub type Columns = (u64, bool, u64, String, String);
/// Rows by name.
pub type Content = BTreeMap<String, Columns>;

/// The merge as a sentence: the greatest of all wins, and of equal times the greatest content type.
pub fn merge(content: &mut Content, name: &str, new: &Columns) {
    let merged = match content.get(name) {
        None => new.clone(),
        Some(old) if old.0 != new.0 => old.max(new).clone(),
        Some(old) => {
            let winner = if (old.1, old.2, &old.3) >= (new.1, new.2, &new.3) { old } else { new };
            let (timestamp, deleted, size, etag, _) = winner.clone();
            (timestamp, deleted, size, etag, old.4.clone().max(new.4.clone()))
        }
    };
    content.insert(name.to_owned(), stored(merged));
}

pub fn merge_all(content: &mut Content, other: &Content) {
    other.iter().for_each(|(name, columns)| merge(content, name, columns));
}

/// A marker has nothing but its time.
pub fn stored(columns: Columns) -> Columns {
    if columns.1 { (columns.0, true, 0, String::new(), String::new()) } else { columns }
}

pub fn database(number: usize) -> Database {
    Database::new(number as u32, "a", &format!("container {number}"))
}

pub fn encode(rows: &[(String, Columns)]) -> Vec<u8> {
    let mut raw = Vec::new();
    for (name, (timestamp, deleted, size, etag, content_type)) in rows {
        let (timestamp, size, deleted) = (*timestamp, *size, *deleted);
        Row { name, timestamp, size, etag, content_type, deleted }.encode(&mut raw).unwrap();
    }
    raw
}

/// So many plain rows, `o0`, `o1`, ... from `first` on.
pub fn rows(first: usize, count: usize, timestamp: u64) -> Vec<(String, Columns)> {
    let row = |at| (format!("o{at}"), (timestamp, false, at as u64, "etag".to_owned(), "text/plain".to_owned()));
    (first..first + count).map(row).collect()
}

pub fn content(merged: &Merged) -> Content {
    let columns =
        |row: Row<'_>| (row.timestamp, row.deleted, row.size, row.etag.to_owned(), row.content_type.to_owned());
    let all: Vec<_> = merged.iter().map(|row| (row.name.to_owned(), columns(row))).collect();
    assert!(all.is_sorted_by(|one, two| one.0 < two.0), "by name");
    all.into_iter().collect()
}

/// Without threads, so that what happens when is the test's.
pub fn config() -> Config {
    Config { threads: false, ..Config::default() }
}

pub fn limited(rows: usize, fold_rows: usize) -> Config {
    Config { limits: Limits { rows, fold_rows, ..Limits::default() }, ..config() }
}

pub fn disk(seed: u64) -> Arc<SimulatedDisk> {
    SimulatedDisk::new(seed, Faults::default())
}

pub fn open(disk: &Arc<SimulatedDisk>, config: Config) -> Updates {
    Updates::open_disk(Arc::clone(disk) as Arc<dyn Disk>, config).unwrap()
}

/// Submit rows, and wait for the answer where there are threads.
pub fn take(updates: &Updates, database: Database, raw: Vec<u8>) -> Result<Taken, Refused> {
    let (tell, told) = mpsc::channel();
    updates.submit(database, Box::new(raw), Box::new(move |outcome| tell.send(outcome).unwrap()));
    updates.append_queued();
    told.recv_timeout(LONG).unwrap()
}

/// Ask whether it is durable; the answer comes into what is returned.
pub fn ask(updates: &Updates, taken: Taken) -> Arc<Mutex<Vec<Result<(), Refused>>>> {
    let answers = Arc::<Mutex<Vec<_>>>::default();
    let told = Arc::clone(&answers);
    updates.wait_durable(taken, Box::new(move |outcome| told.lock().unwrap().push(outcome)));
    answers
}

/// What is in the table of a database; it stays there.
pub fn held(updates: &Updates, database: &Database) -> Content {
    let held = updates.take_out(database).unwrap().map(|rows| content(&rows)).unwrap_or_default();
    updates.folded(database, false);
    held
}
