//! Handshakes and records over memory: who gets in, and what becomes of records that were meddled with.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Read as _, Write as _};

use super::*;

fn keys(names: &[&str]) -> Vec<Vec<u8>> {
    names.iter().map(|name| name.as_bytes().to_vec()).collect()
}

fn tls(names: &[&str]) -> Tls {
    Tls::new(&keys(names)).unwrap()
}

/// What one side has to say now.
fn said(from: &mut Connection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes).unwrap();
    }
    bytes
}

fn hears(to: &mut Connection, mut bytes: &[u8]) -> Result<Vec<u8>, rustls::Error> {
    let mut heard = Vec::new();
    while !bytes.is_empty() {
        to.read_tls(&mut bytes).unwrap();
        to.process_new_packets()?;
        let mut piece = [0; 32 << 10];
        while let Ok(count @ 1..) = to.reader().read(&mut piece) {
            heard.extend_from_slice(&piece[..count]);
        }
    }
    Ok(heard)
}

fn shake_hands(client: &mut Connection, server: &mut Connection) -> Result<(), rustls::Error> {
    while client.wants_write() || server.wants_write() {
        let bytes = said(client);
        hears(server, &bytes)?;
        let bytes = said(server);
        hears(client, &bytes)?;
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok(())
}

fn pair() -> (Connection, Connection) {
    let (mut client, mut server) = (tls(&["key"]).client().unwrap(), tls(&["key"]).server().unwrap());
    shake_hands(&mut client, &mut server).unwrap();
    (client, server)
}

fn meet(client: &Tls, server: &Tls) -> bool {
    shake_hands(&mut client.client().unwrap(), &mut server.server().unwrap()).is_ok()
}

#[test]
fn who_shares_the_signing_keys_gets_in_and_nobody_else() {
    assert!(meet(&tls(&["one"]), &tls(&["one"])));
    // While a key takes the place of another: each accepts what the other signs with.
    assert!(meet(&tls(&["one", "two"]), &tls(&["two", "one"])));
    assert!(meet(&tls(&["one"]), &tls(&["one", "two"])));
    assert!(!meet(&tls(&["one"]), &tls(&["two"])));
    // A side that trusts ours and shows an authority that we don't trust: either way round.
    assert!(!meet(&tls(&["one"]), &tls(&["two", "one"])));
    assert!(!meet(&tls(&["two", "one"]), &tls(&["one"])));
}

#[test]
fn keys_are_replaced_for_what_is_new() {
    let (client, server) = (tls(&["one"]), tls(&["one"]));
    let (mut early, mut other) = (client.client().unwrap(), server.server().unwrap());
    shake_hands(&mut early, &mut other).unwrap();
    server.set_keys(&keys(&["two"])).unwrap();
    assert!(!meet(&client, &server));
    client.set_keys(&keys(&["two"])).unwrap();
    assert!(meet(&client, &server));
    early.writer().write_all(b"still here").unwrap();
    assert_eq!(hears(&mut other, &said(&mut early)).unwrap(), b"still here");
    assert!(Tls::new(&[]).is_err() && server.set_keys(&[]).is_err() && meet(&client, &server));
}

#[test]
fn an_authority_is_the_same_for_everybody_with_the_key_and_certificates_are_not() {
    let (one, other) = (Certificates::issue(&keys(&["one"])).unwrap(), Certificates::issue(&keys(&["one"])).unwrap());
    assert_eq!(one.authorities, other.authorities);
    assert!(one.key != other.key && one.certificate != other.certificate);
    assert_ne!(one.authorities, Certificates::issue(&keys(&["two"])).unwrap().authorities);
    assert!(!format!("{one:?}").contains("PRIVATE"));
}

#[test]
fn only_the_newest_tls_with_sound_ciphers_and_forward_secrecy() {
    let (client, server) = pair();
    for side in [&client, &server] {
        assert_eq!(side.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
        let suite = side.negotiated_cipher_suite().unwrap().suite();
        assert_eq!(suite, rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
        // An ephemeral exchange, which resumption could leave out, each time.
        assert_eq!(side.handshake_kind(), Some(rustls::HandshakeKind::Full));
        assert_eq!(side.alpn_protocol(), Some(PROTOCOL));
    }
}

/// Three records from the client, each for itself.
fn three(client: &mut Connection) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    for text in ["first record", "second record", "third record"] {
        client.writer().write_all(text.as_bytes()).unwrap();
        records.push(said(client));
    }
    records
}

#[test]
fn records_arrive_and_show_nothing_of_what_is_in_them() {
    let (mut client, mut server) = pair();
    let records = three(&mut client).concat();
    assert!(!records.windows(6).any(|part| part == b"record"));
    assert_eq!(hears(&mut server, &records).unwrap(), b"first recordsecond recordthird record");
}

#[test]
fn each_flipped_bit_is_noticed() {
    let length = three(&mut pair().0)[0].len();
    for at in 0..length {
        let (mut client, mut server) = pair();
        let mut records = three(&mut client);
        records[0][at] ^= 1;
        let heard = hears(&mut server, &records.concat());
        // A changed length may make it wait for more, which does not come. Of the head's other three bytes nothing
        // depends: what arrives is what was sent, or nothing.
        let unchanged = heard.as_ref().is_ok_and(|heard| at < 3 && heard == b"first recordsecond recordthird record");
        assert!(unchanged || heard.as_ref().map_or(true, Vec::is_empty), "byte {at}: {heard:?}");
    }
}

#[test]
fn records_that_are_lost_doubled_swapped_or_of_another_connection_are_noticed() {
    let orders: [&[usize]; 4] = [&[1, 2], &[0, 0], &[1, 0], &[0, 2]];
    for order in orders {
        let (mut client, mut server) = pair();
        let records = three(&mut client);
        let heard = hears(&mut server, &order.iter().flat_map(|at| records[*at].clone()).collect::<Vec<_>>());
        assert!(heard.is_err(), "{order:?}: {heard:?}");
    }
    let (mut client, _) = pair();
    let (_, mut server) = pair();
    assert!(hears(&mut server, &three(&mut client)[0]).is_err());
    // What a server said does not pass for what its client says.
    let (_, mut server) = pair();
    server.writer().write_all(b"mirror").unwrap();
    let mirrored = said(&mut server);
    assert!(hears(&mut server, &mirrored).is_err());
}

#[test]
fn a_cut_is_no_end() {
    let (mut client, mut server) = pair();
    let records = three(&mut client);
    let cut = &records[0][..records[0].len() - 1];
    assert!(hears(&mut server, cut).unwrap().is_empty());
    server.read_tls(&mut std::io::empty()).unwrap();
    server.process_new_packets().unwrap();
    let end = server.reader().read(&mut [0; 10]).unwrap_err();
    assert_eq!(end.kind(), std::io::ErrorKind::UnexpectedEof);
}

#[test]
fn an_overheard_handshake_is_of_no_use() {
    let (client, server) = (tls(&["key"]), tls(&["key"]));
    let (mut one, mut other) = (client.client().unwrap(), server.server().unwrap());
    let hello = said(&mut one);
    hears(&mut other, &hello).unwrap();
    hears(&mut one, &said(&mut other)).unwrap();
    let proof = said(&mut one);
    hears(&mut other, &proof).unwrap();
    let mut again = server.server().unwrap();
    hears(&mut again, &hello).unwrap();
    said(&mut again);
    assert!(hears(&mut again, &proof).is_err());
}

#[test]
fn a_guest_has_no_certificate_and_is_let_in_where_guests_are() {
    let authorities = Certificates::issue(&keys(&["key"])).unwrap().authorities;
    let guest = Tls::of_guest(&authorities).unwrap();
    let for_guests = |name: &str| Tls::with_guests(&keys(&[name])).unwrap();
    assert!(meet(&guest, &for_guests("key")));
    assert!(!meet(&guest, &tls(&["key"])), "a server for members only");
    assert!(!meet(&guest, &for_guests("other")), "a server of another cluster");
    assert!(meet(&tls(&["key"]), &for_guests("key")), "members are let in as before");
    assert!(!meet(&tls(&["other"]), &for_guests("key")), "a certificate that is shown has to be right");
    assert!(guest.server().is_err());
}
