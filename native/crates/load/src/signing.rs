//! Amazon's signature, version 4, of requests to S3: over the head alone, the body is not part of it.
//!
//! "Signature Version 4" in the API reference of Amazon S3 says how. Paths and queries of this crate are encoded already,
//! and the names in a query are in their order.

use std::fmt::Write as _;

use ring::{digest, hmac};

/// What stands in place of the body's hash: the body is checked by what is read back, not by a signature.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
const DAY_S: u64 = 86_400;

/// Who signs, and for where.
#[derive(Clone)]
pub struct Keys {
    /// The name of the key.
    pub access: String,
    /// The key.
    pub secret: String,
    /// The store's region, such as `us-east-1`.
    pub region: String,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Keys({}, {})", self.access, self.region)
    }
}

/// Signs requests; a key made of the secret one is good for a day.
pub(crate) struct Signer {
    keys: Keys,
    key: Option<(u64, hmac::Key)>,
}

impl Signer {
    pub(crate) fn new(keys: &Keys) -> Self {
        Self { keys: keys.clone(), key: None }
    }

    /// The header lines that sign a request to `place` (a path with its query) at this time, in seconds since 1970.
    pub(crate) fn lines(&mut self, now: u64, method: &str, host: &str, place: &str) -> String {
        let time = stamp(now);
        let headers = [("host", host), ("x-amz-content-sha256", UNSIGNED), ("x-amz-date", &time)];
        let authorization = self.sign(now, method, place, &headers, UNSIGNED);
        format!("X-Amz-Date: {time}\r\nX-Amz-Content-Sha256: {UNSIGNED}\r\nAuthorization: {authorization}\r\n")
    }

    /// The value of `Authorization`; `headers` have lower-case names, in their order.
    fn sign(&mut self, now: u64, method: &str, place: &str, headers: &[(&str, &str)], payload: &str) -> String {
        let (path, query) = place.split_once('?').unwrap_or((place, ""));
        let mut asked = format!("{method}\n{path}\n{query}\n");
        for (name, value) in headers {
            let _ = writeln!(asked, "{name}:{value}");
        }
        let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let _ = write!(asked, "\n{names}\n{payload}");
        let time = stamp(now);
        let scope = format!("{}/{}/s3/aws4_request", &time[..8], self.keys.region);
        let hash = hex(digest::digest(&digest::SHA256, asked.as_bytes()).as_ref());
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{hash}");
        let signature = hex(hmac::sign(self.key_of(now), text.as_bytes()).as_ref());
        let access = &self.keys.access;
        format!("AWS4-HMAC-SHA256 Credential={access}/{scope},SignedHeaders={names},Signature={signature}")
    }

    fn key_of(&mut self, now: u64) -> &hmac::Key {
        let Keys { secret, region, .. } = &self.keys;
        let day = now / DAY_S;
        let is_of_day = self.key.as_ref().is_some_and(|(of, _)| *of == day);
        if !is_of_day {
            self.key = None;
        }
        let (_, key) = self.key.get_or_insert_with(|| {
            let first = hmac::Key::new(hmac::HMAC_SHA256, format!("AWS4{secret}").as_bytes());
            let parts = [&stamp(now)[..8], region, "s3", "aws4_request"];
            let key = parts
                .iter()
                .fold(first, |key, part| hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&key, part.as_bytes()).as_ref()));
            (day, key)
        });
        key
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A time in seconds since 1970 as `20130524T000000Z`.
fn stamp(now: u64) -> String {
    let (days, second) = (now / DAY_S, now % DAY_S);
    // Years begin in March, so that the leap day is their last, and eras of 400 years are all alike.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of the examples in Amazon's reference.
    fn example() -> Signer {
        Signer::new(&Keys {
            access: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            region: "us-east-1".to_owned(),
        })
    }

    const HOST: (&str, &str) = ("host", "examplebucket.s3.amazonaws.com");
    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const DATE: (&str, &str) = ("x-amz-date", "20130524T000000Z");
    /// 24 May 2013.
    const THEN: u64 = 1_369_353_600;

    fn signature(signed: &str) -> &str {
        signed.rsplit_once("Signature=").map_or("", |(_, signature)| signature)
    }

    #[test]
    fn the_examples_of_amazons_reference_have_its_signatures() {
        let mut signer = example();
        let hash = ("x-amz-content-sha256", EMPTY);
        let object = signer.sign(THEN, "GET", "/test.txt", &[HOST, ("range", "bytes=0-9"), hash, DATE], EMPTY);
        assert_eq!(
            object,
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
             Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        let lifecycle = signer.sign(THEN, "GET", "/?lifecycle=", &[HOST, hash, DATE], EMPTY);
        assert_eq!(signature(&lifecycle), "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
        let listing = signer.sign(THEN, "GET", "/?max-keys=2&prefix=J", &[HOST, hash, DATE], EMPTY);
        assert_eq!(signature(&listing), "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
    }

    #[test]
    fn a_new_day_has_a_new_key() {
        let (mut over_night, mut next_morning) = (example(), example());
        let first = over_night.lines(THEN, "PUT", "h", "/b/o");
        let second = over_night.lines(THEN + DAY_S, "PUT", "h", "/b/o");
        assert_ne!(signature(&first), signature(&second));
        assert_eq!(second, next_morning.lines(THEN + DAY_S, "PUT", "h", "/b/o"));
        assert!(second.starts_with("X-Amz-Date: 20130525T000000Z\r\nX-Amz-Content-Sha256: UNSIGNED-PAYLOAD\r\n"));
    }

    #[test]
    fn times_are_written_as_the_calendar_has_them() {
        let known = [
            (0, "19700101T000000Z"),
            (951_782_399, "20000228T235959Z"),
            (951_868_799, "20000229T235959Z"),
            (4_107_542_400, "21000301T000000Z"),
            (1_795_886_712, "20261128T172512Z"),
        ];
        for (seconds, text) in known {
            assert_eq!(stamp(seconds), text);
        }
    }
}
