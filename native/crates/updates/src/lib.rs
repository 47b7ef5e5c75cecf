//! Container updates of one device of a container server, taken without Python.
//!
//! Rows of objects are appended to a journal, merged into a table in memory, and answered; Python folds them into the
//! databases later, many at a time. [`Updates`] is the interface. `docs/design/2026-11-25-container-updates.md` has
//! the reasons, `docs/data-on-disk.md` the format of the journal.
//!
//! A row is *taken* when it is in the table and in the journal's file (the page cache keeps it when the process is
//! killed), and *durable* when that file was synced. What was only taken is still pending at the devices that store
//! the object, so a journal may lose its end. Rows merge in any order and any number of times: a row that is read
//! back from the journal although it was folded changes nothing.

mod database;
mod error;
mod journal;
mod merged;
mod record;
mod recover;
mod row;
mod syncs;
mod table;
mod updates;

pub use database::Database;
pub use error::Refused;
pub use merged::Merged;
pub use row::{MAX_BATCH_BYTES, MAX_BATCH_ROWS, Row, Rows, count_rows};
pub use table::{Limits, OutAlready};
pub use updates::{Body, Config, Durable, Status, Taken, TakenBy, Updates};
