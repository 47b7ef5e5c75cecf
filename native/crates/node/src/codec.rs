//! Integers and texts of headers, byte by byte: big-endian, texts with a length before them.
//!
//! Fault model: a peer may send any bytes. Anything cut off, too long or left over is [`Malformed`].

use swiftlet_store::model::Pairs;

/// The bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// Appends fields. A field over its limit invalidates the whole message.
#[derive(Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    failed: bool,
}

impl Writer {
    pub(crate) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn text(&mut self, text: &[u8]) {
        match u16::try_from(text.len()) {
            Ok(len) => {
                self.u16(len);
                self.raw(text);
            }
            Err(_) => self.failed = true,
        }
    }

    pub(crate) fn pairs(&mut self, pairs: &Pairs) {
        match u16::try_from(pairs.len()) {
            Ok(count) => self.u16(count),
            Err(_) => self.failed = true,
        }
        for (name, value) in pairs {
            self.text(name);
            self.text(value);
        }
    }

    /// The bytes of a message in which no field can be over a limit.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        debug_assert!(!self.failed);
        self.bytes
    }

    pub(crate) fn finish(self) -> Result<Vec<u8>, Malformed> {
        if self.failed { Err(Malformed("a text or list over its limit")) } else { Ok(self.bytes) }
    }
}

/// Takes fields off the front.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn raw(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(Malformed("cut off"))?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut out = [0; N];
        out.copy_from_slice(self.raw(N)?);
        Ok(out)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn digest(&mut self) -> Result<[u8; 16], Malformed> {
        self.array()
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a flag that is neither 0 nor 1")),
        }
    }

    pub(crate) fn text(&mut self) -> Result<Vec<u8>, Malformed> {
        let len = self.u16()?;
        Ok(self.raw(usize::from(len))?.to_vec())
    }

    /// A text where it is.
    pub(crate) fn slice(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.u16()?;
        self.raw(usize::from(len))
    }

    pub(crate) fn pairs(&mut self) -> Result<Pairs, Malformed> {
        let count = usize::from(self.u16()?);
        // A pair has at least 4 bytes: nothing is set aside for what can't be there.
        let mut pairs = Vec::with_capacity(count.min(self.0.len() / 4));
        for _ in 0..count {
            pairs.push((self.text()?, self.text()?));
        }
        Ok(pairs)
    }

    /// The number of items that follow, each with so many bytes.
    pub(crate) fn count(&mut self, each: usize) -> Result<usize, Malformed> {
        let count = self.u32()? as usize;
        if count > self.0.len() / each { Err(Malformed("cut off")) } else { Ok(count) }
    }

    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("bytes behind the end")) }
    }
}
