//! What guests' requests and their answers have before what members' have.

use crate::codec::{Malformed, Reader, Writer};

/// Encode the header of a guest's request: the signed grant, the object's name, and the header that a member would send.
///
/// # Errors
/// A text over its limit.
pub fn encode(grant: &[u8], object: &[u8], header: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut out = Writer::default();
    out.text(grant);
    out.text(object);
    out.raw(header);
    out.finish()
}

/// What `encode` was given.
pub(crate) struct Parts<'a> {
    pub(crate) grant: Vec<u8>,
    pub(crate) object: Vec<u8>,
    pub(crate) header: &'a [u8],
}

/// The inverse of `encode`.
pub(crate) fn decode(header: &[u8]) -> Result<Parts<'_>, Malformed> {
    let mut from = Reader(header);
    let (grant, object) = (from.text()?, from.text()?);
    Ok(Parts { grant, object, header: from.0 })
}

/// What a guest is told with every answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The version of the ring of the object's policy; 0 if it is not known.
    pub ring: u64,
    /// The server's clock, in milliseconds since 1970.
    pub now_ms: u64,
}

impl Told {
    pub(crate) fn encode(&self, header: &[u8]) -> Vec<u8> {
        let mut out = Writer::default();
        out.u64(self.ring);
        out.u64(self.now_ms);
        out.raw(header);
        out.into_bytes()
    }

    /// Take it off the header of an answer; also returns what a member would be sent.
    ///
    /// # Errors
    /// Something is missing.
    pub fn decode(header: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let mut from = Reader(header);
        let told = Self { ring: from.u64()?, now_ms: from.u64()? };
        Ok((told, from.0))
    }
}
