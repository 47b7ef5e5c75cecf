//! A journal with damage, a disk that fails, limits, and threads that end.
//!
//! Fault model: a file may end anywhere or have any byte changed; any operation of the disk may fail; a caller may ask
//! for what another process was asked for.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use crate::common::{Content, LONG, ask, config, database, disk, encode, held, limited, open, rows, take};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use swiftlet_store::disk::{Disk, Faults, SimulatedDisk};
use swiftlet_updates::{Config, Refused, Taken, Updates};

fn content(rows: &[(String, crate::common::Columns)]) -> Content {
    rows.iter().cloned().collect()
}

/// A device with these messages in one file, and the sizes of the file after each.
fn lived(messages: usize) -> (Arc<SimulatedDisk>, Vec<u64>) {
    let disk = disk(1);
    let updates = open(&disk, config());
    updates.open_database(database(0));
    let mut sizes = vec![0];
    for number in 0..messages {
        take(&updates, database(0), encode(&rows(number, 1, 1))).unwrap();
        assert_eq!(disk.files().len(), 1);
        sizes.push(disk.files()[0].1);
    }
    (disk, sizes)
}

#[test]
fn a_file_that_ends_anywhere_has_all_whole_records() {
    let (disk, sizes) = lived(4);
    let path = &disk.files()[0].0;
    for end in 0..=sizes[4] {
        let cut = disk.copy();
        cut.open(path).unwrap().truncate(end).unwrap();
        let whole = sizes.iter().filter(|size| **size <= end).count() - 1;
        let updates = open(&cut, config());
        assert_eq!(held(&updates, &database(0)), content(&rows(0, whole, 1)), "cut at {end}");
        // It goes when its rows are folded, and what comes is in another file.
        updates.open_database(database(1));
        take(&updates, database(1), encode(&rows(0, 1, 2))).unwrap();
        assert_eq!(cut.files().len(), 2);
    }
}

#[test]
fn a_changed_byte_ends_the_file_before_its_record() {
    let (disk, sizes) = lived(3);
    let path = &disk.files()[0].0;
    for at in 0..sizes[3] {
        let changed = disk.copy();
        let file = changed.open(path).unwrap();
        let mut byte = [0];
        file.read_at(&mut byte, at).unwrap();
        file.write_at(&[IoSlice::new(&[byte[0] ^ 0x10])], at).unwrap();
        // The head's change makes the whole file none.
        let whole = sizes[1..].iter().filter(|size| **size <= at).count();
        let updates = open(&changed, config());
        assert_eq!(held(&updates, &database(0)), content(&rows(0, whole, 1)), "changed at {at}");
    }
}

#[test]
fn what_an_older_file_has_left_in_the_same_place_is_no_record() {
    let (one, sizes) = lived(2);
    let (other, _) = lived(1);
    let name = &one.files()[0].0;
    let mut raw = vec![0; (sizes[2] - sizes[1]) as usize];
    one.open(name).unwrap().read_at(&mut raw, sizes[1]).unwrap();
    other.open(name).unwrap().write_at(&[IoSlice::new(&raw)], sizes[1]).unwrap();
    assert_eq!(held(&open(&other, config()), &database(0)), content(&rows(0, 1, 1)), "of another incarnation");
    let mut raw = vec![0; (sizes[2] - sizes[1]) as usize];
    one.open(name).unwrap().read_at(&mut raw, sizes[1]).unwrap();
    one.open(name).unwrap().write_at(&[IoSlice::new(&raw)], sizes[2]).unwrap();
    assert_eq!(held(&open(&one, config()), &database(0)).len(), 2, "of another place");
}

#[test]
fn another_version_of_the_format_stops_the_start_and_is_left_alone() {
    let (disk, _) = lived(1);
    let name = &disk.files()[0].0;
    let file = disk.open(name).unwrap();
    let mut head = [0; 40];
    file.read_at(&mut head, 0).unwrap();
    head[9] = 2;
    let check = swiftlet_hash::xxh3_64(&head[..32]).to_be_bytes();
    head[32..].copy_from_slice(&check);
    file.write_at(&[IoSlice::new(&head)], 0).unwrap();
    let before = disk.files();
    let error = Updates::open_disk(Arc::clone(&disk) as Arc<dyn Disk>, config()).map(drop).unwrap_err().to_string();
    assert!(error.contains("format version 2") && error.contains(name), "{error}");
    assert_eq!(disk.files(), before);
}

