//! Messages come back as they were; nothing that is cut, changed or made up does harm; the document says the same.

#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use swiftlet_node::message::updates::{
    AskDurable, DURABLE, MAX_BATCH_BYTES, MAX_BATCH_ROWS, Taken, UPDATE, Update, decode_taken, encode_taken,
};
use swiftlet_node::message::{Found, Request, Written, decode_footer, encode_footer, lists};
use swiftlet_node::{Limits, Refusal, Status};
use swiftlet_store::model::{Entry, EntryKind, Footer, Info, Key, PostMeta, PutMeta};

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..40)
}

fn pairs() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
    prop::collection::vec((text(), text()), 0..5)
}

fn key() -> impl Strategy<Value = Key> {
    any::<(u16, u32, [u8; 16])>().prop_map(|(policy, partition, digest)| Key { policy, partition, digest })
}

fn footer() -> impl Strategy<Value = Footer> {
    (any::<(u64, u64)>(), text()).prop_map(|((size, xxh3), etag)| Footer { size, etag, xxh3 })
}

fn entry() -> impl Strategy<Value = Entry> {
    any::<([u8; 16], bool, u64, u64, u64)>().prop_map(|(digest, data, timestamp, meta_timestamp, typed)| Entry {
        digest,
        kind: if data { EntryKind::Data } else { EntryKind::Tombstone },
        timestamp,
        meta_timestamp,
        content_type_timestamp: typed,
    })
}

fn named(row: u32) -> Vec<u8> {
    if row == 0 { b"anything".to_vec() } else { b"/a/c/o/o".to_vec() }
}

fn revoke() -> impl Strategy<Value = Request> {
    (text(), text(), any::<u64>()).prop_map(|(account, container, before_ms)| Request::Revoke {
        account,
        container,
        before_ms,
    })
}

fn request() -> impl Strategy<Value = Request> {
    let put = (key(), any::<(u32, u64, u64)>(), text(), pairs(), pairs(), prop::option::of(footer())).prop_map(
        |(key, (row, timestamp, delete_at), content_type, metadata, sysmeta, footer)| {
            let meta = PutMeta { name: named(row), timestamp, content_type, metadata, sysmeta, delete_at };
            Request::Put { key, meta, footer, row }
        },
    );
    let post = (key(), any::<(u32, u64, u64, u64)>(), pairs(), prop::option::of(text()), any::<bool>()).prop_map(
        |(key, (row, timestamp, content_type_timestamp, delete_at), metadata, content_type, proved)| {
            let meta = PostMeta { timestamp, metadata, content_type, content_type_timestamp, delete_at };
            Request::Post { key, meta, row, proved }
        },
    );
    prop_oneof![
        put,
        post,
        revoke(),
        (key(), any::<(u64, u64, u64, bool)>()).prop_map(|(key, (start, stop, whole, proved))| Request::Get {
            key,
            start,
            stop,
            whole,
            proved
        }),
        (key(), any::<bool>()).prop_map(|(key, proved)| Request::Head { key, proved }),
        (key(), any::<(u64, u32)>()).prop_map(|(key, (timestamp, row))| Request::Delete {
            key,
            timestamp,
            name: named(row),
            row
        }),
        (key(), entry()).prop_map(|(key, entry)| Request::Remove { key, entry }),
        Just(Request::Policies),
        any::<u16>().prop_map(Request::Partitions),
        any::<(u16, u32)>().prop_map(|(policy, partition)| Request::Suffixes(policy, partition)),
        (any::<(u16, u32)>(), 0..4096_u16)
            .prop_map(|((policy, partition), at)| Request::Entries(policy, partition, at)),
        prop::collection::vec((key(), any::<u64>()), 0..20).prop_map(Request::Acknowledge),
        (key(), any::<(u64, u32)>(), prop::option::of(0..u64::MAX))
            .prop_map(|(key, (timestamp, row), size)| { Request::Prepare { key, timestamp, row, size } }),
    ]
}

proptest! {
    #[test]
    fn requests_come_back_and_no_cut_one_is_taken_for_itself(request in request(), device in "[a-z0-9]{0,9}") {
        let raw = request.encode(&device).unwrap();
        prop_assert_eq!(Request::decode(request.method(), &raw), Ok((device, request.clone())));
        for cut in 0..raw.len() {
            prop_assert!(Request::decode(request.method(), &raw[..cut]).is_err());
        }
        let longer = [&raw[..], &[0]].concat();
        prop_assert!(Request::decode(request.method(), &longer).is_err());
    }

    #[test]
    fn garbage_is_no_panic_and_no_memory(method in 0..14_u16, raw in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Request::decode(method, &raw);
        let _ = Found::decode(&raw);
        let _ = Written::decode(&raw);
        let _ = decode_footer(&raw);
        let _ = lists::decode_entries(&raw);
        let _ = Refusal::decode(method, &raw);
    }

    #[test]
    fn answers_come_back(
        footer in footer(), times in any::<(u64, u64, u64, u64)>(), name in text(), typed in text(),
        metadata in pairs(), sysmeta in pairs(), body_xxh3 in any::<Option<u64>>(),
        entries in prop::collection::vec(entry(), 0..9),
    ) {
        prop_assert_eq!(decode_footer(&encode_footer(&footer).unwrap()), Ok(footer.clone()));
        let Footer { size, etag, xxh3 } = footer;
        let (timestamp, meta_timestamp, content_type_timestamp, delete_at) = times;
        let info = Info {
            name, timestamp, size, etag, xxh3, content_type: typed, metadata, sysmeta, meta_timestamp,
            content_type_timestamp, delete_at,
        };
        let found = Found { info, body_xxh3 };
        prop_assert_eq!(Found::decode(&found.encode().unwrap()), Ok(found));
        prop_assert_eq!(lists::decode_entries(&lists::encode_entries(&entries)), Ok(entries));
    }
}

