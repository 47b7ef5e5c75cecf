//! Rows for container servers, what is said about them, and the journal that has them.

use std::sync::{Arc, OnceLock};

use swiftlet_node::message::updates::{AskDurable, Row, Update, decode_taken, encode_taken};
use swiftlet_store::disk::{Disk, Faults, SimulatedDisk};
use swiftlet_updates::{Config, Database, Rows, Updates, count_rows};

use crate::device::change;

/// Rows of the journal, of two containers.
const ROWS: u64 = 6;

fn container(number: u64) -> Database {
    Database::new(number as u32 % 2, "a", if number.is_multiple_of(2) { "c" } else { "d" })
}

/// Rows as they travel; what is accepted is, made anew, the same bytes.
pub fn rows(data: &[u8]) {
    if let Ok(count) = count_rows(data) {
        let (mut again, mut rows) = (Vec::new(), 0);
        for row in Rows::new(data) {
            rows += 1;
            assert!(row.is_ok_and(|row| row.encode(&mut again).is_ok()), "row {rows} was counted");
        }
        assert_eq!((rows, &again[..]), (count, data));
    }
    if let Ok(update) = Update::decode(data) {
        assert_eq!(update.encode().as_deref(), Ok(data));
    }
    if let Ok(asked) = AskDurable::decode(data) {
        assert_eq!(asked.encode().as_deref(), Ok(data));
    }
    if let Ok(taken) = decode_taken(data) {
        assert_eq!(encode_taken(taken), data);
    }
}

fn open(disk: &Arc<SimulatedDisk>) -> std::io::Result<Updates> {
    Updates::open_disk(Arc::clone(disk) as Arc<dyn Disk>, Config { threads: false, ..Config::default() })
}

/// A journal of two files.
fn written() -> std::io::Result<Arc<SimulatedDisk>> {
    let disk = SimulatedDisk::new(7, Faults::default());
    let updates = open(&disk)?;
    for number in 0..ROWS {
        let mut raw = Vec::new();
        let name = format!("o{number}");
        let row = Row { name: &name, timestamp: number, size: number, etag: "e", content_type: "t", deleted: false };
        row.encode(&mut raw).map_err(std::io::Error::other)?;
        updates.open_database(container(number));
        updates.submit(container(number), Box::new(raw), Box::new(|taken| assert!(taken.is_ok(), "{taken:?}")));
        updates.append_queued();
        if number == ROWS / 2 {
            let _ = updates.mark();
        }
    }
    Ok(disk)
}

/// A journal with these changes is read, or is of another format; each row that is found was written.
pub fn journal(data: &[u8]) {
    static WRITTEN: OnceLock<Option<Arc<SimulatedDisk>>> = OnceLock::new();
    let Some(disk) = WRITTEN.get_or_init(|| written().ok()) else { panic!("the journal could not be made") };
    let disk = disk.copy();
    change(&disk, data);
    let updates = match open(&disk) {
        Ok(updates) => updates,
        Err(error) if error.to_string().contains("format version") => return,
        Err(error) => panic!("{error}"),
    };
    let mut found = 0;
    for database in updates.databases() {
        let rows = updates.take_out(&database).ok().flatten();
        for row in rows.iter().flat_map(|rows| rows.iter()) {
            found += 1;
            assert_eq!((row.name, row.size, row.etag), (&*format!("o{}", row.timestamp), row.timestamp, "e"));
            assert_eq!(database, container(row.timestamp));
        }
        updates.folded(&database, true);
    }
    assert!(found <= ROWS);
    updates.durable_in_databases(updates.mark());
    updates.sync();
    assert_eq!((updates.failed(), disk.files()), (None, Vec::new()));
}
