//! Records survive a round trip; nothing else is taken for one.

use swiftlet_fragments::Version;
use swiftlet_fragments::packs::Pack;
use swiftlet_fragments::packs::table::Reference;

use super::*;

const DEVICE: DeviceId = [7; 16];

fn header() -> Header {
    let key = Key { policy: 3, partition: 77, digest: [0x5a; 16] };
    Header {
        metadata_len: 40,
        size: 123,
        sequence: 9,
        batch: 8,
        delete_at: 5,
        place: Place::new(2, 8192),
        ..Header::new(Kind::Put, key, 1 << 40)
    }
}

#[test]
fn a_header_comes_back() {
    let raw = header().pack(&DEVICE);
    assert_eq!(Header::parse(&raw, Place::new(2, 8192), &DEVICE), Parsed::Sound(header()));
    assert_eq!(header().record_len(), 320);
}

#[test]
fn every_flipped_bit_is_found() {
    let raw = header().pack(&DEVICE);
    for bit in 0..raw.len() * 8 {
        let mut damaged = raw;
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Header::parse(&damaged, Place::new(2, 8192), &DEVICE), Parsed::Unsound, "bit {bit}");
    }
}

#[test]
fn elsewhere_and_of_another_device_it_does_not_count() {
    let raw = header().pack(&DEVICE);
    assert_eq!(Header::parse(&raw, Place::new(2, 8256), &DEVICE), Parsed::Unsound);
    assert_eq!(Header::parse(&raw, Place::new(2, 8192), &[8; 16]), Parsed::Unsound);
    assert_eq!(Header::parse(&raw[..100], Place::new(2, 8192), &DEVICE), Parsed::Unsound);
}

#[test]
fn a_newer_version_is_told_from_damage() {
    let mut raw = header().pack(&DEVICE);
    raw[4] = 3;
    let check = header_check(&raw, &DEVICE);
    raw[CHECK..].copy_from_slice(&check.to_be_bytes());
    assert_eq!(Header::parse(&raw, Place::new(2, 8192), &DEVICE), Parsed::Newer(3));
}

#[test]
fn a_table_has_the_version_of_its_pack_and_a_record_version_of_its_own() {
    let version = Version { timestamp: 1 << 41, generation: 1 << 50 };
    let pack = Pack { version, digest: [9; 16] };
    let reference = Reference { digest: [1; 16], timestamp: 7, offset: 40, length: 100 };
    let table = Table { pack, references: vec![reference] };
    let (header, metadata) = table_record(3, 95, &table).expect("a table");
    let header = Header { metadata_len: metadata.len() as u32, place: Place::new(2, 8192), ..header };
    let parse = |raw: &[u8]| Header::parse(raw, header.place, &DEVICE);
    let mut raw = header.pack(&DEVICE);
    assert_eq!(raw[4], TABLES_VERSION);
    assert_eq!((parse(&raw), pack_of(&header)), (Parsed::Sound(header), pack));
    assert_eq!(parse_table(&header, &metadata), Some(table));
    assert_eq!(parse_table(&Header { generation: 1, ..header }, &metadata), None);
    for (number, expected) in [(POSTS_VERSION, Parsed::Unsound), (TABLES_VERSION + 1, Parsed::Newer(5))] {
        raw[4] = number;
        let check = header_check(&raw, &DEVICE);
        raw[CHECK..].copy_from_slice(&check.to_be_bytes());
        assert_eq!(parse(&raw), expected);
    }
}

#[test]
fn metadata_comes_back() {
    let pairs = vec![(b"color".to_vec(), b"blue".to_vec()), (b"\xed\xa0\x80".to_vec(), Vec::new())];
    let put = PutMeta {
        name: b"/a/c/o".to_vec(),
        timestamp: 1 << 40,
        content_type: b"text/plain".to_vec(),
        metadata: pairs.clone(),
        sysmeta: Vec::new(),
        delete_at: 5,
    };
    let packed = pack_put(&put, b"etag");
    let (back, footer) = parse_put(&header(), &packed).expect("sound");
    assert_eq!((back, footer.etag.as_slice(), footer.size), (put, &b"etag"[..], 123));
    for cut in 0..packed.len() {
        assert!(parse_put(&header(), &packed[..cut]).is_none(), "cut at {cut}");
    }
    let post = PostMeta {
        timestamp: 9,
        metadata: pairs,
        content_type: Some(Vec::new()),
        content_type_timestamp: 8,
        delete_at: 0,
    };
    let posted = Header { content_type_timestamp: 8, ..Header::new(Kind::Post, header().key, 9) };
    assert_eq!(parse_post(&posted, &pack_post(&post)), Some(post));
    assert_eq!(parse_tombstone(&pack_tombstone(b"name")), Some(b"name".to_vec()));
}

#[test]
fn the_checksum_of_nothing_is_what_it_is() {
    assert_eq!(swiftlet_hash::xxh3_64(b""), EMPTY_XXH3);
}
