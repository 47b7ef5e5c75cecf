//! Latencies and rates against known delays, in closed and open loop.

use super::store::{Store, answer};
use super::*;
use crate::random::Random;

fn off(measured: Nanos, real: Nanos) -> f64 {
    (measured as f64 - real as f64).abs() / real as f64
}

/// Of every hundred answers three take 250 ms, the others 5 ms.
fn uneven(number: u64) -> Nanos {
    if number % 100 < 3 { 250 * MS } else { 5 * MS }
}

#[test]
fn latencies_are_a_servers_delays() {
    let mut store = Store::default();
    let mut is_slow = false;
    let mut bench = Bench::new(plan(&[(Kind::Read, 1.0)]), |request: &Request, _| {
        let bytes = store.serve(request);
        is_slow |= request.method == "GET";
        Reaction::Answer(if is_slow { uneven(store.asked) } else { MS }, bytes)
    });
    bench.fill(50);
    for order in [
        measured(8, AT_ONCE, Length::Time(60 * S)),
        measured(64, Pace::Open(Pause::Random(2 * MS)), Length::Time(60 * S)),
    ] {
        let tally = bench.run(order);
        let read = &tally.operations[&Kind::Read];
        assert_eq!(tally.failed(), 0, "{:?}", failures(&tally));
        assert!(off(read.latency.quantile(0.5), 5 * MS) < 0.01);
        assert!(off(read.latency.quantile(0.96), 5 * MS) < 0.01);
        assert!(off(read.latency.quantile(0.99), 250 * MS) < 0.01);
        assert!(off(read.latency.max(), 250 * MS) < 0.01);
        assert!(off(read.latency.mean() as Nanos, (97 * 5 * MS + 3 * 250 * MS) / 100) < 0.02);
        assert_eq!(read.latency.count(), read.succeeded);
        assert_eq!(read.first_byte.count(), read.succeeded);
    }
}

#[test]
fn one_of_a_hundred_that_is_slow_is_told_apart_from_one_of_a_thousand_and_the_first_byte_from_the_last() {
    let mut store = Store::default();
    let mut bench = Bench::new(plan(&[(Kind::Read, 1.0)]), |request: &Request, _| {
        let bytes = store.serve(request);
        if request.method != "GET" {
            return Reaction::Answer(MS, bytes);
        }
        // Of a thousand answers two take 800 ms, eighteen 100 ms and the others 10 ms; half of it is sent at once.
        let last = match store.asked % 1000 {
            0..2 => 800 * MS,
            2..20 => 100 * MS,
            _ => 10 * MS,
        };
        Reaction::InHalves(last / 5, last, bytes)
    });
    bench.fill(50);
    for order in [
        measured(8, AT_ONCE, Length::Operations(50_000)),
        measured(64, Pace::Open(Pause::Even(2 * MS)), Length::Operations(50_000)),
    ] {
        let tally = bench.run(order);
        let read = &tally.operations[&Kind::Read];
        assert_eq!(tally.failed(), 0, "{:?}", failures(&tally));
        for (share, real) in [(0.5, 10 * MS), (0.97, 10 * MS), (0.99, 100 * MS), (0.9975, 100 * MS), (0.999, 800 * MS)]
        {
            let (whole, first) = (read.latency.quantile(share), read.first_byte.quantile(share));
            assert!(off(whole, real) < 0.01, "{share}: {whole}");
            assert!(off(first, real / 5) < 0.01, "{share}: first byte {first}");
        }
    }
}

