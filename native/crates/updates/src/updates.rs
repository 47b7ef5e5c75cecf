//! The updates of one device: the table, the journal, their threads.
//!
//! One thread appends: it takes all messages that wait, merges their rows into the table, and writes them with one
//! write. Another one syncs, so that taking does not wait for the disk. Whoever brings a message, an I/O thread of the
//! transport, waits for neither.
//!
//! Fault model: a device may hang: messages then wait up to limits, and further ones are refused. The journal can't be
//! written because there is no space: all databases are closed to native code until Python opens them again; what was
//! appended before is synced as ever. A write or sync fails otherwise, or a thread panics: nothing is taken any more,
//! and who waits for something to be durable is told that it will not be. Rows whose write has failed stay in the
//! table and are folded, for objects of them are stored; they were just not promised to anybody.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use swiftlet_store::disk::{Disk, RealDisk};

use crate::database::Database;
use crate::error::Refused;
use crate::journal::Journal;
use crate::merged::Merged;
use crate::recover::recover;
use crate::row::count_rows;
pub use crate::syncs::Durable;
use crate::syncs::Syncs;
use crate::table::{Limits, OutAlready, Table};

/// Messages that wait for the thread that appends.
const MAX_QUEUED: usize = 1024;
/// Bytes of their rows.
const MAX_QUEUED_BYTES: usize = 16 << 20;
/// Messages of one write.
const MAX_AT_ONCE: usize = 256;
/// Bytes after which rows go into another file, so that files can go one by one.
const FILE_BYTES: u64 = 32 << 20;

/// How a device's updates behave.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Of the table.
    pub limits: Limits,
    /// Bytes of all files; with more, rows are refused until files may go.
    pub journal_bytes: u64,
    /// For so long rows gather until they are synced.
    pub sync_after: Duration,
    /// Whether threads append and sync; without them the owner calls `append_queued` and `sync`.
    pub threads: bool,
}

impl Default for Config {
    fn default() -> Self {
        let sync_after = Duration::from_millis(50);
        Self { limits: Limits::default(), journal_bytes: 256 << 20, sync_after, threads: true }
    }
}

/// The answer to rows that were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Which start of the process took them.
    pub incarnation: u64,
    /// They are durable when the journal is synced up to here.
    pub position: u64,
}

/// Rows of a message, in memory of anybody.
pub type Body = Box<dyn AsRef<[u8]> + Send + Sync>;
/// Called once, from the thread that appends or the one that submits.
pub type TakenBy = Box<dyn FnOnce(Result<Taken, Refused>) + Send>;

struct Message {
    database: Database,
    rows: Body,
    count: usize,
    taken: TakenBy,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Message>,
    bytes: usize,
    closed: bool,
}

/// What there is, and what became of messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Rows in the table, or out for folding.
    pub rows: usize,
    /// Bytes of them.
    pub bytes: usize,
    /// Databases with rows.
    pub databases: usize,
    /// Databases that are open to native code.
    pub open: usize,
    /// Files of the journal.
    pub journal_files: usize,
    /// Bytes in them.
    pub journal_bytes: u64,
    /// Rows that were taken.
    pub taken: u64,
    /// Messages that were refused because of limits or a device without space.
    pub refused: u64,
    /// Messages that are Python's.
    pub not_taken: u64,
    /// Why nothing is taken any more, if it is so.
    pub failed: Option<String>,
}

struct Inner {
    disk: Arc<dyn Disk>,
    config: Config,
    incarnation: u64,
    table: Mutex<Table>,
    journal: Mutex<Journal>,
    syncs: Syncs,
    queue: Mutex<Queue>,
    queued: Condvar,
    refused: Mutex<u64>,
    ready: OwnedFd,
}

/// The updates of one device. Calls of its methods return at once, but `stop`, which ends the threads; so does a drop.
pub struct Updates {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panics with one of these locks ends the use of the device, see `guarded`.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    fn notify(&self) {
        // It can only fail when the counter is full, and then the descriptor is readable anyway.
        let _ = rustix::io::write(&self.ready, &1_u64.to_ne_bytes());
    }

