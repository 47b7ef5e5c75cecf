//! Messages come back as they were; nothing that is cut, changed or made up does harm; the document says the same.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use proptest::prelude::*;
use swiftlet_erasure::Scheme;
use swiftlet_fragments::block::Block;
use swiftlet_fragments::cutting::Cutter;
use swiftlet_fragments::packs::Pack;
use swiftlet_fragments::packs::table::{MAX_MEMBER_BYTES, Reference, Table};
use swiftlet_fragments::request::{Answer, Request as Asked};
use swiftlet_fragments::slot::Shown;
use swiftlet_fragments::{Accepted, Ballot, Device, Outcome, Version};
use swiftlet_node::message::many::{self, MAX_MANY, MAX_MANY_ANSWER_BYTES, MAX_MANY_BYTES};
use swiftlet_node::message::updates::{
    AskDurable, DURABLE, MAX_BATCH_BYTES, MAX_BATCH_ROWS, Taken, UPDATE, Update, decode_taken, encode_taken,
};
use swiftlet_node::message::{Found, Posted, Request, Written, decode_footer, encode_footer, fragments, lists, packs};
use swiftlet_node::{Limits, Refusal, Status};
use swiftlet_store::model::{Entry, EntryKind, Footer, FragmentInfo, Info, Key, PostMeta, PutMeta};
use swiftlet_store::{Cold, Referred, Undecided, Unsettled};

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
        any::<u16>().prop_map(Request::Many),
        (key(), any::<(u64, u32)>(), prop::option::of(0..u64::MAX))
            .prop_map(|(key, (timestamp, row), size)| { Request::Prepare { key, timestamp, row, size } }),
        fragment_request().prop_map(Request::Fragment),
        pack_request().prop_map(Request::Pack),
    ]
}

fn pack_request() -> impl Strategy<Value = packs::Request> {
    let key = || (key(), 0..31_u32).prop_map(|(key, place)| Key { partition: key.partition / 32 * 32 + place, ..key });
    let members = prop::collection::vec(any::<(u64, u32, u8, u64)>(), 1..200);
    let adopt = (key(), version(), members).prop_map(|(key, version, members)| {
        let (mut offset, mut references, mut checks) = (0, Vec::new(), Vec::new());
        for (at, (timestamp, length, gap, check)) in (1_u16..).zip(members) {
            let mut digest = [7; 16];
            digest[..2].copy_from_slice(&at.to_be_bytes());
            offset += u64::from(gap);
            let length = length & MAX_MEMBER_BYTES;
            references.push(Reference { digest, timestamp, offset, length });
            checks.push(check);
            offset += u64::from(length);
        }
        let table = Table { pack: Pack { version, digest: key.digest }, references };
        match checks[0] % 2 {
            0 => packs::Request::Adopt { key, table, checks },
            _ => packs::Request::Learn { key, table },
        }
    });
    prop_oneof![
        adopt,
        (key(), version()).prop_map(|(key, pack)| packs::Request::Prove { key, pack }),
        (key(), version()).prop_map(|(key, pack)| packs::Request::Retire { key, pack }),
        (key(), version(), any::<u64>(), 1..=MAX_MEMBER_BYTES)
            .prop_map(|(key, pack, start, bytes)| packs::Request::Piece { key, pack, start, bytes }),
        (key(), any::<(u64, u64)>()).prop_map(|(key, (before, most_bytes))| packs::Request::Cold {
            key,
            before,
            most_bytes
        }),
        (key(), prop::collection::vec(any::<[u8; 16]>(), 0..9))
            .prop_map(|(key, digests)| packs::Request::Members { key, digests }),
        (key(), prop::collection::vec(any::<[u8; 16]>(), 0..9))
            .prop_map(|(key, digests)| packs::Request::References { key, digests }),
        key().prop_map(|key| packs::Request::List { key }),
    ]
}

