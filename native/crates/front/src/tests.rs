//! Connections with TLS, from both sides: clients in rustls, and a stand-in for aiohttp that does what it is told to.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned, SupportedProtocolVersion, version,
};

use crate::{Changes, Front, Handed, Handshakes, Secure, Secured, Settings};

const PATIENCE: Duration = Duration::from_secs(20);
const REQUEST: &[u8] = b"GET /v1/a/c/o HTTP/1.1\r\nHost: h\r\n\r\n";

struct Pair {
    certificate: String,
    key: String,
}

fn pair() -> Pair {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("randomness");
    Pair { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() }
}

fn secure(pair: &Pair) -> Secure {
    Secure::new(pair.certificate.as_bytes(), pair.key.as_bytes(), b"secret").expect("a good pair")
}

struct Server {
    front: Front,
    address: SocketAddr,
}

fn server(pair: &Pair) -> Server {
    let changes = Arc::new(Changes::new(1).expect("memory"));
    let front = Front::start_secure(Settings::patient(1 << 20), changes, secure(pair)).expect("a thread");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a socket");
    let address = listener.local_addr().expect("bound");
    front.listen(listener.into());
    Server { front, address }
}

fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(Instant::now() < end, "{what} did not happen in time");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A connection in the hands of aiohttp's stand-in.
struct Taken {
    socket: UnixStream,
    begun_with: Vec<u8>,
    bounces: u32,
    secured: Secured,
}

impl Taken {
    /// Exactly so many bytes of what the client has sent.
    fn read(&mut self, count: usize) -> Vec<u8> {
        let mut read = std::mem::take(&mut self.begun_with);
        let begun = read.len();
        read.resize(count.max(begun), 0);
        self.socket.read_exact(&mut read[begun..]).expect("the client has sent them");
        self.begun_with = read.split_off(count);
        read
    }
}

impl Server {
    fn taken(&self) -> Taken {
        let Handed { socket, bytes, bounces, secured, .. } = until("a connection to take over", || {
            self.front.undecided().into_iter().for_each(|holder| self.front.decided(holder, false));
            self.front.handed(1).into_iter().next()
        });
        let socket = UnixStream::from(socket);
        socket.set_nonblocking(false).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Taken { socket, begun_with: bytes, bounces, secured: secured.expect("with TLS") }
    }

    fn give_back(&self, taken: Taken) {
        assert!(taken.begun_with.is_empty());
        self.front.adopt_secured(taken.secured.token, taken.socket.into(), taken.bounces);
    }

    fn failed(&self) -> Handshakes {
        Handshakes { full: 0, resumed: 0, ..self.front.handshakes() }
    }
}

type Client = StreamOwned<ClientConnection, TcpStream>;

const BOTH: &[&SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];