#[test]
fn an_open_loop_accounts_for_a_server_that_stalls_and_a_closed_one_does_not() {
    let begun_at = std::cell::Cell::new(0);
    let mut store = Store::default();
    // From the third second on, nothing is answered for two seconds.
    let mut bench = Bench::new(plan(&[(Kind::Read, 1.0)]), |request: &Request, now| {
        let bytes = store.serve(request);
        if begun_at.get() == 0 && request.method == "GET" {
            begun_at.set(now);
        }
        let since = if begun_at.get() == 0 { 0 } else { now - begun_at.get() };
        let stall = if (3 * S..5 * S).contains(&since) { 5 * S - since } else { 0 };
        Reaction::Answer(stall + MS, bytes)
    });
    bench.fill(10);
    let open = bench.run(measured(16, Pace::Open(Pause::Even(MS)), Length::Time(10 * S)));
    begun_at.set(0);
    let closed = bench.run(measured(16, AT_ONCE, Length::Time(10 * S)));
    let (open, closed) = (&open.operations[&Kind::Read], &closed.operations[&Kind::Read]);
    // A thousand each second: two thousand waited, evenly from nothing to two seconds, and for those before them.
    assert_eq!(open.succeeded, 9_999);
    assert!(open.failures.is_empty());
    assert!(open.latency.quantile(0.78) < 3 * MS);
    let waiting = open.latency.quantile(0.90);
    assert!(off(waiting, S) < 0.1, "{waiting}");
    assert!(off(open.latency.max(), 2 * S) < 0.01);
    assert!(closed.latency.quantile(0.999) < 2 * MS, "sixteen of a hundred thousand waited");
    assert!(off(closed.latency.max(), 2 * S) < 0.01);
}

#[test]
fn what_an_open_loop_could_not_begin_counts_as_failed_and_as_long_as_it_waited() {
    let mut count = 0;
    let mut store = Store::default();
    let mut plan = plan(&[(Kind::Read, 1.0)]);
    plan.timeout = 20 * S;
    let mut bench = Bench::new(plan, |request: &Request, _| {
        count += u64::from(request.method == "GET");
        let bytes = store.serve(request);
        if count > 1000 { Reaction::Never } else { Reaction::Answer(MS, bytes) }
    });
    bench.fill(10);
    let tally = bench.run(measured(4, Pace::Open(Pause::Even(MS)), Length::Time(3 * S)));
    let read = &tally.operations[&Kind::Read];
    let found: Vec<_> = failures(&tally).into_iter().map(|(_, failure, count, _)| (failure, count)).collect();
    assert_eq!(read.succeeded, 1000);
    assert_eq!(found, [("timeout".to_owned(), 4), ("not begun".to_owned(), 2_999 - 1000 - 4)]);
    assert_eq!(read.latency.count(), 2_999);
    assert!(read.latency.quantile(0.9) > S + 500 * MS);
}

#[test]
fn rates_are_of_the_window_and_of_workers() {
    let mut store = Store::default();
    let mut plan = plan(&[(Kind::Read, 1.0)]);
    plan.sizes = Sizes::new(&[(1.0, Size::Fixed(1000))]).unwrap();
    let mut bench = Bench::new(plan, |request: &Request, _| Reaction::Answer(10 * MS, store.serve(request)));
    bench.fill(10);
    let thinking = Pace::Closed(Pause::Even(90 * MS));
    let mut order = measured(5, thinking, Length::Time(20 * S));
    if let Phase::Measure(measure) = &mut order.phase {
        measure.warm_up = 3 * S;
    }
    let tally = bench.run(order);
    let read = &tally.operations[&Kind::Read];
    assert_eq!(tally.window, 20 * S);
    // Each of five connections: ten a second, and a hundred a second of the time in which it was busy.
    assert!((995..=1005).contains(&read.ended), "{}", read.ended);
    assert_eq!(tally.moved, read.ended * 1000);
    assert!((tally.workers_operations_per_second - 500.0).abs() < 1.0);
    assert!((tally.workers_bytes_per_second - 500_000.0).abs() < 1000.0);
}

#[test]
fn a_count_of_operations_is_kept_exactly_and_warming_up_does_not_count() {
    let mut store = Store::default();
    let mut bench = Bench::new(plan(&[(Kind::Create, 1.0), (Kind::Read, 1.0)]), |request: &Request, _| {
        Reaction::Answer(10 * MS, store.serve(request))
    });
    bench.fill(10);
    let pace = Pace::Closed(Pause::Even(0));
    let phase = Phase::Measure(Measure { warm_up: S, length: Length::Operations(700), pace });
    let tally = bench.run(Order { connections: 7, phase });
    let succeeded: u64 = tally.operations.values().map(|one| one.succeeded).sum();
    assert_eq!(succeeded, 700);
    assert_eq!(tally.window, S);
    drop(bench);
    assert_eq!(store.asked, 3 + 10 + 700 + 700);
}