#[test]
fn no_space_closes_the_table_and_leaves_the_rest_as_it_was() {
    let disk = disk(1);
    let updates = open(&disk, config());
    updates.open_database(database(0));
    let taken = take(&updates, database(0), encode(&rows(0, 1, 1))).unwrap();
    disk.set_faults(Faults { full: true, ..Faults::default() });
    let refused = take(&updates, database(0), encode(&rows(1, 1, 1))).unwrap_err();
    assert!(matches!(&refused, Refused::DiskFull(why) if why.contains("no space is left")), "{refused}");
    let refused = take(&updates, database(0), encode(&rows(2, 1, 1))).unwrap_err();
    assert!(matches!(&refused, Refused::NotTaken(why) if why.contains("no space is left")), "{refused}");
    assert_eq!(updates.failed(), None);
    let answers = ask(&updates, taken);
    updates.sync();
    assert_eq!(*answers.lock().unwrap(), [Ok(())], "what was there before");
    // There is space again, and Python opens the database again.
    disk.set_faults(Faults::default());
    updates.open_database(database(0));
    take(&updates, database(0), encode(&rows(3, 1, 1))).unwrap();
    let status = updates.status();
    assert_eq!((status.taken, status.refused, status.not_taken, status.open), (3, 1, 1, 1));
    drop(updates);
    let found = held(&open(&disk, config()), &database(0));
    assert!(found.contains_key("o0") && found.contains_key("o3") && !found.contains_key("o2"));
}

#[test]
fn a_failed_sync_is_for_good() {
    let disk = disk(1);
    let updates = open(&disk, config());
    updates.open_database(database(0));
    let taken = take(&updates, database(0), encode(&rows(0, 1, 1))).unwrap();
    let waiting = ask(&updates, taken);
    disk.set_faults(Faults { fail_after: Some(1), ..Faults::default() });
    updates.sync();
    let failed = |answers: &[Result<(), Refused>]| matches!(answers, [Err(Refused::DeviceFailed(_))]);
    assert!(failed(&waiting.lock().unwrap()), "who waited");
    // The disk answers again, but nobody knows what it has.
    disk.set_faults(Faults::default());
    updates.sync();
    assert!(failed(&ask(&updates, taken).lock().unwrap()), "who asks later");
    updates.open_database(database(0));
    let refused = take(&updates, database(0), encode(&rows(1, 1, 1))).unwrap_err();
    assert!(matches!(refused, Refused::DeviceFailed(_)), "{refused}");
    assert_eq!(updates.status().open, 0);
    assert!(updates.failed().unwrap().contains("sync the journal"));
    assert_eq!(held(&updates, &database(0)).len(), 1, "rows that were taken can be folded");
}

#[test]
fn whatever_operation_fails_each_caller_is_answered_once_and_nothing_false_is_promised() {
    for nth in 1..40 {
        let disk = disk(nth);
        let updates = open(&disk, config());
        updates.open_database(database(0));
        disk.set_faults(Faults { fail_after: Some(nth), ..Faults::default() });
        let mut answers = Vec::new();
        for number in 0..8 {
            if let Ok(taken) = take(&updates, database(0), encode(&rows(number, 1, 1))) {
                answers.push((number, ask(&updates, taken)));
            }
            if number % 2 == 1 {
                updates.sync();
            }
            let mark = updates.mark();
            updates.durable_in_databases(mark);
        }
        updates.sync();
        let left = disk.after_crash(Faults::default());
        let found = held(&open(&left, config()), &database(0));
        for (number, answers) in answers {
            let answers = answers.lock().unwrap();
            assert_eq!(answers.len(), 1, "operation {nth}");
            let has = found.contains_key(&format!("o{number}"));
            assert!(answers[0].is_err() || has, "operation {nth}: row {number} was durable");
        }
    }
}

#[test]
fn a_read_that_fails_stops_the_start() {
    let (disk, _) = lived(2);
    for nth in 1..=3 {
        disk.set_faults(Faults { fail_after: Some(nth), ..Faults::default() });
        assert!(Updates::open_disk(Arc::clone(&disk) as Arc<dyn Disk>, config()).is_err(), "operation {nth}");
    }
}

#[test]
fn positions_are_those_of_this_process() {
    let (disk, _) = lived(1);
    let updates = open(&disk, config());
    updates.open_database(database(0));
    let taken = take(&updates, database(0), encode(&rows(1, 1, 1))).unwrap();
    updates.sync();
    assert_eq!(*ask(&updates, taken).lock().unwrap(), [Ok(())], "at once");
    let other = Taken { incarnation: taken.incarnation ^ 1, ..taken };
    assert!(matches!(ask(&updates, other).lock().unwrap()[..], [Err(Refused::NotTaken(_))]));
    let later = Taken { position: taken.position + 1, ..taken };
    assert!(matches!(ask(&updates, later).lock().unwrap()[..], [Err(Refused::Malformed(_))]));
    let again = open(&disk.copy(), config());
    assert!(matches!(ask(&again, taken).lock().unwrap()[..], [Err(Refused::NotTaken(_))]), "the next process");
}

