//! The handshake of a connection, and what it begins with after it.
//!
//! Fault model: whoever connects may be nobody, or a guest that pretends to be a member's peer. What a guest may not use
//! (members' memory, in both directions) is never offered to it, and a frame of it that expects it is a violation.

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
        &self,
        around: &Around<'_>,
        hello: &[u8],
    ) -> Result<Result<(handshake::Server, Vec<u8>), Refusal>, Fail> {
        let settings = around.settings;
        let (keys, us) = (settings.keys(), settings.identity(self.link.lends()));
        let admission = Admission { keys: &keys, us: &us, guests: settings.guest_limits(), now_s: now_s() };
        let greeted = handshake::Server::greeted(&admission, hello, &nonce()?)?;
        Ok(greeted.and_then(|(server, welcome)| {
            let is_full = |guests: &Guests| settings.guests_open.load(Relaxed) >= guests.max_connections;
            match &settings.guests {
                Some(guests) if server.guest().is_some() && is_full(guests) => Err(Refusal::Full),
                _ => Ok((server, welcome)),
            }
        }))
    }

    /// From now on the client is a guest: it is counted, and has the memory of guests.
    fn receive_guest(&mut self, around: &mut Around<'_>, agreed: &Agreed) -> Result<(), Fail> {
        let (Some(session), Some(guests)) = (agreed.guest, &around.settings.guests) else { return Ok(()) };
        self.guest = Some(Arc::new(Guest { session, memory: OnceLock::new() }));
        around.pool = &guests.pool;
        let before = around.settings.guests_open.fetch_add(1, Relaxed);
        if before >= guests.max_connections { Err(Fail::Crowded) } else { Ok(()) }
    }

    fn open(&mut self, around: &mut Around<'_>, agreed: Agreed) -> Result<(), Fail> {
        self.receive_guest(around, &agreed)?;
        self.stage = Stage::Open;
        self.encoder.begin_session(agreed.session);
        self.decoder.begin_session(agreed.session);
        self.peer_name = Arc::from(agreed.peer.name.as_str());
        self.limits = agreed.peer.limits;
        self.metrics.connects.fetch_add(1, Relaxed);
        let card = self.link.card().map(<[u8]>::to_vec);
        // What fetches is a TCP connection until a fetch has succeeded.
        self.metrics.set_carrier(Some(if card.is_some() { Carrier::Tcp } else { self.carrier() }));
        if self.shares_memory() {
            let region = around.pool.region();
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
