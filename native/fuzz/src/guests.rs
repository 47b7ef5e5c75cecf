//! What guests ask, one by one and many in one message, by grants that count and by others.
//!
//! An input is: which grant, where it is changed (u16), how many bytes (u8) and those bytes, which lie is told, a method
//! (u8), the length of what follows the grant in the header (u16), that (the object's name, then what a member would
//! send), and the body. The message is judged as it is, and *mended*: with place, names, sizes and times as they have to
//! be, which no search would find. What is let through is compared with what the grant says, by rules that are written
//! down here a second time.

use std::sync::{Arc, OnceLock};

use swiftlet_node::fuzzing::{Allowed, allowed, revoke};
use swiftlet_node::message::many::{One, push, requests};
use swiftlet_node::message::{Request, guests};
use swiftlet_node::{AHEAD_MS, BEHIND_MS, Guests, LONGEST_LIFE_MS};
use swiftlet_store::model::{Footer, Key, Pairs};
use swiftlet_transport::Guest;
use swiftlet_wire::guest::{Grant, Operations, Scope, Session};
use swiftlet_wire::handshake;

/// When all of it happens, in milliseconds since 1970.
const NOW_MS: u64 = 1_800_000_000_000;
const POWER: u8 = 6;
const ROWS: u32 = 0b101;
const SESSION: [u8; 16] = [5; 16];
const MANY: u8 = 19;

/// A grant as it is shown, and what it says if it counts here.
type Shown = (Vec<u8>, Option<Grant>);

fn grant(scope: Scope, operations: u8) -> Grant {
    Grant {
        session: SESSION,
        issued_ms: NOW_MS - 1000,
        ends_ms: NOW_MS + 60_000,
        policy: 1,
        part_power: POWER,
        operations: Operations::of(operations).unwrap_or(Operations::HEAD),
        rows: ROWS,
        object_bytes: 2000,
        slice_objects: u64::MAX,
        slice_bytes: u64::MAX,
        account: "AUTH_a".to_owned(),
        container: "c".to_owned(),
        scope,
    }
}

/// Grants that count, before those that don't.
fn grants() -> &'static [Shown] {
    static ALL: OnceLock<Vec<Shown>> = OnceLock::new();
    ALL.get_or_init(|| {
        let (ours, other) = (handshake::Key::new(b"ours"), handshake::Key::new(b"other"));
        let all = || grant(Scope::Container, 31);
        let counting = [
            all(),
            grant(Scope::Prefix("p/".to_owned()), 31),
            grant(Scope::Object("o".to_owned()), 31),
            grant(Scope::Container, 1),
            grant(Scope::Container, 2),
            grant(Scope::Container, 4 + 16),
            Grant { slice_objects: 2, slice_bytes: 100, ..all() },
        ];
        let others = [
            (Grant { session: [6; 16], ..all() }, &ours),
            (all(), &other),
            (Grant { ends_ms: NOW_MS - 1, ..all() }, &ours),
            (Grant { issued_ms: NOW_MS + AHEAD_MS + 1, ..all() }, &ours),
            (Grant { ends_ms: NOW_MS + LONGEST_LIFE_MS, ..all() }, &ours),
            (Grant { issued_ms: NOW_MS - 5000, ..all() }, &ours),
            (Grant { account: "AUTH_revoked".to_owned(), ..all() }, &ours),
        ];
        let signed = |grant: &Grant, key| grant.sign(key).unwrap_or_default();
        let counting = counting.map(|grant| (signed(&grant, &ours), Some(grant)));
        let others = others.iter().map(|(grant, key)| (signed(grant, key), None));
        counting.into_iter().chain(others).collect()
    })
}

/// A server as it is before this guest has asked anything.
fn server() -> (Arc<Guests>, Guest) {
    let known = Guests::new(vec![handshake::Key::new(b"ours")], (b"before".to_vec(), b"after".to_vec()));
    revoke(&known, b"AUTH_a", b"c", NOW_MS - 2000, NOW_MS);
    // A time that is not here yet ends what was granted until now, and no more than that.
    revoke(&known, b"AUTH_revoked", b"", u64::MAX, NOW_MS);
    let session = Session { key_id: handshake::Key::new(b"ours").id(), id: SESSION, ends_s: u64::MAX };
    (Arc::new(known), Guest { session, memory: OnceLock::new() })
}

