//! Answers to writes that are durable, or have failed.

use std::sync::Arc;

use swiftlet_store::model::Key;
use swiftlet_store::{Done, Error, Store};
use swiftlet_transport::Body;

use crate::device::Permit;
use crate::doubts::Doubts;
use crate::message::Written;
use crate::reply::Reply;
use crate::status::{Refusal, Status};

/// A write that the store works on: its version, and the container replicas (bits) that its update is for.
pub(crate) struct AcceptedWrite {
    pub(crate) store: Arc<Store>,
    pub(crate) key: Key,
    pub(crate) timestamp: u64,
    pub(crate) row: u32,
    /// A deletion: a missing object is no error.
    pub(crate) deletes: bool,
    /// Consulted before the answer that there is no object to write to.
    pub(crate) doubts: Option<Arc<Doubts>>,
}

impl AcceptedWrite {
    /// What is answered once the store has done its part, or has not.
    pub(crate) fn outcome(&self, outcome: swiftlet_store::Result<bool>, is_guest: bool) -> Result<Written, Refusal> {
        let Self { store, key, timestamp, row, deletes, doubts } = self;
        let existed = match outcome {
            Ok(_) => true,
            Err(Error::NotFound(Some(_))) if *deletes => false,
            Err(Error::NotFound(_)) if doubts.as_ref().is_some_and(|doubts| doubts.has(key.policy, key.partition)) => {
                return Err(unproved());
            }
            Err(error) => return Err(error.into()),
        };
        // The same version may have been here without a row: it is sent again.
        store.keep_pending(*key, *timestamp, *row);
        if is_guest {
            store.deliver_alone(key, *timestamp);
        }
        Ok(Written { pending: *row != 0, existed })
    }
}

/// Called by the store when a write is durable, or has failed: releases what it held, then answers.
pub(crate) fn answer_written(reply: Reply, permit: Option<Permit>, write: AcceptedWrite) -> Done {
    Box::new(move |outcome| {
        drop(permit);
        match write.outcome(outcome, reply.is_guests()) {
            Ok(written) => reply.answer(written.encode(), Body::Empty),
            Err(refusal) => reply.refuse(&refusal),
        }
    })
}

/// The refusal in place of `NotFound` when the device may have missed the object.
pub(crate) fn unproved() -> Refusal {
    Refusal::new(Status::Unproved, "the device may have missed writes of this partition")
}
