//! Group commit: all waiting requests become one batch, one write and one sync; then the index changes, and then they
//! are answered.
//!
//! Decisions are made here, one batch at a time, against an index that holds exactly what is durable. A batch has at
//! most one record of an object: further requests for it wait for the next batch. So no decision depends on anything
//! that a crash could undo.

use std::io::IoSlice;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use swiftlet_fragments::packs::table::Table;
use swiftlet_fragments::slot::Change;

use crate::deciding::{MARK, Plan, decide, unchanged};
use crate::error::{Error, Result};
use crate::index::numbered;
use crate::inner::{Inner, Log};
use crate::model::Key;
use crate::queue::{Given, Op, Pending, Reply};
use crate::record::{self, BLOCK, HEADER, Header, Kind, Place};
use crate::room::{self, Room};
use crate::volume::Volume;

/// Mark the last batch if nothing has followed it since the last call: damage to it then can't be mistaken for a write
/// that was never finished.
pub(crate) fn mark_if_idle(inner: &Inner) -> Result<()> {
    let idle = {
        let mut log = inner.log.lock().unwrap_or_else(PoisonError::into_inner);
        let next = log.sequence;
        std::mem::replace(&mut log.seen, next) == next && log.proven < next
    };
    if idle { mark(inner) } else { Ok(()) }
}

/// Mark the last batch, unless it is a mark itself.
pub(crate) fn mark(inner: &Inner) -> Result<()> {
    match ask(inner, MARK, Op::Mark) {
        // It proves what is there, and needs no room that there is not.
        Err(Error::DiskFull(_)) => Ok(()),
        other => other.map(|_| ()),
    }
}

struct Record {
    header: Header,
    raw: [u8; HEADER],
    metadata: Vec<u8>,
    data: Vec<u8>,
    change: Option<Box<Change>>,
    table: Option<Table>,
    answer: Result<Given>,
    reply: Reply,
}

/// Commit what waits; returns false when nothing did.
pub(crate) fn commit_pending(inner: &Inner) -> bool {
    let mut log = inner.log.lock().unwrap_or_else(PoisonError::into_inner);
    let taken = inner.queue.take();
    if taken.is_empty() {
        return false;
    }
    let mut answered: Vec<(Reply, Result<Given>)> = Vec::new();
    let mut records = Vec::new();
    let mut trash = Vec::new();
    for Pending { key, op, reply } in taken {
        let own_file = op.large();
        let decided = match op {
            Op::Mark if log.proven == log.sequence => Ok(unchanged()),
            op => inner.device.check().and_then(|()| decide(inner, key, op)),
        };
        match decided {
            Ok(Plan::Write { header, metadata, data, change, answer }) => {
                records.push(Record { header, raw: [0; HEADER], metadata, data, change, table: None, answer, reply });
            }
            Ok(Plan::Refer { header, metadata, table, answer }) => {
                let (raw, data, table) = ([0; HEADER], Vec::new(), Some(table));
                records.push(Record { header, raw, metadata, data, change: None, table, answer, reply });
            }
            Ok(Plan::Answer(answer)) => {
                trash.push(own_file);
                answered.push((reply, answer));
            }
            Err(error) => {
                trash.push(own_file);
                answered.push((reply, Err(error)));
            }
        }
    }
    inner.device.disk.reach("batch-decided");
    if !records.is_empty() {
        let began = Instant::now();
        match write(inner, &mut log, &mut records) {
            Ok(volume) => {
                inner.queue.committed(records.len(), began.elapsed());
                apply(inner, &records, &volume, &mut trash);
                inner.device.disk.reach("batch-applied");
                answered.extend(records.into_iter().map(|record| (record.reply, record.answer)));
            }
            Err(error) => {
                trash.extend(records.iter().map(|record| record.header.large));
                answered.extend(records.into_iter().map(|record| (record.reply, Err(error.clone()))));
            }
        }
    }
    drop(log);
    let mut answer_all = || answered.drain(..).for_each(|(reply, answer)| reply.give(answer));
    match inner.answering.get() {
        Some(answering) => answering(&mut answer_all),
        None => answer_all(),
    }
    inner.remove_large(&trash);
    true
}

