//! A body that comes in chunks, of an object or a fragment: hashed and written by the device's threads, in order, one
//! job at a time.
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

/// What a body becomes.
pub(crate) trait Taking: Send + Sync + 'static {
    /// What it is written with.
    type Writer: Send;
    /// What follows the body.
    type Footer;

    /// The most bytes of the body that are taken.
    fn most(&self) -> u64;

    /// Begin, before the first byte.
    fn begin(&self, store: &Arc<Store>) -> Result<Self::Writer, Refusal>;

    /// Append bytes.
    fn write(writer: &mut Self::Writer, bytes: &[u8]) -> swiftlet_store::Result<()>;

    /// The footer, from the bytes behind the body.
    fn footer(&self, raw: &[u8], from_guest: bool) -> Result<Self::Footer, Refusal>;

    /// Make it durable, and answer.
    fn commit(&self, store: &Arc<Store>, end: (Self::Writer, Self::Footer), reply: Reply, permit: Option<Permit>);
}

/// A PUT.
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

impl Taking for Asked {
    type Writer = Writer;
    type Footer = Footer;

    fn most(&self) -> u64 {
        self.most
    }

    fn begin(&self, store: &Arc<Store>) -> Result<Writer, Refusal> {
        open(store, self.key, self.meta.timestamp, self.size, Some(self.aggregate_below))
    }

    fn write(writer: &mut Writer, bytes: &[u8]) -> swiftlet_store::Result<()> {
        writer.write(bytes)
    }

    fn footer(&self, raw: &[u8], from_guest: bool) -> Result<Footer, Refusal> {
        let footer = match &self.footer {
            Some(footer) => footer.clone(),
            None => decode_footer(raw)?,
        };
        if from_guest && !is_etag(&footer.etag) {
            return Err(Refusal::new(Status::Forbidden, "the ETag has none of the forms that there are"));
        }
        Ok(footer)
    }

    fn commit(&self, store: &Arc<Store>, end: (Writer, Footer), reply: Reply, permit: Option<Permit>) {
        let (mut writer, footer) = end;
        let (key, timestamp, row) = (self.key, self.meta.timestamp, self.row);
        writer.set_row(row);
        let store = Arc::clone(store);
        let write = AcceptedWrite { store, key, timestamp, row, deletes: false, doubts: None };
        writer.submit_commit(&self.meta, &footer, answer_written(reply, permit, write));
    }
}

struct State<W> {
    chunks: VecDeque<Chunk>,
    /// Bytes that have been received.
    received: u64,
    end: Option<Vec<u8>>,
    given_up: bool,
    running: bool,
    over: bool,
    /// Created by the first job.
    writer: Option<W>,
    reply: Option<Reply>,
    permit: Option<Permit>,
}

struct Upload<T: Taking> {
    asked: T,
    store: Arc<Store>,
    state: Mutex<State<T::Writer>>,
    device: Arc<Device>,
}

/// The transport's end; when it is dropped before the end, the upload is cancelled.
pub(crate) struct Receiving<T: Taking> {
    upload: Arc<Upload<T>>,
    ended: bool,
}

/// Begin an upload: a refusal is sent before its data.
pub(crate) fn begin<T: Taking>(asked: T, store: Arc<Store>, permit: Permit, reply: Reply) -> Receiving<T> {
    let device = Arc::clone(&permit.device);
    let state = State {
        chunks: VecDeque::new(),
        received: 0,
        end: None,
        given_up: false,
        running: false,
        over: false,
        writer: None,
        reply: Some(reply),
        permit: Some(permit),
    };
    let upload = Arc::new(Upload { asked, store, state: Mutex::new(state), device });
    upload.schedule(upload.lock());
    Receiving { upload, ended: false }
}

/// An upload whose body and footer are here already.
pub(crate) fn whole<T: Taking>(asked: T, store: Arc<Store>, permit: Permit, reply: Reply, body: Chunk) {
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

impl<T: Taking> Upload<T> {
    fn lock(&self) -> MutexGuard<'_, State<T::Writer>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn schedule(self: &Arc<Self>, mut state: MutexGuard<'_, State<T::Writer>>) {
        if !state.running && !state.over {
            state.running = true;
            drop(state);
            let upload = Arc::clone(self);
            self.device.run(move || upload.work());
        }
    }

    /// What to do next. None ends the job: the writer waits for the next one.
    fn step(&self, writer: &mut Option<T::Writer>) -> Option<Step> {
        let mut state = self.lock();
        let step = if state.given_up {
            Some(Step::GiveUp)
        } else if state.received > self.asked.most() {
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
                (Step::Begin, _) => self.asked.begin(&self.store).map(|opened| writer = Some(opened)),
                (Step::TooLong, _) => Err(Refusal::new(Status::SizeMismatch, "the body is longer than was announced")),
                (Step::Write(chunk), Some(open)) => T::write(open, &chunk).map_err(Refusal::from),
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

    fn commit(&self, writer: T::Writer, footer: &[u8]) {
        let from_guest = self.lock().reply.as_ref().is_some_and(Reply::is_guests);
        let footer = match self.asked.footer(footer, from_guest) {
            Ok(footer) => footer,
            Err(refusal) => return self.refuse(&refusal),
        };
        let (Some(reply), permit) = self.finish() else { return };
        self.asked.commit(&self.store, (writer, footer), reply, permit);
    }
}

impl<T: Taking> Receiver for Receiving<T> {
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

impl<T: Taking> Receiving<T> {
    fn give_up(&self) {
        let mut state = self.upload.lock();
        state.given_up = true;
        state.chunks.clear();
        self.upload.schedule(state);
    }
}

impl<T: Taking> Drop for Receiving<T> {
    fn drop(&mut self) {
        if !self.ended {
            self.give_up();
        }
    }
}
