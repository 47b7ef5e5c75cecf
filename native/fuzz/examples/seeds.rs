//! True messages, records and checkpoints, where libFuzzer begins: `seeds DIRECTORY` writes them, a folder per target.
#![allow(clippy::unwrap_used, reason = "a tool for people, who see what went wrong")]

use std::path::Path;
use std::sync::Arc;

use swiftlet_erasure::Scheme;
use swiftlet_fragments::block::Block;
use swiftlet_fragments::cutting::Cutter;
use swiftlet_fragments::packs::Pack;
use swiftlet_fragments::packs::table::{Reference, Table};
use swiftlet_fragments::request::{Answer, Request as Asked};
use swiftlet_fragments::slot::{Change, Shown};
use swiftlet_fragments::{Accepted, Ballot, Device, Outcome, Version, decision};
use swiftlet_fuzz::lived;
use swiftlet_node::message::{Found, Posted, Request, Written, encode_footer, fragments, lists, many, packs};
use swiftlet_node::{Refusal, Status};
use swiftlet_store::disk::Disk;
use swiftlet_store::model::{Entry, EntryKind, Footer, FragmentInfo, Info, Key, PostMeta, PutMeta};
use swiftlet_store::pairs::{PairRoots, Step};
use swiftlet_store::{Cold, Referred, Undecided, Unsettled};
use swiftlet_wire::frame::{END, Encoder, Kind, LENT};
use swiftlet_wire::message::{
    Offer, Place, Reason, Reply, Request as Call, encode_cancel, encode_region, encode_tried,
};

/// What a volume's head takes, and what a record's header does.
const BLOCK: usize = 4096;
const HEADER: usize = 128;

fn save(root: &Path, target: &str, name: &str, parts: &[&[u8]]) {
    let folder = root.join(target);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(name), parts.concat()).unwrap();
}

fn wire(root: &Path) {
    let call = Call { method: 1, deadline_ms: 1000, body_bytes: 7, trace: "tx1", header: b"" }.encode();
    let reply = Reply { status: 0, body_bytes: 7, header: b"" }.encode();
    let offer = Offer { offset: 0, length: 9, place: None }.encode();
    let lent = Offer { offset: 0, length: 9, place: Some(Place { region: 1, address: 4096 }) }.encode();
    let number = 7_u64.to_be_bytes();
    let parts: [(Kind, u8, u64, &[u8]); 12] = [
        (Kind::Request, END, 1, &call),
        (Kind::Reply, 0, 1, &reply),
        (Kind::Offer, LENT, 1, &lent),
        (Kind::Grant, 0, 1, &number),
        (Kind::Data, 0, 1, &number),
        (Kind::Done, 0, 1, &number),
        (Kind::End, 0, 1, b"footer"),
        (Kind::Cancel, 0, 1, &encode_cancel(Reason::Deadline, "late")),
        (Kind::Ping, 0, 0, &number),
        (Kind::Pong, 0, 0, &number),
        (Kind::Region, 0, 0, &encode_region(1, 1 << 20, b"card")),
        (Kind::Tried, 0, 0, &encode_tried(1, true)),
    ];
    let (mut all, mut encoder) = (Vec::new(), Encoder::default());
    for (at, (kind, flags, stream, meta)) in parts.iter().enumerate() {
        save(root, "messages", &format!("{kind:?}").to_lowercase(), &[&[at as u8, *flags], meta]);
        let mut one = Vec::new();
        encoder.encode(&mut one, *kind, *flags, *stream, &[meta], 0);
        save(root, "frames", &format!("{kind:?}").to_lowercase(), &[&one]);
        all.extend(one);
    }
    save(root, "messages", "offer-sent", &[&[2, 0], &offer]);
    save(root, "frames", "all", &[&all]);
    for message in 0..3_u8 {
        for (at, with) in [(0, &b""[..]), (8, &[0, 2]), (12, &[9; 32]), (60, &[0xff; 12])] {
            save(root, "handshake", &format!("change-{message}-{at}"), &[&[message, at], with]);
        }
    }
    let stranger = [&b"swiftlet\0\x01\0\x01"[..], &[7; 32], b"\x01c\x01m\x06server", &[0; 13]];
    save(root, "handshake", "hello-of-a-stranger", &[&stranger.concat(), &[0, 1, 1, 2, 3, 4][..]]);
    save(root, "handshake", "hello-of-a-guest", &[&stranger.concat(), &[1], &[3; 20], &2_u64.to_be_bytes()[..]]);
    grants(root);
}

