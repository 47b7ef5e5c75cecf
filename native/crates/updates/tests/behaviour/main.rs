//! Container updates from outside, in one program.

mod common;
mod decode;
mod faults;
mod model;
