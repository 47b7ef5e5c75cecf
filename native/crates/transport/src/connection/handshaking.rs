//! The handshake of a connection, and what it begins with after it.
//!
//! Fault model: whoever connects may be nobody, or a guest that pretends to be a member's peer. What a guest may not use
//! (members' memory, in both directions) is never offered to it, and a frame of it that expects it is a violation; what
//! it may use instead is in `shared`. A
//! guest has its place from HELLO on, so that nobody is sent away after the handshake, when a request is under way and
//! it can't be told any more whether it was carried out. Strangers can take places that way, from guests alone, and only
//! for as long as a handshake may last.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::{io, mem};

use swiftlet_wire::Violation;
use swiftlet_wire::frame::Kind;
use swiftlet_wire::handshake::{self, Admission, Agreed, Denied, Refusal, encode_refusal};
use swiftlet_wire::message::encode_region;

use super::{Connection, Fail, REGION, Stage};
use crate::api::Guest;
use crate::around::Around;
use crate::link::Carrier;
use crate::settings::{Guests, now_s};

/// The name by which all guests are counted together.
const GUESTS: &str = "guests";

impl Connection {
    /// Say HELLO.
    pub(super) fn greet(&mut self, around: &Around<'_>) -> Result<(), Fail> {
        let us = around.settings.identity(self.link.lends());
        let credentials = around.settings.credentials();
        let (client, hello) = handshake::Client::new(credentials, &us, &self.peer_name, &nonce()?);
        self.stage = Stage::Welcome(client);
        self.frame(Kind::Hello, 0, 0, &[&hello], 0);
        Ok(())
    }

    pub(super) fn shake_hands(&mut self, around: &mut Around<'_>, kind: Kind, meta: &[u8]) -> Result<(), Fail> {
        let us = around.settings.identity(self.link.lends());
        match (mem::replace(&mut self.stage, Stage::Refusing), kind) {
            (Stage::Hello(refusal), Kind::Hello) => {
                let greeted = match refusal.or(self.link.refusal()) {
                    Some(refusal) => Err(refusal),
                    None => self.greeted(around, meta)?,
                };
                match greeted {
                    Ok((server, welcome)) => {
                        self.stage = Stage::Proof(server);
                        self.frame(Kind::Welcome, 0, 0, &[&welcome], 0);
                    }
                    Err(refusal) => self.frame(Kind::Refuse, 0, 0, &[&encode_refusal(refusal)], 0),
                }
                Ok(())
            }
            (Stage::Welcome(client), Kind::Welcome) => {
                let (agreed, proof) = client.welcomed(meta).map_err(Fail::Denied)?;
                if self.carrier() == Carrier::SameNode && agreed.peer.machine != us.machine {
                    return Err(Fail::Denied(Denied::Name(agreed.peer.machine)));
                }
                self.frame(Kind::Proof, 0, 0, &[&proof], 0);
                self.open(around, agreed)
            }
            (Stage::Proof(server), Kind::Proof) => {
                let agreed = server.proved(meta).map_err(Fail::Denied)?;
                let name = if agreed.guest.is_some() { GUESTS } else { &agreed.peer.name };
                self.metrics = around.registry.client(name);
                self.open(around, agreed)
            }
            (Stage::Welcome(_), Kind::Refuse) => Err(Fail::Denied(handshake::Client::refused(meta))),
            _ => Err(Violation("a message of the handshake at the wrong time").into()),
        }
    }

    /// Whether the client who says HELLO is let in, and the answer.
    fn greeted(
        &mut self,
        around: &Around<'_>,
        hello: &[u8],
    ) -> Result<Result<(handshake::Server, Vec<u8>), Refusal>, Fail> {
        let settings = around.settings;
        let (keys, us) = (settings.keys(), settings.identity(self.link.lends()));
        let admission = Admission {
            keys: &keys,
            us: &us,
            guests: settings.guest_limits(self.may_share_with_guest(around)),
            now_s: now_s(),
        };
        let greeted = handshake::Server::greeted(&admission, hello, &nonce()?)?;
        Ok(greeted.and_then(|(server, welcome)| match &settings.guests {
            Some(guests) if server.guest().is_some() && !self.take_place(around, guests) => Err(Refusal::Full),
            _ => Ok((server, welcome)),
        }))
    }

    /// Count this connection among those of guests; false if they have as many as they may.
    fn take_place(&mut self, around: &Around<'_>, guests: &Guests) -> bool {
        let free = |open: usize| Some(open + 1).filter(|open| *open <= guests.max_connections);
        self.has_guests_place = around.settings.guests_open.fetch_update(Relaxed, Relaxed, free).is_ok();
        self.has_guests_place
    }

    /// From now on the client is a guest, and has the memory of guests.
    fn receive_guest(&mut self, around: &mut Around<'_>, agreed: &Agreed) {
        let (Some(session), Some(guests)) = (agreed.guest, &around.settings.guests) else { return };
        self.guest = Some(Arc::new(Guest { session, memory: OnceLock::new() }));
        around.pool = &guests.pool;
    }

    fn open(&mut self, around: &mut Around<'_>, agreed: Agreed) -> Result<(), Fail> {
        self.receive_guest(around, &agreed);
        self.stage = Stage::Open;
        self.encoder.begin_session(agreed.session);
        self.decoder.begin_session(agreed.session);
        self.peer_name = Arc::from(agreed.peer.name.as_str());
        self.limits = agreed.peer.limits;
        self.version = agreed.version;
        self.metrics.connects.fetch_add(1, Relaxed);
        let card = self.link.card().map(<[u8]>::to_vec);
        // What fetches is a TCP connection until a fetch has succeeded.
        self.metrics.set_carrier(Some(if card.is_some() { Carrier::Tcp } else { self.carrier() }));
        if self.is_guests() && self.shares_memory(around) {
            self.guest_region = around.settings.guests.as_ref().and_then(|guests| guests.shared.as_ref()?.take());
        }
        if self.shares_memory(around) && self.is_guests() == self.guest_region.is_some() {
            let region = Arc::clone(self.lending(around).region());
            if card.is_none() {
                self.link.attach(region.for_reading()?);
                self.may_lend = true;
            }
            let meta = encode_region(REGION, region.bytes() as u64, &card.unwrap_or_default());
            self.frame(Kind::Region, 0, 0, &[&meta], 0);
        }
        Ok(())
    }
}

fn nonce() -> Result<handshake::Nonce, Fail> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(nonce)
}
