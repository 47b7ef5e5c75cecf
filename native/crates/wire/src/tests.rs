//! The state machines against properties, and the specification's tables against the code.

mod document;
mod frames;
mod guests;
mod handshakes;
mod streams;
