//! Storing an object on all of its devices, or deleting one: the request to each, and its timestamp.
//!
//! Fault model: a device may refuse, be silent, or be lost after it has carried out its part. A PUT is then repeated by
//! Python as it is. A repeated DELETE finds no object where the first one has deleted it, so it is told whether there
//! was one; that is known only once the devices have answered, so a DELETE waits for all of them, within bounds.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use swiftlet_node::message::Request;
use swiftlet_node::plain::DELETE_AT;
use swiftlet_node::{Replica, Terms, calls};
use swiftlet_store::model::{Footer, Key, PutMeta};
use swiftlet_transport::{Call, Chunk, What};

use crate::body::Content;
use crate::connection::Storing;
use crate::grants::Granted;
use crate::head::{Asked, Method, PIECE, Stored};
use crate::made::Made;
use crate::name;
use crate::routes::Device;
use crate::row::Row;
use crate::shared::Shared;

/// Plan a write whose body is complete: what is kept of it, and a request for each of the object's devices; None if
/// Python has to answer.
pub(crate) fn planned(
    shared: &Shared,
    asked: &Asked<'_>,
    content: &Content<'_>,
    granted: Granted,
    (timestamp, id, delete_at): (u64, String, u64),
    now: Instant,
) -> Option<(Storing, Vec<Call>)> {
    let (_, object) = name::split(asked.target)?;
    let secret = &shared.settings.secret;
    let digest = name::digest((&secret.0, &secret.1), &granted.container, object)?;
    let mut name = granted.container.to_vec();
    if !name::decode(object, &mut name) {
        return None;
    }
    let policy = shared.policy(granted.policy)?;
    let key = Key { policy: granted.policy, partition: policy.partition(&digest), digest };
    let (devices, peers): (Vec<u16>, Vec<Arc<Device>>) = policy.to_write(key.partition, now)?.into_iter().unzip();
    if peers.is_empty() || peers.len() != granted.rows.len() || peers.len() > MAX_REPLICAS {
        return None;
    }
    let object = &name[granted.container.len()..];
    let version = match &asked.stored {
        Some(stored) => Some(Version::of(stored, content, object, granted.xxh3_etags)?),
        None => None,
    };
    let deletion = Row { name: object.to_vec(), timestamp, deleted: true, ..Row::default() };
    let row = match &version {
        Some(Version { footer: Footer { size, etag, .. }, content_type, .. }) => {
            let (etag, content_type) = (etag.clone(), content_type.clone());
            Row { size: *size, etag, content_type, deleted: false, ..deletion }
        }
        None => deletion,
    };
    let settings = &shared.settings;
    // As long as Python waits for a device: of a deletion because most must answer before it is known whether there was
    // an object, and for what has several pieces, because that takes as long as it takes to write them.
    let is_short = version.is_some() && content.len() <= PIECE;
    let timeout = if is_short { settings.store_timeout } else { settings.answer_timeout };
    let (mut request, pieces) = match &version {
        Some(new) => (new.request(key, &name, timestamp, delete_at), &new.pieces[..]),
        None => (Request::Delete { key, timestamp, name: name.clone(), row: 0 }, &[][..]),
    };
    let data = if let [one] = pieces { one.clone() } else { Chunk::from(Vec::new()) };
    let each: Vec<_> = peers.iter().zip(granted.rows.iter()).map(|(device, row)| (device.name(), *row)).collect();
    let terms = Terms { timeout, trace: id.clone(), guest: None };
    let mut calls = calls(&mut request, &data, &each, &terms).ok()?;
    if pieces.len() > 1 {
        calls.iter_mut().for_each(|call| call.body = pieces.to_vec().into());
    }
    let Granted { container, rows, awaited, .. } = granted;
    let (holders, parts) = (peers.clone(), Vec::new());
    let made = Made {
        token: 0,
        container,
        rows,
        awaited,
        row,
        key,
        timestamp,
        devices,
        holders,
        id: id.clone(),
        parts,
        is_task: false,
    };
    let start = asked.method.name().len() + 1;
    let storing = Storing {
        method: asked.method,
        target: start..start + asked.target.len(),
        bytes: asked.bytes + content.read_bytes(),
        close: !asked.keep_alive,
        begun: now,
        replicas: vec![Replica::Asked; peers.len()],
        existed: false,
        devices: peers,
        made: Some(made),
        tickets: Vec::new(),
        id,
        timestamp,
        etag: version.map(|new| new.footer.etag).unwrap_or_default(),
        body_bytes: content.len() as u64,
    };
    Some((storing, calls))
}

