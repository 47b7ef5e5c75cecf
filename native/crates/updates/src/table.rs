//! The rows of a device's databases, and which of these are open to native code. Without I/O: the owner holds a lock
//! around each call, which takes no longer than it takes to merge a message.
//!
//! A row that is in the table is seen by everybody who asks after it: Python takes the rows out and folds them before
//! it does anything else with a database. Rows are merged before they are written into the journal, so a journal's file
//! never has a row that the table did not have at an earlier moment. A database's rows remember the lowest file that may
//! have one of them; `mark` relies on both.
//!
//! Fault model: the caller may ask for anything in any order; limits hold for all databases together. A database that
//! is closed takes no row after `close` has returned.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use crate::database::Database;
use crate::error::Refused;
use crate::merged::Merged;
use crate::row::Rows;

/// What a table may hold, and when it asks to be folded.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Rows of all databases; with more, further ones are refused.
    pub rows: usize,
    /// Bytes of them.
    pub bytes: usize,
    /// A database with so many rows is due at once.
    pub fold_rows: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { rows: 400_000, bytes: 128 << 20, fold_rows: 5000 }
    }
}

/// The rows of a database are out already: who took them has to say what became of them first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutAlready;

impl fmt::Display for OutAlready {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("rows of this database are out for folding already")
    }
}

impl std::error::Error for OutAlready {}

#[derive(Default)]
struct Entry {
    open: bool,
    rows: Merged,
    /// The lowest file that may have one of the rows.
    file: u64,
    out: Option<(Arc<Merged>, u64)>,
    /// Whether it was said that there is a row, and that there are many.
    said: (bool, bool),
}

impl Entry {
    fn is_idle(&self) -> bool {
        !self.open && self.rows.is_empty() && self.out.is_none()
    }

    fn len(&self) -> usize {
        self.rows.len() + self.out.as_ref().map_or(0, |(rows, _)| rows.len())
    }

    fn bytes(&self) -> usize {
        self.rows.bytes() + self.out.as_ref().map_or(0, |(rows, _)| rows.bytes())
    }

    fn lowest_file(&self) -> Option<u64> {
        let held = (!self.rows.is_empty()).then_some(self.file);
        let out = self.out.as_ref().map(|(_, file)| *file);
        held.into_iter().chain(out).min()
    }
}

/// What a table holds, and what became of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
    pub(crate) databases: usize,
    pub(crate) open: usize,
    /// Rows that were taken.
    pub(crate) taken: u64,
    /// Messages about databases that were not open.
    pub(crate) not_taken: u64,
}

pub(crate) struct Table {
    limits: Limits,
    entries: HashMap<Database, Entry>,
    rows: usize,
    bytes: usize,
    due: HashSet<Database>,
    /// Whether more than half of a limit is in use, and all databases were said to be due for it.
    crowded: bool,
    /// The file that rows are written into, and whether any were.
    file: (u64, bool),
    why_closed: Option<String>,
    taken: u64,
    not_taken: u64,
}

