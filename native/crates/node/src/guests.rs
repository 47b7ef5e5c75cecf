//! Grants of guests, checked by nothing but what this process knows: keys, its clock, and epochs that it was told.
//!
//! A grant that has passed is remembered with its connection, so that a request by it costs no signature; it is looked
//! at again when keys or epochs have changed.
//!
//! Fault model: a guest may send any bytes, and grants of others, of other clusters, from other times. Clocks of servers
//! differ by a few seconds. Who tells of epochs may not reach this process, and it forgets them when it ends: then a
//! grant counts until it ends by itself.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use swiftlet_transport::guest::{Grant, id_of};
use swiftlet_transport::{Guest, Key};

use crate::status::{Refusal, Status};

/// The longest life of a grant: epochs are remembered for so long.
pub const LONGEST_LIFE_MS: u64 = 900_000;
/// How far the clock of whoever made a grant, or a timestamp, may be ahead of this one.
pub const AHEAD_MS: u64 = 5_000;
/// Grants that are remembered with a connection.
const REMEMBERED: usize = 16;
/// Accounts and containers whose epochs are remembered singly.
const EPOCHS: usize = 65_536;
/// Grants with a slice of a quota whose use is counted at the same time.
const COUNTED: usize = 65_536;

/// What is stored by one grant with a slice of a quota.
#[derive(Debug, Default)]
pub(crate) struct Used {
    objects: AtomicU64,
    bytes: AtomicU64,
}

impl Used {
    /// Take one object of so many bytes; false if the slice has no room for it.
    fn take(&self, grant: &Grant, bytes: u64) -> bool {
        let within = |counter: &AtomicU64, more: u64, most: u64| {
            let taken =
                counter.fetch_update(AcqRel, Acquire, |used| used.checked_add(more).filter(|used| *used <= most));
            taken.is_ok()
        };
        if !within(&self.objects, 1, grant.slice_objects) {
            return false;
        }
        let fits = within(&self.bytes, bytes, grant.slice_bytes);
        if !fits {
            self.objects.fetch_sub(1, AcqRel);
        }
        fits
    }
}

/// What is stored by a grant that ends at this time, in milliseconds since 1970.
#[derive(Debug)]
struct Counted {
    ends_ms: u64,
    used: Arc<Used>,
}

/// A grant that has passed.
#[derive(Debug)]
pub(crate) struct Passed {
    pub(crate) grant: Grant,
    /// The state of keys and epochs in which it passed.
    generation: u64,
    used: Option<Arc<Used>>,
}

impl Passed {
    /// Whether an object of so many bytes is within the slices, of which it is then a part.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        self.used.as_ref().is_none_or(|used| used.take(&self.grant, bytes))
    }
}

type Remembered = Mutex<Vec<(Vec<u8>, Arc<Passed>)>>;

/// An account, and a container of it; without one it is all of them.
type Place = (Vec<u8>, Vec<u8>);

#[derive(Debug, Default)]
struct Epochs {
    of: HashMap<Place, u64>,
    /// That of all others.
    others: u64,
}

/// What is known of guests, and for them.
#[derive(Debug)]
pub struct Guests {
    keys: RwLock<Vec<Key>>,
    /// What is before and after names when they are hashed.
    secret: (Vec<u8>, Vec<u8>),
    generation: AtomicU64,
    epochs: Mutex<Epochs>,
    rings: RwLock<HashMap<u16, u64>>,
    used: Mutex<HashMap<[u8; 16], Counted>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

fn unauthorized(why: &str) -> Refusal {
    Refusal::new(Status::Unauthorized, why)
}

impl Guests {
    /// Guests with grants by one of these keys. `secret`: what the cluster puts before and after names to hash them.
    #[must_use]
    pub fn new(keys: Vec<Key>, secret: (Vec<u8>, Vec<u8>)) -> Self {
        Self {
            keys: RwLock::new(keys),
            secret,
            generation: AtomicU64::new(0),
            epochs: Mutex::default(),
            rings: RwLock::default(),
            used: Mutex::default(),
        }
    }

    /// Accept grants by these keys only, from now on.
    pub fn set_keys(&self, keys: Vec<Key>) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
        self.generation.fetch_add(1, AcqRel);
    }

    /// Tell guests of this version of a policy's ring.
    pub fn set_ring(&self, policy: u16, version: u64) {
        self.rings.write().unwrap_or_else(PoisonError::into_inner).insert(policy, version);
    }

    pub(crate) fn ring(&self, policy: u16) -> u64 {
        self.rings.read().unwrap_or_else(PoisonError::into_inner).get(&policy).copied().unwrap_or(0)
    }

