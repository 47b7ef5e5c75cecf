//! Objects and deletions that all of their devices have made durable, batched by container for whoever lists them.

use std::sync::Arc;

use swiftlet_store::model::Key;

use crate::routes::Device;
use crate::row::Row;

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
    /// The container replicas that have to list it before the client is answered, as bits.
    pub awaited: u32,
    /// What a listing has of it.
    pub row: Row,
    /// The object.
    pub key: Key,
    /// Of the version.
    pub timestamp: u64,
    /// The devices' numbers in the ring, in the order of the replicas.
    pub devices: Vec<u16>,
    /// The devices themselves.
    pub holders: Vec<Arc<Device>>,
    /// The request's id.
    pub id: String,
    /// The slices of room that it takes a part of.
    pub parts: Vec<u64>,
    /// Whether it is a task in the expirer's queue instead: no device keeps it pending, so it counts once most
    /// replicas have made it durable.
    pub is_task: bool,
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
    /// For each object the slices of room that it takes a part of.
    pub parts: Vec<Vec<u64>>,
}

/// Batch objects by container.
pub(crate) fn batches(made: Vec<Made>) -> Vec<Batch> {
    let mut found: Vec<Batch> = Vec::new();
    for one in made {
        let row = one.row.json();
        let fits = |batch: &&mut Batch| {
            let room = batch.tokens.len() < MAX_ROWS && batch.rows.len() + row.len() < MAX_BYTES;
            room && batch.container == one.container
                && batch.shares == one.rows
                && batch.written[0].0.policy == one.key.policy
        };
        let at = found.iter_mut().rev().find(fits);
        let written = (one.key, one.timestamp);
        if let Some(batch) = at {
            batch.tokens.push(one.token);
            batch.rows.push(b',');
            batch.rows.extend_from_slice(&row);
            batch.written.push(written);
            batch.devices.push(one.devices);
            batch.parts.push(one.parts);
        } else {
            found.push(Batch {
                tokens: vec![one.token],
                container: one.container,
                shares: one.rows,
                rows: row,
                written: vec![written],
                devices: vec![one.devices],
                parts: vec![one.parts],
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(token: u64, container: &str, policy: u16) -> Made {
        let row = Row { name: token.to_string().into_bytes(), ..Row::default() };
        let key = Key { policy, partition: 1, digest: [0; 16] };
        let rows = Arc::from([1, 2, 4]);
        let (container, devices) = (container.as_bytes().into(), vec![0, 1, 2]);
        let (holders, id, parts) = (Vec::new(), String::new(), vec![token]);
        Made {
            token,
            container,
            rows,
            awaited: 7,
            row,
            key,
            timestamp: token,
            devices,
            holders,
            id,
            parts,
            is_task: false,
        }
    }

    #[test]
    fn those_of_a_container_go_together() {
        let all = vec![made(1, "/a/c/", 0), made(2, "/a/d/", 0), made(3, "/a/c/", 0), made(4, "/a/c/", 1)];
        let found = batches(all);
        let tokens: Vec<_> = found.iter().map(|batch| batch.tokens.clone()).collect();
        assert_eq!(tokens, vec![vec![1, 3], vec![2], vec![4]]);
        assert_eq!(found[0].rows, b"[\"1\",0,0,\"\",\"\",false],[\"3\",0,0,\"\",\"\",false]");
        assert_eq!(found[0].written.len(), found[0].devices.len());
        assert_eq!(found[0].parts, [[1], [3]]);
    }

    #[test]
    fn batches_are_limited() {
        let found = batches((0..1000).map(|token| made(token, "/a/c/", 0)).collect());
        assert_eq!(found.len(), 1000 / MAX_ROWS);
        let row = Row { content_type: vec![b'x'; 100 << 10], ..Row::default() };
        let long = |token| Made { row: row.clone(), ..made(token, "/a/c/", 0) };
        assert_eq!(batches((0..6).map(long).collect()).len(), 3);
    }
}
