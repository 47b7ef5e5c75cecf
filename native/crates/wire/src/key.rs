//! Keys, and what is signed by them.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

/// One of the cluster's keys, or a secret that follows from one.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Vec<u8>);

impl std::fmt::Debug for Key {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Key({:02x?})", self.id())
    }
}

impl Key {
    /// A key of any length.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        Self(secret.to_vec())
    }

    /// The secret itself, to be handed to its holder.
    #[must_use]
    pub fn secret(&self) -> &[u8] {
        &self.0
    }

    /// The id by which both sides find a key that they share.
    #[must_use]
    pub fn id(&self) -> [u8; 4] {
        let digest = Sha256::new().chain_update(b"swiftlet key id").chain_update(&self.0).finalize();
        [digest[0], digest[1], digest[2], digest[3]]
    }

    /// The MAC over a label, which says what is signed, and two parts of a message.
    pub(crate) fn mac(&self, label: &[u8], hello: &[u8], welcome: &[u8]) -> Hmac<Sha256> {
        #[allow(clippy::unwrap_used, reason = "HMAC takes keys of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).unwrap();
        mac.update(label);
        mac.update(hello);
        mac.update(welcome);
        mac
    }
}
