//! The server: passes requests to their devices, and answers with the results.
//!
//! Small writes are handed to the store in the I/O thread, which never waits for the device: the store's own thread
//! commits them in batches and answers. Small objects that are in memory are read in the I/O thread too. Other reads, and
//! bodies that come in chunks, go to the device's threads.
//!
//! Fault model: peers may send anything, more than can be held, and go away at any time; a device may fail. Each
//! request is answered with one of [`Status`], or cancelled at its deadline by the transport. A device that is not
//! here answers like a failed one, so that callers go elsewhere.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use swiftlet_store::model::{Key, PostMeta};
use swiftlet_store::{AtOnce, Done, Shape, Store};
use swiftlet_transport::{Body, Chunk, Handler, Incoming, Receiver, Responder};

use crate::codings::{Coding, Codings};
use crate::copies;
use crate::device::{Device, DeviceStats, Limits, Permit, Who};
use crate::doubts::Doubts;
use crate::fragments::{Keeping, about};
use crate::guest_requests::{Covered, Shown, covered};
use crate::guests::{Guests, now_ms};
use crate::many::{self, Many};
use crate::message::{Found, Request, ToRead, fragments, lists};
use crate::packs;
use crate::reading::{self, Answered, EMPTY_XXH3, Held};
use crate::reply::Reply;
use crate::status::{Refusal, Status};
use crate::upload::{self, Asked};
use crate::written::{AcceptedWrite, answer_copy, answer_posted, answer_written, unproved};

/// The devices of one process, and their request handling. When it is dropped, its threads end; the caller closes the
/// stores.
pub struct Server {
    devices: HashMap<String, Arc<Device>>,
    guests: Option<Arc<Guests>>,
    codings: Codings,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Server {
    /// Start the threads. `devices`: by name, a store, or why there is none.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(
        devices: impl IntoIterator<Item = (String, Result<Arc<Store>, String>)>,
        limits: Limits,
    ) -> std::io::Result<Self> {
        Self::start_with(devices, &HashMap::new(), limits)
    }