    /// Do something with the table, and say so if databases have become due.
    fn with_table<T>(&self, work: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = lock(&self.table);
        let before = table.is_due();
        let outcome = work(&mut table);
        let due = !before && table.is_due();
        drop(table);
        if due {
            self.notify();
        }
        outcome
    }

    fn fail(&self, why: &str) {
        self.syncs.fail(why);
        lock(&self.table).close_all(why);
        self.notify();
    }

    /// Run one of the threads' work; a panic is a failure of the device.
    fn guarded(&self, what: &str, work: impl FnOnce() -> Result<(), String>) {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => {}
            Ok(Err(why)) => self.fail(&why),
            Err(_) => self.fail(&format!("the thread that {what} has panicked")),
        }
    }

    fn refuse(&self, refused: Refused) -> Refused {
        if matches!(refused, Refused::Busy(_) | Refused::DiskFull(_) | Refused::DeviceFailed(_)) {
            *lock(&self.refused) += 1;
        }
        refused
    }

    /// Merge a message's rows into the table; returns the file for them.
    fn merge(&self, message: &Message) -> Result<u64, Refused> {
        if let Some(why) = self.syncs.failed() {
            return Err(Refused::DeviceFailed(why));
        }
        if self.syncs.size().1 >= self.config.journal_bytes {
            return Err(Refused::Busy("the journal of updates is full".to_owned()));
        }
        self.with_table(|table| table.take(&message.database, (*message.rows).as_ref(), message.count))
    }

    /// Merge, append and answer these messages.
    fn append(&self, messages: Vec<Message>) {
        let (mut merged, mut number) = (Vec::with_capacity(messages.len()), 0);
        for message in messages {
            match self.merge(&message) {
                Ok(file) => {
                    number = file;
                    merged.push(message);
                }
                Err(refused) => (message.taken)(Err(self.refuse(refused))),
            }
        }
        if merged.is_empty() {
            return;
        }
        let outcome = self.write(number, &merged);
        for message in merged {
            (message.taken)(outcome.clone().map_err(|refused| self.refuse(refused)));
        }
    }

    fn write(&self, number: u64, messages: &[Message]) -> Result<Taken, Refused> {
        let rows: Vec<_> = messages.iter().map(|message| (&message.database, (*message.rows).as_ref())).collect();
        let outcome = lock(&self.journal).append(number, &rows);
        match outcome {
            Ok(appended) => {
                self.disk.reach("updates-appended");
                if appended.size >= FILE_BYTES {
                    lock(&self.table).leave_file(number);
                }
                Ok(Taken { incarnation: self.incarnation, position: self.syncs.appended(appended) })
            }
            Err(error) => {
                let refused = Refused::of_io(&error, "write the journal of updates");
                self.syncs.torn(number);
                let mut table = lock(&self.table);
                table.leave_file(number);
                table.close_all(&refused.to_string());
                drop(table);
                if let Refused::DeviceFailed(why) = &refused {
                    self.fail(why);
                }
                Err(refused)
            }
        }
    }

    /// Some messages of the queue; none when there are none and it is closed, or when `wait` is false.
    fn next(&self, wait: bool) -> Vec<Message> {
        let mut queue = lock(&self.queue);
        while wait && queue.messages.is_empty() && !queue.closed {
            queue = self.queued.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        let count = queue.messages.len().min(MAX_AT_ONCE);
        let messages: Vec<_> = queue.messages.drain(..count).collect();
        queue.bytes -= messages.iter().map(|message| (*message.rows).as_ref().len()).sum::<usize>();
        messages
    }

    /// The thread that appends: until the queue is closed, or a panic.
    fn appender(&self) {
        self.guarded("appends updates", || {
            self.append_all(true);
            Ok(())
        });
        let mut queue = lock(&self.queue);
        queue.closed = true;
        let left = std::mem::take(&mut queue.messages);
        drop(queue);
        drop(left); // and with them their callers' duty to answer, which says so
    }

    /// The thread that syncs.
    fn syncer(&self) {
        self.guarded("syncs updates", || self.syncs.work());
    }

    fn append_all(&self, wait: bool) {
        loop {
            let messages = self.next(wait);
            if messages.is_empty() {
                return;
            }
            self.append(messages);
        }
    }
}

