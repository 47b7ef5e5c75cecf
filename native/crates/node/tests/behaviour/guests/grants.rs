//! Grants that do not count, each in its own way, at a real server.

use swiftlet_node::AHEAD_MS;

use super::*;

/// What a server says of a read by these bytes as a grant, after one by a good grant on the same connection.
fn refused(signed: &[u8]) -> (Status, String) {
    let visit = Visit::new();
    let ask = |signed: &[u8]| visit.ask_by(signed, "o", &get("o"), b"");
    assert_eq!(ask(&sign(&grant())).0, Status::NotFound, "a good one");
    let (status, header, _) = ask(signed);
    assert_eq!(ask(&sign(&grant())).0, Status::NotFound, "the connection goes on");
    (status, Refusal::decode(status as u16, &header).text)
}

fn sign(grant: &Grant) -> Vec<u8> {
    grant.sign(&key()).unwrap()
}

#[test]
fn a_forged_grant_does_not_count() {
    // It names our key, and was signed by somebody who does not have it.
    let mut forged = grant().sign(&ClusterKey::new(b"guessed")).unwrap();
    forged[1..5].copy_from_slice(&key().id());
    assert_eq!(refused(&forged).0, Status::Unauthorized);
    let mut unsigned = sign(&grant());
    let end = unsigned.len();
    unsigned[end - 32..].fill(0);
    assert_eq!(refused(&unsigned).0, Status::Unauthorized);
}

#[test]
fn a_grant_of_another_cluster_does_not_count() {
    assert_eq!(refused(&grant().sign(&ClusterKey::new(b"other")).unwrap()).0, Status::Unauthorized);
}

#[test]
fn a_grant_of_another_session_does_not_count() {
    assert_eq!(refused(&sign(&Grant { session: [6; 16], ..grant() })).0, Status::Unauthorized);
}

#[test]
fn a_grant_for_another_object_does_not_count() {
    let visit = Visit::new();
    let data = b"data";
    let of = Grant { scope: Scope::Object("a".to_owned()), ..grant() };
    assert_eq!(visit.status(&of, "a", &put("a", data), data), Status::Ok, "it counts for its own");
    for request in [get("o"), put("o", data), delete("o")] {
        let body: &[u8] = if matches!(request, Request::Put { .. }) { data } else { b"" };
        assert_eq!(visit.status(&of, "o", &request, body), Status::Forbidden, "{request:?}");
        assert_eq!(
            visit.status(&of, "a", &request, body),
            Status::Forbidden,
            "its name, and another place: {request:?}"
        );
    }
    assert_eq!(visit.by_member(&get("o"), b""), Status::NotFound, "nothing was stored");
    assert_eq!(visit.by_member(&get("a"), b""), Status::Ok, "nothing was deleted");
}

#[test]
fn a_grant_that_was_widened_does_not_count() {
    let narrow = Grant { operations: Operations::HEAD, object_bytes: 10, slice_objects: 1, ..grant() };
    let signed = sign(&narrow);
    let wider = |change: &dyn Fn(&mut Grant)| {
        let mut wide = narrow.clone();
        change(&mut wide);
        let mut bytes = sign(&wide);
        let end = bytes.len();
        bytes[end - 32..].copy_from_slice(&signed[signed.len() - 32..]);
        bytes
    };
    for (what, widened) in [
        ("operations", wider(&|grant| grant.operations = Operations::of(31).unwrap())),
        ("size", wider(&|grant| grant.object_bytes = u64::MAX)),
        ("slice", wider(&|grant| grant.slice_objects = u64::MAX)),
        ("life", wider(&|grant| grant.ends_ms += 1)),
        ("container", wider(&|grant| grant.container = "d".to_owned())),
        ("rows", wider(&|grant| grant.rows = 0b1111)),
    ] {
        assert_ne!(widened, signed, "{what}");
        assert_eq!(refused(&widened).0, Status::Unauthorized, "{what}");
    }
}

#[test]
fn a_truncated_grant_does_not_count() {
    let signed = sign(&grant());
    for cut in [0, 1, 5, 60, signed.len() - 32, signed.len() - 1] {
        assert_eq!(refused(&signed[..cut]).0, Status::Unauthorized, "{cut} bytes of {}", signed.len());
    }
}

#[test]
fn a_huge_grant_does_not_count() {
    assert_eq!(refused(&vec![1; 30_000]).0, Status::Unauthorized);
    assert_eq!(refused(&[sign(&grant()), vec![0; 30_000]].concat()).0, Status::Unauthorized);
}

#[test]
fn a_grant_that_has_ended_or_lives_too_long_does_not_count() {
    let ended = Grant { issued_ms: now_ms() - 2000, ends_ms: now_ms() - 1000, ..grant() };
    assert_eq!(refused(&sign(&ended)).0, Status::Unauthorized);
    assert_eq!(
        refused(&sign(&Grant { ends_ms: now_ms() + LONGEST_LIFE_MS + 1000, ..grant() })).0,
        Status::Unauthorized
    );
}

/// The time at which a grant was issued is what epochs are compared with: one from the future would outlive every change
/// of rights until then.
#[test]
fn a_grant_with_a_future_epoch_does_not_count() {
    for ahead_ms in [2 * AHEAD_MS, 3_600_000, u64::MAX / 2] {
        let issued_ms = now_ms() + ahead_ms;
        let (status, why) = refused(&sign(&Grant { issued_ms, ends_ms: issued_ms + 1000, ..grant() }));
        assert_eq!(status, Status::Unauthorized, "{ahead_ms}");
        assert!(why.contains("in the future"), "{why}");
    }
    let visit = Visit::new();
    // The clock of a metadata server may be a little ahead.
    let little = Grant { issued_ms: now_ms() + AHEAD_MS / 2, ends_ms: now_ms() + 60_000, ..grant() };
    assert_eq!(visit.status(&little, "o", &get("o"), b""), Status::NotFound);
}

#[test]
fn a_future_epoch_ends_what_was_granted_until_now_and_not_what_is_granted_later() {
    let visit = Visit::new();
    let old = sign(&grant());
    let ask = |signed: &[u8]| visit.ask_by(signed, "o", &get("o"), b"").0;
    assert_eq!(ask(&old), Status::NotFound);
    let (account, container) = (b"AUTH_a".to_vec(), b"c".to_vec());
    let request = Request::Revoke { account, container, before_ms: u64::MAX };
    let told = call(&visit.member, request.method(), request.encode("").unwrap(), b"").unwrap().0;
    assert_eq!(told, Status::Ok);
    assert_eq!(ask(&old), Status::Unauthorized);
    eventually("a grant that is as far ahead as clocks may be counts", || {
        let issued_ms = now_ms() + AHEAD_MS - 10;
        ask(&sign(&Grant { issued_ms, ends_ms: issued_ms + 60_000, ..grant() })) == Status::NotFound
    });
}
