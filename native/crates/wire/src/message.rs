//! Meta parts: values to bytes and back. Every field is checked when it is decoded.

use crate::limits::{CARD_BYTES, CHUNK_BYTES, FOOTER_BYTES, HEADER_BYTES, TEXT_BYTES, TRACE_BYTES};
use crate::violation::{Violation, require};

/// Takes fields off the front of a meta part.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Violation> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Violation("a truncated meta part"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Violation> {
        let mut taken = [0; N];
        taken.copy_from_slice(self.bytes(N)?);
        Ok(taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Violation> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Violation> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Violation> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Violation> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Violation> {
        let length = self.u8()?;
        std::str::from_utf8(self.bytes(usize::from(length))?).map_err(|_| Violation("a text that is not UTF-8"))
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub(crate) fn end(self) -> Result<(), Violation> {
        require(self.0.is_empty(), "a meta part with bytes after its fields")
    }
}

/// Append a text, cut at the limit (between characters).
pub(crate) fn put_text(to: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    to.push(end as u8);
    to.extend_from_slice(&text.as_bytes()[..end]);
}

/// The size of a body that is not known beforehand.
pub const UNKNOWN_SIZE: u64 = u64::MAX;

/// The meta part of REQUEST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The method; its meaning belongs to the layer above.
    pub method: u16,
    /// Milliseconds from its arrival that the request may take, at least 1.
    pub deadline_ms: u32,
    /// Bytes of the body, or [`UNKNOWN_SIZE`].
    pub body_bytes: u64,
    /// The request's id through all hops.
    pub trace: &'a str,
    /// The header, which is opaque here.
    pub header: &'a [u8],
}

impl<'a> Request<'a> {
    /// Encode all but the header, which is sent unchanged after it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(15 + self.trace.len());
        to.extend_from_slice(&self.method.to_be_bytes());
        to.extend_from_slice(&self.deadline_ms.to_be_bytes());
        to.extend_from_slice(&self.body_bytes.to_be_bytes());
        put_text(&mut to, self.trace);
        to
    }

    /// # Errors
    /// Something is missing or over a limit.
    pub fn decode(meta: &'a [u8]) -> Result<Self, Violation> {
        let mut from = Fields(meta);
        let request = Request {
            method: from.u16()?,
            deadline_ms: from.u32()?,
            body_bytes: from.u64()?,
            trace: from.text()?,
            header: from.rest(),
        };
        require(request.deadline_ms > 0, "a request without a deadline")?;
        require(request.trace.len() <= TRACE_BYTES, "a trace id over the limit")?;
        require(request.header.len() <= HEADER_BYTES, "a header over the limit")?;
        Ok(request)
    }
}

/// The meta part of REPLY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The outcome; its meaning belongs to the layer above.
    pub status: u16,
    /// Bytes of the body, or [`UNKNOWN_SIZE`].
    pub body_bytes: u64,
    /// The header, which is opaque here.
    pub header: &'a [u8],
}

impl<'a> Reply<'a> {
    /// Encode all but the header.
    #[must_use]
    pub fn encode(&self) -> [u8; 10] {
        let mut to = [0; 10];
        to[..2].copy_from_slice(&self.status.to_be_bytes());
        to[2..].copy_from_slice(&self.body_bytes.to_be_bytes());
        to
    }

    /// # Errors
    /// Something is missing or over a limit.
    pub fn decode(meta: &'a [u8]) -> Result<Self, Violation> {
        let mut from = Fields(meta);
        let reply = Reply { status: from.u16()?, body_bytes: from.u64()?, header: from.rest() };
        require(reply.header.len() <= HEADER_BYTES, "a header over the limit")?;
        Ok(reply)
    }
}

/// The place of a lent chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The sender's region.
    pub region: u32,
    /// Offset in it.
    pub address: u64,
}

/// The meta part of OFFER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Where the chunk begins in the body.
    pub offset: u64,
    /// Bytes of it, 1 to [`CHUNK_BYTES`].
    pub length: u32,
    /// Its place, if it is lent.
    pub place: Option<Place>,
}