    /// The same with doubts of the devices, by name.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start_with(
        devices: impl IntoIterator<Item = (String, Result<Arc<Store>, String>)>,
        doubts: &HashMap<String, Arc<Doubts>>,
        limits: Limits,
    ) -> std::io::Result<Self> {
        let device = |(name, store): (String, Result<Arc<Store>, String>)| {
            if let Ok(store) = &store {
                store.answer_inside(|answer| swiftlet_transport::together(answer));
            }
            let doubts = doubts.get(&name).cloned().unwrap_or_default();
            (name, Arc::new(Device::new(store, doubts, limits)))
        };
        let devices: HashMap<_, _> = devices.into_iter().map(device).collect();
        let server = Self { devices, guests: None, codings: Codings::default(), threads: Mutex::default() };
        for (name, device) in &server.devices {
            for at in 0..limits.threads.max(1) {
                let queue = Arc::clone(&device.queue);
                let thread = std::thread::Builder::new().name(format!("{name}-{at}")).spawn(move || queue.work())?;
                server.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
            }
        }
        Ok(server)
    }

    /// Serve guests too. Without this they are refused, whatever they have.
    #[must_use]
    pub fn with_guests(mut self, guests: Arc<Guests>) -> Self {
        self.guests = Some(guests);
        self
    }

    /// Know these policies from now on, and how they code their objects; None for those that keep whole ones. What
    /// arrives for another coding is refused; for other policies everything is taken.
    pub fn set_codings(&self, codings: HashMap<u16, Option<Coding>>) {
        self.codings.set(codings);
    }

    /// The devices' statistics, by name.
    #[must_use]
    pub fn stats(&self) -> HashMap<String, DeviceStats> {
        self.devices.iter().map(|(name, device)| (name.clone(), device.stats())).collect()
    }

    /// End the threads; waiting requests are dropped.
    pub fn stop(&self) {
        self.devices.values().for_each(|device| device.queue.close());
        for thread in std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner)) {
            // A job that panics ends its job alone; a thread that has ended is what is wanted here.
            let _ = thread.join();
        }
    }

    /// The device that is asked, the request, and a guest's grant for many.
    fn read(&self, incoming: &Incoming, reply: &mut Reply) -> Result<(String, Request, Option<Shown>), Refusal> {
        let Some(guest) = &incoming.guest else {
            let (device, request) = Request::decode(incoming.method, &incoming.header)?;
            return Ok((device, request, None));
        };
        reply.tell_guest(0);
        let Some(guests) = &self.guests else {
            return Err(Refusal::new(Status::Forbidden, "guests are not served here"));
        };
        let body_bytes = incoming.body.as_ref().map(|body| body.len() as u64).or(incoming.body_bytes);
        let Covered { device, request, ring, shown } =
            covered(guests, guest, (incoming.method, &incoming.header), body_bytes)?;
        reply.tell_guest(ring);
        Ok((device, request, shown))
    }

    /// Handle what concerns the whole server; returns whether that was it.
    fn note(&self, request: &Request) -> bool {
        let Request::Revoke { account, container, before_ms } = request else { return false };
        if let Some(guests) = &self.guests {
            guests.revoke(account, container, *before_ms, now_ms());
        }
        true
    }

    fn begin(&self, incoming: Incoming, mut reply: Reply) -> Result<Option<Box<dyn Receiver>>, Box<Refused>> {
        let (device, request, shown) = match self.read(&incoming, &mut reply) {
            Ok(read) => read,
            Err(refusal) => return Err(Refused::new(reply, refusal)),
        };
        if self.note(&request) {
            reply.answer(Vec::new(), Body::Empty);
            return Ok(None);
        }
        let Some(device) = self.devices.get(&device) else {
            let refusal = Refusal::new(Status::DeviceFailed, "this server has no device of that name");
            return Err(Refused::new(reply, refusal));
        };
        reply.of(device);
        let coding = match self.codings.check(&request) {
            Ok(coding) => coding,
            Err(refusal) => return Err(Refused::new(reply, refusal)),
        };
        let who = if incoming.guest.is_some() { Who::Guest } else { Who::Member };
        let (store, permit) = match device.store().and_then(|store| Ok((Arc::clone(store), device.admit(who)?))) {
            Ok(taken) => taken,
            Err(refusal) => return Err(Refused::new(reply, refusal)),
        };
        let work = Work { store, permit, reply, deadline: incoming.deadline };
        match (request, incoming.body) {
            (Request::Many(count), body) => {
                let bytes = body.as_ref().map(|body| body.len() as u64).or(incoming.body_bytes);
                work.many(usize::from(count), shown, bytes, body)
            }
            (Request::Put { .. }, None) if coding.is_some() => {
                Err(work.refused(Refusal::new(Status::WireError, "a copy of a small object comes in one piece")))
            }
            (Request::Put { key, meta, footer, row }, None) => {
                let size = footer.as_ref().map(|footer| footer.size).or(incoming.body_bytes);
                let aggregate_below = work.store.aggregate_below(key.policy);
                // A guest's room follows from what it has announced; members know how much they may send.
                let most = if who == Who::Guest { size.unwrap_or(0) } else { u64::MAX };
                work.upload(Asked { key, meta, footer, row, size, aggregate_below, most }).map(Some)
            }
            (Request::Fragment(asked @ fragments::Request::Keep { .. }), None) => {
                work.keep(asked, coding, incoming.body_bytes).map(Some)
            }
            (_, None) => Err(work.refused(Refusal::new(Status::WireError, "this request takes no body"))),
            (request, Some(body)) => work.whole(request, coding.is_some(), &body).map(|()| None),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Handler for Server {
    fn request(&self, incoming: Incoming, responder: Responder) -> Option<Box<dyn Receiver>> {
        let reply = Reply::new(responder, incoming.method);
        match self.begin(incoming, reply) {
            Ok(receiver) => receiver,
            Err(refused) => {
                refused.reply.refuse(&refused.refusal);
                None
            }
        }
    }
}

/// An error, and who is told.
struct Refused {
    reply: Reply,
    refusal: Refusal,
}

impl Refused {
    fn new(reply: Reply, refusal: Refusal) -> Box<Self> {
        Box::new(Self { reply, refusal })
    }
}

/// An accepted request.
struct Work {
    store: Arc<Store>,
    permit: Permit,
    reply: Reply,
    deadline: Instant,
}

impl Work {
    fn refused(self, refusal: Refusal) -> Box<Refused> {
        Refused::new(self.reply, refusal)
    }

    /// Check a write with this row that holds so many bytes; returns why it is refused.
    fn check_write(&mut self, row: u32, bytes: usize) -> Result<(), Refusal> {
        if row != 0 && self.store.has_too_many_pending() {
            return Err(Refusal::new(Status::NodeBusy, "too many container updates are pending; try again later"));
        }
        if self.permit.who == Who::Guest && self.store.has_many_pending() {
            return Err(Refusal::new(Status::NodeBusy, "many container updates are pending; use a proxy meanwhile"));
        }
        self.permit.hold(bytes)
    }

    /// Handle many requests, whose body may still have to come.
    fn many(
        mut self,
        count: usize,
        shown: Option<Shown>,
        bytes: Option<u64>,
        body: Option<Chunk>,
    ) -> Result<Option<Box<dyn Receiver>>, Box<Refused>> {
        let bytes = match many::check(count, bytes).and_then(|bytes| self.permit.hold(bytes).map(|()| bytes)) {
            Ok(bytes) => bytes,
            Err(refusal) => return Err(self.refused(refusal)),
        };
        let Self { store, permit, reply, .. } = self;
        let device = Arc::clone(&permit.device);
        let many = Many { store, permit, reply, shown, count };
        let Some(body) = body else { return Ok(Some(Box::new(many::Receiving::new(many, bytes)))) };
        device.run(move || many.work(body.to_vec()));
        Ok(None)
    }

    /// Handle a body that comes in chunks.
    fn upload(mut self, mut asked: Asked) -> Result<Box<dyn Receiver>, Box<Refused>> {
        // What is known to be large goes to its file at once; else memory may fill up to the limit.
        let held = match asked.size {
            Some(size) if size > asked.aggregate_below => {
                asked.aggregate_below = 0;
                0
            }
            size => size.unwrap_or(asked.aggregate_below),
        };
        match self.check_write(asked.row, held as usize) {
            Ok(()) => Ok(Box::new(upload::begin(asked, self.store, self.permit, self.reply))),
            Err(refusal) => Err(self.refused(refusal)),
        }
    }

    /// Handle a fragment whose cells come in chunks.
    fn keep(
        mut self,
        asked: fragments::Request,
        coding: Option<Coding>,
        bytes: Option<u64>,
    ) -> Result<Box<dyn Receiver>, Box<Refused>> {
        let fragments::Request::Keep { key, certain, cell_bytes, size, meta, row } = asked else {
            return Err(self.refused(Refusal::new(Status::WireError, "this request takes no body")));
        };
        let (size, usual) = (size.or(bytes), self.store.aggregate_below(key.policy));
        // What is known to be large goes to its file at once; else memory may fill up to the limit.
        let is_large = size.is_some_and(|size| size > usual);
        let held = if is_large { 0 } else { size.unwrap_or(usual) };
        if let Err(refusal) = self.check_write(row, held as usize) {
            return Err(self.refused(refusal));
        }
        let aggregate_below = Some(if is_large { 0 } else { usual });
        let shape = Shape { cell_bytes: cell_bytes as usize, size, aggregate_below };
        let keeping = Keeping { key, certain, shape, meta, coding, row };
        Ok(Box::new(upload::begin(keeping, self.store, self.permit, self.reply)))
    }

    /// Handle a request that is here as a whole, and may concern a policy that codes its objects.
    fn whole(mut self, request: Request, is_coded: bool, body: &Chunk) -> Result<(), Box<Refused>> {
        let checked = match &request {
            Request::Put { footer: None, .. } | Request::Fragment(fragments::Request::Keep { .. }) => {
                Err(Refusal::new(Status::WireError, "the body has no footer"))
            }
            Request::Put { row, .. } => self.check_write(*row, body.len()),
            _ if !body.is_empty() => Err(Refusal::new(Status::WireError, "this request takes no body")),
            Request::Post { row, .. }
            | Request::Delete { row, .. }
            | Request::Prepare { row, .. }
            | Request::Fragment(fragments::Request::Post { row, .. }) => self.check_write(*row, 0),
            _ => Ok(()),
        };
        if let Err(refusal) = checked {
            return Err(self.refused(refusal));
        }
        if let Request::Put { key, meta, footer, row } = &request
            && !is_coded
            && body.len() as u64 > self.store.aggregate_below(key.policy)
        {
            // It gets a file of its own, which the I/O thread does not wait for.
            let (key, meta, footer, row) = (*key, meta.clone(), footer.clone(), *row);
            let size = body.len() as u64;
            let asked = Asked { key, meta, footer, row, size: Some(size), aggregate_below: 0, most: size };
            upload::whole(asked, self.store, self.permit, self.reply, body.clone());
            return Ok(());
        }
        self.permit.device.received(body.len());
        match request {
            Request::Put { key, meta, footer: Some(footer), row } if is_coded => {
                let has_fragments = copies::has_fragments(&self.store, &key);
                let write = self.accepted(key, meta.timestamp, row);
                let store = self.store;
                let done = answer_copy(self.reply, self.permit, write, has_fragments);
                copies::put(&store, key, (meta, footer, row), body.to_vec(), done);
            }
            Request::Delete { key, timestamp, name, row } if is_coded && !copies::is_of_copies(&key) => {
                let (store, done) = self.written(key, timestamp, row, true);
                copies::delete(&store, key, (timestamp, name, row), done);
            }
            Request::Put { key, meta, footer: Some(footer), row } => {
                let (store, done) = self.written(key, meta.timestamp, row, false);
                store.submit_put_with_row(key, &meta, &footer, body.to_vec(), row, done);
            }
            Request::Post { key, meta, row, proved } if self.permit.who == Who::Guest => {
                let device = Arc::clone(&self.permit.device);
                device.run(move || self.post_if_plain(key, meta, row, proved));
            }
            Request::Post { key, meta, row, proved } => self.post(key, meta, row, proved),
            Request::Delete { key, timestamp, name, row } => {
                let (store, done) = self.written(key, timestamp, row, true);
                store.submit_delete_with_row(key, timestamp, name, row, done);
            }
            Request::Fragment(fragments::Request::About { key, asked }) => {
                about(&self.store, key, asked, self.reply, self.permit);
            }
            Request::Fragment(fragments::Request::Post { key, of, meta, row }) => {
                // Without a fragment nothing is known here that a listing could show.
                let row = if self.store.has_fragment(&key) { row } else { 0 };
                let (write, posted) = (self.post_of(key, meta.timestamp, row, false), Arc::clone(&self.store));
                posted.submit_coded_post(key, of, meta, row, answer_posted(self.reply, self.permit, write));
            }
            Request::Pack(request) => {
                let Self { store, permit, reply, deadline } = self;
                packs::Asked { store, permit, reply, deadline }.handle(request);
            }
            Request::Acknowledge(versions) => {
                self.store.acknowledge(&versions);
                self.reply.answer(Vec::new(), Body::Empty);
            }
            request => {
                if let Some(work) = self.look_at_once(&request) {
                    let device = Arc::clone(&work.permit.device);
                    device.run(move || work.look(&request));
                }
            }
        }
        Ok(())
    }

    /// Handle a GET of a small object that is in memory, in the I/O thread: a thread of the device would have to be
    /// woken, and to wake this one. Returns itself where it is none, or anything is the matter.
    fn look_at_once(self, request: &Request) -> Option<Self> {
        let Request::Get { key, start, stop, whole, proved } = request else { return Some(self) };
        let is_doubted = *proved && self.permit.device.doubts.has(key.policy, key.partition);
        let found = if is_doubted { None } else { reading::at_once(&self.store, key, &self.reply) };
        let Some(found) = found else { return Some(self) };
        let Self { permit, reply, .. } = self;
        let wanted = ToRead { start: *start, stop: *stop, whole: *whole };
        let answered = match found {
            AtOnce::Object(object) => reading::sent(object, wanted, permit, &reply),
            AtOnce::Record(info, memory, data) => reading::lent(info, vec![reading::whole(memory).part(data)], wanted),
        };
        match answered {
            Ok((header, body)) => reply.answer(header, body),
            Err(refusal) => reply.refuse(&refusal),
        }
        None
    }

    fn post(self, key: Key, meta: PostMeta, row: u32, proved: bool) {
        let write = self.post_of(key, meta.timestamp, row, proved);
        self.store.submit_post_with_row(key, meta, row, answer_posted(self.reply, self.permit, write));
    }

    fn post_of(&self, key: Key, timestamp: u64, row: u32, proved: bool) -> AcceptedWrite {
        let doubts = proved.then(|| Arc::clone(&self.permit.device.doubts));
        AcceptedWrite { store: Arc::clone(&self.store), key, timestamp, row, deletes: false, doubts }
    }

    /// Handle a guest's POST, in a thread of the device.
    fn post_if_plain(self, key: Key, meta: PostMeta, row: u32, proved: bool) {
        match self.store.stat(&key) {
            Ok(info) => match reading::may_be_shown(&info, &self.reply) {
                Ok(()) => self.post(key, meta, row, proved),
                Err(refusal) => self.reply.refuse(&refusal),
            },
            // The store says what is the matter, or the device's doubts.
            Err(_) => self.post(key, meta, row, proved),
        }
    }

    fn written(self, key: Key, timestamp: u64, row: u32, deletes: bool) -> (Arc<Store>, Done) {
        let write = AcceptedWrite { deletes, ..self.accepted(key, timestamp, row) };
        (self.store, answer_written(self.reply, Some(self.permit), write))
    }

    fn accepted(&self, key: Key, timestamp: u64, row: u32) -> AcceptedWrite {
        AcceptedWrite { store: Arc::clone(&self.store), key, timestamp, row, deletes: false, doubts: None }
    }

    /// Handle a request that reads, in a thread of the device.
    fn look(self, request: &Request) {
        if self.reply.is_cancelled() || self.deadline <= Instant::now() {
            return; // nobody waits, and the transport has said why
        }
        let Self { store, permit, reply, .. } = self;
        match look(&store, permit, &reply, request) {
            Ok((header, body)) => reply.answer(header, body),
            Err(refusal) => reply.refuse(&refusal),
        }
    }
}

fn listed(bytes: Vec<u8>, mut permit: Permit) -> Result<Body, Refusal> {
    if bytes.is_empty() {
        return Ok(Body::Empty);
    }
    permit.hold(bytes.len())?;
    Ok(Body::Chunk(Chunk::from_owner(Box::new(Held::new(bytes, permit)))))
}

fn look(store: &Arc<Store>, permit: Permit, reply: &Reply, request: &Request) -> Answered {
    let bytes = match request {
        Request::Get { key, proved: true, .. } | Request::Head { key, proved: true }
            if permit.device.doubts.has(key.policy, key.partition) =>
        {
            return Err(unproved());
        }
        Request::Get { key, start, stop, whole, .. } => {
            let wanted = ToRead { start: *start, stop: *stop, whole: *whole };
            return reading::read(store, key, wanted, permit, reply);
        }
        Request::Head { key, .. } => {
            let info = store.stat(key)?;
            reading::may_be_shown(&info, reply)?;
            let found = Found { info, body_xxh3: Some(EMPTY_XXH3) };
            return Ok((found.encode()?, Body::Empty));
        }
        Request::Prepare { key, timestamp, size, .. } => {
            drop(upload::open(store, *key, *timestamp, *size, None)?);
            return Ok((Vec::new(), Body::Empty));
        }
        Request::Remove { key, entry } => {
            let removed = store.remove(*key, *entry)?;
            return Ok((vec![u8::from(removed)], Body::Empty));
        }
        Request::Policies => {
            let mut policies: Vec<u32> = store.partitions()?.iter().map(|(policy, _)| u32::from(*policy)).collect();
            policies.dedup();
            lists::encode_numbers(&policies)
        }
        Request::Partitions(policy) => {
            let all = store.partitions()?;
            let numbers: Vec<u32> = all.iter().filter(|(of, _)| of == policy).map(|(_, number)| *number).collect();
            lists::encode_numbers(&numbers)
        }
        Request::Suffixes(policy, partition) => lists::encode_suffixes(&store.suffixes((*policy, *partition))?),
        Request::Entries(policy, partition, suffix) => {
            lists::encode_entries(&store.entries((*policy, *partition), *suffix)?)
        }
        Request::Fragment(request) => return crate::fragments::look(store, permit, reply.lends(), request),
        Request::Put { .. }
        | Request::Post { .. }
        | Request::Delete { .. }
        | Request::Acknowledge(_)
        | Request::Pack(_)
        | Request::Many(_)
        | Request::Revoke { .. } => {
            return Err(Refusal::new(Status::NodeError, "the run contains a write"));
        }
    };
    Ok((Vec::new(), listed(bytes, permit)?))
}
