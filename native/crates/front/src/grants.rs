//! Decisions made by Python that hold for a moment: who may read or write in which container.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crate::changes::Changes;

/// The largest number of grants; more are refused.
pub const MAX_GRANTS: usize = 10_000;

#[derive(Debug)]
struct Grant {
    granted: Granted,
    seen: Seen,
    until: Instant,
    used: bool,
}

/// A counter of changes, and its value before the grant was decided.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Which counter.
    pub slot: usize,
    /// Where it stood.
    pub at: u64,
}

/// The content of a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// `/account/container/`, decoded.
    pub container: Arc<[u8]>,
    /// The storage policy.
    pub policy: u16,
    /// For writes: whether objects may be read, too, as a PUT with a condition does.
    pub reads: bool,
    /// For writes: whether ETags are xxh3 where the client does not send an MD5.
    pub xxh3_etags: bool,
    /// For writes: whether objects may expire. The expirer has a task for each of those, which Python removes when such
    /// an object is replaced or deleted.
    pub expiring: bool,
    /// For writes: for each replica of the object, the container replicas whose update it keeps pending, as bits.
    pub rows: Arc<[u32]>,
    /// For writes: the container replicas that have to list it before the client is answered, as bits.
    pub awaited: u32,
    /// For PUTs: the pools of room, each of which an object takes a part of.
    pub pools: Arc<[u64]>,
}

/// Whether it is for writes, a token (empty for none), and a path's prefix; as sent.
pub type Holder = (bool, Vec<u8>, Vec<u8>);

/// Live grants by token and path. A grant ends at its time, when it is withdrawn, or when one of its counters counts a
/// change, in whichever process.
#[derive(Debug)]
pub struct Grants {
    changes: Arc<Changes>,
    live: HashMap<Holder, Grant>,
}

impl Grants {
    /// No grants.
    #[must_use]
    pub fn new(changes: Arc<Changes>) -> Self {
        Self { changes, live: HashMap::new() }
    }

    /// Allow whoever sends the holder's token to read, or write, any object below its prefix until then; returns
    /// whether there was room.
    pub fn add(&mut self, holder: Holder, granted: Granted, seen: Seen, until: Instant, now: Instant) -> bool {
        if self.live.len() >= MAX_GRANTS && !self.live.contains_key(&holder) {
            self.live.retain(|_, grant| grant.holds(&self.changes, now));
            if self.live.len() >= MAX_GRANTS {
                return false;
            }
        }
        // What is renewed was used before, not since.
        self.live.insert(holder, Grant { granted, seen, until, used: false });
        true
    }

    /// Let a grant that still holds go on until then; it counts as unused since. One that has ended stays ended.
    pub fn extend(&mut self, holder: &Holder, until: Instant, now: Instant) {
        if let Some(grant) = self.live.get_mut(holder).filter(|grant| grant.holds(&self.changes, now)) {
            grant.until = grant.until.max(until);
            grant.used = false;
        }
    }

    /// The grant for a request; it counts as used.
    pub fn find(&mut self, holder: &Holder, now: Instant) -> Option<Granted> {
        let grant = self.live.get_mut(holder)?;
        if !grant.holds(&self.changes, now) {
            self.live.remove(holder);
            return None;
        }
        grant.used = true;
        Some(grant.granted.clone())
    }

    /// Whether there is a grant; it does not count as used.
    #[must_use]
    pub fn has(&self, holder: &Holder, now: Instant) -> bool {
        self.live.get(holder).is_some_and(|grant| grant.holds(&self.changes, now))
    }

    /// End those in an account, or all.
    pub fn withdraw(&mut self, account: Option<&[u8]>) {
        let Some(account) = account else { return self.live.clear() };
        self.live.retain(|_, grant| !in_account(&grant.granted.container, account));
    }

    /// Holders of grants that were used since the last call; ended grants are dropped.
    pub fn used(&mut self, now: Instant) -> Vec<Holder> {
        self.live.retain(|_, grant| grant.holds(&self.changes, now));
        self.live.iter().filter(|(_, grant)| grant.used).map(|(holder, _)| holder.clone()).collect()
    }

    /// The number of grants, which may include ended ones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }
}

impl Grant {
    fn holds(&self, changes: &Changes, now: Instant) -> bool {
        now < self.until && changes.seen(self.seen.slot) == self.seen.at
    }
}

