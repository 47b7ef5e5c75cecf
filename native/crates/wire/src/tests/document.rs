//! `docs/transport.md` says what the code does.

use crate::frame::Kind;
use crate::limits;

const DOCUMENT: &str = include_str!("../../../../../docs/transport.md");

fn rows(first: &str) -> Vec<Vec<String>> {
    let table = DOCUMENT.split(first).nth(1).unwrap_or_default();
    table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect())
        .collect()
}

#[test]
fn the_kinds_are_those_of_the_code() {
    let said: Vec<(u8, String)> = rows("| kind | name | from | meta | body |")
        .iter()
        .map(|row| (row[0].parse().expect("a number"), row[1].clone()))
        .collect();
    let meant: Vec<(u8, String)> =
        Kind::ALL.iter().map(|kind| (*kind as u8, format!("{kind:?}").to_uppercase())).collect();
    assert_eq!(said, meant);
}

#[test]
fn the_limits_are_those_of_the_code() {
    let said: Vec<(String, u64)> =
        rows("| limit | value | of |").iter().map(|row| (row[0].clone(), row[1].parse().expect("a number"))).collect();
    let meant = [
        ("HEAD_BYTES", limits::HEAD_BYTES as u64),
        ("META_BYTES", limits::META_BYTES as u64),
        ("HEADER_BYTES", limits::HEADER_BYTES as u64),
        ("TRACE_BYTES", limits::TRACE_BYTES as u64),
        ("FOOTER_BYTES", limits::FOOTER_BYTES as u64),
        ("TEXT_BYTES", limits::TEXT_BYTES as u64),
        ("CARD_BYTES", limits::CARD_BYTES as u64),
        ("KEYS", limits::KEYS as u64),
        ("HANDSHAKE_BYTES", limits::HANDSHAKE_BYTES as u64),
        ("GRANT_BYTES", limits::GRANT_BYTES as u64),
        ("SCOPE_BYTES", limits::SCOPE_BYTES as u64),
        ("INLINE_BYTES", limits::INLINE_BYTES as u64),
        ("CHUNK_BYTES", limits::CHUNK_BYTES as u64),
        ("DATA_BYTES", limits::DATA_BYTES as u64),
        ("OFFERED_BYTES", limits::OFFERED_BYTES),
        ("EARLY_BYTES", limits::EARLY_BYTES),
        ("OFFERED_CHUNKS", limits::OFFERED_CHUNKS as u64),
        ("PING_AFTER_MS", limits::PING_AFTER_MS),
        ("DEAD_AFTER_MS", limits::DEAD_AFTER_MS),
        ("HANDSHAKE_MS", limits::HANDSHAKE_MS),
    ];
    assert_eq!(said, meant.map(|(name, value)| (name.to_owned(), value)));
}
