//! Objects that are shown as they are stored: no manifest, no link, nothing that expires, or has expired. Whoever moves
//! data without Python moves these only.

use swiftlet_store::model::Info;

/// Metadata that become headers unchanged.
const SHOWN: [&[u8]; 6] =
    [b"Content-Encoding", b"Content-Disposition", b"Content-Language", b"Cache-Control", b"Expires", b"X-Robots-Tag"];

/// The metadata item with the time at which an object goes, in seconds since 1970 with ten digits.
pub const DELETE_AT: &[u8] = b"X-Delete-At";

/// The prefix of metadata that are a client's own.
pub(crate) const META: &[u8] = b"X-Object-Meta-";

/// Whether a plain read shows this object as it is stored.
#[must_use]
pub fn is_plain(info: &Info) -> bool {
    info.delete_at == 0 && is_plain_until(info, None)
}

/// Whether a plain read at a time, in whole seconds since 1970, shows this object as it is stored: it may have a time
/// to go, which has not come.
#[must_use]
pub fn is_plain_at(info: &Info, now_s: u64) -> bool {
    if info.delete_at == 0 {
        return is_plain(info);
    }
    // Of another form, or not the same in both places, it means what Python says.
    let shown = format!("{:010}", info.delete_at);
    let is_known = info.metadata.iter().any(|(name, value)| name == DELETE_AT && *value == shown.as_bytes());
    is_known && info.delete_at > now_s && is_plain_until(info, Some(shown.as_bytes()))
}

/// Whether it is plain but for its time to go, of which this is the text.
fn is_plain_until(info: &Info, delete_at: Option<&[u8]>) -> bool {
    info.sysmeta.is_empty()
        && is_plain_type(&info.content_type)
        && is_value(&info.etag)
        && info.metadata.iter().all(|(name, value)| match delete_at {
            Some(shown) if name == DELETE_AT => value == shown,
            _ => is_shown(name) && is_value(value),
        })
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
