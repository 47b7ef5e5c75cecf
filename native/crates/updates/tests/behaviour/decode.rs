//! Rows from peers and from disks: any bytes are taken apart without a panic, and what is accepted means one thing.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::{Columns, encode, rows};
use proptest::prelude::*;
use swiftlet_updates::{MAX_BATCH_BYTES, Refused, Row, Rows, count_rows};

fn any_rows() -> impl Strategy<Value = Vec<(String, Columns)>> {
    let row = ("[a-z\u{e4}\u{1f600}]{1,9}", 0..1_u64 << 60, any::<bool>(), 0..1_u64 << 53, ".{0,9}", ".{0,9}")
        .prop_map(|(name, timestamp, deleted, size, etag, content_type)| {
            (name, (timestamp, deleted, size, etag, content_type))
        });
    prop::collection::vec(row, 1..9)
}

proptest! {
    #[test]
    fn rows_come_back_and_no_cut_one_is_taken_for_itself(rows in any_rows()) {
        let raw = encode(&rows);
        prop_assert_eq!(count_rows(&raw), Ok(rows.len()));
        let back: Vec<Row<'_>> = Rows::new(&raw).collect::<Result<_, _>>().unwrap();
        let mut again = Vec::new();
        back.iter().for_each(|row| row.encode(&mut again).unwrap());
        prop_assert_eq!(&again, &raw);
        let mut ends = vec![0];
        for row in &rows {
            ends.push(ends[ends.len() - 1] + encode(std::slice::from_ref(row)).len());
        }
        for cut in 0..raw.len() {
            let whole = ends.iter().position(|end| *end == cut).filter(|count| *count > 0);
            prop_assert_eq!(count_rows(&raw[..cut]).ok(), whole);
        }
    }

    #[test]
    fn any_bytes_are_rows_or_refused(raw in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(count) = count_rows(&raw) {
            let back: Vec<Row<'_>> = Rows::new(&raw).collect::<Result<_, _>>().unwrap();
            prop_assert_eq!(back.len(), count);
            let mut again = Vec::new();
            back.iter().for_each(|row| row.encode(&mut again).unwrap());
            prop_assert_eq!(again, raw);
        }
    }

    #[test]
    fn a_changed_byte_is_no_panic(rows in any_rows(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut raw = encode(&rows);
        let at = at.index(raw.len());
        raw[at] = to;
        let _ = count_rows(&raw);
    }
}

#[test]
fn what_no_database_can_hold_is_refused() {
    let plain = Row { name: "o", timestamp: 1, size: 1, etag: "e", content_type: "t", deleted: false };
    let checked = |row: Row<'_>| {
        let mut raw = Vec::new();
        row.encode(&mut raw)?;
        count_rows(&raw)
    };
    let highest = ((10_u64.pow(10) * 100_000) << 14) - 1;
    assert_eq!(checked(Row { timestamp: highest, size: 1 << 53, name: "\0a\0b", ..plain }), Ok(1));
    assert!(matches!(checked(Row { name: "", ..plain }), Err(Refused::InvalidName(_))));
    assert!(matches!(checked(Row { name: "a\0", ..plain }), Err(Refused::InvalidName(_))));
    assert!(matches!(checked(Row { timestamp: highest + 1, ..plain }), Err(Refused::Malformed(_))));
    assert!(matches!(checked(Row { size: (1 << 53) + 1, ..plain }), Err(Refused::Malformed(_))));
    let long = "x".repeat(1 << 16);
    for row in [Row { name: &long, ..plain }, Row { etag: &long, ..plain }, Row { content_type: &long, ..plain }] {
        assert!(matches!(checked(row), Err(Refused::Malformed(_))));
    }
    let mut raw = encode(&rows(0, 1, 1));
    raw[3] = 0xff;
    assert!(matches!(count_rows(&raw), Err(Refused::InvalidName(_))), "not UTF-8");
    let last = raw.len() - 1;
    raw[3] = b'0';
    raw[last] = 2;
    assert!(matches!(count_rows(&raw), Err(Refused::Malformed(_))), "neither 0 nor 1");
    let many = encode(&rows(0, 1000, 1));
    assert!(count_rows(&many).is_ok());
    let name = "n".repeat(60_000);
    let mut large = Vec::new();
    while large.len() <= MAX_BATCH_BYTES {
        Row { name: &name, ..plain }.encode(&mut large).unwrap();
    }
    assert!(matches!(count_rows(&large), Err(Refused::Malformed(_))));
}
