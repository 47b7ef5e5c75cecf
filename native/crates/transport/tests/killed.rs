//! A process that is killed in mid-transfer is noticed by the other one. The other process is this test program
//! itself, started anew with a variable that tells it what to be.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use common::{Client, HOLD, Server, World, call, config, eventually};
use swiftlet_transport::{
    Address, Carrier, Completions, Error, Fabric, Node, SameNodeAcceptor, SameNodeFabric, TcpAcceptor, TcpFabric,
};

const ROLE: &str = "SWIFTLET_TEST_ROLE";
const WHERE: &str = "SWIFTLET_TEST_WHERE";
const NOTICED: Duration = Duration::from_millis(2500);

fn start(role: &str, place: &str) -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["the_other_process", "--exact", "--nocapture"])
        .env(ROLE, role)
        .env(WHERE, place)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = lines.map_while(Result::ok).find_map(|line| line.split("at: ").nth(1).map(str::to_owned));
    (child, said.expect("the other process says where it is"))
}

fn fabrics(directory: &Path) -> Vec<Arc<dyn Fabric>> {
    vec![Arc::new(SameNodeFabric::new(directory)), Arc::new(TcpFabric)]
}

fn upload_for_ever(client: &Client, address: Address) -> u64 {
    let peer = client.node.peer(address);
    let token = client.token();
    let upload = peer.upload(call(HOLD), None, &client.sink(), token).unwrap();
    for _ in 0..8 {
        upload.send(client.buffer(1 << 20).freeze(1 << 20)).unwrap();
    }
    token
}

/// Does nothing unless it is told to be something by [`start`].
#[test]
fn the_other_process() {
    let (Ok(role), Ok(place)) = (std::env::var(ROLE), std::env::var(WHERE)) else { return };
    if role == "server" {
        let node = Node::start(config("server", 64 << 20), &[], Some(Arc::new(Server::new()))).unwrap();
        if place.is_empty() {
            let acceptor = TcpAcceptor::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            println!("at: {}", acceptor.address().unwrap());
            node.listen(Box::new(acceptor));
        } else {
            node.listen(Box::new(SameNodeAcceptor::bind(Path::new(&place), "server").unwrap()));
            println!("at: {place}");
        }
        loop {
            std::thread::park();
        }
    }
    let directory = Path::new(&place);
    let node = Node::start(config("client", 64 << 20), &fabrics(directory), None).unwrap();
    let client =
        Client { node, events: Completions::new().unwrap(), early: Default::default(), next: Default::default() };
    upload_for_ever(&client, Address { name: "server".to_owned(), tcp: place.parse().ok() });
    println!("at: {place}");
    loop {
        std::thread::park();
    }
}

fn a_killed_server_is_noticed(carrier: Carrier) {
    let world = World::new(carrier);
    let place = if carrier == Carrier::SameNode { world.directory.to_str().unwrap() } else { "" };
    let (mut child, place) = start("server", place);
    let client = world.client(config("client", 64 << 20));
    let address = Address { name: "server".to_owned(), tcp: place.parse().ok() };
    let token = upload_for_ever(&client, address);
    let carried = || client.node.report()[0].counters.sent_bytes + client.node.report()[0].counters.lent_bytes;
    eventually("in mid-transfer", || carried() > 1 << 20);
    assert_eq!(client.node.report()[0].counters.carrier, Some(carrier));
    let begun = Instant::now();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(matches!(client.finish(token).error, Some(Error::Lost(_))));
    assert!(begun.elapsed() < NOTICED);
    if carrier == Carrier::SameNode {
        // What the dead process may have been reading is kept back for a while.
        assert!(client.node.pool().stat().used_bytes > 0);
    }
}

fn a_killed_client_is_noticed(carrier: Carrier) {
    let world = World::new(carrier);
    let server = Server::new();
    let seen = Arc::clone(&server.seen);
    let node = Node::start(config("server", 64 << 20), &[], Some(Arc::new(server))).unwrap();
    let place = if carrier == Carrier::SameNode {
        node.listen(Box::new(SameNodeAcceptor::bind(&world.directory, "server").unwrap()));
        world.directory.to_str().unwrap().to_owned()
    } else {
        let acceptor = TcpAcceptor::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = acceptor.address().unwrap().to_string();
        node.listen(Box::new(acceptor));
        address
    };
    let (mut child, _) = start("client", &place);
    eventually("in mid-transfer", || seen.received.load(SeqCst) > 1 << 20);
    let begun = Instant::now();
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the receiver is told", || seen.failed.lock().unwrap().len() == 1);
    assert!(begun.elapsed() < NOTICED);
    // What was received can still be read, lent or not, and is let go of without harm.
    assert!(seen.chunks.lock().unwrap().iter().all(|chunk| chunk.len() == 1 << 20 && chunk[77] == 0));
    seen.chunks.lock().unwrap().clear();
    eventually("all memory comes back", || node.pool().stat().used_bytes == 0);
}

#[test]
fn a_killed_server_is_noticed_over_tcp() {
    a_killed_server_is_noticed(Carrier::Tcp);
}

#[test]
fn a_killed_server_is_noticed_on_the_same_node() {
    a_killed_server_is_noticed(Carrier::SameNode);
}

#[test]
fn a_killed_client_is_noticed_over_tcp() {
    a_killed_client_is_noticed(Carrier::Tcp);
}

#[test]
fn a_killed_client_is_noticed_on_the_same_node() {
    a_killed_client_is_noticed(Carrier::SameNode);
}
