//! 200 uploads of 16 MiB at once, made as they are sent, stay within two pools. A test program of its own: it
//! looks at the memory of the whole process.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use swiftlet_transport::{
    Address, Answer, Buffer, Call, Chunk, Config, Error, Event, Handler, Incoming, Key, Node, Pool, Receiver,
    Responder, Sink, TcpAcceptor, TcpFabric, Upload, What,
};

const UPLOADS: u64 = 200;
const BODY_BYTES: u64 = 16 << 20;
const CHUNK: usize = 1 << 20;
const POOL_BYTES: usize = 48 << 20;
const LIMIT: Duration = Duration::from_secs(300);

/// Chunks begin with their offset; so a chunk that is lost, doubled or of another upload is found.
struct Counting(Arc<AtomicU64>);

struct One {
    number: u64,
    at: u64,
    all: Arc<AtomicU64>,
    responder: Option<Responder>,
}

impl Handler for Counting {
    fn request(&self, incoming: Incoming, responder: Responder) -> Option<Box<dyn Receiver>> {
        let number = u64::from_be_bytes(incoming.header.try_into().unwrap());
        Some(Box::new(One { number, at: 0, all: Arc::clone(&self.0), responder: Some(responder) }))
    }
}

impl Receiver for One {
    fn chunk(&mut self, chunk: Chunk) {
        assert_eq!(chunk[..8], (self.number << 32 | self.at).to_be_bytes());
        self.at += chunk.len() as u64;
        self.all.fetch_add(chunk.len() as u64, SeqCst);
    }

    fn end(&mut self, _footer: &[u8]) {
        let status = if self.at == BODY_BYTES { 201 } else { 422 };
        self.responder.take().unwrap().answer(Answer { status, ..Answer::default() });
    }

    fn failed(&mut self, why: &Error) {
        panic!("upload {} failed: {why}", self.number);
    }
}

enum Message {
    Event(Event),
    Memory(u64, Option<Buffer>),
}

struct Channel(Mutex<mpsc::Sender<Message>>);

impl Sink for Channel {
    fn events(&self, events: &mut Vec<Event>) {
        let to = self.0.lock().unwrap();
        events.drain(..).for_each(|event| drop(to.send(Message::Event(event))));
    }
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn node(name: &str, handler: Option<Arc<dyn Handler>>) -> Node {
    let pool = Pool::new(POOL_BYTES).unwrap();
    let config = Config::new(name, "machine", vec![Key::new(b"secret")], pool);
    Node::start(config, &[Arc::new(TcpFabric)], handler).unwrap()
}

#[test]
fn two_hundred_uploads_stay_within_two_pools() {
    let all = Arc::new(AtomicU64::new(0));
    let server = node("server", Some(Arc::new(Counting(Arc::clone(&all)))));
    let acceptor = TcpAcceptor::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let tcp = Some(acceptor.address().unwrap());
    server.listen(Box::new(acceptor));
    let client = node("client", None);
    let peer = client.peer(Address { name: "server".to_owned(), tcp });

    let end = Instant::now() + LIMIT;
    let (tell, told) = mpsc::channel();
    let sink: Arc<dyn Sink> = Arc::new(Channel(Mutex::new(tell.clone())));
    let ask = |number: u64| {
        let tell = tell.clone();
        let then = move |buffer| drop(tell.send(Message::Memory(number, buffer)));
        client.pool().chunk_later(CHUNK, end, Box::new(then));
    };
    let mut uploads: HashMap<u64, (Option<Upload>, u64, u64)> = HashMap::new();
    for number in 0..UPLOADS {
        let call = Call { method: 1, timeout: LIMIT, header: number.to_be_bytes().to_vec(), ..Call::default() };
        uploads.insert(number, (Some(peer.upload(call, Some(BODY_BYTES), &sink, number).unwrap()), 0, 0));
        ask(number);
    }
    let mut done = 0;
    while done < UPLOADS {
        match told.recv_timeout(end.saturating_duration_since(Instant::now())).expect("it goes on") {
            Message::Memory(number, buffer) => {
                let mut buffer = buffer.expect("memory in time");
                let (upload, at, _) = uploads.get_mut(&number).unwrap();
                buffer.as_mut_slice()[..8].copy_from_slice(&(number << 32 | *at).to_be_bytes());
                *at += CHUNK as u64;
                upload.as_ref().unwrap().send(buffer.freeze(CHUNK)).unwrap();
            }
            // The next one when this one has left.
            Message::Event(Event { token, what: What::Sent(bytes) }) => {
                let (upload, at, sent) = uploads.get_mut(&token).unwrap();
                *sent += bytes as u64;
                if *sent < *at {
                    continue;
                }
                if *at < BODY_BYTES {
                    ask(token);
                } else if let Some(upload) = upload.take() {
                    upload.end(Vec::new()).unwrap();
                }
            }
            Message::Event(Event { what: What::Reply { status, .. }, .. }) => {
                assert_eq!(status, 201);
                done += 1;
            }
            Message::Event(Event { what, .. }) => panic!("{what:?}"),
        }
    }
    assert_eq!(all.load(SeqCst), UPLOADS * BODY_BYTES);
    for node in [&client, &server] {
        let stat = node.pool().stat();
        assert!(stat.peak_bytes <= stat.limit_bytes && stat.limit_bytes == POOL_BYTES, "{stat:?}");
    }
    let limit_kib = (2 * POOL_BYTES / 1024 + (32 << 10)) as u64;
    assert!(peak_kib() < limit_kib, "{} KiB, {limit_kib} KiB allowed", peak_kib());
}
