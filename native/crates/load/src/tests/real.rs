//! With sockets: a generator with several threads against a server of threads, over TCP and TLS.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::store::Store;
use super::*;
use crate::engine::World as _;
use crate::load::{Error, Load};
use crate::secure::Trust;
use crate::sockets::Sockets;

const WITHIN: Duration = Duration::from_secs(60);

/// Serve a store on a port of its own until the process ends.
fn serve(tls: Option<Arc<ServerConfig>>) -> (std::net::SocketAddr, Arc<Mutex<Store>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, store) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Store::default())));
    let shared = Arc::clone(&store);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, store, tls) = (stream.unwrap(), Arc::clone(&shared), tls.clone());
            thread::spawn(move || match tls {
                Some(config) => answer(StreamOwned::new(ServerConnection::new(config).unwrap(), stream), &store),
                None => answer(stream, &store),
            });
        }
    });
    (address, store)
}

fn answer(mut stream: impl Read + Write, store: &Mutex<Store>) {
    let mut asked = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    while let Ok(size @ 1..) = stream.read(&mut buffer) {
        asked.extend_from_slice(&buffer[..size]);
        if let Some((request, used)) = simulated::parse(&asked) {
            asked.drain(..used);
            let bytes = store.lock().unwrap().serve(&request);
            if stream.write_all(&bytes).is_err() {
                return;
            }
        }
    }
}

fn finish(load: &Load) -> crate::load::Outcome {
    assert!(load.wait(WITHIN));
    load.finish().unwrap()
}

fn run(plan: Plan, store: &Mutex<Store>) {
    let load = Load::new(plan).unwrap();
    let order = |phase| Order { connections: 5, phase };
    for phase in [Phase::CreateContainers, Phase::Fill(20)] {
        load.begin(order(phase)).unwrap();
        assert!(matches!(load.begin(order(phase)), Err(Error::Order(_))));
        assert_eq!(failures(&finish(&load).tally), []);
    }
    assert_eq!(store.lock().unwrap().objects.len(), 20);
    for pace in [AT_ONCE, Pace::Open(Pause::Random(MS))] {
        load.begin(measured(5, pace, Length::Operations(300))).unwrap();
        let outcome = finish(&load);
        assert_eq!(failures(&outcome.tally), []);
        assert_eq!(outcome.tally.operations.values().map(|one| one.succeeded).sum::<u64>(), 300);
        assert!(outcome.cpu_s > 0.0 && outcome.busiest <= 1.1);
    }
    for phase in [Phase::Empty, Phase::DeleteContainers] {
        load.begin(order(phase)).unwrap();
        let outcome = finish(&load);
        assert_eq!((failures(&outcome.tally), outcome.left), (vec![], 0));
    }
    let store = store.lock().unwrap();
    assert!(store.objects.is_empty() && store.containers.is_empty());
}

fn large(target: Target) -> Plan {
    let all = Kind::OPERATIONS.map(|kind| (kind, 1.0));
    let sizes = Sizes::new(&[(9.0, Size::Uniform(0, 5000)), (1.0, Size::Fixed(3_000_000))]).unwrap();
    Plan { target, threads: 2, sizes, ..plan(&all) }
}

#[test]
fn a_generator_with_two_threads() {
    for verify in [1.0, 0.3, 0.0] {
        let (address, store) = serve(None);
        let target = Target { addresses: vec![address], ..plan(&[]).target };
        run(Plan { verify, ..large(target) }, &store);
    }
}

/// Read a hundred times from a store all of whose objects are damaged in their last byte, of which a quarter is to be
/// compared: how many reads succeeded, and how many were found to be corrupt.
fn found_of_damaged(target: Target, store: &Mutex<Store>) -> (u64, u64) {
    let sizes = Sizes::new(&[(1.0, Size::Fixed(300_000))]).unwrap();
    let load = Load::new(Plan { target, verify: 0.25, sizes, ..plan(&[(Kind::Read, 1.0)]) }).unwrap();
    for phase in [Phase::CreateContainers, Phase::Fill(10)] {
        load.begin(Order { connections: 4, phase }).unwrap();
        assert_eq!(failures(&finish(&load).tally), []);
    }
    for bytes in store.lock().unwrap().objects.values_mut() {
        *bytes.last_mut().unwrap() ^= 1;
    }
    load.begin(measured(4, AT_ONCE, Length::Operations(100))).unwrap();
    let tally = finish(&load).tally;
    let read = &tally.operations[&Kind::Read];
    assert_eq!((read.bytes, read.compared), (read.succeeded * 300_000, 0));
    assert!(failures(&tally).iter().all(|one| one.1 == "corrupt"), "{:?}", failures(&tally));
    (read.succeeded, tally.failed())
}

#[test]
fn of_reads_without_tls_the_kernel_drops_what_is_not_compared() {
    let (address, store) = serve(None);
    assert_eq!(found_of_damaged(Target { addresses: vec![address], ..plan(&[]).target }, &store), (75, 25));
}

