//! A GET: where its bytes are sent from, and its header.
//!
//! On a connection that lends, small objects are read into the lent memory; otherwise, or when half of it is in use,
//! into memory that the request's permit covers. Large ones are handled by [`download`].
//!
//! Fault model: that of the store. Small objects are checked as a whole before anything is sent.

use swiftlet_store::model::{Info, Key};
use swiftlet_store::{AtOnce, Got, MAX_AGGREGATE, Object, Store};
use swiftlet_transport::{Body, Buffer, Chunk, Pool};

use crate::device::Permit;
use crate::download;
use crate::message::{Found, ToRead};
use crate::parts;
use crate::plain::is_plain;
use crate::reply::Reply;
use crate::status::{Refusal, Status};

/// Header and body of an answer.
pub(crate) type Answered = Result<(Vec<u8>, Body), Refusal>;

/// xxh3-64 of nothing.
pub(crate) const EMPTY_XXH3: u64 = 0x2d06_8005_38d3_94c2;

/// Bytes that stay while they are sent, with the request's permit.
pub(crate) struct Held<T> {
    bytes: T,
    range: std::ops::Range<usize>,
    _permit: Permit,
}

impl Held<Vec<u8>> {
    /// All of them.
    pub(crate) fn new(bytes: Vec<u8>, permit: Permit) -> Self {
        Self { range: 0..bytes.len(), bytes, _permit: permit }
    }
}

impl AsRef<[u8]> for Held<Vec<u8>> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

impl AsRef<[u8]> for Held<Object> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes.bytes().unwrap_or_default()[self.range.clone()]
    }
}

/// The memory from which this answer may be lent.
fn lends(reply: &Reply) -> Option<&Pool> {
    // A guest sees its memory at once: what it may not be shown must not be read into it.
    reply.lends().filter(|_| !reply.is_guests())
}

/// Bytes of an object: small ones are checked as a whole before anything is sent, large ones piece by piece.
pub(crate) fn read(store: &Store, key: &Key, wanted: ToRead, permit: Permit, reply: &Reply) -> Answered {
    let object = match lends(reply) {
        None => store.get(key)?,
        Some(pool) => match store.get_into(key, |bytes| pool.spare(bytes))? {
            Got::Object(object) => object,
            Got::Pieces(info, pieces) => return lent(info, pieces.into_iter().map(whole).collect(), wanted),
        },
    };
    sent(object, wanted, permit, reply)
}

/// A small object that is in memory, in the lent memory if it can be; None if it has to be `read`.
pub(crate) fn at_once(store: &Store, key: &Key, reply: &Reply) -> Option<AtOnce<Buffer>> {
    store.get_at_once(key, |bytes| lends(reply)?.spare(bytes))
}

/// Refuse to show a guest what only a proxy can: it does not know what a manifest or a link means.
pub(crate) fn may_be_shown(info: &Info, reply: &Reply) -> Result<(), Refusal> {
    if reply.is_guests() && !is_plain(info) {
        return Err(Refusal::new(Status::NotPlain, "this object has to be read through a proxy"));
    }
    Ok(())
}

/// All of a buffer's bytes.
pub(crate) fn whole(buffer: Buffer) -> Chunk {
    let bytes = buffer.len();
    buffer.freeze(bytes)
}

/// The wanted bytes of an object that is in the lent memory, which is limited by the pool.
pub(crate) fn lent(info: Info, pieces: Vec<Chunk>, wanted: ToRead) -> Answered {
    let (start, stop) = wanted.of(info.size);
    let parts = parts::within(pieces, &(start..stop));
    let sum = if stop - start == info.size { info.xxh3 } else { parts::xxh3_of(&parts) };
    Ok((Found { info, body_xxh3: Some(sum) }.encode()?, parts.into()))
}

/// The wanted bytes of an object that is checked as a whole if it is small, else piece by piece.
pub(crate) fn sent(object: Object, wanted: ToRead, mut permit: Permit, reply: &Reply) -> Answered {
    let info = object.info().clone();
    may_be_shown(&info, reply)?;
    let (start, stop) = wanted.of(info.size);
    let whole = stop - start == info.size;
    if start == stop {
        return Ok((Found { info, body_xxh3: Some(EMPTY_XXH3) }.encode()?, Body::Empty));
    }
    if info.size > MAX_AGGREGATE {
        let body_xxh3 = whole.then_some(info.xxh3);
        let header = Found { info, body_xxh3 }.encode()?;
        return Ok((header, download::body(object, start, stop, permit, reply)?));
    }
    permit.hold(info.size as usize)?;
    let range = start as usize..stop as usize;
    let sum_of = |bytes: &[u8]| if whole { info.xxh3 } else { swiftlet_hash::xxh3_64(bytes) };
    let (body_xxh3, chunk) = if object.bytes().is_some() {
        let held = Held { bytes: object, range, _permit: permit };
        (sum_of(held.as_ref()), Chunk::from_owner(Box::new(held)))
    } else {
        let bytes = object.read(start, stop - start)?;
        (sum_of(&bytes), Chunk::from_owner(Box::new(Held::new(bytes, permit))))
    };
    Ok((Found { info, body_xxh3: Some(body_xxh3) }.encode()?, Body::Chunk(chunk)))
}