impl Offer {
    /// The meta part's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(24);
        to.extend_from_slice(&self.offset.to_be_bytes());
        to.extend_from_slice(&self.length.to_be_bytes());
        if let Some(place) = self.place {
            to.extend_from_slice(&place.region.to_be_bytes());
            to.extend_from_slice(&place.address.to_be_bytes());
        }
        to
    }

    /// Decode OFFER. `lent`: the frame has the flag.
    ///
    /// # Errors
    /// Something is missing or over a limit.
    pub fn decode(meta: &[u8], lent: bool) -> Result<Self, Violation> {
        let mut from = Fields(meta);
        let offset = from.u64()?;
        let length = from.u32()?;
        let place = if lent { Some(Place { region: from.u32()?, address: from.u64()? }) } else { None };
        from.end()?;
        require((1..=CHUNK_BYTES).contains(&(length as usize)), "an empty chunk, or one over the limit")?;
        require(offset.checked_add(u64::from(length)).is_some(), "a chunk that ends beyond the largest body")?;
        Ok(Offer { offset, length, place })
    }
}

/// The only number of GRANT, DATA, DONE, PING and PONG.
///
/// # Errors
/// It is missing, or something follows.
pub fn decode_number(meta: &[u8]) -> Result<u64, Violation> {
    let mut from = Fields(meta);
    let number = from.u64()?;
    from.end()?;
    Ok(number)
}

/// The footer, which END carries unchanged.
///
/// # Errors
/// It is over the limit.
pub fn decode_footer(meta: &[u8]) -> Result<&[u8], Violation> {
    require(meta.len() <= FOOTER_BYTES, "a footer over the limit")?;
    Ok(meta)
}

/// Why one side ends a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Reason {
    /// The caller no longer wants it.
    Cancelled = 1,
    /// The deadline is over.
    Deadline = 2,
    /// More requests than were agreed.
    Overloaded = 3,
    /// There was no memory for a body inside REQUEST or REPLY.
    NoMemory = 4,
    /// The handler dropped it without an answer, or could not continue.
    Failed = 5,
    /// The process is about to stop.
    GoingAway = 6,
}

impl Reason {
    /// A reason that a later version may have added counts as [`Reason::Failed`].
    fn of(number: u16) -> Reason {
        match number {
            1 => Reason::Cancelled,
            2 => Reason::Deadline,
            3 => Reason::Overloaded,
            4 => Reason::NoMemory,
            6 => Reason::GoingAway,
            _ => Reason::Failed,
        }
    }
}

/// The meta part of CANCEL.
#[must_use]
pub fn encode_cancel(reason: Reason, text: &str) -> Vec<u8> {
    let mut to = Vec::with_capacity(3 + text.len());
    to.extend_from_slice(&(reason as u16).to_be_bytes());
    put_text(&mut to, text);
    to
}

/// Reason and text of CANCEL.
///
/// # Errors
/// Something is missing or too much.
pub fn decode_cancel(meta: &[u8]) -> Result<(Reason, &str), Violation> {
    let mut from = Fields(meta);
    let reason = Reason::of(from.u16()?);
    let text = from.text()?;
    from.end()?;
    Ok((reason, text))
}

/// The meta part of REGION: its number and size, and a card if it is fetched from rather than mapped.
#[must_use]
pub fn encode_region(region: u32, bytes: u64, card: &[u8]) -> Vec<u8> {
    let mut to = Vec::with_capacity(12 + card.len());
    to.extend_from_slice(&region.to_be_bytes());
    to.extend_from_slice(&bytes.to_be_bytes());
    to.extend_from_slice(card);
    to
}

/// Number and size of a region, and its card.
///
/// # Errors
/// Something is missing, or the card is over the limit.
pub fn decode_region(meta: &[u8]) -> Result<(u32, u64, &[u8]), Violation> {
    let mut from = Fields(meta);
    let (region, bytes, card) = (from.u32()?, from.u64()?, from.rest());
    require(card.len() <= CARD_BYTES, "a region's card over the limit")?;
    Ok((region, bytes, card))
}

/// The meta part of TRIED: one of the peer's regions, and whether fetching from it works.
#[must_use]
pub fn encode_tried(region: u32, works: bool) -> Vec<u8> {
    [&region.to_be_bytes()[..], &[u8::from(works)]].concat()
}

/// Region and outcome of a trial.
///
/// # Errors
/// Something is missing, too much, or neither yes nor no.
pub fn decode_tried(meta: &[u8]) -> Result<(u32, bool), Violation> {
    let mut from = Fields(meta);
    let (region, works) = (from.u32()?, from.u8()?);
    from.end()?;
    require(works <= 1, "the outcome of a trial that is neither success nor failure")?;
    Ok((region, works == 1))
}
