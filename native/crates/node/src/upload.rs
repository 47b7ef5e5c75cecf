//! A PUT whose body comes in chunks: hashed and written by the device's threads, in order, one job at a time.
//!
//! Fault model: the sender may die at any byte, or send nothing until the deadline; the device may fail or fill up in
//! the middle. Without a matching footer nothing is kept: the store's writer removes what it has. A chunk's memory is
//! released when it is written, so a slow disk slows the sender down by the transport's window.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use swiftlet_store::model::{Footer, Key, PutMeta};
use swiftlet_store::{Error, Store, Writer};
use swiftlet_transport::{Chunk, Error as TransportError, Receiver};

use crate::device::{Device, Permit};
use crate::message::decode_footer;
use crate::plain::is_etag;
use crate::reply::Reply;
use crate::status::{Refusal, Status};
use crate::written::{AcceptedWrite, answer_written};

/// The request.
pub(crate) struct Asked {
    pub(crate) key: Key,
    pub(crate) meta: PutMeta,
    pub(crate) footer: Option<Footer>,
    pub(crate) row: u32,
    pub(crate) size: Option<u64>,
    /// Objects up to this size are collected in memory, which the permit covers.
    pub(crate) aggregate_below: u64,
    /// The most bytes of the body that are taken.
    pub(crate) most: u64,
}

#[derive(Default)]
struct State {
    chunks: VecDeque<Chunk>,
    /// Bytes that have been received.
    received: u64,
    end: Option<Vec<u8>>,
    given_up: bool,
    running: bool,
    over: bool,
    /// Created by the first job.
    writer: Option<Writer>,
    reply: Option<Reply>,
    permit: Option<Permit>,
}

struct Upload {
    asked: Asked,
    store: Arc<Store>,
    state: Mutex<State>,
    device: Arc<Device>,
}

/// The transport's end; when it is dropped before the end, the upload is cancelled.
pub(crate) struct Receiving {
    upload: Arc<Upload>,
    ended: bool,
}

/// Begin an upload: a refusal is sent before its data.
pub(crate) fn begin(asked: Asked, store: Arc<Store>, permit: Permit, reply: Reply) -> Receiving {
    let device = Arc::clone(&permit.device);
    let state = State { reply: Some(reply), permit: Some(permit), ..State::default() };
    let upload = Arc::new(Upload { asked, store, state: Mutex::new(state), device });
    upload.schedule(upload.lock());
    Receiving { upload, ended: false }
}

/// An upload whose body and footer are here already.
pub(crate) fn whole(asked: Asked, store: Arc<Store>, permit: Permit, reply: Reply, body: Chunk) {
    let mut receiving = begin(asked, store, permit, reply);
    receiving.chunk(body);
    receiving.end(&[]);
}

/// A writer, unless it is already clear that the version would lose.
pub(crate) fn open(
    store: &Store,
    key: Key,
    timestamp: u64,
    size: Option<u64>,
    aggregate_below: Option<u64>,
) -> Result<Writer, Refusal> {
    let newest = match store.stat(&key) {
        Ok(info) => info.timestamp,
        Err(Error::NotFound(tombstone)) => tombstone.unwrap_or(0),
        Err(error) => return Err(error.into()),
    };
    if newest > timestamp {
        return Err(Error::Superseded(newest).into());
    }
    Ok(store.create(key, size, aggregate_below)?)
}

enum Step {
    Begin,
    Write(Chunk),
    Commit(Vec<u8>),
    TooLong,
    GiveUp,
}

impl Upload {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn schedule(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if !state.running && !state.over {
            state.running = true;
            drop(state);
            let upload = Arc::clone(self);
            self.device.run(move || upload.work());
        }
    }

