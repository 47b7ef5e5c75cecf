//! The object that a request's path names.

use swiftlet_hash::md5;

/// Bytes of an object's name.
pub const MAX_OBJECT: usize = 1024;

/// The path up to the slash after the container, and the object's name after it, both as sent.
#[must_use]
pub fn split(target: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut slashes = target.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let (prefix, name) = target.split_at(slashes.nth(3)? + 1);
    (!name.is_empty()).then_some((prefix, name))
}

/// Append a piece of a path without its percent-encoding to `out`; returns whether it is valid UTF-8 without NUL.
#[must_use]
pub fn decode(piece: &[u8], out: &mut Vec<u8>) -> bool {
    let from = out.len();
    let mut bytes = piece.iter();
    while let Some(byte) = bytes.next() {
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|byte| char::from(*byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else { return false };
        out.push((high << 4 | low) as u8);
    }
    let name = &out[from..];
    !name.contains(&0) && std::str::from_utf8(name).is_ok()
}

/// The digest that places an object: `container` is `/account/container/`, decoded.
#[must_use]
pub fn digest(secret: (&[u8], &[u8]), container: &[u8], name: &[u8]) -> Option<[u8; 16]> {
    let mut text = Vec::with_capacity(secret.0.len() + container.len() + name.len() + secret.1.len());
    text.extend_from_slice(secret.0);
    text.extend_from_slice(container);
    let before = text.len();
    if !decode(name, &mut text) || text.len() - before > MAX_OBJECT {
        return None;
    }
    text.extend_from_slice(secret.1);
    Some(md5(&text))
}

/// The digest that places a container: `container` is `/account/container/`, decoded.
#[must_use]
pub fn container_digest(secret: (&[u8], &[u8]), container: &[u8]) -> [u8; 16] {
    let name = container.strip_suffix(b"/").unwrap_or(container);
    md5(&[secret.0, name, secret.1].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart() {
        assert_eq!(split(b"/v1/a/c/o/p"), Some((b"/v1/a/c/".as_slice(), b"o/p".as_slice())));
        assert_eq!(split(b"/v1/a/c//"), Some((b"/v1/a/c/".as_slice(), b"/".as_slice())));
        for no_object in [&b"/v1/a/c/"[..], b"/v1/a/c", b"/v1/a", b"/v1/"] {
            assert_eq!(split(no_object), None);
        }
    }

    #[test]
    fn escapes() {
        let decoded = |piece: &str| {
            let mut out = b"kept".to_vec();
            decode(piece.as_bytes(), &mut out).then_some(out)
        };
        assert_eq!(decoded("a%20b%2Fc"), Some(b"kepta b/c".to_vec()));
        assert_eq!(decoded("%c3%A4"), Some("keptä".into()));
        for broken in ["%", "%4", "%zz", "%C3", "a%00b", "%ff", "%+1"] {
            assert_eq!(decoded(broken), None, "{broken}");
        }
    }

    #[test]
    fn digests_are_of_the_decoded_name() {
        let one = digest((b"p", b"s"), b"/a/c/", b"o%70");
        assert_eq!(one, Some(md5(b"p/a/c/ops")));
        assert_eq!(digest((b"", b""), b"/a/c/", "o".repeat(MAX_OBJECT + 1).as_bytes()), None);
        assert!(digest((b"", b""), b"/a/c/", "%41".repeat(MAX_OBJECT).as_bytes()).is_some());
    }
}
