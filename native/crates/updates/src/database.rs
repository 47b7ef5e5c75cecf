//! The name of a container's database on a device.

/// A container's database. Names of accounts and containers are texts that Python has checked: what it has not opened
/// is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Database {
    /// The partition of the container.
    pub partition: u32,
    /// Its account.
    pub account: String,
    /// Its name in the account.
    pub container: String,
}

impl Database {
    /// The database with these names.
    #[must_use]
    pub fn new(partition: u32, account: &str, container: &str) -> Self {
        Self { partition, account: account.to_owned(), container: container.to_owned() }
    }
}
