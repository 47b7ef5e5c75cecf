//! Only what was signed counts, as it was signed.

use proptest::prelude::*;

use crate::guest::{Grant, Invalid, Operations, Scope, Session, id_of};
use crate::handshake::Key;
use crate::limits::GRANT_BYTES;
use crate::violation::Violation;

fn grant() -> Grant {
    Grant {
        session: [7; 16],
        issued_ms: 1000,
        ends_ms: 61_000,
        policy: 3,
        part_power: 10,
        operations: Operations::of(5).expect("get and put"),
        rows: 0b111,
        object_bytes: 5 << 30,
        slice_objects: 100,
        slice_bytes: 1 << 30,
        account: "AUTH_a".to_owned(),
        container: "photos".to_owned(),
        scope: Scope::Prefix("2026/".to_owned()),
    }
}

fn keys() -> Vec<Key> {
    vec![Key::new(b"new"), Key::new(b"old")]
}

fn verified(bytes: &[u8]) -> Result<Grant, Invalid> {
    Grant::verify(&keys(), bytes)
}

#[test]
fn what_was_signed_by_any_of_the_keys_is_read() {
    for key in keys() {
        for scope in [Scope::Container, Scope::Prefix("ä/".to_owned()), Scope::Object("o".repeat(1024))] {
            let granted = Grant { scope, ..grant() };
            let signed = granted.sign(&key).expect("a grant");
            assert!(signed.len() <= GRANT_BYTES);
            assert_eq!(verified(&signed), Ok(granted));
        }
    }
}

#[test]
fn another_cluster_signs_nothing_that_counts_here() {
    let other = Key::new(b"other");
    let mut signed = grant().sign(&other).expect("a grant");
    assert_eq!(verified(&signed), Err(Invalid::Key));
    signed[1..5].copy_from_slice(&keys()[0].id());
    assert_eq!(verified(&signed), Err(Invalid::Signature));
}

#[test]
fn nothing_can_be_cut_off_or_added() {
    let signed = grant().sign(&keys()[0]).expect("a grant");
    for cut in 0..signed.len() {
        assert!(verified(&signed[..cut]).is_err());
    }
    assert_eq!(verified(&[&signed[..], b"x"].concat()), Err(Invalid::Signature));
    let huge = vec![1; GRANT_BYTES + 1];
    assert_eq!(verified(&huge), Err(Invalid::Form(Violation("a grant over the limit"))));
}

#[test]
fn what_can_not_hold_is_not_signed() {
    let long = || "n".repeat(257);
    for wrong in [
        Grant { account: String::new(), ..grant() },
        Grant { account: long(), ..grant() },
        Grant { container: "a/b".to_owned(), ..grant() },
        Grant { container: "a\0b".to_owned(), ..grant() },
        Grant { scope: Scope::Prefix(String::new()), ..grant() },
        Grant { scope: Scope::Object("o".repeat(1025)), ..grant() },
        Grant { ends_ms: 1000, ..grant() },
        Grant { part_power: 33, ..grant() },
        Grant { rows: 0, ..grant() },
    ] {
        assert!(wrong.sign(&keys()[0]).is_err(), "{wrong:?}");
    }
    assert_eq!((Operations::of(0), Operations::of(32)), (None, None));
}

#[test]
fn scopes_cover_what_they_name() {
    let covers = |scope: Scope, name: &str| scope.covers(name.as_bytes());
    assert!(covers(Scope::Container, "x"));
    assert!(covers(Scope::Prefix("a/".to_owned()), "a/b") && !covers(Scope::Prefix("a/".to_owned()), "a"));
    assert!(covers(Scope::Object("a".to_owned()), "a") && !covers(Scope::Object("a".to_owned()), "a/b"));
}

#[test]
fn grants_differ_by_their_ids() {
    let one = grant().sign(&keys()[0]).expect("a grant");
    let other = Grant { ends_ms: 61_001, ..grant() }.sign(&keys()[0]).expect("a grant");
    assert_ne!(id_of(&one), id_of(&other));
    assert_eq!(id_of(b"short"), [0; 16]);
}

#[test]
fn a_session_is_read_as_it_was_written() {
    let session = Session { key_id: [1, 2, 3, 4], id: [5; 16], ends_s: 77 };
    assert_eq!(Session::decode(&session.encode()), Ok(session));
    assert!(Session::decode(&session.encode()[1..]).is_err());
    assert!(Session::decode(&[&session.encode()[..], b"x"].concat()).is_err());
}

proptest! {
    #[test]
    fn a_grant_that_was_widened_is_found(bit in any::<prop::sample::Index>()) {
        let mut signed = grant().sign(&keys()[0]).expect("a grant");
        let bit = bit.index(signed.len() * 8);
        signed[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(verified(&signed).is_err());
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(verified(&bytes).is_err());
        drop(Session::decode(&bytes));
    }
}
