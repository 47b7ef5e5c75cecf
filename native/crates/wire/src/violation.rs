//! What a peer did that the protocol does not allow.

/// The connection on which this happens is closed; the text is for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub &'static str);

impl std::fmt::Display for Violation {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "the peer broke the protocol: {}", self.0)
    }
}

impl std::error::Error for Violation {}

/// Turn a condition that must hold into a [`Violation`] where it does not.
///
/// # Errors
/// It does not hold.
pub fn require(holds: bool, what: &'static str) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation(what)) }
}