/// The fields behind a grant's version and key id, and changes of a true grant.
fn grants(root: &Path) {
    let numbers =
        [&[7; 16][..], &1000_u64.to_be_bytes(), &61_000_u64.to_be_bytes(), &[0, 3, 10, 31], &7_u32.to_be_bytes()];
    let sizes = [&(5_u64 << 30).to_be_bytes()[..], &100_u64.to_be_bytes(), &(1_u64 << 30).to_be_bytes()];
    let front = [numbers.concat(), sizes.concat(), b"\0\x06AUTH_a\0\x06photos".to_vec()].concat();
    let scopes: [(&str, &[u8]); 5] = [
        ("container", b"\0\0\0"),
        ("prefix", b"\x01\0\x052026/"),
        ("object", b"\x02\0\x01o"),
        ("unknown", b"\x03\0\x01o"),
        ("empty-prefix", b"\x01\0\0"),
    ];
    for (name, scope) in scopes {
        save(root, "grants", name, &[&front, scope]);
    }
    save(root, "grants", "cut-off", &[&front[..40]]);
    save(root, "grants", "change-0", &[&[0], &[2]]);
    save(root, "grants", "change-30", &[&[30], &[0xff; 8]]);
    save(root, "grants", "same", &[&[0], &[1]]);
}

fn node(root: &Path) {
    let key = Key { policy: 1, partition: 7, digest: [3; 16] };
    let pairs = vec![(b"name".to_vec(), b"value".to_vec())];
    let footer = Footer { size: 7, etag: b"etag".to_vec(), xxh3: 9 };
    let meta = PutMeta {
        name: b"/a/c/o".to_vec(),
        timestamp: 5,
        content_type: b"text/plain".to_vec(),
        metadata: pairs.clone(),
        sysmeta: pairs.clone(),
        delete_at: 0,
    };
    let post =
        PostMeta { timestamp: 6, metadata: pairs.clone(), content_type: Some(b"x".to_vec()), ..Default::default() };
    let entry =
        Entry { digest: [3; 16], kind: EntryKind::Data, timestamp: 5, meta_timestamp: 6, content_type_timestamp: 0 };
    let requests = [
        Request::Put { key, meta, footer: Some(footer.clone()), row: 3 },
        Request::Get { key, start: 0, stop: 7, whole: 0, proved: true },
        Request::Head { key, proved: true },
        Request::Post { key, meta: post, row: 0, proved: true },
        Request::Delete { key, timestamp: 7, name: b"/a/c/o".to_vec(), row: 1 },
        Request::Remove { key, entry },
        Request::Policies,
        Request::Partitions(1),
        Request::Suffixes(1, 7),
        Request::Entries(1, 7, 3),
        Request::Acknowledge(vec![(key, 5), (key, 6)]),
        Request::Prepare { key, timestamp: 5, row: 1, size: Some(7) },
        Request::Many(2),
    ];
    for request in requests {
        let number = request.method() as u8;
        save(root, "objects", &format!("method-{number}"), &[&[number], &request.encode("d1").unwrap()]);
    }
    about_fragments(root, key);
    about_packs(root, key);
    let info = Info {
        name: b"/a/c/o".to_vec(),
        timestamp: 5,
        size: 7,
        etag: b"etag".to_vec(),
        xxh3: 9,
        content_type: b"text/plain".to_vec(),
        metadata: pairs.clone(),
        sysmeta: pairs,
        meta_timestamp: 6,
        content_type_timestamp: 6,
        delete_at: 0,
    };
    let posted = Posted { written: Written { pending: true, existed: true }, info: Some(info.clone()) };
    save(root, "objects", "posted", &[&[0], &posted.encode().unwrap()]);
    save(root, "objects", "found", &[&[0], &Found { info, body_xxh3: Some(9) }.encode().unwrap()]);
    let mut many = Vec::new();
    many::push(&mut many, b"o", &Request::Head { key, proved: true }, b"").unwrap();
    many::push(&mut many, b"o", &Request::Delete { key, timestamp: 5, name: b"/a/c/o".to_vec(), row: 1 }, b"").unwrap();
    save(root, "objects", "many", &[&[2], &many]);
    let mut answers = Vec::new();
    many::push_answer(&mut answers, 0, &Written { pending: true, existed: false }.encode(), b"").unwrap();
    many::push_answer(&mut answers, 6, b"\0", b"bytes").unwrap();
    save(root, "objects", "many-answers", &[&[2], &answers]);
    save(root, "objects", "written", &[&[0], &Written { pending: true, existed: false }.encode()]);
    save(root, "objects", "footer", &[&[0], &encode_footer(&footer).unwrap()]);
    save(root, "objects", "numbers", &[&[0], &lists::encode_numbers(&[1, 2])]);
    save(root, "objects", "suffixes", &[&[0], &lists::encode_suffixes(&[(1, 2), (3, 4)])]);
    save(root, "objects", "entries", &[&[0], &lists::encode_entries(&[entry, entry])]);
    let refusal = Refusal { status: Status::Superseded, timestamp: 9, text: "newer".to_owned() };
    save(root, "objects", "refusal", &[&[Status::Superseded as u8], &refusal.encode()]);
}

