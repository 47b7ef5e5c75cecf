//! Many requests to a device in one message, and their answers in one.
//!
//! Fault model: that of the codec. A count that is not that of the requests, and bytes behind the last one, make the
//! whole message malformed.

use super::{Malformed, Reader, Request, Writer};

/// The largest number of requests in one MANY.
pub const MAX_MANY: usize = 256;
/// The largest size in bytes of the requests in one MANY, with their bodies.
pub const MAX_MANY_BYTES: usize = 2 << 20;
/// The largest size in bytes of the answers to one MANY: of objects that find no room in it only the description is told.
pub const MAX_MANY_ANSWER_BYTES: usize = 4 << 20;

/// One of many requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct One<'a> {
    /// The object's name, of a guest; empty of a member.
    pub object: &'a [u8],
    /// The request's method.
    pub method: u16,
    /// What its header has after the device's name.
    pub fields: &'a [u8],
    /// Its body.
    pub body: &'a [u8],
}

/// The answer to one of many requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneAnswer<'a> {
    /// The outcome.
    pub status: u16,
    /// As in an answer to a member.
    pub header: &'a [u8],
    /// The bytes of an object.
    pub body: &'a [u8],
}

/// Append a request with its body.
///
/// # Errors
/// Something in it is over its limit.
pub fn push(out: &mut Vec<u8>, object: &[u8], request: &Request, body: &[u8]) -> Result<(), Malformed> {
    let mut one = Writer::default();
    one.text(object);
    one.u16(request.method());
    one.text(&request.fields()?);
    one.u32(u32::try_from(body.len()).map_err(|_| Malformed("a body over its limit"))?);
    out.extend_from_slice(&one.finish()?);
    out.extend_from_slice(body);
    Ok(())
}

/// The inverse for so many requests.
///
/// # Errors
/// These are not so many requests, or others are behind them.
pub fn requests(count: usize, raw: &[u8]) -> Result<Vec<One<'_>>, Malformed> {
    let mut from = Reader(raw);
    let mut all = Vec::with_capacity(count.min(MAX_MANY));
    for _ in 0..count {
        let (object, method, fields) = (from.slice()?, from.u16()?, from.slice()?);
        let length = from.u32()? as usize;
        all.push(One { object, method, fields, body: from.raw(length)? });
    }
    from.end()?;
    Ok(all)
}

/// Append an answer.
///
/// # Errors
/// Something in it is over its limit.
pub fn push_answer(out: &mut Vec<u8>, status: u16, header: &[u8], body: &[u8]) -> Result<(), Malformed> {
    let mut one = Writer::default();
    one.u16(status);
    one.text(header);
    one.u32(u32::try_from(body.len()).map_err(|_| Malformed("a body over its limit"))?);
    out.extend_from_slice(&one.finish()?);
    out.extend_from_slice(body);
    Ok(())
}

/// The inverse for so many answers.
///
/// # Errors
/// These are not so many answers, or others are behind them.
pub fn answers(count: usize, raw: &[u8]) -> Result<Vec<OneAnswer<'_>>, Malformed> {
    let mut from = Reader(raw);
    let mut all = Vec::with_capacity(count.min(MAX_MANY));
    for _ in 0..count {
        let (status, header) = (from.u16()?, from.slice()?);
        let length = from.u32()? as usize;
        all.push(OneAnswer { status, header, body: from.raw(length)? });
    }
    from.end()?;
    Ok(all)
}
