//! A generator: begins orders in threads of its own, is watched and cancelled, and keeps the objects in mind.

use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::contents::Contents;
use crate::engine::{Engine, Shared};
use crate::plan::{Order, Plan};
use crate::population::Population;
use crate::sockets::Sockets;
use crate::tally::{Recent, Tally};

/// Why something can't be done.
#[derive(Debug)]
pub enum Error {
    /// The plan or the order is impossible, as the message says.
    Invalid(String),
    /// An order is under way, or there is none.
    Order(&'static str),
    /// The system refused what a thread needs.
    System(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(message) => to.write_str(message),
            Self::Order(message) => to.write_str(message),
            Self::System(error) => write!(to, "a thread of the generator has ended: {error}"),
        }
    }
}

impl std::error::Error for Error {}

/// What came of an order.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was measured.
    pub tally: Tally,
    /// Processor time of all threads, in seconds.
    pub cpu_s: f64,
    /// The share of time for which the busiest thread had a processor.
    pub busiest: f64,
    /// Objects that can be read.
    pub objects: usize,
    /// Objects that may exist, those of unknown state too.
    pub left: usize,
}

type Ended = io::Result<(Tally, Population, f64, f64)>;

struct Running {
    shared: Vec<Arc<Shared>>,
    threads: Vec<JoinHandle<Ended>>,
    /// The objects of threads that have no part in the order.
    resting: Vec<Population>,
}

enum State {
    /// Objects, by thread.
    Idle(Vec<Population>),
    Running(Running),
    /// A thread has failed, and its objects are not known any more.
    Broken,
}

/// A generator.
pub struct Load {
    plan: Arc<Plan>,
    contents: Arc<Contents>,
    state: Mutex<State>,
    /// How many threads are at work.
    working: Arc<(Mutex<usize>, Condvar)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn thread_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Counts a thread as ended, even if it panics.
struct Ends(Arc<(Mutex<usize>, Condvar)>);

impl Drop for Ends {
    fn drop(&mut self) {
        *lock(&self.0.0) -= 1;
        self.0.1.notify_all();
    }
}

impl Load {
    /// A generator for a plan.
    pub fn new(plan: Plan) -> Result<Self, Error> {
        plan.check().map_err(Error::Invalid)?;
        let stride = plan.threads as u32;
        let populations = (0..stride).map(|thread| Population::new(thread, stride)).collect();
        let contents = Arc::new(Contents::new(plan.seed));
        let state = Mutex::new(State::Idle(populations));
        Ok(Self { plan: Arc::new(plan), contents, state, working: Arc::new((Mutex::new(0), Condvar::new())) })
    }

    /// Begin an order. The one before has to be finished.
    pub fn begin(&self, order: Order) -> Result<(), Error> {
        order.check().map_err(Error::Invalid)?;
        let mut state = lock(&self.state);
        let populations = match std::mem::replace(&mut *state, State::Broken) {
            State::Idle(populations) => populations,
            other => {
                *state = other;
                return Err(Error::Order("another order is not finished"));
            }
        };
        let mut running = Running { shared: Vec::new(), threads: Vec::new(), resting: Vec::new() };
        for (thread, population) in populations.into_iter().enumerate() {
            let Some(part) = order.part(thread, self.plan.threads) else {
                running.resting.push(population);
                continue;
            };
            let shared = Arc::new(Shared::default());
            running.shared.push(Arc::clone(&shared));
            *lock(&self.working.0) += 1;
            let ends = Ends(Arc::clone(&self.working));
            let (plan, contents) = (Arc::clone(&self.plan), Arc::clone(&self.contents));
            let spawned = std::thread::Builder::new().name(format!("load-{thread}")).spawn(move || {
                let _ends = ends;
                work(&plan, &contents, &shared, part, thread, population)
            });
            match spawned {
                Ok(handle) => running.threads.push(handle),
                Err(error) => {
                    running.shared.iter().for_each(|shared| shared.cancel());
                    return Err(Error::System(error));
                }
            }
        }
        *state = State::Running(running);
        Ok(())
    }

    /// Wait until the order is done, but no longer than so; whether it is.
    pub fn wait(&self, timeout: Duration) -> bool {
        let (working, ended) = &*self.working;
        let guard = lock(working);
        let (left, _) =
            ended.wait_timeout_while(guard, timeout, |left| *left > 0).unwrap_or_else(PoisonError::into_inner);
        *left == 0
    }

    /// What happened since the last call.
    pub fn recent(&self) -> Recent {
        let mut sum = Recent::default();
        if let State::Running(running) = &*lock(&self.state) {
            for shared in &running.shared {
                sum.add(&shared.recent());
            }
        }
        sum
    }

    /// Begin nothing more, and end soon: what is in flight has two seconds.
    pub fn cancel(&self) {
        if let State::Running(running) = &*lock(&self.state) {
            running.shared.iter().for_each(|shared| shared.cancel());
        }
    }

    /// What came of the order, once it is done; waits for that.
    pub fn finish(&self) -> Result<Outcome, Error> {
        let mut state = lock(&self.state);
        let running = match std::mem::replace(&mut *state, State::Broken) {
            State::Running(running) => running,
            other => {
                *state = other;
                return Err(Error::Order("no order was begun"));
            }
        };
        let mut outcome = Outcome::default();
        let mut populations = Vec::new();
        for thread in running.threads {
            let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("it panicked")));
            let (tally, population, cpu_s, share) = ended.map_err(Error::System)?;
            outcome.tally.add(&tally);
            outcome.cpu_s += cpu_s;
            outcome.busiest = outcome.busiest.max(share);
            populations.push(population);
        }
        populations.extend(running.resting);
        populations.sort_by_key(Population::offset);
        outcome.objects = populations.iter().map(Population::len).sum();
        outcome.left = populations.iter().map(Population::left).sum();
        *state = State::Idle(populations);
        Ok(outcome)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.cancel();
    }
}

fn work(
    plan: &Plan,
    contents: &Contents,
    shared: &Shared,
    order: Order,
    thread: usize,
    population: Population,
) -> Ended {
    let (began, cpu) = (Instant::now(), thread_cpu_s());
    let world = Sockets::new(&plan.target, order.connections, thread)?;
    let (tally, population) = Engine::new(world, plan, contents, shared, order, thread, population).run()?;
    let cpu_s = thread_cpu_s() - cpu;
    Ok((tally, population, cpu_s, cpu_s / began.elapsed().as_secs_f64()))
}
