//! Up to which size objects are stored in volumes: each storage policy may have a limit of its own, which may change
//! at any time and applies to later writes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Objects above this size are never stored in volumes: those in volumes are read as a whole and checked before the
/// first byte.
pub const MAX_AGGREGATE: u64 = 4 * 1024 * 1024;
/// Storage policies that can have a limit of their own: an index is one byte.
const POLICIES: usize = 256;

/// The limits of all storage policies, in bytes.
pub(crate) struct AggregateLimits {
    usual: u64,
    policies: Box<[AtomicU64]>,
}

impl AggregateLimits {
    /// Give all policies the `usual` limit, at most [`MAX_AGGREGATE`].
    pub(crate) fn new(usual: u64) -> Self {
        let usual = usual.min(MAX_AGGREGATE);
        Self { usual, policies: (0..POLICIES).map(|_| AtomicU64::new(usual)).collect() }
    }

    /// The limit of a policy.
    pub(crate) fn of(&self, policy: u16) -> u64 {
        self.policies.get(usize::from(policy)).map_or(self.usual, |limit| limit.load(Ordering::Relaxed))
    }

    /// Give these policies these limits from now on, and all others the usual one.
    pub(crate) fn set(&self, limits: &[(u16, u64)]) {
        for (policy, limit) in (0..).zip(&*self.policies) {
            let own = limits.iter().find(|(index, _)| *index == policy).map(|(_, bytes)| *bytes);
            limit.store(own.unwrap_or(self.usual).min(MAX_AGGREGATE), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_has_its_own_limit_or_the_usual_one() {
        let limits = AggregateLimits::new(1000);
        let all = |limits: &AggregateLimits| [0, 1, 255, 256, u16::MAX].map(|policy| limits.of(policy));
        assert_eq!(all(&limits), [1000; 5]);
        limits.set(&[(1, 0), (255, u64::MAX), (256, 5)]);
        assert_eq!(all(&limits), [1000, 0, MAX_AGGREGATE, 1000, 1000]);
        limits.set(&[(0, 7)]);
        assert_eq!(all(&limits), [7, 1000, 1000, 1000, 1000]);
        assert_eq!(AggregateLimits::new(u64::MAX).of(3), MAX_AGGREGATE);
    }
}
