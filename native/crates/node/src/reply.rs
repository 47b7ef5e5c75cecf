//! The right to answer a request, and its counter.

use std::sync::Arc;

use swiftlet_transport::{Answer, Body, Pool, Responder, Waker};

use crate::device::Device;
use crate::guests::now_ms;
use crate::message::guests::Told;
use crate::status::{Refusal, Status};

/// Used once; when it is dropped, the handler counts as failed, and nothing is counted.
pub(crate) struct Reply {
    responder: Responder,
    method: u16,
    device: Option<Arc<Device>>,
    /// The version of the ring that a guest is told with the answer.
    guest: Option<u64>,
}

impl Reply {
    pub(crate) fn new(responder: Responder, method: u16) -> Self {
        Self { responder, method, device: None, guest: None }
    }

    /// Tell a guest this version of its policy's ring, and this server's clock, with the answer.
    pub(crate) fn tell_guest(&mut self, ring: u64) {
        self.guest = Some(ring);
    }

    /// Whether a guest is answered.
    pub(crate) fn is_guests(&self) -> bool {
        self.guest.is_some()
    }

    /// The header as the client expects it.
    fn header(&self, header: Vec<u8>) -> Vec<u8> {
        let Some(ring) = self.guest else { return header };
        Told { ring, now_ms: now_ms() }.encode(&header)
    }

    /// Count it for this device from now on.
    pub(crate) fn of(&mut self, device: &Arc<Device>) {
        self.device = Some(Arc::clone(device));
    }

    /// Whether nobody waits for it any more.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.responder.is_cancelled()
    }

    /// The memory from which the answer is lent, if it is.
    pub(crate) fn lends(&self) -> Option<&Pool> {
        self.responder.lends()
    }

    pub(crate) fn waker(&self) -> Waker {
        self.responder.waker()
    }

    /// Answer with success.
    pub(crate) fn answer(self, header: Vec<u8>, body: Body) {
        if let Some(device) = &self.device {
            device.count(self.method, Status::Ok, body.bytes().unwrap_or(0));
        }
        let header = self.header(header);
        self.responder.answer(Answer { status: Status::Ok as u16, header, body, footer: Vec::new() });
    }

    /// Answer with a refusal.
    pub(crate) fn refuse(self, refusal: &Refusal) {
        if let Some(device) = &self.device {
            device.count(self.method, refusal.status, 0);
        }
        let (status, header) = (refusal.status as u16, self.header(refusal.encode()));
        self.responder.answer(Answer { status, header, ..Answer::default() });
    }
}
