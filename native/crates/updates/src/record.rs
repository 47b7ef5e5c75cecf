//! The bytes of a journal's file: a head, then records; integers are big-endian. `docs/data-on-disk.md` has the table.
//!
//! Fault model: any bytes may be missing, old, of another file, or damaged. A record's checksum covers which process
//! wrote it, and where: what an earlier file has left in the same place on the disk is no record of this one. Nothing
//! behind the first record that is not whole is used.

use swiftlet_hash::xxh3_64;

use crate::database::Database;
use crate::row::{MAX_BATCH_BYTES, count_rows};

/// The directory's files begin with it.
const PREFIX: &str = "journal-";
const MAGIC: [u8; 8] = *b"SWLTUPDJ";
pub(crate) const VERSION: u16 = 1;
/// Bytes of a file's head.
pub(crate) const FILE_HEAD: usize = 40;
/// Bytes of a record before its payload: check, incarnation, offset, bytes of the payload.
pub(crate) const RECORD_HEAD: usize = 28;
/// The largest payload: partition, two texts, rows.
const MAX_PAYLOAD: usize = 4 + 2 * (2 + u16::MAX as usize) + MAX_BATCH_BYTES;

/// The name of a file.
pub(crate) fn file_name(number: u64) -> String {
    format!("{PREFIX}{number:016x}")
}

/// The number of a file with this name.
pub(crate) fn file_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    (file_name(number) == name).then_some(number)
}

fn u64_at(raw: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&raw[at..at + 8]);
    u64::from_be_bytes(bytes)
}

/// A file's head.
pub(crate) fn file_head(incarnation: u64, number: u64) -> Vec<u8> {
    let mut raw = Vec::with_capacity(FILE_HEAD);
    raw.extend_from_slice(&MAGIC);
    raw.extend_from_slice(&VERSION.to_be_bytes());
    raw.extend_from_slice(&[0; 6]);
    raw.extend_from_slice(&incarnation.to_be_bytes());
    raw.extend_from_slice(&number.to_be_bytes());
    let check = xxh3_64(&raw);
    raw.extend_from_slice(&check.to_be_bytes());
    raw
}

/// What a file's head says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FileHead {
    /// The incarnation that wrote it.
    Of(u64),
    /// Another version of the format.
    Version(u16),
    /// It was never written as a whole.
    Torn,
}

/// Read the head of the file with this number.
pub(crate) fn read_file_head(raw: &[u8], number: u64) -> FileHead {
    let whole = raw.len() >= FILE_HEAD
        && raw[..8] == MAGIC
        && xxh3_64(&raw[..FILE_HEAD - 8]) == u64_at(raw, FILE_HEAD - 8)
        && u64_at(raw, 24) == number;
    let version = if whole { u16::from_be_bytes([raw[8], raw[9]]) } else { VERSION };
    match whole {
        false => FileHead::Torn,
        true if version != VERSION => FileHead::Version(version),
        true => FileHead::Of(u64_at(raw, 16)),
    }
}

/// A record up to its rows, which follow it. `offset` is where it is in its file.
pub(crate) fn record_head(incarnation: u64, offset: u64, database: &Database, rows: &[u8]) -> Vec<u8> {
    let (account, container) = (database.account.as_bytes(), database.container.as_bytes());
    let bytes = 8 + account.len() + container.len() + rows.len();
    let mut raw = Vec::with_capacity(RECORD_HEAD + 8 + account.len() + container.len());
    raw.extend_from_slice(&[0; 8]);
    raw.extend_from_slice(&incarnation.to_be_bytes());
    raw.extend_from_slice(&offset.to_be_bytes());
    raw.extend_from_slice(&(bytes as u32).to_be_bytes());
    raw.extend_from_slice(&database.partition.to_be_bytes());
    for text in [account, container] {
        raw.extend_from_slice(&(text.len() as u16).to_be_bytes());
        raw.extend_from_slice(text);
    }
    let check = check_of(&raw[8..], rows);
    raw[..8].copy_from_slice(&check.to_be_bytes());
    raw
}

/// The checksum of a record: of what is before its rows, and of these with it.
fn check_of(head: &[u8], rows: &[u8]) -> u64 {
    let mut sums = [0; 16];
    sums[..8].copy_from_slice(&xxh3_64(head).to_be_bytes());
    sums[8..].copy_from_slice(&xxh3_64(rows).to_be_bytes());
    xxh3_64(&sums)
}

/// How many bytes the payload of the record with this head has; None if it is the head of no record.
pub(crate) fn payload_bytes(head: &[u8], incarnation: u64, offset: u64) -> Option<usize> {
    let bytes = u32::from_be_bytes([head[24], head[25], head[26], head[27]]) as usize;
    (u64_at(head, 8) == incarnation && u64_at(head, 16) == offset && bytes <= MAX_PAYLOAD).then_some(bytes)
}

/// The database and the rows of a record; None if it is not whole.
pub(crate) fn read_record(record: &[u8]) -> Option<(Database, &[u8])> {
    let mut rest = record.get(RECORD_HEAD..)?;
    let mut take = |len: usize| {
        let (head, tail) = rest.split_at_checked(len)?;
        rest = tail;
        Some(head)
    };
    let partition = u32::from_be_bytes(take(4)?.try_into().ok()?);
    let mut text = || {
        let len = u16::from_be_bytes(take(2)?.try_into().ok()?);
        take(usize::from(len))
    };
    let (account, container) = (text()?, text()?);
    let rows = rest;
    let head = &record[8..record.len() - rows.len()];
    if check_of(head, rows) != u64_at(record, 0) || count_rows(rows).is_err() {
        return None;
    }
    let database = Database::new(partition, std::str::from_utf8(account).ok()?, std::str::from_utf8(container).ok()?);
    Some((database, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_form() {
        for number in [0, 1, 0xabc, u64::MAX] {
            assert_eq!(file_number(&file_name(number)), Some(number));
        }
        for name in ["journal-", "journal-1", "journal-000000000000000G", "journal-00000000000000AB", ".lock", "x"] {
            assert_eq!(file_number(name), None, "{name}");
        }
    }

    #[test]
    fn a_head_is_that_of_its_file_and_version() {
        let head = file_head(7, 3);
        assert_eq!(head.len(), FILE_HEAD);
        assert_eq!(read_file_head(&head, 3), FileHead::Of(7));
        assert_eq!(read_file_head(&head, 4), FileHead::Torn, "the head of another file");
        for cut in 0..FILE_HEAD {
            assert_eq!(read_file_head(&head[..cut], 3), FileHead::Torn);
        }
        for at in 0..FILE_HEAD {
            let mut other = head.clone();
            other[at] ^= 1;
            assert_eq!(read_file_head(&other, 3), FileHead::Torn, "byte {at}");
        }
        let mut newer = head;
        newer[9] = 2;
        let check = xxh3_64(&newer[..FILE_HEAD - 8]);
        newer[FILE_HEAD - 8..].copy_from_slice(&check.to_be_bytes());
        assert_eq!(read_file_head(&newer, 3), FileHead::Version(2));
    }
}
