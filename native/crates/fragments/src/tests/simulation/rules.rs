//! The rules that the simulation goes by: those of the crate, unless a mutant breaks one.

use crate::request::{self, Answer, Request};
use crate::slot::{Change, Shown, Slot};
use crate::sync::{self, Todo};
use crate::{Terms, Version};

/// What can be broken.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// What a device answers.
    pub(crate) answer: fn(&Slot, &Request) -> (Option<Change>, Answer),
    /// How whoever asked hears the answer.
    pub(crate) heard: fn(&Request, Answer) -> Answer,
    /// What a place shows.
    pub(crate) shown: fn(&Slot) -> Option<Shown>,
    /// What a place does about it.
    pub(crate) compare: fn(&Slot, Option<&Shown>) -> Todo,
    /// What a handoff does about it.
    pub(crate) returned: fn(&Slot, Option<&Shown>) -> Option<Change>,
    /// The numbers that proxies go by.
    pub(crate) writing: fn(Terms) -> Terms,
    /// The numbers of recoveries.
    pub(crate) recovering: fn(Terms) -> Terms,
    /// The numbers of reads.
    pub(crate) reading: fn(Terms) -> Terms,
    /// The numbers of rounds of sync.
    pub(crate) settling: fn(Terms) -> Terms,
    /// The nonce of a ballot, from a random one.
    pub(crate) nonce: fn(u64) -> u64,
    /// Whether a device may answer what its predecessor was asked.
    pub(crate) is_successor_asked: bool,
    /// Whether fragments of these two versions are taken to belong together.
    pub(crate) is_same: fn(Version, Version) -> bool,
    /// Whether devices ask what became of a write.
    pub(crate) is_recovered: bool,
    /// Whether a proxy that gives up tells the devices so even after it has sent commits.
    pub(crate) discards_always: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            answer: request::answer,
            heard: |_, answer| answer,
            shown: Slot::shown,
            compare: sync::compare,
            returned: sync::returned,
            writing: |terms| terms,
            recovering: |terms| terms,
            reading: |terms| terms,
            settling: |terms| terms,
            nonce: |nonce| nonce,
            is_successor_asked: false,
            is_same: |one, other| one == other,
            is_recovered: true,
            discards_always: false,
        }
    }
}
