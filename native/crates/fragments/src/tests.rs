//! Decisions one by one, and all of them in a simulation; fragments' bytes.

mod bytes;
mod decisions;
mod forms;
mod packs;
mod records;
mod simulation;
