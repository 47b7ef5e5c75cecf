//! What a server answers to any sequence of requests is what a small model in memory says.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;

use crate::common::{LONG, MIB, World, content, key, put};
use proptest::prelude::*;
use swiftlet_node::message::{Posted, Request, Written};
use swiftlet_node::{Failure, Limits, Refusal, Status};
use swiftlet_store::model::PostMeta;
use swiftlet_transport::{Carrier, Chunk};

#[derive(Clone, Debug)]
enum Op {
    Put { number: u64, timestamp: u64, size: usize, row: u32 },
    Post { number: u64, timestamp: u64, row: u32 },
    Delete { number: u64, timestamp: u64, row: u32 },
    Get { number: u64, start: u64, stop: u64, whole: u64 },
    Acknowledge { number: u64, timestamp: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    let size = prop_oneof![4 => 0_usize..3000, 2 => 60_000_usize..300_000, 1 => MIB..5 * MIB];
    let (number, timestamp, row) = (0..3_u64, 1..60_u64, 0..3_u32);
    prop_oneof![
        4 => (number.clone(), timestamp.clone(), size, row.clone())
            .prop_map(|(number, timestamp, size, row)| Op::Put { number, timestamp, size, row }),
        2 => (number.clone(), timestamp.clone(), row.clone())
            .prop_map(|(number, timestamp, row)| Op::Post { number, timestamp, row }),
        1 => (number.clone(), timestamp.clone(), row)
            .prop_map(|(number, timestamp, row)| Op::Delete { number, timestamp, row }),
        4 => (number.clone(), 0..5_000_000_u64, 0..5_000_000_u64, prop_oneof![Just(0), 0..5_000_000_u64])
            .prop_map(|(number, start, stop, whole)| Op::Get { number, start: start % 400_000, stop, whole }),
        1 => (number, timestamp).prop_map(|(number, timestamp)| Op::Acknowledge { number, timestamp }),
    ]
}

/// One object: its newest version, with data or deleted; its POST; its row, and whether that is a POST's.
#[derive(Default)]
struct Held {
    version: Option<(u64, Option<Vec<u8>>)>,
    post: u64,
    pending: Option<(u64, u32, bool)>,
}

type Outcome = Result<bool, (Status, u64)>;

impl Held {
    /// Keep the update pending of a version that was `written` now, or was here already.
    fn keep(&mut self, timestamp: u64, row: u32, post: bool, written: bool) {
        if row == 0 {
            return;
        }
        let Some((newest, rows, posted)) = self.pending else {
            self.pending = Some((timestamp, row, post || !written));
            return;
        };
        let apart = match (written, post) {
            (true, true) => timestamp >= newest || posted,
            (true, false) => timestamp < newest && posted,
            (false, _) => timestamp > newest,
        };
        let posted = if timestamp > newest { post || !written } else { posted };
        self.pending = Some((newest.max(timestamp) + u64::from(apart), rows | row, posted));
    }

    fn put(&mut self, timestamp: u64, data: Vec<u8>, row: u32) -> Outcome {
        match self.version {
            // At the same time a deletion wins over data.
            Some((held, None)) if held == timestamp => return Err((Status::Superseded, held)),
            Some((held, _)) if held > timestamp => return Err((Status::Superseded, held)),
            Some((held, Some(_))) if held == timestamp => self.keep(timestamp, row, false, false),
            _ => {
                self.version = Some((timestamp, Some(data)));
                self.keep(timestamp, row, false, true);
            }
        }
        Ok(true)
    }

    fn delete(&mut self, timestamp: u64, row: u32) -> Outcome {
        let existed = match &self.version {
            Some((held, Some(_))) if *held > timestamp => return Err((Status::Superseded, *held)),
            Some((_, data)) => data.is_some(),
            None => false,
        };
        let written = self.version.as_ref().is_none_or(|(held, data)| *held < timestamp || data.is_some());
        if written {
            self.version = Some((timestamp, None));
        }
        self.keep(timestamp, row, false, written);
        Ok(existed)
    }

