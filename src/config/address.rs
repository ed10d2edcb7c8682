//! Where dedupd listens.

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr};

/// Longest path of a Unix socket, bytes: `sun_path` on Linux without its final zero.
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// Where gRPC listens: `127.0.0.1:50061`, `[::1]:0` or `unix:/run/dedupd.sock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrpcAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl GrpcAddress {
    /// Only this machine or pod can reach it.
    pub fn is_local(&self) -> bool {
        match self {
            GrpcAddress::Tcp(address) => address.ip().to_canonical().is_loopback(),
            GrpcAddress::Unix(_) => true,
        }
    }
}

impl FromStr for GrpcAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some(path) = text.strip_prefix("unix:") else {
            return parse_tcp(text)
                .map(GrpcAddress::Tcp)
                .map_err(|message| format!("{message}, nor unix:PATH"));
        };
        // gRPC also names absolute paths as unix:///path.
        let path = path.strip_prefix("//").unwrap_or(path);
        check_socket_path(path)?;
        Ok(GrpcAddress::Unix(path.into()))
    }
}

impl fmt::Display for GrpcAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GrpcAddress::Tcp(address) => address.fmt(f),
            GrpcAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

pub(super) fn check_socket_path(path: &str) -> Result<(), String> {
    if (1..=MAX_SOCKET_PATH_BYTES).contains(&path.len()) && !path.contains('\0') {
        return Ok(());
    }
    Err(format!(
        "the path of a Unix socket has 1 to {MAX_SOCKET_PATH_BYTES} bytes, none of them zero"
    ))
}

pub(super) fn parse_tcp(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("{text:?} is not an IP address with a port, such as 127.0.0.1:50061 or [::1]:0")
    })
}

/// Permissions of a socket's file: `0660`.
pub(super) fn parse_mode(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    match u32::from_str_radix(digits, 8) {
        Ok(mode) if mode <= 0o777 && !digits.starts_with('+') => Ok(mode),
        _ => Err(format!(
            "{text:?} is not a file's permissions in octal, such as 0660"
        )),
    }
}
