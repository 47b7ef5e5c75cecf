//! Requests of guests: whether their grant covers them. What no rule here allows is refused.
//!
//! Fault model: that of [`crate::guests`]. Nothing that the guest says about place, name, size or time is believed: it is
//! computed, or compared with the grant and this server's clock.

use std::sync::Arc;

use swiftlet_store::model::{Key, Pairs};
use swiftlet_transport::Guest;
use swiftlet_transport::guest::{Grant, Operations};

use crate::guests::{AHEAD_MS, Guests, Passed, now_ms};
use crate::message::{Request, guests};
use crate::plain;
use crate::status::{Refusal, Status};

/// How far a timestamp may be behind this server's clock: none may undo a deletion that is forgotten already.
pub const BEHIND_MS: u64 = 60_000;
/// A timestamp's ticks of 10 µs are above so many bits.
const NONCE_BITS: u32 = 14;
const TICKS_PER_MS: u64 = 100;

/// The largest object's name, and the largest metadata: Swift's limits.
const NAME_BYTES: usize = 1024;
const META_COUNT: usize = 90;
const META_NAME_BYTES: usize = 128;
const META_VALUE_BYTES: usize = 256;
const META_BYTES: usize = 4096;
const OTHER_VALUE_BYTES: usize = 8192;

/// A request that its grant covers.
pub(crate) struct Covered {
    pub(crate) device: String,
    pub(crate) request: Request,
    /// The version of the ring that this server has for the object's policy.
    pub(crate) ring: u64,
    /// By which requests are covered that are many in one message.
    pub(crate) shown: Option<Shown>,
}

/// A grant that a guest has shown, and that counts, for many requests.
pub(crate) struct Shown {
    known: Arc<Guests>,
    passed: Arc<Passed>,
    now_ms: u64,
}

impl Shown {
    /// Check one of the requests.
    pub(crate) fn check(&self, object: &[u8], request: &Request, body_bytes: u64) -> Result<(), Refusal> {
        let name = name_of(&self.passed.grant, object)?;
        let (passed, now_ms) = (Arc::clone(&self.passed), self.now_ms);
        Asked { passed, name, now_ms, body_bytes: Some(body_bytes) }.check(&self.known, request)
    }
}

fn forbidden(why: &str) -> Refusal {
    Refusal::new(Status::Forbidden, why)
}

/// The refusal unless it holds.
fn must(holds: bool, why: &str) -> Result<(), Refusal> {
    if holds { Ok(()) } else { Err(forbidden(why)) }
}

/// Read a guest's request, and check it. `body_bytes`: the size of its body, if that is known.
pub(crate) fn covered(
    known: &Arc<Guests>,
    guest: &Guest,
    message: (u16, &[u8]),
    body_bytes: Option<u64>,
) -> Result<Covered, Refusal> {
    covered_at(now_ms(), known, guest, message, body_bytes)
}

/// The same at a time.
pub(crate) fn covered_at(
    now_ms: u64,
    known: &Arc<Guests>,
    guest: &Guest,
    (method, header): (u16, &[u8]),
    body_bytes: Option<u64>,
) -> Result<Covered, Refusal> {
    let guests::Parts { grant: signed, object, header } = guests::decode(header)?;
    let passed = known.pass(guest, &signed, now_ms)?;
    let (device, request) = Request::decode(method, header)?;
    let ring = known.ring(passed.grant.policy);
    if matches!(request, Request::Many(_)) {
        must(object.is_empty(), "many requests name their objects themselves")?;
        let shown = Some(Shown { known: Arc::clone(known), passed, now_ms });
        return Ok(Covered { device, request, ring, shown });
    }
    let name = name_of(&passed.grant, &object)?;
    Asked { passed, name, now_ms, body_bytes }.check(known, &request)?;
    Ok(Covered { device, request, ring, shown: None })
}

/// `/account/container/object`.
fn name_of(grant: &Grant, object: &[u8]) -> Result<Vec<u8>, Refusal> {
    let valid = (1..=NAME_BYTES).contains(&object.len()) && !object.contains(&0) && std::str::from_utf8(object).is_ok();
    must(valid, "an object can't have this name")?;
    must(grant.scope.covers(object), "the grant does not cover this object")?;
    Ok([b"/", grant.account.as_bytes(), b"/", grant.container.as_bytes(), b"/", object].concat())
}

struct Asked {
    passed: Arc<Passed>,
    name: Vec<u8>,
    now_ms: u64,
    body_bytes: Option<u64>,
}

