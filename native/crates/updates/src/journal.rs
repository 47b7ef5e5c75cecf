//! The file that rows are appended to.
//!
//! Fault model: a write may fail or be torn at any byte. The file is then left as it is, since what stands at its end
//! is unknown: the next rows go into another file, and who reads this one ends at its last whole record.

use std::io::{self, IoSlice};
use std::sync::Arc;

use swiftlet_store::disk::{Disk, File};

use crate::database::Database;
use crate::record::{FILE_HEAD, file_head, file_name, record_head};

/// What was appended: its file, and bytes.
pub(crate) struct Appended {
    pub(crate) file: Arc<dyn File>,
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    /// Bytes in the file.
    pub(crate) size: u64,
}

struct Current {
    number: u64,
    file: Arc<dyn File>,
    size: u64,
}

/// The files of one process, one at a time.
pub(crate) struct Journal {
    disk: Arc<dyn Disk>,
    incarnation: u64,
    current: Option<Current>,
}

impl Journal {
    pub(crate) fn new(disk: Arc<dyn Disk>, incarnation: u64) -> Self {
        Self { disk, incarnation, current: None }
    }

    /// Append the rows of these databases to the file with this number; numbers never become lower. After an error
    /// the caller has to give a higher one.
    pub(crate) fn append(&mut self, number: u64, rows: &[(&Database, &[u8])]) -> io::Result<Appended> {
        // After an error there is no file: it comes back when all is well.
        let (mut current, begun) = match self.current.take().filter(|current| current.number == number) {
            Some(current) => (current, false),
            None => (Current { number, file: self.disk.create(&file_name(number))?, size: 0 }, true),
        };
        let mut heads = Vec::with_capacity(rows.len() + 1);
        let mut end = current.size;
        if begun {
            heads.push(file_head(self.incarnation, number));
            end += FILE_HEAD as u64;
        }
        for (database, rows) in rows {
            let head = record_head(self.incarnation, end, database, rows);
            end += (head.len() + rows.len()) as u64;
            heads.push(head);
        }
        let mut parts = Vec::with_capacity(2 * heads.len());
        let records = heads.len() - rows.len();
        parts.extend(heads[..records].iter().map(|head| IoSlice::new(head)));
        for (head, (_, rows)) in heads[records..].iter().zip(rows) {
            parts.extend([IoSlice::new(head), IoSlice::new(rows)]);
        }
        current.file.write_at(&parts, current.size)?;
        let bytes = end - current.size;
        current.size = end;
        let appended = Appended { file: Arc::clone(&current.file), number, bytes, size: end };
        self.current = Some(current);
        Ok(appended)
    }
}
