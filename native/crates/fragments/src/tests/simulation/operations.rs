//! What is under way: writes, reads, recoveries, sessions. Each has answers to come, and ends when they came or late.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::deletion::Deletion;
use crate::read::Read;
use crate::recovery::Recovery;
use crate::request::{Answer, Request};
use crate::slot::Shown;
use crate::write::Write;
use crate::{Device, Version};

/// Fragments by their index.
pub(crate) type Pieces = BTreeMap<usize, Vec<u8>>;

/// What a reader holds beside its decisions.
pub(crate) struct Reading {
    pub(crate) ring: usize,
    /// What was agreed on when it began.
    pub(crate) floor: Option<Version>,
    /// The version that is being fetched.
    pub(crate) version: Option<Version>,
    pub(crate) pieces: Pieces,
    /// The newest version that was named, and by which device.
    pub(crate) named: Option<(Version, usize)>,
}

pub(crate) enum Operation {
    Write { write: Write, version: Version, chosen: Arc<[Device]>, cells: Vec<Vec<u8>> },
    Delete { version: Version, deletion: Deletion },
    Recovery { device: usize, place: usize, version: Version, recovery: Recovery },
    Read { read: Read, reading: Reading },
    Rebuild { device: usize, place: usize, version: Version, chosen: Arc<[Device]>, pieces: Pieces },
    Session { device: usize, place: usize },
    Return { device: usize, place: usize },
}

impl Operation {
    /// The device whose process it is in; none of a proxy's.
    pub(crate) fn device(&self) -> Option<usize> {
        match self {
            Self::Write { .. } | Self::Delete { .. } | Self::Read { .. } => None,
            Self::Recovery { device, .. }
            | Self::Rebuild { device, .. }
            | Self::Session { device, .. }
            | Self::Return { device, .. } => Some(*device),
        }
    }
}

/// A message to a device.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) operation: u64,
    /// Which of the devices that were asked this is, in the operation's own count.
    pub(crate) index: usize,
    pub(crate) to: usize,
    /// The one that is meant, if another one may not answer.
    pub(crate) incarnation: Option<u64>,
    /// The slot; of the place that the device has by its own ring, if none is named.
    pub(crate) place: Option<usize>,
    pub(crate) request: Request,
    pub(crate) bytes: Option<Vec<u8>>,
}

/// What a device sent back.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) operation: u64,
    pub(crate) index: usize,
    pub(crate) from: usize,
    pub(crate) request: Request,
    pub(crate) answer: Answer,
    pub(crate) pieces: Vec<(usize, Vec<u8>)>,
    /// The place that the device has by its own ring, and which ring that is.
    pub(crate) place: Option<usize>,
    pub(crate) ring: usize,
}

#[derive(Clone, Debug)]
pub(crate) enum Message {
    Call(Call),
    Reply(Reply),
}

impl Reply {
    pub(crate) fn shown(&self) -> Option<&Shown> {
        match &self.answer {
            Answer::Showing(shown) => shown.as_ref(),
            _ => None,
        }
    }
}
