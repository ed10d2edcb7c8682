//! The examples in `examples/`, run as a newcomer runs them: consumers that are started before
//! their service, killed in mid-batch, and left without the service for a while.

mod webhook;

use std::{
    collections::BTreeMap,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    redis::{RedisServer, ports},
    service::{Options, Service},
};

const PATIENCE: Duration = Duration::from_secs(90);
/// In place of the 30 s of the example's configuration; longer than a restart of the service.
const LEASE: &str = "lease: 6s";
const LONGER_THAN_LEASE_MS: u64 = 7_000;

/// First bytes of records.
const PENDING: u8 = 0x81;
const CONFIRMED: u8 = 0x83;

/// A program that `tests/run.sh` has built, by language.
pub(crate) fn built(language: &str, program: &str) -> Command {
    let variable = format!("DEDUPD_TEST_CLIENT_{}", language.to_uppercase());
    let folder = std::env::var_os(&variable).unwrap_or_else(|| {
        panic!(
            "{variable} is not set: tests/run.sh builds the client (tests/clients.sh) and sets it"
        )
    });
    Command::new(Path::new(&folder).join(program))
}

fn fleet() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/fleet.yaml");
    let config = fs::read_to_string(path).expect("it is in the tree");
    format!(
        "store: {{ budget: 10s }}\n{}",
        config.replace("lease: 30s", LEASE)
    )
}

/// The service on a port that its clients know before it is there.
struct Sidecar {
    addr: SocketAddr,
    redis: RedisServer,
}

impl Sidecar {
    fn prepare() -> Self {
        Self {
            addr: (Ipv4Addr::LOCALHOST, ports::free_port()).into(),
            redis: RedisServer::start(Default::default()),
        }
    }

    fn start(&self) -> Service {
        Service::start(&Options {
            config: Some(fleet()),
            store_url: Some(self.redis.url()),
            args: vec!["--grpc-listen".to_owned(), self.addr.to_string()],
            ..Options::default()
        })
    }

    /// Claims in a state, by the first byte of their records.
    fn claims(&self, state: u8) -> usize {
        const COUNT: &str = "local count = 0 for _, key in ipairs(redis.call('KEYS', '*:*')) do \
            local record = redis.call('GET', key) \
            if record and string.byte(record) == tonumber(ARGV[1]) then count = count + 1 end \
            end return count";
        let count = self.redis.cli(&["EVAL", COUNT, "0", &state.to_string()]);
        count.trim().parse().expect("a number")
    }

    fn wait_claims(&self, state: u8, at_least: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.claims(state) < at_least {
            assert!(
                Instant::now() < deadline,
                "not {at_least} claims in state {state:x}"
            );
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A consumer, its queue, and where it writes what it has done.
struct Consumer {
    command: fn() -> Command,
    folder: TempDir,
}

impl Consumer {
    fn start(&self, sidecar: &Sidecar) -> Child {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("log"));
        (self.command)()
            .arg(self.path("queue.jsonl"))
            .arg(self.folder.path())
            .env("DEDUPD_ADDRESS", sidecar.addr.to_string())
            .stdout(Stdio::null())
            .stderr(log.expect("the folder is ours"))
            .spawn()
            .expect("the consumer runs")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn wait_end(&self, mut child: Child) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = child.try_wait().expect("the child is ours") {
                assert!(status.success(), "{status}: {:#?}", self.lines("log"));
                return;
            }
            if Instant::now() > deadline {
                child.kill().expect("the child is ours");
                child.wait().expect("the child is ours");
                panic!("it still runs: {:#?}", self.lines("log"));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// What a message makes of the stand-in of the work.
#[derive(Clone, Copy, Default)]
struct Work {
    fails: u32,
    takes_ms: u64,
}

fn check(command: fn() -> Command, message: fn(&str, Work) -> Value) {
    let work = |fails, takes_ms| Work { fails, takes_ms };
    let line = |id: &str, work: Work| message(id, work).to_string();
    let mut queue: Vec<_> = ["a", "b", "c"].map(|id| line(id, work(0, 0))).to_vec();
    // The first run is killed while it is at this one; the second renews its lease.
    queue.push(line("long", work(0, LONGER_THAN_LEASE_MS)));
    queue.extend(["d", "e"].map(|id| line(id, work(0, 0))));
    let (slow, weak) = (line("slow", work(0, 1_500)), line("weak", work(2, 0)));
    // The service is killed when six are done.
    queue.extend([
        slow,
        weak.clone(),
        line("f", work(0, 0)),
        line("g", work(0, 0)),
    ]);
    let good = queue.clone();
    queue.extend([queue[0].clone(), queue[3].clone(), queue[8].clone(), weak]);
    let dead = [line("hopeless", work(99, 0)), line("", work(0, 0))];
    queue.extend(dead.clone());

    let folder = tempfile::tempdir().expect("a temporary directory");
    let consumer = Consumer { command, folder };
    fs::write(consumer.path("queue.jsonl"), queue.join("\n") + "\n").expect("the folder is ours");
    let sidecar = Sidecar::prepare();
    let mut first = consumer.start(&sidecar);
    thread::sleep(Duration::from_millis(500));
    let mut service = sidecar.start();
    sidecar.wait_claims(CONFIRMED, 3);
    first.kill().expect("the child is ours");
    first.wait().expect("the child is ours");
    assert_eq!(consumer.lines("done.jsonl"), good[..3]);

    let second = consumer.start(&sidecar);
    sidecar.wait_claims(CONFIRMED, 6);
    service.signal("KILL");
    service.wait_exit(Duration::from_secs(5));
    thread::sleep(Duration::from_millis(300));
    let _service = sidecar.start();
    consumer.wait_end(second);

    assert_eq!(once(consumer.lines("done.jsonl")), once(good));
    assert_eq!(once(consumer.lines("dead.jsonl")), once(dead.to_vec()));
    let log = consumer.lines("log");
    assert!(
        !log.iter().any(|line| line.contains("not confirmed")),
        "{log:#?}"
    );
}

/// How often each line is there.
fn once(lines: Vec<String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in lines {
        *counts.entry(line).or_insert(0) += 1;
    }
    counts
}

fn webhook_message(id: &str, Work { fails, takes_ms }: Work) -> Value {
    json!({ "id": id, "fails": fails, "takesMs": takes_ms })
}

fn crossing(id: &str, Work { fails, takes_ms }: Work) -> Value {
    let at = Timestamp::now().to_string();
    let seen = json!({ "device": id, "fence": "depot", "kind": "ENTER", "at": at });
    with(seen, json!({ "fails": fails, "takesMs": takes_ms }))
}

fn position(id: &str, Work { fails, takes_ms }: Work) -> Value {
    let at = Timestamp::now().to_string();
    let seen = json!({ "asset": id, "at": at, "latitude": 47.37, "longitude": 8.54 });
    with(seen, json!({ "fails": fails, "takes_ms": takes_ms }))
}

fn with(mut message: Value, more: Value) -> Value {
    let (fields, more) = (message.as_object_mut(), more.as_object().cloned());
    fields.expect("an object").extend(more.expect("an object"));
    message
}

#[test]
fn a_queue_is_handled_once_by_java() {
    check(|| built("java", "consumer"), crossing);
}

#[test]
fn a_queue_is_handled_once_by_typescript() {
    check(|| built("typescript", "consumer"), webhook_message);
}

#[test]
fn a_queue_is_handled_once_by_rust() {
    check(|| built("rust", "positions"), position);
}