fn told_of_pack() -> impl Strategy<Value = packs::Told> {
    prop_oneof![
        any::<u64>().prop_map(|references| packs::Told::Done { references }),
        Just(packs::Told::Missing),
        any::<(bool, u64)>().prop_map(|(before, references)| packs::Told::Retired { before, references }),
    ]
}

fn version() -> impl Strategy<Value = Version> {
    (any::<u64>(), 0..u64::MAX).prop_map(|(timestamp, generation)| Version { timestamp, generation })
}

fn chosen() -> impl Strategy<Value = Arc<[Device]>> {
    let device = any::<(u32, u64)>().prop_map(|(number, incarnation)| Device { number, incarnation });
    prop::collection::vec(device, 0..24).prop_map(Arc::from)
}

fn outcome() -> impl Strategy<Value = Outcome> {
    any::<bool>().prop_map(|commit| if commit { Outcome::Commit } else { Outcome::Abort })
}

fn accepted() -> impl Strategy<Value = Accepted> {
    (any::<(u32, u64)>(), outcome())
        .prop_map(|((round, nonce), outcome)| Accepted { ballot: Ballot { round, nonce }, outcome })
}

/// What another place shows: a deletion as well.
fn shown() -> impl Strategy<Value = Shown> {
    (any::<(u64, u64)>(), any::<bool>(), chosen()).prop_map(|((timestamp, generation), settled, chosen)| Shown {
        version: Version { timestamp, generation },
        settled,
        chosen,
    })
}

fn asked() -> impl Strategy<Value = Asked> {
    prop_oneof![
        version().prop_map(Asked::Commit),
        version().prop_map(Asked::Settle),
        Just(Asked::Show),
        shown().prop_map(Asked::Learn),
        shown().prop_map(Asked::HandBack),
        (version(), outcome()).prop_map(|(version, outcome)| Asked::Decide { version, outcome }),
        (version(), chosen(), accepted()).prop_map(|(version, chosen, accepted)| Asked::Accept {
            version,
            chosen,
            accepted
        }),
        (version(), chosen(), any::<(u32, u64)>()).prop_map(|(version, chosen, (round, nonce))| Asked::Promise {
            version,
            chosen,
            ballot: Ballot { round, nonce }
        }),
    ]
}

fn unsettled() -> impl Strategy<Value = Unsettled> {
    (key(), version(), chosen(), any::<bool>())
        .prop_map(|(key, version, chosen, certain)| Unsettled { of: Undecided { key, version, chosen }, certain })
}

fn posted() -> impl Strategy<Value = PostMeta> {
    (any::<(u64, u64, u64)>(), pairs(), prop::option::of(text())).prop_map(
        |((timestamp, delete_at, content_type_timestamp), metadata, content_type)| PostMeta {
            timestamp,
            metadata,
            content_type,
            content_type_timestamp,
            delete_at,
        },
    )
}

fn copy_here() -> impl Strategy<Value = fragments::CopyHere> {
    let here = (any::<(u64, u64, u64)>(), text(), pairs(), any::<Option<u64>>()).prop_map(
        |((timestamp, size, xxh3), name, metadata, body_xxh3)| {
            let info = Info { name, timestamp, size, xxh3, metadata, ..empty_info() };
            fragments::CopyHere::Is { info, body_xxh3 }
        },
    );
    let packed = (version(), any::<([u8; 16], [u8; 16])>(), any::<(u64, u64)>(), 0..4_u32 << 20);
    let packed = (packed, prop::option::of(posted()), prop::option::of(1..u64::MAX)).prop_map(
        |((version, (digest, of), (timestamp, offset), length), posted, pack_bytes)| {
            let reference = Reference { digest: of, timestamp, offset, length };
            let referred = Referred { pack: Pack { version, digest }, reference, posted };
            fragments::CopyHere::Packed { referred, pack_bytes }
        },
    );
    prop_oneof![any::<u64>().prop_map(fragments::CopyHere::Dead), here, packed]
}

