//! Who has a key gets in; who has none, repeats, alters or means somebody else does not.

use proptest::prelude::*;

use crate::guest::Session;
use crate::handshake::{
    Admission, Agreed, Client, Credentials, Denied, Identity, Key, Limits, Nonce, Refusal, Server, VERSIONS,
    WITH_EARLY, encode_refusal,
};
use crate::violation::Violation;

fn identity(name: &str) -> Identity {
    let limits = Limits { window_bytes: 4 << 20, lent: true, streams: 100, inline_bytes: 1 << 20 };
    Identity { name: name.to_owned(), machine: "m".to_owned(), limits }
}

fn keys(names: &[&str]) -> Vec<Key> {
    names.iter().map(|name| Key::new(name.as_bytes())).collect()
}

const GUESTS: Limits = Limits { window_bytes: 1 << 20, lent: false, streams: 7, inline_bytes: 1 << 16 };
const NOW_S: u64 = 1000;

fn greeted(
    keys: &[Key],
    us: &Identity,
    hello: &[u8],
    nonce: &Nonce,
) -> Result<Result<(Server, Vec<u8>), Refusal>, Violation> {
    Server::greeted(&Admission { keys, us, guests: Some(GUESTS), now_s: NOW_S }, hello, nonce)
}

fn member(keys: &[Key], us: &Identity, expected: &str, nonce: &Nonce) -> (Client, Vec<u8>) {
    Client::new(Credentials::Member(keys.to_vec()), us, expected, nonce)
}

struct Run {
    client: Client,
    hello: Vec<u8>,
    server: Server,
    welcome: Vec<u8>,
}

fn run(client_keys: &[Key], server_keys: &[Key], nonces: (Nonce, Nonce)) -> Result<Run, Refusal> {
    let (client, hello) = member(client_keys, &identity("proxy"), "server", &nonces.0);
    let (server, welcome) = greeted(server_keys, &identity("server"), &hello, &nonces.1).expect("form")?;
    Ok(Run { client, hello, server, welcome })
}

fn finish(run: Run) -> Result<(Agreed, Agreed), Denied> {
    let (at_client, proof) = run.client.welcomed(&run.welcome)?;
    Ok((at_client, run.server.proved(&proof)?))
}

#[test]
fn any_shared_key_is_enough_while_keys_change() {
    for (client, server) in
        [(&["a"][..], &["a"][..]), (&["a", "b"], &["b"]), (&["b"], &["a", "b"]), (&["n", "o"], &["o", "n"])]
    {
        let done = run(&keys(client), &keys(server), ([1; 32], [2; 32])).expect("a common key");
        let (at_client, at_server) = finish(done).expect("proved");
        assert_eq!(at_client.session, at_server.session);
        assert_eq!((&at_client.peer.name[..], &at_server.peer.name[..]), ("server", "proxy"));
    }
}

#[test]
fn without_a_common_key_it_is_refused() {
    assert_eq!(run(&keys(&["a"]), &keys(&["b"]), ([1; 32], [2; 32])).err(), Some(Refusal::Key));
    let denied = Client::refused(&encode_refusal(Refusal::Key));
    assert_eq!(denied, Denied::Refused(2, (1, 2), "the two sides have no cluster key in common".to_owned()));
}

#[test]
fn a_server_of_another_name_refuses_and_is_refused() {
    let (client, hello) = member(&keys(&["a"]), &identity("proxy"), "other", &[1; 32]);
    let refused = greeted(&keys(&["a"]), &identity("server"), &hello, &[2; 32]).expect("form").err();
    assert_eq!(refused, Some(Refusal::Name));
    // One that answers all the same, for example because the address was given to another pod.
    let (_, welcome) = greeted(&keys(&["a"]), &identity("other"), &hello, &[2; 32]).expect("form").expect("in");
    drop(client.welcomed(&welcome).expect("by the right name"));
}

