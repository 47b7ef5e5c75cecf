//! Frames, their meta parts, and the handshake.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use swiftlet_wire::Violation;
use swiftlet_wire::frame::{Decoder, END, Encoder, Found, Head, Kind, LENT};
use swiftlet_wire::guest::{Grant, Invalid, Operations, Scope, Session};
use swiftlet_wire::handshake::{Admission, Client, Credentials, Identity, Key, Limits, Server};
use swiftlet_wire::limits::{HEAD_BYTES, META_BYTES, TEXT_BYTES};
use swiftlet_wire::message::{
    Offer, Reply, Request, decode_cancel, decode_footer, decode_number, decode_region, decode_tried, encode_cancel,
    encode_region, encode_tried,
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const SESSION: u64 = 0x0123_4567_89ab_cdef;
/// The kinds of an open connection, those of a request before the others.
const STREAM_KINDS: usize = 8;
const KINDS: [Kind; 12] = [
    Kind::Request,
    Kind::Reply,
    Kind::Offer,
    Kind::Grant,
    Kind::Data,
    Kind::Done,
    Kind::End,
    Kind::Cancel,
    Kind::Ping,
    Kind::Pong,
    Kind::Region,
    Kind::Tried,
];

fn open_decoder() -> Decoder {
    let mut decoder = Decoder::default();
    decoder.begin_session(SESSION);
    decoder
}

/// A meta part as its kind has it; what is accepted is, made anew, the same bytes.
fn meta(kind: Kind, flags: u8, meta: &[u8]) -> Result<(), Violation> {
    match kind {
        Kind::Request => {
            let request = Request::decode(meta)?;
            assert_eq!([&request.encode()[..], request.header].concat(), meta);
        }
        Kind::Reply => {
            let reply = Reply::decode(meta)?;
            assert_eq!([&reply.encode()[..], reply.header].concat(), meta);
        }
        Kind::Offer => assert_eq!(Offer::decode(meta, flags & LENT != 0)?.encode(), meta),
        Kind::Grant | Kind::Data | Kind::Done | Kind::Ping | Kind::Pong => {
            assert_eq!(decode_number(meta)?.to_be_bytes(), meta);
        }
        Kind::End => assert_eq!(decode_footer(meta)?, meta),
        Kind::Cancel => {
            // A reason that this version does not know is read as another one.
            let (reason, text) = decode_cancel(meta)?;
            assert_eq!(encode_cancel(reason, text)[2..], meta[2..]);
        }
        Kind::Region => {
            let (region, bytes, card) = decode_region(meta)?;
            assert_eq!(encode_region(region, bytes, card), meta);
        }
        Kind::Tried => {
            let (region, works) = decode_tried(meta)?;
            assert_eq!(encode_tried(region, works), meta);
        }
        _ => {}
    }
    Ok(())
}

/// All frames at the beginning of what has been received; where what follows is none, that is a violation.
fn walk(mut bytes: &[u8], mut decoder: Decoder) -> Result<(), Violation> {
    while let Found::Frame(head, part) = decoder.next(bytes)? {
        meta(head.kind, head.flags, part)?;
        let Some(rest) = bytes.get(HEAD_BYTES + head.meta_bytes + head.body_bytes..) else { break };
        bytes = rest;
    }
    Ok(())
}

/// Frames from outside, as they are and with the checks of this session.
pub fn frames(data: &[u8]) {
    drop(walk(data, Decoder::default()));
    drop(walk(data, open_decoder()));
    drop(walk(&sealed(data), open_decoder()));
}

/// The same bytes, the check of each frame made right as far as their lengths lead.
fn sealed(data: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), data);
    let mut sent = 0_u64;
    while rest.len() >= HEAD_BYTES {
        let length = |at: usize| u32::from_be_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]) as usize;
        let end = HEAD_BYTES.saturating_add(length(12));
        if end > rest.len() {
            break;
        }
        let check = xxh3_64_with_seed(&rest[8..end], SESSION ^ sent);
        out.extend_from_slice(&check.to_be_bytes());
        let all = end.saturating_add(length(16)).min(rest.len());
        out.extend_from_slice(&rest[8..all]);
        rest = &rest[all..];
        sent += 1;
    }
    out.extend_from_slice(rest);
    out
}

/// One meta part: its kind, its flags, and its bytes. It is put into a frame, found there, and read.
pub fn messages(data: &[u8]) {
    let [kind, flags, part @ ..] = data else { return };
    let number = usize::from(*kind) % KINDS.len();
    let kind = KINDS[number];
    drop(meta(kind, *flags, part));
    if part.len() > META_BYTES {
        return;
    }
    let flags = flags & if kind == Kind::Offer { LENT } else { END };
    let stream = u64::from(number < STREAM_KINDS);
    let (mut encoder, mut frame) = (Encoder::default(), Vec::new());
    encoder.begin_session(SESSION);
    encoder.encode(&mut frame, kind, flags, stream, &[part], 0);
    match open_decoder().next(&frame) {
        Ok(found) => {
            let head = Head { kind, flags, meta_bytes: part.len(), body_bytes: 0, stream };
            assert_eq!(found, Found::Frame(head, part));
        }
        // END is for REQUEST and REPLY.
        Err(violation) => assert!(flags != 0, "{violation}"),
    }
    for cut in [0, frame.len() / 2, frame.len() - 1] {
        assert!(!matches!(open_decoder().next(&frame[..cut]), Ok(Found::Frame(..))), "a frame that is cut off");
    }
}

