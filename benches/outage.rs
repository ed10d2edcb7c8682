//! What an outage of Redis costs its callers: how long they wait until the breaker has tripped and
//! after it has, and how soon Redis decides again once it is back.
//!
//! A real redis-server is killed, stopped (SIGSTOP: it accepts and never answers) and demoted (it
//! refuses writes) under callers of one event each. `cargo bench --bench outage`. Times hold for a
//! quiet machine only. Sizes by environment: `CALLERS` (4), `SECONDS` of each outage (5).

use std::{
    env, fs,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use dedupd::grpc::proto::{
    AdmitRequest, Event, Keyed, Reason, dedup_service_client::DedupServiceClient, event,
};
use tokio::{task::JoinSet, time::sleep};
use tonic::transport::{Channel, Endpoint};

type Error = Box<dyn std::error::Error>;
type Client = DedupServiceClient<Channel>;

/// The default, and what is added to it while everything is busy with the same.
const BUDGET: Duration = Duration::from_millis(50);
/// Between two calls of a caller: callers and service are to be idle, so that waits show.
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug)]
enum Outage {
    Killed,
    Stopped,
    Demoted,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Error> {
    let callers = number("CALLERS", 4);
    let length = Duration::from_secs(number("SECONDS", 5));
    println!(
        "{callers} callers, one event a call, budget {} ms, outages of {} s",
        BUDGET.as_millis(),
        length.as_secs()
    );
    println!(
        "{:<8} {:>14} {:>10} {:>10} {:>10} {:>10} {:>14}",
        "outage", "slowest before", "calls", "P50", "P99", "slowest", "decided again"
    );
    for outage in [Outage::Killed, Outage::Stopped, Outage::Demoted] {
        let mut redis = Redis::start()?;
        let folder = tempfile::tempdir()?;
        let _service = serve(redis.port, folder.path())?;
        let client = connect(&folder.path().join("dedupd.sock")).await?;
        until_decided(client.clone()).await?;
        let begun = Instant::now();
        redis.begin(outage)?;
        let mut tasks = JoinSet::new();
        for caller in 0..callers {
            tasks.spawn(call(client.clone(), caller, begun + length));
        }
        let calls: Vec<Call> = tasks.join_all().await.into_iter().flatten().collect();
        redis.end(outage)?;
        let back = Instant::now();
        until_decided(client).await?;
        let again = back.elapsed();
        // Tripped: from the first call on that was answered in less than half a budget.
        let tripped = calls
            .iter()
            .filter(|call| call.took < BUDGET / 2)
            .map(|call| call.begun)
            .min();
        let tripped = tripped.ok_or("the breaker never tripped")?;
        let took = |before: bool| {
            let calls = calls.iter().filter(|call| (call.begun < tripped) == before);
            let mut took: Vec<Duration> = calls.map(|call| call.took).collect();
            took.sort_unstable();
            took
        };
        let (before, after) = (took(true), took(false));
        println!(
            "{:<8} {:>14} {:>10} {:>10} {:>10} {:>10} {:>14}",
            format!("{outage:?}").to_lowercase(),
            ms(before.last()),
            after.len(),
            ms(after.get(after.len() / 2)),
            ms(after.get(after.len() * 99 / 100)),
            ms(after.last()),
            ms(Some(&again)),
        );
    }
    Ok(())
}

fn ms(took: Option<&Duration>) -> String {
    took.map_or_else(
        || "-".to_owned(),
        |took| format!("{:.2} ms", took.as_secs_f64() * 1e3),
    )
}

fn number(name: &str, default: u64) -> u64 {
    let given = env::var(name).ok().and_then(|text| text.parse().ok());
    given.unwrap_or(default)
}

struct Call {
    begun: Instant,
    took: Duration,
}

async fn call(mut client: Client, caller: u64, until: Instant) -> Vec<Call> {
    let mut calls = Vec::new();
    for number in 0.. {
        let begun = Instant::now();
        if begun >= until {
            break;
        }
        let answer = client.admit(request(&format!("{caller}-{number}"))).await;
        let took = begun.elapsed();
        if let Ok(answer) = answer {
            let reason = answer.into_inner().verdicts[0].reason();
            assert_eq!(reason, Reason::FailOpen, "of an outage");
        }
        calls.push(Call { begun, took });
        sleep(PAUSE).await;
    }
    calls
}

fn request(id: &str) -> AdmitRequest {
    let event_id = format!("{}-{id}", std::process::id());
    AdmitRequest {
        namespace: "events".to_owned(),
        events: vec![Event {
            identity: Some(event::Identity::Keyed(Keyed { event_id })),
            ..Event::default()
        }],
        ..AdmitRequest::default()
    }
}

/// Until so many calls in a row are decided in Redis that every connection has taken some.
async fn until_decided(mut client: Client) -> Result<(), Error> {
    let mut in_a_row = 0;
    for number in 0.. {
        let id = format!("{:?}-{number}", Instant::now());
        let answer = client.admit(request(&id)).await?.into_inner();
        match answer.verdicts[0].reason() {
            Reason::FirstSeen => in_a_row += 1,
            _ => in_a_row = 0,
        }
        if in_a_row == 20 {
            break;
        }
        sleep(PAUSE).await;
    }
    Ok(())
}

struct Redis {
    process: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl Redis {
    fn start() -> Result<Self, Error> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let folder = tempfile::tempdir()?;
        let process = Self::run(port, folder.path())?;
        Ok(Self {
            process,
            port,
            folder,
        })
    }