/// Write records to the device; all of them are durable, or none counts.
fn write(inner: &Inner, log: &mut Log, records: &mut [Record]) -> Result<Arc<Volume>> {
    for record in records.iter_mut() {
        record.header.metadata_len = record.metadata.len() as u32;
        record.header.metadata_xxh3 = swiftlet_hash::xxh3_64(&record.metadata);
    }
    let need: u64 = records.iter().map(|record| record.header.record_len()).sum();
    let volume = volume_for(inner, log, need)?;
    append(inner, log, &volume, records)?;
    Ok(volume)
}

/// Append one batch to a volume.
fn append(inner: &Inner, log: &mut Log, volume: &Volume, records: &mut [Record]) -> Result<()> {
    let start = volume.end.load(Ordering::Relaxed).next_multiple_of(BLOCK);
    let mut end = start;
    for (number, record) in (log.sequence..).zip(records.iter_mut()) {
        record.header.sequence = number;
        record.header.batch = log.sequence;
        record.header.place = Place::new(volume.id, end);
        record.raw = record.header.pack(&inner.device.id);
        end += record.header.record_len();
    }
    let outcome = write_records(inner, log, volume, (start, end), records).and_then(|()| {
        inner.device.disk.reach("batch-written");
        inner.device.sync(&*volume.file)
    });
    if let Err(error) = outcome {
        log.active = None;
        // After "no space" the device lives on: nothing of this batch may be found later.
        if let Err(error) = inner.volumes.seal(&inner.device, volume) {
            inner.device.fail(&error.to_string());
        }
        return Err(error);
    }
    inner.device.disk.reach("batch-synced");
    let marks = records.iter().all(|record| record.header.key == MARK);
    log.proven = log.sequence;
    log.sequence += records.len() as u64;
    if marks {
        log.proven = log.sequence;
    } else {
        inner.counters.batches.fetch_add(1, Ordering::Relaxed);
    }
    volume.end.store(end, Ordering::Release);
    Ok(())
}