/// A message of a guest as `swiftlet_fuzz::guests` reads it: by this grant, unchanged, with this lie.
fn guest_message(which: u8, lie: u8, object: &[u8], request: &Request, body: &[u8]) -> Vec<u8> {
    let header = request.encode("d0").unwrap();
    let head = [&(object.len() as u16).to_be_bytes()[..], object, &header].concat();
    let front = [which, 0, 0, 0, lie, request.method() as u8];
    [&front[..], &(head.len() as u16).to_be_bytes(), &head, body].concat()
}

/// What guests ask: each kind of request by each grant, alone and among many.
fn guests(root: &Path) {
    let key = Key { policy: 1, partition: 7, digest: [3; 16] };
    let pairs = vec![(b"X-Object-Meta-Colour".to_vec(), b"red".to_vec())];
    let meta = PutMeta {
        name: b"/AUTH_a/c/o".to_vec(),
        timestamp: 5,
        content_type: b"text/plain".to_vec(),
        metadata: pairs.clone(),
        ..PutMeta::default()
    };
    let post = PostMeta { timestamp: 6, metadata: pairs, content_type: Some(b"text/x".to_vec()), ..Default::default() };
    let footer = Some(Footer { size: 4, etag: vec![b'a'; 32], xxh3: 9 });
    let requests: [(Request, &[u8]); 7] = [
        (Request::Put { key, meta, footer, row: 1 }, b"data"),
        (Request::Get { key, start: 0, stop: 7, whole: 100, proved: false }, b""),
        (Request::Head { key, proved: true }, b""),
        (Request::Post { key, meta: post, row: 4, proved: false }, b""),
        (Request::Delete { key, timestamp: 7, name: b"/AUTH_a/c/o".to_vec(), row: 1 }, b""),
        (Request::Prepare { key, timestamp: 5, row: 1, size: Some(7) }, b""),
        (Request::Policies, b""),
    ];
    let mut all = Vec::new();
    for (at, (request, body)) in requests.iter().enumerate() {
        many::push(&mut all, if at % 2 == 0 { b"o" } else { b"p/o" }, request, body).unwrap();
        let message = guest_message(at as u8, at as u8 * 3 + 1, b"o", request, body);
        save(root, "guests", &format!("method-{}", request.method()), &[&message]);
    }
    let count = Request::Many(requests.len() as u16);
    for which in 0..14 {
        save(root, "guests", &format!("many-{which}"), &[&guest_message(which, which, b"", &count, &all)]);
    }
    // By the grant that covers most, so that nothing but the lie can be why it is refused.
    for lie in 0..9 {
        save(root, "guests", &format!("lie-{lie}"), &[&guest_message(0, lie, b"", &count, &all)]);
    }
    let mut widened = guest_message(4, 0, b"", &count, &all);
    // The operations of a grant: at 40, one byte.
    widened.splice(1..4, [0, 40, 1, 31]);
    save(root, "guests", "widened", &[&widened]);
    widened.splice(1..5, [[0, 30, 255].to_vec(), vec![0xff; 255]].concat());
    save(root, "guests", "huge", &[&widened]);
    let cut = guest_message(0, 0, b"", &count, &all[..all.len() - 1]);
    save(root, "guests", "cut-off", &[&cut]);
}

