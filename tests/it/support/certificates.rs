//! Certificates made for one test run: an authority, a server and a client of it, and a stranger
//! of another authority.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a temporary directory");
    make(folder.path()).expect("certificates");
    folder
});

/// `ca.pem`, or `.pem` and `.key` of `server`, `client` and `stranger`.
pub(crate) fn path(name: &str) -> PathBuf {
    FOLDER.path().join(name)
}

fn make(folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let authority = || -> Result<(String, Issuer<'static, KeyPair>), rcgen::Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        // OpenSSL takes a certificate with its issuer's name for a self-signed one.
        params
            .distinguished_name
            .push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        Ok((params.self_signed(&key)?.pem(), Issuer::new(params, key)))
    };
    let (ca, ours) = authority()?;
    let (_, theirs) = authority()?;
    fs::write(folder.join("ca.pem"), ca)?;
    for (name, issuer, purpose) in [
        ("server", &ours, ExtendedKeyUsagePurpose::ServerAuth),
        ("client", &ours, ExtendedKeyUsagePurpose::ClientAuth),
        ("stranger", &theirs, ExtendedKeyUsagePurpose::ClientAuth),
    ] {
        let mut params =
            CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate()?;
        fs::write(
            folder.join(format!("{name}.pem")),
            params.signed_by(&key, issuer)?.pem(),
        )?;
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem())?;
    }
    Ok(())
}