fn in_account(container: &[u8], account: &[u8]) -> bool {
    container.strip_prefix(b"/").and_then(|rest| rest.strip_prefix(account)).is_some_and(|rest| rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn holder(token: &str, prefix: &str) -> Holder {
        (false, token.into(), prefix.into())
    }

    fn granted(container: &str, policy: u16) -> Granted {
        Granted {
            container: container.as_bytes().into(),
            policy,
            reads: false,
            xxh3_etags: false,
            expiring: false,
            rows: Arc::new([]),
            awaited: 0,
            pools: Arc::new([]),
        }
    }

    const SEEN: Seen = Seen { slot: 0, at: 0 };

    fn grants() -> Grants {
        Grants::new(Arc::new(Changes::new(2).expect("memory")))
    }

    #[test]
    fn a_change_that_its_counter_counts_ends_it() {
        let (mut grants, now) = (grants(), Instant::now());
        let end = now + Duration::from_secs(1);
        let (one, two) = (holder("t", "/v1/a/c/"), holder("t", "/v1/b/c/"));
        assert!(grants.add(one.clone(), granted("/a/c/", 0), SEEN, end, now));
        assert!(grants.add(two.clone(), granted("/b/c/", 0), Seen { slot: 1, at: 0 }, end, now));
        grants.changes.tell(0);
        assert!(!grants.has(&one, now) && grants.has(&two, now));
        assert_eq!(grants.find(&one, now), None);
        assert!(grants.add(one.clone(), granted("/a/c/", 0), SEEN, end, now), "decided before the change");
        assert_eq!(grants.find(&one, now), None);
        assert!(grants.add(one.clone(), granted("/a/c/", 0), Seen { slot: 0, at: 1 }, end, now));
        assert!(grants.find(&one, now).is_some());
    }

    #[test]
    fn exactly_this_token_and_path_until_the_end() {
        let (mut grants, now) = (grants(), Instant::now());
        let end = now + Duration::from_secs(1);
        assert!(grants.add(holder("t", "/v1/a/c/"), granted("/a/c/", 3), SEEN, end, now));
        assert_eq!(grants.find(&holder("t", "/v1/a/c/"), now).map(|granted| granted.policy), Some(3));
        let write = (true, b"t".to_vec(), b"/v1/a/c/".to_vec());
        for other in [holder("u", "/v1/a/c/"), holder("", "/v1/a/c/"), holder("t", "/v1/a/%63/"), write] {
            assert_eq!(grants.find(&other, now), None);
        }
        assert_eq!(grants.find(&holder("t", "/v1/a/c/"), end), None);
        assert!(grants.is_empty());
    }

    #[test]
    fn one_that_holds_goes_on_and_counts_as_unused() {
        let (mut grants, now) = (grants(), Instant::now());
        let (second, holder) = (Duration::from_secs(1), holder("t", "/v1/a/c/"));
        assert!(grants.add(holder.clone(), granted("/a/c/", 0), SEEN, now + second, now));
        grants.find(&holder, now);
        grants.extend(&holder, now + second * 2, now);
        assert!(grants.used(now).is_empty());
        assert!(grants.find(&holder, now + second).is_some());
        grants.extend(&holder, now + second, now + second);
        assert!(grants.has(&holder, now + second * 3 / 2), "it does not get shorter");
        grants.extend(&holder, now + second * 9, now + second * 2);
        assert!(!grants.has(&holder, now + second * 2), "it had ended");
        assert!(grants.add(holder.clone(), granted("/a/c/", 0), SEEN, now + second, now));
        grants.changes.tell(0);
        grants.extend(&holder, now + second * 2, now);
        assert!(!grants.has(&holder, now), "a change has ended it");
        grants.withdraw(None);
        grants.extend(&holder, now + second * 2, now);
        assert!(!grants.has(&holder, now) && grants.is_empty(), "it was withdrawn");
    }

    #[test]
    fn withdrawn_by_account() {
        let (mut grants, now) = (grants(), Instant::now());
        let end = now + Duration::from_secs(1);
        for (prefix, container) in [("/v1/a/c/", "/a/c/"), ("/v1/%61/d/", "/a/d/"), ("/v1/ab/c/", "/ab/c/")] {
            assert!(grants.add(holder("t", prefix), granted(container, 0), SEEN, end, now));
        }
        grants.withdraw(Some(b"a"));
        assert_eq!(grants.len(), 1);
        assert!(grants.has(&holder("t", "/v1/ab/c/"), now));
        grants.withdraw(None);
        assert!(grants.is_empty());
    }

    #[test]
    fn used_since_the_renewal() {
        let (mut grants, now) = (grants(), Instant::now());
        let end = now + Duration::from_secs(1);
        let (one, two) = (holder("t", "/v1/a/c/"), holder("t", "/v1/a/d/"));
        grants.add(one.clone(), granted("/a/c/", 0), SEEN, end, now);
        grants.add(two, granted("/a/d/", 0), SEEN, end, now);
        assert!(grants.used(now).is_empty());
        grants.find(&one, now);
        assert_eq!(grants.used(now), vec![one.clone()]);
        grants.add(one, granted("/a/c/", 0), SEEN, end, now);
        assert!(grants.used(now).is_empty());
    }

    #[test]
    fn bounded() {
        let (mut grants, now) = (grants(), Instant::now());
        let (soon, later) = (now + Duration::from_secs(1), now + Duration::from_secs(2));
        for number in 0..MAX_GRANTS {
            assert!(grants.add(holder("t", &number.to_string()), granted("/a/c/", 0), SEEN, soon, now));
        }
        assert!(!grants.add(holder("t", "more"), granted("/a/c/", 0), SEEN, later, now));
        assert!(grants.add(holder("t", "0"), granted("/a/c/", 0), SEEN, soon, now));
        assert!(grants.add(holder("t", "more"), granted("/a/c/", 0), SEEN, later, soon));
        assert_eq!(grants.len(), 1);
    }
}