/// A new version of an object.
struct Version {
    footer: Footer,
    content_type: Vec<u8>,
    metadata: Vec<(Vec<u8>, Vec<u8>)>,
    pieces: Vec<Chunk>,
}

impl Version {
    fn of(stored: &Stored<'_>, content: &Content<'_>, object: &[u8], xxh3_etags: bool) -> Option<Self> {
        let etag = etag_of(content, stored.etag, xxh3_etags)?;
        let content_type = match stored.content_type {
            // By the endings of names others decide.
            [] if object.contains(&b'.') => return None,
            [] => b"application/octet-stream".to_vec(),
            given => given.to_vec(),
        };
        let items = stored.items.iter().map(|(name, value)| (name.clone(), value.to_vec()));
        let kept = stored.kept.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec()));
        Some(Self {
            footer: Footer { size: content.len() as u64, etag, xxh3: content.xxh3_64() },
            content_type,
            metadata: items.chain(kept).collect(),
            pieces: content.pieces(),
        })
    }

    fn request(&self, key: Key, name: &[u8], timestamp: u64, delete_at: u64) -> Request {
        let goes = (delete_at > 0).then(|| (DELETE_AT.to_vec(), format!("{delete_at:010}").into_bytes()));
        let meta = PutMeta {
            name: name.to_vec(),
            timestamp,
            content_type: self.content_type.clone(),
            metadata: self.metadata.iter().cloned().chain(goes).collect(),
            sysmeta: Vec::new(),
            delete_at,
        };
        Request::Put { key, meta, footer: Some(self.footer.clone()), row: 0 }
    }
}

/// None if a PUT with this content is refused, or is Python's.
pub(crate) fn is_storable(stored: &Stored<'_>, content: &Content<'_>, object: &[u8], xxh3_etags: bool) -> Option<()> {
    Version::of(stored, content, object, xxh3_etags).map(|_| ())
}

impl Storing {
    /// Note what a device has answered; returns false for an event that is no answer.
    pub(crate) fn note(&mut self, replica: usize, what: &What) -> bool {
        let Some((known, existed)) = Replica::of(what) else { return false };
        self.replicas[replica] = known;
        self.existed |= existed;
        true
    }

    /// Whether devices are still waited for.
    pub(crate) fn waits(&self) -> bool {
        let failed = |one: &Replica| matches!(one, Replica::Refused | Replica::Unknown);
        let is_hopeless = self.method == Method::Put && self.replicas.iter().any(failed);
        !is_hopeless && self.replicas.contains(&Replica::Asked)
    }

    /// Give up on devices that have not answered: they are not asked for a while.
    pub(crate) fn give_up(&mut self, now: Instant) {
        for (replica, device) in self.replicas.iter_mut().zip(&self.devices) {
            if *replica == Replica::Asked {
                device.failed(now);
                *replica = Replica::Unknown;
            }
        }
    }

    /// Whether it succeeded everywhere, and can be answered once its row is listed.
    pub(crate) fn is_done(&self) -> bool {
        let all = self.replicas.iter().all(|one| *one == Replica::Done);
        // Of what was not there Python says so.
        all && (self.method == Method::Put || self.existed)
    }

    /// Whether it is known of most devices what they have done.
    pub(crate) fn is_mostly_known(&self) -> bool {
        let known = |one: &&Replica| matches!(one, Replica::Done | Replica::Refused);
        self.replicas.iter().filter(known).count() * 2 > self.replicas.len()
    }

    /// Whether a device, or most devices without a word, may have deleted an object: whoever repeats the request does
    /// not find it.
    pub(crate) fn may_have_deleted(&self) -> bool {
        self.method == Method::Delete && (self.existed || !self.is_mostly_known())
    }

    /// The version of a PUT that devices may have, of which whoever repeats the request is told.
    pub(crate) fn may_have_stored(&self) -> Option<u64> {
        (self.method == Method::Put).then_some(self.timestamp)
    }
}

/// The ETag of a body; None if its MD5 differs from the one that the client has sent. A client that sends one compares
/// ETags with MD5, so then the object has it as its ETag whatever the policy says.
fn etag_of(content: &Content<'_>, expected: Option<&[u8]>, xxh3: bool) -> Option<Vec<u8>> {
    if xxh3 && expected.is_none() {
        return Some(format!("xxh3-{:032x}", content.xxh3_128()).into_bytes());
    }
    let etag = format!("{:032x}", u128::from_be_bytes(content.md5())).into_bytes();
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
        self.last = ticks().max(self.last + 1);
        self.last << 14 | u64::from(self.nonce & 0x3fff)
    }

    /// The latest moment that it knows of, in whole seconds since 1970.
    pub(crate) fn now_s(&self) -> u64 {
        ticks().max(self.last) / TICKS_PER_SECOND
    }
}