fn full_name(object: &[u8]) -> Vec<u8> {
    [b"/AUTH_a/c/", object].concat()
}

fn place(object: &[u8]) -> Key {
    let digest = swiftlet_hash::md5(&[&b"before"[..], &full_name(object), b"after"].concat());
    let partition = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]) >> (32 - POWER);
    Key { policy: 1, partition, digest }
}

/// What is written by a request: its row, its time, and the bytes of the object.
fn written(request: &Request, bytes: u64) -> Option<(u32, u64, u64)> {
    match request {
        Request::Put { row, meta, footer, .. } => {
            Some((*row, meta.timestamp, footer.as_ref().map_or(bytes, |footer| footer.size)))
        }
        Request::Prepare { row, timestamp, size, .. } => Some((*row, *timestamp, size.unwrap_or(u64::MAX))),
        Request::Post { row, meta, .. } => Some((*row, meta.timestamp, 0)),
        Request::Delete { row, timestamp, .. } => Some((*row, *timestamp, 0)),
        _ => None,
    }
}

fn are_plain(pairs: &Pairs) -> bool {
    let internal: [&[u8]; 3] = [b"x-delete-at", b"x-object-manifest", b"x-object-sysmeta"];
    pairs.iter().all(|(name, value)| {
        let lower = name.to_ascii_lowercase();
        !internal.iter().any(|of| lower.starts_with(of)) && !value.contains(&b'\n') && !value.contains(&b'\r')
    })
}

/// Whether a grant says that this may be done: the rules once more.
fn must_cover(grant: &Grant, one: &Allowed) {
    let Allowed { object, request, bytes } = one;
    assert!(!object.is_empty() && object.len() <= 1024 && !object.contains(&0), "a name that no object has");
    match &grant.scope {
        Scope::Container => {}
        Scope::Prefix(prefix) => assert!(object.starts_with(prefix.as_bytes()), "beyond the prefix"),
        Scope::Object(name) => assert_eq!(object, name.as_bytes(), "another object"),
    }
    let (key, bits) = match request {
        Request::Get { key, .. } => (key, 1),
        Request::Head { key, .. } => (key, 1 | 2),
        Request::Put { key, .. } | Request::Prepare { key, .. } => (key, 4),
        Request::Post { key, .. } => (key, 8),
        Request::Delete { key, .. } => (key, 16),
        other => panic!("a guest did what only members do: {other:?}"),
    };
    let may = [Operations::GET, Operations::HEAD, Operations::PUT, Operations::POST, Operations::DELETE];
    let may = (0..5).any(|at| bits & (1 << at) != 0 && grant.operations.include(may[at]));
    assert!(may, "an operation beyond the grant: {request:?}");
    assert_eq!(*key, place(object), "another object's place");
    if let Some((row, timestamp, size)) = written(request, *bytes) {
        let at_ms = (timestamp >> 14) / 100;
        assert!(at_ms <= NOW_MS + AHEAD_MS && at_ms + BEHIND_MS >= NOW_MS, "a time that wins unfairly");
        assert!(row != 0 && row & !grant.rows == 0, "a row for somebody else");
        assert!(size <= grant.object_bytes, "too large");
    }
    match request {
        Request::Put { meta, footer, .. } => {
            assert_eq!(meta.name, full_name(object));
            assert!(meta.sysmeta.is_empty() && meta.delete_at == 0 && are_plain(&meta.metadata));
            assert!(footer.as_ref().is_none_or(|footer| footer.size == *bytes), "a size that is none");
        }
        Request::Post { meta, .. } => assert!(meta.delete_at == 0 && are_plain(&meta.metadata)),
        Request::Delete { name, .. } => assert_eq!(*name, full_name(object)),
        _ => {}
    }
}

