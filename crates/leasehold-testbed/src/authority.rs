//! Certificates of our own: an authority, and what it signs.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// An authority that signs certificates for tests.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// The private key, in PKCS#8.
    pub key: String,
}

impl Authority {
    /// A new authority that nobody knows yet.
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Its own certificate, by which it is trusted.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for these names and addresses, good for both ends of a connection.
    pub fn identity(&self, names: &[&str]) -> Identity {
        self.sign(names, |_| {})
    }

    /// One that has expired.
    pub fn expired_identity(&self, names: &[&str]) -> Identity {
        self.sign(names, |params| {
            params.not_before = date_time_ymd(2001, 1, 1);
            params.not_after = date_time_ymd(2002, 1, 1);
        })
    }

    /// One that has its name only where nobody looks for it any more.
    pub fn common_name_identity(&self, name: &str) -> Identity {
        self.sign(&[], |params| params.distinguished_name.push(DnType::CommonName, name))
    }

    fn sign(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Identity { certificate, key: key.serialize_pem() }
    }
}