    fn run(port: u16, folder: &Path) -> Result<Child, Error> {
        let server = env::var("DEDUPD_TEST_REDIS").unwrap_or_else(|_| "redis-server".to_owned());
        Ok(Command::new(server)
            .args(["--port", &port.to_string(), "--save", "", "--dir"])
            .arg(folder)
            .stdout(Stdio::null())
            .spawn()?)
    }

    fn begin(&mut self, outage: Outage) -> Result<(), Error> {
        match outage {
            Outage::Killed => {
                self.process.kill()?;
                self.process.wait()?;
                Ok(())
            }
            Outage::Stopped => self.signal("-STOP"),
            Outage::Demoted => self.cli(&["REPLICAOF", "127.0.0.1", "1"]),
        }
    }

    fn end(&mut self, outage: Outage) -> Result<(), Error> {
        match outage {
            Outage::Killed => {
                self.process = Self::run(self.port, self.folder.path())?;
                Ok(())
            }
            Outage::Stopped => self.signal("-CONT"),
            Outage::Demoted => self.cli(&["REPLICAOF", "NO", "ONE"]),
        }
    }

    fn signal(&self, signal: &str) -> Result<(), Error> {
        let pid = self.process.id().to_string();
        Command::new("kill").args([signal, &pid]).status()?;
        Ok(())
    }

    fn cli(&self, words: &[&str]) -> Result<(), Error> {
        Command::new("redis-cli")
            .args(["-p", &self.port.to_string()])
            .args(words)
            .stdout(Stdio::null())
            .status()?;
        Ok(())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(redis_port: u16, folder: &Path) -> Result<Service, Error> {
    let socket = folder.join("dedupd.sock");
    let config = format!(
        "listen: {{ grpc: [\"unix:{}\"], admin: \"127.0.0.1:0\" }}
store: {{ url: \"redis://127.0.0.1:{redis_port}\", budget: {}ms }}
namespaces:
  events: {{ accepts: [keyed], window: none, ttl: 1m, failure_mode: open }}
",
        socket.display(),
        BUDGET.as_millis()
    );
    let file = folder.join("dedupd.yaml");
    fs::write(&file, config)?;
    let process = Command::new(env!("CARGO_BIN_EXE_dedupd"))
        .arg("serve")
        .arg("--config")
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(Service(process))
}

async fn connect(socket: &Path) -> Result<Client, Error> {
    let begun = Instant::now();
    loop {
        let endpoint = Endpoint::try_from(format!("unix://{}", socket.display()))?;
        match endpoint.connect().await {
            Ok(channel) => return Ok(DedupServiceClient::new(channel)),
            Err(error) if begun.elapsed() > Duration::from_secs(10) => return Err(error.into()),
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}
