//! A body in chunks: finds the data in it.

/// The longest line of a chunk's size with extensions, or of a trailer.
const MAX_LINE: usize = 4096;

#[derive(Debug)]
enum At {
    /// In a line that a chunk begins with.
    Size,
    /// In the data of a chunk.
    Data(u64),
    /// Behind the data, before the end of its line.
    DataEnd,
    /// Behind the last chunk.
    Trailer,
    End,
}

#[derive(Debug)]
pub(crate) struct Chunked {
    at: At,
    line: Vec<u8>,
}

impl Chunked {
    pub(crate) fn new() -> Self {
        Self { at: At::Size, line: Vec::new() }
    }

    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.at, At::End)
    }

    /// Take bytes; `data` is called with those of the body. How many were part of it, or None if it is malformed.
    pub(crate) fn take(&mut self, bytes: &[u8], mut data: impl FnMut(&[u8])) -> Option<usize> {
        let mut used = 0;
        while used < bytes.len() && !self.is_complete() {
            let rest = &bytes[used..];
            if let At::Data(left) = &mut self.at {
                let here = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                data(&rest[..here]);
                *left -= here as u64;
                used += here;
                if *left == 0 {
                    self.at = At::DataEnd;
                }
                continue;
            }
            let end = rest.iter().position(|byte| *byte == b'\n').map(|place| place + 1);
            let here = end.unwrap_or(rest.len());
            self.line.extend_from_slice(&rest[..here]);
            used += here;
            if self.line.len() > MAX_LINE {
                return None;
            }
            if end.is_some() {
                self.at = self.line_ended()?;
                self.line.clear();
            }
        }
        Some(used)
    }

    fn line_ended(&self) -> Option<At> {
        let is_empty = self.line == b"\r\n";
        match self.at {
            At::Size => match httparse::parse_chunk_size(&self.line) {
                Ok(httparse::Status::Complete((_, 0))) => Some(At::Trailer),
                Ok(httparse::Status::Complete((_, size))) => Some(At::Data(size)),
                _ => None,
            },
            At::DataEnd => is_empty.then_some(At::Size),
            At::Trailer => Some(if is_empty { At::End } else { At::Trailer }),
            At::Data(_) | At::End => None,
        }
    }
}
