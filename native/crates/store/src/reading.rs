//! Reads and checks single records.

use crate::disk::File;
use crate::error::{Error, Result};
use crate::inner::Inner;
use crate::model::{Footer, Key, PostMeta, PutMeta};
use crate::post::Post;
use crate::quarantine;
use crate::record::{ALIGN, HEADER, Header, Parsed, Place, parse_post, parse_put};

/// Bytes that are read at once when the data is not wanted: header and, nearly always, the metadata.
pub(crate) const HEAD_BYTES: u64 = 2048;

/// Why a version can't be read.
pub(crate) enum Trouble {
    /// It is damaged, at this place.
    Unsound(Place, &'static str),
    /// Something else.
    Other(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// A record as it was read.
pub(crate) struct Raw {
    pub(crate) header: Header,
    pub(crate) bytes: Vec<u8>,
}

impl Raw {
    pub(crate) fn metadata(&self) -> &[u8] {
        &self.bytes[HEADER..HEADER + self.header.metadata_len as usize]
    }
}

/// Read a record's header and metadata, and what follows them up to `want` bytes in all.
pub(crate) fn read_record(
    inner: &Inner,
    key: &Key,
    file: &dyn File,
    place: Place,
    len: u64,
    want: u64,
) -> Result<Raw, Trouble> {
    let unsound = |what| Trouble::Unsound(place, what);
    let mut bytes = Vec::new();
    let read = |bytes: &mut Vec<u8>, count: usize| {
        let at = place.offset() + bytes.len() as u64;
        inner.device.io("read a volume", file.append_at(bytes, count, at))
    };
    read(&mut bytes, want.min(len) as usize)?;
    let header = header_of(inner, key, &bytes, place, len)?;
    let need = HEADER + header.metadata_len as usize;
    if bytes.len() < need {
        let missing = need - bytes.len();
        if read(&mut bytes, missing)? < missing {
            return Err(unsound("it is cut off"));
        }
    }
    checked(Raw { header, bytes })
}

/// All of a record, which was read as a whole.
pub(crate) fn whole_record(inner: &Inner, key: &Key, bytes: Vec<u8>, place: Place) -> Result<Raw, Trouble> {
    let (header, _) = head_of(inner, key, &bytes, place)?;
    checked(Raw { header, bytes })
}

/// Header and metadata of a record, which was read as a whole.
pub(crate) fn head_of_record(inner: &Inner, key: &Key, bytes: &[u8], place: Place) -> Result<Raw, Trouble> {
    let (header, head) = head_of(inner, key, bytes, place)?;
    checked(Raw { header, bytes: head.to_vec() })
}

fn head_of<'a>(inner: &Inner, key: &Key, bytes: &'a [u8], place: Place) -> Result<(Header, &'a [u8]), Trouble> {
    let header = header_of(inner, key, bytes, place, bytes.len() as u64)?;
    let head = bytes.get(..HEADER + header.metadata_len as usize);
    Ok((header, head.ok_or(Trouble::Unsound(place, "it is cut off"))?))
}

fn header_of(inner: &Inner, key: &Key, bytes: &[u8], place: Place, len: u64) -> Result<Header, Trouble> {
    let Parsed::Sound(header) = Header::parse(bytes, place, &inner.device.id) else {
        return Err(Trouble::Unsound(place, "its header is damaged"));
    };
    if header.key != *key || header.record_len() != len {
        return Err(Trouble::Unsound(place, "another record is in its place"));
    }
    Ok(header)
}

fn checked(raw: Raw) -> Result<Raw, Trouble> {
    if swiftlet_hash::xxh3_64(raw.metadata()) != raw.header.metadata_xxh3 {
        return Err(Trouble::Unsound(raw.header.place, "its metadata is damaged"));
    }
    Ok(raw)
}

/// Decode a record of data.
pub(crate) fn put_of(raw: &Raw) -> Result<(PutMeta, Footer), Trouble> {
    parse_put(&raw.header, raw.metadata()).ok_or(Trouble::Unsound(raw.header.place, "its metadata is malformed"))
}

/// Decode a record of a POST.
pub(crate) fn load_post(inner: &Inner, key: &Key, post: &Post, file: &dyn File) -> Result<PostMeta, Trouble> {
    let len = u64::from(post.units) * ALIGN;
    let raw = read_record(inner, key, file, post.place, len, len)?;
    parse_post(&raw.header, raw.metadata()).ok_or(Trouble::Unsound(post.place, "its metadata is malformed"))
}

/// The POST that is held, for merging; a damaged one is set aside and ignored.
pub(crate) fn post_at(inner: &Inner, key: &Key, post: &Post) -> Result<Option<PostMeta>> {
    let Some(volume) = inner.volumes.get(post.place.volume()) else { return Ok(None) };
    match load_post(inner, key, post, &*volume.file) {
        Ok(meta) => Ok(Some(meta)),
        Err(Trouble::Unsound(place, _)) => {
            quarantine::set_post_aside(inner, key, place)?;
            Ok(None)
        }
        Err(Trouble::Other(error)) => Err(error),
    }
}
