//! Numbers and runs of bytes in the messages of replicators, as `docs/sync.md` has them.

use crate::model::{Key, Pairs};

/// Why bytes are not such a message.
pub type Malformed = String;

/// Parses bytes from front to back.
pub(crate) struct Cursor<'a> {
    /// What is left.
    pub(crate) data: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn take(&mut self, size: u64) -> Result<&'a [u8], Malformed> {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let Some((head, rest)) = self.data.split_at_checked(size) else {
            return Err("the message about copies is truncated".into());
        };
        self.data = rest;
        Ok(head)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        let mut raw = [0; 8];
        raw.copy_from_slice(self.take(8)?);
        Ok(u64::from_be_bytes(raw))
    }

    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a number in the message about copies is too large".into())
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let size = self.varint()?;
        self.take(size)
    }

    pub(crate) fn pairs(&mut self) -> Result<Pairs, Malformed> {
        let mut found = Vec::new();
        for _ in 0..self.varint()? {
            found.push((self.bytes()?.to_vec(), self.bytes()?.to_vec()));
        }
        Ok(found)
    }

    pub(crate) fn policy(&mut self) -> Result<u16, Malformed> {
        u16::try_from(self.varint()?).map_err(|_| "there is no such policy".to_owned())
    }

    pub(crate) fn key(&mut self, policy: u16) -> Result<Key, Malformed> {
        let partition = u32::try_from(self.varint()?).map_err(|_| "there is no such partition".to_owned())?;
        let mut digest = [0; 16];
        digest.copy_from_slice(self.take(16)?);
        Ok(Key { policy, partition, digest })
    }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(value as u8 & 0x7f | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, data: &[u8]) {
    put_varint(out, data.len() as u64);
    out.extend_from_slice(data);
}

pub(crate) fn put_pairs(out: &mut Vec<u8>, pairs: &Pairs) {
    put_varint(out, pairs.len() as u64);
    for (name, value) in pairs {
        put_bytes(out, name);
        put_bytes(out, value);
    }
}
