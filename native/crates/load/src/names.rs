//! A listing in plain text, checked while it arrives: names ascend, come after the marker, and are not too many.

/// The longest name; those that this crate gives are far shorter.
const MAX_NAME: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Names {
    last: Vec<u8>,
    line: Vec<u8>,
    count: u32,
    most: u32,
}

impl Names {
    pub(crate) fn after(marker: &[u8], most: u32) -> Self {
        Self { last: marker.to_vec(), line: Vec::new(), count: 0, most }
    }

    /// Take a part of the listing; what is wrong with it.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Option<&'static str> {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.line.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            if self.line <= self.last {
                return Some("its names do not ascend, or do not come after the marker");
            }
            self.count += 1;
            if self.count > self.most {
                return Some("it has more names than were asked for");
            }
            std::mem::swap(&mut self.last, &mut self.line);
            self.line.clear();
        }
        self.line.extend_from_slice(rest);
        (self.line.len() > MAX_NAME).then_some("it has a name that is too long")
    }
}
