//! What the index holds of a POST, on top of an object or of the versions of a fragment.

use crate::model::Timestamp;
use crate::record::Place;

/// A POST on top of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Post {
    /// The POST's timestamp, newer than the object's.
    pub timestamp: Timestamp,
    /// 0 when it sets none.
    pub content_type_timestamp: Timestamp,
    /// Where its record is.
    pub place: Place,
    /// The record's size in units of `ALIGN`.
    pub units: u32,
    /// Seconds since 1970, 0 never.
    pub delete_at: u64,
}
