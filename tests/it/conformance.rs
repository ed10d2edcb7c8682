//! One script, taken by a client in every language: what is answered must be the same, byte for
//! byte. See `tests/conformance/README.md`.

mod keys;
mod lines;
mod messages;
mod rust_client;

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use dedupd::grpc::proto::{Decision, Reason, SettleOutcome};
use tempfile::TempDir;
use tokio::time;
use tonic::transport::Channel;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::{
    client::{PATIENCE, connect},
    clients::built,
    support::{
        redis::RedisServer,
        service::{Options, Service},
    },
};

const SCRIPT: &str = "tests/conformance/script.jsonl";
const EXPECTED: &str = "tests/conformance/expected.txt";

/// A port that no test is given.
const NOBODY: &str = "redis://127.0.0.1:1";

/// Set to write what the Rust client was answered as what is expected; look at the difference.
const BLESS: &str = "DEDUPD_TEST_BLESS";

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("it is in the tree")
}

/// What the script talks to: a service on a Redis that holds foreign keys, and one whose Redis is
/// away.
struct Places {
    here: Service,
    away: Service,
    directory: TempDir,
    _redis: RedisServer,
}

impl Places {
    async fn start() -> Self {
        let redis = RedisServer::start(Default::default());
        for (key, value) in [
            ("dedup:foreign", "1"),
            ("orders:foreign", "1"),
            ("dedupd:contract:mismatched", "v1 window=2s"),
        ] {
            redis.cli(&["SET", key, value]);
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        let socket = format!("unix:{}", directory.path().join("dedupd.sock").display());
        let here = Service::start(&Options {
            config: Some(read("tests/conformance/dedupd.yaml")),
            store_url: Some(redis.url()),
            args: vec!["--grpc-listen".to_owned(), socket],
            ..Options::default()
        });
        let away = Service::start(&Options {
            config: Some(read("tests/conformance/away.yaml")),
            store_url: Some(NOBODY.to_owned()),
            ..Options::default()
        });
        wait_store(connect(&here).await, ServingStatus::Serving).await;
        wait_store(connect(&away).await, ServingStatus::NotServing).await;
        Self {
            here,
            away,
            directory,
            _redis: redis,
        }
    }

    fn socket(&self) -> String {
        self.directory
            .path()
            .join("dedupd.sock")
            .display()
            .to_string()
    }

    /// Runs a client; what it prints is what is expected.
    fn check(&self, mut client: Command) {
        let output = client
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(SCRIPT))
            .env("DEDUPD_ADDRESS", self.here.grpc_addr().to_string())
            .env("DEDUPD_AWAY", self.away.grpc_addr().to_string())
            .env("DEDUPD_SOCKET", self.socket())
            .output()
            .expect("the client runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{client:?}: {errors}");
        assert_same(&String::from_utf8(output.stdout).expect("text"));
    }
}

async fn wait_store(channel: Channel, expected: ServingStatus) {
    let mut health = HealthClient::new(channel);
    let reached = async {
        loop {
            let service = "store".to_owned();
            let answer = health.check(HealthCheckRequest { service }).await;
            if answer.expect("an answer").into_inner().status() == expected {
                return;
            }
            time::sleep(time::Duration::from_millis(20)).await;
        }
    };
    time::timeout(PATIENCE, reached).await.expect("in time");
}

#[track_caller]
fn assert_same(answered: &str) {
    let expected = read(EXPECTED);
    for (number, (answered, expected)) in answered.lines().zip(expected.lines()).enumerate() {
        assert_eq!(answered, expected, "line {} of {EXPECTED}", number + 1);
    }
    assert_eq!(answered.lines().count(), expected.lines().count());
    assert_eq!(answered, expected);
}

fn python(program: &str) -> Command {
    let python = std::env::var_os("DEDUPD_TEST_PYTHON")
        .expect("DEDUPD_TEST_PYTHON is not set: tests/run.sh installs the interpreter and sets it");
    let mut command = Command::new(python);
    command
        .arg(
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests")
                .join(program),
        )
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn the_script_by_rust() {
    let places = Places::start().await;
    let answered = rust_client::run(&places, &read(SCRIPT)).await;
    if std::env::var_os(BLESS).is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(EXPECTED);
        fs::write(path, &answered).expect("the tree can be written");
    }
    assert_same(&answered);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_script_by_python() {
    Places::start().await.check(python("python/conformance.py"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_script_by_go() {
    Places::start().await.check(built("go", "conformance"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_script_by_java() {
    Places::start().await.check(built("java", "conformance"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_script_by_typescript() {
    Places::start()
        .await
        .check(built("typescript", "conformance"));
}

#[test]
fn the_script_by_python_is_what_its_generator_writes() {
    let output = python("conformance/make_script.py").output();
    let output = output.expect("the interpreter runs");
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8(output.stdout).expect("text") == read(SCRIPT),
        "python3 tests/conformance/make_script.py > {SCRIPT}"
    );
}

/// What no script can bring about at will: an overload, and a fallback.
#[test]
fn the_script_shows_every_answer() {
    let expected = read(EXPECTED);
    let words: BTreeSet<_> = expected.split_whitespace().collect();
    let shown = |name: &str, prefix: &str| words.contains(name.trim_start_matches(prefix));
    for number in 1..100 {
        let Ok(reason) = Reason::try_from(number) else {
            continue;
        };
        let at_will = !matches!(reason, Reason::Fallback | Reason::Overloaded);
        let name = reason.as_str_name();
        assert_eq!(shown(name, "REASON_"), at_will, "{name}");
    }
    for number in 1..10 {
        if let Ok(decision) = Decision::try_from(number) {
            let name = decision.as_str_name();
            assert!(shown(name, "DECISION_"), "{name}");
        }
        if let Ok(outcome) = SettleOutcome::try_from(number) {
            let name = outcome.as_str_name();
            assert!(shown(name, "SETTLE_OUTCOME_"), "{name}");
        }
    }
}