const TICKS_PER_SECOND: u64 = 100_000;

fn ticks() -> u64 {
    const TICK_US: u128 = 10;
    (SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() / TICK_US) as u64
}

#[cfg(test)]
mod tests {
    use swiftlet_hash::md5;
    use swiftlet_node::Status;
    use swiftlet_node::message::Written;
    use swiftlet_transport::Error;

    use super::*;

    const NAMES: [(char, Replica); 4] =
        [('a', Replica::Asked), ('d', Replica::Done), ('r', Replica::Refused), ('u', Replica::Unknown)];

    fn storing(method: Method, replicas: &str, existed: bool) -> Storing {
        let replica = |letter: char| NAMES.iter().find(|(name, _)| *name == letter).expect("a name").1;
        Storing {
            method,
            target: 0..0,
            bytes: 0,
            close: false,
            begun: Instant::now(),
            devices: Vec::new(),
            replicas: replicas.chars().map(replica).collect(),
            existed,
            made: None,
            tickets: Vec::new(),
            id: String::new(),
            timestamp: 1,
            etag: Vec::new(),
            body_bytes: 0,
        }
    }

    #[test]
    fn a_deletion_waits_for_all_devices_and_tells_whether_there_was_an_object() {
        // What devices have answered, whether any had it; then whether others are waited for, whether most are known,
        // whether it has succeeded, and what whoever repeats it is told.
        for (replicas, existed, waits, known, done, told) in [
            ("aaa", false, true, false, false, true),
            ("daa", false, true, false, false, true),
            ("raa", false, true, false, false, true),
            ("dda", false, true, true, false, false),
            ("dda", true, true, true, false, true),
            ("dra", true, true, true, false, true),
            ("ddd", true, false, true, true, true),
            ("ddd", false, false, true, false, false),
            ("ddr", true, false, true, false, true),
            ("ddu", true, false, true, false, true),
            ("ddu", false, false, true, false, false),
            ("duu", false, false, false, false, true),
            ("rrr", false, false, true, false, false),
            ("u", false, false, false, false, true),
            ("d", true, false, true, true, true),
            ("du", false, false, false, false, true),
        ] {
            let one = storing(Method::Delete, replicas, existed);
            let found = (one.waits(), one.is_mostly_known(), one.is_done(), one.may_have_deleted());
            assert_eq!(found, (waits, known, done, told), "{replicas} {existed}");
        }
    }

    #[test]
    fn a_put_is_given_up_with_the_first_device_that_fails() {
        for (replicas, waits, done) in [
            ("aaa", true, false),
            ("daa", true, false),
            ("dra", false, false),
            ("uaa", false, false),
            ("ddd", false, true),
        ] {
            let one = storing(Method::Put, replicas, true);
            assert_eq!((one.waits(), one.is_done(), one.may_have_deleted()), (waits, done, false), "{replicas}");
        }
    }

    #[test]
    fn what_an_answer_says_of_a_deletion() {
        let written = |pending, existed| Written { pending, existed }.encode();
        let reply = |status: Status, header| What::Reply {
            status: status as u16,
            header,
            body_bytes: None,
            body: None,
            whole: true,
        };
        for (what, replica, existed) in [
            (reply(Status::Ok, written(true, true)), Replica::Done, true),
            (reply(Status::Ok, written(true, false)), Replica::Done, false),
            (reply(Status::Ok, written(false, true)), Replica::Refused, true),
            (reply(Status::Ok, Vec::new()), Replica::Unknown, false),
            (reply(Status::Superseded, Vec::new()), Replica::Refused, false),
            (reply(Status::NodeBusy, Vec::new()), Replica::Refused, false),
            (What::Failed(Error::Unreachable(String::new())), Replica::Refused, false),
            (What::Failed(Error::Overloaded), Replica::Refused, false),
            (What::Failed(Error::Lost(String::new())), Replica::Unknown, false),
            (What::Failed(Error::Deadline), Replica::Unknown, false),
        ] {
            let mut one = storing(Method::Delete, "daa", false);
            assert!(!one.note(1, &What::Sent(3)));
            assert!(one.note(1, &what));
            assert_eq!((one.replicas[1], one.replicas[2], one.existed), (replica, Replica::Asked, existed), "{what:?}");
        }
    }

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
            for known in [None, Some(md5(b"abc"))] {
                let content = Content::of(b"abc", None, (0, 3), known).expect("all of it");
                assert_eq!(etag_of(&content, expected, xxh3).as_deref(), etag, "{known:?} {expected:?} {xxh3}");
            }
        }
    }
}
