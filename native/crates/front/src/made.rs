//! Objects and deletions that all of their devices have made durable, batched by container for whoever lists them.

use std::sync::Arc;

use swiftlet_store::model::Key;

/// The largest number of rows in a batch, and of their bytes: far below what fits into one update of a row stream.
const MAX_ROWS: usize = 200;
const MAX_BYTES: usize = 256 << 10;

/// An object, or its deletion, whose row is to be listed before the client is answered.
#[derive(Clone, Debug)]
pub struct Made {
    /// The number by which the result is reported.
    pub token: u64,
    /// `/account/container/`.
    pub container: Arc<[u8]>,
    /// For each replica of the object, the container replicas whose update it keeps pending, as bits.
    pub rows: Arc<[u32]>,
    /// The row in the form in which it is sent.
    pub row: Vec<u8>,
    /// The object.
    pub key: Key,
    /// Of the version.
    pub timestamp: u64,
    /// The devices' numbers in the ring, in the order of the replicas.
    pub devices: Vec<u16>,
}

/// Objects of one container.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The numbers by which the results are reported.
    pub tokens: Vec<u64>,
    /// `/account/container/`.
    pub container: Arc<[u8]>,
    /// For each replica of the object, the container replicas whose update it keeps pending, as bits.
    pub shares: Arc<[u32]>,
    /// Rows in JSON, separated by commas.
    pub rows: Vec<u8>,
    /// Objects and timestamps.
    pub written: Vec<(Key, u64)>,
    /// The devices' numbers for each object.
    pub devices: Vec<Vec<u16>>,
}

/// Batch objects by container.
pub(crate) fn batches(made: Vec<Made>) -> Vec<Batch> {
    let mut found: Vec<Batch> = Vec::new();
    for one in made {
        let fits = |batch: &&mut Batch| {
            let room = batch.tokens.len() < MAX_ROWS && batch.rows.len() + one.row.len() < MAX_BYTES;
            room && batch.container == one.container
                && batch.shares == one.rows
                && batch.written[0].0.policy == one.key.policy
        };
        let at = found.iter_mut().rev().find(fits);
        let written = (one.key, one.timestamp);
        if let Some(batch) = at {
            batch.tokens.push(one.token);
            batch.rows.push(b',');
            batch.rows.extend_from_slice(&one.row);
            batch.written.push(written);
            batch.devices.push(one.devices);
        } else {
            found.push(Batch {
                tokens: vec![one.token],
                container: one.container,
                shares: one.rows,
                rows: one.row,
                written: vec![written],
                devices: vec![one.devices],
            });
        }
    }
    found
}

/// `[name, timestamp, size, etag, content type, deleted]`, as in a row stream.
pub(crate) fn row(name: &[u8], timestamp: u64, size: u64, etag: &[u8], content_type: &[u8]) -> Vec<u8> {
    encoded(name, timestamp, size, (etag, content_type), false)
}

/// The row of a deletion.
pub(crate) fn deletion(name: &[u8], timestamp: u64) -> Vec<u8> {
    encoded(name, timestamp, 0, (b"", b""), true)
}

fn encoded(name: &[u8], timestamp: u64, size: u64, (etag, content_type): (&[u8], &[u8]), deleted: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + content_type.len() + 96);
    out.push(b'[');
    text(&mut out, name);
    out.extend_from_slice(format!(",{timestamp},{size},").as_bytes());
    text(&mut out, etag);
    out.push(b',');
    text(&mut out, content_type);
    out.extend_from_slice(if deleted { b",true]" } else { b",false]" });
    out
}

/// Append bytes in UTF-8 as a JSON string.
fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            0..=0x1f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(token: u64, container: &str, policy: u16) -> Made {
        let row = format!("[{token}]").into_bytes();
        let key = Key { policy, partition: 1, digest: [0; 16] };
        let rows = Arc::from([1, 2, 4]);
        Made { token, container: container.as_bytes().into(), rows, row, key, timestamp: token, devices: vec![0, 1, 2] }
    }

    #[test]
    fn those_of_a_container_go_together() {
        let all = vec![made(1, "/a/c/", 0), made(2, "/a/d/", 0), made(3, "/a/c/", 0), made(4, "/a/c/", 1)];
        let found = batches(all);
        let tokens: Vec<_> = found.iter().map(|batch| batch.tokens.clone()).collect();
        assert_eq!(tokens, vec![vec![1, 3], vec![2], vec![4]]);
        assert_eq!(found[0].rows, b"[1],[3]");
        assert_eq!(found[0].written.len(), found[0].devices.len());
    }

    #[test]
    fn batches_are_limited() {
        let found = batches((0..1000).map(|token| made(token, "/a/c/", 0)).collect());
        assert_eq!(found.len(), 1000 / MAX_ROWS);
        let long = |token| Made { row: vec![b'x'; 100 << 10], ..made(token, "/a/c/", 0) };
        assert_eq!(batches((0..6).map(long).collect()).len(), 3);
    }

    #[test]
    fn rows_are_json() {
        let found = row("a\"b\\c\n\u{1}ä".as_bytes(), 7, 3, b"abc", b"text/plain; a=\"b\"");
        let expected = "[\"a\\\"b\\\\c\\u000a\\u0001ä\",7,3,\"abc\",\"text/plain; a=\\\"b\\\"\",false]";
        assert_eq!(String::from_utf8(found).expect("text"), expected);
        assert_eq!(String::from_utf8(deletion(b"a", 7)).expect("text"), "[\"a\",7,0,\"\",\"\",true]");
    }
}