    /// What to do next. None ends the job: the writer waits for the next one.
    fn step(&self, writer: &mut Option<Writer>) -> Option<Step> {
        let mut state = self.lock();
        let step = if state.given_up {
            Some(Step::GiveUp)
        } else if state.received > self.asked.most {
            Some(Step::TooLong)
        } else if writer.is_none() {
            Some(Step::Begin)
        } else if let Some(chunk) = state.chunks.pop_front() {
            Some(Step::Write(chunk))
        } else {
            state.end.take().map(Step::Commit)
        };
        if step.is_none() {
            state.running = false;
            state.writer = writer.take();
        }
        step
    }

    fn work(&self) {
        let mut writer = self.lock().writer.take();
        while let Some(step) = self.step(&mut writer) {
            let outcome = match (step, &mut writer) {
                (Step::Begin, _) => self.begin().map(|opened| writer = Some(opened)),
                (Step::TooLong, _) => Err(Refusal::new(Status::SizeMismatch, "the body is longer than was announced")),
                (Step::Write(chunk), Some(open)) => open.write(&chunk).map_err(Refusal::from),
                (Step::Commit(footer), _) => {
                    if let Some(writer) = writer.take() {
                        self.commit(writer, &footer);
                    }
                    return;
                }
                (Step::Write(_) | Step::GiveUp, _) => {
                    // The file is gone before the room that it took is given to others.
                    drop(writer.take());
                    drop(self.finish());
                    return;
                }
            };
            if let Err(refusal) = outcome {
                drop(writer.take());
                self.refuse(&refusal);
                return;
            }
        }
    }

    fn begin(&self) -> Result<Writer, Refusal> {
        let Asked { key, meta, size, aggregate_below, .. } = &self.asked;
        open(&self.store, *key, meta.timestamp, *size, Some(*aggregate_below))
    }

    fn refuse(&self, refusal: &Refusal) {
        let (reply, permit) = self.finish();
        drop(permit);
        if let Some(reply) = reply {
            reply.refuse(refusal);
        }
    }

    /// The upload is over: returns whom to answer, and what it held.
    fn finish(&self) -> (Option<Reply>, Option<Permit>) {
        let mut state = self.lock();
        state.over = true;
        state.running = false;
        state.chunks.clear();
        (state.reply.take(), state.permit.take())
    }

    fn commit(&self, mut writer: Writer, footer: &[u8]) {
        let footer = match &self.asked.footer {
            Some(footer) => Ok(footer.clone()),
            None => decode_footer(footer),
        };
        let footer = match footer {
            Ok(footer) => footer,
            Err(malformed) => return self.refuse(&malformed.into()),
        };
        if self.lock().reply.as_ref().is_some_and(Reply::is_guests) && !is_etag(&footer.etag) {
            return self.refuse(&Refusal::new(Status::Forbidden, "the ETag has none of the forms that there are"));
        }
        let (Some(reply), permit) = self.finish() else { return };
        let Asked { key, meta, row, .. } = &self.asked;
        let timestamp = meta.timestamp;
        writer.set_row(*row);
        let write = AcceptedWrite {
            store: Arc::clone(&self.store),
            key: *key,
            timestamp,
            row: *row,
            deletes: false,
            doubts: None,
        };
        writer.submit_commit(meta, &footer, answer_written(reply, permit, write));
    }
}

impl Receiver for Receiving {
    fn chunk(&mut self, chunk: Chunk) {
        let mut state = self.upload.lock();
        if state.over {
            return;
        }
        self.upload.device.received(chunk.len());
        state.received = state.received.saturating_add(chunk.len() as u64);
        state.chunks.push_back(chunk);
        self.upload.schedule(state);
    }

    fn end(&mut self, footer: &[u8]) {
        self.ended = true;
        let mut state = self.upload.lock();
        state.end = Some(footer.to_vec());
        self.upload.schedule(state);
    }

    fn failed(&mut self, _why: &TransportError) {
        // What can be said of it the transport has told the sender.
        self.give_up();
    }
}

impl Receiving {
    fn give_up(&self) {
        let mut state = self.upload.lock();
        state.given_up = true;
        state.chunks.clear();
        self.upload.schedule(state);
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if !self.ended {
            self.give_up();
        }
    }
}
