//! Random numbers for choices and ids, from the system's source, many at a time.

const ID_BYTES: usize = 11;

/// The rest of the last numbers.
pub(crate) struct Random {
    bytes: Vec<u8>,
    used: usize,
}

impl Random {
    pub(crate) fn new() -> std::io::Result<Self> {
        let mut bytes = vec![0; 4096];
        getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(Self { bytes, used: 0 })
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        if self.used + N > self.bytes.len() {
            // The source answers once it has begun to; were that to end, ids would repeat, and nothing else.
            let _ = getrandom::fill(&mut self.bytes);
            self.used = 0;
        }
        let mut out = [0; N];
        out.copy_from_slice(&self.bytes[self.used..self.used + N]);
        self.used += N;
        out
    }

    pub(crate) fn number(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }

    /// `tx` and 21 hexadecimal digits.
    pub(crate) fn id(&mut self) -> String {
        let mut id = String::with_capacity(2 + 2 * ID_BYTES);
        id.push_str("tx");
        for byte in self.take::<ID_BYTES>() {
            for digit in [byte >> 4, byte & 15] {
                id.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
            }
        }
        id.truncate(23);
        id
    }
}