#[test]
fn a_mix_keeps_its_shares_and_finds_all_that_it_asks_for() {
    let mut store = Store::default();
    let mut random = Random::new(1, 1);
    let shares = Kind::OPERATIONS.map(|kind| (kind, if kind == Kind::Read { 5.0 } else { 1.0 }));
    let mut bench =
        Bench::new(plan(&shares), |request: &Request, _| Reaction::Answer(random.below(20 * MS), store.serve(request)));
    bench.fill(30);
    let tally = bench.run(measured(20, AT_ONCE, Length::Operations(20_000)));
    assert_eq!(failures(&tally), []);
    for (kind, share) in shares {
        let found = tally.operations[&kind].succeeded as f64 / 2000.0;
        assert!((found - share).abs() < share * 0.1, "{kind:?} {found}");
    }
    let known = bench.population.as_ref().unwrap().len();
    assert_eq!(bench.run(Order { connections: 3, phase: Phase::Empty }).failed(), 0);
    assert_eq!(bench.run(Order { connections: 3, phase: Phase::DeleteContainers }).failed(), 0);
    assert!(known > 0);
    drop(bench);
    assert!(store.objects.is_empty() && store.containers.is_empty());
}

#[test]
fn a_run_ends_when_no_object_is_left() {
    let mut store = Store::default();
    let mut bench =
        Bench::new(plan(&[(Kind::Delete, 1.0)]), |request: &Request, _| Reaction::Answer(MS, store.serve(request)));
    bench.fill(25);
    let tally = bench.run(measured(4, AT_ONCE, Length::Time(60 * S)));
    assert_eq!(tally.operations[&Kind::Delete].succeeded, 25);
    assert!(tally.ended_early.unwrap().contains("no object was left"));
    assert!(tally.window < S);
}

/// Cancelled when so many requests were made: what was measured, the objects, and for how long it went on.
fn cancelled(at: u32, react: impl Fn(u32) -> Reaction) -> (Tally, Population, Nanos) {
    let shared = Shared::default();
    let (mut asked, mut last) = (0, 0);
    let mut serve = |_: &Request, now: Nanos| {
        asked += 1;
        last = now;
        if asked == at {
            shared.cancel();
        }
        react(asked)
    };
    let plan = plan(&[(Kind::Create, 1.0)]);
    let contents = Contents::new(plan.seed);
    let mut dropped = 0;
    let world = Simulated::new(10, 0, &mut serve, &mut dropped);
    let order = measured(10, AT_ONCE, Length::Time(60 * S));
    let (tally, population) =
        Engine::new(world, &plan, &contents, &shared, order, 0, Population::new(0, 1)).run().unwrap();
    assert_eq!(tally.ended_early, Some("cancelled"));
    assert_eq!(tally.operations[&Kind::Create].succeeded as usize, population.len());
    (tally, population, last)
}

#[test]
fn what_is_cancelled_begins_nothing_more() {
    let (tally, population, last) =
        cancelled(100, |asked| Reaction::Answer(10 * MS + u64::from(asked) * MS / 100, answer("201 Created", b"")));
    assert!((100..103).contains(&population.len()));
    assert_eq!(population.left(), population.len(), "what was in flight has ended");
    assert!(tally.window <= last + 15 * MS);
}

#[test]
fn what_does_not_end_after_it_was_cancelled_is_dropped() {
    let answered = |asked| if asked > 50 { Reaction::Never } else { Reaction::Answer(MS, answer("201 Created", b"")) };
    let (tally, population, _) = cancelled(60, answered);
    assert_eq!((population.len(), population.left()), (50, 60), "what was in flight may exist");
    assert_eq!(tally.failed(), 0);
}
