//! Reading an object, or a part of it: the request to a device, and what its answer comes to.
//!
//! Fault model: a device may send anything. Only a plain object counts, and of a short answer only a complete one with
//! correct bytes. A long one is passed on as it comes.

use swiftlet_node::message::{Found, Request, ToRead};
use swiftlet_node::parts;
use swiftlet_store::model::{Info, Key};
use swiftlet_transport::Chunk;

use crate::answer::{self, LARGE_BYTES, Outcome};
use crate::conditions::{Verdict, Wanted};
use crate::flow::Flow;
use crate::head::{Asked, Method};

/// The request to a device, if an answer may have `limit` bytes.
pub(crate) fn request(asked: &Asked<'_>, key: Key, limit: u64) -> Request {
    if asked.method == Method::Head {
        return Request::Head { key, proved: true };
    }
    let ToRead { start, stop, whole } = asked.wanted.to_read(limit);
    Request::Get { key, start, stop, whole, proved: true }
}

/// What a request has a device send.
pub(crate) fn to_read(request: &Request) -> ToRead {
    match request {
        Request::Get { start, stop, whole, .. } => ToRead { start: *start, stop: *stop, whole: *whole },
        _ => ToRead::NOTHING,
    }
}

/// Whether its answer may have so many bytes that they are passed on as they come.
pub(crate) fn may_be_long(request: &Request) -> bool {
    let ToRead { start, stop, whole } = to_read(request);
    whole.max(stop.saturating_sub(start)) > LARGE_BYTES
}

/// What an answer lacks once the object is described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lacks {
    /// Nothing, whatever the device still sends.
    Nothing,
    /// What the device sends, which is kept until it is known to be right.
    Bytes,
    /// What it sends, which is too much to be kept.
    Flow,
    /// Other bytes of the object: `[start, stop)`.
    Others(u64, u64),
}

/// What a client is told.
pub(crate) struct Told {
    pub(crate) info: Info,
    pub(crate) outcome: Outcome,
    /// The body in its parts.
    pub(crate) body: Vec<Chunk>,
}

/// A device's description of an object, weighed against what the client wants; its bytes come with it or behind it.
pub(crate) struct Weighed {
    method: Method,
    info: Info,
    outcome: Outcome,
    /// The bytes of the object that the device sends, as `[start, stop)`.
    sent: (u64, u64),
    /// Those of the object that the client is sent.
    span: (u64, u64),
    /// Of the bytes that the device sends; None if it follows them.
    sum: Option<u64>,
    /// Those that came so far.
    came: Vec<Chunk>,
}

impl Weighed {
    /// Weigh the conditions and the range of a request for which this was asked of the device, at this time in seconds
    /// since 1970; None if Python has to answer.
    pub(crate) fn of(method: Method, wanted: &Wanted<'_>, read: ToRead, header: &[u8], now_s: u64) -> Option<Self> {
        let Found { info, body_xxh3 } = Found::decode(header).ok()?;
        Self::described_as(method, wanted, read, (info, body_xxh3), now_s)
    }

    /// The same of what an object is, and the digest of what is sent of it.
    pub(crate) fn described_as(
        method: Method,
        wanted: &Wanted<'_>,
        read: ToRead,
        (info, sum): (Info, Option<u64>),
        now_s: u64,
    ) -> Option<Self> {
        if !answer::is_plain_at(&info, now_s) {
            return None;
        }
        let sent = read.of(info.size);
        let outcome = outcome(method, wanted, &info);
        let span = match outcome {
            _ if method == Method::Head => sent,
            Outcome::Whole => (0, info.size),
            Outcome::Part(first, end) => (first, end),
            Outcome::NotModified | Outcome::Failed | Outcome::Unsatisfiable => (sent.0, sent.0),
        };
        Some(Self { method, info, outcome, sent, span, sum, came: Vec::new() })
    }

    /// What is needed to answer the client.
    pub(crate) fn lacks(&self) -> Lacks {
        let (sent, span) = (self.sent, self.span);
        let is_long = sent.1 - sent.0 > LARGE_BYTES;
        match self.outcome {
            Outcome::NotModified | Outcome::Failed | Outcome::Unsatisfiable if is_long => Lacks::Nothing,
            _ if is_long && sent == span => Lacks::Flow,
            _ if !is_long && sent.0 <= span.0 && span.1 <= sent.1 => Lacks::Bytes,
            _ => Lacks::Others(span.0, span.1),
        }
    }

