//! What of the journal is durable, who waits for it, and which files may go.
//!
//! Rows of all databases are synced together, so long after the first of them as `Config::sync_after` says.
//!
//! Invariants: a position is durable when all that was appended up to it was synced, together with the names of its
//! files. Each caller who waits is called exactly once.
//!
//! Fault model: a sync may fail, and after that nobody knows what is on the disk, even if a later one succeeds. So the
//! first failure is for good: what was not durable never becomes it, and nothing more is appended. A file that can't
//! be removed is tried again with the next round; its rows are merged once more after a start, which changes nothing.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use swiftlet_store::disk::{Disk, File};

use crate::error::Refused;
use crate::journal::Appended;
use crate::record::file_name;

/// Callers who wait for their rows to be durable; a front has one for each batch of rows that is being synced.
const MAX_WAITING: usize = 4096;

/// Called once, with whether the rows are durable.
pub type Durable = Box<dyn FnOnce(Result<(), Refused>) + Send>;

#[derive(Default)]
struct State {
    /// Bytes appended and synced by this process.
    appended: u64,
    synced: u64,
    /// Files with bytes that were not synced.
    dirty: BTreeMap<u64, Arc<dyn File>>,
    dirty_since: Option<Instant>,
    /// Whether a file's name is not durable.
    new_names: bool,
    waiting: Vec<(u64, Durable)>,
    /// All files, and their sizes.
    files: BTreeMap<u64, u64>,
    /// Lower ones are to be removed.
    removed_below: u64,
    removing: bool,
    failed: Option<String>,
    stopped: bool,
}

/// The syncs of one journal.
pub(crate) struct Syncs {
    disk: Arc<dyn Disk>,
    after: Duration,
    state: Mutex<State>,
    woken: Condvar,
}

impl Syncs {
    pub(crate) fn new(disk: Arc<dyn Disk>, after: Duration, files: BTreeMap<u64, u64>) -> Self {
        Self { disk, after, state: Mutex::new(State { files, ..State::default() }), woken: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Note what was appended, and return its position.
    pub(crate) fn appended(&self, appended: Appended) -> u64 {
        let mut state = self.lock();
        state.appended += appended.bytes;
        state.new_names |= state.files.insert(appended.number, appended.size).is_none();
        state.dirty.insert(appended.number, appended.file);
        let position = state.appended;
        if state.dirty_since.is_none() {
            state.dirty_since = Some(Instant::now());
            drop(state);
            self.woken.notify_all();
        }
        position
    }

    /// Note a file that may be there, with nothing in it that counts.
    pub(crate) fn torn(&self, number: u64) {
        self.lock().files.entry(number).or_insert(0);
    }

    /// Call when the position is durable, or never will be.
    pub(crate) fn wait(&self, position: u64, durable: Durable) {
        let mut state = self.lock();
        let outcome = if position <= state.synced {
            Ok(())
        } else if position > state.appended {
            Err(Refused::Malformed("a position that was not given to anybody"))
        } else if let Some(why) = &state.failed {
            Err(Refused::DeviceFailed(why.clone()))
        } else if state.stopped {
            Err(Refused::NotTaken("the server is stopping".to_owned()))
        } else if state.waiting.len() >= MAX_WAITING {
            Err(Refused::Busy("too many wait for their rows to be durable".to_owned()))
        } else {
            state.waiting.push((position, durable));
            return;
        };
        drop(state);
        durable(outcome);
    }

    /// Remove files below this one, soon.
    pub(crate) fn remove_below(&self, number: u64) {
        let mut state = self.lock();
        state.removed_below = state.removed_below.max(number);
        state.removing = true;
        drop(state);
        self.woken.notify_all();
    }

    /// Nothing more is appended or durable, for this reason.
    pub(crate) fn fail(&self, why: &str) {
        let mut state = self.lock();
        state.failed.get_or_insert_with(|| why.to_owned());
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for (_, durable) in waiting {
            durable(Err(Refused::DeviceFailed(why.to_owned())));
        }
    }

    /// Why nothing is taken any more, if it is so.
    pub(crate) fn failed(&self) -> Option<String> {
        self.lock().failed.clone()
    }

    /// Files, and their bytes.
    pub(crate) fn size(&self) -> (usize, u64) {
        let state = self.lock();
        (state.files.len(), state.files.values().sum())
    }

    /// Sync what was appended so far, tell those who waited for it, and remove what may go. An error is a failed sync.
    pub(crate) fn round(&self) -> Result<(), String> {
        let mut state = self.lock();
        let (upto, new_names) = (state.appended, std::mem::take(&mut state.new_names));
        let dirty = std::mem::take(&mut state.dirty);
        state.dirty_since = None;
        let failed = state.failed.is_some();
        drop(state);
        if !failed {
            self.sync(&dirty, new_names).map_err(|error| format!("sync the journal of updates: {error}"))?;
            self.synced(upto);
        }
        self.remove();
        Ok(())
    }

    fn sync(&self, dirty: &BTreeMap<u64, Arc<dyn File>>, new_names: bool) -> io::Result<()> {
        for file in dirty.values() {
            file.sync()?;
        }
        if new_names { self.disk.sync_directory("") } else { Ok(()) }
    }

    fn synced(&self, upto: u64) {
        let mut state = self.lock();
        // It may have failed meanwhile: then they were told.
        state.synced = state.synced.max(upto);
        let (durable, waiting) = std::mem::take(&mut state.waiting).into_iter().partition(|(at, _)| *at <= upto);
        state.waiting = waiting;
        drop(state);
        for (_, durable) in durable {
            durable(Ok(()));
        }
    }

    fn remove(&self) {
        let mut state = self.lock();
        state.removing = false;
        let below = state.removed_below;
        let numbers: Vec<u64> = state.files.range(..below).map(|(number, _)| *number).collect();
        drop(state);
        for number in numbers {
            match self.disk.unlink(&file_name(number)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {}
                _ => {
                    self.lock().files.remove(&number);
                }
            }
        }
    }

    /// Do rounds until `stop` is called; returns the reason after a sync that has failed.
    pub(crate) fn work(&self) -> Result<(), String> {
        loop {
            let mut state = self.lock();
            loop {
                let until = state.dirty_since.map(|since| since + self.after);
                let now = Instant::now();
                if state.stopped || state.removing || until.is_some_and(|until| until <= now) {
                    break;
                }
                state = match until {
                    None => self.woken.wait(state).unwrap_or_else(PoisonError::into_inner),
                    Some(until) => {
                        self.woken.wait_timeout(state, until - now).unwrap_or_else(PoisonError::into_inner).0
                    }
                };
            }
            let stopped = state.stopped;
            drop(state);
            self.round()?;
            if stopped {
                return Ok(());
            }
        }
    }

    /// End `work`, after a last round. The caller has seen to it that nothing more is appended.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.woken.notify_all();
    }
}
