//! UPDATE and DURABLE: rows for a container's database, and the question whether they are durable.
//!
//! The rows are the body of UPDATE, each made by [`Row::encode`].

pub use swiftlet_updates::{MAX_BATCH_BYTES, MAX_BATCH_ROWS, Row, Taken};

use crate::codec::{Malformed, Reader, Writer};

/// The method that brings rows.
pub const UPDATE: u16 = 32;
/// The method that asks whether they are durable.
pub const DURABLE: u16 = 33;

fn take_text(from: &mut Reader<'_>) -> Result<String, Malformed> {
    String::from_utf8(from.text()?).map_err(|_| Malformed("a name that is no text"))
}

/// The header of UPDATE: where the rows belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The device's name.
    pub device: String,
    /// The partition of the container.
    pub partition: u32,
    /// Its account.
    pub account: String,
    /// Its name.
    pub container: String,
}

impl Update {
    /// The bytes.
    ///
    /// # Errors
    /// A name is over its limit.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        let mut out = Writer::default();
        out.text(self.device.as_bytes());
        out.u32(self.partition);
        out.text(self.account.as_bytes());
        out.text(self.container.as_bytes());
        out.finish()
    }

    /// The inverse.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(header: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(header);
        let (device, partition) = (take_text(&mut from)?, from.u32()?);
        let (account, container) = (take_text(&mut from)?, take_text(&mut from)?);
        from.end()?;
        Ok(Self { device, partition, account, container })
    }
}

/// The header of DURABLE: what a device has answered to an UPDATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskDurable {
    /// The device's name.
    pub device: String,
    /// What it has answered.
    pub taken: Taken,
}

impl AskDurable {
    /// The bytes.
    ///
    /// # Errors
    /// The name is over its limit.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        let mut out = Writer::default();
        out.text(self.device.as_bytes());
        put_taken(&mut out, self.taken);
        out.finish()
    }

    /// The inverse.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(header: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(header);
        let asked = Self { device: take_text(&mut from)?, taken: read_taken(&mut from)? };
        from.end()?;
        Ok(asked)
    }
}

fn put_taken(out: &mut Writer, taken: Taken) {
    out.u64(taken.incarnation);
    out.u64(taken.position);
}

fn read_taken(from: &mut Reader<'_>) -> Result<Taken, Malformed> {
    Ok(Taken { incarnation: from.u64()?, position: from.u64()? })
}

/// The header of the answer to UPDATE.
#[must_use]
pub fn encode_taken(taken: Taken) -> Vec<u8> {
    let mut out = Writer::default();
    put_taken(&mut out, taken);
    out.into_bytes()
}

/// The inverse.
///
/// # Errors
/// It is none.
pub fn decode_taken(header: &[u8]) -> Result<Taken, Malformed> {
    let mut from = Reader(header);
    let taken = read_taken(&mut from)?;
    from.end()?;
    Ok(taken)
}
