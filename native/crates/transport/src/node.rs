//! A process's end of the transport: I/O threads, memory, keys and peers.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;

use swiftlet_wire::guest::Session;
use swiftlet_wire::handshake::Key;

use crate::command::{Command, Shared};
use crate::handles::{Handler, Peer};
use crate::link::{Acceptor, Address, Fabric};
use crate::metrics::{PeerMetrics, PeerSnapshot, Registry};
use crate::pool::Pool;
use crate::reactor::{Reactor, World};
use crate::settings::{Config, Settings};
use crate::shared::Copies;

/// Counters of one peer.
#[derive(Clone, Debug)]
pub struct PeerReport {
    /// Its name.
    pub name: String,
    /// Whether it sends requests to us, rather than we to it.
    pub is_client: bool,
    /// Its counters.
    pub counters: PeerSnapshot,
}

/// A running end of the transport. When it is dropped, all its requests and threads end.
pub struct Node {
    threads: Vec<(Arc<Shared>, Option<JoinHandle<()>>)>,
    /// The process that has started them: one that was forked from it has none of them.
    process: u32,
    settings: Arc<Settings>,
    registry: Arc<Registry>,
    next: AtomicUsize,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Node({}, {} threads)", self.settings.name, self.threads.len())
    }
}

impl Node {
    /// Start the threads. `fabrics`: ways to reach peers, the preferred one first. `handler`: answers the requests of
    /// peers, if there is one.
    ///
    /// # Errors
    /// The system has no thread or descriptor left.
    pub fn start(config: Config, fabrics: &[Arc<dyn Fabric>], handler: Option<Arc<dyn Handler>>) -> io::Result<Self> {
        let all = (0..config.threads.max(1)).map(|_| Shared::new().map(Arc::new)).collect::<io::Result<Vec<_>>>()?;
        let settings = Arc::new(Settings {
            name: config.name,
            machine: config.machine,
            keys: RwLock::new(config.keys),
            session: RwLock::default(),
            guests: config.guests,
            guests_open: AtomicUsize::new(0),
            copies: Copies::default(),
            pool: config.pool,
            window_bytes: config.window_bytes,
            max_streams: config.max_streams,
            inline_bytes: config.inline_bytes,
            max_connections: config.max_connections,
            max_waiting: config.max_waiting,
            silence: config.silence,
        });
        let registry = Arc::<Registry>::default();
        let process = std::process::id();
        let mut node = Self { threads: Vec::new(), process, settings, registry, next: AtomicUsize::new(0) };
        for (at, shared) in all.iter().enumerate() {
            let reactor = Reactor::new(World {
                shared: Arc::clone(shared),
                settings: Arc::clone(&node.settings),
                registry: Arc::clone(&node.registry),
                fabrics: fabrics.to_vec(),
                handler: handler.clone(),
                all: all.clone(),
            })?;
            let thread = std::thread::Builder::new().name(format!("transport-{at}")).spawn(move || reactor.run())?;
            node.threads.push((Arc::clone(shared), Some(thread)));
        }
        Ok(node)
    }

    /// Accept connections from this acceptor too.
    pub fn listen(&self, acceptor: Box<dyn Acceptor>) {
        self.threads[0].0.post(Command::Listen(acceptor));
    }

    /// Accept no more connections, and ask connected clients to send no more requests. Requests under way are
    /// answered.
    pub fn leave(&self) {
        self.threads.iter().for_each(|(shared, _)| shared.post(Command::Leave));
    }

    /// A peer to make calls to. Create one per peer, and keep it.
    #[must_use]
    pub fn peer(&self, address: Address) -> Peer {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.threads.len();
        let shared = Arc::clone(&self.threads[at].0);
        let (metrics, name) = (Arc::<PeerMetrics>::default(), Arc::from(address.name.as_str()));
        let mut servers = self.registry.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.push((address.name.clone(), Arc::clone(&metrics)));
        drop(servers);
        let index = shared.add_peer(address, Arc::clone(&metrics));
        Peer { shared, index, name, metrics, pool: self.settings.pool.clone() }
    }

    /// Use these keys for handshakes from now on; open connections stay.
    pub fn set_keys(&self, keys: Vec<Key>) {
        *self.settings.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    /// Connect as a guest from now on, by this session and its secret; open connections stay.
    pub fn set_session(&self, session: Session, secret: Key) {
        *self.settings.session.write().unwrap_or_else(PoisonError::into_inner) = Some((session, secret));
    }

    /// How many connections guests have here.
    #[must_use]
    pub fn guests(&self) -> usize {
        self.settings.guests_open.load(Ordering::Relaxed)
    }

    /// Its memory.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.settings.pool
    }

    /// The counters of all peers.
    #[must_use]
    pub fn report(&self) -> Vec<PeerReport> {
        let servers = self.registry.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let clients = self.registry.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let servers = servers.iter().map(|(name, counters)| (name, false, counters));
        servers
            .chain(clients.iter().map(|(name, counters)| (name, true, counters)))
            .map(|(name, is_client, counters)| PeerReport {
                name: name.clone(),
                is_client,
                counters: counters.snapshot(),
            })
            .collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // Nobody would ever end what is waited for here.
            return;
        }
        for (shared, _) in &self.threads {
            shared.post(Command::Stop);
        }
        for (_, thread) in &mut self.threads {
            if let Some(thread) = thread.take() {
                // A thread that has panicked has ended, which is what is wanted here.
                let _ = thread.join();
            }
        }
    }
}
