//! The real binary as a process, on ports of its own, watched from outside.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::process::ExitStatusExt,
    process::{Child, Command, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use super::redis::send_signal;

const START_TIMEOUT: Duration = Duration::from_secs(10);
/// From closed output to a process that can be waited for.
const END_TIMEOUT: Duration = Duration::from_secs(1);
const HTTP_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const ANY_PORT: &str = "127.0.0.1:0";

#[derive(Debug, Default, Clone)]
pub(crate) struct Options {
    /// The configuration as YAML; unset: none, so the built-in namespaces on `memory://`.
    pub(crate) config: Option<String>,
    pub(crate) store_url: Option<String>,
    /// The only `DEDUPD_…` variables that the process sees.
    pub(crate) env: Vec<(String, String)>,
    /// Further arguments of `serve`.
    pub(crate) args: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Service {
    child: Child,
    logs: Arc<Logs>,
    bound: Bound,
    _directory: TempDir,
}

/// A process that ended before it listened.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) exit_code: i32,
    pub(crate) logs: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
struct Bound {
    grpc: SocketAddr,
    admin: SocketAddr,
}

/// Where the service listens, if this log line says so. The only place that knows the line.
fn bound_addresses(line: &str) -> Option<Bound> {
    let line: Value = serde_json::from_str(line).ok()?;
    let fields = line.get("fields")?;
    if !fields.get("message")?.as_str()?.contains("listening") {
        return None;
    }
    // Several listeners may be named, Unix sockets among them, as text or as a list.
    let address = |name: &str| {
        let text = fields.get(name)?.to_string();
        text.split([',', ' ', '"', '[', ']', '\\'])
            .find_map(|word| word.parse().ok())
    };
    Some(Bound {
        grpc: address("grpc")?,
        admin: address("admin")?,
    })
}

impl Service {
    /// Starts the service and waits until it listens.
    pub(crate) fn start(options: &Options) -> Self {
        Self::try_start(options).unwrap_or_else(|ended| panic!("dedupd did not start: {ended:#?}"))
    }

    pub(crate) fn try_start(options: &Options) -> Result<Self, Ended> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut child = command(options, &directory).spawn().expect("dedupd runs");
        let logs = Arc::new(Logs::default());
        logs.collect(child.stdout.take().expect("stdout is piped"));
        logs.collect(child.stderr.take().expect("stderr is piped"));
        if let Some(bound) = logs.wait(START_TIMEOUT, bound_addresses) {
            return Ok(Self {
                child,
                logs,
                bound,
                _directory: directory,
            });
        }
        let Some(exit_code) = exit_code(&mut child, END_TIMEOUT) else {
            child.kill().expect("the child is ours");
            child.wait().expect("the child is ours");
            panic!(
                "dedupd runs, but no log line names the addresses: {:#?}",
                logs.lines()
            );
        };
        Err(Ended {
            exit_code,
            logs: logs.lines(),
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn grpc_addr(&self) -> SocketAddr {
        self.bound.grpc
    }

    pub(crate) fn grpc_url(&self) -> String {
        format!("http://{}", self.bound.grpc)
    }

    pub(crate) fn admin_addr(&self) -> SocketAddr {
        self.bound.admin
    }

    pub(crate) fn logs(&self) -> Vec<String> {
        self.logs.lines()
    }

    /// The first log line, past or future, that contains `text`.
    pub(crate) fn wait_log(&self, text: &str, timeout: Duration) -> String {
        let found = |line: &str| line.contains(text).then(|| line.to_owned());
        self.logs.wait(timeout, found).unwrap_or_else(|| {
            panic!(
                "no {text:?} in the log within {timeout:?}: {:#?}",
                self.logs()
            )
        })
    }

    pub(crate) fn sigterm(&self) {
        self.signal("TERM");
    }

    pub(crate) fn signal(&self, name: &str) {
        send_signal(name, self.pid());
    }

    /// The exit code; of a death by signal 128 + its number, as in a shell.
    pub(crate) fn wait_exit(&mut self, timeout: Duration) -> i32 {
        exit_code(&mut self.child, timeout).unwrap_or_else(|| {
            panic!(
                "dedupd still runs after {timeout:?}: {:#?}",
                self.logs.lines()
            )
        })
    }

    /// Status and body of a GET from the admin listener.
    pub(crate) fn http_get(&self, path: &str) -> (u16, String) {
        http_get(self.bound.admin, path)
    }

    /// The value of one series, such as `dedupd_decisions_total{namespace="pings",…}`.
    /// All its labels must be given, in any order; none of their values holds a comma.
    pub(crate) fn metric(&self, series: &str) -> Option<f64> {
        let (status, body) = self.http_get("/metrics");
        assert_eq!(status, 200, "{body}");
        series_value(&body, series)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // An error says that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("log of dedupd: {:#?}", self.logs());
        }
    }
}

/// Status and body.
pub(crate) fn http_get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("admin HTTP listens");
    let timeout = Some(HTTP_TIMEOUT);
    stream.set_read_timeout(timeout).expect("a TCP socket");
    // HTTP/1.0: the answer comes unchunked and ends with the connection.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").expect("admin HTTP reads");
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    read.expect("admin HTTP answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    (
        status.unwrap_or_else(|| panic!("no status in {head:?}")),
        body.to_owned(),
    )
}

fn command(options: &Options, directory: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dedupd"));
    let ours = |name: &str| name.starts_with("DEDUPD_") || name == "RUST_LOG";
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(ours) {
            command.env_remove(name);
        }
    }
    command.arg("serve").args(["--log-format", "json"]);
    command.args(["--grpc-listen", ANY_PORT, "--admin-listen", ANY_PORT]);
    if let Some(config) = &options.config {
        let path = directory.path().join("dedupd.yaml");
        fs::write(&path, config).expect("the directory is ours");
        command.arg("--config").arg(path);
    }
    if let Some(store_url) = &options.store_url {
        command.args(["--store", store_url]);
    }
    command
        .args(&options.args)
        .envs(options.env.iter().map(|(name, value)| (name, value)))
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

pub(crate) fn exit_code(child: &mut Child, timeout: Duration) -> Option<i32> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(status) = child.try_wait().expect("the child is ours") {
            let by_signal = || 128 + status.signal().expect("no code: ended by a signal");
            return Some(status.code().unwrap_or_else(by_signal));
        }
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// What the process printed, stdout and stderr as they came.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    state: Mutex<LogState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LogState {
    lines: Vec<String>,
    open_streams: usize,
}

impl Logs {
    pub(crate) fn collect(self: &Arc<Self>, stream: impl Read + Send + 'static) {
        self.state.lock().expect("no panic inside").open_streams += 1;
        let logs = Arc::clone(self);
        thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                logs.state.lock().expect("no panic inside").lines.push(line);
                logs.changed.notify_all();
            }
            logs.state.lock().expect("no panic inside").open_streams -= 1;
            logs.changed.notify_all();
        });
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.state.lock().expect("no panic inside").lines.clone()
    }

    /// The first line of which `find` makes something; `None` when time or the process ends.
    pub(crate) fn wait<T>(&self, timeout: Duration, find: impl Fn(&str) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + timeout;
        let mut state = self.state.lock().expect("no panic inside");
        let mut read = 0;
        loop {
            if let Some(found) = state.lines[read..].iter().find_map(|line| find(line)) {
                return Some(found);
            }
            read = state.lines.len();
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.open_streams == 0 {
                return None;
            }
            let woken = self.changed.wait_timeout(state, left);
            (state, _) = woken.expect("no panic inside");
        }
    }
}

