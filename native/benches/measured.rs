//! The one way in which benchmarks of crates tell what they measured: lines that `bench/micro.py` reads.

/// How often each thing is measured: as `BENCH_ROUNDS` of the environment says, or else as usual.
pub(crate) fn rounds(usual: usize) -> usize {
    let wanted = std::env::var("BENCH_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    wanted.unwrap_or(usual).max(1)
}

/// Print what was measured, its unit, and the value of each round.
pub(crate) fn tell(what: &str, unit: &str, values: &[f64]) {
    let values: Vec<String> = values.iter().map(|value| format!("{value:.4}")).collect();
    println!("measured: {what} | {unit} | {}", values.join(" "));
}