/// Judge a message by a grant; what is let through is what that grant covers.
fn judge(shown: &[u8], counts: Option<&Grant>, (method, object, header): (u8, &[u8], &[u8]), body: &[u8]) -> usize {
    let (known, guest) = server();
    let Ok(header) = guests::encode(shown, object, header) else { return 0 };
    let all = allowed(NOW_MS, &known, &guest, (u16::from(method), &header), body).unwrap_or_default();
    let Some(grant) = counts else {
        assert!(all.is_empty(), "a grant that does not count: {all:?}");
        return 0;
    };
    all.iter().for_each(|one| must_cover(grant, one));
    let sizes = all.iter().filter(|one| matches!(one.request, Request::Put { .. })).map(|one| one.bytes);
    let (count, sum) = sizes.fold((0, 0), |(count, sum), bytes| (count + 1, sum + bytes));
    assert!(count <= grant.slice_objects && sum <= grant.slice_bytes, "beyond a quota's slice");
    all.len()
}

/// The request as an honest guest would make it.
fn mended(object: &[u8], mut request: Request, body: &[u8]) -> Request {
    let time = |timestamp: u64| (NOW_MS * 100) << 14 | timestamp & 0x3fff;
    let mend_row = |row: u32| if row & ROWS == 0 { 1 } else { row & ROWS };
    match &mut request {
        Request::Get { key, .. } | Request::Head { key, .. } => *key = place(object),
        Request::Put { key, meta, footer, row } => {
            (*key, *row) = (place(object), mend_row(*row));
            (meta.name, meta.timestamp) = (full_name(object), time(meta.timestamp));
            (meta.sysmeta, meta.delete_at) = (Vec::new(), 0);
            *footer =
                Some(Footer { size: body.len() as u64, etag: vec![b'a'; 32], xxh3: swiftlet_hash::xxh3_64(body) });
        }
        Request::Prepare { key, timestamp, row, .. } => {
            (*key, *row, *timestamp) = (place(object), mend_row(*row), time(*timestamp));
        }
        Request::Post { key, meta, row, .. } => {
            (*key, *row, meta.timestamp) = (place(object), mend_row(*row), time(meta.timestamp));
            meta.delete_at = 0;
            meta.content_type_timestamp = if meta.content_type.is_some() { meta.timestamp } else { 0 };
        }
        Request::Delete { key, timestamp, name, row } => {
            (*key, *row, *timestamp) = (place(object), mend_row(*row), time(*timestamp));
            *name = full_name(object);
        }
        _ => {}
    }
    request
}

/// The same with one lie in it; None if this lie can't be told by it.
fn with_lie(mut request: Request, lie: u8) -> Option<Request> {
    let far = (3_600_000 * 100) << 14;
    match &mut request {
        Request::Get { key, .. } | Request::Head { key, .. } if !lie.is_multiple_of(3) => lie_of_place(key, lie),
        Request::Put { key, meta, footer, row } => match lie % 9 {
            1 | 2 => lie_of_place(key, lie),
            3 => meta.name.push(b'x'),
            4 => meta.timestamp += far,
            5 => meta.timestamp -= far,
            6 => *row |= 8,
            7 => meta.sysmeta = vec![(b"X-Object-Sysmeta-Slo-Etag".to_vec(), b"1".to_vec())],
            8 => footer.as_mut()?.size += 1,
            _ => meta.delete_at = NOW_MS / 1000,
        },
        Request::Post { key, meta, row, .. } => match lie % 6 {
            1 | 2 => lie_of_place(key, lie),
            3 => meta.timestamp += far,
            4 => *row = 0,
            5 => meta.metadata = vec![(b"X-Object-Manifest".to_vec(), b"c/p".to_vec())],
            _ => meta.delete_at = NOW_MS / 1000,
        },
        Request::Delete { key, timestamp, name, row } => match lie % 6 {
            1 | 2 => lie_of_place(key, lie),
            3 => *timestamp += far,
            4 => *timestamp -= far,
            5 => *row = 0,
            _ => name.push(b'x'),
        },
        _ => return None,
    }
    Some(request)
}

fn lie_of_place(key: &mut Key, lie: u8) {
    match lie % 3 {
        0 => key.policy ^= 1,
        1 => key.partition ^= 1,
        _ => key.digest[15] ^= 1,
    }
}

/// The bytes of a grant, changed at a place.
fn changed(signed: &[u8], at: usize, replaced: &[u8]) -> Vec<u8> {
    let mut bytes = signed.to_vec();
    let at = at.min(bytes.len());
    let end = (at + replaced.len()).min(bytes.len());
    drop(bytes.splice(at..end, replaced.iter().copied()));
    bytes
}

