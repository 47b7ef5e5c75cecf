use super::*;

fn asked(kind: u8, rest: &[u8]) -> Vec<u8> {
    [&[VERSION, kind, 0, 1], rest].concat()
}

#[test]
fn questions_are_understood_to_their_end() {
    let wanted = asked(ASK_MANY_ENTRIES, &[2, 5, 0, 1, 7, 2, 0, 0]);
    let Some((0, Question::Entries(found))) = parse(&wanted) else { panic!("not understood") };
    assert_eq!(found, [(5, vec![7]), (6, vec![0, 1])]);
    for end in 0..wanted.len() {
        assert!(parse(&wanted[..end]).is_none(), "{end} bytes");
    }
    assert!(parse(&[&wanted[..], &[0]].concat()).is_none());
}

#[test]
fn what_is_no_question_is_not_answered() {
    for message in [
        vec![],
        vec![2, ASK_SUFFIXES, 0, 1, 0],
        asked(9, &[0]),
        asked(COMPARE, &[[2].as_slice(), &[0; 16], &[0]].concat()),
        // Beyond the highest partition, suffix, count and policy.
        asked(ASK_SUFFIXES, &[2, 0xff, 0xff, 0xff, 0xff, 0x0f, 0]),
        asked(ASK_MANY_ENTRIES, &[1, 0, 1, 0x80, 0x20]),
        asked(ASK_SUFFIXES, &[0x81, 0x20]),
        vec![VERSION, ASK_SUFFIXES, 0x80, 0x80, 0x04, 1, 0],
    ] {
        assert!(parse(&message).is_none(), "{message:?}");
    }
}

#[test]
fn numbers_that_ascend_are_written_as_they_are_read() {
    for numbers in [vec![], vec![0], vec![7], vec![0, 1, 130, 131, 70_000, i64::from(u32::MAX)]] {
        let bytes = ascending_bytes(numbers.iter().copied()).expect("they ascend");
        let read = ascending(&mut Cursor { data: &bytes }, 10, u64::from(u32::MAX)).expect("they were written");
        assert_eq!(read.iter().map(|number| i64::from(*number)).collect::<Vec<_>>(), numbers);
    }
    for numbers in [vec![-1], vec![i64::MIN], vec![3, 3], vec![3, 2], vec![0, i64::MAX, 1]] {
        assert_eq!(ascending_bytes(numbers.clone()), None, "{numbers:?}");
    }
}
