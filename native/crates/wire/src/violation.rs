//! What a peer did that the protocol does not allow.

/// A violation of the protocol. The connection on which it happens is closed; the text is for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub &'static str);

impl std::fmt::Display for Violation {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "the peer broke the protocol: {}", self.0)
    }
}

impl std::error::Error for Violation {}

/// Return a [`Violation`] unless a condition holds.
///
/// # Errors
/// It does not hold.
pub fn require(holds: bool, what: &'static str) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation(what)) }
}
