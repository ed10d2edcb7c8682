//! A redis-server process of the test's own.
//!
//! Each server has its own port and directory and dies with its value, so tests need no shared
//! Redis and cannot meet each other. It lives in a child process because its locale, its version
//! and its death are what the tests are about. A server in a `static` is never dropped: do not.

use std::{
    env,
    ffi::OsStr,
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{self, Child, Command, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    thread,
    time::{Duration, Instant},
};

use dedupd::store::redis::target::{Access, Address, Endpoint, Password, Secret, Target, Topology};
use tempfile::TempDir;

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
    /// Command-line arguments, such as `["--maxmemory", "2mb"]`.
    pub(crate) args: Vec<String>,
}

/// A Redis 6.2 server, where `tests/run.sh` could install one.
pub(crate) fn redis_62() -> Option<PathBuf> {
    env::var_os("DEDUPD_TEST_REDIS_62").map(PathBuf::from)
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
        for _ in 0..START_ATTEMPTS {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let port = free_port();
            let child = spawn(&options, port, &directory);
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
        match &self.options.password {
            Some(password) => format!("redis://:{password}@{addr}"),
            None => format!("redis://{addr}"),
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

    /// Starts an empty server on the same port.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.child = spawn(&self.options, self.port, &self.directory);
        assert!(self.answers(), "redis-server ended: {}", self.log());
    }

    /// What redis-cli prints, without the last line break; an error reply is text as well.
    /// Do not call it on a paused server: it waits for ever.
    pub(crate) fn cli<A: AsRef<OsStr>>(&self, args: &[A]) -> String {
        let mut command = Command::new("redis-cli");
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]);
        if let Some(password) = &self.options.password {
            command.env("REDISCLI_AUTH", password);
        }
        let output = command.args(args).output().expect("redis-cli runs");
        assert!(output.status.success(), "redis-cli: {output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim_end_matches('\n').to_owned()
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
            if replies(self.addr()) && self.cli(&["INFO", "server"]).contains(&mine) {
                return true;
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
pub(super) fn send_signal(name: &str, pid: u32) {
    let status = Command::new("kill")
        .args(["-s", name, &pid.to_string()])
        .status()
        .expect("kill runs");
    assert!(status.success(), "kill -s {name} {pid}: {status}");
}

fn spawn(options: &Options, port: u16, directory: &TempDir) -> Child {
    let binary = options
        .binary
        .clone()
        .or_else(|| env::var_os("DEDUPD_TEST_REDIS").map(PathBuf::from))
        .unwrap_or_else(|| "redis-server".into());
    let mut command = Command::new(&binary);
    command
        .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .args(["--logfile", "redis.log", "--unixsocket", "redis.sock"])
        .arg("--dir")
        .arg(directory.path());
    if let Some(password) = &options.password {
        command.args(["--requirepass", password]);
    }
    command
        .args(&options.args)
        .env_remove("LANG")
        .env("LC_ALL", options.locale.as_deref().unwrap_or("C"))
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| {
            panic!("{}: {error}: run tests/run.sh", binary.display());
        })
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

/// A free port below the range from which the kernel gives ports to outgoing connections, so
/// that none of these sits on it when the server restarts.
fn free_port() -> u16 {
    const FIRST: u16 = 10_000;
    const COUNT: u16 = 20_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = process::id().wrapping_mul(97);
    loop {
        let step = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let offset = start.wrapping_add(step) % u32::from(COUNT);
        let port = FIRST + u16::try_from(offset).expect("less than COUNT");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    const ORDER: [&str; 3] = ["EVAL", "return tostring('a' < 'B')", "0"];

    #[test]
    fn lua_compares_bytes_without_a_locale() {
        let server = RedisServer::start(Options::default());
        assert_eq!(server.cli(&ORDER), "false");
    }

    #[test]
    fn lua_collates_under_a_locale() {
        let Some(locale) = collating_locale() else {
            eprintln!("left out: no DEDUPD_TEST_LOCALE, see tests/run.sh");
            return;
        };
        for binary in [None, redis_62()] {
            let server = RedisServer::start(Options {
                binary,
                locale: Some(locale.clone()),
                ..Options::default()
            });
            assert_eq!(server.cli(&ORDER), "true");
        }
    }

    #[test]
    fn redis_62_is_a_redis_62() {
        let Some(binary) = redis_62() else {
            eprintln!("left out: no DEDUPD_TEST_REDIS_62, see tests/run.sh");
            return;
        };
        let server = RedisServer::start(Options {
            binary: Some(binary),
            ..Options::default()
        });
        assert!(
            server
                .cli(&["INFO", "server"])
                .contains("redis_version:6.2.")
        );
    }

    #[test]
    fn options_reach_the_server() {
        let server = RedisServer::start(Options {
            password: Some("secret".into()),
            args: vec!["--maxmemory".into(), "2mb".into()],
            ..Options::default()
        });
        assert_eq!(
            server.cli(&["CONFIG", "GET", "maxmemory"]),
            "maxmemory\n2097152"
        );
        assert_eq!(
            server.url(),
            format!("redis://:secret@127.0.0.1:{}", server.port())
        );
        UnixStream::connect(server.socket_path()).expect("the socket listens");
    }

    #[test]
    fn a_paused_server_hangs_and_goes_on() {
        let server = RedisServer::start(Options::default());
        server.pause();
        assert!(!replies(server.addr()));
        server.resume();
        assert!(replies(server.addr()));
    }

    #[test]
    fn a_restarted_server_is_empty_and_on_the_same_port() {
        let mut server = RedisServer::start(Options::default());
        let (port, pid) = (server.port(), server.pid());
        assert_eq!(server.cli(&["SET", "key", "value"]), "OK");
        server.kill();
        assert!(!replies(server.addr()));
        server.restart();
        assert_eq!(server.port(), port);
        assert_ne!(server.pid(), pid);
        assert_eq!(server.cli(&["GET", "key"]), "");
    }

    #[test]
    fn a_dropped_server_is_gone() {
        let server = RedisServer::start(Options::default());
        let (addr, directory) = (server.addr(), server.directory.path().to_owned());
        drop(server);
        assert!(!replies(addr));
        assert!(!directory.exists());
    }
}
