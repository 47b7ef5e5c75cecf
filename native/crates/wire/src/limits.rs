//! The limits of everything that can grow. A test compares the table in `docs/transport.md` with them.

/// Bytes of a frame's head.
pub const HEAD_BYTES: usize = 28;
/// Bytes of a meta part: a header, and room for the fields before it.
pub const META_BYTES: usize = HEADER_BYTES + 512;
/// Bytes of a request's or reply's header, which is opaque here.
pub const HEADER_BYTES: usize = 64 << 10;
/// Bytes of a trace id.
pub const TRACE_BYTES: usize = 80;
/// Bytes of a body's footer.
pub const FOOTER_BYTES: usize = 4096;
/// Bytes of other texts: their length is one byte.
pub const TEXT_BYTES: usize = 255;
/// Bytes of a card, by which a region is fetched from.
pub const CARD_BYTES: usize = 8 << 10;
/// Key ids in HELLO.
pub const KEYS: usize = 16;
/// Bytes of a meta part before the peer has proved a key.
pub const HANDSHAKE_BYTES: usize = 1536;
/// Bytes of a grant.
pub const GRANT_BYTES: usize = 2048;
/// Bytes of the prefix or the object's name in a grant.
pub const SCOPE_BYTES: usize = 1024;
/// Bytes of a body inside REQUEST or REPLY.
pub const INLINE_BYTES: usize = 64 << 10;
/// Bytes of a chunk: the unit that is offered, waited for and handed to the layer above.
pub const CHUNK_BYTES: usize = 1 << 20;
/// Bytes of a DATA frame's body.
pub const DATA_BYTES: usize = 1 << 20;
/// Bytes of a body that may be offered and not yet sent (or, if lent, not yet returned).
pub const OFFERED_BYTES: u64 = 8 << 20;
/// Bytes of a body that may be sent before they are granted.
pub const EARLY_BYTES: u64 = 2 << 20;
/// Chunks of a body that may be offered and not yet both granted and sent (or, if lent, not yet returned).
pub const OFFERED_CHUNKS: usize = 64;
/// Milliseconds without sending after which a PING is sent.
pub const PING_AFTER_MS: u64 = 400;
/// Milliseconds without receiving after which the peer counts as lost, by default. With the time of a tick it is below
/// 2 s.
pub const DEAD_AFTER_MS: u64 = 1500;
/// Milliseconds for the whole handshake; if peers may be silent for longer, as long as that.
pub const HANDSHAKE_MS: u64 = 1500;
