//! The handshake: both sides prove that they have one of the cluster's keys, over both sides' nonces.
//!
//! A guest has the secret of a session instead ([`crate::guest`]), which follows from a key that the server has.
//!
//! Fault model: anybody may connect, send anything, and repeat recorded messages of others. Without a key or a session's
//! secret nobody gets further than a refusal, and recorded messages prove nothing under a new nonce. A guest can't be
//! taken for a member: what both prove follows from different secrets, and HELLO, which says who it is, is part of it.

use hmac::Mac as _;

use crate::guest::Session;
pub use crate::key::Key;
use crate::limits::KEYS;
use crate::message::{Fields, put_text};
use crate::violation::{Violation, require};

/// The versions of the protocol that this code speaks, lowest and highest.
pub const VERSIONS: (u16, u16) = (1, 2);
/// The first version in which the begin of a body may be sent before it is granted.
pub const WITH_EARLY: u16 = 2;

/// The beginning of HELLO.
pub const MAGIC: &[u8; 8] = b"swiftlet";
const SERVER: &[u8] = b"swiftlet server\n";
const CLIENT: &[u8] = b"swiftlet client\n";
const SESSION: &[u8] = b"swiftlet session\n";
/// What HELLO says of the client.
const MEMBER: u8 = 0;
const GUEST: u8 = 1;

/// 32 bytes from the system's random source, new for every handshake.
pub type Nonce = [u8; 32];
type Tag = [u8; 32];

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
    /// The guest's session has ended.
    Ended = 7,
    /// Guests are not let in.
    Guests = 8,
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
    /// The client's session, if it is a guest; at the client None.
    pub guest: Option<Session>,
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

/// What a client proves itself by.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// The cluster's keys, the preferred one first; at most [`KEYS`] are offered.
    Member(Vec<Key>),
    /// A session, and its secret.
    Guest(Session, Key),
}

impl Credentials {
    fn put(&self, to: &mut Vec<u8>) {
        match self {
            Self::Member(keys) => {
                to.push(MEMBER);
                to.push(keys.len().min(KEYS) as u8);
                keys.iter().take(KEYS).for_each(|key| to.extend_from_slice(&key.id()));
            }
            Self::Guest(session, _) => {
                to.push(GUEST);
                to.extend_from_slice(&session.encode());
            }
        }
    }

    /// The secrets that may prove what the server says by the cluster key of this id.
    fn with_id(&self, id: [u8; 4]) -> impl Iterator<Item = &Key> {
        let (members, guest) = match self {
            Self::Member(keys) => (&keys[..], None),
            Self::Guest(session, secret) => (&[][..], (session.key_id == id).then_some(secret)),
        };
        members.iter().filter(move |key| key.id() == id).chain(guest)
    }
}

/// The client's side: HELLO has been sent, WELCOME or REFUSE is expected.
#[derive(Debug)]
pub struct Client {
    credentials: Credentials,
    expected: String,
    hello: Vec<u8>,
}

impl Client {
    /// Begin a handshake. Also returns HELLO's meta part.
    #[must_use]
    pub fn new(credentials: Credentials, us: &Identity, expected: &str, nonce: &Nonce) -> (Self, Vec<u8>) {
        Self::up_to(VERSIONS.1, credentials, us, expected, nonce)
    }

    /// The same as a program that speaks the protocol only up to a version.
    #[must_use]
    pub fn up_to(
        highest: u16,
        credentials: Credentials,
        us: &Identity,
        expected: &str,
        nonce: &Nonce,
    ) -> (Self, Vec<u8>) {
        let mut hello = Vec::with_capacity(256);
        hello.extend_from_slice(MAGIC);
        hello.extend_from_slice(&VERSIONS.0.to_be_bytes());
        hello.extend_from_slice(&highest.to_be_bytes());
        hello.extend_from_slice(nonce);
        put_identity(&mut hello, us);
        put_text(&mut hello, expected);
        put_limits(&mut hello, &us.limits);
        credentials.put(&mut hello);
        (Self { credentials, expected: expected.to_owned(), hello: hello.clone() }, hello)
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
            .credentials
            .with_id(id)
            .find(|key| key.mac(SERVER, &self.hello, signed).verify_slice(&mac).is_ok())
            .ok_or(Denied::Proof)?;
        if name != self.expected {
            return Err(Denied::Name(name.to_owned()));
        }
        let peer = Identity { name: name.to_owned(), machine: machine.to_owned(), limits };
        let agreed = Agreed { version, session: session(key, &self.hello, signed), peer, guest: None };
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
            Refusal::Ended => "the session has ended; ask a metadata server for another one",
            Refusal::Guests => "guests are not let in here",
        },
    );
    to
}