/// Do something with the first connection as soon as it would not block.
fn unblocked<T>(world: &mut Sockets, mut act: impl FnMut(&mut Sockets) -> std::io::Result<T>) -> T {
    loop {
        match act(world) {
            Ok(done) => return done,
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
        world.wait(world.now() + 10 * S, &mut Vec::new()).unwrap();
    }
}

#[test]
fn bytes_are_dropped_up_to_where_they_are_to_be_read_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = Target { addresses: vec![listener.local_addr().unwrap()], ..plan(&[]).target };
    let mut world = Sockets::new(&target, 1, 0).unwrap();
    world.connect(0).unwrap();
    let mut server = listener.accept().unwrap().0;
    let writer = thread::spawn(move || {
        server.write_all(&vec![1; 3_000_000]).unwrap();
        server.write_all(&[2; 10]).unwrap();
    });
    let mut left = 3_000_000;
    while left > 0 {
        left -= unblocked(&mut world, |world| world.discard(0, left)).0 as u64;
    }
    let mut rest = [0; 10];
    let mut filled = 0;
    while filled < rest.len() {
        filled += unblocked(&mut world, |world| world.read(0, &mut rest[filled..])).0;
    }
    assert_eq!(rest, [2; 10]);
    writer.join().unwrap();
    assert_eq!(unblocked(&mut world, |world| world.discard(0, 5)), (0, false), "the server has closed the connection");
}

#[test]
fn the_same_over_tls() {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    // As `openssl req -x509` makes them.
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let certificate = parameters.self_signed(&key).unwrap();
    let pem = certificate.pem();
    let chain = vec![CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()];
    let private = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    let config = Arc::new(ServerConfig::builder().with_no_client_auth().with_single_cert(chain, private).unwrap());
    let (address, store) = serve(Some(Arc::clone(&config)));
    let trust = |name: &str| Some(Arc::new(Trust::new(pem.as_bytes(), name).unwrap()));
    let target = Target { addresses: vec![address], trust: trust("localhost"), ..plan(&[]).target };
    run(large(target.clone()), &store);
    assert_eq!(found_of_damaged(target.clone(), &store), (0, 100), "over TLS, all are compared");

    let another = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem();
    let stranger = Some(Arc::new(Trust::new(another.as_bytes(), "localhost").unwrap()));
    for trust in [trust("another.example"), stranger] {
        let load = Load::new(large(Target { trust, ..target.clone() })).unwrap();
        load.begin(measured(1, AT_ONCE, Length::Operations(1))).unwrap();
        let outcome = finish(&load);
        assert!(failures(&outcome.tally)[0].3.contains("certificate"), "{:?}", failures(&outcome.tally));
    }
}

#[test]
fn nobody_listens() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let load = Load::new(Plan {
        target: Target { addresses: vec![closed], ..plan(&[]).target },
        ..plan(&[(Kind::Create, 1.0)])
    });
    let load = load.unwrap();
    load.begin(measured(1, AT_ONCE, Length::Operations(2))).unwrap();
    let outcome = finish(&load);
    let (name, failure, count, example) = failures(&outcome.tally).remove(0);
    assert_eq!((name, failure.as_str(), count), ("create", "no connection", 2));
    assert!(example.contains("refused"), "{example}");
}

#[test]
fn a_generator_is_cancelled() {
    let (address, _) = serve(None);
    let plan = Plan { target: Target { addresses: vec![address], ..plan(&[]).target }, ..plan(&[(Kind::List, 1.0)]) };
    let load = Load::new(plan).unwrap();
    assert!(matches!(load.finish(), Err(Error::Order(_))));
    load.begin(measured(2, AT_ONCE, Length::Time(3600 * S))).unwrap();
    assert!(!load.wait(Duration::ZERO));
    load.cancel();
    assert_eq!(finish(&load).tally.ended_early, Some("cancelled"));
}

#[test]
fn an_impossible_plan_is_refused() {
    let load = |change: fn(&mut Plan)| {
        let mut plan = plan(&[(Kind::Read, 1.0)]);
        change(&mut plan);
        Load::new(plan).map(drop).unwrap_err().to_string()
    };
    assert!(load(|plan| plan.threads = 0).contains("threads"));
    assert!(load(|plan| plan.containers = 0).contains("containers"));
    assert!(load(|plan| plan.mix.clear()).contains("weights of operations"));
    assert!(load(|plan| plan.target.addresses.clear()).contains("address"));
    assert!(load(|plan| plan.prefix.push('\n')).contains("control characters"));
    assert!(measured(0, AT_ONCE, Length::Operations(1)).check().unwrap_err().contains("connections"));
    assert!(measured(1, Pace::Open(Pause::Even(0)), Length::Operations(1)).check().unwrap_err().contains("interval"));
}