impl Updates {
    /// Of this directory, which is made if there is none: its files are read, and their rows are in the table.
    ///
    /// # Errors
    /// The directory can't be used, another process uses it, a file is of another version, or the system has no
    /// descriptor or thread left.
    pub fn open(directory: &Path, config: Config) -> io::Result<Self> {
        match std::fs::create_dir(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // Without its own name nothing in it is durable; the process that made it may have died before this.
        if let Some(parent) = directory.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            std::fs::File::open(parent)?.sync_all()?;
        }
        let disk = RealDisk::open(directory).map_err(io::Error::other)?;
        Self::open_disk(disk, config)
    }

    /// Of another disk.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_disk(disk: Arc<dyn Disk>, config: Config) -> io::Result<Self> {
        let mut table = Table::new(config.limits);
        let files = recover(&disk, &mut table)?;
        let incarnation = getrandom::u64().map_err(io::Error::other)?;
        let inner = Arc::new(Inner {
            journal: Mutex::new(Journal::new(Arc::clone(&disk), incarnation)),
            syncs: Syncs::new(Arc::clone(&disk), config.sync_after, files),
            ready: eventfd(u32::from(table.is_due()), EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
            disk,
            config,
            incarnation,
            table: Mutex::new(table),
            queue: Mutex::default(),
            queued: Condvar::new(),
            refused: Mutex::new(0),
        });
        let updates = Self { inner, threads: Mutex::default() };
        if config.threads {
            updates.spawn("updates-append", Inner::appender)?;
            updates.spawn("updates-sync", Inner::syncer)?;
        }
        Ok(updates)
    }