fn identity(name: &str) -> Identity {
    let limits = Limits { window_bytes: 1 << 20, lent: true, streams: 100, inline_bytes: 1 << 20 };
    Identity { name: name.to_owned(), machine: "machine".to_owned(), limits }
}

/// What a stranger says in a handshake: HELLO, WELCOME, PROOF or REFUSE, without and with knowledge of the rest; a
/// member's and a guest's.
pub fn handshake(data: &[u8]) {
    let keys = [Key::new(b"one"), Key::new(b"two")];
    let (us, them) = (identity("server"), identity("client"));
    let admission = Admission { keys: &keys, us: &us, guests: Some(us.limits), now_s: 1 };
    // Any bytes where a HELLO is awaited.
    if let Ok(Ok((state, _))) = Server::greeted(&admission, data, &[1; 32]) {
        assert!(state.proved(&[0; 32]).is_err(), "in without a proof");
    }
    let session = Session { key_id: keys[1].id(), id: [3; 16], ends_s: 2 };
    let guest = Credentials::Guest(session, session.secret(&keys[1]));
    for credentials in [Credentials::Member(keys.to_vec()), guest] {
        shake_hands(&admission, credentials, &them, data);
    }
}

fn shake_hands(admission: &Admission<'_>, credentials: Credentials, them: &Identity, data: &[u8]) {
    let (client, hello) = Client::new(credentials, them, "server", &[2; 32]);
    assert!(client.welcomed(data).is_err(), "a welcome without the key");
    drop(Client::refused(data));
    // A true handshake, in which the bytes replace a part of what is said.
    let [message, at, replaced @ ..] = data else { return };
    let change = |whole: &[u8]| {
        let mut changed = whole.to_vec();
        let at = usize::from(*at).min(changed.len());
        let end = (at + replaced.len()).min(changed.len());
        changed[at..end].copy_from_slice(&replaced[..end - at]);
        changed
    };
    let said = if message % 3 == 0 { change(&hello) } else { hello.clone() };
    let Ok(Ok((server, welcome))) = Server::greeted(admission, &said, &[1; 32]) else { return };
    let heard = if message % 3 == 1 { change(&welcome) } else { welcome.clone() };
    let Ok((agreed, proof)) = client.welcomed(&heard) else { return };
    assert_eq!((&said, &heard), (&hello, &welcome), "what was changed on its way was believed");
    let shown = if message % 3 == 2 { change(&proof) } else { proof.to_vec() };
    match server.proved(&shown) {
        Ok(other) => assert_eq!((other.session, &shown[..]), (agreed.session, &proof[..])),
        Err(_) => assert_ne!(shown, proof),
    }
    assert!(agreed.peer.name.len() <= TEXT_BYTES);
}

fn grant() -> Grant {
    Grant {
        session: [7; 16],
        issued_ms: 1000,
        ends_ms: 61_000,
        policy: 3,
        part_power: 10,
        operations: Operations::GET,
        rows: 7,
        object_bytes: 5 << 30,
        slice_objects: 100,
        slice_bytes: 1 << 30,
        account: "AUTH_a".to_owned(),
        container: "photos".to_owned(),
        scope: Scope::Prefix("2026/".to_owned()),
    }
}

/// Grants as a guest shows them: any bytes, a true one that was changed, and what a holder of the key could sign.
pub fn grants(data: &[u8]) {
    let keys = [Key::new(b"one"), Key::new(b"two")];
    assert!(Grant::verify(&keys, data).is_err(), "a grant without the key");
    drop(Session::decode(data));
    let Ok(signed) = grant().sign(&keys[0]) else { return };
    let mut changed = signed.clone();
    if let [at, replaced @ ..] = data {
        let at = usize::from(*at).min(changed.len());
        let end = (at + replaced.len()).min(changed.len());
        changed[at..end].copy_from_slice(&replaced[..end - at]);
    }
    match Grant::verify(&keys, &changed) {
        Ok(read) => assert_eq!((&changed, read), (&signed, grant())),
        Err(_) => assert_ne!(changed, signed),
    }
    // What holders of a key sign is read by a strict form: what is accepted has these bytes and no others.
    let fields = [&[1][..], &keys[0].id(), data].concat();
    let mut mac = Hmac::<Sha256>::new_from_slice(b"one").unwrap_or_else(|_| unreachable!("keys have any length"));
    mac.update(b"swiftlet grant\n");
    mac.update(&fields);
    let bytes = [&fields[..], &mac.finalize().into_bytes()].concat();
    match Grant::verify(&keys, &bytes) {
        Ok(read) => assert_eq!(read.sign(&keys[0]).as_ref(), Ok(&bytes)),
        Err(invalid) => assert!(matches!(invalid, Invalid::Form(_)), "{invalid}"),
    }
}
