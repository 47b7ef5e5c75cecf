//! Frames: they separate one message from the next, and prove that none is damaged, missing or repeated.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::limits::{DATA_BYTES, HANDSHAKE_BYTES, HEAD_BYTES, INLINE_BYTES, META_BYTES};
use crate::violation::{Violation, require};

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "docs/transport.md has a table of them")]
pub enum Kind {
    Hello = 1,
    Welcome = 2,
    Proof = 3,
    Refuse = 4,
    Request = 5,
    Reply = 6,
    Offer = 7,
    Grant = 8,
    Data = 9,
    Done = 10,
    End = 11,
    Cancel = 12,
    Ping = 13,
    Pong = 14,
    Bye = 15,
    Region = 16,
    Tried = 17,
}

impl Kind {
    /// All kinds, by number.
    pub const ALL: [Kind; 17] = [
        Kind::Hello,
        Kind::Welcome,
        Kind::Proof,
        Kind::Refuse,
        Kind::Request,
        Kind::Reply,
        Kind::Offer,
        Kind::Grant,
        Kind::Data,
        Kind::Done,
        Kind::End,
        Kind::Cancel,
        Kind::Ping,
        Kind::Pong,
        Kind::Bye,
        Kind::Region,
        Kind::Tried,
    ];

    fn of(number: u8) -> Result<Kind, Violation> {
        let at = usize::from(number).wrapping_sub(1);
        Kind::ALL.get(at).copied().ok_or(Violation("a frame of unknown kind"))
    }

    /// Whether frames of this kind belong to a request rather than to the connection.
    fn of_stream(self) -> bool {
        matches!(
            self,
            Kind::Request
                | Kind::Reply
                | Kind::Offer
                | Kind::Grant
                | Kind::Data
                | Kind::Done
                | Kind::End
                | Kind::Cancel
        )
    }

    /// The largest number of bytes that may follow the meta part.
    fn body_limit(self) -> usize {
        match self {
            Kind::Request | Kind::Reply => INLINE_BYTES,
            Kind::Data => DATA_BYTES,
            _ => 0,
        }
    }
}

/// The body ends with this frame.
pub const END: u8 = 1;
/// The offered bytes are in the sender's region.
pub const LENT: u8 = 2;
/// It is sent before the chunk was granted, and dropped where there is no memory for that.
pub const EARLY: u8 = 4;
/// What was sent early of what is granted now was dropped: it has to be sent once more.
pub const AGAIN: u8 = 8;

/// A frame without its meta part and body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The kind of the frame.
    pub kind: Kind,
    /// [`END`], [`LENT`], [`EARLY`], [`AGAIN`].
    pub flags: u8,
    /// Bytes of the meta part.
    pub meta_bytes: usize,
    /// Bytes of the body part.
    pub body_bytes: usize,
    /// The request, 0 for the connection.
    pub stream: u64,
}

impl Head {
    /// Whether a flag is set.
    #[must_use]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Numbers the frames of one direction and adds their checks.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    session: u64,
    sent: u64,
}

impl Encoder {
    /// Let frames from now on belong to this session. The count continues.
    pub fn begin_session(&mut self, session: u64) {
        self.session = session;
    }

    /// Append head and meta part to `to`; the caller sends `body_bytes` bytes of body right after them.
    pub fn encode(&mut self, to: &mut Vec<u8>, kind: Kind, flags: u8, stream: u64, meta: &[&[u8]], body_bytes: usize) {
        let start = to.len();
        let meta_bytes: usize = meta.iter().map(|part| part.len()).sum();
        debug_assert!(meta_bytes <= META_BYTES && body_bytes <= kind.body_limit());
        to.reserve(HEAD_BYTES + meta_bytes);
        to.extend_from_slice(&[0; 8]);
        to.extend_from_slice(&[kind as u8, flags, 0, 0]);
        to.extend_from_slice(&(meta_bytes as u32).to_be_bytes());
        to.extend_from_slice(&(body_bytes as u32).to_be_bytes());
        to.extend_from_slice(&stream.to_be_bytes());
        for part in meta {
            to.extend_from_slice(part);
        }
        let check = xxh3_64_with_seed(&to[start + 8..], self.session ^ self.sent);
        to[start..start + 8].copy_from_slice(&check.to_be_bytes());
        self.sent += 1;
    }
}

/// Finds the frames of one direction in the received bytes.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    session: u64,
    received: u64,
    open: bool,
}

/// What [`Decoder::next`] finds at the beginning of the bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// Head and meta part are not complete: at least this many bytes are needed.
    Need(usize),
    /// A frame, and its meta part. It took `HEAD_BYTES` and the meta part's bytes; its body follows them.
    Frame(Head, &'a [u8]),
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut taken = [0; N];
    taken.copy_from_slice(&bytes[at..at + N]);
    taken
}

impl Decoder {
    /// Let frames from now on belong to this session, with the sizes that an authenticated peer may use.
    pub fn begin_session(&mut self, session: u64) {
        self.session = session;
        self.open = true;
    }

    /// Look at the beginning of `bytes`. Nothing is allocated; limits are checked before more bytes are awaited.
    ///
    /// # Errors
    /// A violation; the connection can't go on, since nobody knows where the next frame begins.
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Found<'a>, Violation> {
        if bytes.len() < HEAD_BYTES {
            return Ok(Found::Need(HEAD_BYTES));
        }
        let kind = Kind::of(bytes[8])?;
        let head = Head {
            kind,
            flags: bytes[9],
            meta_bytes: u32::from_be_bytes(number(bytes, 12)) as usize,
            body_bytes: u32::from_be_bytes(number(bytes, 16)) as usize,
            stream: u64::from_be_bytes(number(bytes, 20)),
        };
        self.admit(&head, &bytes[10..12])?;
        let end = HEAD_BYTES + head.meta_bytes;
        if bytes.len() < end {
            return Ok(Found::Need(end));
        }
        let check = xxh3_64_with_seed(&bytes[8..end], self.session ^ self.received);
        require(check.to_be_bytes() == bytes[..8], "a frame whose checksum does not match")?;
        self.received += 1;
        Ok(Found::Frame(head, &bytes[HEAD_BYTES..end]))
    }

    fn admit(&self, head: &Head, reserved: &[u8]) -> Result<(), Violation> {
        let meta_limit = if self.open { META_BYTES } else { HANDSHAKE_BYTES };
        require(head.meta_bytes <= meta_limit, "a meta part over the limit")?;
        require(head.body_bytes <= head.kind.body_limit(), "a body part over the limit")?;
        require(reserved == [0, 0], "a head whose reserved bytes are not 0")?;
        let allowed = match head.kind {
            Kind::Request | Kind::Reply => END,
            Kind::Offer => LENT,
            Kind::Data | Kind::End => EARLY,
            Kind::Grant => AGAIN,
            _ => 0,
        };
        require(head.flags & !allowed == 0, "a flag that frames of its kind do not have")?;
        require(
            head.kind.of_stream() == (head.stream != 0),
            "a stream number where none is allowed, or no stream number where one is needed",
        )?;
        let handshake = matches!(head.kind, Kind::Hello | Kind::Welcome | Kind::Proof | Kind::Refuse);
        require(handshake != self.open || head.kind == Kind::Refuse, "a frame at the wrong time")?;
        require(head.body_bytes == 0 || head.kind == Kind::Data || head.has(END), "a body inside an open request")
    }
}
