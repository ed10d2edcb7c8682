//! TLS for gRPC over TCP: the certificate's files into the server's settings.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use crate::config::TlsFiles;

/// Who does not finish the handshake in this time is disconnected.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub(super) enum TlsFault {
    #[error("cannot read {path} ({key}): {cause}")]
    Unreadable {
        key: &'static str,
        path: PathBuf,
        cause: io::Error,
    },
    #[error("the files of listen.tls cannot be used: {0}")]
    Unusable(String),
}

/// Read once: a new certificate needs a restart. With a client CA, clients must show a certificate.
pub(super) fn server_tls(files: &TlsFiles) -> Result<ServerTlsConfig, TlsFault> {
    let certificate = read("listen.tls.cert_file", &files.cert_file)?;
    let key = read("listen.tls.key_file", &files.key_file)?;
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(certificate, key))
        .timeout(HANDSHAKE_TIME);
    match &files.client_ca_file {
        None => Ok(tls),
        Some(path) => Ok(tls.client_ca_root(Certificate::from_pem(read(
            "listen.tls.client_ca_file",
            path,
        )?))),
    }
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, TlsFault> {
    fs::read(path).map_err(|cause| TlsFault::Unreadable {
        key,
        path: path.to_owned(),
        cause,
    })
}