/// Requests about a fragment, and their answers.
fn about_fragments(root: &Path, key: Key) {
    let version = Version { timestamp: 5, generation: 6 };
    let chosen: Arc<[Device]> = (0..3).map(|number| Device { number, incarnation: 7 }).collect();
    let ballot = Ballot { round: 2, nonce: 9 };
    let accepted = Accepted { ballot, outcome: Outcome::Abort };
    let meta = PutMeta { name: b"/a/c/o".to_vec(), timestamp: 5, ..PutMeta::default() };
    let posted = PostMeta {
        timestamp: 9,
        metadata: vec![(b"color".to_vec(), b"blue".to_vec())],
        content_type: Some(b"text/plain".to_vec()),
        content_type_timestamp: 8,
        delete_at: 100,
    };
    let about = |asked| fragments::Request::About { key, asked };
    let requests = [
        fragments::Request::Keep { key, certain: true, cell_bytes: 64, size: Some(7), meta: meta.clone(), row: 5 },
        fragments::Request::Newest { key, below: Some(version), start: 1, stop: 2 },
        fragments::Request::Cells { key, version, first: 1, end: 2 },
        about(Asked::Commit(version)),
        about(Asked::Settle(version)),
        about(Asked::Promise { version, chosen: chosen.clone(), ballot }),
        about(Asked::Accept { version, chosen: chosen.clone(), accepted }),
        about(Asked::Decide { version, outcome: Outcome::Commit }),
        about(Asked::Show),
        about(Asked::Learn(Shown { version, settled: false, chosen: chosen.clone() })),
        about(Asked::HandBack(Shown { version, settled: true, chosen: chosen.clone() })),
        fragments::Request::Post { key, of: 5, meta: posted.clone(), row: 3 },
        fragments::Request::Incarnation,
        fragments::Request::Unsettled { policy: 1, after: Some((33, [7; 16])) },
    ];
    for (at, request) in requests.into_iter().enumerate() {
        let number = request.method() as u8;
        let raw = Request::Fragment(request).encode("d1").unwrap();
        save(root, "objects", &format!("method-{number}-{at}"), &[&[number], &raw]);
    }
    let answers = [
        Answer::Done,
        Answer::Superseded(version),
        Answer::Outbid(ballot),
        Answer::Decided(Outcome::Commit),
        Answer::Promised { accepted: Some(accepted), fragment: true },
        Answer::Showing(Some(Shown { version, settled: true, chosen: chosen.clone() })),
    ];
    for (at, answer) in answers.iter().enumerate() {
        let raw = fragments::encode_answer(answer).unwrap();
        save(root, "objects", &format!("fragment-answer-{at}"), &[&[0], &raw]);
    }
    let unsettled = Unsettled { of: Undecided { key, version, chosen: chosen.clone() }, certain: true };
    let raw = fragments::encode_unsettled(&[unsettled], true).unwrap();
    save(root, "objects", "fragment-unsettled", &[&[0], &raw]);
    let mut cutter = Cutter::new(Scheme::new(2, 1).unwrap(), 8).unwrap();
    cutter.push(b"an object of some stripes", |_| ()).unwrap();
    let block = cutter.finish(|_| ()).block(1, version.generation, chosen).unwrap();
    let cells = fragments::Cells { first: 0, xxh3: block.cells.clone() };
    let block = Block { cells: Vec::new(), ..block };
    let footer = fragments::Footer { etag: b"etag".to_vec(), block: block.clone() };
    save(root, "objects", "fragment-footer", &[&[0], &footer.encode().unwrap()]);
    let info = FragmentInfo { meta, etag: b"etag".to_vec(), block };
    let fragment = Some((info, cells.clone()));
    let copy = Some(fragments::CopyHere::Dead(4));
    let newest = fragments::Newest { committed: Some(version), floor: None, fragment, post: Some(posted), copy };
    save(root, "objects", "fragment-newest", &[&[0], &newest.encode().unwrap()]);
    save(root, "objects", "fragment-cells", &[&[0], &fragments::Given::Cells(cells).encode().unwrap()]);
}

