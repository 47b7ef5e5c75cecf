//! Who has a key gets in; who has none, repeats, alters or means somebody else does not.

use proptest::prelude::*;

use crate::handshake::{Agreed, Client, Denied, Identity, Key, Limits, Nonce, Refusal, Server, encode_refusal};

fn identity(name: &str) -> Identity {
    let limits = Limits { window_bytes: 4 << 20, lent: true, streams: 100, inline_bytes: 1 << 20 };
    Identity { name: name.to_owned(), machine: "m".to_owned(), limits }
}

fn keys(names: &[&str]) -> Vec<Key> {
    names.iter().map(|name| Key::new(name.as_bytes())).collect()
}

struct Run {
    client: Client,
    hello: Vec<u8>,
    server: Server,
    welcome: Vec<u8>,
}

fn run(client_keys: &[Key], server_keys: &[Key], nonces: (Nonce, Nonce)) -> Result<Run, Refusal> {
    let (client, hello) = Client::new(client_keys, &identity("proxy"), "server", &nonces.0);
    let (server, welcome) = Server::greeted(server_keys, &identity("server"), &hello, &nonces.1).expect("form")?;
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
    assert_eq!(denied, Denied::Refused(2, (1, 1), "the two sides have no cluster key in common".to_owned()));
}

#[test]
fn a_server_of_another_name_refuses_and_is_refused() {
    let (client, hello) = Client::new(&keys(&["a"]), &identity("proxy"), "other", &[1; 32]);
    let refused = Server::greeted(&keys(&["a"]), &identity("server"), &hello, &[2; 32]).expect("form").err();
    assert_eq!(refused, Some(Refusal::Name));
    // One that answers all the same, for example because the address was given to another pod.
    let (_, welcome) = Server::greeted(&keys(&["a"]), &identity("other"), &hello, &[2; 32]).expect("form").expect("in");
    drop(client.welcomed(&welcome).expect("by the right name"));
}

#[test]
fn a_client_of_later_versions_only_is_refused_with_ours() {
    let (_, mut hello) = Client::new(&keys(&["a"]), &identity("proxy"), "server", &[1; 32]);
    hello[8..12].copy_from_slice(&[0, 2, 0, 9]);
    let refused = Server::greeted(&keys(&["a"]), &identity("server"), &hello, &[2; 32]).expect("form").err();
    assert_eq!(refused, Some(Refusal::Version));
    let mut meta = encode_refusal(Refusal::Version);
    meta[2..6].copy_from_slice(&[0, 2, 0, 9]);
    assert_eq!(
        Client::refused(&meta).to_string(),
        "refused by a peer: its transport has format versions 2 to 9, this program understands 1 to 1: run the same \
         release of Swiftlet on both sides"
    );
}

#[test]
fn what_was_overheard_proves_nothing_later() {
    let all = keys(&["a"]);
    let first = run(&all, &all, ([1; 32], [2; 32])).expect("in");
    let (_, overheard) = first.client.welcomed(&first.welcome).expect("proved");

    // The client's HELLO and PROOF again, to a server that draws another nonce.
    let (server, _) =
        Server::greeted(&all, &identity("server"), &first.hello, &[3; 32]).expect("form").expect("a known key");
    assert_eq!(server.proved(&overheard).err(), Some(Denied::Proof));

    // The server's WELCOME again, to a client that has drawn another nonce.
    let (client, _) = Client::new(&all, &identity("proxy"), "server", &[4; 32]);
    assert_eq!(client.welcomed(&first.welcome).err(), Some(Denied::Proof));
}

#[test]
fn a_proof_sent_back_is_none() {
    let all = keys(&["a"]);
    let done = run(&all, &all, ([1; 32], [2; 32])).expect("in");
    let mac = done.welcome[done.welcome.len() - 32..].to_vec();
    assert_eq!(done.server.proved(&mac).err(), Some(Denied::Proof));
}

#[test]
fn debug_output_shows_no_key() {
    assert!(!format!("{:?}", Key::new(b"secret")).contains("secret"));
}

proptest! {
    #[test]
    fn who_alters_a_bit_on_the_way_is_found(bit in any::<prop::sample::Index>(), in_hello in any::<bool>()) {
        let all = keys(&["a"]);
        let (client, mut hello) = Client::new(&all, &identity("proxy"), "server", &[1; 32]);
        if in_hello {
            let bit = bit.index(hello.len() * 8);
            hello[bit / 8] ^= 1 << (bit % 8);
        }
        let Ok(Ok((server, mut welcome))) = Server::greeted(&all, &identity("server"), &hello, &[2; 32]) else {
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
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in any::<prop::sample::Index>()) {
        let all = keys(&["a"]);
        let (client, hello) = Client::new(&all, &identity("proxy"), "server", &[1; 32]);
        let cut = [&hello[..cut.index(hello.len())], &bytes[..]].concat();
        for input in [&bytes, &cut] {
            drop(Server::greeted(&all, &identity("server"), input, &[2; 32]));
            drop(client.welcomed(input));
            drop(Client::refused(input));
        }
    }
}
