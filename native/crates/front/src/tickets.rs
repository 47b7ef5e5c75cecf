//! Session tickets that all processes of a service can read: their keys follow from a common secret and the time.
//!
//! A ticket is of use for one period after that in which it was made, at the most. It has the period's number, a random
//! nonce, and the sealed session.
//!
//! Fault model: anybody may send anything as a ticket. Whoever learns the secret can read the tickets of sessions, and
//! with them those of TLS 1.2 that were recorded; it never leaves the memory of the service, and a new start makes
//! another one.

use std::time::{SystemTime, UNIX_EPOCH};

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use rustls::server::ProducesTickets;

/// Seconds of a period.
const PERIOD_S: u32 = 6 * 60 * 60;
const PERIOD_BYTES: usize = 4;
/// No session without client certificates is nearly as large.
const MAX_BYTES: usize = 4096;

pub(crate) struct Tickets(hmac::Key);

impl std::fmt::Debug for Tickets {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Tickets")
    }
}

fn period() -> u32 {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    (seconds / u64::from(PERIOD_S)) as u32
}

impl Tickets {
    pub(crate) fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    fn key(&self, period: [u8; PERIOD_BYTES]) -> Option<LessSafeKey> {
        let key = hmac::sign(&self.0, &[b"session tickets", &period[..]].concat());
        UnboundKey::new(&AES_256_GCM, key.as_ref()).ok().map(LessSafeKey::new)
    }

    fn seal(&self, session: &[u8], period: u32) -> Option<Vec<u8>> {
        let period = period.to_be_bytes();
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).ok()?;
        let mut sealed = session.to_vec();
        let key = self.key(period)?;
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(period), &mut sealed).ok()?;
        let ticket = [&period[..], &nonce, &sealed].concat();
        (ticket.len() <= MAX_BYTES).then_some(ticket)
    }

    fn open(&self, ticket: &[u8], now: u32) -> Option<Vec<u8>> {
        if ticket.len() > MAX_BYTES {
            return None;
        }
        let (period, rest) = ticket.split_first_chunk::<PERIOD_BYTES>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let age = now.checked_sub(u32::from_be_bytes(*period))?;
        if age > 1 {
            return None;
        }
        let mut session = sealed.to_vec();
        let key = self.key(*period)?;
        let bytes = key.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(*period), &mut session).ok()?;
        let bytes = bytes.len();
        session.truncate(bytes);
        Some(session)
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        PERIOD_S
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain, period())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open(cipher, period())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_who_have_the_secret_read_a_ticket_for_a_period_and_one_more() {
        let (one, other) = (Tickets::new(b"secret"), Tickets::new(b"secret"));
        let ticket = one.seal(b"session", 7).expect("randomness");
        assert_eq!(other.open(&ticket, 7).as_deref(), Some(&b"session"[..]));
        assert_eq!(other.open(&ticket, 8).as_deref(), Some(&b"session"[..]));
        assert_eq!(other.open(&ticket, 9), None);
        assert_eq!(other.open(&ticket, 6), None);
        assert_eq!(Tickets::new(b"other").open(&ticket, 7), None);
        assert_ne!(one.seal(b"session", 7), Some(ticket));
    }

    #[test]
    fn a_changed_or_cut_ticket_is_none() {
        let tickets = Tickets::new(b"secret");
        let ticket = tickets.seal(b"session", 7).expect("randomness");
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(tickets.open(&changed, 7), None, "byte {at}");
            assert_eq!(tickets.open(&ticket[..at], 7), None, "cut at {at}");
        }
        assert_eq!(tickets.open(&vec![0; 1 << 20], 0), None);
        assert_eq!(tickets.seal(&vec![0; MAX_BYTES], 7), None);
    }
}
