//! What the kernel's device mapper target `log-writes` has recorded, written to another disk up to a mark.
//!
//! The target puts a write into its log when it has been flushed, so a replay to a mark gives what a disk holds that keeps nothing
//! but what it was made to. Format: `drivers/md/dm-log-writes.c`: a block with the head, then a block per entry, with what
//! a mark says in it, followed by what was written. Numbers are little-endian, positions in the head's blocks.

use std::fs::{File, OpenOptions};
use std::io::{Error, Result};
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const DISCARD: u64 = 4;
const MARK: u64 = 8;
const ENTRY_BYTES: usize = 32;

/// A log that is being replayed.
pub(crate) struct Log {
    log: File,
    to: File,
    block_bytes: u64,
    at: u64,
    left: u64,
    /// Entries written so far.
    pub(crate) entries: u64,
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().expect("eight bytes"))
}

impl Log {
    /// The log on one device, for another one that is as the recorded one was in the beginning.
    pub(crate) fn open(log: &Path, to: &Path) -> Result<Self> {
        let (log, to) = (File::open(log)?, OpenOptions::new().write(true).open(to)?);
        let mut head = [0; ENTRY_BYTES];
        log.read_exact_at(&mut head, 0)?;
        if number(&head, 0) != MAGIC || number(&head, 1) != 1 {
            return Err(Error::other("no log of version 1"));
        }
        let block_bytes = u64::from(u32::from_le_bytes(head[24..28].try_into().expect("four bytes")));
        Ok(Self { log, to, block_bytes, at: block_bytes, left: number(&head, 2), entries: 0 })
    }

    /// Write what lies before the next mark; what that says. An error if there is none.
    pub(crate) fn until_next_mark(&mut self) -> Result<String> {
        loop {
            self.left = self.left.checked_sub(1).ok_or_else(|| Error::other("the log has no such mark"))?;
            let mut entry = vec![0; self.block_bytes as usize];
            self.log.read_exact_at(&mut entry, self.at)?;
            let [block, blocks, flags, said] = [0, 1, 2, 3].map(|at| number(&entry, at));
            self.at += self.block_bytes;
            if flags & MARK != 0 {
                self.to.sync_all()?;
                let text = &entry[ENTRY_BYTES..][..said as usize];
                let text = text.split(|&byte| byte == 0).next().unwrap_or(text);
                return Ok(String::from_utf8_lossy(text).into_owned());
            }
            // What was discarded may be anything: here it stays as it was.
            if flags & DISCARD == 0 {
                let mut data = vec![0; (blocks * self.block_bytes) as usize];
                self.log.read_exact_at(&mut data, self.at)?;
                self.to.write_all_at(&data, block * self.block_bytes)?;
                self.at += data.len() as u64;
            }
            self.entries += 1;
        }
    }
}
