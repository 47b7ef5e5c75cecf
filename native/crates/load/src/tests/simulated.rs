//! A world without sockets and without waiting: time passes to the next event.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, ErrorKind, IoSlice};

use crate::engine::World;
use crate::plan::Nanos;

/// What one read gives at most: answers come in pieces.
const PIECE: usize = 1400;
/// What one write takes at most.
const ROOM: usize = 5000;

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) body: Vec<u8>,
}

/// What a server does about a request.
pub(crate) enum Reaction {
    /// Answer after a time.
    Answer(Nanos, Vec<u8>),
    /// Answer with the first half after a time, and with the rest after a longer one.
    InHalves(Nanos, Nanos, Vec<u8>),
    /// Answer after a time, then close the connection.
    AnswerAndClose(Nanos, Vec<u8>),
    /// Nothing, for ever.
    Never,
}

#[derive(Default)]
struct Line {
    is_open: bool,
    asked: Vec<u8>,
    /// From when on, what, and whether it ends then.
    answers: VecDeque<(Nanos, Vec<u8>, bool)>,
}

pub(crate) struct Simulated<'a, F> {
    now: Nanos,
    events: BinaryHeap<Reverse<(Nanos, usize)>>,
    lines: Vec<Line>,
    serve: F,
    dropped: &'a mut u64,
}

impl<'a, F: FnMut(&Request, Nanos) -> Reaction> Simulated<'a, F> {
    pub(crate) fn new(connections: usize, now: Nanos, serve: F, dropped: &'a mut u64) -> Self {
        let lines = (0..connections).map(|_| Line::default()).collect();
        Self { now, events: BinaryHeap::new(), lines, serve, dropped }
    }

    fn answer(&mut self, connection: usize) {
        let line = &mut self.lines[connection];
        let Some((request, used)) = parse(&line.asked) else { return };
        line.asked.drain(..used);
        let parts = match (self.serve)(&request, self.now) {
            Reaction::Answer(delay, bytes) => vec![(delay, bytes, false)],
            Reaction::InHalves(first, last, mut bytes) => {
                let rest = bytes.split_off(bytes.len() / 2);
                vec![(first, bytes, false), (last, rest, false)]
            }
            Reaction::AnswerAndClose(delay, bytes) => vec![(delay, bytes, true)],
            Reaction::Never => return,
        };
        for (delay, bytes, ends) in parts {
            line.answers.push_back((self.now + delay, bytes, ends));
            self.events.push(Reverse((self.now + delay, connection)));
        }
    }
}

/// A request that is complete, and its size.
pub(crate) fn parse(bytes: &[u8]) -> Option<(Request, usize)> {
    let mut headers = [httparse::EMPTY_HEADER; 16];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head) = request.parse(bytes).unwrap() else { return None };
    let header = |name: &str| {
        let found = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        found.map(|header| str::from_utf8(header.value).unwrap())
    };
    assert_eq!((header("Host"), header("X-Auth-Token")), (Some("store"), Some("t")));
    let size: usize = header("Content-Length").map_or(0, |value| value.parse().unwrap());
    let body = bytes.get(head..head + size)?.to_vec();
    let (method, target) = (request.method.unwrap().to_owned(), request.path.unwrap().to_owned());
    Some((Request { method, target, body }, head + size))
}

impl<F: FnMut(&Request, Nanos) -> Reaction> World for Simulated<'_, F> {
    fn now(&self) -> Nanos {
        self.now
    }

    fn calendar(&self) -> u64 {
        // The moment of the examples in Amazon's reference.
        1_369_353_600 + self.now / 1_000_000_000
    }

    fn connect(&mut self, connection: usize) -> io::Result<()> {
        self.lines[connection] = Line { is_open: true, ..Line::default() };
        Ok(())
    }

    fn close(&mut self, connection: usize) {
        self.lines[connection] = Line::default();
    }

    fn write(&mut self, connection: usize, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        assert!(self.lines[connection].is_open);
        let asked = &mut self.lines[connection].asked;
        let before = asked.len();
        for slice in bytes {
            let room = ROOM - (asked.len() - before);
            asked.extend_from_slice(&slice[..slice.len().min(room)]);
        }
        let taken = asked.len() - before;
        self.answer(connection);
        Ok(taken)
    }

    fn read(&mut self, connection: usize, into: &mut [u8]) -> io::Result<(usize, bool)> {
        let line = &mut self.lines[connection];
        assert!(line.is_open);
        match line.answers.front_mut() {
            Some((from, bytes, ends)) if *from <= self.now => {
                let size = bytes.len().min(PIECE).min(into.len());
                into[..size].copy_from_slice(&bytes[..size]);
                bytes.drain(..size);
                if bytes.is_empty() && !(*ends && size > 0) {
                    line.answers.pop_front();
                }
                Ok((size, true))
            }
            _ => Err(ErrorKind::WouldBlock.into()),
        }
    }

    fn discard(&mut self, connection: usize, most: u64) -> io::Result<(usize, bool)> {
        let mut nowhere = vec![0; usize::try_from(most).unwrap_or(usize::MAX).min(PIECE)];
        let found = self.read(connection, &mut nowhere);
        if let Ok((size, _)) = &found {
            *self.dropped += *size as u64;
        }
        found
    }

    fn wait(&mut self, until: Nanos, ready: &mut Vec<usize>) -> io::Result<()> {
        while let Some(Reverse((moment, connection))) = self.events.peek().copied() {
            if moment > until.max(self.now) {
                break;
            }
            if moment > self.now && !ready.is_empty() {
                return Ok(());
            }
            self.now = self.now.max(moment);
            self.events.pop();
            ready.push(connection);
        }
        if ready.is_empty() {
            self.now = self.now.max(until);
        }
        Ok(())
    }
}
