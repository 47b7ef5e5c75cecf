//! What is asked of the generator. Times are nanoseconds.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::secure::Trust;
use crate::signing::Keys;
use crate::sizes::Sizes;

/// A moment, in nanoseconds since a world began, or a time between two.
pub type Nanos = u64;

/// Threads of one generator.
pub(crate) const MAX_THREADS: usize = 64;
/// Connections of one generator.
pub(crate) const MAX_CONNECTIONS: usize = 65_536;
/// Containers that objects are spread over.
pub(crate) const MAX_CONTAINERS: u32 = 1_000_000;

/// Kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// PUT of a new object.
    Create,
    /// GET of an object, whole.
    Read,
    /// PUT over an object that there is.
    Update,
    /// DELETE.
    Delete,
    /// GET of a container: a page of names, beginning anywhere.
    List,
    /// HEAD of an object.
    Head,
    /// PUT of a container, before measuring.
    CreateContainer,
    /// DELETE of a container, after measuring.
    DeleteContainer,
}

impl Kind {
    /// Those that a mix consists of.
    pub const OPERATIONS: [Self; 6] = [Self::Create, Self::Read, Self::Update, Self::Delete, Self::List, Self::Head];

    /// Its name in scenarios and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Read => "read",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::List => "list",
            Self::Head => "head",
            Self::CreateContainer => "create_container",
            Self::DeleteContainer => "delete_container",
        }
    }

    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::Create | Self::Update | Self::CreateContainer => "PUT",
            Self::Read | Self::List => "GET",
            Self::Delete | Self::DeleteContainer => "DELETE",
            Self::Head => "HEAD",
        }
    }
}

/// What a store speaks. Objects have the same paths everywhere: the target's, a container's name, and their own.
#[derive(Clone, Debug)]
pub enum Api {
    /// OpenStack Swift's.
    Swift,
    /// S3 with buckets in the path; without keys requests are not signed.
    S3(Option<Keys>),
    /// PUT, GET, HEAD and DELETE of files; the store makes folders as it needs them, and keeps them.
    Files,
}

/// Where the store is.
#[derive(Clone, Debug)]
pub struct Target {
    /// What it speaks.
    pub api: Api,
    /// Connections go to them in turn.
    pub addresses: Vec<SocketAddr>,
    /// What `Host` says.
    pub host: String,
    /// The account's path, percent-encoded, without a slash at the end.
    pub path: String,
    /// Further headers of each request, `X-Auth-Token` among them.
    pub headers: Vec<(String, String)>,
    /// For HTTPS.
    pub trust: Option<Arc<Trust>>,
}

/// What is stored where, and what is done with it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the store is.
    pub target: Target,
    /// Containers' names begin with it.
    pub prefix: String,
    /// How many containers objects are spread over.
    pub containers: u32,
    /// Of objects.
    pub sizes: Sizes,
    /// Operations with their weights.
    pub mix: Vec<(Kind, f64)>,
    /// Names in a page of a listing.
    pub page: u32,
    /// Everything random follows from it.
    pub seed: u64,
    /// The share of reads, from 0 to 1, whose bytes are compared with what was written; over TLS all of them, unless it
    /// is 0. Of the others the size is compared. So are sizes that HEAD tells, and the order of listings.
    pub verify: f64,
    /// How long an operation may take.
    pub timeout: Nanos,
    /// Threads, which share connections and objects out among themselves.
    pub threads: usize,
}