    fn post(&mut self, timestamp: u64, row: u32) -> Outcome {
        match self.version {
            None => Err((Status::NotFound, 0)),
            Some((held, None)) => Err((Status::NotFound, held)),
            Some((held, Some(_))) if timestamp <= held => Err((Status::Superseded, held)),
            Some((held, Some(_))) => {
                let newest = if self.post > held { self.post } else { 0 };
                if timestamp < newest {
                    return Err((Status::Superseded, newest));
                }
                let written = timestamp > newest;
                self.post = timestamp;
                self.keep(timestamp, row, true, written);
                Ok(true)
            }
        }
    }
}

fn outcome<T>(answer: Result<T, Failure>, good: impl Fn(T) -> bool) -> Outcome {
    match answer {
        Ok(answer) => Ok(good(answer)),
        Err(Failure::Refused(Refusal { status, timestamp, .. })) => Err((status, timestamp)),
        Err(other) => panic!("{other:?}"),
    }
}

fn agree(carrier: Carrier, ops: &[Op]) {
    let world = World::new(carrier);
    let (machine, targets) = world.machine(1, Limits::default());
    let mut model: HashMap<u64, Held> = HashMap::new();
    let ask = |request: &Request| {
        let answer = world.client.ask(&targets[0], request, None, LONG);
        outcome(answer, |fetched| Written::decode(&fetched.header).unwrap().existed)
    };
    for op in ops {
        match *op {
            Op::Put { number, timestamp, size, row } => {
                let data = content(timestamp, size);
                let body = Chunk::from(data.clone());
                let answer = world.client.put(&targets, &put(number, timestamp, &data, row), &body, LONG).remove(0);
                let expected = model.entry(number).or_default().put(timestamp, data, row);
                assert_eq!(outcome(answer, |written| written.existed), expected, "{op:?}");
            }
            Op::Post { number, timestamp, row } => {
                let meta =
                    PostMeta { timestamp, metadata: vec![(b"p".to_vec(), b"1".to_vec())], ..PostMeta::default() };
                let expected = model.entry(number).or_default().post(timestamp, row);
                let request = Request::Post { key: key(number), meta, row, proved: false };
                let answer = world.client.ask(&targets[0], &request, None, LONG);
                let found = outcome(answer, |fetched| {
                    let Posted { written, info } = Posted::decode(&fetched.header).unwrap();
                    let now = machine.stores[0].stat(&key(number)).unwrap();
                    assert_eq!(info, written.pending.then_some(now), "what its update is made of: {op:?}");
                    written.existed
                });
                assert_eq!(found, expected, "{op:?}");
            }
            Op::Delete { number, timestamp, row } => {
                let request = Request::Delete { key: key(number), timestamp, name: b"/a/c/o".to_vec(), row };
                let expected = model.entry(number).or_default().delete(timestamp, row);
                assert_eq!(ask(&request), expected, "{op:?}");
            }
            Op::Get { number, start, stop, whole } => {
                let request = Request::Get { key: key(number), start, stop, whole, proved: false };
                let answer = world.client.get(&targets[0], &request, LONG);
                let held = model.entry(number).or_default();
                match &held.version {
                    Some((timestamp, Some(data))) => {
                        let (found, read) = answer.unwrap();
                        let size = data.len() as u64;
                        let is_small = size <= whole;
                        let from = if is_small { 0 } else { start.min(size) };
                        let upto = if is_small { size } else { stop.min(size).max(from) };
                        assert!(read == data[from as usize..upto as usize], "{op:?}");
                        assert_eq!((found.info.timestamp, found.info.size), (*timestamp, size));
                        let post = held.post;
                        assert_eq!(found.info.meta_timestamp, post.max(*timestamp));
                    }
                    other => {
                        let tombstone = other.as_ref().map_or(0, |(timestamp, _)| *timestamp);
                        assert_eq!(outcome(answer, |_| true), Err((Status::NotFound, tombstone)), "{op:?}");
                    }
                }
            }
            Op::Acknowledge { number, timestamp } => {
                world
                    .client
                    .ask(&targets[0], &Request::Acknowledge(vec![(key(number), timestamp)]), None, LONG)
                    .unwrap();
                let held = model.entry(number).or_default();
                held.pending = held.pending.filter(|(pending, ..)| *pending > timestamp);
            }
        }
        let mut pending: Vec<_> = machine.stores[0]
            .pending_updates(100, std::time::Duration::ZERO)
            .iter()
            .map(|row| (row.key, row.timestamp, row.row))
            .collect();
        pending.sort_unstable();
        let of_model =
            model.iter().filter_map(|(number, held)| held.pending.map(|(at, row, _)| (key(*number), at, row)));
        let mut expected: Vec<_> = of_model.collect();
        expected.sort_unstable();
        assert_eq!(pending, expected, "{op:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn tcp_agrees(ops in prop::collection::vec(op(), 1..40)) {
        agree(Carrier::Tcp, &ops);
    }

    #[test]
    fn simulated_agrees(ops in prop::collection::vec(op(), 1..40)) {
        agree(Carrier::Simulated, &ops);
    }
}
