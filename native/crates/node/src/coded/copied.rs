//! The newest copy of a small object that devices have told of: what it is, who has it, and what has come of it. No I/O.
//!
//! Fault model: whoever has told of it may not have it any more, have a newer one by now, or send other bytes.

use std::collections::VecDeque;
use std::ops::Range;

use swiftlet_store::model::Info;

use crate::message::Found;

/// A copy that is looked for.
#[derive(Debug, Default)]
pub(super) struct Copied {
    /// What it is, with the newest metadata that were told of.
    info: Option<Info>,
    /// Who has it, and was not asked for its bytes.
    sources: VecDeque<u32>,
    /// The bytes of the range.
    bytes: Option<Vec<u8>>,
}

/// What orders the descriptions of an object: the newest metadata count.
fn order(info: &Info) -> (u64, u64, u64) {
    (info.timestamp, info.meta_timestamp, info.content_type_timestamp)
}

/// The bytes of a range that an object has.
fn within(range: &Range<u64>, info: &Info) -> u64 {
    range.end.min(info.size).saturating_sub(range.start.min(info.size))
}

impl Copied {
    /// Its time.
    pub(super) fn timestamp(&self) -> Option<u64> {
        self.info.as_ref().map(|info| info.timestamp)
    }

    /// A device has told of its copy, and perhaps sent the bytes of the range with their digest.
    pub(super) fn learn(&mut self, info: Info, device: u32, body: Option<(u64, Vec<u8>)>, range: &Range<u64>) {
        if Some(info.timestamp) < self.timestamp() {
            return;
        }
        if Some(info.timestamp) > self.timestamp() {
            *self = Self { info: Some(info.clone()), ..Self::default() };
        }
        if !self.sources.contains(&device) {
            self.sources.push_back(device);
        }
        if let Some((sum, bytes)) = body
            && bytes.len() as u64 == within(range, &info)
            && swiftlet_hash::xxh3_64(&bytes) == sum
        {
            self.bytes = Some(bytes);
        }
        if self.info.as_ref().map(order) < Some(order(&info)) {
            self.info = Some(info);
        }
    }

    /// What it is, and the bytes of the range, if they are here or there are none.
    pub(super) fn whole(&mut self, range: &Range<u64>) -> Option<(Info, Vec<u8>)> {
        let info = self.info.clone()?;
        let bytes = if within(range, &info) == 0 { Some(Vec::new()) } else { self.bytes.take() };
        Some((info, bytes?))
    }

    /// The next device to ask for the bytes.
    pub(super) fn next(&mut self) -> Option<u32> {
        self.sources.pop_front()
    }

    /// What a device has sent when it was asked; None if it isn't the object, nor a newer one.
    pub(super) fn check(&self, found: Found, bytes: Vec<u8>, range: &Range<u64>) -> Option<(Info, Vec<u8>)> {
        let known = self.info.as_ref()?;
        let Found { info, body_xxh3 } = found;
        let is_it = info.timestamp >= known.timestamp
            && bytes.len() as u64 == within(range, &info)
            && body_xxh3 == Some(swiftlet_hash::xxh3_64(&bytes));
        let info = if order(&info) < order(known) { known.clone() } else { info };
        is_it.then_some((info, bytes))
    }
}
