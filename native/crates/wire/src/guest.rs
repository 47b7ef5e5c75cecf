//! Guests: clients without a cluster key. A [`Session`] lets one in, and a [`Grant`] says what it may do; both are made
//! by who has a cluster key, and are checked by who has it too, without asking anybody.
//!
//! Fault model: a guest may send any bytes, repeat what was granted to others, and change what was granted to itself.
//! Nothing but the bytes that were signed is accepted, so a grant is read only after its signature was checked, and
//! has one form only.

use hmac::Mac as _;

use crate::key::Key;
use crate::limits::{GRANT_BYTES, SCOPE_BYTES};
use crate::message::Fields;
use crate::violation::{Violation, require};

const GUEST: &[u8] = b"swiftlet guest\n";
const GRANT: &[u8] = b"swiftlet grant\n";
const VERSION: u8 = 1;
const MAC_BYTES: usize = 32;

/// Bytes of a session.
pub const SESSION_BYTES: usize = 28;
/// Bytes of the name of an account or a container.
const NAME_BYTES: usize = 256;

/// The number by which a session is known.
pub type SessionId = [u8; 16];

/// What a guest says of itself instead of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The cluster key that its secret follows from.
    pub key_id: [u8; 4],
    /// Its number, drawn by chance.
    pub id: SessionId,
    /// When nobody is let in by it any more, in seconds since 1970.
    pub ends_s: u64,
}

impl Session {
    /// The bytes that travel.
    #[must_use]
    pub fn encode(&self) -> [u8; SESSION_BYTES] {
        let mut to = [0; SESSION_BYTES];
        to[..4].copy_from_slice(&self.key_id);
        to[4..20].copy_from_slice(&self.id);
        to[20..].copy_from_slice(&self.ends_s.to_be_bytes());
        to
    }

    /// The inverse of `encode`.
    ///
    /// # Errors
    /// Something is missing, or something follows.
    pub fn decode(bytes: &[u8]) -> Result<Self, Violation> {
        let mut from = Fields(bytes);
        let session = Self::take(&mut from)?;
        from.end()?;
        Ok(session)
    }

    pub(crate) fn take(from: &mut Fields<'_>) -> Result<Self, Violation> {
        Ok(Self { key_id: from.array()?, id: from.array()?, ends_s: from.u64()? })
    }

    /// The secret that proves this session, in place of `key`, from which it follows.
    #[must_use]
    pub fn secret(&self, key: &Key) -> Key {
        Key::new(&key.mac(GUEST, &self.encode(), &[]).finalize().into_bytes())
    }
}

/// What may be done, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operations(u8);

impl Operations {
    /// Read data and description.
    pub const GET: Self = Self(1);
    /// Read the description.
    pub const HEAD: Self = Self(2);
    /// Store.
    pub const PUT: Self = Self(4);
    /// Replace metadata.
    pub const POST: Self = Self(8);
    /// Delete.
    pub const DELETE: Self = Self(16);
    const ALL: u8 = 31;

    /// These bits, if all are known and there is one.
    #[must_use]
    pub fn of(bits: u8) -> Option<Self> {
        (bits != 0 && bits & !Self::ALL == 0).then_some(Self(bits))
    }

    /// The bits.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Whether all of these are among them.
    #[must_use]
    pub fn include(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }
}

/// Which objects of the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All.
    Container,
    /// Those whose names begin so.
    Prefix(String),
    /// This one.
    Object(String),
}

impl Scope {
    fn parts(&self) -> (u8, &str) {
        match self {
            Self::Container => (0, ""),
            Self::Prefix(prefix) => (1, prefix),
            Self::Object(name) => (2, name),
        }
    }

    /// Whether an object of this name is among them.
    #[must_use]
    pub fn covers(&self, object: &[u8]) -> bool {
        match self {
            Self::Container => true,
            Self::Prefix(prefix) => object.starts_with(prefix.as_bytes()),
            Self::Object(name) => object == name.as_bytes(),
        }
    }
}

/// What the holder of a session may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The session that may use it.
    pub session: SessionId,
    /// When it was made, in milliseconds since 1970.
    pub issued_ms: u64,
    /// When requests by it are not begun any more.
    pub ends_ms: u64,
    /// The container's storage policy.
    pub policy: u16,
    /// The bits of a digest that are the partition in the policy's ring.
    pub part_power: u8,
    /// What may be done.
    pub operations: Operations,
    /// The replicas of the container's database, as bits.
    pub rows: u32,
    /// The largest object that may be stored.
    pub object_bytes: u64,
    /// How many objects may be stored by it.
    pub slice_objects: u64,
    /// How many bytes they may have together.
    pub slice_bytes: u64,
    /// The account.
    pub account: String,
    /// The container.
    pub container: String,
    /// Which objects in it.
    pub scope: Scope,
}

/// Why a grant does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// It was signed by none of the keys in use.
    Key,
    /// The signature is not that of these bytes.
    Signature,
    /// What was signed is not a grant.
    Form(Violation),
}

impl std::fmt::Display for Invalid {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Key => to.write_str("the grant's key is not in use here"),
            Self::Signature => to.write_str("the grant was not signed by this cluster"),
            Self::Form(violation) => write!(to, "the grant is malformed: {violation}"),
        }
    }
}

