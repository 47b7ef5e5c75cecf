//! Rows as they travel and as the journal has them: one after the other, integers big-endian, texts with a length
//! (u16) before them.
//!
//! Fault model: a peer may send any bytes. They are checked once, before anything is done with them, by the rules that
//! Python has for rows (`swiftlet.transport.listing_wire`): what is taken here can be stored in a database. Bytes of the
//! journal have a checksum, and go through the same checks.

use crate::error::Refused;

/// The largest number of rows in one message.
pub const MAX_BATCH_ROWS: usize = 1000;
/// The largest number of bytes of the rows in one message.
pub const MAX_BATCH_BYTES: usize = 1_000_000;
/// The highest size of an object in a row.
const MAX_SIZE: u64 = 1 << 53;
/// The highest timestamp: the last moment of a day in the year 2286.
const MAX_TIMESTAMP: u64 = ((10_000_000_000 * 100_000) << 14) - 1;

/// An object's row without POSTs, or the marker of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// The object's name in its container.
    pub name: &'a str,
    /// When it was written or deleted.
    pub timestamp: u64,
    /// Bytes of the object.
    pub size: u64,
    /// Its ETag.
    pub etag: &'a str,
    /// Its content type.
    pub content_type: &'a str,
    /// Whether the row is a marker.
    pub deleted: bool,
}

impl<'a> Row<'a> {
    /// Append the row's bytes.
    ///
    /// # Errors
    /// `Malformed`: a text is longer than its length can say. Nothing is appended then.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Refused> {
        let texts = [self.name, self.etag, self.content_type];
        if texts.iter().any(|text| text.len() > usize::from(u16::MAX)) {
            return Err(Refused::Malformed("a text is over its limit"));
        }
        let text = |out: &mut Vec<u8>, text: &str| {
            out.extend_from_slice(&(text.len() as u16).to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        };
        text(out, self.name);
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&self.size.to_be_bytes());
        text(out, self.etag);
        text(out, self.content_type);
        out.push(u8::from(self.deleted));
        Ok(())
    }

    /// The row in the form in which databases have it: a marker has nothing but its name and time.
    #[must_use]
    pub fn plain(self) -> Self {
        if self.deleted { Self { size: 0, etag: "", content_type: "", ..self } } else { self }
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, Refused> {
        let name = from.text()?;
        let (timestamp, size) = (from.u64()?, from.u64()?);
        let (etag, content_type) = (from.text()?, from.text()?);
        let deleted = match from.array::<1>()? {
            [0] => false,
            [1] => true,
            _ => return Err(Refused::Malformed("a flag that is neither 0 nor 1")),
        };
        if timestamp > MAX_TIMESTAMP || size > MAX_SIZE {
            return Err(Refused::Malformed("a timestamp or size is higher than any can be"));
        }
        if name.is_empty() || (name.contains('\0') && !name.starts_with('\0')) {
            return Err(Refused::InvalidName("a name is empty or holds a NUL without beginning with one"));
        }
        Ok(Self { name, timestamp, size, etag, content_type, deleted })
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn raw(&mut self, len: usize) -> Result<&'a [u8], Refused> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(Refused::Malformed("a row is cut off"))?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Refused> {
        let mut out = [0; N];
        out.copy_from_slice(self.raw(N)?);
        Ok(out)
    }

    fn u64(&mut self) -> Result<u64, Refused> {
        self.array().map(u64::from_be_bytes)
    }

    fn text(&mut self) -> Result<&'a str, Refused> {
        let len = u16::from_be_bytes(self.array()?);
        std::str::from_utf8(self.raw(usize::from(len))?).map_err(|_| Refused::InvalidName("a text is not UTF-8"))
    }
}

/// The rows in some bytes; it ends behind the first one that is malformed.
pub struct Rows<'a>(Reader<'a>);

impl<'a> Rows<'a> {
    /// Of these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(Reader(bytes))
    }
}

impl<'a> Iterator for Rows<'a> {
    type Item = Result<Row<'a>, Refused>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.0.is_empty() {
            return None;
        }
        let row = Row::take(&mut self.0);
        if row.is_err() {
            self.0 = Reader(&[]);
        }
        Some(row)
    }
}

/// How many rows a message has.
///
/// # Errors
/// `Malformed` or `InvalidName`: one of them can't be stored, or there are none or too many.
pub fn count_rows(bytes: &[u8]) -> Result<usize, Refused> {
    if bytes.len() > MAX_BATCH_BYTES {
        return Err(Refused::Malformed("too many bytes of rows in one message"));
    }
    let mut count = 0;
    for row in Rows::new(bytes) {
        row?;
        count += 1;
        if count > MAX_BATCH_ROWS {
            return Err(Refused::Malformed("too many rows in one message"));
        }
    }
    if count == 0 { Err(Refused::Malformed("a message without rows")) } else { Ok(count) }
}
