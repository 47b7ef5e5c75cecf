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

use common::{Client, ECHO, HOLD, Server, World, call, config, eventually};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use swiftlet_transport::{
    Address, Carrier, Completions, Config, Error, Fabric, Node, SameNodeAcceptor, SameNodeFabric, TcpAcceptor,
    TcpFabric,
};

use swiftlet_wire::limits::DEAD_AFTER_MS;

const ROLE: &str = "SWIFTLET_TEST_ROLE";
const WHERE: &str = "SWIFTLET_TEST_WHERE";
/// How long the patient test waits for one that it gives up: longer than by default.
const PATIENCE: Duration = Duration::from_secs(3);

/// Whether a connection is lost because the other process ended, not because nothing was heard of it for a while.
fn is_cut(error: Option<&Error>) -> bool {
    matches!(error, Some(Error::Lost(why)) if !why.contains("sent nothing"))
}

/// Another process, which ends with its test, whatever becomes of that.
struct Other(Child);

impl Other {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// A machine that stands still: returns once all of its threads do.
    fn stop(&self) {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, Signal::STOP).unwrap();
        let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped());
    }

    /// And goes on.
    fn go_on(&self) {
        kill_process(Pid::from_child(&self.0), Signal::CONT).unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(role: &str, place: &str) -> (Other, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["the_other_process", "--exact", "--nocapture"])
        .env(ROLE, role)
        .env(WHERE, place)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = lines.map_while(Result::ok).find_map(|line| line.split("at: ").nth(1).map(str::to_owned));
    (Other(child), said.expect("the other process says where it is"))
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
    child.kill();
    let outcome = client.finish(token);
    assert!(is_cut(outcome.error.as_ref()), "{outcome:?}");
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
    child.kill();
    eventually("the receiver is told", || seen.failed.lock().unwrap().len() == 1);
    assert!(is_cut(seen.failed.lock().unwrap().first()));
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

#[test]
fn who_is_to_be_patient_waits_for_a_process_that_stands_still_and_gives_it_up_later() {
    let world = World::new(Carrier::Tcp);
    let (mut child, place) = start("server", "");
    let address = || Address { name: "server".to_owned(), tcp: place.parse().ok() };
    let client = world.client(config("client", 64 << 20));
    let peer = client.node.peer(address());
    assert_eq!(client.ask(&peer, call(ECHO)).status, 200);
    child.stop();
    let end = Instant::now() + Duration::from_millis(DEAD_AFTER_MS + 500);
    let token = client.start(&peer, call(ECHO));
    while Instant::now() < end {
        client.pump(Duration::from_millis(10));
    }
    child.go_on();
    let outcome = client.finish(token);
    assert_eq!((outcome.status, outcome.error, peer.metrics().snapshot().connects), (200, None, 1));
    let client = world.client(Config { silence: PATIENCE, ..config("client", 64 << 20) });
    let peer = client.node.peer(address());
    eventually("it is connected", || client.ask(&peer, call(ECHO)).status == 200);
    child.stop();
    let begun = Instant::now();
    let error = client.ask(&peer, call(ECHO)).error;
    assert!(matches!(&error, Some(Error::Lost(why)) if why.contains("sent nothing")), "{error:?}");
    assert!(begun.elapsed() > PATIENCE - Duration::from_millis(500));
    child.kill();
}
