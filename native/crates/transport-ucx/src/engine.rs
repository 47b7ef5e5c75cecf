//! The thread that owns UCX: it connects to peers' workers, fetches, and gives up.
//!
//! Memory that is being fetched into belongs to the engine until UCX reports that the operation is over, however it
//! ended; its caller may have been told long before that it failed.

use std::collections::HashMap;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, epoll};
use rustix::process::{Resource, getrlimit};
use rustix::time::Timespec;
use swiftlet_transport::{Buffer, Fetched, Met, Pool};

use crate::card::{Card, PROOF_BYTES};
use crate::ucx::{self, Begun, Endpoint, Library, Memory, Remote};

/// How often clocks are checked while something is under way, and while nothing is.
const TICK: Duration = Duration::from_millis(50);
const IDLE_TICK: Duration = Duration::from_secs(1);
/// How long the engine waits for the end of all operations when the process stops.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a peer has for its trial, which nobody waits for: connecting devices may take long on a busy machine.
const TRIAL: Duration = Duration::from_secs(15);
/// Calls of UCX's progress function before commands are checked again.
const TURNS: usize = 64;

/// What an engine is told at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// UCX's transports, as in `UCX_TLS`.
    pub transports: String,
    /// RDMA devices, as in `UCX_NET_DEVICES`, for example `mlx5_0:1`; empty: those of the environment, or all.
    pub devices: String,
    /// Let UCX emulate in software what the transports can't do. Only for tests on machines without RDMA devices: then
    /// UCX writes into our memory whatever a peer says, wherever it says.
    pub software: bool,
    /// After how much time without a completed fetch from a peer, while some are under way, it is given up.
    pub stalled: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            transports: "rc".to_owned(),
            devices: String::new(),
            software: false,
            stalled: Duration::from_millis(1500),
        }
    }
}

enum Command {
    Meet(u64, Box<Card>, Met),
    Fetch(u64, u64, Buffer, Fetched),
    Leave(u64),
    Stop,
}

struct Queue {
    commands: Mutex<Vec<Command>>,
    wake: OwnedFd,
}

impl Queue {
    fn post(&self, command: Command) {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        commands.push(command);
        if commands.len() == 1 {
            // It can only fail when the counter is full, and then the thread is awake anyway.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }
}

/// The handle of the thread that owns UCX. When it is dropped, the thread ends.
pub struct Engine {
    queue: Arc<Queue>,
    card: Vec<u8>,
    next: AtomicU64,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Engine(UCX {})", ucx::version())
    }
}

impl Engine {
    /// Start the thread, and register the pool, which stays in memory as a whole from now on.
    ///
    /// # Errors
    /// There is no RDMA device, or not enough memory may be locked.
    pub fn start(settings: Settings, pool: &Pool) -> io::Result<Arc<Self>> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let queue = Arc::new(Queue { commands: Mutex::default(), wake: rustix::event::eventfd(0, flags)? });
        let (tell, told) = mpsc::sync_channel(1);
        let (of_thread, pool) = (Arc::clone(&queue), pool.clone());
        // UCX's objects stay on the thread that makes them, so it makes them all.
        let run = move || match Worker::open(&settings, pool, of_thread) {
            Ok((worker, card)) => {
                // If nobody waits any more, the command to stop follows.
                drop(tell.send(Ok(card)));
                worker.run();
            }
            Err(error) => drop(tell.send(Err(error))),
        };
        let thread = std::thread::Builder::new().name("transport-rdma".to_owned()).spawn(run)?;
        let card = told.recv().map_err(|_| io::Error::other("UCX can't be started"))??;
        Ok(Arc::new(Self { queue, card, next: AtomicU64::new(1), thread: Some(thread) }))
    }

    pub(crate) fn card(&self) -> &[u8] {
        &self.card
    }