    /// What is needed of an object of which no byte comes before it is known what it is.
    pub(crate) fn lacks_then(&self) -> Lacks {
        match self.outcome {
            Outcome::NotModified | Outcome::Failed | Outcome::Unsatisfiable => Lacks::Nothing,
            Outcome::Whole | Outcome::Part(..) if self.method == Method::Head => Lacks::Nothing,
            Outcome::Whole | Outcome::Part(..) => self.lacks(),
        }
    }

    /// Bytes that are sent.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent.1 - self.sent.0
    }

    /// The answer without any byte of the object.
    pub(crate) fn described(self) -> Told {
        let reason = self.outcome.reason(&self.info).filter(|_| self.method != Method::Head);
        let body = reason.map(|reason| Chunk::from(reason.into_bytes())).into_iter().collect();
        Told { info: self.info, outcome: self.outcome, body }
    }

    /// What the object is, and how it is answered with, for bytes that are checked by who passes them on.
    pub(crate) fn parts(self) -> (Info, Outcome) {
        (self.info, self.outcome)
    }

    /// The answer whose bytes are passed on as they come.
    pub(crate) fn flow(self) -> (Info, Outcome, Flow) {
        let flow = Flow::new(&self.info, self.sent, self.sum);
        (self.info, self.outcome, flow)
    }

    /// Keep the next bytes that came; returns whether so many were expected.
    pub(crate) fn take(&mut self, bytes: Chunk) -> bool {
        self.came.push(bytes);
        count_of(&self.came) <= self.sent_bytes()
    }

    /// Check the bytes that came behind it, with the end's footer.
    pub(crate) fn ended(mut self, footer: &[u8]) -> Option<Told> {
        self.sum = self.sum.or_else(|| footer.try_into().ok().map(u64::from_be_bytes));
        self.told(None)
    }

    /// Check the bytes that came with it.
    pub(crate) fn told(self, body: Option<Chunk>) -> Option<Told> {
        let Self { method, info, outcome, sent, span, sum, mut came } = self;
        if method == Method::Head {
            return Some(Told { info, outcome, body: Vec::new() });
        }
        came.extend(body);
        if count_of(&came) != sent.1 - sent.0 || sum != Some(parts::xxh3_of(&came)) {
            return None;
        }
        let body = match outcome.reason(&info) {
            Some(reason) => vec![Chunk::from(reason.into_bytes())],
            None => parts::within(came, &(span.0 - sent.0..span.1 - sent.0)),
        };
        Some(Told { info, outcome, body })
    }

    /// The answer with the bytes that came, which were checked by who has passed them on.
    pub(crate) fn gathered(self) -> Option<Told> {
        let Self { info, outcome, sent, span, came, .. } = self;
        let is_whole = count_of(&came) == sent.1 - sent.0;
        is_whole.then(|| Told { info, outcome, body: parts::within(came, &(span.0 - sent.0..span.1 - sent.0)) })
    }
}

fn count_of(pieces: &[Chunk]) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).sum()
}

