//! Object servers and their callers, over real connections. One program, as all of them are compiled into each: most of the
//! time of building tests. What looks at its whole process has one of its own.

mod coded;
mod common;
mod container_server;
mod fragments;
mod guests;
mod messages;
mod model;
mod run;
mod server;