fn about_packs(root: &Path, key: Key) {
    let pack = Version { timestamp: 5, generation: 7 };
    let reference = |at: u8| Reference { digest: [at; 16], timestamp: 3, offset: 100 * u64::from(at), length: 90 };
    let table = Table { pack: Pack { version: pack, digest: key.digest }, references: (0..3).map(reference).collect() };
    let requests = [
        packs::Request::Prove { key, pack },
        packs::Request::Adopt { key, table: table.clone(), checks: vec![7, 8, 9] },
        packs::Request::Retire { key, pack },
        packs::Request::Piece { key, pack, start: 5, bytes: 9 },
        packs::Request::Learn { key, table },
        packs::Request::Cold { key, before: 9, most_bytes: 1 << 20 },
        packs::Request::Members { key, digests: vec![[3; 16], [4; 16]] },
        packs::Request::References { key, digests: vec![[3; 16], [4; 16]] },
        packs::Request::List { key },
    ];
    for (at, request) in requests.into_iter().enumerate() {
        let number = request.method() as u8;
        let raw = Request::from(request).encode("d1").unwrap();
        save(root, "objects", &format!("method-{number}-{at}"), &[&[number], &raw]);
    }
    let told = [
        packs::Told::Done { references: 3 },
        packs::Told::Missing,
        packs::Told::Retired { before: true, references: 2 },
    ];
    let cold = Cold { digest: [3; 16], timestamp: 5, bytes: 900 };
    save(root, "objects", "cold", &[&[0], &packs::encode_cold(&[cold])]);
    let of_pack = Pack { version: pack, digest: key.digest };
    let listed = packs::Listed { pack: of_pack, retired: true, references: 3, live: 900, size: 4000 };
    save(root, "objects", "packs", &[&[0], &packs::encode_listed(&[listed], true)]);
    let posted = Some(PostMeta { timestamp: 9, ..PostMeta::default() });
    let referred = Referred { pack: of_pack, reference: reference(1), posted };
    save(root, "objects", "references", &[&[0], &packs::encode_references(std::slice::from_ref(&referred)).unwrap()]);
    let copy = Some(fragments::CopyHere::Packed { referred, pack_bytes: Some(5000) });
    let newest = fragments::Newest { committed: None, floor: None, fragment: None, post: None, copy };
    save(root, "objects", "newest-in-a-pack", &[&[0], &newest.encode().unwrap()]);
    for (at, told) in told.iter().enumerate() {
        save(root, "objects", &format!("told-of-pack-{at}"), &[&[0], &told.encode()]);
    }
}

fn store(root: &Path) {
    let disk = lived().unwrap();
    let (mut kinds, files) = (std::collections::BTreeSet::new(), disk.files());
    for (path, size) in &files {
        let mut raw = vec![0; *size as usize];
        disk.open(path).unwrap().read_at(&mut raw, 0).unwrap();
        if path.starts_with("index/") {
            save(root, "checkpoint", "true", &[&raw]);
            for cut in 1..8 {
                save(root, "checkpoint", &format!("cut-{cut}"), &[&raw[..raw.len() * cut / 8]]);
            }
        } else if path.starts_with("volumes/") {
            for at in (BLOCK..raw.len().saturating_sub(HEADER)).step_by(64) {
                if raw[at..].starts_with(b"SWLR") {
                    let (kind, metadata) = (raw[at + 5], u32::from_be_bytes(*raw[at + 12..].first_chunk().unwrap()));
                    kinds.insert(kind);
                    // A fragment or a decision says different things.
                    let says = if kind > 5 { raw[at + 115] } else { (at / 64 % 4) as u8 };
                    let name = format!("kind-{kind}-{says}");
                    save(root, "record", &name, &[&raw[at..at + HEADER + metadata as usize]]);
                }
            }
        }
    }
    assert!(kinds.len() >= 9, "{kinds:?}");
    for number in 0..files.len() as u8 {
        save(root, "device", &format!("file-{number}"), &[&[number, 0, 0, 0, 20, 1, 0xff]]);
        save(root, "device", &format!("record-{number}"), &[&[number, 0, 0, 16, 24, 8, 0, 0, 0, 0, 0, 0, 0, 9]]);
    }
}