impl std::error::Error for Invalid {}

impl From<Violation> for Invalid {
    fn from(violation: Violation) -> Self {
        Self::Form(violation)
    }
}

fn put_text(to: &mut Vec<u8>, text: &str) {
    to.extend_from_slice(&(text.len() as u16).to_be_bytes());
    to.extend_from_slice(text.as_bytes());
}

fn take_text(from: &mut Fields<'_>) -> Result<String, Violation> {
    let length = from.u16()?;
    let text = std::str::from_utf8(from.bytes(usize::from(length))?).map_err(|_| Violation("a name without UTF-8"))?;
    Ok(text.to_owned())
}

/// Whether this may be the name of an account or a container.
fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES).contains(&name.len()) && !name.contains(['/', '\0'])
}

impl Grant {
    /// Check what holds of every grant.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&self) -> Result<(), Violation> {
        require(is_name(&self.account) && is_name(&self.container), "an account or a container that can't exist")?;
        let (kind, text) = self.scope.parts();
        require(text.len() <= SCOPE_BYTES && !text.contains('\0'), "a scope that no name can have")?;
        require((kind == 0) == text.is_empty(), "a scope without its text")?;
        require(self.issued_ms < self.ends_ms, "a life that ends before it begins")?;
        require(self.part_power <= 32, "a part power over 32")?;
        require(self.rows != 0, "a container without replicas")
    }

    /// The bytes that are handed out.
    ///
    /// # Errors
    /// As [`Grant::check`].
    pub fn sign(&self, key: &Key) -> Result<Vec<u8>, Violation> {
        self.check()?;
        let mut to = Vec::with_capacity(256);
        to.push(VERSION);
        to.extend_from_slice(&key.id());
        to.extend_from_slice(&self.session);
        to.extend_from_slice(&self.issued_ms.to_be_bytes());
        to.extend_from_slice(&self.ends_ms.to_be_bytes());
        to.extend_from_slice(&self.policy.to_be_bytes());
        to.push(self.part_power);
        to.push(self.operations.bits());
        to.extend_from_slice(&self.rows.to_be_bytes());
        to.extend_from_slice(&self.object_bytes.to_be_bytes());
        to.extend_from_slice(&self.slice_objects.to_be_bytes());
        to.extend_from_slice(&self.slice_bytes.to_be_bytes());
        put_text(&mut to, &self.account);
        put_text(&mut to, &self.container);
        let (kind, text) = self.scope.parts();
        to.push(kind);
        put_text(&mut to, text);
        let mac = key.mac(GRANT, &to, &[]).finalize().into_bytes();
        to.extend_from_slice(&mac);
        Ok(to)
    }

    /// Read a grant that one of these keys has signed.
    ///
    /// # Errors
    /// It is none; nothing of it was read unless the signature is right.
    pub fn verify(keys: &[Key], bytes: &[u8]) -> Result<Self, Invalid> {
        require(bytes.len() <= GRANT_BYTES, "a grant over the limit")?;
        let (fields, mac) = bytes.split_last_chunk::<MAC_BYTES>().ok_or(Violation("a truncated grant"))?;
        let mut from = Fields(fields);
        require(from.u8()? == VERSION, "a grant of another version")?;
        let id: [u8; 4] = from.array()?;
        let mut with_id = keys.iter().filter(|key| key.id() == id).peekable();
        with_id.peek().ok_or(Invalid::Key)?;
        if !with_id.any(|key| key.mac(GRANT, fields, &[]).verify_slice(mac).is_ok()) {
            return Err(Invalid::Signature);
        }
        let grant = Self::read(from)?;
        grant.check()?;
        Ok(grant)
    }

    fn read(mut from: Fields<'_>) -> Result<Self, Violation> {
        let session = from.array()?;
        let (issued_ms, ends_ms) = (from.u64()?, from.u64()?);
        let (policy, part_power) = (from.u16()?, from.u8()?);
        let operations = Operations::of(from.u8()?).ok_or(Violation("operations that are not known"))?;
        let rows = from.u32()?;
        let (object_bytes, slice_objects, slice_bytes) = (from.u64()?, from.u64()?, from.u64()?);
        let (account, container) = (take_text(&mut from)?, take_text(&mut from)?);
        let kind = from.u8()?;
        let text = take_text(&mut from)?;
        from.end()?;
        let scope = match kind {
            0 if text.is_empty() => Scope::Container,
            1 => Scope::Prefix(text),
            2 => Scope::Object(text),
            _ => return Err(Violation("a scope of an unknown kind")),
        };
        Ok(Self {
            session,
            issued_ms,
            ends_ms,
            policy,
            part_power,
            operations,
            rows,
            object_bytes,
            slice_objects,
            slice_bytes,
            account,
            container,
            scope,
        })
    }
}

/// The id by which a grant is known where what it stores is counted: the beginning of its signature.
#[must_use]
pub fn id_of(signed: &[u8]) -> [u8; 16] {
    let mut id = [0; 16];
    if let Some((_, mac)) = signed.split_last_chunk::<MAC_BYTES>() {
        id.copy_from_slice(&mac[..16]);
    }
    id
}