/// Append a mark to the last batch of a full volume, as no other batch follows it.
fn end_with_mark(inner: &Inner, log: &mut Log, volume: &Volume) -> Result<()> {
    if log.proven == log.sequence {
        return Ok(());
    }
    let header = Header::new(Kind::Forget, MARK, 0);
    let (metadata, data, answer) = (Vec::new(), Vec::new(), Ok(Given::Changed(true)));
    let reply = Reply::Done(Box::new(drop));
    let raw = [0; HEADER];
    let mut mark = [Record { header, raw, metadata, data, change: None, table: None, answer, reply }];
    match append(inner, log, volume, &mut mark) {
        Ok(()) => {
            inner.device.disk.reach("volume-marked");
            apply(inner, &mark, volume, &mut Vec::new());
            Ok(())
        }
        Err(Error::DiskFull(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Write a batch's records where they belong. A large batch passes the page cache if that is possible: its pages would
/// cost more than the disk.
fn write_records(
    inner: &Inner,
    log: &mut Log,
    volume: &Volume,
    (start, end): (u64, u64),
    records: &[Record],
) -> Result<()> {
    const ZEROS: [u8; record::ALIGN as usize] = [0; record::ALIGN as usize];
    let filled = |record: &Record| (record.header.record_len() - record.header.used_len()) as usize;
    if !volume.file.is_direct() {
        let mut parts = Vec::with_capacity(records.len() * 4);
        for record in records {
            parts.push(IoSlice::new(&record.raw));
            parts.push(IoSlice::new(&record.metadata));
            parts.push(IoSlice::new(&record.data));
            parts.push(IoSlice::new(&ZEROS[..filled(record)]));
        }
        return inner.device.io("write a batch", volume.file.write_at(&parts, start));
    }
    let Log { room, blocks, .. } = log;
    let end = end.next_multiple_of(BLOCK);
    room.grow(&inner.device, volume, end, inner.config.volume_bytes)?;
    let zeros = room.zeros(start, end);
    blocks.begin((end - start + zeros) as usize);
    for record in records {
        blocks.push(&record.raw);
        blocks.push(&record.metadata);
        blocks.push(&record.data);
        blocks.zeros(filled(record));
    }
    blocks.fill();
    blocks.zeros(zeros as usize);
    let (batch, ahead) = blocks.split_at((end - start) as usize);
    if room::is_large(start, end) {
        inner.device.io("write a batch", volume.file.write_blocks(batch, start))?;
    } else {
        // Whole blocks, so that nothing has to be read for them. What is small is soon read again.
        inner.device.io("write zeros ahead", volume.file.write_blocks(ahead, end))?;
        inner.device.io("write a batch", volume.file.write_at(&[IoSlice::new(batch)], start))?;
    }
    room.wrote(end + zeros);
    Ok(())
}

/// The active volume, or a new one when so many more bytes do not fit.
fn volume_for(inner: &Inner, log: &mut Log, need: u64) -> Result<Arc<Volume>> {
    let size = inner.config.volume_bytes;
    if let Some(volume) = log.active.clone() {
        if volume.end.load(Ordering::Relaxed).next_multiple_of(BLOCK) + need <= size {
            return Ok(volume);
        }
        end_with_mark(inner, log, &volume)?;
        inner.volumes.seal(&inner.device, &volume)?;
        log.active = None;
    }
    let made = match inner.volumes.create(&inner.device, false, size.max(BLOCK + need)) {
        // What is left may still do for what makes room.
        Err(Error::DiskFull(_)) => inner.volumes.create(&inner.device, false, BLOCK + need)?,
        other => other?,
    };
    log.room = Room::of(&inner.device, &made)?;
    log.active = Some(Arc::clone(&made));
    Ok(made)
}

fn apply(inner: &Inner, records: &[Record], volume: &Volume, trash: &mut Vec<u64>) {
    for record in records {
        let header = &record.header;
        let applied = match &record.table {
            Some(table) => inner.index.apply_table(header, numbered(&table.references), |_| true),
            None => inner.index.apply(header, record.change.as_deref()),
        };
        inner.pending.note(header);
        if applied.held {
            inner.volumes.hold(header.place, (header.record_len() / record::ALIGN) as u32);
        } else if header.kind == Kind::Forget {
            volume.forgets.fetch_add(header.record_len(), Ordering::Relaxed);
        }
        for (place, units) in applied.freed {
            inner.volumes.free(place, units);
        }
        trash.extend(applied.unlink);
    }
    inner.tail.fetch_add(records.iter().map(|record| record.header.record_len()).sum(), Ordering::Relaxed);
}

/// One answer, from the committing thread to the waiting one.
struct Answer<T> {
    value: Mutex<Option<Result<T>>>,
    given: Condvar,
}

impl<T> Default for Answer<T> {
    fn default() -> Self {
        Self { value: Mutex::new(None), given: Condvar::new() }
    }
}

impl<T> Answer<T> {
    fn give(&self, value: Result<T>) {
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        self.given.notify_one();
    }

    fn take(&self) -> Option<Result<T>> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn wait(&self) -> Result<T> {
        let mut value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(value) = value.take() {
                return value;
            }
            value = self.given.wait(value).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Submit a request and wait for the answer.
pub(crate) fn ask(inner: &Inner, key: Key, op: Op) -> Result<bool> {
    wait(inner, |done| inner.queue.push(key, op, done))
}

/// Wait for the answer to what `submit` submits.
pub(crate) fn wait<T: Send + 'static>(
    inner: &Inner,
    submit: impl FnOnce(Box<dyn FnOnce(Result<T>) + Send>),
) -> Result<T> {
    let answer = Arc::new(Answer::default());
    let given = Arc::clone(&answer);
    submit(Box::new(move |value| given.give(value)));
    answer_of(inner, &answer)
}

/// Submit several requests at once, so that they share batches; returns how many of them were done.
pub(crate) fn ask_all(inner: &Inner, asked: impl Iterator<Item = (Key, Op)>) -> Result<u64> {
    let answers: Vec<Arc<Answer<bool>>> = asked
        .map(|(key, op)| {
            let answer = Arc::new(Answer::default());
            let given = Arc::clone(&answer);
            inner.queue.push(key, op, Box::new(move |value| given.give(value)));
            answer
        })
        .collect();
    // All are waited for, so that nothing is under way any more after the first error.
    let outcomes: Vec<Result<bool>> = answers.iter().map(|answer| answer_of(inner, answer)).collect();
    outcomes.into_iter().try_fold(0, |done, outcome| Ok(done + u64::from(outcome?)))
}

fn answer_of<T>(inner: &Inner, answer: &Answer<T>) -> Result<T> {
    if inner.config.threads {
        return answer.wait();
    }
    loop {
        if let Some(value) = answer.take() {
            return value;
        }
        if !commit_pending(inner) {
            // Another thread has taken it into its batch.
            return answer.wait();
        }
    }
}
