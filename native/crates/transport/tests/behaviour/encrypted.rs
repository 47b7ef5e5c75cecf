//! What encryption is for: who is let in, what can't be talked out of it, and what an eavesdropper sees.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::common::{
    Client, ECHO, GET, LONG, Outcome, PUT, Server, call, config, eventually, get_header, pattern, tls,
};
use swiftlet_transport::{
    Address, Body, Call, Carrier, Completions, EncryptedAcceptor, EncryptedFabric, Error, Fabric, Node, TcpAcceptor,
    TcpFabric, Tls,
};

/// Whether a server encrypts.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// It is of a version that knows nothing of encryption.
    Unaware,
    Accepted,
    Required,
}

fn server(mode: Mode, tls: &Arc<Tls>) -> (Node, SocketAddr) {
    let acceptor = TcpAcceptor::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = acceptor.address().unwrap();
    let node = Node::start(config("server", 64 << 20), &[], Some(Arc::new(Server::new()))).unwrap();
    node.listen(match mode {
        Mode::Unaware => Box::new(acceptor),
        _ => Box::new(EncryptedAcceptor::new(Box::new(acceptor), Arc::clone(tls), mode == Mode::Required)),
    });
    (node, address)
}

fn client(fabric: Arc<dyn Fabric>) -> Client {
    let node = Node::start(config("client", 64 << 20), &[fabric], None).unwrap();
    Client { node, events: Completions::new().unwrap(), early: Mutex::default(), next: 1.into() }
}

fn encrypting(tls: &Arc<Tls>) -> Client {
    client(Arc::new(EncryptedFabric::new(Arc::new(TcpFabric), Arc::clone(tls))))
}

fn plain() -> Client {
    client(Arc::new(TcpFabric))
}

fn at(address: SocketAddr) -> Address {
    Address { name: "server".to_owned(), tcp: Some(address) }
}

fn echo(client: &Client, address: SocketAddr) -> (Outcome, Option<Carrier>) {
    echo_within(LONG, client, address)
}

fn echo_within(timeout: Duration, client: &Client, address: SocketAddr) -> (Outcome, Option<Carrier>) {
    let peer = client.node.peer(at(address));
    let sent = Call { body: Body::Chunk(b"hello".to_vec().into()), timeout, ..call(ECHO) };
    let outcome = client.ask(&peer, sent);
    (outcome, peer.metrics().snapshot().carrier)
}

#[test]
fn plain_clients_are_served_while_encryption_is_accepted_and_refused_once_it_is_required() {
    let keys = tls(&["key"]);
    let (_accepting, accepting) = server(Mode::Accepted, &keys);
    let (_requiring, requiring) = server(Mode::Required, &keys);
    let (outcome, carrier) = echo(&plain(), accepting);
    assert_eq!((outcome.body, carrier), (b"hello".to_vec(), Some(Carrier::Tcp)));
    for address in [accepting, requiring] {
        let (outcome, carrier) = echo(&encrypting(&keys), address);
        assert_eq!((outcome.body, carrier), (b"hello".to_vec(), Some(Carrier::Tls)));
    }
    let (outcome, _) = echo(&plain(), requiring);
    let Some(Error::Unreachable(why)) = outcome.error else { panic!("{outcome:?}") };
    assert!(why.contains("have to be encrypted here (cluster.encryption)"), "{why}");
}

/// A relay that keeps what goes through it.
fn listening(target: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heard = Arc::<Mutex<Vec<u8>>>::default();
    let all = Arc::clone(&heard);
    thread::spawn(move || {
        for one in listener.incoming() {
            let (one, other) = (one.unwrap(), TcpStream::connect(target).unwrap());
            one.set_nodelay(true).unwrap();
            other.set_nodelay(true).unwrap();
            for (mut from, mut to) in
                [(one.try_clone().unwrap(), other.try_clone().unwrap()), (other.try_clone().unwrap(), one)]
            {
                let all = Arc::clone(&all);
                thread::spawn(move || {
                    let mut bytes = vec![0; 64 << 10];
                    while let Ok(count @ 1..) = from.read(&mut bytes) {
                        all.lock().unwrap().extend_from_slice(&bytes[..count]);
                        if to.write_all(&bytes[..count]).is_err() {
                            break;
                        }
                    }
                    drop(to.shutdown(std::net::Shutdown::Both));
                });
            }
        }
    });
    (address, heard)
}

#[test]
fn a_client_that_encrypts_is_not_talked_out_of_it() {
    let keys = tls(&["key"]);
    let (_server, direct) = server(Mode::Unaware, &keys);
    let (address, heard) = listening(direct);
    let (outcome, _) = echo_within(Duration::from_secs(3), &encrypting(&keys), address);
    assert!(matches!(outcome.error, Some(Error::Unreachable(_) | Error::Deadline)), "{outcome:?}");
    // Not even its name was shown, however often it tried.
    eventually("it has tried", || !heard.lock().unwrap().is_empty());
    assert!(!contains(&heard.lock().unwrap(), b"client"));
}

#[test]
fn another_clusters_members_are_no_peers() {
    let (ours, theirs) = (tls(&["key"]), tls(&["another"]));
    let (_server, address) = server(Mode::Required, &ours);
    let (outcome, _) = echo(&encrypting(&theirs), address);
    let Some(Error::Unreachable(why)) = outcome.error else { panic!("{outcome:?}") };
    assert!(why.contains("TLS"), "{why}");
    // With the right key it works once more.
    theirs.set_keys(&[b"key".to_vec()]).unwrap();
    assert_eq!(echo(&encrypting(&theirs), address).0.body, b"hello");
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}

/// An upload, a download from a file and one from memory, with a header; then what an eavesdropper may have seen.
fn overheard(client: &Client, address: SocketAddr, heard: &Mutex<Vec<u8>>) -> [bool; 4] {
    let peer = client.node.peer(at(address));
    let body = pattern(0, (2 << 20) + 5);
    let footer = swiftlet_hash::xxh3_64(&body).to_be_bytes().to_vec();
    let header = b"/account/container/a-name-that-nobody-should-see".to_vec();
    let put = Call { header: header.clone(), body: Body::Chunk(body.clone().into()), footer, ..call(PUT) };
    assert_eq!(client.ask(&peer, put).status, 201);
    for kind in 0..2 {
        let outcome = client.ask(&peer, Call { header: get_header(kind, 0, 1 << 20), ..call(GET) });
        assert!(outcome.body == body[..1 << 20], "{kind}");
    }
    let small = Call { header, body: Body::Chunk(body[..1000].to_vec().into()), ..call(ECHO) };
    assert_eq!(client.ask(&peer, small).body, body[..1000]);
    let heard = heard.lock().unwrap();
    assert!(heard.len() > 4 << 20);
    [&b"a-name-that-nobody-should-see"[..], &body[..64], &body[1 << 20..][..64], b"client"]
        .map(|part| contains(&heard, part))
}

#[test]
fn an_eavesdropper_sees_neither_names_nor_bytes() {
    let keys = tls(&["key"]);
    for (mode, client, seen) in [(Mode::Accepted, plain(), [true; 4]), (Mode::Required, encrypting(&keys), [false; 4])]
    {
        let (_server, direct) = server(mode, &keys);
        let (address, heard) = listening(direct);
        assert_eq!(overheard(&client, address, &heard), seen);
    }
}
