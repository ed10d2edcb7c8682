//! A redis-server process of the test's own; [`replicated`] and [`cluster`] are made of several.
//!
//! Each server has its own port and directory and dies with its value, so tests need no shared
//! Redis and cannot meet each other. It lives in a child process because its locale, its version
//! and its death are what the tests are about. A server in a `static` is never dropped: do not.

pub(crate) mod cluster;
mod fleet_tests;
pub(crate) mod ports;
pub(crate) mod replicated;
mod tests;

use std::{
    env,
    ffi::OsStr,
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use dedupd::store::redis::target::{Access, Address, Endpoint, Password, Secret, Target, Topology};
use tempfile::TempDir;

use super::certificates;

const START_TIMEOUT: Duration = Duration::from_secs(10);
const START_ATTEMPTS: usize = 5;
const POLL_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Debug, Default, Clone)]
pub(crate) struct Options {
    /// The server to run; unset: `DEDUPD_TEST_REDIS`, else `redis-server` from the path.
    pub(crate) binary: Option<PathBuf>,
    /// `LC_ALL` of the server, from [`collating_locale`]; unset: `C`.
    pub(crate) locale: Option<String>,
    pub(crate) password: Option<String>,
    /// TLS in place of plain TCP, with the certificates of [`certificates`].
    pub(crate) tls: Option<Tls>,
    /// The text of a configuration file, which the server may rewrite.
    pub(crate) file: Option<String>,
    /// Command-line arguments, such as `["--maxmemory", "2mb"]`.
    pub(crate) args: Vec<String>,
    /// How far its clock is ahead, by [`faketime`]; 0: it is ours.
    pub(crate) clock_ahead_s: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tls {
    ServerOnly,
    /// The client must show a certificate.
    Mutual,
}

impl Options {
    /// Adds an ACL user, such as `user("dedupd", "secret", "~idem:* +get +set")`.
    pub(crate) fn user(mut self, name: &str, password: &str, rules: &str) -> Self {
        let password = format!(">{password}");
        let words = ["--user", name, "on", &password].into_iter();
        let words = words.chain(rules.split_whitespace());
        self.args.extend(words.map(str::to_owned));
        self
    }

    /// Every write is on disk before it is answered, so that [`RedisServer::restart`] loses nothing
    /// that was acknowledged.
    pub(crate) fn durable(mut self) -> Self {
        let words = ["--appendonly", "yes", "--appendfsync", "always"];
        self.args.extend(words.map(str::to_owned));
        self
    }
}

/// A Redis 6.2 server, where `tests/run.sh` could install one.
pub(crate) fn redis_62() -> Option<PathBuf> {
    env::var_os("DEDUPD_TEST_REDIS_62").map(PathBuf::from)
}

/// The library that gives a server another clock. Of the servers here only Redis 6.2 bears it:
/// the other one's allocator does not.
pub(crate) fn faketime() -> Option<PathBuf> {
    env::var_os("DEDUPD_TEST_FAKETIME").map(PathBuf::from)
}

/// A locale whose `strcoll` does not order bytes, where the machine has one.
///
/// It must be generated: Redis takes `LC_ALL` without a word where it does not exist, and
/// compares bytes.
pub(crate) fn collating_locale() -> Option<String> {
    env::var("DEDUPD_TEST_LOCALE").ok()
}

#[derive(Debug)]
pub(crate) struct RedisServer {
    options: Options,
    port: u16,
    directory: TempDir,
    child: Child,
}

impl RedisServer {
    pub(crate) fn start(options: Options) -> Self {
        Self::start_on(options, ports::free_port)
    }

    /// `port` is asked for again where another process has taken the first one since.
    pub(crate) fn start_on(options: Options, port: impl Fn() -> u16) -> Self {
        for _ in 0..START_ATTEMPTS {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let port = port();
            let child = spawn(&options, port, directory.path());
            let mut server = Self {
                options: options.clone(),
                port,
                directory,
                child,
            };
            // Another process may have taken the port since it was found free.
            if server.answers() {
                server.check_collation();
                return server;
            }
            eprintln!("redis-server on port {port} ended: {}", server.log());
        }
        panic!("redis-server did not start in {START_ATTEMPTS} attempts");
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn url(&self) -> String {
        self.url_at(self.addr())
    }

    /// The URL of this server as reached through `addr`, such as a proxy's.
    pub(crate) fn url_at(&self, addr: SocketAddr) -> String {
        let scheme = self.options.tls.map_or("redis", |_| "rediss");
        match &self.options.password {
            Some(password) => format!("{scheme}://:{password}@{addr}"),
            None => format!("{scheme}://{addr}"),
        }
    }

    pub(crate) fn target(&self) -> Target {
        let address = Address {
            host: self.addr().ip().to_string(),
            port: self.port,
        };
        let password = self.options.password.clone();
        Target {
            topology: Topology::Standalone {
                endpoint: Endpoint::Tcp(address),
                database: 0,
            },
            access: Access {
                password: password.map(|text| Password::Text(Secret::new(text))),
                ..Access::default()
            },
            wait_replicas: 0,
        }
    }

    pub(crate) fn socket_path(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    /// Freezes the process: connections stay open and nothing answers.
    pub(crate) fn pause(&self) {
        send_signal("STOP", self.pid());
    }

    pub(crate) fn resume(&self) {
        send_signal("CONT", self.pid());
    }

    /// Ends the process at once. The port stays this server's own for [`Self::restart`].
    pub(crate) fn kill(&mut self) {
        // An error says that it has ended already.
        let _ = self.child.kill();
        self.child.wait().expect("the child is ours");
    }

    /// Starts a server on the same port and directory: an empty one, unless [`Options::durable`].
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.child = spawn(&self.options, self.port, self.directory.path());
        assert!(self.answers(), "redis-server ended: {}", self.log());
    }

    /// What redis-cli prints, without the last line break; an error reply is text as well.
    /// Do not call it on a paused server: it waits for ever.
    pub(crate) fn cli<A: AsRef<OsStr>>(&self, args: &[A]) -> String {
        self.try_cli(args)
            .unwrap_or_else(|| panic!("redis-cli reaches no server: {}", self.log()))
    }

    /// The same; `None` where the server is not reached.
    pub(crate) fn try_cli<A: AsRef<OsStr>>(&self, args: &[A]) -> Option<String> {
        let mut command = Command::new("redis-cli");
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]);
        if self.options.tls.is_some() {
            command
                .arg("--tls")
                .args(tls_files("--cacert", "--cert", "--key"));
        }
        if let Some(password) = &self.options.password {
            command.env("REDISCLI_AUTH", password);
        }
        let output = command.args(args).output().expect("redis-cli runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let reached = output.status.success();
        reached.then(|| text.trim_end_matches('\n').to_owned())
    }