impl Asked {
    fn check(&self, guests: &Guests, request: &Request) -> Result<(), Refusal> {
        match request {
            Request::Get { key, .. } => self.read(guests, key, Operations::GET),
            Request::Head { key, .. } => {
                let either = if self.may(Operations::GET) { Operations::GET } else { Operations::HEAD };
                self.read(guests, key, either)
            }
            Request::Put { key, meta, footer, row } => {
                self.write(guests, key, Operations::PUT, *row, meta.timestamp)?;
                self.named(&meta.name)?;
                must(meta.delete_at == 0 && meta.sysmeta.is_empty(), "a guest can't set what this object has")?;
                must(plain::is_plain_type(&meta.content_type), "the content type is one that only proxies may set")?;
                metadata(&meta.metadata)?;
                let etag = footer.as_ref().is_none_or(|footer| plain::is_etag(&footer.etag));
                must(etag, "the ETag has none of the forms that there are")?;
                let size = self.size(footer.as_ref().map(|footer| footer.size).or(self.body_bytes))?;
                must(
                    self.body_bytes.is_none_or(|bytes| bytes == size),
                    "the body has another size than the footer says",
                )?;
                must(self.passed.take(size), "the grant's part of a quota is used up here; renew it")
            }
            Request::Prepare { key, timestamp, row, size } => {
                self.write(guests, key, Operations::PUT, *row, *timestamp)?;
                self.size(*size).map(drop)
            }
            Request::Post { key, meta, row, .. } => {
                self.write(guests, key, Operations::POST, *row, meta.timestamp)?;
                must(meta.delete_at == 0, "a guest can't let objects expire")?;
                metadata(&meta.metadata)?;
                let typed = meta.content_type.as_ref().is_none_or(|new| plain::is_plain_type(new));
                must(typed, "the content type is one that only proxies may set")?;
                let timestamp = if meta.content_type.is_some() { meta.timestamp } else { 0 };
                must(meta.content_type_timestamp == timestamp, "the content type has a time of its own")
            }
            Request::Delete { key, timestamp, name, row } => {
                self.write(guests, key, Operations::DELETE, *row, *timestamp)?;
                self.named(name)
            }
            Request::Remove { .. }
            | Request::Policies
            | Request::Partitions(_)
            | Request::Suffixes(..)
            | Request::Entries(..)
            | Request::Acknowledge(_)
            | Request::Fragment(_)
            | Request::Pack(_)
            | Request::Many(_)
            | Request::Revoke { .. } => Err(forbidden("only members of the cluster may do this")),
        }
    }

    fn may(&self, operation: Operations) -> bool {
        self.passed.grant.operations.include(operation)
    }

    fn read(&self, guests: &Guests, key: &Key, operation: Operations) -> Result<(), Refusal> {
        must(self.may(operation), "the grant does not cover this operation")?;
        let grant = &self.passed.grant;
        let digest = guests.digest(&self.name);
        let [a, b, c, d, ..] = digest;
        let partition = u32::from_be_bytes([a, b, c, d]).checked_shr(32 - u32::from(grant.part_power)).unwrap_or(0);
        let is_right = key.policy == grant.policy && key.digest == digest && key.partition == partition;
        must(is_right, "the object is not in this place")
    }

    fn write(
        &self,
        guests: &Guests,
        key: &Key,
        operation: Operations,
        row: u32,
        timestamp: u64,
    ) -> Result<(), Refusal> {
        self.read(guests, key, operation)?;
        must(row != 0 && row & !self.passed.grant.rows == 0, "a write owes its row to replicas of the container")?;
        let at_ms = (timestamp >> NONCE_BITS) / TICKS_PER_MS;
        if at_ms > self.now_ms + AHEAD_MS || at_ms + BEHIND_MS < self.now_ms {
            let text = "the timestamp is too far from this server's clock, which is told";
            let timestamp = (self.now_ms * TICKS_PER_MS) << NONCE_BITS;
            return Err(Refusal { timestamp, ..Refusal::new(Status::ClockDiffers, text) });
        }
        Ok(())
    }

    fn named(&self, name: &[u8]) -> Result<(), Refusal> {
        must(name == self.name, "the request names two objects")
    }

    fn size(&self, size: Option<u64>) -> Result<u64, Refusal> {
        let size = size.ok_or_else(|| forbidden("a guest has to know the size of what it stores"))?;
        must(size <= self.passed.grant.object_bytes, "the object is larger than the grant allows")?;
        Ok(size)
    }
}

/// Check metadata that a guest sets.
fn metadata(pairs: &Pairs) -> Result<(), Refusal> {
    let (mut count, mut bytes) = (0, 0);
    for (name, value) in pairs {
        must(plain::is_shown(name) && plain::is_value(value), "metadata that a guest can't set")?;
        let Some(own) = name.strip_prefix(plain::META) else {
            must(value.len() <= OTHER_VALUE_BYTES, "metadata over a limit")?;
            continue;
        };
        count += 1;
        bytes += own.len() + value.len();
        let fits = (1..=META_NAME_BYTES).contains(&own.len()) && value.len() <= META_VALUE_BYTES;
        must(fits && count <= META_COUNT && bytes <= META_BYTES, "metadata over a limit")?;
    }
    let names = pairs.iter().map(|(name, _)| name);
    let unique = names.clone().enumerate().all(|(at, name)| !names.clone().take(at).any(|other| other == name));
    must(unique, "metadata of the same name twice")
}