fn erasure(root: &Path) {
    for (data, parity, cell, size) in
        [(2, 1, 1, 5), (6, 3, 64, 1000), (6, 3, 64, 1), (10, 4, 255, 4000), (16, 8, 7, 999)]
    {
        let numbers = [size, size / 3, size].map(u64::to_be_bytes).concat();
        let order: Vec<u8> = (0..24_u8).map(|at| at.wrapping_mul(89)).collect();
        save(root, "erasure", &format!("scheme-{data}-{parity}-{size}"), &[&[data, parity, cell], &numbers, &order]);
        let numbers = [u64::MAX - size, u64::MAX - size - 9, u64::MAX].map(u64::to_be_bytes).concat();
        save(root, "erasure", &format!("large-{data}-{parity}-{size}"), &[&[data, parity, cell], &numbers]);
    }
    save(root, "erasure", "no-cell", &[&[2, 1, 0], &[0; 24]]);
    save(root, "erasure", "no-scheme", &[&[17, 1, 1], &[0; 24]]);
}

fn coded(root: &Path) {
    let chosen: Arc<[Device]> = (0..9).map(|number| Device { number, incarnation: 7 }).collect();
    let object: Vec<u8> = (0..999_u16).map(|at| (at % 251) as u8).collect();
    let order: Vec<u8> = (0..9_u8).map(|at| at.wrapping_mul(89)).collect();
    for (size, cell) in [(0, 16_u8), (1, 16), (95, 16), (96, 16), (999, 64)] {
        let mut cutter = Cutter::new(Scheme::new(6, 3).unwrap(), cell.into()).unwrap();
        cutter.push(&object[..size], |_| ()).unwrap();
        let block = cutter.finish(|_| ()).block(7, 5, chosen.clone()).unwrap();
        save(root, "fragments", &format!("block-{size}"), &[&[0], &block.encode()]);
        let numbers = [6, 3, cell, 0, 10, 3, 0];
        save(root, "fragments", &format!("object-{size}"), &[&[2], &numbers, &order, &object[..size]]);
    }
    let version = Version { timestamp: 7, generation: 8 };
    let ballot = Ballot { round: 2, nonce: 9 };
    let accepted = Accepted { ballot, outcome: Outcome::Abort };
    let changes = [
        Change::Promised { version, chosen: chosen.clone(), ballot },
        Change::Accepted { version, chosen: chosen.clone(), accepted },
        Change::Decided { version, outcome: Outcome::Commit },
        Change::Settled(version),
        Change::Returned(Version::deletion(7)),
        Change::Damaged(version),
    ];
    for (at, change) in changes.iter().enumerate() {
        save(root, "fragments", &format!("decision-{at}"), &[&[1], &decision::encode(change).unwrap()]);
    }
}

fn pairs(root: &Path) {
    let pair = |step: usize| PairRoots::new((0..4096).step_by(step).collect()).unwrap();
    let steps = [(12, 8, vec![0]), (12, 4, vec![0]), (8, 4, vec![0, 1, 2]), (4, 0, vec![0, 1, 5, 9]), (2, 0, vec![0])];
    for (from, to, nodes) in steps {
        let step = Step::new(from, to).unwrap();
        let told = [1, 3, 40].map(|distance| pair(distance).branches(step, &nodes, &[2], 100));
        for (at, (mine, theirs)) in [(0, 0), (0, 1), (1, 2), (2, 0)].into_iter().enumerate() {
            let (mine, theirs): (&[u8], &[u8]) = (&told[mine], &told[theirs]);
            let head = [from as u8, to as u8, mine.len() as u8];
            save(root, "branches", &format!("from-{from}-to-{to}-{at}"), &[&head, mine, theirs]);
        }
    }
}

fn main() {
    let root = std::env::args().nth(1).expect("a directory");
    wire(Path::new(&root));
    node(Path::new(&root));
    guests(Path::new(&root));
    store(Path::new(&root));
    erasure(Path::new(&root));
    coded(Path::new(&root));
    pairs(Path::new(&root));
}