    /// For a new link.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn meet(&self, link: u64, card: &[u8], then: Met) {
        match Card::decode(card) {
            Ok(card) => self.queue.post(Command::Meet(link, Box::new(card), then)),
            Err(error) => then(Err(error)),
        }
    }

    pub(crate) fn fetch(&self, link: u64, address: u64, into: Buffer, then: Fetched) {
        self.queue.post(Command::Fetch(link, address, into, then));
    }

    pub(crate) fn leave(&self, link: u64) {
        self.queue.post(Command::Leave(link));
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.queue.post(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has ended, which is what is wanted here.
            let _ = thread.join();
        }
    }
}

/// A peer's end of one link.
struct Far {
    /// None while it is being closed.
    endpoint: Option<Endpoint>,
    pool: Remote,
    base: u64,
    /// Whether the trial is over.
    tried: bool,
    /// Operations that are not over, including the closing.
    pending: usize,
    /// When the first operation under way began, or the last one ended.
    moved: Instant,
}

/// An operation, until UCX reports that it is over. Its caller is told once.
enum Operation {
    Fetch { into: Buffer, then: Option<Fetched> },
    Trial { into: Buffer, proof: [u8; PROOF_BYTES], key: Remote, then: Option<Met> },
    Close,
}

impl Operation {
    /// Tell the caller that it fails, unless it was told anything before.
    fn give_up(&mut self, why: &io::Error) {
        let error = || io::Error::new(why.kind(), why.to_string());
        match self {
            Operation::Fetch { then, .. } => drop(then.take().map(|then| then(Err(error())))),
            Operation::Trial { then, .. } => drop(then.take().map(|then| then(Err(error())))),
            Operation::Close => {}
        }
    }

    fn over(mut self, result: io::Result<()>) {
        if let Err(error) = &result {
            self.give_up(error);
            return;
        }
        match self {
            Operation::Fetch { into, then: Some(then) } => then(Ok(into)),
            Operation::Trial { mut into, proof, then: Some(then), .. } => {
                let right = into.as_mut_slice() == proof;
                then(if right { Ok(()) } else { Err(io::Error::other("the memory of another process was read")) });
            }
            _ => {}
        }
    }
}

/// The thread's state. Fields are dropped in this order: memory after UCX.
struct Worker {
    fars: HashMap<u64, Far>,
    operations: HashMap<u64, (u64, Operation)>,
    next: u64,
    library: Library,
    pool_memory: Memory,
    proof_memory: Memory,
    epoll: OwnedFd,
    queue: Arc<Queue>,
    stalled: Duration,
    next_tick: Instant,
    stopping: bool,
    /// Our proof, and room for those that are fetched.
    proofs: Pool,
    _proof: Buffer,
    _pool: Pool,
}

/// A clearer message than the system's when so much memory may not be locked.
fn explain(error: &io::Error, bytes: usize) -> io::Error {
    let limit = getrlimit(Resource::Memlock).current.map_or("unlimited".to_owned(), |limit| format!("{limit} bytes"));
    io::Error::other(format!(
        "{error}: the pool of {bytes} bytes can't be registered; RDMA needs it locked in memory, the limit \
         (ulimit -l, of a container: the runtime's) is {limit}, and the capability is IPC_LOCK"
    ))
}