impl Plan {
    /// What can't be done, in a sentence.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.target.addresses.is_empty() {
            return Err("the target has no address".to_owned());
        }
        let lines = self.target.headers.iter().flat_map(|(name, value)| [name, value]);
        let mut texts: Vec<&String> = lines.chain([&self.target.host, &self.target.path, &self.prefix]).collect();
        if let Api::S3(Some(keys)) = &self.target.api {
            texts.extend([&keys.access, &keys.region]);
        }
        for text in texts {
            if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
                return Err("host, path, prefix, keys and headers must not have control characters".to_owned());
            }
        }
        let weights = self.mix.iter().map(|(_, weight)| *weight);
        let sum: f64 = weights.clone().sum();
        if !(sum > 0.0 && sum.is_finite()) || weights.clone().any(|weight| weight < 0.0) {
            return Err("weights of operations must not be negative, and not all of them 0".to_owned());
        }
        let within = |name: &str, value: usize, most: usize| {
            if (1..=most).contains(&value) {
                Ok(())
            } else {
                Err(format!("{name} must be from 1 to {most}, not {value}"))
            }
        };
        if matches!(self.target.api, Api::Files)
            && self.mix.iter().any(|(kind, weight)| *kind == Kind::List && *weight > 0.0)
        {
            return Err("a store of plain files has no listings to measure".to_owned());
        }
        if !(0.0..=1.0).contains(&self.verify) {
            return Err(format!("the share of reads that are verified must be from 0 to 1, not {}", self.verify));
        }
        within("threads", self.threads, MAX_THREADS)?;
        within("containers", self.containers as usize, MAX_CONTAINERS as usize)?;
        within("the page of a listing", self.page as usize, 1_000_000)?;
        within("the timeout in nanoseconds", self.timeout as usize, 1 << 50)
    }
}

/// How long something waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pause {
    /// Always as long.
    Even(Nanos),
    /// Exponentially distributed, with this mean.
    Random(Nanos),
}

/// When operations begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Each connection begins the next one when the last has ended and it has thought so long.
    Closed(Pause),
    /// At intervals, whatever becomes of the others.
    Open(Pause),
}

/// How long it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// A time.
    Time(Nanos),
    /// So many operations.
    Operations(u64),
}

/// How operations of the mix are measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measure {
    /// Before anything counts.
    pub warm_up: Nanos,
    /// After that.
    pub length: Length,
    /// When operations begin.
    pub pace: Pace,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Phase {
    /// Make all containers.
    CreateContainers,
    /// Store so many objects.
    Fill(u32),
    /// Operations of the mix.
    Measure(Measure),
    /// Delete all objects.
    Empty,
    /// Delete all containers.
    DeleteContainers,
}

/// What is done next, over how many connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Order {
    /// Of all threads together.
    pub connections: usize,
    /// What is done.
    pub phase: Phase,
}

impl Order {
    /// What can't be done, in a sentence.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !(1..=MAX_CONNECTIONS).contains(&self.connections) {
            return Err(format!("connections must be from 1 to {MAX_CONNECTIONS}, not {}", self.connections));
        }
        if let Phase::Measure(Measure { pace: Pace::Open(Pause::Even(0) | Pause::Random(0)), .. }) = self.phase {
            return Err("an open loop needs an interval of at least a nanosecond".to_owned());
        }
        Ok(())
    }

    /// The part of one thread; None when it has nothing to do.
    pub(crate) fn part(&self, thread: usize, threads: usize) -> Option<Self> {
        let share = |total: usize| total / threads + usize::from(thread < total % threads);
        let is_measured = matches!(self.phase, Phase::Measure(_));
        let connections = if is_measured { share(self.connections) } else { share(self.connections).max(1) };
        if connections == 0 {
            return None;
        }
        let of_all = |amount: u64| {
            let before: usize =
                (0..thread).map(|one| self.connections / threads + usize::from(one < self.connections % threads)).sum();
            let upto =
                |connections: usize| (u128::from(amount) * connections as u128 / self.connections as u128) as u64;
            upto(before + connections) - upto(before)
        };
        let slower = |pause: Pause| {
            let scaled = |nanos: Nanos| (u128::from(nanos) * self.connections as u128 / connections as u128) as Nanos;
            match pause {
                Pause::Even(nanos) => Pause::Even(scaled(nanos)),
                Pause::Random(nanos) => Pause::Random(scaled(nanos)),
            }
        };
        let phase = match self.phase {
            Phase::Fill(objects) => Phase::Fill(share(objects as usize) as u32),
            Phase::Measure(Measure { warm_up, length, pace }) => Phase::Measure(Measure {
                warm_up,
                length: match length {
                    Length::Operations(count) => Length::Operations(of_all(count)),
                    Length::Time(nanos) => Length::Time(nanos),
                },
                pace: match pace {
                    Pace::Open(pause) => Pace::Open(slower(pause)),
                    Pace::Closed(pause) => Pace::Closed(pause),
                },
            }),
            other => other,
        };
        Some(Self { connections, phase })
    }
}
