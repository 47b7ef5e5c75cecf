//! The names that connections have within their I/O thread.

/// The bit by which the numbers of a thread's other descriptors are told from those of its connections.
pub(crate) const LISTENER: u64 = 1 << 63;

/// Names a connection of this thread, and never another one that takes its place.
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