impl Worker {
    fn open(settings: &Settings, pool: Pool, queue: Arc<Queue>) -> io::Result<(Self, Vec<u8>)> {
        let emulation = if settings.software { "y" } else { "n" };
        let mut of_ucx = vec![
            ("TLS", settings.transports.as_str()),
            ("PROTO_EMULATION_ENABLE", emulation),
            // No rendezvous: nothing but reads is wanted, and it would ask more of devices.
            ("RNDV_THRESH", "inf"),
            // With it UCX patches the process's munmap and others. All memory here is registered once.
            ("RCACHE_ENABLE", "n"),
            // Heartbeats are the connection's. UCX's would keep datagram endpoints, which it needs for connecting only.
            ("KEEPALIVE_INTERVAL", "inf"),
        ];
        if !settings.devices.is_empty() {
            of_ucx.push(("NET_DEVICES", &settings.devices));
        }
        let mut library = Library::open(&of_ucx, settings.software)?;
        let region = pool.region();
        let pool_memory =
            library.register(region.address(), region.bytes()).map_err(|error| explain(&error, region.bytes()))?;
        let proofs = Pool::new(0)?;
        let proof_memory = library.register(proofs.region().address(), proofs.region().bytes())?;
        let mut proof = [0; PROOF_BYTES];
        getrandom::fill(&mut proof).map_err(|error| io::Error::other(error.to_string()))?;
        let mut lies = proofs.small(PROOF_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        lies.as_mut_slice().copy_from_slice(&proof);
        let card = Card {
            base: region.address().addr().get() as u64,
            proof_at: lies.as_mut_slice().as_ptr().addr() as u64,
            proof,
            worker: library.address()?,
            pool_key: library.pack(pool_memory)?,
            proof_key: library.pack(proof_memory)?,
        }
        .encode()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for descriptor in [library.descriptor()?, std::os::fd::AsFd::as_fd(&queue.wake)] {
            epoll::add(&epoll, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        let worker = Self {
            fars: HashMap::new(),
            operations: HashMap::new(),
            next: 1,
            library,
            pool_memory,
            proof_memory,
            epoll,
            queue,
            stalled: settings.stalled,
            next_tick: Instant::now(),
            stopping: false,
            proofs,
            _proof: lies,
            _pool: pool,
        };
        Ok((worker, card))
    }

    fn run(mut self) {
        while !self.stopping {
            self.turn();
        }
        let links: Vec<u64> = self.fars.keys().copied().collect();
        links.into_iter().for_each(|link| self.leave(link));
        let end = Instant::now() + PATIENCE;
        while !self.fars.is_empty() && Instant::now() < end {
            self.turn();
        }
        if !self.fars.is_empty() {
            // UCX still writes, or may. The process ends: what it uses stays until then.
            mem::forget(self);
        }
    }

    fn turn(&mut self) {
        let mut any = self.commands();
        for _ in 0..TURNS {
            if !self.library.progress() {
                break;
            }
            any = true;
        }
        for (number, result) in self.library.completed() {
            any = true;
            self.completed(number, result);
        }
        let now = Instant::now();
        if now >= self.next_tick {
            self.tick(now);
        }
        // An error here is the next operation's too.
        if !any && self.library.arm().unwrap_or(true) {
            self.wait(now);
        }
    }

    fn wait(&self, now: Instant) {
        let timeout = self.next_tick.saturating_duration_since(now);
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        let mut events = Vec::with_capacity(2);
        // Interrupted by a signal: the next turn comes soon.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout));
    }

    fn commands(&mut self) -> bool {
        let commands = mem::take(&mut *self.queue.commands.lock().unwrap_or_else(PoisonError::into_inner));
        let any = !commands.is_empty();
        if any {
            let _ = rustix::io::read(&self.queue.wake, &mut [0; 8]);
            self.next_tick = self.next_tick.min(Instant::now() + TICK);
        }
        for command in commands {
            match command {
                Command::Meet(link, card, then) => self.meet(link, &card, then),
                Command::Fetch(link, address, into, then) => {
                    self.begin(link, address, Operation::Fetch { into, then: Some(then) });
                }
                Command::Leave(link) => self.leave(link),
                Command::Stop => self.stopping = true,
            }
        }
        any
    }

    fn meet(&mut self, link: u64, card: &Card, then: Met) {
        let Some(into) = self.proofs.small(PROOF_BYTES) else {
            then(Err(io::Error::other("too many connections to peers are being opened")));
            return;
        };
        let far = self.library.connect(&card.worker).and_then(|endpoint| {
            let keys = endpoint.unpack(&card.pool_key).and_then(|pool| Ok((pool, endpoint.unpack(&card.proof_key)?)));
            match keys {
                Ok((pool, key)) => Ok((endpoint, pool, key)),
                Err(error) => {
                    // Nothing was asked of it; its closing is waited for by nobody.
                    let _ = endpoint.close(0);
                    Err(error)
                }
            }
        });
        match far {
            Ok((endpoint, pool, key)) => {
                let (base, moved) = (card.base, Instant::now());
                self.fars.insert(link, Far { endpoint: Some(endpoint), pool, base, tried: false, pending: 0, moved });
                let trial = Operation::Trial { into, proof: card.proof, key, then: Some(then) };
                self.begin(link, card.proof_at, trial);
            }
            Err(error) => then(Err(error)),
        }
    }

    /// Begin an operation at this offset in the pool, or address of a proof.
    fn begin(&mut self, link: u64, address: u64, operation: Operation) {
        let number = self.next;
        self.next += 1;
        // It is in its place before UCX has its memory: that must not move, and must not be dropped.
        let (_, operation) = self.operations.entry(number).or_insert((link, operation));
        let far = self.fars.get_mut(&link).filter(|far| far.endpoint.is_some());
        let result = match far {
            Some(far) => {
                if far.pending == 0 {
                    far.moved = Instant::now();
                }
                far.pending += 1;
                far.get(number, address, operation, self.pool_memory, self.proof_memory)
            }
            None => {
                operation.give_up(&io::ErrorKind::NotConnected.into());
                self.operations.remove(&number);
                return;
            }
        };
        match result {
            Ok(Begun::Pending) => {}
            Ok(Begun::Over) => self.completed(number, Ok(())),
            Err(error) => self.completed(number, Err(error)),
        }
    }

    fn completed(&mut self, number: u64, result: io::Result<()>) {
        let Some((link, operation)) = self.operations.remove(&number) else { return };
        operation.over(result);
        if let Some(far) = self.fars.get_mut(&link) {
            far.pending -= 1;
            far.tried = true;
            far.moved = Instant::now();
            if far.pending == 0 && far.endpoint.is_none() {
                self.fars.remove(&link);
            }
        }
    }

    fn leave(&mut self, link: u64) {
        let Some(far) = self.fars.get_mut(&link) else { return };
        let Some(endpoint) = far.endpoint.take() else { return };
        let number = self.next;
        self.next += 1;
        far.pending += 1;
        self.operations.insert(number, (link, Operation::Close));
        match endpoint.close(number) {
            Ok(Begun::Pending) => {}
            Ok(Begun::Over) => self.completed(number, Ok(())),
            Err(error) => self.completed(number, Err(error)),
        }
    }

    /// Give up operations without progress.
    fn tick(&mut self, now: Instant) {
        let late: Vec<u64> = self
            .fars
            .iter()
            .filter(|(_, far)| {
                let patience = if far.tried { self.stalled } else { TRIAL.max(self.stalled) };
                far.pending > 0 && now.saturating_duration_since(far.moved) >= patience
            })
            .map(|(link, _)| *link)
            .collect();
        if !late.is_empty() {
            let why = io::Error::new(io::ErrorKind::TimedOut, "no RDMA read ended in time");
            let operations = self.operations.values_mut().filter(|(link, _)| late.contains(link));
            operations.for_each(|(_, operation)| operation.give_up(&why));
        }
        self.next_tick = now + if self.operations.is_empty() { IDLE_TICK } else { TICK };
    }
}

impl Far {
    fn get(
        &self,
        number: u64,
        address: u64,
        operation: &mut Operation,
        pool_memory: Memory,
        proof_memory: Memory,
    ) -> io::Result<Begun> {
        let Some(endpoint) = &self.endpoint else { return Err(io::ErrorKind::NotConnected.into()) };
        let (into, from) = match operation {
            Operation::Fetch { into, .. } => {
                ((into.as_mut_slice(), pool_memory), (self.base.wrapping_add(address), &self.pool))
            }
            Operation::Trial { into, key, .. } => ((into.as_mut_slice(), proof_memory), (address, &*key)),
            Operation::Close => return Ok(Begun::Over),
        };
        #[allow(unsafe_code, reason = "the promise is kept by this module's order of things")]
        // SAFETY: the buffer is a block of the pool that was registered as this memory. It stays in `operations`,
        // and the key there or in `fars`, until UCX has said that the operation is over.
        unsafe {
            endpoint.get(number, into, from)
        }
    }
}
