//! What a container's listing has of an object, in the two forms in which it is sent.

use swiftlet_node::message::updates;

/// An object's row, or that of its deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The object's name, without its container.
    pub name: Vec<u8>,
    /// Of the version.
    pub timestamp: u64,
    /// Bytes of the object.
    pub size: u64,
    /// Empty for a deletion, as the next one.
    pub etag: Vec<u8>,
    /// As the client gave it.
    pub content_type: Vec<u8>,
    /// Whether the object is deleted.
    pub deleted: bool,
}

impl Row {
    /// Append it as in a message of the native transport; None: it can't be sent so.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> Option<()> {
        let (name, etag) = (str::from_utf8(&self.name).ok()?, str::from_utf8(&self.etag).ok()?);
        let content_type = str::from_utf8(&self.content_type).ok()?;
        let Self { timestamp, size, deleted, .. } = *self;
        updates::Row { name, timestamp, size, etag, content_type, deleted }.encode(out).ok()
    }

    /// `[name, timestamp, size, etag, content type, deleted]`, as in a row stream.
    pub(crate) fn json(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.name.len() + self.content_type.len() + 96);
        out.push(b'[');
        text(&mut out, &self.name);
        out.extend_from_slice(format!(",{},{},", self.timestamp, self.size).as_bytes());
        text(&mut out, &self.etag);
        out.push(b',');
        text(&mut out, &self.content_type);
        out.extend_from_slice(if self.deleted { b",true]" } else { b",false]" });
        out
    }
}

/// Append bytes in UTF-8 as a JSON string.
pub(crate) fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            0..=0x1f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_json() {
        let row = Row {
            name: "a\"b\\c\n\u{1}ä".into(),
            timestamp: 7,
            size: 3,
            etag: b"abc".into(),
            content_type: b"text/plain; a=\"b\"".into(),
            deleted: false,
        };
        let expected = "[\"a\\\"b\\\\c\\u000a\\u0001ä\",7,3,\"abc\",\"text/plain; a=\\\"b\\\"\",false]";
        assert_eq!(String::from_utf8(row.json()).expect("text"), expected);
        let deletion = Row { name: b"a".into(), timestamp: 7, deleted: true, ..Row::default() };
        assert_eq!(String::from_utf8(deletion.json()).expect("text"), "[\"a\",7,0,\"\",\"\",true]");
    }
}