/// Messages of guests. See above for what an input is.
pub fn guests(data: &[u8]) {
    let Some(([which, at_high, at_low, count], rest)) = data.split_first_chunk() else { return };
    let Some((replaced, [lie, method, head_high, head_low, rest @ ..])) = rest.split_at_checked((*count).into()) else {
        return;
    };
    let head_bytes = usize::from(u16::from_be_bytes([*head_high, *head_low])).min(rest.len());
    let (head, body) = rest.split_at(head_bytes);
    let Some(([high, low], head)) = head.split_first_chunk() else { return };
    let Some((object, header)) = head.split_at_checked(u16::from_be_bytes([*high, *low]).into()) else { return };
    let all = grants();
    let (signed, counts) = &all[usize::from(*which) % all.len()];
    let shown = changed(signed, u16::from_be_bytes([*at_high, *at_low]).into(), replaced);
    let counts = counts.as_ref().filter(|_| shown == *signed);
    let by = |message: (u8, &[u8], &[u8]), body: &[u8]| judge(&shown, counts, message, body);
    by((*method, object, header), body);

    // The same from an honest guest, and with one lie.
    let Ok((device, request)) = Request::decode((*method).into(), header) else { return };
    let Request::Many(number) = request else {
        let request = mended(object, request, body);
        if let Ok(header) = request.encode(&device) {
            by((*method, object, &header), body);
        }
        if let Some(Ok(header)) = with_lie(request, *lie).map(|request| request.encode(&device)) {
            assert_eq!(by((*method, object, &header), body), 0, "a lie was believed");
        }
        return;
    };
    let Ok(ones) = requests(number.into(), body) else { return };
    let (mut honest, mut lying) = (Vec::new(), Vec::new());
    for One { object, method, fields, body } in ones {
        let Ok(request) = Request::from_fields(method, fields) else { continue };
        let request = mended(object, request, body);
        if let Some(request) = with_lie(request.clone(), *lie)
            && push(&mut lying, object, &request, body).is_err()
        {
            return;
        }
        if push(&mut honest, object, &request, body).is_err() {
            return;
        }
    }
    for (body, believed) in [(&honest, true), (&lying, false)] {
        // However many they are: what does not fit the count is refused.
        let count = (1..=256_u16).find(|count| requests((*count).into(), body).is_ok()).unwrap_or(1);
        if let Ok(header) = Request::Many(count).encode(&device) {
            let allowed = by((MANY, b"", &header), body);
            assert!(believed || allowed == 0, "a lie among many was believed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_grant_covers_is_let_through() {
        let get = |object: &[u8]| Request::Get { key: place(object), start: 0, stop: 9, whole: 9, proved: false };
        let put =
            mended(b"o", Request::Put { key: place(b"o"), meta: Default::default(), footer: None, row: 1 }, b"data");
        let typed = |request: Request| match request {
            Request::Put { key, mut meta, footer, row } => {
                meta.content_type = b"text/plain".to_vec();
                Request::Put { key, meta, footer, row }
            }
            other => other,
        };
        let (get, put) = (get(b"o"), typed(put));
        let mut many = Vec::new();
        push(&mut many, b"o", &get, b"").unwrap_or_default();
        push(&mut many, b"o", &put, b"data").unwrap_or_default();
        // By all; by the prefix that does not cover it; by the name; to read; to describe; to write; by a slice.
        let expected = [(1, 1, 2), (0, 0, 0), (1, 1, 2), (1, 0, 1), (0, 0, 0), (0, 1, 1), (1, 1, 2)];
        for ((signed, counts), expected) in grants().iter().zip(expected) {
            let by = |request: &Request, object: &[u8], body: &[u8]| {
                let header = request.encode("d0").unwrap_or_default();
                judge(signed, counts.as_ref(), (request.method() as u8, object, &header), body)
            };
            let found = (by(&get, b"o", b""), by(&put, b"o", b"data"), by(&Request::Many(2), b"", &many));
            assert_eq!(found, expected, "{counts:?}");
        }
    }
}
