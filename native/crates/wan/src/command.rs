//! What can be asked of the router: one command in each datagram, one answer to it.
//!
//! | command | |
//! |---|---|
//! | `join NAME ADDRESS/BITS` | a region of these addresses; its TUN device comes with the datagram |
//! | `link FROM TO [FIELD=NUMBER ...]` | change fields of one direction; what is not named stays as it is |
//! | `cut FROM TO`, `heal FROM TO` | nothing passes in this direction, until it is healed |
//! | `stats` | a line for each direction: what has passed, and what has not |
//!
//! Fields: `delay_ms`, `jitter_ms`, `rate_mbit` (10^6 bits per second), `queue_kib`, `loss_percent`.

use std::fmt::Write as _;

use crate::link::Shape;
use crate::network::{Network, Prefix};

/// The largest size of a command.
pub const MAX_BYTES: usize = 512;

const NANOS_PER_MS: f64 = 1e6;
const MAX_NAME: usize = 32;

/// A command.
#[derive(Debug, PartialEq)]
pub enum Command {
    /// Add a region.
    Join(String, Prefix),
    /// Change a link.
    Link(String, String, Vec<(Field, f64)>),
    /// Cut a link, or heal it.
    Cut(String, String, bool),
    /// Tell what was counted.
    Stats,
}

/// A field of a link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Field {
    /// Milliseconds.
    Delay,
    /// Milliseconds.
    Jitter,
    /// 10^6 bits per second.
    Rate,
    /// KiB.
    Queue,
    /// Percent of packets.
    Loss,
}

impl Command {
    /// Read a command; an error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["join", name, addresses] => Ok(Self::Join(named(name)?, prefix(addresses)?)),
            ["link", from, to, ref fields @ ..] => {
                let fields = fields.iter().map(|one| field(one)).collect::<Result<_, _>>()?;
                Ok(Self::Link(from.to_owned(), to.to_owned(), fields))
            }
            ["cut", from, to] => Ok(Self::Cut(from.to_owned(), to.to_owned(), true)),
            ["heal", from, to] => Ok(Self::Cut(from.to_owned(), to.to_owned(), false)),
            ["stats"] => Ok(Self::Stats),
            _ => Err("the commands are: join NAME ADDRESS/BITS, link FROM TO FIELD=NUMBER ..., cut FROM TO, \
                      heal FROM TO, stats"
                .to_owned()),
        }
    }

    /// Do what is asked of the network; returns the answer.
    pub fn run(&self, network: &mut Network) -> Result<String, String> {
        match self {
            Self::Join(name, prefix) => network.join(name, *prefix).map(|number| format!("region {number}")),
            Self::Link(from, to, fields) => {
                let shape = &mut network.link_of(from, to)?.shape;
                fields.iter().for_each(|(field, value)| field.set(shape, *value));
                Ok(String::new())
            }
            Self::Cut(from, to, is_cut) => {
                network.link_of(from, to)?.shape.is_cut = *is_cut;
                Ok(String::new())
            }
            Self::Stats => Ok(stats(network)),
        }
    }
}

impl Field {
    fn set(self, shape: &mut Shape, value: f64) {
        match self {
            Self::Delay => shape.delay = (value * NANOS_PER_MS) as u64,
            Self::Jitter => shape.jitter = (value * NANOS_PER_MS) as u64,
            Self::Rate => shape.rate = value * 1e6 / 8.0,
            Self::Queue => shape.queue_bytes = (value * 1024.0) as u64,
            Self::Loss => shape.loss = value / 100.0,
        }
    }
}

fn named(name: &str) -> Result<String, String> {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if name.len() > MAX_NAME || !is_plain {
        return Err(format!("a region's name has letters, digits and hyphens, {MAX_NAME} at most"));
    }
    Ok(name.to_owned())
}

fn prefix(text: &str) -> Result<Prefix, String> {
    let wrong = || format!("{text}: addresses are written as 10.1.0.0/16");
    let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
    let address = address.parse().map_err(|_| wrong())?;
    let bits = bits.parse().ok().filter(|bits| (1..=32).contains(bits)).ok_or_else(wrong)?;
    Ok(Prefix { address, bits })
}

fn field(text: &str) -> Result<(Field, f64), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("{text}: a field is written as NAME=NUMBER"))?;
    let (field, least, most) = match name {
        "delay_ms" => (Field::Delay, 0.0, 10_000.0),
        "jitter_ms" => (Field::Jitter, 0.0, 10_000.0),
        "rate_mbit" => (Field::Rate, 0.001, 1e6),
        "queue_kib" => (Field::Queue, 2.0, 1048576.0),
        "loss_percent" => (Field::Loss, 0.0, 99.0),
        _ => return Err(format!("{name}: the fields are delay_ms, jitter_ms, rate_mbit, queue_kib, loss_percent")),
    };
    let value: f64 = value.parse().map_err(|_| format!("{text}: not a number"))?;
    if !(least..=most).contains(&value) {
        return Err(format!("{name} is from {least} to {most}"));
    }
    Ok((field, value))
}

fn stats(network: &Network) -> String {
    let mut text = format!("strays={}\n", network.strays);
    for (from, sender) in network.regions().iter().enumerate() {
        for (to, receiver) in network.regions().iter().enumerate().filter(|(to, _)| *to != from) {
            let counts = network.link(from, to).counts;
            let _ = writeln!(
                text,
                "{} {} packets={} bytes={} cut={} lost={} dropped={}",
                sender.name, receiver.name, counts.packets, counts.bytes, counts.cut, counts.lost, counts.dropped
            );
        }
    }
    text
}