#[test]
fn a_client_of_later_versions_only_is_refused_with_ours() {
    let (_, mut hello) = member(&keys(&["a"]), &identity("proxy"), "server", &[1; 32]);
    hello[8..12].copy_from_slice(&[0, 3, 0, 9]);
    let refused = greeted(&keys(&["a"]), &identity("server"), &hello, &[2; 32]).expect("form").err();
    assert_eq!(refused, Some(Refusal::Version));
    let mut meta = encode_refusal(Refusal::Version);
    meta[2..6].copy_from_slice(&[0, 3, 0, 9]);
    assert_eq!(
        Client::refused(&meta).to_string(),
        "refused by a peer: its transport has format versions 3 to 9, this program understands 1 to 2: run the same \
         release of Swiftlet on both sides"
    );
}

#[test]
fn with_an_older_program_the_older_version_is_spoken() {
    let all = keys(&["a"]);
    for (highest, spoken) in [(1, 1), (VERSIONS.1, WITH_EARLY), (7, WITH_EARLY)] {
        let credentials = Credentials::Member(all.clone());
        let (client, hello) = Client::up_to(highest, credentials, &identity("proxy"), "server", &[1; 32]);
        let (server, welcome) = greeted(&all, &identity("server"), &hello, &[2; 32]).expect("form").expect("in");
        let (at_client, proof) = client.welcomed(&welcome).expect("proved");
        assert_eq!((at_client.version, server.proved(&proof).expect("proved").version), (spoken, spoken));
    }
}

#[test]
fn what_was_overheard_proves_nothing_later() {
    let all = keys(&["a"]);
    let first = run(&all, &all, ([1; 32], [2; 32])).expect("in");
    let (_, overheard) = first.client.welcomed(&first.welcome).expect("proved");

    // The client's HELLO and PROOF again, to a server that draws another nonce.
    let (server, _) = greeted(&all, &identity("server"), &first.hello, &[3; 32]).expect("form").expect("a known key");
    assert_eq!(server.proved(&overheard).err(), Some(Denied::Proof));

    // The server's WELCOME again, to a client that has drawn another nonce.
    let (client, _) = member(&all, &identity("proxy"), "server", &[4; 32]);
    assert_eq!(client.welcomed(&first.welcome).err(), Some(Denied::Proof));
}

#[test]
fn a_proof_sent_back_is_none() {
    let all = keys(&["a"]);
    let done = run(&all, &all, ([1; 32], [2; 32])).expect("in");
    let mac = done.welcome[done.welcome.len() - 32..].to_vec();
    assert_eq!(done.server.proved(&mac).err(), Some(Denied::Proof));
}

fn session(key: &Key, ends_s: u64) -> (Session, Key) {
    let session = Session { key_id: key.id(), id: [9; 16], ends_s };
    (session, session.secret(key))
}

/// How a guest fares at a server with these keys.
fn visit(session: Session, secret: Key, keys: &[Key]) -> Result<(Agreed, Agreed), Denied> {
    let (client, hello) = Client::new(Credentials::Guest(session, secret), &identity("guest"), "server", &[1; 32]);
    let (server, welcome) = match greeted(keys, &identity("server"), &hello, &[2; 32]).expect("form") {
        Ok(in_) => in_,
        Err(refusal) => return Err(Client::refused(&encode_refusal(refusal))),
    };
    let (agreed, proof) = client.welcomed(&welcome)?;
    Ok((agreed, server.proved(&proof)?))
}

fn refusal(denied: Result<(Agreed, Agreed), Denied>) -> Option<u16> {
    match denied {
        Err(Denied::Refused(number, ..)) => Some(number),
        _ => None,
    }
}

#[test]
fn a_guest_proves_its_session_and_gets_the_limits_of_guests() {
    let all = keys(&["new", "old"]);
    for key in &all {
        let (session, secret) = session(key, NOW_S + 1);
        let (at_client, at_server) = visit(session, secret, &all).expect("in");
        assert_eq!(at_client.session, at_server.session);
        assert_eq!((at_client.peer.limits, at_server.guest), (GUESTS, Some(session)));
    }
    let (at_client, at_server) = finish(run(&all, &all, ([1; 32], [2; 32])).expect("in")).expect("proved");
    assert_eq!((at_client.peer.limits, at_server.guest), (identity("server").limits, None));
}

