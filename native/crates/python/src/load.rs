//! The load generator for Python: plans and orders as plain values, what was measured as dictionaries.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use swiftlet_load::sizes::{Size, Sizes};
use swiftlet_load::tally::{Operations, Tally, Times};
use swiftlet_load::{
    Api, Error, Keys, Kind, Length, Measure, Nanos, Order, Outcome, Pace, Pause, Phase, Plan, Target, Trust,
};

/// Longer times are taken as this one, some 30 years.
const LONGEST_S: f64 = 1e9;

fn invalid(message: impl ToString) -> PyErr {
    PyValueError::new_err(message.to_string())
}

fn raised(error: Error) -> PyErr {
    match error {
        Error::Invalid(message) => PyValueError::new_err(message),
        Error::Order(message) => PyRuntimeError::new_err(message),
        Error::System(_) => PyOSError::new_err(error.to_string()),
    }
}

fn nanos(name: &str, seconds: f64) -> PyResult<Nanos> {
    if seconds >= 0.0 {
        Ok((seconds.min(LONGEST_S) * 1e9) as Nanos)
    } else {
        Err(invalid(format!("{name} is negative")))
    }
}

fn kind(name: &str) -> PyResult<Kind> {
    let found = Kind::OPERATIONS.into_iter().find(|kind| kind.name() == name);
    found.ok_or_else(|| invalid(format!("there is no operation {name}")))
}

/// Weight, least, most, and median and sigma of a lognormal distribution.
type Given = (f64, u64, u64, Option<u64>, f64);

fn sizes(given: &[Given]) -> PyResult<Sizes> {
    let made = given.iter().map(|&(weight, least, most, median, sigma)| {
        let size = match median {
            Some(median) => Size::Lognormal { median, sigma, least, most },
            None if least == most => Size::Fixed(least),
            None => Size::Uniform(least, most),
        };
        (weight, size)
    });
    Sizes::new(&made.collect::<Vec<_>>()).map_err(invalid)
}

fn operations<'py>(py: Python<'py>, found: &Operations) -> PyResult<Bound<'py, PyDict>> {
    let failures = PyDict::new(py);
    for (failure, one) in &found.failures {
        failures.set_item(failure.to_string(), (one.count, &one.example))?;
    }
    let dict = PyDict::new(py);
    dict.set_item("succeeded", found.succeeded)?;
    dict.set_item("compared", found.compared)?;
    dict.set_item("bytes", found.bytes)?;
    dict.set_item("ended", found.ended)?;
    dict.set_item("latency", found.latency.counts())?;
    dict.set_item("first_byte", found.first_byte.counts())?;
    dict.set_item("failures", failures)?;
    Ok(dict)
}

fn fields<'py>(py: Python<'py>, outcome: &Outcome) -> PyResult<Bound<'py, PyDict>> {
    let tally: &Tally = &outcome.tally;
    let by_kind = PyDict::new(py);
    for (kind, found) in &tally.operations {
        by_kind.set_item(kind.name(), operations(py, found)?)?;
    }
    let dict = PyDict::new(py);
    dict.set_item("operations", by_kind)?;
    dict.set_item("window_s", tally.window as f64 / 1e9)?;
    dict.set_item("moved_bytes", tally.moved)?;
    dict.set_item("workers_operations_per_s", tally.workers_operations_per_second)?;
    dict.set_item("workers_bytes_per_s", tally.workers_bytes_per_second)?;
    dict.set_item("lateness", tally.lateness.counts())?;
    dict.set_item("resent", tally.resent)?;
    dict.set_item("ended_early", tally.ended_early)?;
    dict.set_item("cpu_s", outcome.cpu_s)?;
    dict.set_item("busiest", outcome.busiest)?;
    dict.set_item("objects", outcome.objects)?;
    dict.set_item("left", outcome.left)?;
    Ok(dict)
}

/// A generator of load.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct Load(swiftlet_load::Load);

