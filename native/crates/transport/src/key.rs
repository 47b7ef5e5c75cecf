//! Numbers of connections within their I/O thread.

/// The bit that distinguishes the numbers of a thread's other descriptors from those of its connections.
pub(crate) const LISTENER: u64 = 1 << 63;

/// Identifies a connection of this thread, and never a later one in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Key {
    /// As one number.
    pub(crate) fn number(self) -> u64 {
        (u64::from(self.generation) << 32 | u64::from(self.index)) & !LISTENER
    }
}
