//! Fragments of erasure-coded objects: the decisions of devices, proxies and replicators, and the fragments' bytes,
//! without sockets and disks.
//!
//! `docs/design/2026-11-26-fragments.md` has the protocol and says why it is as it is. A write is durable as k+m
//! *prepared* fragments first, and *committed* afterwards; q devices of each step let its client be told 201. What
//! became of a write whose proxy is gone is decided by a majority of the devices that the proxy chose, by Paxos with
//! the proxy's commit as ballot 0.
//!
//! | module | decides |
//! |---|---|
//! | [`slot`] | what a device keeps of one fragment of an object |
//! | [`request`] | what it answers, and what has to be durable before |
//! | [`write`](mod@write) | how a proxy goes on with a write |
//! | [`deletion`] | how a proxy goes on with a deletion |
//! | [`recovery`] | what became of a write whose proxy is gone |
//! | [`read`](mod@read) | which version a reader gives, from which fragments |
//! | [`sync`] | what a place does about what another one shows |
//! | [`forms`] | small objects that become large, and large ones that become small |
//! | [`packs`] | how small objects get into packs, and packs go |
//!
//! | module | makes |
//! |---|---|
//! | [`block`], [`decision`] | what is stored with a fragment, and of decisions about it |
//! | [`cutting`] | fragments of an object that comes in |
//! | [`assembly`] | a range of an object from its fragments |
//! | [`rebuilding`] | a lost fragment |
//!
//! Fault model: processes stop at any moment, and begin again with what was durable; devices are replaced by empty
//! ones; messages are lost, repeated, late, and overtake each other; clocks say anything. Nobody lies. The simulation
//! in `tests/simulation` makes all of these happen to the code here.

mod answers;
pub mod assembly;
pub mod block;
mod cursor;
pub mod cutting;
pub mod decision;
pub mod deletion;
pub mod forms;
pub mod packs;
pub mod posting;
pub mod read;
pub mod rebuilding;
pub mod recovery;
pub mod request;
pub mod restoring;
pub mod slot;
pub mod sync;
mod terms;
mod version;
pub mod write;

pub use terms::Terms;
pub use version::{Accepted, Ballot, Device, Outcome, Version};

#[cfg(test)]
mod tests;