    /// One field of INFO, such as `master_link_status`; empty where there is none.
    pub(crate) fn info(&self, field: &str) -> String {
        let info = self.try_cli(&["INFO", "ALL"]).unwrap_or_default();
        let value = info.lines().find_map(|line| {
            let (name, value) = line.trim_end().split_once(':')?;
            (name == field).then(|| value.to_owned())
        });
        value.unwrap_or_default()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("redis.log")).unwrap_or_default()
    }

    /// Waits until this very process answers; false if it ended first.
    fn answers(&mut self) -> bool {
        let mine = format!("process_id:{}\r", self.pid());
        let deadline = Instant::now() + START_TIMEOUT;
        while Instant::now() < deadline {
            if self.child.try_wait().expect("the child is ours").is_some() {
                return false;
            }
            // redis-cli would wait for ever for a stranger that is paused on this port.
            if self.options.tls.is_some() || replies(self.addr()) {
                let info = self.try_cli(&["INFO", "server"]);
                if info.is_some_and(|info| info.contains(&mine)) {
                    return true;
                }
            }
            thread::sleep(POLL_INTERVAL);
        }
        panic!("no answer within {START_TIMEOUT:?}: {}", self.log());
    }

    fn check_collation(&self) {
        if let Some(locale) = &self.options.locale {
            let order = self.cli(&["EVAL", "return tostring('a' < 'B')", "0"]);
            assert_eq!(
                order, "true",
                "locale {locale} is not in effect: tests/run.sh generates it"
            );
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a signal by name. Safe against a pid used anew: callers hold the child unreaped.
pub(crate) fn send_signal(name: &str, pid: u32) {
    let status = Command::new("kill")
        .args(["-s", name, &pid.to_string()])
        .status()
        .expect("kill runs");
    assert!(status.success(), "kill -s {name} {pid}: {status}");
}

fn spawn(options: &Options, port: u16, directory: &Path) -> Child {
    let binary = options
        .binary
        .clone()
        .or_else(|| env::var_os("DEDUPD_TEST_REDIS").map(PathBuf::from))
        .unwrap_or_else(|| "redis-server".into());
    let mut command = Command::new(&binary);
    if let Some(text) = &options.file {
        let path = directory.join("redis.conf");
        // What the server wrote into it outlives a restart.
        if !path.exists() {
            fs::write(&path, text).expect("the directory is ours");
        }
        command.arg(path);
    }
    let (tcp, tls) = match options.tls {
        None => (port, 0),
        Some(_) => (0, port),
    };
    command
        .args(["--bind", "127.0.0.1", "--port", &tcp.to_string()])
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .args(["--logfile", "redis.log", "--unixsocket", "redis.sock"])
        .arg("--dir")
        .arg(directory);
    if let Some(mode) = options.tls {
        let asks_clients = match mode {
            Tls::ServerOnly => "no",
            Tls::Mutual => "yes",
        };
        command
            .args(["--tls-port", &tls.to_string()])
            .args(["--tls-auth-clients", asks_clients])
            .args(["--tls-replication", "yes"])
            .arg("--tls-cert-file")
            .arg(certificates::path("server.pem"))
            .arg("--tls-key-file")
            .arg(certificates::path("server.key"))
            .args(tls_files(
                "--tls-ca-cert-file",
                "--tls-client-cert-file",
                "--tls-client-key-file",
            ));
    }
    if let Some(password) = &options.password {
        command.args(["--requirepass", password, "--masterauth", password]);
    }
    if options.clock_ahead_s != 0 {
        command
            .env("LD_PRELOAD", faketime().expect("the library"))
            .env("FAKETIME", format!("{:+}s", options.clock_ahead_s))
            // What it measures its own time with stays as it is.
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }
    command
        .args(&options.args)
        .env_remove("LANG")
        .env("LC_ALL", options.locale.as_deref().unwrap_or("C"))
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| {
            panic!("{}: {error}: run tests/run.sh", binary.display());
        })
}

/// What a client of a TLS server needs, each behind the name of its argument.
fn tls_files(ca: &str, certificate: &str, key: &str) -> Vec<PathBuf> {
    vec![
        ca.into(),
        certificates::path("ca.pem"),
        certificate.into(),
        certificates::path("client.pem"),
        key.into(),
        certificates::path("client.key"),
    ]
}

/// True once the server answers a command, if only to say that a password is needed.
fn replies(addr: SocketAddr) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(addr)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"PING\r\n")?;
        let mut reply = [0; 1];
        stream.read_exact(&mut reply)
    };
    ask().is_ok()
}