    fn spawn(&self, name: &str, work: fn(&Inner)) -> io::Result<()> {
        let inner = Arc::clone(&self.inner);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || work(&inner))?;
        lock(&self.threads).push(thread);
        Ok(())
    }

    /// Take the rows of a message, if its database is open then.
    pub fn submit(&self, database: Database, rows: Body, taken: TakenBy) {
        let bytes = (*rows).as_ref().len();
        let count = match count_rows((*rows).as_ref()) {
            Ok(count) => count,
            Err(refused) => return taken(Err(refused)),
        };
        let failed = self.inner.syncs.failed();
        let mut queue = lock(&self.inner.queue);
        let refused = if let Some(why) = failed {
            Refused::DeviceFailed(why)
        } else if queue.closed {
            Refused::NotTaken("the server is stopping".to_owned())
        } else if queue.messages.len() >= MAX_QUEUED || queue.bytes + bytes > MAX_QUEUED_BYTES {
            Refused::Busy("too many rows wait to be written".to_owned())
        } else {
            queue.messages.push_back(Message { database, rows, count, taken });
            queue.bytes += bytes;
            drop(queue);
            self.inner.queued.notify_one();
            return;
        };
        drop(queue);
        taken(Err(self.inner.refuse(refused)));
    }

    /// Call when what was taken is durable, or is not known to become it.
    pub fn wait_durable(&self, taken: Taken, durable: Durable) {
        if taken.incarnation == self.inner.incarnation {
            self.inner.syncs.wait(taken.position, durable);
        } else {
            let why = "another start of the server took them; whether they are durable is not known";
            durable(Err(Refused::NotTaken(why.to_owned())));
        }
    }

    /// Rows of this database may be taken from now on; nothing is once the device has failed.
    pub fn open_database(&self, database: Database) {
        let mut table = lock(&self.inner.table);
        // Under the lock: who fails the device closes all databases after that.
        if self.inner.syncs.failed().is_none() {
            table.open(database);
        }
    }

    /// No row of this database is taken after the return.
    pub fn close_database(&self, database: &Database) {
        lock(&self.inner.table).close(database);
    }

    /// The same for all databases, for this reason.
    pub fn close_all(&self, why: &str) {
        lock(&self.inner.table).close_all(why);
    }

    /// Whether rows of this database are in the table, or out for folding.
    #[must_use]
    pub fn has(&self, database: &Database) -> bool {
        lock(&self.inner.table).has(database)
    }

    /// Take a database's rows out, for folding; None if there are none.
    ///
    /// # Errors
    /// They are out already.
    pub fn take_out(&self, database: &Database) -> Result<Option<Arc<Merged>>, OutAlready> {
        lock(&self.inner.table).take_out(database)
    }

    /// What was taken out was merged into the database, or is put back. Put back, it is due only with many further rows.
    pub fn folded(&self, database: &Database, merged: bool) {
        let rows = lock(&self.inner.table).folded(database, merged);
        drop(rows); // without the lock
    }

    /// Forget a database and its rows.
    pub fn forget(&self, database: &Database) {
        lock(&self.inner.table).forget(database);
    }

    /// All databases with rows, also with rows that are out.
    #[must_use]
    pub fn databases(&self) -> Vec<Database> {
        lock(&self.inner.table).databases()
    }

    /// Databases that got their first row or very many since the last call and have them still, and whether they have
    /// very many.
    #[must_use]
    pub fn due(&self) -> Vec<(Database, bool)> {
        let mut counter = [0; 8];
        // Read before the table is looked at: what comes between makes it readable again.
        let _ = rustix::io::read(&self.inner.ready, &mut counter);
        lock(&self.inner.table).due()
    }

    /// A number: lower files have only rows that were folded before, or whose database was forgotten.
    #[must_use]
    pub fn mark(&self) -> u64 {
        lock(&self.inner.table).mark()
    }

    /// What was folded before this mark is durable in the databases by now: lower files go, soon.
    pub fn durable_in_databases(&self, mark: u64) {
        self.inner.syncs.remove_below(mark);
    }

    /// Why nothing is taken any more, if it is so.
    #[must_use]
    pub fn failed(&self) -> Option<String> {
        self.inner.syncs.failed()
    }

    /// What there is.
    #[must_use]
    pub fn status(&self) -> Status {
        let counts = lock(&self.inner.table).counts();
        let (journal_files, journal_bytes) = self.inner.syncs.size();
        Status {
            rows: counts.rows,
            bytes: counts.bytes,
            databases: counts.databases,
            open: counts.open,
            journal_files,
            journal_bytes,
            taken: counts.taken,
            refused: *lock(&self.inner.refused),
            not_taken: counts.not_taken,
            failed: self.failed(),
        }
    }

    /// Append the messages that wait, as the thread does.
    pub fn append_queued(&self) {
        self.inner.append_all(false);
    }

    /// Do a round of syncs, as the thread does.
    pub fn sync(&self) {
        self.inner.guarded("syncs updates", || self.inner.syncs.round());
    }

    /// Append and sync what was submitted, end the threads, and let another process use the directory. The table stays.
    pub fn stop(&self) {
        let threads = std::mem::take(&mut *lock(&self.threads));
        lock(&self.inner.queue).closed = true;
        self.inner.queued.notify_all();
        // The thread that appends is the first: it ends before the other one's last sync. A panic is no news here.
        for thread in threads {
            drop(thread.join());
            self.inner.syncs.stop();
        }
        self.inner.disk.release();
    }
}

impl AsFd for Updates {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.ready.as_fd()
    }
}

impl Drop for Updates {
    fn drop(&mut self) {
        self.stop();
    }
}
