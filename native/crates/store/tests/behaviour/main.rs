//! The store from outside. One program, as the store is compiled into each: most of the time of building tests.

#[path = "../common/mod.rs"]
mod common;

mod at_once;
mod callbacks;
mod crash;
mod damage;
mod fragments;
mod packs;
mod pending;
mod posts;
mod upkeep;
