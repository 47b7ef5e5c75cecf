//! What a peer needs to fetch from a process. It is opaque to the protocol, which carries it in REGION.

use std::io;

use swiftlet_transport::limits::CARD_BYTES;

/// The only layout there is.
const VERSION: u8 = 1;
/// Bytes of the proof, which only a peer that can fetch from the process can know.
pub(crate) const PROOF_BYTES: usize = 32;

/// Where a process's pool is for UCX, and how to find out whether it can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    /// The address of its pool's first byte.
    pub(crate) base: u64,
    /// The address of its proof.
    pub(crate) proof_at: u64,
    /// The proof itself.
    pub(crate) proof: [u8; PROOF_BYTES],
    /// UCX's address of its worker.
    pub(crate) worker: Vec<u8>,
    /// The packed keys of the pool and of the proof.
    pub(crate) pool_key: Vec<u8>,
    pub(crate) proof_key: Vec<u8>,
}

fn take<'a>(from: &mut &'a [u8], bytes: usize) -> io::Result<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(bytes).ok_or(io::ErrorKind::InvalidData)?;
    *from = rest;
    Ok(taken)
}

fn number(from: &mut &[u8], bytes: usize) -> io::Result<u64> {
    Ok(take(from, bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn part(from: &mut &[u8]) -> io::Result<Vec<u8>> {
    let bytes = number(from, 2)? as usize;
    let part = take(from, bytes)?;
    if part.is_empty() { Err(io::ErrorKind::InvalidData.into()) } else { Ok(part.to_vec()) }
}

impl Card {
    /// Its bytes.
    ///
    /// # Errors
    /// They are more than REGION carries: so many devices that UCX's address does not fit.
    pub(crate) fn encode(&self) -> io::Result<Vec<u8>> {
        let mut to = vec![VERSION];
        to.extend_from_slice(&self.base.to_be_bytes());
        to.extend_from_slice(&self.proof_at.to_be_bytes());
        to.extend_from_slice(&self.proof);
        for part in [&self.worker, &self.pool_key, &self.proof_key] {
            to.extend_from_slice(&(part.len() as u16).to_be_bytes());
            to.extend_from_slice(part);
        }
        if to.len() > CARD_BYTES {
            let what =
                "there are too many RDMA devices: their addresses do not fit into a message; name the devices to use";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(to)
    }

    /// # Errors
    /// It is of another version, or not whole.
    pub(crate) fn decode(mut from: &[u8]) -> io::Result<Self> {
        let from = &mut from;
        if take(from, 1)? != [VERSION] {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the peer's RDMA address has another format version",
            ));
        }
        let (base, proof_at) = (number(from, 8)?, number(from, 8)?);
        let mut proof = [0; PROOF_BYTES];
        proof.copy_from_slice(take(from, PROOF_BYTES)?);
        let card = Card { base, proof_at, proof, worker: part(from)?, pool_key: part(from)?, proof_key: part(from)? };
        if from.is_empty() { Ok(card) } else { Err(io::ErrorKind::InvalidData.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(worker: usize) -> Card {
        let worker = vec![1; worker];
        Card { base: 1 << 40, proof_at: 7, proof: [9; PROOF_BYTES], worker, pool_key: vec![2; 20], proof_key: vec![3] }
    }

    #[test]
    fn what_is_encoded_is_decoded_and_nothing_less_or_more() {
        let bytes = card(300).encode().expect("it fits");
        assert_eq!(Card::decode(&bytes).expect("whole"), card(300));
        for end in 0..bytes.len() {
            assert!(Card::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        assert!(Card::decode(&[&bytes[..], &[0]].concat()).is_err());
        assert!(Card::decode(&[&[2], &bytes[1..]].concat()).is_err());
    }

    #[test]
    fn one_that_would_not_fit_is_not_made() {
        assert!(card(CARD_BYTES).encode().is_err());
    }
}
