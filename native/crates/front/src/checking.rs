//! Whether there is an object already, for a PUT with `If-None-Match: *`, or one that expires, for any write where there
//! are such: what the devices say that may have one.
//!
//! As in Python (`swiftlet.placement.copies`) the newest version on any of these devices counts, unless any of them has
//! a newer deletion; and the answer is known before the write begins, not in one step with it: of two clients both may
//! find nothing. Here all devices have to answer; where one does not, it is for Python to say what the others know.
//!
//! Fault model: a device may send anything, refuse, be silent, or be lost; then the request is handed over.

use std::time::Instant;

use swiftlet_node::message::Found;
use swiftlet_node::{Refusal, Status};
use swiftlet_store::model::Info;
use swiftlet_transport::What;

use crate::answer;

/// What is to be known of an object before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sought {
    /// Whether there is one.
    Object,
    /// Whether there is one that expires: then the expirer's task for it is removed after the write, which only Python
    /// can.
    Expiring,
}

/// A task of the expirer: the version that it is for, and when that goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queued {
    pub(crate) timestamp: u64,
    pub(crate) delete_at: u64,
}

/// What a write brings along before which devices are asked.
pub(crate) struct Checked {
    /// The request's id.
    pub(crate) id: String,
    /// When its devices were asked.
    pub(crate) begun: Instant,
    /// Of its body, if its ETag is one.
    pub(crate) md5: Option<[u8; 16]>,
    /// Of an object that expires, once the expirer's task for it is durable.
    pub(crate) queued: Option<Queued>,
}

/// What is known of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Devices have not answered.
    Wait,
    /// There is none of the kind that was sought: the write may begin.
    Absent,
    /// There is one that everybody sees, and none was to be there.
    Exists,
    /// Python has to say.
    Unknown,
}

/// What devices have answered.
#[derive(Debug)]
pub(crate) struct Known {
    sought: Sought,
    /// By device, whether its answer has not come.
    waiting: Vec<bool>,
    /// The newest version that was found.
    newest: Option<Box<Info>>,
    /// The time of the newest deletion.
    deleted: u64,
}

impl Known {
    /// Nothing of so many devices.
    pub(crate) fn new(devices: usize, sought: Sought) -> Self {
        Self { sought, waiting: vec![true; devices], newest: None, deleted: 0 }
    }

    /// Note what a device has answered.
    pub(crate) fn note(&mut self, device: usize, what: &What) -> Verdict {
        let Some(waiting) = self.waiting.get_mut(device) else { return Verdict::Wait };
        let (status, header) = match what {
            What::Sent(_) => return Verdict::Wait,
            What::Reply { status, header, whole: true, .. } => (*status, header),
            _ => return Verdict::Unknown,
        };
        *waiting = false;
        if self.add(status, header).is_none() {
            return Verdict::Unknown;
        }
        if self.waiting.contains(&true) {
            return Verdict::Wait;
        }
        let Some(info) = self.newest.as_ref().filter(|info| info.timestamp > self.deleted) else {
            return Verdict::Absent;
        };
        match self.sought {
            Sought::Expiring if info.delete_at == 0 => Verdict::Absent,
            // Others may not be seen by everybody any more, or lead to another object.
            Sought::Object if answer::is_plain(info) => Verdict::Exists,
            Sought::Expiring | Sought::Object => Verdict::Unknown,
        }
    }

    /// Add what a device has; None: it does not say.
    fn add(&mut self, status: u16, header: &[u8]) -> Option<()> {
        if status == Status::Ok as u16 {
            let Found { info, .. } = Found::decode(header).ok()?;
            let age = |info: &Info| (info.timestamp, info.meta_timestamp);
            if self.newest.as_ref().is_none_or(|known| age(known) < age(&info)) {
                self.newest = Some(Box::new(info));
            }
            return Some(());
        }
        let refusal = Refusal::decode(status, header);
        (refusal.status == Status::NotFound).then(|| self.deleted = self.deleted.max(refusal.timestamp))
    }
}

#[cfg(test)]
mod tests {
    use swiftlet_transport::Error;

    use super::*;

    fn reply(status: Status, header: Vec<u8>) -> What {
        What::Reply { status: status as u16, header, body_bytes: None, body: None, whole: true }
    }