#[pymethods]
impl Load {
    #[new]
    #[pyo3(signature = (*, api, keys, addresses, host, path, headers, authorities, server_name, prefix, containers, sizes, mix, page,
        seed, verify, timeout_s, threads))]
    #[allow(clippy::too_many_arguments, reason = "they are the plan's fields, by name")]
    fn new(
        api: &str,
        keys: Option<(String, String, String)>,
        addresses: Vec<(String, u16)>,
        host: String,
        path: String,
        headers: Vec<(String, String)>,
        authorities: Option<Vec<u8>>,
        server_name: &str,
        prefix: String,
        containers: u32,
        sizes: Vec<Given>,
        mix: Vec<(String, f64)>,
        page: u32,
        seed: u64,
        verify: f64,
        timeout_s: f64,
        threads: usize,
    ) -> PyResult<Self> {
        let addresses = addresses.iter().map(|(address, port)| {
            let address: IpAddr = address.parse().map_err(|_| invalid(format!("{address} is no address")))?;
            Ok(SocketAddr::new(address, *port))
        });
        let trust = authorities.map(|pem| Trust::new(&pem, server_name)).transpose().map_err(invalid)?;
        let keys = keys.map(|(access, secret, region)| Keys { access, secret, region });
        let api = match api {
            "swift" => Api::Swift,
            "s3" => Api::S3(keys),
            "files" => Api::Files,
            other => return Err(invalid(format!("{other} is no API: it is swift, s3 or files"))),
        };
        let addresses = addresses.collect::<PyResult<_>>()?;
        let target = Target { api, addresses, host, path, headers, trust: trust.map(Arc::new) };
        let mix = mix.iter().map(|(name, weight)| Ok((kind(name)?, *weight))).collect::<PyResult<_>>()?;
        let plan = Plan {
            target,
            prefix,
            containers,
            sizes: self::sizes(&sizes)?,
            mix,
            page,
            seed,
            verify,
            timeout: nanos("timeout_s", timeout_s)?,
            threads,
        };
        swiftlet_load::Load::new(plan).map(Self).map_err(raised)
    }

    /// Begin a phase other than measuring.
    #[pyo3(signature = (phase, connections, objects = 0))]
    fn begin(&self, phase: &str, connections: usize, objects: u32) -> PyResult<()> {
        let phase = match phase {
            "create_containers" => Phase::CreateContainers,
            "fill" => Phase::Fill(objects),
            "empty" => Phase::Empty,
            "delete_containers" => Phase::DeleteContainers,
            other => return Err(invalid(format!("there is no phase {other}"))),
        };
        self.0.begin(Order { connections, phase }).map_err(raised)
    }

    /// Begin to measure.
    #[pyo3(signature = (connections, *, warm_up_s, duration_s, operations, think_s, interval_s, is_random))]
    #[allow(clippy::too_many_arguments, reason = "they are the order's fields, by name")]
    fn measure(
        &self,
        connections: usize,
        warm_up_s: f64,
        duration_s: Option<f64>,
        operations: Option<u64>,
        think_s: f64,
        interval_s: Option<f64>,
        is_random: bool,
    ) -> PyResult<()> {
        let length = match (duration_s, operations) {
            (Some(time), None) => Length::Time(nanos("duration_s", time)?),
            (None, Some(count)) => Length::Operations(count),
            _ => return Err(invalid("either duration_s or operations has to be given")),
        };
        let pause = |nanos| if is_random { Pause::Random(nanos) } else { Pause::Even(nanos) };
        let pace = match interval_s {
            Some(interval) => Pace::Open(pause(nanos("interval_s", interval)?)),
            None => Pace::Closed(pause(nanos("think_s", think_s)?)),
        };
        let measure = Measure { warm_up: nanos("warm_up_s", warm_up_s)?, length, pace };
        self.0.begin(Order { connections, phase: Phase::Measure(measure) }).map_err(raised)
    }

    /// Wait until what was begun is done, but no longer than so; whether it is.
    #[pyo3(signature = (timeout_s))]
    fn wait(&self, py: Python<'_>, timeout_s: f64) -> PyResult<bool> {
        let timeout = Duration::from_nanos(nanos("timeout_s", timeout_s)?);
        Ok(py.detach(|| self.0.wait(timeout)))
    }

    /// What happened since the last call.
    fn recent<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let recent = py.detach(|| self.0.recent());
        let latency: &Times = &recent.latency;
        let dict = PyDict::new(py);
        dict.set_item("succeeded", recent.succeeded)?;
        dict.set_item("failed", recent.failed)?;
        dict.set_item("moved_bytes", recent.moved)?;
        dict.set_item("median_s", latency.quantile(0.5) as f64 / 1e9)?;
        dict.set_item("p99_s", latency.quantile(0.99) as f64 / 1e9)?;
        Ok(dict)
    }

    /// End what was begun soon.
    fn cancel(&self) {
        self.0.cancel();
    }

    /// What came of it; waits for its end.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let outcome = py.detach(|| self.0.finish()).map_err(raised)?;
        fields(py, &outcome)
    }
}
