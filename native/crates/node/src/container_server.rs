//! The container server over the native transport: takes rows for containers that Python has opened, and says when
//! they are durable. Everything else about containers goes over HTTP.
//!
//! Fault model: peers may send anything, more than can be held, and go away at any time; a device may hang or fail.
//! Bodies that come in chunks are collected within a limit for all of them; what is handed to a device is limited
//! there. Each request is answered once; an answer that is dropped tells the peer that the handler has failed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use swiftlet_transport::{Answer, Chunk, Error, Handler, Incoming, Receiver, Responder};
use swiftlet_updates::{Database, Refused, Updates};

use crate::message::updates::{AskDurable, DURABLE, MAX_BATCH_BYTES, UPDATE, Update, encode_taken};
use crate::status::{Refusal, Status};

/// Bytes of bodies that are being collected.
const MAX_COLLECTED_BYTES: usize = 64 << 20;

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let status = match &refused {
            Refused::NotTaken(_) => Status::NotTaken,
            Refused::Busy(_) => Status::NodeBusy,
            Refused::Malformed(_) => Status::WireError,
            Refused::InvalidName(_) => Status::InvalidName,
            Refused::DiskFull(_) => Status::DiskFull,
            Refused::DeviceFailed(_) => Status::DeviceFailed,
        };
        Self::new(status, &refused.to_string())
    }
}

fn answer(responder: Responder, outcome: Result<Vec<u8>, Refusal>) {
    let (status, header) = match outcome {
        Ok(header) => (Status::Ok, header),
        Err(refusal) => (refusal.status, refusal.encode()),
    };
    responder.answer(Answer { status: status as u16, header, ..Answer::default() });
}

/// The devices of one process. Their threads are their own: whoever drops this stops them.
pub struct ContainerServer {
    devices: HashMap<String, Result<Arc<Updates>, String>>,
    collected: Arc<AtomicUsize>,
}

impl ContainerServer {
    /// `devices`: by name, the updates, or why there are none.
    #[must_use]
    pub fn new(devices: HashMap<String, Result<Arc<Updates>, String>>) -> Self {
        Self { devices, collected: Arc::default() }
    }

    fn device(&self, name: &str) -> Result<&Arc<Updates>, Refusal> {
        let device = self.devices.get(name).ok_or("this server has no device of that name");
        let device = device.and_then(|device| device.as_ref().map_err(String::as_str));
        device.map_err(|why| Refusal::new(Status::DeviceFailed, why))
    }

    fn update(&self, header: &[u8]) -> Result<Target, Refusal> {
        let Update { device, partition, account, container } = Update::decode(header)?;
        let updates = Arc::clone(self.device(&device)?);
        Ok(Target { updates, database: Database { partition, account, container } })
    }

    fn durable(&self, header: &[u8], responder: Responder) {
        let asked = AskDurable::decode(header).map_err(Refusal::from);
        match asked.and_then(|asked| Ok((self.device(&asked.device)?, asked.taken))) {
            Ok((updates, taken)) => {
                let outcome = move |outcome: Result<(), Refused>| {
                    answer(responder, outcome.map(|()| Vec::new()).map_err(Refusal::from));
                };
                updates.wait_durable(taken, Box::new(outcome));
            }
            Err(refusal) => answer(responder, Err(refusal)),
        }
    }

    /// Set memory aside for a body that comes in chunks.
    fn reserve(&self, bytes: Option<u64>) -> Result<Reserved, Refusal> {
        let most = bytes.map_or(MAX_BATCH_BYTES, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        if most > MAX_BATCH_BYTES {
            return Err(too_large());
        }
        let reserved = Reserved { of: Arc::clone(&self.collected), bytes: most };
        if self.collected.fetch_add(most, Relaxed) + most > MAX_COLLECTED_BYTES {
            return Err(Refusal::new(Status::NodeBusy, "too many bytes of rows are on their way"));
        }
        Ok(reserved)
    }
}

fn too_large() -> Refusal {
    Refusal::new(Status::WireError, "too many bytes of rows in one message")
}

impl Handler for ContainerServer {
    fn request(&self, incoming: Incoming, responder: Responder) -> Option<Box<dyn Receiver>> {
        let Incoming { method, header, body, body_bytes, .. } = incoming;
        let refusal = match (method, body) {
            (UPDATE, Some(rows)) => match self.update(&header) {
                Ok(target) => {
                    target.submit(Box::new(rows), responder);
                    return None;
                }
                Err(refusal) => refusal,
            },
            (UPDATE, None) => match self.update(&header).and_then(|target| Ok((target, self.reserve(body_bytes)?))) {
                Ok((target, reserved)) => {
                    let most = reserved.bytes;
                    let open = Some((target, responder, reserved));
                    return Some(Box::new(Collecting { open, rows: Vec::new(), most }));
                }
                Err(refusal) => refusal,
            },
            (DURABLE, Some(body)) if body.is_empty() => {
                self.durable(&header, responder);
                return None;
            }
            (DURABLE, _) => Refusal::new(Status::WireError, "this request takes no body"),
            _ => Refusal::new(Status::WireError, "an unknown method"),
        };
        answer(responder, Err(refusal));
        None
    }
}

/// Where rows are to go.
struct Target {
    updates: Arc<Updates>,
    database: Database,
}

impl Target {
    fn submit(self, rows: Box<dyn AsRef<[u8]> + Send + Sync>, responder: Responder) {
        let taken = move |outcome: Result<_, Refused>| {
            answer(responder, outcome.map(encode_taken).map_err(Refusal::from));
        };
        self.updates.submit(self.database, rows, Box::new(taken));
    }
}

/// A part of what all bodies may take, until it is dropped.
struct Reserved {
    of: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Relaxed);
    }
}

/// Rows with the part of the limit that they take.
struct Held(Vec<u8>, #[expect(dead_code, reason = "held until it is dropped")] Reserved);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A body that comes in chunks.
struct Collecting {
    /// Where it goes, who is answered, and its part of the limit; None when that is over.
    open: Option<(Target, Responder, Reserved)>,
    rows: Vec<u8>,
    most: usize,
}

impl Receiver for Collecting {
    fn chunk(&mut self, chunk: Chunk) {
        if self.rows.len() + chunk.len() <= self.most {
            self.rows.extend_from_slice(&chunk);
        } else if let Some((_, responder, _)) = self.open.take() {
            answer(responder, Err(too_large()));
        }
    }

    fn end(&mut self, _footer: &[u8]) {
        if let Some((target, responder, reserved)) = self.open.take() {
            let rows = Held(std::mem::take(&mut self.rows), reserved);
            target.submit(Box::new(rows), responder);
        }
    }

    fn failed(&mut self, _why: &Error) {
        self.open = None; // nothing of it was taken
    }
}
