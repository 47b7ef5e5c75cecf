//! The certificate authority that is derived from a cluster key, and the certificate that a process issues to itself.

use hmac::{Hmac, KeyInit as _, Mac as _};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, date_time_ymd,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use sha2::{Digest as _, Sha256};

use crate::Error;

/// The name in all certificates of a cluster: all holders of the key are trusted alike. Which server it is, and which
/// one the other side wants, is said inside: in the native handshake, or in the signature of an HTTP request.
pub const PEER_NAME: &str = "peer.swiftlet.internal";

/// The label under which the authority's secret is derived; the form is that of `swiftlet.transport.signing`.
const USE: &[u8] = b"v1 derived\ntls authority";

/// An Ed25519 private key of 32 bytes in PKCS #8 (RFC 8410), up to the bytes themselves.
const PKCS8_HEAD: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// What a process needs to use TLS with the others of its cluster, in PEM.
#[derive(Clone)]
pub struct Certificates {
    /// The authorities of all keys.
    pub authorities: Vec<String>,
    /// This process's own certificate, issued by the first one.
    pub certificate: String,
    /// Its private key, which was just made for it.
    pub key: String,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Certificates({} authorities)", self.authorities.len())
    }
}

impl Certificates {
    /// Issue certificates by `keys`, the cluster's, the preferred one first.
    ///
    /// # Errors
    /// There is no key, or no randomness.
    pub fn issue(keys: &[Vec<u8>]) -> Result<Self, Error> {
        let first = keys.first().ok_or_else(|| Error("there is no cluster key: set cluster.key_file".to_owned()))?;
        let mut authorities = Vec::with_capacity(keys.len());
        for key in keys {
            let (params, signer) = authority(key)?;
            authorities.push(params.self_signed(&signer).map_err(Error::from)?.pem());
        }
        let (params, signer) = authority(first)?;
        // On a curve whose keys OpenSSL 3.0 reads in the form in which ring writes them.
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(Error::from)?;
        let certificate = own()?.signed_by(&key, &Issuer::from_params(&params, &signer)).map_err(Error::from)?;
        Ok(Self { authorities, certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// The authority of a key: the same for everybody who has the key.
fn authority(key: &[u8]) -> Result<(CertificateParams, KeyPair), Error> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).map_err(Error::from)?;
    mac.update(USE);
    let secret: [u8; 32] = mac.finalize().into_bytes().into();
    let document = PrivatePkcs8KeyDer::from([&PKCS8_HEAD[..], &secret].concat());
    let signer = KeyPair::from_pkcs8_der_and_sign_algo(&document, &PKCS_ED25519).map_err(Error::from)?;

    let mut params = lasting(CertificateParams::default());
    // By the name a checker finds which of several authorities has issued a certificate.
    let id = Sha256::digest(signer.public_key_raw());
    let name = id[..8].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    params.distinguished_name = named(&format!("swiftlet cluster {name}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok((params, signer))
}

fn own() -> Result<CertificateParams, Error> {
    let mut params = lasting(CertificateParams::new([PEER_NAME.to_owned()]).map_err(Error::from)?);
    params.distinguished_name = named("swiftlet peer");
    params.is_ca = IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

/// Without an end: the private key never leaves the process and ends with it, and a date would only fail when clocks
/// are wrong.
fn lasting(mut params: CertificateParams) -> CertificateParams {
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(9999, 12, 31);
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}
