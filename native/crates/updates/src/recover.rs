//! Reads the files that earlier processes have left.
//!
//! Fault model: the process before may have been killed at any instruction, or power may have failed: a file may end
//! anywhere, have other bytes from there on, or be empty. Each is read up to its first record that is not whole; what
//! is behind was never durable. A file of another version of the format is not read, and stops the start: its rows
//! would be missing in listings. A read that fails stops it too.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use swiftlet_store::disk::{Disk, File};

use crate::record::{
    FILE_HEAD, FileHead, RECORD_HEAD, VERSION, file_name, file_number, payload_bytes, read_file_head, read_record,
};
use crate::table::Table;

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

/// A file from front to back.
struct Tape {
    file: Arc<dyn File>,
    buffer: Vec<u8>,
    /// Where the buffer begins in the file, and where the reader stands in the buffer.
    start: u64,
    at: usize,
}

impl Tape {
    fn offset(&self) -> u64 {
        self.start + self.at as u64
    }

    /// The next bytes without a step over them, fewer only at the file's end.
    fn look(&mut self, bytes: usize) -> io::Result<&[u8]> {
        if self.buffer.len() - self.at < bytes {
            self.start = self.offset();
            self.buffer.drain(..self.at);
            self.at = 0;
            let have = self.buffer.len();
            let from = self.start + have as u64;
            self.file.append_at(&mut self.buffer, PIECE.max(bytes - have), from)?;
        }
        let end = self.buffer.len().min(self.at + bytes);
        Ok(&self.buffer[self.at..end])
    }

    fn step(&mut self, bytes: usize) {
        self.at += bytes;
    }
}

/// Merge a file's rows into the table; returns where its last whole record ends.
fn read(file: Arc<dyn File>, number: u64, table: &mut Table) -> io::Result<u64> {
    let mut tape = Tape { file, buffer: Vec::new(), start: 0, at: 0 };
    let incarnation = match read_file_head(tape.look(FILE_HEAD)?, number) {
        FileHead::Of(incarnation) => incarnation,
        FileHead::Torn => return Ok(0),
        FileHead::Version(version) => {
            let what = file_name(number);
            return Err(io::Error::other(format!(
                "the journal {what} has format version {version}, this program understands {VERSION}: run a release of \
                 Swiftlet that understands it"
            )));
        }
    };
    tape.step(FILE_HEAD);
    loop {
        let offset = tape.offset();
        let head = tape.look(RECORD_HEAD)?;
        if head.len() < RECORD_HEAD {
            return Ok(offset);
        }
        let Some(payload) = payload_bytes(head, incarnation, offset) else { return Ok(offset) };
        let record = tape.look(RECORD_HEAD + payload)?;
        if record.len() < RECORD_HEAD + payload {
            return Ok(offset);
        }
        let Some((database, rows)) = read_record(record) else { return Ok(offset) };
        table.recover(database, rows, number);
        tape.step(RECORD_HEAD + payload);
    }
}

/// Put the rows of all files into the table, whose next rows go into a file behind them. Returns the files and their
/// sizes.
pub(crate) fn recover(disk: &Arc<dyn Disk>, table: &mut Table) -> io::Result<BTreeMap<u64, u64>> {
    let mut files = BTreeMap::new();
    let mut numbers: Vec<u64> = disk.list("")?.iter().filter_map(|name| file_number(name)).collect();
    numbers.sort_unstable();
    for number in numbers {
        let file = disk.open(&file_name(number))?;
        files.insert(number, file.size()?);
        read(file, number, table)?;
        table.leave_file(number);
    }
    Ok(files)
}
