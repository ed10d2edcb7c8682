//! Listeners: all of them are bound before anything runs.

use std::{
    fmt, fs, io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt},
        net::UnixStream as StdUnixStream,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use futures_util::{Stream, stream};
use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    time,
};

use crate::config::{GrpcAddress, Listen};

/// After a failure to accept, such as no file descriptor left: lets others give some back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Listeners {
    pub(super) grpc: Vec<GrpcListener>,
    pub(super) admin: TcpListener,
    /// They are removed when this is dropped.
    pub(super) socket_files: Vec<SocketFile>,
}

#[derive(Debug)]
pub(super) enum GrpcListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} ({key}): {cause}")]
pub(super) struct BindFault {
    key: &'static str,
    address: String,
    cause: BindCause,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum BindCause {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("another process answers there")]
    Taken,
    #[error("there is a file that is no socket; remove it or choose another path")]
    NotASocket,
}

impl Listeners {
    pub(super) async fn bind(listen: &Listen) -> Result<Self, BindFault> {
        let (mut grpc, mut socket_files) = (Vec::new(), Vec::new());
        for address in &listen.grpc {
            let bound = match address {
                GrpcAddress::Tcp(address) => bind_tcp(*address)
                    .await
                    .map(GrpcListener::Tcp)
                    .map_err(BindCause::Io),
                GrpcAddress::Unix(path) => {
                    bind_unix(path, listen.socket_mode).map(|(listener, file)| {
                        socket_files.push(file);
                        GrpcListener::Unix(listener)
                    })
                }
            };
            grpc.push(bound.map_err(|cause| BindFault::new("listen.grpc", address, cause))?);
        }
        let admin = bind_tcp(listen.admin)
            .await
            .map_err(|cause| BindFault::new("listen.admin", &listen.admin, cause.into()))?;
        Ok(Self {
            grpc,
            admin,
            socket_files,
        })
    }

    /// Where gRPC can be reached, separated by commas: with the ports that were chosen for port 0.
    pub(super) fn grpc_addresses(&self) -> String {
        let addresses: Vec<String> = self.grpc.iter().map(GrpcListener::address).collect();
        addresses.join(",")
    }

    pub(super) fn admin_address(&self) -> String {
        tcp_address(&self.admin)
    }
}

impl GrpcListener {
    fn address(&self) -> String {
        match self {
            GrpcListener::Tcp(listener) => tcp_address(listener),
            GrpcListener::Unix(listener) => {
                let address = listener.local_addr().ok();
                let path = address.as_ref().and_then(|address| address.as_pathname());
                path.map_or_else(String::new, |path| {
                    GrpcAddress::Unix(path.into()).to_string()
                })
            }
        }
    }
}

fn tcp_address(listener: &TcpListener) -> String {
    listener
        .local_addr()
        .map_or_else(|_| String::new(), |address| address.to_string())
}

impl BindFault {
    pub(super) fn new(key: &'static str, address: &impl fmt::Display, cause: BindCause) -> Self {
        Self {
            key,
            address: address.to_string(),
            cause,
        }
    }
}

/// `[::]` is every address of both families; where the kernel has no IPv6, those of IPv4.
pub(super) async fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && lacks_ipv6(&error) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    }
}

fn lacks_ipv6(error: &io::Error) -> bool {
    const NO_SUCH_FAMILY: i32 = 97;
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(NO_SUCH_FAMILY)
}

fn bind_unix(path: &Path, mode: u32) -> Result<(UnixListener, SocketFile), BindCause> {
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            remove_stale(path)?;
            UnixListener::bind(path)?
        }
        listener => listener?,
    };
    let file = SocketFile::new(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    Ok((listener, file))
}

/// Removes the socket of a process that is gone: nobody accepts on it.
fn remove_stale(path: &Path) -> Result<(), BindCause> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(BindCause::NotASocket);
    }
    match StdUnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            Ok(fs::remove_file(path)?)
        }
        Err(error) => Err(error.into()),
        Ok(_) => Err(BindCause::Taken),
    }
}

/// The file of a Unix socket, removed when this is dropped if it is still the same one.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(Self {
            path: path.to_owned(),
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == (self.device, self.inode));
        if is_ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the socket could not be removed");
        }
    }
}

/// The connections of a listener. A failure to accept concerns one connection, or passes.
pub(super) fn tcp_connections(listener: TcpListener) -> impl Stream<Item = TcpStream> {
    stream::unfold(listener, async |listener| {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    // Answers are small and awaited. A failure costs latency only.
                    let _ = stream.set_nodelay(true);
                    return Some((stream, listener));
                }
                Err(error) => pause_accepting(&error).await,
            }
        }
    })
}

/// As [`tcp_connections`].
pub(super) fn unix_connections(listener: UnixListener) -> impl Stream<Item = UnixStream> {
    stream::unfold(listener, async |listener| {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return Some((stream, listener)),
                Err(error) => pause_accepting(&error).await,
            }
        }
    })
}

async fn pause_accepting(error: &io::Error) {
    tracing::debug!(%error, "a connection could not be accepted");
    time::sleep(ACCEPT_PAUSE).await;
}
