//! Files of large objects: their names and numbers.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::device::Device;
use crate::error::Result;

/// The directory of large files.
pub(crate) const DIRECTORY: &str = "large";

/// Assigns numbers, and makes the directories that they need.
pub(crate) struct Numbers {
    next: AtomicU64,
    made: Mutex<HashSet<u8>>,
}

impl Numbers {
    pub(crate) fn new(next: u64) -> Self {
        Self { next: AtomicU64::new(next.max(1)), made: Mutex::default() }
    }

    /// A number that no file has, whose directory exists durably.
    pub(crate) fn take(&self, device: &Device) -> Result<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let low = number as u8;
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if !made.contains(&low) {
            device.io("make a directory", device.disk.make_directory(&directory_of(number)))?;
            device.sync_directory(DIRECTORY)?;
            made.insert(low);
        }
        Ok(number)
    }
}

/// The directory of a large file.
pub(crate) fn directory_of(number: u64) -> String {
    format!("{DIRECTORY}/{:02x}", number as u8)
}

/// The path of a large file.
pub(crate) fn path_of(number: u64) -> String {
    format!("{}/{number:016x}", directory_of(number))
}
