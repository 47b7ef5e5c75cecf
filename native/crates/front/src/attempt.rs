//! One question of a read, to one device.

use std::sync::Arc;
use std::time::Instant;

use swiftlet_transport::Ticket;

use crate::reading::Weighed;
use crate::routes::Device;

/// One device that was asked.
pub(crate) struct Attempt {
    /// In the place of a replica in the token of its events.
    pub(crate) id: u8,
    pub(crate) device: Arc<Device>,
    pub(crate) ticket: Ticket,
    pub(crate) begun: Instant,
    /// The answer of the device whose bytes are still coming.
    pub(crate) coming: Option<Box<Weighed>>,
}
