//! Rows of one database, the newest of each name, ordered by name.
//!
//! The merge is that of `ObjectRow.merged` in `services/swiftlet/model.py` for rows without POSTs: the newer one wins;
//! at the same timestamp a deletion wins, and then the larger value, which is arbitrary but the same everywhere. It is
//! commutative, associative and idempotent.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::row::Row;

/// Bytes that a row takes beside its texts: its columns, its share of a node of the tree, and what the allocator adds.
const ROW_BYTES: usize = 120;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Columns {
    timestamp: u64,
    size: u64,
    /// The ETag, then the content type: one piece of memory for both.
    texts: Box<str>,
    etag_bytes: u16,
    deleted: bool,
}

impl Columns {
    fn new(row: &Row<'_>) -> Self {
        let mut texts = String::with_capacity(row.etag.len() + row.content_type.len());
        texts.push_str(row.etag);
        texts.push_str(row.content_type);
        let (timestamp, size, deleted) = (row.timestamp, row.size, row.deleted);
        Self { timestamp, size, texts: texts.into(), etag_bytes: row.etag.len() as u16, deleted }
    }

    fn row<'a>(&'a self, name: &'a str) -> Row<'a> {
        let (etag, content_type) = self.texts.split_at(usize::from(self.etag_bytes));
        let Self { timestamp, size, deleted, .. } = *self;
        Row { name, timestamp, size, etag, content_type, deleted }
    }
}

/// The merge of two rows of one name in stored form.
fn merge<'a>(old: Row<'a>, new: Row<'a>) -> Row<'a> {
    if old.timestamp != new.timestamp {
        return if old.timestamp > new.timestamp { old } else { new };
    }
    let rank = |row: &Row<'a>| (row.deleted, row.size, row.etag);
    let data = if rank(&new) > rank(&old) { new } else { old };
    Row { content_type: old.content_type.max(new.content_type), ..data }.plain()
}

/// Rows by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    rows: BTreeMap<Box<str>, Columns>,
    bytes: usize,
}

impl Merged {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The memory that they take, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Merge a row.
    pub fn add(&mut self, row: &Row<'_>) {
        let row = row.plain();
        // Nearly all names are new: the name is copied before it is looked up, so that one search is enough.
        match self.rows.entry(row.name.into()) {
            Entry::Vacant(place) => {
                let columns = Columns::new(&row);
                self.bytes += row.name.len() + columns.texts.len() + ROW_BYTES;
                place.insert(columns);
            }
            Entry::Occupied(mut place) => {
                let old = place.get();
                let columns = Columns::new(&merge(old.row(row.name), row));
                self.bytes = self.bytes + columns.texts.len() - old.texts.len();
                place.insert(columns);
            }
        }
    }

    /// Merge the rows of two.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let (mut more, less) = if self.len() < other.len() { (other, self) } else { (self, other) };
        less.iter().for_each(|row| more.add(&row));
        more
    }

    /// The rows, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Row<'_>> {
        self.rows.iter().map(|(name, columns)| columns.row(name))
    }
}
