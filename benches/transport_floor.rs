//! Server CPU per event over that of a bare tonic service.
//!
//! Both decode the same stream of 500-event batches over a Unix socket and answer one verdict for
//! each; the bare one decides nothing. They run in turn, several rounds in one run, and the figure
//! is the ratio of the kernel's CPU accounting per event. `cargo bench --bench transport_floor`.
//!
//! Every event is a first sighting, and claims live for three seconds: both services are warmed for
//! longer than that, so that claims expire as fast as they come and the store neither grows nor
//! gives memory back while it is measured.
//!
//! Sizes by environment: `ROUNDS` (5), `EVENTS` (1000000 a round and service).

mod bare;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use dedupd::{
    bench::cpu::process_ns,
    grpc::proto::{
        AdmitRequest, Event, Keyed, LatLng, Ping, StreamRequest, Transition,
        dedup_service_client::DedupServiceClient, event, ping, stream_request, stream_response,
    },
};
use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

const BATCH: usize = 500;
const WARM: Duration = Duration::from_secs(5);
const CONFIG: &str = "
namespaces:
  transitions: { accepts: [transition], window: { tumbling: 2s, guard: 200ms }, ttl: 3s, failure_mode: closed }
  pings: { accepts: [ping], window: { tumbling: 2s }, place: { resolution: 12 }, ttl: 3s, failure_mode: open }
  events: { accepts: [keyed], window: none, ttl: 3s, failure_mode: closed }
";
const IN_FLIGHT: usize = 4;

#[derive(Clone, Copy, Debug)]
enum Load {
    Transitions,
    Keyed,
    Pings,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    match arguments.as_slice() {
        [_, role, socket] if role == "bare" => runtime.block_on(bare::serve(Path::new(socket))),
        _ => runtime.block_on(compare()),
    }
}

async fn compare() -> Result<(), Box<dyn std::error::Error>> {
    let rounds = number("ROUNDS", 5);
    let batches = number("EVENTS", 1_000_000) / BATCH;
    let folder = env::temp_dir().join(format!("dedupd-bench-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    println!(
        "server CPU per event, {rounds} rounds of {} events in batches of {BATCH}, {IN_FLIGHT} in flight",
        batches * BATCH
    );
    println!(
        "{:<12} {:>10} {:>10} {:>7} {:>7} {:>7}",
        "load", "dedupd ns", "bare ns", "median", "min", "max"
    );
    for load in [Load::Transitions, Load::Keyed, Load::Pings] {
        let (mut ratios, mut last) = (Vec::new(), (0.0, 0.0));
        for round in 0..rounds {
            let bare = measure(&folder, Server::Bare, load, round, batches).await?;
            let dedupd = measure(&folder, Server::Dedupd, load, round, batches).await?;
            ratios.push(dedupd / bare);
            last = (dedupd, bare);
        }
        ratios.sort_by(f64::total_cmp);
        println!(
            "{:<12} {:>10.0} {:>10.0} {:>7.2} {:>7.2} {:>7.2}",
            format!("{load:?}").to_lowercase(),
            last.0,
            last.1,
            ratios[ratios.len() / 2],
            ratios[0],
            ratios[ratios.len() - 1]
        );
    }
    fs::remove_dir_all(&folder)?;
    Ok(())
}

fn number(name: &str, default: usize) -> usize {
    env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Server {
    Bare,
    Dedupd,
}

/// Ends with its process.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(server: Server, socket: &Path) -> Result<Process, Box<dyn std::error::Error>> {
    let mut command = match server {
        Server::Bare => {
            let mut command = Command::new(env::current_exe()?);
            command.arg("bare").arg(socket);
            command
        }
        Server::Dedupd => {
            let mut command = Command::new(env!("CARGO_BIN_EXE_dedupd"));
            command.args(["serve", "--admin-listen", "127.0.0.1:0", "--grpc-listen"]);
            command
                .arg(format!("unix:{}", socket.display()))
                .env("DEDUPD_CONFIG_INLINE", CONFIG)
                .env("RUST_LOG", "warn");
            command
        }
    };
    Ok(Process(
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?,
    ))
}

/// Server CPU nanoseconds per event.
async fn measure(
    folder: &Path,
    server: Server,
    load: Load,
    round: usize,
    batches: usize,
) -> Result<f64, Box<dyn std::error::Error>> {
    let socket: PathBuf = folder.join(format!("{server:?}-{load:?}-{round}"));
    let process = start(server, &socket)?;
    let started = Instant::now();
    while !socket.exists() && started.elapsed() < Duration::from_secs(10) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let channel = Endpoint::try_from(format!("unix:{}", socket.display()))?.connect_lazy();
    let mut client = DedupServiceClient::new(channel);
    let (warming, mut first) = (Instant::now(), 0);
    while warming.elapsed() < WARM {
        drive(&mut client, load, 100, first).await?;
        first += 100;
    }
    let before = process_ns(process.0.id())?;
    drive(&mut client, load, batches, first).await?;
    let used = process_ns(process.0.id())? - before;
    Ok(used as f64 / (batches * BATCH) as f64)
}

async fn drive(
    client: &mut DedupServiceClient<tonic::transport::Channel>,
    load: Load,
    batches: usize,
    first: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    let mut answers = client
        .stream(ReceiverStream::new(receiver))
        .await?
        .into_inner();
    let mut sent = 0;
    while sent < batches.min(IN_FLIGHT) {
        sender.send(request(load, first + sent)).await?;
        sent += 1;
    }
    for _ in 0..batches {
        let answer = answers.next().await.ok_or("the stream ended early")??;
        match answer.result {
            Some(stream_response::Result::Admit(admit)) if admit.verdicts.len() == BATCH => {}
            other => return Err(format!("unexpected answer {other:?}").into()),
        }
        if sent < batches {
            sender.send(request(load, first + sent)).await?;
            sent += 1;
        }
    }
    Ok(())
}

fn request(load: Load, batch: usize) -> StreamRequest {
    let now_ns = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .map_or(0, |since| since.as_nanos() as i64);
    let events = (0..BATCH).map(|index| {
        let number = batch * BATCH + index;
        let identity = match load {
            Load::Transitions => event::Identity::Transition(Transition {
                device_id: format!("device-{:06}", number % 100_000),
                fence_id: format!("fence-{:04}", number / 100_000),
                kind: 1,
                ..Transition::default()
            }),
            Load::Keyed => event::Identity::Keyed(Keyed {
                event_id: format!("event-{number:012}"),
            }),
            Load::Pings => event::Identity::Ping(Ping {
                asset_id: format!("asset-{:06}", number % 100_000),
                position: Some(ping::Position::LatLng(LatLng {
                    latitude: Some(47.0 + (number % 9_973) as f64 * 1e-4),
                    longitude: Some(8.0 + (number % 7_919) as f64 * 1e-4),
                })),
            }),
        };
        Event {
            identity: Some(identity),
            time: Some(event::Time::OccurredAtUnixNanos(now_ns)),
            ..Event::default()
        }
    });
    let namespace = match load {
        Load::Transitions => "transitions",
        Load::Keyed => "events",
        Load::Pings => "pings",
    };
    let admit = AdmitRequest {
        namespace: namespace.to_owned(),
        events: events.collect(),
        ..AdmitRequest::default()
    };
    StreamRequest {
        batch_id: batch as u64,
        operation: Some(stream_request::Operation::Admit(admit)),
    }
}
