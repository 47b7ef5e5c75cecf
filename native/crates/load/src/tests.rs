//! The engine over a simulated world, where the time that a server takes is known exactly; then over real sockets.

#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

mod faults;
mod loops;
mod pieces;
mod real;
mod shares;
mod simulated;
mod store;

use crate::contents::Contents;
use crate::engine::{Engine, Shared};
use crate::plan::{Api, Kind, Length, Measure, Nanos, Order, Pace, Pause, Phase, Plan, Target};
use crate::population::Population;
use crate::sizes::{Size, Sizes};
use crate::tally::Tally;
use simulated::{Reaction, Request, Simulated};

const MS: Nanos = 1_000_000;
const S: Nanos = 1_000_000_000;

fn plan(mix: &[(Kind, f64)]) -> Plan {
    Plan {
        target: Target {
            api: Api::Swift,
            addresses: vec!["127.0.0.1:1".parse().unwrap()],
            host: "store".to_owned(),
            path: "/v1/AUTH_a".to_owned(),
            headers: vec![("X-Auth-Token".to_owned(), "t".to_owned())],
            trust: None,
        },
        prefix: "bench".to_owned(),
        containers: 3,
        sizes: Sizes::new(&[(1.0, Size::Uniform(0, 3000))]).unwrap(),
        mix: mix.to_vec(),
        page: 10,
        seed: 7,
        verify: 1.0,
        timeout: 60 * S,
        threads: 1,
    }
}

fn measured(connections: usize, pace: Pace, length: Length) -> Order {
    Order { connections, phase: Phase::Measure(Measure { warm_up: 0, length, pace }) }
}

const AT_ONCE: Pace = Pace::Closed(Pause::Even(0));

/// A generator over a simulated server, which is given each request and the time.
struct Bench<F> {
    plan: Plan,
    contents: Contents,
    population: Option<Population>,
    serve: F,
    now: Nanos,
    /// Bytes that were dropped unseen.
    dropped: u64,
}

impl<F: FnMut(&Request, Nanos) -> Reaction> Bench<F> {
    fn new(plan: Plan, serve: F) -> Self {
        let contents = Contents::new(plan.seed);
        Self { plan, contents, population: Some(Population::new(0, 1)), serve, now: 0, dropped: 0 }
    }

    fn run(&mut self, order: Order) -> Tally {
        let world = Simulated::new(order.connections, self.now, &mut self.serve, &mut self.dropped);
        let population = self.population.take().unwrap();
        let shared = Shared::default();
        let (tally, population) =
            Engine::new(world, &self.plan, &self.contents, &shared, order, 0, population).run().unwrap();
        self.population = Some(population);
        self.now += 1000 * S;
        tally
    }

    /// Containers, and so many objects.
    fn fill(&mut self, objects: u32) {
        for phase in [Phase::CreateContainers, Phase::Fill(objects)] {
            let tally = self.run(Order { connections: 4, phase });
            assert_eq!(tally.failed(), 0, "{:?}", failures(&tally));
        }
    }
}

/// All failures as text, with their counts.
fn failures(tally: &Tally) -> Vec<(&'static str, String, u64, String)> {
    let of = |(kind, found): (&Kind, &crate::tally::Operations)| {
        let name = kind.name();
        let each = found.failures.iter();
        each.map(|(failure, one)| (name, failure.to_string(), one.count, one.example.clone())).collect::<Vec<_>>()
    };
    tally.operations.iter().flat_map(of).collect()
}
