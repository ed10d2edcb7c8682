//! The processes that are measured: each on its CPUs, each ended with its value.

use std::{
    env, fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use dedupd::bench::cpu::process_ns;
use serde_json::Value;

use crate::Error;

const START_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Ends with its value.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn cpu_ns(&self) -> Result<u64, Error> {
        Ok(process_ns(self.pid())?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error says that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Which CPUs a process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cpus {
    /// The one that is Redis's, or that of a service without Redis.
    Own,
    /// All others.
    Others,
    /// Whichever is free.
    Any,
}

pub(crate) fn command(program: impl AsRef<Path>, cpus: Cpus) -> Command {
    let names: &[&str] = match cpus {
        Cpus::Own => &["OWN_CPU"],
        Cpus::Others => &["OTHER_CPUS"],
        Cpus::Any => &["OWN_CPU", "OTHER_CPUS"],
    };
    let lists: Vec<String> = names
        .iter()
        .flat_map(env::var)
        .filter(|list| !list.is_empty())
        .collect();
    let list = lists.join(",");
    if list.is_empty() {
        return Command::new(program.as_ref());
    }
    let mut command = Command::new("taskset");
    command.args(["-c", &list]).arg(program.as_ref());
    command
}

pub(crate) fn start(command: &mut Command) -> Result<Process, Error> {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Ok(Process(child.map_err(|error| {
        format!("cannot start {command:?}: {error}")
    })?))
}

/// What it wrote, once it has ended well.
pub(crate) fn output(command: &mut Command) -> Result<String, Error> {
    let output = command.stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?} failed: {said}").into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

pub(crate) fn json(command: &mut Command) -> Result<Value, Error> {
    let text = output(command)?;
    serde_json::from_str(&text).map_err(|error| format!("{command:?}: {error}: {text}").into())
}

pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) -> Result<(), Error> {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > START_TIMEOUT {
            return Err(format!("not within {START_TIMEOUT:?}: {what}").into());
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

pub(crate) fn free_port() -> Result<u16, Error> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

pub(crate) fn listens(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// The body of an answer.
pub(crate) fn http_get(port: u16, path: &str) -> Result<String, Error> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.contains(" 200 ") => Ok(body.to_owned()),
        Some(_) | None => Err(format!("{path}: {answer}").into()),
    }
}

pub(crate) struct Redis {
    pub(crate) process: Process,
    pub(crate) port: u16,
}

impl Redis {
    pub(crate) fn start(folder: &Path) -> Result<Self, Error> {
        Self::start_with(folder, &[])
    }

    pub(crate) fn start_with(folder: &Path, more: &[&str]) -> Result<Self, Error> {
        let port = free_port()?;
        let process = start(
            command("redis-server", Cpus::Own)
                .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
                .args(["--save", "", "--appendonly", "no"])
                .args(more)
                .current_dir(folder),
        )?;
        until("redis-server listens", || listens(port))?;
        Ok(Self { process, port })
    }

    pub(crate) fn cli(&self, words: &[&str]) -> Result<String, Error> {
        let mut command = Command::new("redis-cli");
        output(command.args(["-p", &self.port.to_string()]).args(words))
    }

    pub(crate) fn flush(&self) -> Result<(), Error> {
        self.cli(&["FLUSHALL"]).map(drop)
    }
}

/// dedupd, or the bare service, on a Unix socket.
pub(crate) struct Service {
    pub(crate) process: Process,
    pub(crate) target: String,
    pub(crate) clients_cpus: Cpus,
}

impl Service {
    /// On a store, or on the embedded one.
    pub(crate) fn dedupd(
        folder: &Path,
        name: &str,
        config: &str,
        store_url: Option<&str>,
        cpus: Cpus,
    ) -> Result<Self, Error> {
        let socket = folder.join(name);
        let admin_port = free_port()?;
        let admin = format!("127.0.0.1:{admin_port}");
        let mut command = command(dedupd(), cpus);
        command
            .args(["serve", "--admin-listen", &admin, "--grpc-listen"])
            .arg(format!("unix:{}", socket.display()))
            .args(store_url.iter().flat_map(|url| ["--store", url]))
            .env("DEDUPD_CONFIG_INLINE", config)
            .env("RUST_LOG", "warn");
        let service = Self::wait(start(&mut command)?, socket, cpus)?;
        // It listens before it has reached its store.
        until("the service is ready", || {
            http_get(admin_port, "/readyz").is_ok()
        })?;
        Ok(service)
    }

    pub(crate) fn bare(folder: &Path, name: &str, cpus: Cpus) -> Result<Self, Error> {
        let socket = folder.join(name);
        let mut command = command(env::current_exe()?, cpus);
        Self::wait(start(command.arg("bare").arg(&socket))?, socket, cpus)
    }

    fn wait(process: Process, socket: PathBuf, cpus: Cpus) -> Result<Self, Error> {
        until("the service listens", || {
            UnixStream::connect(&socket).is_ok()
        })?;
        Ok(Self {
            process,
            target: format!("unix:{}", socket.display()),
            clients_cpus: match cpus {
                Cpus::Own | Cpus::Others => Cpus::Others,
                Cpus::Any => Cpus::Any,
            },
        })
    }
}

pub(crate) fn dedupd() -> &'static str {
    env!("CARGO_BIN_EXE_dedupd")
}

/// Removed with its value.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Result<Self, Error> {
        let path = env::temp_dir().join(format!("dedupd-compare-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