#[test]
fn limits_hold_and_fold_makes_room() {
    let disk = disk(1);
    let config = Config { journal_bytes: 4000, ..limited(100, 50) };
    let updates = open(&disk, config);
    (0..2).for_each(|number| updates.open_database(database(number)));
    take(&updates, database(0), encode(&rows(0, 40, 1))).unwrap();
    assert_eq!(updates.due(), [(database(0), false)], "the first row");
    take(&updates, database(1), encode(&rows(0, 20, 1))).unwrap();
    let mut due = updates.due();
    due.sort_unstable();
    assert_eq!(due, [(database(0), true), (database(1), true)], "more than half is in use");
    assert!(matches!(take(&updates, database(1), encode(&rows(0, 50, 1))), Err(Refused::Busy(_))));
    drop(updates.take_out(&database(0)).unwrap());
    assert!(matches!(take(&updates, database(1), encode(&rows(0, 50, 1))), Err(Refused::Busy(_))), "they are out");
    updates.folded(&database(0), true);
    take(&updates, database(1), encode(&rows(0, 50, 1))).unwrap();
    assert!(updates.status().journal_bytes > 4000);
    assert!(matches!(take(&updates, database(1), encode(&rows(0, 1, 1))), Err(Refused::Busy(_))), "the journal");
    drop(updates.take_out(&database(1)).unwrap());
    updates.folded(&database(1), true);
    updates.durable_in_databases(updates.mark());
    updates.sync();
    assert_eq!((updates.status().journal_files, updates.status().rows), (0, 0));
    take(&updates, database(1), encode(&rows(0, 1, 1))).unwrap();
    for (rows, why) in [(rows(0, 1001, 1), "too many rows"), (Vec::new(), "without rows")] {
        let refused = take(&updates, database(1), encode(&rows)).unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
    }
}

#[test]
fn a_mark_is_below_all_files_with_rows_that_were_not_folded() {
    let disk = disk(1);
    let updates = open(&disk, config());
    (0..2).for_each(|number| updates.open_database(database(number)));
    for number in 0..2 {
        take(&updates, database(number), encode(&rows(0, 1, 1))).unwrap();
        let _ = updates.mark();
    }
    let files = |updates: &Updates| {
        updates.durable_in_databases(updates.mark());
        updates.sync();
        disk.files().len()
    };
    assert_eq!(files(&updates), 2);
    drop(updates.take_out(&database(0)).unwrap());
    assert_eq!(files(&updates), 2, "out is not folded");
    updates.folded(&database(0), true);
    assert_eq!(files(&updates), 1);
    // What is folded after the mark may not be durable when the mark's databases are.
    let mark = updates.mark();
    drop(updates.take_out(&database(1)).unwrap());
    updates.folded(&database(1), true);
    updates.durable_in_databases(mark);
    updates.sync();
    assert_eq!(disk.files().len(), 1);
    assert_eq!(files(&updates), 0);
    take(&updates, database(1), encode(&rows(0, 1, 1))).unwrap();
    updates.forget(&database(1));
    assert_eq!(files(&updates), 0);
}

struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn directory(name: &str) -> Directory {
    let path = std::env::temp_dir().join(format!("swiftlet-updates-{}-{name}", std::process::id()));
    drop(std::fs::remove_dir_all(&path));
    Directory(path)
}

fn wait_readable(updates: &Updates) {
    let timeout = Timespec { tv_sec: LONG.as_secs() as i64, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(updates, PollFlags::IN)], Some(&timeout)), Ok(1));
}

#[test]
fn threads_append_and_sync_and_the_next_process_has_it() {
    let directory = directory("threads");
    let updates = Updates::open(&directory.0, Config::default()).unwrap();
    assert!(Updates::open(&directory.0, Config::default()).is_err(), "one process at a time");
    updates.open_database(database(0));
    let (tell, told) = std::sync::mpsc::channel();
    for number in 0..100 {
        let tell = tell.clone();
        let taken = move |outcome| tell.send(outcome).unwrap();
        updates.submit(database(0), Box::new(encode(&rows(number, 1, 1))), Box::new(taken));
    }
    let last = (0..100).map(|_| told.recv_timeout(LONG).unwrap().unwrap()).max_by_key(|taken| taken.position).unwrap();
    wait_readable(&updates);
    assert_eq!(updates.due(), [(database(0), false)]);
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&updates.as_fd(), PollFlags::IN)], Some(&none)), Ok(0), "silenced");
    let (tell, told) = std::sync::mpsc::channel();
    updates.wait_durable(last, Box::new(move |outcome| tell.send(outcome).unwrap()));
    assert_eq!(told.recv_timeout(LONG), Ok(Ok(())));
    updates.stop();
    let refused = take(&updates, database(0), encode(&rows(0, 1, 1))).unwrap_err();
    assert!(matches!(refused, Refused::NotTaken(_)), "{refused}");
    updates.stop();
    let again = Updates::open(&directory.0, Config::default()).unwrap();
    wait_readable(&again);
    assert_eq!(again.due(), [(database(0), false)]);
    assert_eq!(held(&again, &database(0)).len(), 100);
    drop(again.take_out(&database(0)).unwrap());
    again.folded(&database(0), true);
    again.durable_in_databases(again.mark());
    again.stop();
    assert_eq!(again.status().journal_files, 0, "stop waits for what was asked before");
}

#[test]
fn a_stop_syncs_what_was_taken() {
    let directory = directory("stop");
    let updates = Updates::open(&directory.0, Config { sync_after: LONG, ..Config::default() }).unwrap();
    updates.open_database(database(0));
    let taken = take(&updates, database(0), encode(&rows(0, 1, 1))).unwrap();
    let answers = ask(&updates, taken);
    updates.stop();
    assert_eq!(*answers.lock().unwrap(), [Ok(())]);
}