#[test]
fn a_session_that_is_not_the_guests_own_lets_nobody_in() {
    let all = keys(&["a"]);
    let (good, secret) = session(&all[0], NOW_S + 1);
    let (_, of_another_cluster) = session(&Key::new(b"b"), NOW_S + 1);
    assert_eq!(visit(good, of_another_cluster, &all), Err(Denied::Proof));
    for changed in [Session { id: [8; 16], ..good }, Session { ends_s: NOW_S + 9, ..good }] {
        assert_eq!(visit(changed, secret.clone(), &all), Err(Denied::Proof));
    }
    assert_eq!(refusal(visit(good, secret, &keys(&["b"]))), Some(Refusal::Key as u16));
    let (ended, secret) = session(&all[0], NOW_S);
    assert_eq!(refusal(visit(ended, secret, &all)), Some(Refusal::Ended as u16));
}

#[test]
fn guests_are_only_let_in_where_they_are_wanted() {
    let all = keys(&["a"]);
    let (session, secret) = session(&all[0], NOW_S + 1);
    let (_, hello) = Client::new(Credentials::Guest(session, secret), &identity("guest"), "server", &[1; 32]);
    let admission = Admission { keys: &all, us: &identity("server"), guests: None, now_s: NOW_S };
    assert_eq!(Server::greeted(&admission, &hello, &[2; 32]).expect("form").err(), Some(Refusal::Guests));
}

#[test]
fn the_secret_of_a_session_is_no_key() {
    // Offered as a member's key it is not known; and who has it can't take a member's place.
    let all = keys(&["a"]);
    let (session, secret) = session(&all[0], NOW_S + 1);
    assert_eq!(run(std::slice::from_ref(&secret), &all, ([1; 32], [2; 32])).err(), Some(Refusal::Key));
    let (_, hello) = member(&all, &identity("proxy"), "server", &[1; 32]);
    let (server, _) = greeted(&all, &identity("server"), &hello, &[2; 32]).expect("form").expect("a known key");
    let (client, _) = Client::new(Credentials::Guest(session, secret), &identity("proxy"), "server", &[1; 32]);
    let (_, welcome) = greeted(&all, &identity("server"), &hello, &[2; 32]).expect("form").expect("a known key");
    assert_eq!(client.welcomed(&welcome), Err(Denied::Proof));
    assert_eq!(server.proved(&[0; 32]).err(), Some(Denied::Proof));
}

#[test]
fn debug_output_shows_no_key() {
    assert!(!format!("{:?}", Key::new(b"secret")).contains("secret"));
}

proptest! {
    #[test]
    fn who_alters_a_bit_on_the_way_is_found(bit in any::<prop::sample::Index>(), in_hello in any::<bool>()) {
        let all = keys(&["a"]);
        let (client, mut hello) = member(&all, &identity("proxy"), "server", &[1; 32]);
        if in_hello {
            let bit = bit.index(hello.len() * 8);
            hello[bit / 8] ^= 1 << (bit % 8);
        }
        let Ok(Ok((server, mut welcome))) = greeted(&all, &identity("server"), &hello, &[2; 32]) else {
            return Ok(());
        };
        if !in_hello {
            let bit = bit.index(welcome.len() * 8);
            welcome[bit / 8] ^= 1 << (bit % 8);
        }
        prop_assert!(client.welcomed(&welcome).is_err());
        drop(server);
    }

    #[test]
    fn who_alters_a_bit_of_a_guests_greeting_is_found(bit in any::<prop::sample::Index>()) {
        let all = keys(&["a"]);
        let (session, secret) = session(&all[0], NOW_S + 1);
        let guest = Credentials::Guest(session, secret);
        let (client, mut hello) = Client::new(guest, &identity("guest"), "server", &[1; 32]);
        let bit = bit.index(hello.len() * 8);
        hello[bit / 8] ^= 1 << (bit % 8);
        if let Ok(Ok((_, welcome))) = greeted(&all, &identity("server"), &hello, &[2; 32]) {
            prop_assert!(client.welcomed(&welcome).is_err());
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in any::<prop::sample::Index>()) {
        let all = keys(&["a"]);
        let (client, hello) = member(&all, &identity("proxy"), "server", &[1; 32]);
        let cut = [&hello[..cut.index(hello.len())], &bytes[..]].concat();
        for input in [&bytes, &cut] {
            drop(greeted(&all, &identity("server"), input, &[2; 32]));
            drop(client.welcomed(input));
            drop(Client::refused(input));
        }
    }
}
