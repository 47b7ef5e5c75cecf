//! Answers to writes that are durable, or have failed.

use std::sync::Arc;

use swiftlet_store::model::Key;
use swiftlet_store::{Done, Error, Store};
use swiftlet_transport::Body;

use crate::device::Permit;
use crate::doubts::Doubts;
use crate::message::{Posted, Written};
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

/// The same for a copy of a small object: `existed` says whether there are older fragments here.
pub(crate) fn answer_copy(reply: Reply, permit: Permit, write: AcceptedWrite, has_fragments: bool) -> Done {
    Box::new(move |outcome| {
        drop(permit);
        match write.outcome(outcome, reply.is_guests()) {
            Ok(written) => reply.answer(Written { existed: has_fragments, ..written }.encode(), Body::Empty),
            Err(refusal) => reply.refuse(&refusal),
        }
    })
}

/// The same for a POST, with the object as it is since, which a thread of the device reads.
pub(crate) fn answer_posted(reply: Reply, permit: Permit, write: AcceptedWrite) -> Done {
    Box::new(move |outcome| match write.outcome(outcome, reply.is_guests()) {
        Ok(written) if written.pending && !reply.is_guests() => {
            let device = Arc::clone(&permit.device);
            device.run(move || {
                // Without it the writer asks: the object may be deleted by now.
                let info = write.store.stat(&write.key).ok();
                drop(permit);
                posted(reply, &Posted { written, info });
            });
        }
        Ok(written) => {
            drop(permit);
            posted(reply, &Posted { written, info: None });
        }
        Err(refusal) => {
            drop(permit);
            reply.refuse(&refusal);
        }
    })
}

fn posted(reply: Reply, posted: &Posted) {
    match posted.encode() {
        Ok(header) => reply.answer(header, Body::Empty),
        Err(malformed) => reply.refuse(&malformed.into()),
    }
}

/// The refusal in place of `NotFound` when the device may have missed the object.
pub(crate) fn unproved() -> Refusal {
    Refusal::new(Status::Unproved, "the device may have missed writes of this partition")
}
