//! Certificates: the one that is served, what is in it, and how one is made.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use time::OffsetDateTime;
use tokio_rustls::rustls::{
    self, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use x509_parser::{certificate::X509Certificate, extensions::GeneralName, prelude::FromDer};

use crate::domain::time::EventTime;

/// Clocks of a cluster differ.
pub(super) const BACKDATED: Duration = Duration::from_secs(300);

/// The certificate that handshakes get from now on. Those that are open keep theirs.
#[derive(Debug, Default)]
pub struct Current {
    key: ArcSwapOption<CertifiedKey>,
    not_after_s: AtomicI64,
    changes: AtomicU64,
    errors: AtomicU64,
}

/// A certificate with its key, in PEM, the certificate of its issuer behind it where there is one.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

/// What matters of a certificate. Seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub not_before_s: i64,
    pub not_after_s: i64,
    pub names: Vec<String>,
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pair(***)")
    }
}

impl Current {
    /// Serves `pair` from now on, if it can be served.
    pub fn change(&self, pair: &Pair) -> Result<(), String> {
        let facts = facts(&pair.certificate)?;
        let key = certified_key(pair)?;
        self.not_after_s.store(facts.not_after_s, Ordering::Relaxed);
        self.key.store(Some(Arc::new(key)));
        self.changes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    #[cfg(test)]
    fn is_set(&self) -> bool {
        self.key.load().is_some()
    }

    pub fn failed(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn not_after_s(&self) -> i64 {
        self.not_after_s.load(Ordering::Relaxed)
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    pub(super) fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    pub fn server_config(self: &Arc<Self>) -> Result<Arc<ServerConfig>, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(self) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.key.load_full()
    }
}

fn certified_key(pair: &Pair) -> Result<CertifiedKey, String> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pair.certificate.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| format!("the certificate is not PEM: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())
        .map_err(|error| format!("the private key is not PEM: {error}"))?;
    CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            "the private key is not that of the certificate".to_owned()
        }
        other => format!("the certificate or its key cannot be used: {other}"),
    })
}

/// Of the first certificate in the text.
pub fn facts(certificate: &str) -> Result<Facts, String> {
    let der = CertificateDer::from_pem_slice(certificate.as_bytes())
        .map_err(|error| format!("the certificate is not PEM: {error}"))?;
    let (_, parsed) = X509Certificate::from_der(&der)
        .map_err(|error| format!("the certificate cannot be read: {error}"))?;
    let names = parsed
        .subject_alternative_name()
        .ok()
        .flatten()
        .map(|names| &names.value.general_names);
    let names = names.into_iter().flatten().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    });
    Ok(Facts {
        not_before_s: parsed.validity().not_before.timestamp(),
        not_after_s: parsed.validity().not_after.timestamp(),
        names: names.collect(),
    })
}

/// An authority of its own, whose key is thrown away, and a certificate of it for `names`.
pub fn make(
    names: &[String],
    validity: Duration,
    now: EventTime,
) -> Result<(String, Pair), String> {
    made(names, validity, now).map_err(|error| format!("a certificate cannot be made: {error}"))
}

fn made(
    names: &[String],
    validity: Duration,
    now: EventTime,
) -> Result<(String, Pair), Box<dyn std::error::Error>> {
    let now = OffsetDateTime::from_unix_timestamp(now.unix_nanos() / 1_000_000_000)?;
    let (not_before, not_after) = (now - BACKDATED, now + validity);
    let authority_key = KeyPair::generate()?;
    let mut authority = CertificateParams::new(Vec::new())?;
    // A name of its own: trusted together with its predecessor, it must not be taken for it.
    authority.distinguished_name.push(
        DnType::CommonName,
        format!("dedupd injector {:08x}", rand::random::<u32>()),
    );
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    (authority.not_before, authority.not_after) = (not_before, not_after);
    let authority_pem = authority.self_signed(&authority_key)?.pem();
    let issuer = Issuer::new(authority, authority_key);

    let key = KeyPair::generate()?;
    let mut leaf = CertificateParams::new(names.to_vec())?;
    leaf.distinguished_name
        .push(DnType::CommonName, "dedupd injector");
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.use_authority_key_identifier_extension = true;
    (leaf.not_before, leaf.not_after) = (not_before, not_after);
    let certificate = leaf.signed_by(&key, &issuer)?.pem();
    let pair = Pair {
        certificate,
        key: key.serialize_pem(),
    };
    Ok((authority_pem, pair))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn names() -> Vec<String> {
        vec!["injector.ns.svc".to_owned(), "injector.ns".to_owned()]
    }

    #[test]
    fn what_is_made_says_what_was_asked_for() {
        let now = EventTime::from_unix_nanos(1_800_000_000_000_000_000);
        let (authority, pair) = make(&names(), DAY, now).expect("a certificate");
        let found = facts(&pair.certificate).expect("it can be read");
        assert_eq!(found.names, names());
        assert_eq!(found.not_after_s, 1_800_086_400);
        assert_eq!(found.not_before_s, 1_799_999_700);
        assert_eq!(facts(&authority).expect("it can be read").names.len(), 0);
        let current = Current::default();
        current.change(&pair).expect("it can be served");
        assert_eq!(current.not_after_s(), 1_800_086_400);
    }

    #[test]
    fn what_cannot_be_served_changes_nothing() {
        let now = EventTime::from_unix_nanos(0);
        let (_, pair) = make(&names(), DAY, now).expect("a certificate");
        let (_, other) = make(&names(), DAY, now).expect("a certificate");
        let current = Current::default();
        let check = |certificate: &str, key: &str, message: &str| {
            let pair = Pair {
                certificate: certificate.to_owned(),
                key: key.to_owned(),
            };
            let error = current.change(&pair).expect_err("it cannot be served");
            assert!(error.contains(message), "{error}");
            assert!(!current.is_set());
        };
        check(&pair.certificate, &other.key, "not that of the certificate");
        check("", &pair.key, "the certificate is not PEM");
        check(&pair.certificate, "", "the private key is not PEM");
    }
}
