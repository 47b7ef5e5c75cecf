//! Storing a small object on all of its devices: the request to each, and its timestamp.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use swiftlet_hash::{md5, xxh3_64, xxh3_128};
use swiftlet_node::message::Request;
use swiftlet_store::model::{Footer, Key, PutMeta};
use swiftlet_transport::{Body, Call, Chunk};

use crate::connection::Storing;
use crate::grants::Granted;
use crate::head::Asked;
use crate::made::{Made, row};
use crate::name;
use crate::routes::Device;
use crate::shared::Shared;

/// Plan a PUT whose body is complete: what is kept of it, and a request for each of its devices; None if Python has to
/// answer.
pub(crate) fn planned(
    shared: &Shared,
    asked: &Asked<'_>,
    read: &[u8],
    granted: Granted,
    (timestamp, id): (u64, String),
    now: Instant,
) -> Option<(Storing, Vec<Call>)> {
    let stored = asked.stored.as_ref()?;
    let body = read.get(asked.bytes..asked.whole())?;
    let (_, object) = name::split(asked.target)?;
    let secret = &shared.settings.secret;
    let digest = name::digest((&secret.0, &secret.1), &granted.container, object)?;
    let mut name = granted.container.to_vec();
    if !name::decode(object, &mut name) {
        return None;
    }
    let policy = shared.policy(granted.policy)?;
    let key = Key { policy: granted.policy, partition: policy.partition(&digest), digest };
    let (devices, peers): (Vec<u16>, Vec<Arc<Device>>) = policy.all(key.partition, now)?.into_iter().unzip();
    if peers.is_empty() || peers.len() != granted.rows.len() || peers.len() > MAX_REPLICAS {
        return None;
    }
    let etag = etag_of(body, stored.etag, granted.xxh3_etags)?;
    let size = body.len() as u64;
    let footer = Footer { size, etag: etag.clone(), xxh3: xxh3_64(body) };
    let content_type = match stored.content_type {
        // By the endings of names others decide.
        [] if name[granted.container.len()..].contains(&b'.') => return None,
        [] => b"application/octet-stream".to_vec(),
        given => given.to_vec(),
    };
    let items = stored.items.iter().map(|(name, value)| (name.clone(), value.to_vec())).collect();
    let sysmeta = Vec::new();
    let meta = PutMeta {
        name: name.clone(),
        timestamp,
        content_type: content_type.clone(),
        metadata: items,
        sysmeta,
        delete_at: 0,
    };
    let row_text = row(&name[granted.container.len()..], timestamp, size, &etag, &content_type);
    let chunk = Chunk::from(body.to_vec());
    let call = |(device, row): (&Arc<Device>, &u32)| {
        let request = Request::Put { key, meta: meta.clone(), footer: Some(footer.clone()), row: *row };
        let header = request.encode(device.name()).ok()?;
        let body = if body.is_empty() { Body::Empty } else { Body::Chunk(chunk.clone()) };
        let timeout = shared.settings.store_timeout;
        Some(Call { method: request.method(), timeout, trace: id.clone(), header, body, ..Call::default() })
    };
    let calls = peers.iter().zip(granted.rows.iter()).map(call).collect::<Option<Vec<_>>>()?;
    let Granted { container, rows, .. } = granted;
    let made = Made { token: 0, container, rows, row: row_text, key, timestamp, devices };
    let start = asked.method.name().len() + 1;
    let storing = Storing {
        target: start..start + asked.target.len(),
        bytes: asked.whole(),
        close: !asked.keep_alive,
        begun: now,
        waiting: vec![true; peers.len()],
        devices: peers,
        made: Some(made),
        id,
        timestamp,
        etag,
        body_bytes: size,
    };
    Some((storing, calls))
}

/// The ETag of a body; None if its MD5 differs from the one that the client has sent. A client that sends one compares
/// ETags with MD5, so then the object has it as its ETag whatever the policy says.
fn etag_of(body: &[u8], expected: Option<&[u8]>, xxh3: bool) -> Option<Vec<u8>> {
    if xxh3 && expected.is_none() {
        return Some(format!("xxh3-{:032x}", xxh3_128(body)).into_bytes());
    }
    let etag = format!("{:032x}", u128::from_be_bytes(md5(body))).into_bytes();
    expected.is_none_or(|expected| expected == etag).then_some(etag)
}

/// The largest number of replicas of an object; a request's number has room for so many.
const MAX_REPLICAS: usize = 32;

/// Timestamps as in `swiftlet.timestamp`: strictly increasing.
pub(crate) struct Clock {
    pub(crate) nonce: u16,
    pub(crate) last: u64,
}

impl Clock {
    pub(crate) fn next(&mut self) -> u64 {
        const TICK_US: u128 = 10;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() / TICK_US;
        self.last = (now as u64).max(self.last + 1);
        self.last << 14 | u64::from(self.nonce & 0x3fff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_and_the_client_say_what_the_etag_is() {
        const MD5: &[u8] = b"900150983cd24fb0d6963f7d28e17f72";
        const XXH3: &[u8] = b"xxh3-06b05ab6733a618578af5f94892f3950";
        for (expected, xxh3, etag) in [
            (None, false, Some(MD5)),
            (None, true, Some(XXH3)),
            (Some(MD5), false, Some(MD5)),
            (Some(MD5), true, Some(MD5)),
            (Some(&[b'0'; 32][..]), false, None),
            (Some(&[b'0'; 32][..]), true, None),
        ] {
            assert_eq!(etag_of(b"abc", expected, xxh3).as_deref(), etag, "{expected:?} {xxh3}");
        }
    }
}
