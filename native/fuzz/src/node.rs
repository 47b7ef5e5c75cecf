//! What is asked of object servers and what they answer; Python has the same codec.

use swiftlet_node::message::{
    Found, Posted, Request, Written, decode_footer, encode_footer, fragments, lists, many, packs,
};
use swiftlet_node::{Refusal, Status};

/// A message: its number (a method, a status), then its bytes. What is accepted is, made anew, the same bytes.
pub fn objects(data: &[u8]) {
    let [number, raw @ ..] = data else { return };
    let number = u16::from(*number);
    if let Ok((device, request)) = Request::decode(number, raw) {
        assert_eq!(request.method(), number);
        assert_eq!(request.encode(&device).as_deref(), Ok(raw));
    }
    if let Ok(all) = many::requests(usize::from(number), raw) {
        let mut again = Vec::new();
        for one in &all {
            match Request::from_fields(one.method, one.fields) {
                Ok(request) => assert_eq!(many::push(&mut again, one.object, &request, one.body), Ok(())),
                Err(_) => again.clear(),
            }
        }
        assert!(again == raw || all.iter().any(|one| Request::from_fields(one.method, one.fields).is_err()));
    }
    if let Ok(all) = many::answers(usize::from(number), raw) {
        let mut again = Vec::new();
        for one in &all {
            assert_eq!(many::push_answer(&mut again, one.status, one.header, one.body), Ok(()));
        }
        assert_eq!(again, raw);
    }
    if let Ok(found) = Found::decode(raw) {
        // A checksum that is not said to be one is not kept.
        assert_eq!(found.encode().map(|again| Found::decode(&again)), Ok(Ok(found)));
    }
    if let Ok(posted) = Posted::decode(raw) {
        assert_eq!(posted.encode().map(|again| Posted::decode(&again)), Ok(Ok(posted)));
    }
    if let Ok(written) = Written::decode(raw) {
        assert_eq!(written.encode(), raw);
    }
    if let Ok(footer) = decode_footer(raw) {
        assert_eq!(encode_footer(&footer).as_deref(), Ok(raw));
    }
    if let Ok(numbers) = lists::decode_numbers(raw) {
        assert_eq!(lists::encode_numbers(&numbers), raw);
    }
    if let Ok(suffixes) = lists::decode_suffixes(raw) {
        assert_eq!(lists::encode_suffixes(&suffixes), raw);
    }
    if let Ok(entries) = lists::decode_entries(raw) {
        assert_eq!(lists::encode_entries(&entries), raw);
    }
    if let Ok(footer) = fragments::Footer::decode(raw) {
        assert_eq!(footer.encode().as_deref(), Ok(raw));
    }
    if let Ok(answer) = fragments::decode_answer(raw) {
        assert_eq!(fragments::encode_answer(&answer).as_deref(), Ok(raw));
    }
    if let Ok((unsettled, more)) = fragments::decode_unsettled(raw) {
        assert_eq!(fragments::encode_unsettled(&unsettled, more).as_deref(), Ok(raw));
    }
    if let Ok(told) = packs::Told::decode(raw) {
        assert_eq!(told.encode(), raw);
    }
    if let Ok(cold) = packs::decode_cold(raw) {
        assert_eq!(packs::encode_cold(&cold), raw);
    }
    if let Ok((listed, more)) = packs::decode_listed(raw) {
        assert_eq!(packs::encode_listed(&listed, more), raw);
    }
    if let Ok(references) = packs::decode_references(raw)
        && raw.len() <= packs::MAX_MEMBERS_BYTES
    {
        assert_eq!(packs::encode_references(&references).as_deref(), Ok(raw));
    }
    if let Ok(newest) = fragments::Newest::decode(raw) {
        assert_eq!(newest.encode().as_deref(), Ok(raw));
    }
    if let Ok(given) = fragments::Given::decode(raw) {
        assert_eq!(given.encode().as_deref(), Ok(raw));
    }
    assert_ne!(Refusal::decode(number, raw).status, Status::Ok, "a refusal that is none");
}
