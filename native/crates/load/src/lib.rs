//! Loads a store that speaks the Swift API or S3 over HTTP/1.1, and measures what comes back.
//!
//! `docs/design/2026-11-27-load-generator.md` has the decisions. [`Plan`] says what is stored and done, [`Order`] what is
//! done next, [`Load`] does it in threads of its own. What a thread does is in [`engine`], over the trait
//! [`engine::World`]: it has neither sockets nor a clock, so that tests can simulate both.
//!
//! Fault model: the store may answer anything, late, wrongly or not at all, and cut connections at any time. Each of
//! these ends one operation, with its kind of failure; none ends the run.

mod chunked;
pub mod contents;
pub mod engine;
mod exchange;
mod load;
mod names;
mod pace;
mod plan;
mod population;
mod random;
mod secure;
mod share;
mod signing;
pub mod sizes;
mod sockets;
pub mod tally;
#[cfg(test)]
mod tests;

pub use exchange::Failure;
pub use load::{Error, Load, Outcome};
pub use plan::{Api, Kind, Length, Measure, Nanos, Order, Pace, Pause, Phase, Plan, Target};
pub use secure::Trust;
pub use signing::Keys;