/// Whom a server lets in.
#[derive(Clone, Copy, Debug)]
pub struct Admission<'a> {
    /// The cluster's keys.
    pub keys: &'a [Key],
    /// The server itself, with the limits of members.
    pub us: &'a Identity,
    /// The limits of guests; None: they are not let in.
    pub guests: Option<Limits>,
    /// Seconds since 1970.
    pub now_s: u64,
}

/// Who a client says it is.
struct Claimed {
    /// The secret that it has to prove.
    secret: Key,
    /// The id of the cluster key that this is, or follows from.
    key_id: [u8; 4],
    /// Its session, if it is a guest.
    guest: Option<Session>,
}

impl Admission<'_> {
    /// Read who the client says it is, and whether such clients are let in.
    fn find(&self, from: &mut Fields<'_>) -> Result<Result<Claimed, Refusal>, Violation> {
        match from.u8()? {
            MEMBER => {
                let count = usize::from(from.u8()?);
                require(count <= KEYS, "too many key ids")?;
                let ids = from.bytes(4 * count)?;
                let found = ids.chunks_exact(4).find_map(|id| self.keys.iter().find(|key| key.id() == id));
                let claimed = |key: &Key| Claimed { secret: key.clone(), key_id: key.id(), guest: None };
                Ok(found.map(claimed).ok_or(Refusal::Key))
            }
            GUEST => {
                let session = Session::take(from)?;
                let key = self.keys.iter().find(|key| key.id() == session.key_id);
                Ok(match key {
                    _ if self.guests.is_none() => Err(Refusal::Guests),
                    None => Err(Refusal::Key),
                    Some(_) if session.ends_s <= self.now_s => Err(Refusal::Ended),
                    Some(key) => {
                        let secret = session.secret(key);
                        Ok(Claimed { secret, key_id: session.key_id, guest: Some(session) })
                    }
                })
            }
            _ => Err(Violation("a client that is neither member nor guest")),
        }
    }
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
        admission: &Admission<'_>,
        hello: &[u8],
        nonce: &Nonce,
    ) -> Result<Result<(Self, Vec<u8>), Refusal>, Violation> {
        let us = admission.us;
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
        let found = admission.find(&mut from)?;
        from.end()?;
        if expected != us.name {
            return Ok(Err(Refusal::Name));
        }
        let Claimed { secret: key, key_id, guest } = match found {
            Ok(found) => found,
            Err(refusal) => return Ok(Err(refusal)),
        };

        let mut welcome = Vec::with_capacity(256);
        welcome.extend_from_slice(&version.to_be_bytes());
        welcome.extend_from_slice(nonce);
        welcome.extend_from_slice(&key_id);
        put_identity(&mut welcome, us);
        let ours = guest.and(admission.guests).unwrap_or(us.limits);
        put_limits(&mut welcome, &ours);
        let mac = key.mac(SERVER, hello, &welcome).finalize().into_bytes();
        let peer = Identity { name: name.to_owned(), machine: machine.to_owned(), limits };
        let agreed = Agreed { version, session: session(&key, hello, &welcome), peer, guest };
        let sent = [&welcome[..], &mac].concat();
        Ok(Ok((Self { key, hello: hello.to_vec(), welcome, agreed }, sent)))
    }

    /// The client's session, if it says to be a guest; it is proved by [`Server::proved`] only.
    #[must_use]
    pub fn guest(&self) -> Option<Session> {
        self.agreed.guest
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