/// Conditions on the version come before the range, which counts for a GET.
fn outcome(method: Method, wanted: &Wanted<'_>, info: &Info) -> Outcome {
    let modified_s = answer::modified_s(info);
    match wanted.verdict(&info.etag, modified_s) {
        Verdict::Failed => Outcome::Failed,
        Verdict::NotModified => Outcome::NotModified,
        Verdict::Go if method == Method::Head || !wanted.is_partial(&info.etag, modified_s) => Outcome::Whole,
        Verdict::Go => {
            wanted.span(info.size).map_or(Outcome::Unsatisfiable, |(start, stop)| Outcome::Part(start, stop))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use swiftlet_hash::xxh3_64;

    use super::*;
    use crate::answer::MAX_BYTES;
    use crate::head;

    const NOW_S: u64 = 1000;

    fn info(size: u64) -> Info {
        Info {
            name: b"/a/c/o".to_vec(),
            timestamp: 0,
            size,
            etag: b"abc".to_vec(),
            xxh3: 0,
            content_type: b"a/b".to_vec(),
            metadata: Vec::new(),
            sysmeta: Vec::new(),
            meta_timestamp: 0,
            content_type_timestamp: 0,
            delete_at: 0,
        }
    }

    /// The answer of a device that has these bytes, and what comes of it, if they come with it and if they come in
    /// pieces behind it.
    fn both(method: &str, headers: &str, bytes: &[u8]) -> [Option<Told>; 2] {
        [of(method, headers, bytes, 0), of(method, headers, bytes, bytes.len() / 3 + 1)]
    }

    fn of(method: &str, headers: &str, bytes: &[u8], piece: usize) -> Option<Told> {
        let head = format!("{method} /v1/a/c/o HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
        let asked = head::parse(head.as_bytes())?;
        let key = Key { policy: 0, partition: 1, digest: [0; 16] };
        let read = to_read(&request(&asked, key, MAX_BYTES));
        let (start, stop) = read.of(bytes.len() as u64);
        let body = &bytes[start as usize..stop as usize];
        let sum = xxh3_64(body);
        let found = Found { info: info(bytes.len() as u64), body_xxh3: (piece == 0).then_some(sum) };
        let header = found.encode().expect("a small header");
        let mut weighed = Weighed::of(asked.method, &asked.wanted, read, &header, NOW_S)?;
        if weighed.lacks() != Lacks::Bytes {
            return None;
        }
        if piece == 0 {
            return weighed.told((!body.is_empty()).then(|| Chunk::from(body.to_vec())));
        }
        assert!(body.chunks(piece).all(|part| weighed.take(Chunk::from(part.to_vec()))));
        weighed.ended(&sum.to_be_bytes())
    }

    fn shown(told: [Option<Told>; 2]) -> Option<(u16, Vec<u8>)> {
        let [one, other] = told.map(|told| {
            told.map(|told| (told.outcome.status(), told.body.iter().flat_map(|part| part.to_vec()).collect()))
        });
        assert_eq!(one, other);
        one
    }

    #[test]
    fn what_is_asked_is_answered() {
        let long = "x".repeat(MAX_BYTES as usize + 1);
        let long = long.as_str();
        for (method, headers, bytes, expected) in [
            ("GET", "", "0123", Some((200, "0123"))),
            ("HEAD", "", "0123", Some((200, ""))),
            ("GET", "", "", Some((200, ""))),
            ("GET", "", long, None),
            ("HEAD", "", long, Some((200, ""))),
            ("GET", "Range: bytes=1-2\r\n", "0123", Some((206, "12"))),
            ("GET", "Range: bytes=-2\r\n", "0123", Some((206, "23"))),
            ("GET", "Range: bytes=-9\r\n", "0123", Some((206, "0123"))),
            ("GET", "Range: bytes=3-\r\n", "0123", Some((206, "3"))),
            ("HEAD", "Range: bytes=3-\r\n", "0123", Some((200, ""))),
            ("GET", "Range: bytes=1-2\r\n", long, Some((206, "xx"))),
            ("GET", "Range: bytes=65530-\r\n", long, Some((206, "xxxxxxx"))),
            ("GET", "Range: bytes=0-\r\n", long, None),
            ("GET", "Range: bytes=-1\r\n", long, None),
            ("GET", "Range: bytes=1-2\r\nIf-Range: abc\r\n", "0123", Some((206, "12"))),
            ("GET", "Range: bytes=0-9\r\nIf-Range: x\r\n", "0123", Some((200, "0123"))),
            ("GET", "Range: bytes=-2\r\nIf-Range: x\r\n", "0123", Some((200, "0123"))),
            ("GET", "Range: bytes=1-2\r\nIf-Range: x\r\n", "0123", None),
            ("GET", "If-None-Match: abc\r\n", "0123", Some((304, ""))),
            ("GET", "If-None-Match: abc\r\nRange: bytes=9-\r\n", "0123", Some((304, ""))),
            ("HEAD", "If-None-Match: *\r\n", "0123", Some((304, ""))),
            ("HEAD", "If-Match: x\r\n", "0123", Some((412, ""))),
        ] {
            let found = shown(both(method, headers, bytes.as_bytes()));
            assert_eq!(found, expected.map(|(status, body)| (status, body.as_bytes().to_vec())), "{method} {headers}");
        }
        for (headers, status) in [("If-Match: x\r\nRange: bytes=9-\r\n", 412), ("Range: bytes=9-\r\n", 416)] {
            let (found, body) = shown(both("GET", headers, b"0123")).expect("an answer");
            assert!(found == status && body.len() > 10, "{headers}");
        }
    }

    #[test]
    fn what_is_long_is_passed_on_or_asked_for() {
        let size = 3 * LARGE_BYTES;
        let lacks = |limit: u64, headers: &str| {
            let head = format!("GET /v1/a/c/o HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
            let asked = head::parse(head.as_bytes()).expect("a request");
            let request = request(&asked, Key { policy: 0, partition: 1, digest: [0; 16] }, limit);
            let header = Found { info: info(size), body_xxh3: None }.encode().expect("a small header");
            let weighed = Weighed::of(asked.method, &asked.wanted, to_read(&request), &header, NOW_S);
            (weighed.expect("a plain object").lacks(), may_be_long(&request))
        };
        let (all, tail) = (Lacks::Others(0, size), Lacks::Others(size - 1, size));
        for (limit, headers, expected, is_long) in [
            (u64::MAX, "", Lacks::Flow, true),
            (LARGE_BYTES, "", all, false),
            (MAX_BYTES, "", all, false),
            (u64::MAX, "If-Match: x\r\n", Lacks::Nothing, true),
            (u64::MAX, "If-Match: abc\r\n", Lacks::Flow, true),
            (u64::MAX, "If-None-Match: abc\r\n", Lacks::Bytes, false),
            (u64::MAX, "If-None-Match: x\r\n", all, false),
            (u64::MAX, "Range: bytes=1-\r\n", Lacks::Flow, true),
            (LARGE_BYTES, "Range: bytes=1-\r\n", Lacks::Others(1, size), false),
            (u64::MAX, "Range: bytes=3145727-\r\n", Lacks::Bytes, true),
            (u64::MAX, "Range: bytes=3145728-\r\n", Lacks::Bytes, true),
            (u64::MAX, "Range: bytes=-1\r\n", tail, false),
            (u64::MAX, "Range: bytes=-9999999\r\n", all, false),
            (2 * LARGE_BYTES, "Range: bytes=1-2097152\r\n", Lacks::Flow, true),
            (u64::MAX, "Range: bytes=1-2097152\r\nIf-None-Match: abc\r\n", Lacks::Bytes, false),
            (u64::MAX, "Range: bytes=1-2097152\r\nIf-None-Match: x\r\n", Lacks::Others(1, 2_097_153), false),
            (u64::MAX, "Range: bytes=1-2\r\nIf-Range: x\r\n", all, false),
            (u64::MAX, "Range: bytes=1-\r\nIf-Range: x\r\n", all, true),
        ] {
            assert_eq!(lacks(limit, headers), (expected, is_long), "{limit} {headers}");
        }
    }

    #[test]
    fn of_an_object_in_several_places_the_description_comes_first() {
        let size = 3 * LARGE_BYTES;
        let lacks = |method: &str, headers: &str, size: u64| {
            let head = format!("{method} /v1/a/c/o HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
            let asked = head::parse(head.as_bytes()).expect("a request");
            let (start, stop) = asked.wanted.to_gather();
            let read = ToRead { start, stop, whole: 0 };
            let weighed = Weighed::described_as(asked.method, &asked.wanted, read, (info(size), None), NOW_S);
            weighed.expect("a plain object").lacks_then()
        };
        for (headers, expected) in [
            ("", Lacks::Flow),
            ("If-Match: x\r\n", Lacks::Nothing),
            ("If-None-Match: abc\r\n", Lacks::Nothing),
            ("If-None-Match: x\r\n", Lacks::Others(0, size)),
            ("Range: bytes=1-\r\n", Lacks::Flow),
            ("Range: bytes=3145727-\r\n", Lacks::Bytes),
            ("Range: bytes=3145728-\r\n", Lacks::Nothing),
            ("Range: bytes=-1\r\n", Lacks::Others(size - 1, size)),
            ("Range: bytes=1-2097152\r\n", Lacks::Flow),
            ("Range: bytes=1-2\r\n", Lacks::Bytes),
            ("Range: bytes=1-2\r\nIf-Range: x\r\n", Lacks::Others(0, size)),
        ] {
            assert_eq!(lacks("GET", headers, size), expected, "{headers}");
            assert_eq!(lacks("HEAD", headers, size), Lacks::Nothing, "{headers}");
        }
        assert_eq!([0, 1, LARGE_BYTES].map(|size| lacks("GET", "", size)), [Lacks::Bytes; 3]);
        assert_eq!(lacks("GET", "Range: bytes=-1\r\n", 0), Lacks::Nothing);
    }

    #[test]
    fn what_was_gathered_is_whole_or_nothing() {
        let wanted = Wanted::default();
        for (pieces, expected) in [(vec!["ab", "c"], true), (vec!["ab"], false), (vec![], false)] {
            let read = ToRead { start: 0, stop: u64::MAX, whole: 0 };
            let weighed = Weighed::described_as(Method::Get, &wanted, read, (info(3), None), NOW_S);
            let mut weighed = weighed.expect("a plain object");
            assert!(pieces.iter().all(|piece| weighed.take(Chunk::from(piece.as_bytes().to_vec()))));
            let told =
                weighed.gathered().map(|told| told.body.iter().flat_map(|part| part.to_vec()).collect::<Vec<_>>());
            assert_eq!(told, expected.then(|| b"abc".to_vec()), "{pieces:?}");
        }
    }

    #[test]
    fn damaged_answers_are_not_passed_on() {
        let wanted = Wanted::default();
        let weighed = |info: Info, sum| {
            let header = Found { info, body_xxh3: sum }.encode().expect("a small header");
            Weighed::of(Method::Get, &wanted, wanted.to_read(MAX_BYTES), &header, NOW_S)
        };
        let good = xxh3_64(b"abc");
        for (size, sum, body) in [
            (3, Some(xxh3_64(b"abd")), "abc"),
            (3, None, "abc"),
            (3, Some(xxh3_64(b"ab")), "ab"),
            (2, Some(good), "abc"),
        ] {
            let found = weighed(info(size), sum).and_then(|one| one.told(Some(Chunk::from(body.as_bytes().to_vec()))));
            assert!(found.is_none(), "{body}");
        }
        for (pieces, footer, is_good) in [
            (vec!["ab", "c"], good.to_be_bytes().to_vec(), true),
            (vec!["ab"], good.to_be_bytes().to_vec(), false),
            (vec!["ab", "d"], good.to_be_bytes().to_vec(), false),
            (vec!["abc"], Vec::new(), false),
            (vec![], good.to_be_bytes().to_vec(), false),
        ] {
            let mut coming = weighed(info(3), None).expect("a plain object");
            assert!(pieces.iter().all(|piece| coming.take(Chunk::from(piece.as_bytes().to_vec()))));
            assert_eq!(coming.ended(&footer).is_some(), is_good, "{pieces:?}");
        }
        let mut coming = weighed(info(3), None).expect("a plain object");
        assert!(
            coming.take(Chunk::from(b"abc".to_vec())) && !coming.take(Chunk::from(b"d".to_vec())),
            "more than was asked for"
        );
        let going = |delete_at: u64| {
            let metadata = vec![(b"X-Delete-At".to_vec(), format!("{delete_at:010}").into_bytes())];
            weighed(Info { delete_at, metadata, ..info(0) }, Some(xxh3_64(b"")))
        };
        assert!(going(NOW_S).is_none() && going(NOW_S + 1).is_some());
        assert!(Weighed::of(Method::Get, &wanted, ToRead::NOTHING, b"nothing", NOW_S).is_none());
    }

    proptest! {
        #[test]
        fn a_part_is_that_of_the_whole(
            size in 0_usize..2000,
            first in proptest::option::of(0_u64..2500),
            last in proptest::option::of(0_u64..2500),
        ) {
            let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            let text = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
            let found = shown(both("GET", &format!("Range: bytes={}-{}\r\n", text(first), text(last)), &bytes));
            let end = size as u64;
            let span = match (first, last) {
                (None, None) => None,
                (None, Some(count)) => Some((end.saturating_sub(count), end)),
                (Some(first), None) => Some((first, end)),
                (Some(first), Some(last)) if first <= last => Some((first, end.min(last + 1))),
                _ => None,
            };
            match (span, found) {
                (None, found) => prop_assert!(found.is_none()),
                (Some((start, stop)), Some((206, body))) => {
                    prop_assert!(start < stop);
                    prop_assert_eq!(&body, &bytes[start as usize..stop as usize]);
                }
                (Some((start, stop)), Some((416, _))) => prop_assert!(start >= stop),
                (_, other) => prop_assert!(false, "{:?}", other),
            }
        }
    }
}
