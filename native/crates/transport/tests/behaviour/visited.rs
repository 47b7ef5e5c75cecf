//! A server that lets guests in, for tests of what they may do.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use swiftlet_transport::guest::Session;
use swiftlet_transport::{Carrier, Config, Guests, Key, Node, Peer, Pool};
use swiftlet_wire::handshake::Credentials;

use crate::common::raw::{self, Raw};
use crate::common::{Client, ECHO, Seen, World, call, config};

pub const MIB: usize = 1 << 20;

pub fn session() -> (Session, Key) {
    let key = Key::new(b"secret");
    let session = Session { key_id: key.id(), id: [3; 16], ends_s: u64::MAX };
    (session, session.secret(&key))
}

/// A server that lets guests in, and a member.
pub struct Visited {
    pub world: World,
    pub server: Node,
    pub seen: Arc<Seen>,
    pub member: Client,
    pub peer: Peer,
    pub guests: Pool,
    pub members: Pool,
}

impl Visited {
    /// A server with so much memory for guests, and the room for them as `change` makes it.
    pub fn with(carrier: Carrier, guest_bytes: usize, change: impl FnOnce(&mut Guests)) -> Self {
        let world = World::new(carrier);
        let (members, guests) = (Pool::new(32 << 20).unwrap(), Pool::new(guest_bytes).unwrap());
        let mut room = Guests::new(guests.clone());
        change(&mut room);
        let plain = config("server", 2 << 20);
        let (server, seen) = world.server(Config { pool: members.clone(), guests: Some(room), ..plain });
        let member = world.client(config("member", 32 << 20));
        let peer = member.node.peer(world.address("server"));
        Self { world, server, seen, member, peer, guests, members }
    }

    /// A guest that does as it likes, and says that it takes lent memory.
    pub fn raw(&self) -> Raw {
        let mut raw = raw::connect(&self.world, "server");
        let (session, secret) = session();
        raw.shake_hands_by(Credentials::Guest(session, secret), "server", true);
        raw
    }

    pub fn is_well(&self) {
        assert_eq!(self.member.ask(&self.peer, call(ECHO)).status, 200);
    }
}