fn empty_info() -> Info {
    Info {
        name: Vec::new(),
        timestamp: 0,
        size: 0,
        etag: Vec::new(),
        xxh3: 0,
        content_type: Vec::new(),
        metadata: Vec::new(),
        sysmeta: Vec::new(),
        meta_timestamp: 0,
        content_type_timestamp: 0,
        delete_at: 0,
    }
}

fn fragment_request() -> impl Strategy<Value = fragments::Request> {
    let keep = (key(), any::<(bool, u64, u64, u32)>(), 1..=16_u32 << 20, prop::option::of(0..u64::MAX), pairs());
    let keep = keep.prop_map(|(key, (certain, timestamp, delete_at, row), cell_bytes, size, metadata)| {
        let sysmeta = metadata.clone();
        let meta = PutMeta { name: named(row), timestamp, content_type: b"t".to_vec(), metadata, sysmeta, delete_at };
        fragments::Request::Keep { key, certain, cell_bytes, size, meta, row }
    });
    prop_oneof![
        keep,
        Just(fragments::Request::Incarnation),
        (key(), any::<(u64, u32)>(), posted()).prop_map(|(key, (of, row), meta)| fragments::Request::Post {
            key,
            of,
            meta,
            row
        }),
        (any::<u16>(), prop::option::of(any::<(u32, [u8; 16])>()))
            .prop_map(|(policy, after)| fragments::Request::Unsettled { policy, after }),
        (key(), asked()).prop_map(|(key, asked)| fragments::Request::About { key, asked }),
        (key(), prop::option::of(version()), any::<(u64, u64)>())
            .prop_map(|(key, below, (start, stop))| fragments::Request::Newest { key, below, start, stop }),
        (key(), version(), any::<(u64, u64)>()).prop_map(|(key, version, (first, end))| fragments::Request::Cells {
            key,
            version,
            first,
            end
        }),
    ]
}

fn fragment_answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        Just(Answer::Done),
        Just(Answer::Missing),
        Just(Answer::Busy),
        version().prop_map(Answer::Superseded),
        any::<(u32, u64)>().prop_map(|(round, nonce)| Answer::Outbid(Ballot { round, nonce })),
        outcome().prop_map(Answer::Decided),
        (prop::option::of(accepted()), any::<bool>())
            .prop_map(|(accepted, fragment)| Answer::Promised { accepted, fragment }),
        prop::option::of((version(), any::<bool>(), chosen())).prop_map(|shown| Answer::Showing(
            shown.map(|(version, settled, chosen)| Shown { version, settled, chosen })
        )),
    ]
}

