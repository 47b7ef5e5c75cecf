//! The device below a store: its secret number, its reserve, and the meaning of its errors.
//!
//! Fault model: any operation may answer with an I/O error. After a failed write or sync it is unknown what is on the
//! disk, and a second sync may report success wrongly; after a failed read the disk is not to be trusted either. The
//! device then does nothing more until it is opened again. A full disk is not a failure.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::disk::{Disk, File};
use crate::error::{Error, Result};
use crate::record::{DeviceId, u64_at};

const FORMAT: &str = "format";
const MAGIC: [u8; 8] = *b"SWLTSTOR";
const VERSION: u16 = 1;
const LEN: usize = 40;
/// With so many bytes more than are needed it is enough to know how much was free a moment ago: no disk takes as many
/// meanwhile.
pub(crate) const AMPLE_BYTES: u64 = 4 << 30;

/// One device, owned.
pub(crate) struct Device {
    /// Its file system.
    pub disk: Arc<dyn Disk>,
    /// Its secret number.
    pub id: DeviceId,
    reserve_bytes: u64,
    /// Whether `failed` has a reason; checked by every operation.
    out: AtomicBool,
    failed: Mutex<Option<String>>,
}

impl Device {
    /// A device with this number.
    #[must_use]
    pub(crate) fn new(disk: Arc<dyn Disk>, id: DeviceId, reserve_bytes: u64) -> Self {
        Self { disk, id, reserve_bytes, out: AtomicBool::new(false), failed: Mutex::new(None) }
    }

    /// Return `DeviceFailed` once anything has failed.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.out.load(Ordering::Acquire) {
            return Ok(());
        }
        match &*self.failed.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(reason) => Err(Error::DeviceFailed(reason.clone())),
            None => Ok(()),
        }
    }

    /// Stop all use of the device.
    pub(crate) fn fail(&self, reason: &str) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| reason.to_owned());
        self.out.store(true, Ordering::Release);
    }

    /// Turn the outcome of an operation into the domain's error; an I/O error ends all use of the device.
    pub(crate) fn io<T>(&self, what: &str, outcome: io::Result<T>) -> Result<T> {
        outcome.map_err(|error| {
            let error = Error::of_io(&error, what);
            if let Error::DeviceFailed(reason) = &error {
                self.fail(reason);
            }
            error
        })
    }

    /// Make a file durable.
    pub(crate) fn sync(&self, file: &dyn File) -> Result<()> {
        self.io("sync", file.sync())
    }

    /// Make a directory's names durable.
    pub(crate) fn sync_directory(&self, path: &str) -> Result<()> {
        self.io("sync a directory", self.disk.sync_directory(path))
    }

    /// Return `DiskFull` when so many more bytes would use the reserve.
    pub(crate) fn check_room(&self, bytes: u64) -> Result<()> {
        if self.reserve_bytes == 0 && bytes == 0 {
            return Ok(());
        }
        let (_, before) = self.io("ask for free space", self.disk.recent_space())?;
        if before >= self.reserve_bytes.saturating_add(bytes).saturating_add(AMPLE_BYTES) {
            return Ok(());
        }
        let (_, free) = self.io("ask for free space", self.disk.space())?;
        if free.saturating_sub(bytes) < self.reserve_bytes {
            return Err(Error::DiskFull(format!(
                "only {free} bytes are free, and {} bytes are kept in reserve; remove data or add devices",
                self.reserve_bytes
            )));
        }
        Ok(())
    }
}

/// The content of the file `format`.
pub(crate) enum Format {
    /// A device of ours.
    Known(DeviceId),
    /// The file is missing or damaged.
    Unknown,
}

/// Read the file `format`; a newer version is refused.
pub(crate) fn read_format(disk: &dyn Disk) -> Result<Format> {
    let mut raw = [0; LEN];
    let read = match disk.open(FORMAT) {
        Ok(file) => file.read_at(&mut raw, 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Format::Unknown),
        Err(error) => Err(error),
    };
    let read = read.map_err(|error| Error::of_io(&error, "read the format"))?;
    if read < LEN || raw[..8] != MAGIC || swiftlet_hash::xxh3_64(&raw[..32]) != u64_at(&raw, 32) {
        return Ok(Format::Unknown);
    }
    check_version(u16::from_be_bytes([raw[8], raw[9]]))?;
    let mut id = [0; 16];
    id.copy_from_slice(&raw[16..32]);
    Ok(Format::Known(id))
}

/// Return `Format` for a version that this program does not know.
pub(crate) fn check_version(version: u16) -> Result<()> {
    if version == VERSION {
        return Ok(());
    }
    Err(other_version("the device", version, VERSION))
}

/// The error for data of another format version: which data, the version found, and the version understood.
pub(crate) fn other_version(what: &str, found: u16, understood: u16) -> Error {
    Error::Format(format!(
        "{what} has format version {found}, this program understands {understood}: run a release of Swiftlet that \
         understands it"
    ))
}

/// Write the file `format`, completely or not at all.
pub(crate) fn write_format(disk: &dyn Disk, id: &DeviceId) -> io::Result<()> {
    let mut raw = Vec::with_capacity(LEN);
    raw.extend_from_slice(&MAGIC);
    raw.extend_from_slice(&VERSION.to_be_bytes());
    raw.extend_from_slice(&[0; 6]);
    raw.extend_from_slice(id);
    let check = swiftlet_hash::xxh3_64(&raw);
    raw.extend_from_slice(&check.to_be_bytes());
    let temporary = "format.tmp";
    if let Err(error) = disk.unlink(temporary)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let file = disk.create(temporary)?;
    file.write_at(&[IoSlice::new(&raw)], 0)?;
    disk.reach("format-written");
    file.sync()?;
    disk.rename(temporary, FORMAT)?;
    disk.reach("format-placed");
    disk.sync_directory("")
}
