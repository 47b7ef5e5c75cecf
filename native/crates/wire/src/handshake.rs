//! The handshake: both sides prove that they have one of the cluster's keys, over both sides' nonces.
//!
//! Fault model: anybody may connect, send anything, and repeat recorded messages of others. Without a key nobody gets
//! further than a refusal, and recorded messages prove nothing under a new nonce.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use crate::limits::KEYS;
use crate::message::{Fields, put_text};
use crate::violation::{Violation, require};

/// The versions of the protocol that this code speaks, lowest and highest.
pub const VERSIONS: (u16, u16) = (1, 1);

/// The beginning of HELLO.
pub const MAGIC: &[u8; 8] = b"swiftlet";
const SERVER: &[u8] = b"swiftlet server\n";
const CLIENT: &[u8] = b"swiftlet client\n";
const SESSION: &[u8] = b"swiftlet session\n";

/// 32 bytes from the system's random source, new for every handshake.
pub type Nonce = [u8; 32];
type Tag = [u8; 32];

/// One of the cluster's keys.
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

    /// The id by which both sides find a key that they share.
    #[must_use]
    pub fn id(&self) -> [u8; 4] {
        let digest = Sha256::new().chain_update(b"swiftlet key id").chain_update(&self.0).finalize();
        [digest[0], digest[1], digest[2], digest[3]]
    }

    fn mac(&self, label: &[u8], hello: &[u8], welcome: &[u8]) -> Hmac<Sha256> {
        #[allow(clippy::unwrap_used, reason = "HMAC takes keys of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).unwrap();
        mac.update(label);
        mac.update(hello);
        mac.update(welcome);
        mac
    }
}

/// What one side tells the other about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name by which peers know it.
    pub name: String,
    /// The machine that it runs on.
    pub machine: String,
    /// Its limits.
    pub limits: Limits,
}

/// The most that one side accepts from the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes per body that are granted beyond what was released.
    pub window_bytes: u32,
    /// Whether lent chunks are accepted.
    pub lent: bool,
    /// Requests open at once.
    pub streams: u32,
    /// Bytes of bodies inside them.
    pub inline_bytes: u32,
}

/// Why a server refuses a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Refusal {
    /// No common version.
    Version = 1,
    /// No common key.
    Key = 2,
    /// The client wants another server.
    Name = 3,
    /// Too many connections.
    Full = 4,
    /// The server is about to stop.
    GoingAway = 5,
    /// The client does not encrypt, but must.
    Plain = 6,
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The message is malformed.
    Violation(Violation),
    /// The other side refused: its reason's number, its versions, its text.
    Refused(u16, (u16, u16), String),
    /// A proof does not match any key.
    Proof,
    /// A server of another name answered.
    Name(String),
}

impl std::fmt::Display for Denied {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Denied::Violation(violation) => violation.fmt(to),
            Denied::Refused(number, (low, high), _) if *number == Refusal::Version as u16 => write!(
                to,
                "refused by a peer: its transport has format versions {low} to {high}, this program understands {} to \
                 {}: run the same release of Swiftlet on both sides",
                VERSIONS.0, VERSIONS.1
            ),
            Denied::Refused(_, (low, high), text) => {
                write!(to, "refused by a peer of versions {low} to {high}: {text}")
            }
            Denied::Proof => write!(to, "the peer does not have the cluster's key"),
            Denied::Name(name) => write!(to, "another server answered, named {name}"),
        }
    }
}

impl std::error::Error for Denied {}

impl From<Violation> for Denied {
    fn from(violation: Violation) -> Self {
        Denied::Violation(violation)
    }
}

/// The result of a successful handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The version both speak.
    pub version: u16,
    /// Mixed into the checks of all frames to come.
    pub session: u64,
    /// The other side.
    pub peer: Identity,
}

fn put_identity(to: &mut Vec<u8>, identity: &Identity) {
    put_text(to, &identity.name);
    put_text(to, &identity.machine);
}

fn put_limits(to: &mut Vec<u8>, limits: &Limits) {
    to.extend_from_slice(&limits.window_bytes.to_be_bytes());
    to.push(u8::from(limits.lent));
    to.extend_from_slice(&limits.streams.to_be_bytes());
    to.extend_from_slice(&limits.inline_bytes.to_be_bytes());
}

fn take_limits(from: &mut Fields<'_>) -> Result<Limits, Violation> {
    let window_bytes = from.u32()?;
    let lent = from.u8()?;
    require(lent <= 1, "a flag that is neither 0 nor 1")?;
    Ok(Limits { window_bytes, lent: lent == 1, streams: from.u32()?, inline_bytes: from.u32()? })
}

fn session(key: &Key, hello: &[u8], welcome: &[u8]) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&key.mac(SESSION, hello, welcome).finalize().into_bytes()[..8]);
    u64::from_be_bytes(number)
}

/// The client's side: HELLO has been sent, WELCOME or REFUSE is expected.
#[derive(Debug)]
pub struct Client {
    keys: Vec<Key>,
    expected: String,
    hello: Vec<u8>,
}

impl Client {
    /// Begin a handshake. `keys`: those to offer, the preferred one first; at most [`KEYS`] are offered. Also returns
    /// HELLO's meta part.
    #[must_use]
    pub fn new(keys: &[Key], us: &Identity, expected: &str, nonce: &Nonce) -> (Self, Vec<u8>) {
        let keys: Vec<Key> = keys.iter().take(KEYS).cloned().collect();
        let mut hello = Vec::with_capacity(256);
        hello.extend_from_slice(MAGIC);
        hello.extend_from_slice(&VERSIONS.0.to_be_bytes());
        hello.extend_from_slice(&VERSIONS.1.to_be_bytes());
        hello.extend_from_slice(nonce);
        put_identity(&mut hello, us);
        put_text(&mut hello, expected);
        put_limits(&mut hello, &us.limits);
        hello.push(keys.len() as u8);
        for key in &keys {
            hello.extend_from_slice(&key.id());
        }
        (Self { keys, expected: expected.to_owned(), hello: hello.clone() }, hello)
    }