/// What is stored with a fragment of a small object, without digests of cells.
fn fragment_info(object: &[u8], version: Version, meta: PutMeta) -> FragmentInfo {
    let mut cutter = Cutter::new(Scheme::new(2, 1).unwrap(), 8).unwrap();
    cutter.push(object, |_| ()).unwrap();
    let chosen = (0..3).map(|number| Device { number, incarnation: 1 }).collect();
    let block = cutter.finish(|_| ()).block(1, version.generation, chosen).unwrap();
    let meta = PutMeta { timestamp: version.timestamp, ..meta };
    FragmentInfo { meta, etag: b"etag".to_vec(), block: Block { cells: Vec::new(), ..block } }
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
    fn what_is_told_of_a_pack_comes_back(told in told_of_pack()) {
        let raw = told.encode();
        prop_assert_eq!(packs::Told::decode(&raw), Ok(told));
        prop_assert!((0..raw.len()).all(|cut| packs::Told::decode(&raw[..cut]).is_err()));
        prop_assert!(packs::Told::decode(&[&raw[..], &[0]].concat()).is_err());
    }

    #[test]
    fn lists_for_packers_come_back(
        all in prop::collection::vec((version(), any::<([u8; 16], bool, u32, u64)>(), prop::option::of(posted())), 0..9),
        more in any::<bool>(), members in prop::collection::vec(text(), 0..9),
    ) {
        let mut cold: Vec<_> = all.iter().map(|(version, (digest, _, bytes, _), _)| {
            Cold { digest: *digest, timestamp: version.timestamp, bytes: u64::from(*bytes) }
        }).collect();
        cold.sort_unstable_by_key(|cold| cold.digest);
        cold.dedup_by_key(|cold| cold.digest);
        prop_assert_eq!(packs::decode_cold(&packs::encode_cold(&cold)), Ok(cold.clone()));
        let turned: Vec<_> = cold.iter().rev().copied().collect();
        prop_assert_eq!(packs::decode_cold(&packs::encode_cold(&turned)).is_ok(), cold.len() < 2);
        let listed: Vec<_> = all.iter().map(|(version, (digest, retired, _, references), _)| {
            let pack = Pack { version: *version, digest: *digest };
            let (live, size) = (references / 2, !references);
            packs::Listed { pack, retired: *retired, references: *references, live, size }
        }).collect();
        prop_assert_eq!(packs::decode_listed(&packs::encode_listed(&listed, more)), Ok((listed, more)));
        let references: Vec<_> = all.iter().map(|(version, (digest, _, length, offset), posted)| {
            let reference = Reference { digest: *digest, timestamp: *offset, offset: !offset, length: *length % (4 << 20) };
            Referred { pack: Pack { version: *version, digest: *digest }, reference, posted: posted.clone() }
        }).collect();
        let raw = packs::encode_references(&references).unwrap();
        prop_assert_eq!(packs::decode_references(&raw), Ok(references));
        let lengths: Vec<u32> = members.iter().map(|member| member.len() as u32).collect();
        let (header, body) = (packs::encode_members(&lengths), members.concat());
        prop_assert_eq!(packs::decode_members(&header, &body, members.len()), Ok(members.clone()));
        prop_assert!(packs::decode_members(&header, &body, members.len() + 1).is_err());
        prop_assert!(packs::decode_members(&header, &[&body[..], &[1]].concat(), members.len()).is_err());
    }

    #[test]
    fn garbage_is_no_panic_and_no_memory(method in 0..28_u16, raw in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Request::decode(method, &raw);
        let _ = Found::decode(&raw);
        let _ = (Written::decode(&raw), Posted::decode(&raw));
        let _ = decode_footer(&raw);
        let _ = lists::decode_entries(&raw);
        let _ = (many::requests(usize::from(method), &raw), many::answers(usize::from(method), &raw));
        let _ = Refusal::decode(method, &raw);
        let _ = fragments::Footer::decode(&raw);
        let _ = fragments::decode_answer(&raw);
        let _ = fragments::Newest::decode(&raw);
        let _ = fragments::Given::decode(&raw);
        let _ = (packs::Told::decode(&raw), packs::decode_cold(&raw), packs::decode_listed(&raw));
        let _ = (packs::decode_references(&raw), packs::decode_members(&raw, &raw, usize::from(method)));
        let _ = fragments::decode_incarnation(&raw);
        let _ = fragments::decode_unsettled(&raw);
    }

    #[test]
    fn answers_about_fragments_come_back(
        answer in fragment_answer(), object in prop::collection::vec(any::<u8>(), 0..60), version in version(),
        floor in prop::option::of(version()), name in text(), metadata in pairs(),
        first in any::<u64>(), xxh3 in prop::collection::vec(any::<u64>(), 0..9),
        unsettled in prop::collection::vec(unsettled(), 0..4), more in any::<bool>(), post in prop::option::of(posted()),
        copy in prop::option::of(copy_here()),
    ) {
        let raw = fragments::encode_answer(&answer).unwrap();
        prop_assert_eq!(fragments::decode_answer(&raw), Ok(answer.clone()));
        let raw = fragments::encode_unsettled(&unsettled, more).unwrap();
        prop_assert_eq!(fragments::decode_unsettled(&raw), Ok((unsettled.clone(), more)));
        for cut in 0..raw.len() {
            prop_assert!(fragments::decode_unsettled(&raw[..cut]).is_err());
        }
        let cells = fragments::Cells { first, xxh3 };
        for given in [fragments::Given::Not(answer), fragments::Given::Cells(cells.clone())] {
            let raw = given.encode().unwrap();
            prop_assert_eq!(fragments::Given::decode(&raw), Ok(given));
            for cut in 0..raw.len() {
                prop_assert!(fragments::Given::decode(&raw[..cut]).is_err());
            }
        }
        let meta = PutMeta { name, metadata, ..PutMeta::default() };
        let info = fragment_info(&object, version, meta);
        let footer = fragments::Footer { etag: info.etag.clone(), block: info.block.clone() };
        let raw = footer.encode().unwrap();
        prop_assert_eq!(fragments::Footer::decode(&raw), Ok(footer));
        let newest = fragments::Newest { committed: Some(version), floor, fragment: Some((info, cells)), post, copy };
        let raw = newest.encode().unwrap();
        prop_assert_eq!(fragments::Newest::decode(&raw), Ok(newest.clone()));
        for cut in 0..raw.len() {
            prop_assert!(fragments::Newest::decode(&raw[..cut]).is_err());
        }
        let other = fragments::Newest { committed: floor.filter(|floor| *floor != version), ..newest.clone() };
        prop_assert!(fragments::Newest::decode(&other.encode().unwrap()).is_err(), "a fragment of another version");
        let nothing = fragments::Newest { committed: None, floor, fragment: None, post: None, copy: newest.copy.clone() };
        prop_assert_eq!(fragments::Newest::decode(&nothing.encode().unwrap()), Ok(nothing));
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
    fn many_requests_come_back_and_none_that_are_cut(
        all in prop::collection::vec((text(), request(), text()), 1..5), status in any::<u16>(),
    ) {
        let (mut raw, mut answers) = (Vec::new(), Vec::new());
        for (object, request, body) in &all {
            many::push(&mut raw, object, request, body).unwrap();
            many::push_answer(&mut answers, status, object, body).unwrap();
        }
        let back = many::requests(all.len(), &raw).unwrap();
        for (one, (object, request, body)) in back.iter().zip(&all) {
            prop_assert_eq!((one.object, one.body), (&object[..], &body[..]));
            prop_assert_eq!(&Request::from_fields(one.method, one.fields), &Ok(request.clone()));
        }
        let back = many::answers(all.len(), &answers).unwrap();
        for (one, (object, _, body)) in back.iter().zip(&all) {
            prop_assert_eq!((one.status, one.header, one.body), (status, &object[..], &body[..]));
        }
        for cut in 0..raw.len() {
            prop_assert!(many::requests(all.len(), &raw[..cut]).is_err());
        }
        prop_assert!(many::requests(all.len() - 1, &raw).is_err());
        prop_assert!(many::answers(all.len() + 1, &answers).is_err());
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
fn what_may_not_be_asked_about_a_fragment_is_refused() {
    let key = Key { policy: 0, partition: 0, digest: [0; 16] };
    let about = |asked| Request::Fragment(fragments::Request::About { key, asked });
    let version = Version { timestamp: 1, generation: 2 };
    let chosen: Arc<[Device]> = Arc::new([]);
    let with_bytes = [Asked::Prepare { version, chosen: chosen.clone() }, Asked::Keep { version, chosen }];
    for asked in with_bytes.into_iter().chain([Asked::Delete { timestamp: 1 }, Asked::Fetch(version)]) {
        assert!(about(asked).encode("d0").is_err());
    }
    for asked in [Asked::Commit(Version::deletion(1)), Asked::Settle(Version::deletion(1))] {
        let request = about(asked);
        assert!(Request::decode(request.method(), &request.encode("d0").unwrap()).is_err());
    }
    let meta = PutMeta::default();
    for cell_bytes in [0, (16 << 20) + 1] {
        let keep = fragments::Request::Keep { key, certain: false, cell_bytes, size: None, meta: meta.clone(), row: 0 };
        let raw = Request::Fragment(keep.clone()).encode("d0").unwrap();
        assert!(Request::decode(keep.method(), &raw).is_err(), "{cell_bytes}");
    }
    let mut raw = about(Asked::Show).encode("d0").unwrap();
    raw[4] = 2;
    assert!(Request::decode(about(Asked::Show).method(), &raw).is_err(), "another version");
    let many = fragments::Given::Cells(fragments::Cells { first: 0, xxh3: vec![0; 1025] });
    assert!(fragments::Given::decode(&many.encode().unwrap()).is_err());
}

#[test]
fn a_row_needs_a_name_in_a_container() {
    for name in ["", "/a", "/a/c", "/a/c/", "//c/o", "/a//o", "a/c/o"] {
        let key = Key { policy: 0, partition: 0, digest: [0; 16] };
        let request = Request::Delete { key, timestamp: 1, name: name.into(), row: 1 };
        assert!(Request::decode(request.method(), &request.encode("d0").unwrap()).is_err(), "{name}");
        let meta = PutMeta { name: name.into(), ..PutMeta::default() };
        let keep = fragments::Request::Keep { key, certain: false, cell_bytes: 1, size: None, meta, row: 1 };
        let raw = Request::Fragment(keep.clone()).encode("d0").unwrap();
        assert!(Request::decode(keep.method(), &raw).is_err(), "{name}");
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
        (Request::Fragment(fragments::Request::About { key, asked: Asked::Show }), "ABOUT FRAGMENT"),
        (
            Request::Fragment(fragments::Request::Cells {
                key,
                version: Version { timestamp: 0, generation: 0 },
                first: 0,
                end: 0,
            }),
            "CELLS",
        ),
        (packs::Request::Prove { key, pack: Version { timestamp: 0, generation: 0 } }.into(), "ABOUT PACK"),
        (
            packs::Request::Piece { key, pack: Version { timestamp: 0, generation: 0 }, start: 0, bytes: 1 }.into(),
            "PIECE",
        ),
        (packs::Request::Cold { key, before: 0, most_bytes: 0 }.into(), "COLD"),
        (packs::Request::Members { key, digests: Vec::new() }.into(), "MEMBERS"),
        (packs::Request::List { key }.into(), "PACKS"),
        (packs::Request::References { key, digests: Vec::new() }.into(), "REFERENCES"),
        (Request::Many(1), "MANY"),
        (Request::Fragment(fragments::Request::Unsettled { policy: 0, after: None }), "UNSETTLED"),
    ] {
        assert!(transport.contains(&format!("\n| {} | {name} | ", request.method())), "{name}");
    }
    for (number, name) in [(UPDATE, "UPDATE"), (DURABLE, "DURABLE")] {
        assert!(transport.contains(&format!("\n| {number} | {name} | ")), "{name}");
    }
    assert_eq!((fragments::MAX_READ_CELLS, fragments::MAX_READ_BYTES), (1024, 4 << 20));
    assert!(transport.contains("1024 cells and 4 MiB"));
    assert_eq!((packs::MAX_ADOPTED, packs::MAX_MEMBERS_ASKED, packs::MAX_LISTED), (1024, 1024, 1024));
    assert_eq!(packs::MAX_MEMBERS_BYTES, 4 << 20);
    assert!(transport.contains("1024 members") && transport.contains("1024 objects and 4 MiB"));
    assert!(transport.contains("1024 packs"));
    assert_eq!((MAX_BATCH_ROWS, MAX_BATCH_BYTES), (1000, 1_000_000));
    assert!(transport.contains("1,000 rows and 1,000,000 bytes"));
    let most = format!(
        "{MAX_MANY} requests and {} MiB of them, and {} MiB of answers",
        MAX_MANY_BYTES >> 20,
        MAX_MANY_ANSWER_BYTES >> 20
    );
    let flowing = transport.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flowing.contains(&most), "{most}");
    let Limits { threads, max_requests, buffer_bytes } = Limits::default();
    let limits = format!("{threads} threads, {max_requests} requests at work, {} MiB", buffer_bytes >> 20);
    assert!(transport.contains(&limits), "{limits}");
}
