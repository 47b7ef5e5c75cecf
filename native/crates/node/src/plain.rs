//! Objects that are shown as they are stored: no manifest, no link, nothing that expires. Whoever moves data without
//! Python moves these only.

use swiftlet_store::model::Info;

/// Metadata that become headers unchanged.
const SHOWN: [&[u8]; 6] =
    [b"Content-Encoding", b"Content-Disposition", b"Content-Language", b"Cache-Control", b"Expires", b"X-Robots-Tag"];

/// The prefix of metadata that are a client's own.
pub(crate) const META: &[u8] = b"X-Object-Meta-";

/// Whether a plain read shows this object as it is stored.
#[must_use]
pub fn is_plain(info: &Info) -> bool {
    info.delete_at == 0
        && info.sysmeta.is_empty()
        && is_plain_type(&info.content_type)
        && is_value(&info.etag)
        && info.metadata.iter().all(|(name, value)| is_shown(name) && is_value(value))
}

/// Whether a content type means nothing beyond itself.
pub(crate) fn is_plain_type(content_type: &[u8]) -> bool {
    let marked = content_type.windows(7).any(|part| part.eq_ignore_ascii_case(b";swift_"));
    !content_type.is_empty() && is_value(content_type) && !marked
}

/// Whether metadata of this name are shown as they are.
pub(crate) fn is_shown(name: &[u8]) -> bool {
    is_name(name) && (name.starts_with(META) || SHOWN.contains(&name))
}

/// Whether this has the form of an ETag: MD5 or xxh3-128 in hex.
pub(crate) fn is_etag(etag: &[u8]) -> bool {
    let digits = etag.strip_prefix(b"xxh3-").unwrap_or(etag);
    digits.len() == 32 && digits.iter().all(|digit| digit.is_ascii_digit() || (b'a'..=b'f').contains(digit))
}

fn is_name(name: &[u8]) -> bool {
    name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte))
}

pub(crate) fn is_value(value: &[u8]) -> bool {
    let outer_blank = value.first() == Some(&b' ') || value.last() == Some(&b' ');
    !outer_blank && value.iter().all(|byte| *byte >= b' ' && *byte != 0x7f) && std::str::from_utf8(value).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags_have_one_of_two_forms() {
        let md5 = [b'a'; 32];
        assert!(is_etag(&md5) && is_etag(&[&b"xxh3-"[..], &md5].concat()));
        for wrong in [&md5[1..], &[b'A'; 32], b"", &[&b"xxh4-"[..], &md5].concat()] {
            assert!(!is_etag(wrong));
        }
    }
}
