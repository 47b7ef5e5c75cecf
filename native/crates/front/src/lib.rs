//! The clients' side of a proxy without Python: plain reads, small PUTs and DELETEs with a grant are answered here
//! completely; every other connection is handed over, with the bytes read so far, to Python.
//!
//! `docs/design/2026-11-21-front.md` says which requests it answers and why. Nothing is decided here: a [`Grants`]
//! entry is a decision that was made by Python, and ends soon. [`head`], [`conditions`], [`name`] and [`answer`] are pure;
//! [`Front`] is the thread around them.

pub mod answer;
mod attempt;
mod body;
mod bridge;
mod changes;
mod checking;
pub mod conditions;
mod connection;
mod date;
mod flow;
mod front;
pub mod grants;
mod handoffs;
pub mod head;
mod hedging;
mod link;
mod made;
pub mod name;
mod passing;
mod queue;
mod queueing;
mod random;
mod reactor;
mod reading;
mod receiving;
mod records;
mod replies;
mod room;
mod routes;
mod row;
mod secure;
mod session;
mod shared;
mod source;
mod storing;
#[cfg(test)]
mod tests;
mod tickets;
mod turns;
mod undecided;
mod updates;

pub use changes::Changes;
pub use front::Front;
pub use grants::{Granted, Grants, Seen};
pub use handoffs::Site;
pub use made::{Batch, Made};
pub use records::{Counted, Records};
pub use room::{Amounts, Level, Listed, Returned, Spent};
pub use routes::{Coding, Device, Policy, Unusable};
pub use row::Row;
pub use secure::{Handshakes, Refused, Secure};
pub use shared::{Handed, Secured, Served, Settings};
pub use updates::Rows;