impl Table {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            entries: HashMap::new(),
            rows: 0,
            bytes: 0,
            due: HashSet::new(),
            crowded: false,
            file: (0, false),
            why_closed: None,
            taken: 0,
            not_taken: 0,
        }
    }

    /// Do something with a database's entry, and count what it holds anew.
    fn with<T>(&mut self, database: &Database, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let entry = self.entries.get_mut(database)?;
        let (rows, bytes) = (entry.len(), entry.bytes());
        let outcome = change(entry);
        self.rows = self.rows + entry.len() - rows;
        self.bytes = self.bytes + entry.bytes() - bytes;
        if entry.is_idle() {
            self.entries.remove(database);
        }
        self.crowded &= self.is_crowded();
        Some(outcome)
    }

    fn is_crowded(&self) -> bool {
        self.rows > self.limits.rows / 2 || self.bytes > self.limits.bytes / 2
    }

    /// Rows may be taken from now on.
    pub(crate) fn open(&mut self, database: Database) {
        self.entries.entry(database).or_default().open = true;
    }

    /// No row is taken from now on.
    pub(crate) fn close(&mut self, database: &Database) {
        self.with(database, |entry| entry.open = false);
    }

    /// The same for all databases.
    pub(crate) fn close_all(&mut self, why: &str) {
        self.entries.values_mut().for_each(|entry| entry.open = false);
        self.entries.retain(|_, entry| !entry.is_idle());
        self.why_closed = Some(why.to_owned());
    }

    /// Merge the rows of a message, which have been checked: all or none. Returns the file that they are to be written
    /// into.
    pub(crate) fn take(&mut self, database: &Database, rows: &[u8], count: usize) -> Result<u64, Refused> {
        if !self.entries.get(database).is_some_and(|entry| entry.open) {
            self.not_taken += 1;
            let why = self.why_closed.as_deref().unwrap_or("the container is not in its ordinary state here");
            return Err(Refused::NotTaken(format!("rows are taken by Python: {why}")));
        }
        if self.rows + count > self.limits.rows || self.bytes + rows.len() > self.limits.bytes {
            return Err(Refused::Busy("too many rows wait for their databases".to_owned()));
        }
        self.put(database, rows);
        self.file.1 = true;
        self.taken += count as u64;
        Ok(self.file.0)
    }

    /// Merge rows that a file has.
    fn put(&mut self, database: &Database, rows: &[u8]) {
        let (file, fold_rows) = (self.file.0, self.limits.fold_rows);
        let due = self.with(database, |entry| {
            if entry.rows.is_empty() {
                entry.file = file;
            }
            entry.file = entry.file.min(file);
            Rows::new(rows).flatten().for_each(|row| entry.rows.add(&row));
            let said = (!entry.rows.is_empty(), entry.rows.len() >= fold_rows);
            let new = said.0 && !entry.said.0 || said.1 && !entry.said.1;
            entry.said = (entry.said.0 || said.0, entry.said.1 || said.1);
            new
        });
        if due == Some(true) {
            self.due.insert(database.clone());
        }
        if !self.crowded && self.is_crowded() {
            self.crowded = true;
            for (database, entry) in &mut self.entries {
                if !entry.rows.is_empty() && !entry.said.1 {
                    entry.said.1 = true;
                    self.due.insert(database.clone());
                }
            }
        }
    }

    /// Merge the rows of a file that an earlier process has left; the database is not open.
    pub(crate) fn recover(&mut self, database: Database, rows: &[u8], file: u64) {
        self.file = (file, true);
        self.entries.entry(database.clone()).or_default();
        self.put(&database, rows);
    }

    /// Write nothing into this file, nor into lower ones.
    pub(crate) fn leave_file(&mut self, number: u64) {
        self.file = (self.file.0.max(number.saturating_add(1)), false);
    }

    /// Whether rows are in the table or out.
    pub(crate) fn has(&self, database: &Database) -> bool {
        self.entries.get(database).is_some_and(|entry| entry.len() > 0)
    }

    /// Take a database's rows out; None if there are none.
    pub(crate) fn take_out(&mut self, database: &Database) -> Result<Option<Arc<Merged>>, OutAlready> {
        let taken = self.with(database, |entry| {
            if entry.out.is_some() {
                return Err(OutAlready);
            }
            if entry.rows.is_empty() {
                return Ok(None);
            }
            let rows = Arc::new(std::mem::take(&mut entry.rows));
            entry.out = Some((Arc::clone(&rows), entry.file));
            entry.said = (false, false);
            Ok(Some(rows))
        });
        if matches!(taken, Some(Ok(Some(_)))) {
            self.due.remove(database);
        }
        taken.unwrap_or(Ok(None))
    }

    /// The rows that were taken out were merged into the database, or are put back. Returns them if they were merged:
    /// the caller drops them when it holds no lock.
    pub(crate) fn folded(&mut self, database: &Database, merged: bool) -> Option<Arc<Merged>> {
        let fold_rows = self.limits.fold_rows;
        self.with(database, |entry| {
            let (rows, file) = entry.out.take()?;
            if merged {
                return Some(rows);
            }
            entry.file = if entry.rows.is_empty() { file } else { entry.file.min(file) };
            entry.rows = std::mem::take(&mut entry.rows).with(Arc::unwrap_or_clone(rows));
            // Who puts back comes again by itself: the rows were due before.
            entry.said = (true, entry.said.1 || entry.rows.len() >= fold_rows);
            None
        })
        .flatten()
    }

    /// Forget a database and its rows.
    pub(crate) fn forget(&mut self, database: &Database) {
        self.with(database, |entry| *entry = Entry::default());
        self.due.remove(database);
    }

    /// All databases with rows.
    pub(crate) fn databases(&self) -> Vec<Database> {
        let held = self.entries.iter().filter(|(_, entry)| entry.len() > 0);
        held.map(|(database, _)| database.clone()).collect()
    }

    /// Databases that got their first row or very many since the last call, and whether they have very many.
    pub(crate) fn due(&mut self) -> Vec<(Database, bool)> {
        let due = std::mem::take(&mut self.due).into_iter();
        due.filter_map(|database| {
            let many = self.entries.get(&database)?.said.1;
            Some((database, many))
        })
        .collect()
    }

    /// Whether anything is due.
    pub(crate) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Begin a new file, unless the present one is empty, and return a number: lower files have only rows that were
    /// folded or forgotten.
    pub(crate) fn mark(&mut self) -> u64 {
        if self.file.1 {
            self.file = (self.file.0 + 1, false);
        }
        self.entries.values().filter_map(Entry::lowest_file).fold(self.file.0, u64::min)
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            rows: self.rows,
            bytes: self.bytes,
            databases: self.entries.values().filter(|entry| entry.len() > 0).count(),
            open: self.entries.values().filter(|entry| entry.open).count(),
            taken: self.taken,
            not_taken: self.not_taken,
        }
    }
}