    fn object(timestamp: u64, meta_timestamp: u64, delete_at: u64) -> What {
        let info = Info {
            name: b"/a/c/o".to_vec(),
            timestamp,
            size: 3,
            etag: b"abc".to_vec(),
            xxh3: 0,
            content_type: b"text/plain".to_vec(),
            metadata: Vec::new(),
            sysmeta: Vec::new(),
            meta_timestamp,
            content_type_timestamp: 0,
            delete_at,
        };
        reply(Status::Ok, Found { info, body_xxh3: None }.encode().expect("within limits"))
    }

    fn absent(deleted: u64) -> What {
        reply(Status::NotFound, Refusal { status: Status::NotFound, timestamp: deleted, text: String::new() }.encode())
    }

    #[test]
    fn the_newest_of_all_counts() {
        let plain = |timestamp| object(timestamp, 0, 0);
        for (answers, verdict) in [
            ([absent(0), absent(0), absent(0)], Verdict::Absent),
            ([absent(0), plain(5), absent(0)], Verdict::Exists),
            ([plain(5), absent(5), absent(0)], Verdict::Absent),
            ([plain(5), absent(6), plain(4)], Verdict::Absent),
            ([plain(5), absent(4), absent(3)], Verdict::Exists),
            ([absent(6), plain(5), plain(7)], Verdict::Exists),
            ([object(5, 6, 9), plain(5), plain(5)], Verdict::Unknown),
            ([object(5, 0, 9), plain(5), object(5, 7, 0)], Verdict::Exists),
            ([object(5, 0, 9), absent(6), absent(0)], Verdict::Absent),
        ] {
            for first in 0..3 {
                let mut known = Known::new(3, Sought::Object);
                for turn in 0..3 {
                    let device = (first + turn) % 3;
                    assert_eq!(known.note(device, &What::Sent(1)), Verdict::Wait);
                    let expected = if turn == 2 { verdict } else { Verdict::Wait };
                    assert_eq!(known.note(device, &answers[device]), expected, "{answers:?} from {first}");
                }
            }
        }
    }

    #[test]
    fn of_what_is_replaced_only_the_newest_version_may_not_expire() {
        let link = {
            let What::Reply { header, .. } = object(5, 0, 0) else { panic!("a reply") };
            let mut found = Found::decode(&header).expect("it was encoded");
            found.info.sysmeta = vec![(b"Symlink-Target".to_vec(), b"c/o".to_vec())];
            reply(Status::Ok, found.encode().expect("within limits"))
        };
        for (answers, verdict) in [
            ([absent(0), absent(0)], Verdict::Absent),
            ([object(5, 0, 0), absent(0)], Verdict::Absent),
            ([link, absent(0)], Verdict::Absent),
            ([object(5, 0, 9), absent(0)], Verdict::Unknown),
            ([object(5, 0, 9), object(6, 0, 0)], Verdict::Absent),
            ([object(5, 0, 0), object(5, 6, 9)], Verdict::Unknown),
            ([object(5, 0, 9), object(5, 6, 0)], Verdict::Absent),
            ([object(5, 0, 9), absent(5)], Verdict::Absent),
            ([object(5, 0, 9), absent(4)], Verdict::Unknown),
        ] {
            for first in 0..2 {
                let mut known = Known::new(2, Sought::Expiring);
                assert_eq!(known.note(first, &answers[first]), Verdict::Wait);
                assert_eq!(known.note(1 - first, &answers[1 - first]), verdict, "{answers:?} from {first}");
            }
        }
    }

    #[test]
    fn a_device_that_does_not_say_leaves_it_to_python() {
        let superseded = Refusal { status: Status::Superseded, timestamp: 9, text: String::new() }.encode();
        let each = || {
            [
                What::Failed(Error::Deadline),
                What::Failed(Error::Unreachable(String::new())),
                What::End(Vec::new()),
                reply(Status::Ok, Vec::new()),
                reply(Status::NotFound, Vec::new()),
                reply(Status::NodeBusy, Vec::new()),
                reply(Status::Superseded, superseded.clone()),
                What::Reply { status: 0, header: Vec::new(), body_bytes: None, body: None, whole: false },
            ]
        };
        let both = [Sought::Object, Sought::Expiring].map(|sought| each().map(|what| (sought, what)));
        for (sought, what) in both.into_iter().flatten() {
            let mut known = Known::new(2, sought);
            assert_eq!(known.note(0, &absent(0)), Verdict::Wait);
            assert_eq!(known.note(1, &what), Verdict::Unknown, "{what:?}");
            assert_eq!(known.note(7, &what), Verdict::Wait, "nobody asked it");
        }
    }
}
