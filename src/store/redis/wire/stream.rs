//! The bytes' way to a server: TCP, TLS over it, or a Unix socket.

use std::{fs, path::Path, sync::Arc};

use redis::RedisError;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        self, ClientConfig, RootCertStore,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    },
};

use crate::store::{
    StoreError,
    redis::{
        connection::DialError,
        target::{Address, ClientIdentity, Endpoint, Tls},
    },
};

pub(in crate::store::redis) trait Stream:
    AsyncRead + AsyncWrite + Send + Unpin
{
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Connects, without a limit on time.
pub(in crate::store::redis) async fn open(
    endpoint: &Endpoint,
    tls: Option<&Tls>,
) -> Result<Box<dyn Stream>, DialError> {
    let io = |error: std::io::Error| DialError::client(&RedisError::from(error));
    let Address { host, port } = match endpoint {
        Endpoint::Unix(path) => return Ok(Box::new(UnixStream::connect(path).await.map_err(io)?)),
        Endpoint::Tcp(address) => address,
    };
    let config = tls.map(client_config).transpose()?;
    let stream = TcpStream::connect((host.as_str(), *port))
        .await
        .map_err(io)?;
    stream.set_nodelay(true).map_err(io)?;
    let Some(config) = config else {
        return Ok(Box::new(stream));
    };
    let name = ServerName::try_from(host.clone())
        .map_err(|error| DialError::new(StoreError::Connection, format!("{host:?}: {error}")))?;
    let connector = TlsConnector::from(Arc::new(config));
    Ok(Box::new(connector.connect(name, stream).await.map_err(io)?))
}

fn client_config(tls: &Tls) -> Result<ClientConfig, DialError> {
    let mut roots = RootCertStore::empty();
    match &tls.ca {
        Some(path) => {
            for certificate in certificates("the authorities' certificates", path)? {
                roots.add(certificate).map_err(unusable)?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    let builder = ClientConfig::builder().with_root_certificates(roots);
    match &tls.identity {
        None => Ok(builder.with_no_client_auth()),
        Some(ClientIdentity { certificate, key }) => {
            let chain = certificates("the client certificate", certificate)?;
            let pem = read("the client key", key)?;
            let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| {
                let key = key.display();
                DialError::new(
                    StoreError::Unauthenticated,
                    format!("the client key {key} cannot be used: {error}"),
                )
            })?;
            builder.with_client_auth_cert(chain, key).map_err(unusable)
        }
    }
}

fn certificates(what: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, DialError> {
    let pem = read(what, path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        other => {
            let why = other
                .err()
                .map_or("there is none in it".to_owned(), |error| error.to_string());
            let path = path.display();
            Err(DialError::new(
                StoreError::Unauthenticated,
                format!("{what} {path} cannot be used: {why}"),
            ))
        }
    }
}

fn read(what: &str, path: &Path) -> Result<Vec<u8>, DialError> {
    fs::read(path).map_err(|error| DialError::file(what, path, &error))
}

fn unusable(error: rustls::Error) -> DialError {
    DialError::new(
        StoreError::Unauthenticated,
        format!("the certificates cannot be used: {error}"),
    )
}
