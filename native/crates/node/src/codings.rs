//! How the objects of storage policies are coded, as a server knows it: what arrives is compared with it.
//!
//! A fragment with other numbers could never be put together with those of other places, and a whole object would not
//! be looked for in a policy with erasure coding. Who sends such a thing has other settings than the server. Of a policy
//! that the server does not know yet everything is taken.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use swiftlet_erasure::Scheme;
use swiftlet_fragments::block::Block;

use crate::copies;
use crate::message::{Request, fragments};
use crate::status::{Refusal, Status};

/// How a policy codes its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coding {
    /// Fragments with data, and with parity.
    pub scheme: Scheme,
    /// Bytes of a cell, but for the last ones.
    pub cell_bytes: usize,
}

impl Coding {
    /// Whether a fragment is coded in this way.
    pub(crate) fn check(&self, block: &Block) -> Result<(), Refusal> {
        let scheme = block.geometry.scheme();
        if scheme == self.scheme && block.cell_bytes == self.cell_bytes {
            return Ok(());
        }
        Err(self.differs(&format!("{}+{} in cells of {} bytes", scheme.data(), scheme.parity(), block.cell_bytes)))
    }

    fn differs(&self, found: &str) -> Refusal {
        let (data, parity) = (self.scheme.data(), self.scheme.parity());
        let wanted = format!("{data}+{parity} in cells of {} bytes", self.cell_bytes);
        conflict(format!(
            "the fragment is {found}, but the policy is {wanted} here: give all services the same `coding`"
        ))
    }
}

fn conflict(text: String) -> Refusal {
    Refusal { status: Status::Unavailable, timestamp: 0, text }
}

/// The codings of all policies that are known; none for those that keep whole objects.
#[derive(Debug, Default)]
pub(crate) struct Codings(RwLock<HashMap<u16, Option<Coding>>>);

impl Codings {
    /// Know these policies from now on, and no others.
    pub(crate) fn set(&self, all: HashMap<u16, Option<Coding>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = all;
    }

    /// The coding that the fragment of a request has to have, or by which its policy codes others, if that is known.
    pub(crate) fn check(&self, request: &Request) -> Result<Option<Coding>, Refusal> {
        let of = |policy: u16| self.0.read().unwrap_or_else(PoisonError::into_inner).get(&policy).copied();
        match request {
            Request::Fragment(fragments::Request::Keep { key, cell_bytes, .. }) => match of(key.policy) {
                Some(Some(coding)) if coding.cell_bytes != *cell_bytes as usize => {
                    Err(coding.differs(&format!("in cells of {cell_bytes} bytes")))
                }
                Some(None) => Err(conflict(
                    "a fragment for a policy that keeps whole objects here: give all services the same `coding`".into(),
                )),
                known => Ok(known.flatten()),
            },
            Request::Fragment(fragments::Request::Post { key, .. }) if of(key.policy) == Some(None) => Err(conflict(
                "metadata of a coded object for a policy that keeps whole objects here: give all services the same \
                 `coding`"
                    .into(),
            )),
            Request::Pack(request) if of(request.key().policy) == Some(None) => Err(conflict(
                "a pack for a policy that keeps whole objects here: give all services the same `coding`".into(),
            )),
            Request::Put { key, footer, .. } => match of(key.policy).flatten() {
                Some(coding) if copies::is_of_copies(key) => copies::check(footer.as_ref()).map(|()| Some(coding)),
                Some(_) => Err(conflict(
                    "a whole object for a policy with erasure coding: give all services the same `coding`".into(),
                )),
                None => Ok(None),
            },
            Request::Delete { key, .. } => Ok(of(key.policy).flatten()),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use swiftlet_erasure::Geometry;
    use swiftlet_fragments::Device;
    use swiftlet_store::model::{Key, PostMeta, PutMeta};

    const CELL: usize = 1024;

    fn scheme(data: usize, parity: usize) -> Scheme {
        Scheme::new(data, parity).unwrap_or_else(|error| panic!("{error}"))
    }

    fn codings() -> Codings {
        let codings = Codings::default();
        codings.set(HashMap::from([(1, None), (2, Some(Coding { scheme: scheme(4, 2), cell_bytes: CELL }))]));
        codings
    }

    fn key(policy: u16) -> Key {
        Key { policy, partition: 0, digest: [0; 16] }
    }

    fn keep(policy: u16, cell_bytes: u32) -> Request {
        let (key, meta) = (key(policy), PutMeta::default());
        Request::Fragment(fragments::Request::Keep { key, certain: false, cell_bytes, size: None, meta, row: 0 })
    }

    fn put(policy: u16) -> Request {
        Request::Put { key: key(policy), meta: PutMeta::default(), footer: None, row: 0 }
    }

    fn post(policy: u16) -> Request {
        Request::Fragment(fragments::Request::Post { key: key(policy), of: 1, meta: PostMeta::default(), row: 0 })
    }

    #[test]
    fn what_no_other_server_would_put_together_is_refused() {
        let codings = codings();
        let coding = codings.check(&keep(2, 1024)).unwrap_or_default().unwrap_or_else(|| panic!("it is known"));
        for wrong in [keep(2, 2048), keep(1, 1024), put(2), post(1)] {
            let refusal = codings.check(&wrong).err().unwrap_or_else(|| panic!("{wrong:?} is taken"));
            assert!(refusal.text.contains("the same `coding`"), "{}", refusal.text);
        }
        for (data, parity, cell, fits) in [(4, 2, CELL, true), (4, 3, CELL, false), (4, 2, 2 * CELL, false)] {
            let geometry = Geometry::new(scheme(data, parity), cell, 10).unwrap_or_else(|error| panic!("{error}"));
            let chosen: Vec<Device> = (0..7).map(|number| Device { number, incarnation: 1 }).collect();
            let block = Block {
                geometry,
                cell_bytes: cell,
                index: 0,
                generation: 1,
                object_xxh3: 0,
                chosen: Arc::from(chosen),
                totals: Arc::from(Vec::new()),
                cells: Vec::new(),
            };
            assert_eq!(coding.check(&block).is_ok(), fits, "{data}+{parity} in {cell}");
        }
    }

    #[test]
    fn what_is_coded_as_its_policy_and_what_is_of_unknown_policies_is_taken() {
        for right in [keep(2, 1024), put(1), post(2), keep(3, 2048), put(3), post(3)] {
            assert!(codings().check(&right).is_ok(), "{right:?}");
        }
    }
}