pub(crate) fn series_value(exposition: &str, series: &str) -> Option<f64> {
    let wanted = name_and_labels(series);
    exposition
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
        .find(|(series, _)| name_and_labels(series) == wanted)
        .map(|(_, value)| value.parse().expect("a metric is a number"))
}

fn name_and_labels(series: &str) -> (&str, Vec<&str>) {
    let Some((name, labels)) = series.split_once('{') else {
        return (series, Vec::new());
    };
    let mut labels: Vec<_> = labels.trim_end_matches('}').split(',').collect();
    labels.sort_unstable();
    (name, labels)
}

mod tests {
    use super::*;

    #[test]
    fn addresses_come_from_the_listening_line() {
        let check = |line: &str, expected: Option<(&str, &str)>| {
            let found = bound_addresses(line);
            let found = found.map(|bound| (bound.grpc.to_string(), bound.admin.to_string()));
            let expected = expected.map(|(grpc, admin)| (grpc.to_owned(), admin.to_owned()));
            assert_eq!(found, expected, "{line}");
        };
        let both = Some(("127.0.0.1:5", "127.0.0.1:6"));
        check(
            r#"{"level":"INFO","fields":{"message":"listening","grpc":"127.0.0.1:5","admin":"127.0.0.1:6"}}"#,
            both,
        );
        check(
            r#"{"fields":{"message":"listening","grpc":"[\"unix:/a\", \"127.0.0.1:5\"]","admin":"127.0.0.1:6"}}"#,
            both,
        );
        check(
            r#"{"fields":{"message":"listening","grpc":["127.0.0.1:5"],"admin":"127.0.0.1:6"}}"#,
            both,
        );
        check(
            r#"{"fields":{"message":"ready","grpc":"127.0.0.1:5"}}"#,
            None,
        );
        check("not JSON", None);
    }

    #[test]
    fn a_series_is_found_by_its_labels_in_any_order() {
        let exposition =
            "# TYPE a counter\na_total{x=\"1\",y=\"2\"} 3\na_total{x=\"1\"} 4\nb 5.5\n";
        let check = |series: &str, expected: Option<f64>| {
            assert_eq!(series_value(exposition, series), expected, "{series}");
        };
        check(r#"a_total{y="2",x="1"}"#, Some(3.0));
        check(r#"a_total{x="1"}"#, Some(4.0));
        check("a_total", None);
        check("b", Some(5.5));
    }
}
