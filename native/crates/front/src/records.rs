//! What was answered, in the forms in which it is entered: lines of the access log, and sums for metrics.
//!
//! Both are made here for many answers at a time, since making them in Python took several times as long as a small GET.

use std::time::Duration;

use crate::head::Method;
use crate::row::text;
use crate::shared::Served;

/// Answers with the same method and status.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// The method.
    pub method: Method,
    /// The status.
    pub status: u16,
    /// Bytes of the requests' bodies.
    pub received: u64,
    /// Bytes of the answers' bodies.
    pub sent: u64,
    /// How long they took, all together.
    pub seconds: f64,
    /// How many took up to each bound, and longer than the one before; the last number is that of those beyond all.
    pub within: Vec<u64>,
}

/// What was answered since the last time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Records {
    /// For each answer a JSON object, and the end of a line.
    pub lines: Vec<u8>,
    /// All of them, by method and status.
    pub counted: Vec<Counted>,
}

impl Records {
    /// `bounds_s`: of durations, in seconds, in ascending order.
    pub(crate) fn of(served: &[Served], bounds_s: &[f64]) -> Self {
        let mut records = Self { lines: Vec::with_capacity(served.len() * LINE_BYTES), counted: Vec::new() };
        for one in served {
            line(&mut records.lines, one);
            records.count(one, bounds_s);
        }
        records
    }

    fn count(&mut self, one: &Served, bounds_s: &[f64]) {
        let is_same = |other: &Counted| other.method == one.method && other.status == one.status;
        let at = self.counted.iter().position(is_same).unwrap_or_else(|| {
            let within = vec![0; bounds_s.len() + 1];
            let (method, status) = (one.method, one.status);
            self.counted.push(Counted { method, status, received: 0, sent: 0, seconds: 0.0, within });
            self.counted.len() - 1
        });
        let counted = &mut self.counted[at];
        let seconds = one.took.as_secs_f64();
        counted.received += one.received;
        counted.sent += one.bytes;
        counted.seconds += seconds;
        counted.within[bounds_s.partition_point(|bound| *bound < seconds)] += 1;
    }
}

/// About as long as a line is.
const LINE_BYTES: usize = 256;

fn line(out: &mut Vec<u8>, one: &Served) {
    let Served { method, path, status, received, bytes, took, remote, id } = one;
    out.extend_from_slice(format!("{{\"method\": \"{}\", \"path\": ", method.name()).as_bytes());
    text(out, path);
    let fields = format!(", \"status\": {status}, \"bytes_in\": {received}, \"bytes_out\": {bytes}, \"duration_s\": ");
    out.extend_from_slice(fields.as_bytes());
    out.extend_from_slice(decimal(*took).as_bytes());
    out.extend_from_slice(b", \"remote\": ");
    text(out, remote.as_bytes());
    out.extend_from_slice(b", \"request_id\": ");
    text(out, id.as_bytes());
    out.extend_from_slice(b"}\n");
}

/// Seconds, rounded to microseconds.
fn decimal(took: Duration) -> String {
    let micros = (took.as_nanos() + 500) / 1000;
    let mut text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    let digits = text.trim_end_matches('0').len();
    // One digit stays behind the point.
    text.truncate(digits + usize::from(text[..digits].ends_with('.')));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(method: Method, status: u16, path: &str, micros: u64) -> Served {
        Served {
            method,
            path: path.into(),
            status,
            received: 10,
            bytes: 2,
            took: Duration::from_micros(micros),
            remote: "127.0.0.1".into(),
            id: "tx1".into(),
        }
    }

    #[test]
    fn each_answer_has_a_line() {
        let all = [served(Method::Put, 201, "/v1/a/c/o", 4200), served(Method::Get, 200, "/v1/a/c/\"\\", 5)];
        let lines = String::from_utf8(Records::of(&all, &[]).lines).expect("text");
        let expected = concat!(
            "{\"method\": \"PUT\", \"path\": \"/v1/a/c/o\", \"status\": 201, \"bytes_in\": 10, \"bytes_out\": 2, ",
            "\"duration_s\": 0.0042, \"remote\": \"127.0.0.1\", \"request_id\": \"tx1\"}\n",
            "{\"method\": \"GET\", \"path\": \"/v1/a/c/\\\"\\\\\", \"status\": 200, \"bytes_in\": 10, \"bytes_out\": 2, ",
            "\"duration_s\": 0.000005, \"remote\": \"127.0.0.1\", \"request_id\": \"tx1\"}\n",
        );
        assert_eq!(lines, expected);
    }

    #[test]
    fn seconds_have_no_zeros_at_their_end() {
        for (nanos, expected) in [
            (0, "0.0"),
            (499, "0.0"),
            (500, "0.000001"),
            (4_200_000, "0.0042"),
            (1_000_000_000, "1.0"),
            (10_000_000_000, "10.0"),
            (12_345_678_900, "12.345679"),
            (1_999_999_600, "2.0"),
        ] {
            assert_eq!(decimal(Duration::from_nanos(nanos)), expected);
        }
    }

    #[test]
    fn those_of_a_method_and_a_status_are_counted_together() {
        let all = [
            served(Method::Put, 201, "/1", 1_000_000),
            served(Method::Get, 200, "/2", 500_000),
            served(Method::Put, 201, "/3", 1_000_001),
            served(Method::Put, 201, "/4", 60_000_000),
            served(Method::Put, 412, "/5", 1),
        ];
        let counted = Records::of(&all, &[0.5, 1.0, 2.0]).counted;
        let within: Vec<_> = counted.iter().map(|one| (one.method, one.status, one.within.clone())).collect();
        let expected = [
            (Method::Put, 201, vec![0, 1, 1, 1]),
            (Method::Get, 200, vec![1, 0, 0, 0]),
            (Method::Put, 412, vec![1, 0, 0, 0]),
        ];
        assert_eq!(within, expected);
        assert_eq!((counted[0].received, counted[0].sent), (30, 6));
        assert!((counted[0].seconds - 62.000_001).abs() < 1e-9);
    }
}