    /// Handle WELCOME's meta part: returns what was agreed, and PROOF's meta part.
    ///
    /// # Errors
    /// The server has no key of ours, is another one than expected, or does not keep to the form.
    pub fn welcomed(&self, welcome: &[u8]) -> Result<(Agreed, Tag), Denied> {
        let mut from = Fields(welcome);
        let version = from.u16()?;
        let _nonce: Nonce = from.array()?;
        let id: [u8; 4] = from.array()?;
        let (name, machine) = (from.text()?, from.text()?);
        let limits = take_limits(&mut from)?;
        let signed = &welcome[..welcome.len() - from.0.len()];
        let mac: Tag = from.array()?;
        from.end()?;
        require((VERSIONS.0..=VERSIONS.1).contains(&version), "a version that this side did not offer")?;
        let key = self
            .keys
            .iter()
            .filter(|key| key.id() == id)
            .find(|key| key.mac(SERVER, &self.hello, signed).verify_slice(&mac).is_ok())
            .ok_or(Denied::Proof)?;
        if name != self.expected {
            return Err(Denied::Name(name.to_owned()));
        }
        let peer = Identity { name: name.to_owned(), machine: machine.to_owned(), limits };
        let agreed = Agreed { version, session: session(key, &self.hello, signed), peer };
        Ok((agreed, key.mac(CLIENT, &self.hello, signed).finalize().into_bytes().into()))
    }

    /// Handle REFUSE's meta part.
    #[must_use]
    pub fn refused(meta: &[u8]) -> Denied {
        let mut from = Fields(meta);
        let mut read = || -> Result<Denied, Violation> {
            let (number, low, high) = (from.u16()?, from.u16()?, from.u16()?);
            Ok(Denied::Refused(number, (low, high), from.text()?.to_owned()))
        };
        read().unwrap_or_else(Denied::Violation)
    }
}

/// The meta part of REFUSE.
#[must_use]
pub fn encode_refusal(refusal: Refusal) -> Vec<u8> {
    let mut to = Vec::with_capacity(64);
    to.extend_from_slice(&(refusal as u16).to_be_bytes());
    to.extend_from_slice(&VERSIONS.0.to_be_bytes());
    to.extend_from_slice(&VERSIONS.1.to_be_bytes());
    put_text(
        &mut to,
        match refusal {
            Refusal::Version => "there is no common version",
            Refusal::Key => "the two sides have no cluster key in common",
            Refusal::Name => "this is not the expected server",
            Refusal::Full => "the server has too many connections",
            Refusal::GoingAway => "the server is ending",
            Refusal::Plain => "connections have to be encrypted here (cluster.encryption)",
        },
    );
    to
}

/// The server's side: HELLO was accepted, WELCOME has been sent, PROOF is expected.
#[derive(Debug)]
pub struct Server {
    key: Key,
    hello: Vec<u8>,
    welcome: Vec<u8>,
    agreed: Agreed,
}

impl Server {
    /// Handle HELLO's meta part: returns the state, and WELCOME's meta part.
    ///
    /// # Errors
    /// A violation is not answered; a refusal is, by [`encode_refusal`].
    pub fn greeted(
        keys: &[Key],
        us: &Identity,
        hello: &[u8],
        nonce: &Nonce,
    ) -> Result<Result<(Self, Vec<u8>), Refusal>, Violation> {
        let mut from = Fields(hello);
        require(from.bytes(MAGIC.len())? == MAGIC, "a greeting of another protocol")?;
        let (low, high) = (from.u16()?, from.u16()?);
        let version = high.min(VERSIONS.1);
        if version < low.max(VERSIONS.0) {
            return Ok(Err(Refusal::Version));
        }
        let _nonce: Nonce = from.array()?;
        let (name, machine, expected) = (from.text()?, from.text()?, from.text()?);
        let limits = take_limits(&mut from)?;
        let count = usize::from(from.u8()?);
        require(count <= KEYS, "too many key ids")?;
        let ids = from.bytes(4 * count)?;
        from.end()?;
        if expected != us.name {
            return Ok(Err(Refusal::Name));
        }
        let Some(key) = ids.chunks_exact(4).find_map(|id| keys.iter().find(|key| key.id() == id)) else {
            return Ok(Err(Refusal::Key));
        };

        let mut welcome = Vec::with_capacity(256);
        welcome.extend_from_slice(&version.to_be_bytes());
        welcome.extend_from_slice(nonce);
        welcome.extend_from_slice(&key.id());
        put_identity(&mut welcome, us);
        put_limits(&mut welcome, &us.limits);
        let mac = key.mac(SERVER, hello, &welcome).finalize().into_bytes();
        let peer = Identity { name: name.to_owned(), machine: machine.to_owned(), limits };
        let agreed = Agreed { version, session: session(key, hello, &welcome), peer };
        let sent = [&welcome[..], &mac].concat();
        Ok(Ok((Self { key: key.clone(), hello: hello.to_vec(), welcome, agreed }, sent)))
    }

    /// Handle PROOF's meta part.
    ///
    /// # Errors
    /// The client does not have the key.
    pub fn proved(self, proof: &[u8]) -> Result<Agreed, Denied> {
        let mac = self.key.mac(CLIENT, &self.hello, &self.welcome);
        mac.verify_slice(proof).map_err(|_| Denied::Proof)?;
        Ok(self.agreed)
    }
}