proptest! {
    #[test]
    fn updates_come_back_and_no_cut_one_is_taken_for_itself(
        device in "[a-z0-9]{0,9}", partition in any::<u32>(), account in ".{0,9}", container in ".{0,9}",
        taken in any::<(u64, u64)>(), garbage in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let update = Update { device: device.clone(), partition, account, container };
        let raw = update.encode().unwrap();
        let taken = Taken { incarnation: taken.0, position: taken.1 };
        let asked = AskDurable { device, taken };
        let asked_raw = asked.encode().unwrap();
        prop_assert_eq!(Update::decode(&raw), Ok(update));
        prop_assert_eq!(AskDurable::decode(&asked_raw), Ok(asked));
        prop_assert_eq!(decode_taken(&encode_taken(taken)), Ok(taken));
        for cut in 0..raw.len() {
            prop_assert!(Update::decode(&raw[..cut]).is_err());
        }
        for cut in 0..asked_raw.len() {
            prop_assert!(AskDurable::decode(&asked_raw[..cut]).is_err());
        }
        prop_assert!(Update::decode(&[&raw[..], &[0]].concat()).is_err());
        let _ = (Update::decode(&garbage), AskDurable::decode(&garbage), decode_taken(&garbage));
    }
}

#[test]
fn a_row_needs_a_name_in_a_container() {
    for name in ["", "/a", "/a/c", "/a/c/", "//c/o", "/a//o", "a/c/o"] {
        let key = Key { policy: 0, partition: 0, digest: [0; 16] };
        let request = Request::Delete { key, timestamp: 1, name: name.into(), row: 1 };
        assert!(Request::decode(request.method(), &request.encode("d0").unwrap()).is_err(), "{name}");
    }
}

#[test]
fn refusals_come_back_whatever_their_text() {
    for status in Status::ALL.iter().filter(|status| **status != Status::Ok) {
        let refusal = Refusal { status: *status, timestamp: 7, text: "why".to_owned() };
        assert_eq!(Refusal::decode(*status as u16, &refusal.encode()), refusal);
    }
    let long = Refusal { status: Status::DiskFull, timestamp: 0, text: "\u{20ac}".repeat(1000) };
    let back = Refusal::decode(Status::DiskFull as u16, &long.encode());
    assert!(long.text.starts_with(&back.text) && back.text.len() > 1000);
    assert_eq!(Refusal::decode(0, &[]).status, Status::NodeError);
    assert_eq!(Refusal::decode(999, &[]).status, Status::NodeError);
}

#[test]
fn the_document_has_the_same_errors_methods_and_limits() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/");
    let transport = std::fs::read_to_string(format!("{root}transport.md")).unwrap();
    let wire = std::fs::read_to_string(format!("{root}wire.md")).unwrap();
    for status in Status::ALL.iter().filter(|status| **status != Status::Ok) {
        let (number, name) = (*status as u16, status.name());
        assert!(transport.contains(&format!("| {number} | `{name}` |")), "{name}");
        assert!(wire.contains(&format!("\n| `{name}` | ")), "{name} is not in wire.md");
    }
    let errors = wire.lines().skip_while(|line| *line != "## Errors").take_while(|line| *line != "## Object server");
    // Of writes to databases and of listings, which no native server answers.
    let elsewhere = ["| `PageTooCostly` |", "| `TooMuchMetadata` |"];
    let errors = errors.filter(|line| line.starts_with("| `") && !elsewhere.iter().any(|name| line.starts_with(name)));
    assert_eq!(errors.count() + 1, Status::ALL.len(), "one to one");
    let key = Key { policy: 0, partition: 0, digest: [0; 16] };
    for (request, name) in [
        (Request::Head { key, proved: false }, "HEAD"),
        (Request::Policies, "POLICIES"),
        (Request::Acknowledge(Vec::new()), "ACKNOWLEDGE"),
        (Request::Prepare { key, timestamp: 0, row: 0, size: None }, "PREPARE"),
    ] {
        assert!(transport.contains(&format!("\n| {} | {name} | ", request.method())), "{name}");
    }
    for (number, name) in [(UPDATE, "UPDATE"), (DURABLE, "DURABLE")] {
        assert!(transport.contains(&format!("\n| {number} | {name} | ")), "{name}");
    }
    assert_eq!((MAX_BATCH_ROWS, MAX_BATCH_BYTES), (1000, 1_000_000));
    assert!(transport.contains("1,000 rows and 1,000,000 bytes"));
    let Limits { threads, max_requests, buffer_bytes } = Limits::default();
    let limits = format!("{threads} threads, {max_requests} requests at work, {} MiB", buffer_bytes >> 20);
    assert!(transport.contains(&limits), "{limits}");
}