    /// Accept no grant for a container, or with an empty one for an account, that was issued before this time.
    pub(crate) fn revoke(&self, account: &[u8], container: &[u8], before_ms: u64, now_ms: u64) {
        let mut epochs = lock(&self.epochs);
        let oldest = now_ms.saturating_sub(LONGEST_LIFE_MS);
        if epochs.of.len() >= EPOCHS {
            epochs.of.retain(|_, before| *before > oldest);
        }
        if epochs.of.len() >= EPOCHS {
            // More than can be told apart: all grants are renewed.
            epochs.others = epochs.others.max(epochs.of.drain().map(|(_, before)| before).max().unwrap_or(0));
        }
        // A time that is not here yet would refuse what is granted later.
        let before_ms = before_ms.min(now_ms + AHEAD_MS);
        let epoch = epochs.of.entry((account.to_vec(), container.to_vec())).or_default();
        *epoch = before_ms.max(*epoch);
        drop(epochs);
        self.generation.fetch_add(1, AcqRel);
    }

    fn epoch(&self, grant: &Grant) -> u64 {
        let epochs = lock(&self.epochs);
        let account = grant.account.clone().into_bytes();
        let of = |container: &str| epochs.of.get(&(account.clone(), container.as_bytes().to_vec())).copied();
        of("").max(of(&grant.container)).unwrap_or(0).max(epochs.others)
    }

    /// The digest of `/account/container/object`.
    pub(crate) fn digest(&self, name: &[u8]) -> [u8; 16] {
        swiftlet_hash::md5(&[&self.secret.0, name, &self.secret.1].concat())
    }

    /// The grant that a guest shows, if it counts now and on this connection.
    pub(crate) fn pass(&self, guest: &Guest, signed: &[u8], now_ms: u64) -> Result<Arc<Passed>, Refusal> {
        let memory = guest.memory.get_or_init(|| Box::new(Remembered::default()) as Box<dyn Any + Send + Sync>);
        let Some(memory) = memory.downcast_ref::<Remembered>() else {
            return Err(Refusal::new(Status::NodeError, "the connection's memory is somebody else's"));
        };
        let generation = self.generation.load(Acquire);
        let known = lock(memory).iter().find(|(bytes, _)| bytes == signed).map(|(_, passed)| Arc::clone(passed));
        let passed = match known.filter(|passed| passed.generation == generation) {
            Some(passed) => passed,
            None => {
                let passed = Arc::new(self.verify(guest, signed, generation, now_ms)?);
                let mut memory = lock(memory);
                memory.retain(|(bytes, _)| bytes != signed);
                if memory.len() >= REMEMBERED {
                    memory.remove(0);
                }
                memory.push((signed.to_vec(), Arc::clone(&passed)));
                passed
            }
        };
        if passed.grant.ends_ms <= now_ms {
            return Err(unauthorized("the grant has ended; renew it at a metadata server"));
        }
        Ok(passed)
    }

    fn verify(&self, guest: &Guest, signed: &[u8], generation: u64, now_ms: u64) -> Result<Passed, Refusal> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner).clone();
        let grant = Grant::verify(&keys, signed).map_err(|invalid| unauthorized(&invalid.to_string()))?;
        if grant.session != guest.session.id {
            return Err(unauthorized("the grant belongs to another session"));
        }
        if grant.issued_ms > now_ms + AHEAD_MS || grant.ends_ms - grant.issued_ms > LONGEST_LIFE_MS {
            return Err(unauthorized("the grant was issued in the future, or lives too long"));
        }
        if grant.issued_ms < self.epoch(&grant) {
            return Err(unauthorized(
                "the grant was revoked, or rests on rights that have changed; ask for another one",
            ));
        }
        let used = self.counter(signed, &grant, now_ms)?;
        Ok(Passed { grant, generation, used })
    }

    /// Where use of a grant is counted, by whichever connection; None for one without a limit.
    fn counter(&self, signed: &[u8], grant: &Grant, now_ms: u64) -> Result<Option<Arc<Used>>, Refusal> {
        if grant.slice_objects == u64::MAX && grant.slice_bytes == u64::MAX {
            return Ok(None);
        }
        let mut used = lock(&self.used);
        if used.len() >= COUNTED {
            used.retain(|_, counted| counted.ends_ms > now_ms);
        }
        let id = id_of(signed);
        if used.len() >= COUNTED && !used.contains_key(&id) {
            return Err(Refusal::new(Status::NodeBusy, "too many grants are in use here"));
        }
        let new = || Counted { ends_ms: grant.ends_ms, used: Arc::default() };
        Ok(Some(Arc::clone(&used.entry(id).or_insert_with(new).used)))
    }
}
