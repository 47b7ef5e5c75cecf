//! Decisions one by one, and all of them in a simulation.

mod decisions;
mod simulation;