fn config(pairs: &[&Pair], versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for pair in pairs {
        roots.add(CertificateDer::from_pem_slice(pair.certificate.as_bytes()).expect("PEM")).expect("a certificate");
    }
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .expect("known versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

fn session(config: &Arc<ClientConfig>) -> ClientConnection {
    let name = ServerName::try_from("localhost").expect("a name");
    ClientConnection::new(Arc::clone(config), name).expect("randomness")
}

fn connect(server: &Server, config: &Arc<ClientConfig>) -> Client {
    let socket = TcpStream::connect(server.address).expect("somebody listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
    socket.set_nodelay(true).expect("a socket");
    StreamOwned::new(session(config), socket)
}

fn server_and_client(pair: &Pair) -> (Server, Client) {
    let server = server(pair);
    let client = connect(&server, &Arc::new(config(&[pair], BOTH)));
    (server, client)
}

fn ask(client: &mut Client) {
    client.write_all(REQUEST).expect("a connection");
    client.flush().expect("a connection");
}

fn answered(client: &mut Client, expected: &[u8]) {
    let mut answer = vec![0; expected.len()];
    client.read_exact(&mut answer).expect("an answer");
    assert!(answer == expected);
}

/// Until the client is told that no more comes: what came. A connection that is cut is a panic.
fn rest(client: &mut Client) -> Vec<u8> {
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).expect("an orderly end");
    rest
}

#[test]
fn there_and_back_with_both_versions_and_addresses() {
    let pair = pair();
    let server = server(&pair);
    for one in BOTH {
        let mut client = connect(&server, &Arc::new(config(&[&pair], &[*one])));
        for round in 0..3 {
            ask(&mut client);
            let mut taken = server.taken();
            assert_eq!((taken.read(REQUEST.len()).as_slice(), taken.bounces), (REQUEST, round));
            assert_eq!(taken.secured.remote, client.sock.local_addr().expect("connected"));
            assert_eq!(taken.secured.local, server.address);
            taken.socket.write_all(b"an answer").expect("the front takes it");
            server.give_back(taken);
            answered(&mut client, b"an answer");
        }
        client.conn.send_close_notify();
        client.flush().expect("a connection");
        until("the end of the connection", || (server.front.open() + server.front.bridged() == 0).then_some(()));
    }
    assert_eq!(server.failed(), Handshakes::default());
}

#[test]
fn what_was_not_read_comes_back() {
    let (server, mut client) = server_and_client(&pair());
    ask(&mut client);
    let mut taken = server.taken();
    taken.read(REQUEST.len());
    // Far more than the pair and the front hold, in pieces that fit no request.
    let bytes: Vec<u8> = (0..2_000_000_u32).map(|number| (number % 251) as u8).collect();
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || {
        client.write_all(&sent).expect("somebody reads in the end");
        client
    });
    std::thread::sleep(Duration::from_millis(200));
    server.give_back(taken);
    let mut next = server.taken();
    assert!(next.read(bytes.len()) == bytes);
    assert_eq!(next.bounces, 1);
    next.socket.write_all(b"thanks").expect("the front takes it");
    answered(&mut writer.join().expect("written"), b"thanks");
}

#[test]
fn large_bodies_in_both_directions_at_once() {
    let (server, mut client) = server_and_client(&pair());
    ask(&mut client);
    let mut taken = server.taken();
    taken.read(REQUEST.len());
    let size = 32 << 20;
    let echo = std::thread::spawn(move || {
        let (mut some, mut left) = (vec![0; 70_000], size);
        while left > 0 {
            let count = taken.socket.read(&mut some).expect("bytes");
            taken.socket.write_all(&some[..count]).expect("the front takes them");
            left -= count;
        }
    });
    client.sock.set_nonblocking(true).expect("a socket");
    let (mut sent, mut received, mut some) = (0_usize, 0_usize, vec![0; 50_000]);
    let byte = |at: usize| (at % 253) as u8;
    let end = Instant::now() + PATIENCE;
    while received < size {
        assert!(Instant::now() < end);
        let piece: Vec<u8> = (sent..size.min(sent + 30_000)).map(byte).collect();
        let before = (sent, received);
        match client.write(&piece) {
            Ok(count) => sent += count,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        match client.read(&mut some) {
            Ok(count) => {
                assert!(some[..count].iter().enumerate().all(|(at, found)| *found == byte(received + at)));
                received += count;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        if before == (sent, received) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    echo.join().expect("an echo");
}

/// How many bytes somebody takes who does not pass them on.
fn taken_by(mut write: impl FnMut() -> std::io::Result<usize>) -> usize {
    let (mut total, mut quiet) = (0, Instant::now());
    while quiet.elapsed() < Duration::from_millis(300) {
        match write() {
            Ok(count) if count > 0 => {
                total += count;
                quiet = Instant::now();
            }
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
        assert!(total < 32 << 20, "without a bound");
    }
    total
}

#[test]
fn who_does_not_read_stops_who_writes() {
    let (server, mut client) = server_and_client(&pair());
    ask(&mut client);
    let mut taken = server.taken();
    taken.read(REQUEST.len());
    let some = vec![7; 60_000];
    taken.socket.set_nonblocking(true).expect("a socket");
    let answer = taken_by(|| taken.socket.write(&some));
    client.sock.set_nonblocking(true).expect("a socket");
    let body = taken_by(|| client.write(&some));
    assert!(body > 0);
    // All of it arrives once they read.
    client.sock.set_nonblocking(false).expect("a socket");
    taken.socket.set_nonblocking(false).expect("a socket");
    let reader = std::thread::spawn(move || taken.read(body));
    client.flush().expect("a connection");
    answered(&mut client, &vec![7; answer]);
    assert!(reader.join().expect("read") == vec![7; body]);
}

#[test]
fn the_end_of_one_direction() {
    let (server, mut client) = server_and_client(&pair());
    client.write_all(REQUEST).expect("a connection");
    client.write_all(&[1; 100_000]).expect("a connection");
    client.conn.send_close_notify();
    client.flush().expect("a connection");
    let mut taken = server.taken();
    taken.read(REQUEST.len() + 100_000);
    assert_eq!(taken.socket.read(&mut [0]).expect("the end"), 0);
    taken.socket.write_all(&[2; 500_000]).expect("the front takes it");
    drop(taken);
    assert!(rest(&mut client) == [2; 500_000]);
    until("the end of the connection", || (server.front.open() + server.front.bridged() == 0).then_some(()));
}

#[test]
fn an_answer_before_the_end_of_the_body_arrives_whole() {
    let (server, mut client) = server_and_client(&pair());
    ask(&mut client);
    let mut taken = server.taken();
    client.write_all(&[1; 150_000]).expect("a connection");
    taken.read(REQUEST.len());
    taken.socket.write_all(&[3; 200_000]).expect("the front takes it");
    // With bytes that nobody has read, as after a refusal.
    drop(taken);
    let _ = client.write_all(&[1; 400_000]);
    assert!(rest(&mut client) == [3; 200_000]);
}

#[test]
fn clients_that_vanish() {
    let (server, mut client) = server_and_client(&pair());
    ask(&mut client);
    let mut taken = server.taken();
    taken.read(REQUEST.len());
    // Without a word: the end is passed on all the same.
    client.sock.shutdown(Shutdown::Both).expect("a connection");
    drop(client);
    assert_eq!(taken.socket.read(&mut [0]).expect("the end"), 0);
    let end = Instant::now() + PATIENCE;
    while taken.socket.write_all(&[0; 10_000]).is_ok() {
        assert!(Instant::now() < end);
    }
    until("the end of the connection", || (server.front.bridged() == 0).then_some(()));
}

#[test]
fn keys_that_change_under_way() {
    let (server, mut client) = server_and_client(&pair());
    for round in 0..5 {
        ask(&mut client);
        client.conn.refresh_traffic_keys().expect("TLS 1.3");
        let mut taken = server.taken();
        assert_eq!(taken.read(REQUEST.len()), REQUEST);
        taken.socket.write_all(&[round; 50_000]).expect("the front takes it");
        client.conn.refresh_traffic_keys().expect("TLS 1.3");
        client.flush().expect("a connection");
        answered(&mut client, &[round; 50_000]);
        server.give_back(taken);
    }
}

#[test]
fn who_speaks_no_tls_is_refused_and_counted() {
    let pair = pair();
    let server = server(&pair);
    let begin = |bytes: &[u8]| {
        let mut socket = TcpStream::connect(server.address).expect("somebody listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        socket.write_all(bytes).expect("a connection");
        socket
    };
    let closed = |mut socket: TcpStream| {
        let mut told = Vec::new();
        // A reset is as good.
        let _ = socket.read_to_end(&mut told);
        assert!(told.len() < 100, "an alert at most");
    };
    closed(begin(REQUEST));
    until("a refusal", || (server.failed() == Handshakes { plain: 1, ..Handshakes::default() }).then_some(()));
    closed(begin(b"\x16\x03\x01\x00\x05hello"));
    until("one more", || (server.failed().protocol == 1).then_some(()));
    drop(begin(b"\x16\x03"));
    until("one more", || (server.failed().closed == 1).then_some(()));
    // As a check whether the port is open.
    drop(begin(b""));
    // Who does not trust the certificate says so.
    let mut client = connect(&server, &Arc::new(config(&[&self::pair()], BOTH)));
    assert!(client.write_all(REQUEST).is_err());
    until("one more", || (server.failed().protocol == 2).then_some(()));
    until("the end of all", || (server.front.open() == 0).then_some(()));
    assert_eq!(server.failed(), Handshakes { plain: 1, protocol: 2, closed: 1, ..Handshakes::default() });
    assert!(server.front.handed(10).is_empty());
}

#[test]
fn half_a_handshake_does_not_keep_a_process_from_ending() {
    let (server, mut client) = server_and_client(&pair());
    let slow = TcpStream::connect(server.address).expect("somebody listens");
    ask(&mut client);
    let mut taken = server.taken();
    taken.read(REQUEST.len());
    server.front.leave();
    until("the end of the handshake", || (server.front.open() == 0).then_some(()));
    assert_eq!(server.failed().late, 1);
    taken.socket.write_all(b"the last answer").expect("the front takes it");
    drop(taken);
    assert_eq!(rest(&mut client), b"the last answer");
    drop(slow);
}

#[test]
fn a_renewed_certificate_is_for_new_connections() {
    let (first, second) = (pair(), pair());
    let server = server(&first);
    let (old, new) = (Arc::new(config(&[&first], BOTH)), Arc::new(config(&[&second], BOTH)));
    let mut before = connect(&server, &old);
    ask(&mut before);
    let mut taken = server.taken();
    taken.read(REQUEST.len());
    let renew = |pair: &Pair| server.front.renew(pair.certificate.as_bytes(), pair.key.as_bytes());
    for (certificate, key) in [
        (&second.certificate, &first.key),
        (&String::new(), &second.key),
        (&second.certificate, &String::new()),
        (&second.key, &second.certificate),
    ] {
        assert!(renew(&Pair { certificate: certificate.clone(), key: key.clone() }).is_err());
    }
    ask(&mut connect(&server, &Arc::new(config(&[&first], BOTH))));
    server.taken();
    renew(&second).expect("a good pair");
    ask(&mut connect(&server, &new));
    server.taken();
    taken.socket.write_all(b"still here").expect("the front takes it");
    answered(&mut before, b"still here");
}

#[test]
fn sessions_are_resumed_by_all_processes() {
    let pair = pair();
    let servers = [server(&pair), server(&pair)];
    for one in BOTH {
        let config = Arc::new(config(&[&pair], &[*one]));
        for round in 0..4 {
            let server = &servers[round % 2];
            let mut client = connect(server, &config);
            ask(&mut client);
            let mut taken = server.taken();
            taken.read(REQUEST.len());
            taken.socket.write_all(b"x").expect("the front takes it");
            answered(&mut client, b"x");
            let expected = if round == 0 { HandshakeKind::Full } else { HandshakeKind::Resumed };
            assert_eq!(client.conn.handshake_kind(), Some(expected), "{one:?} {round}");
        }
    }
    let counted: Vec<_> = servers.iter().map(|one| one.front.handshakes()).collect();
    assert_eq!((counted[0].full, counted[0].resumed, counted[1].full, counted[1].resumed), (2, 2, 0, 4));
}

#[test]
fn the_protocol_above() {
    let pair = pair();
    let server = server(&pair);
    for (offered, chosen) in
        [(vec!["h2", "http/1.1"], Some("http/1.1")), (vec!["h2"], None), (vec!["http/1.0", "spdy/1"], None)]
    {
        let mut config = config(&[&pair], BOTH);
        config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
        let mut client = connect(&server, &Arc::new(config));
        ask(&mut client);
        server.taken();
        assert_eq!(client.conn.alpn_protocol(), chosen.map(str::as_bytes));
    }
}

/// All that a client sends for a request until its answer begins, with every flight cut by `cut`.
fn in_pieces(record: usize, mut cut: impl FnMut(usize) -> usize) {
    let pair = pair();
    let server = server(&pair);
    let mut config = config(&[&pair], BOTH);
    config.max_fragment_size = Some(record);
    let mut tls = session(&Arc::new(config));
    let mut socket = TcpStream::connect(server.address).expect("somebody listens");
    socket.set_nodelay(true).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let body: Vec<u8> = (0..2000_u32).map(|number| number as u8).collect();
    let mut asked = false;
    let mut taken = None;
    loop {
        if !tls.is_handshaking() && !asked {
            tls.writer().write_all(REQUEST).expect("room");
            tls.writer().write_all(&body).expect("room");
            asked = true;
        }
        let mut flight = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut flight).expect("memory");
        }
        let mut left = &flight[..];
        while !left.is_empty() {
            let (now, later) = left.split_at(cut(left.len()).clamp(1, left.len()));
            socket.write_all(now).expect("a connection");
            left = later;
        }
        if asked && taken.is_none() {
            let mut one = server.taken();
            assert_eq!(one.read(REQUEST.len()), REQUEST);
            assert_eq!(one.read(body.len()), body);
            one.socket.write_all(b"an answer").expect("the front takes it");
            taken = Some(one);
        }
        if tls.read_tls(&mut socket).expect("a connection") == 0 {
            panic!("the connection has ended");
        }
        tls.process_new_packets().expect("a good server");
        let mut answer = [0; 9];
        if asked && tls.reader().read(&mut answer).is_ok_and(|count| count == answer.len()) {
            assert_eq!(&answer, b"an answer");
            return;
        }
    }
}

#[test]
fn byte_by_byte() {
    in_pieces(1000, |_| 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn cut_anywhere(record in 32_usize..4000, cuts in proptest::collection::vec(1_usize..1500, 1..40)) {
        let mut cuts = cuts.into_iter().cycle();
        in_pieces(record, |left| cuts.next().unwrap_or(left));
    }
}
