//! The expirer's task for an object that expires, which is durable before any device is asked to store the object.
//!
//! Names and containers are those of `swiftlet.expiry.tasks`. In the other order a process that ends would leave an
//! object that is hidden in time, and never deleted; in this one it leaves a task without an object, which is found
//! obsolete when it is due. So does a request that is handed over in between: whoever repeats it queues a task of its
//! own.

use swiftlet_store::model::Key;

use crate::body::Content;
use crate::checking::Queued;
use crate::grants::Granted;
use crate::head::Asked;
use crate::made::Made;
use crate::name;
use crate::row::Row;
use crate::storing::is_storable;

/// Objects that go earlier than so many seconds from now are Python's, which queues them again if they go, or are about
/// to, before they are stored: a minute (`swiftlet.api.context.expiring.LATE_S`), and more than a write takes here.
const SOON_S: u64 = 90;
/// The number of containers over which tasks are spread.
const CONTAINERS: u32 = 64;

/// Whether a PUT of an object that expires, if it is one, may be answered here. Quotas, several regions, and the first
/// such object of a container are left to Python.
pub(crate) fn may_expire(asked: &Asked<'_>, granted: &Granted, now_s: u64) -> bool {
    let Some(stored) = &asked.stored else { return true };
    let Some(goes_at) = stored.goes_at(now_s) else { return true };
    let all = granted.rows.iter().fold(0, |all, row| all | row);
    let is_plain = granted.expiring && granted.pools.is_empty() && granted.awaited == all;
    is_plain && !stored.only_new && goes_at > now_s + SOON_S
}

/// The task for a PUT whose body is complete; None if Python has to answer, as the PUT will be refused.
pub(crate) fn task(
    asked: &Asked<'_>,
    content: &Content<'_>,
    granted: &Granted,
    queued: Queued,
    id: &str,
) -> Option<Made> {
    let (_, object) = name::split(asked.target)?;
    let mut path = granted.container.to_vec();
    if !name::decode(object, &mut path) {
        return None;
    }
    is_storable(asked.stored.as_ref()?, content, &path[granted.container.len()..], granted.xxh3_etags)?;
    let timestamp = queued.timestamp;
    let (container, name) = (container_of(&path).into(), name_of(&path, queued));
    let all = granted.rows.iter().fold(0, |all, row| all | row);
    let row = Row { name, timestamp, size: u64::from(granted.policy), ..Row::default() };
    Some(Made {
        token: 0,
        container,
        rows: [all].into(),
        awaited: all,
        row,
        key: Key { policy: granted.policy, partition: 0, digest: [0; 16] },
        timestamp,
        devices: Vec::new(),
        holders: Vec::new(),
        id: id.to_owned(),
        parts: Vec::new(),
        is_task: true,
    })
}

fn container_of(path: &[u8]) -> Vec<u8> {
    format!("/.expiring_objects/{:02x}/", crc32fast::hash(path) % CONTAINERS).into_bytes()
}

fn name_of(path: &[u8], Queued { timestamp, delete_at }: Queued) -> Vec<u8> {
    let mut out = format!("{delete_at:010}-").into_bytes();
    for byte in path {
        if byte.is_ascii_alphanumeric() || b"/_.-~".contains(byte) {
            out.push(*byte);
        } else {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
    out.extend_from_slice(format!("?{timestamp}").as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_named_as_in_python() {
        assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
        let path = "/AUTH_a/c/o \u{e4}?/~-_.%".as_bytes();
        let name = name_of(path, Queued { timestamp: 77, delete_at: 1100 });
        assert_eq!(name, b"0000001100-/AUTH_a/c/o%20%C3%A4%3F/~-_.%25?77");
        assert_eq!(container_of(path), b"/.expiring_objects/25/");
    }
}
