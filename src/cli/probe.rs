//! `dedupd probe`: for kubelets and container engines that have nothing else to ask with. It does not
//! leave the machine, so that no proxy of a mesh comes between.

use std::{
    env,
    io::{Read, Write},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    process::ExitCode,
    time::Duration,
};

use clap::Args;

use super::fail;
use crate::config::{Flags, admin_address};

/// In all; a kubelet gives up after 5 s.
const TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Args, Debug)]
pub struct ProbeOptions {
    /// What is asked: /livez or /readyz
    #[arg(value_name = "PATH", default_value = "/livez", value_parser = ["/livez", "/readyz"])]
    path: String,
    /// Where the service's admin HTTP listens [env: DEDUPD_ADMIN_LISTEN]
    #[arg(long, value_name = "ADDR")]
    admin_listen: Option<String>,
}

pub fn probe(options: &ProbeOptions) -> ExitCode {
    let flags = Flags {
        admin_listen: options.admin_listen.clone(),
        ..Flags::default()
    };
    let address = match admin_address(&flags, &|name| env::var_os(name)) {
        Ok(address) => reachable(address),
        Err(errors) => return super::refuse(&errors),
    };
    match ask(address, &options.path) {
        Ok(200) => ExitCode::SUCCESS,
        Ok(status) => fail(&format!("{address}{} answers {status}", options.path)),
        Err(message) => fail(&format!("{address}{}: {message}", options.path)),
    }
}

/// Who listens on every address is reached over loopback.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => {
            address.set_ip(Ipv4Addr::LOCALHOST.into())
        }
        // Also where there is no IPv6: it listens on both families.
        SocketAddr::V6(v6) if v6.ip() == &Ipv6Addr::UNSPECIFIED => {
            address.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        SocketAddr::V4(_) | SocketAddr::V6(_) => {}
    }
    address
}

/// The status.
fn ask(address: SocketAddr, path: &str) -> Result<u16, String> {
    let answer = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
        let mut head = String::new();
        stream.take(64).read_to_string(&mut head)?;
        Ok(head)
    };
    let head = answer().map_err(|error| error.to_string())?;
    head.strip_prefix("HTTP/1.")
        .and_then(|rest| rest.get(2..5)?.parse().ok())
        .ok_or_else(|| "no answer of HTTP; is this the port of the admin HTTP?".to_owned())
}
