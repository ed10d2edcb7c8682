//! Who is measured, and how.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    Error, jetstream,
    measured::Measured,
    pipelined,
    process::{
        Cpus, Folder, Redis, Service, command, dedupd, free_port, http_get, json, output, start,
        until,
    },
};

/// About what redis-benchmark reaches on one core, to size its runs.
const REDIS_RATE: f64 = 450_000.0;

pub(crate) enum How {
    /// `dedupd bench` against a service, with these arguments.
    Bench(On, &'static str),
    /// The same at half the rate that another one reached in the round.
    HalfRate(On, &'static str, &'static str),
    /// `SET key value NX PX 300000`; the last twelve bytes of the key are random.
    RedisBenchmark(RedisBenchmark),
    Pipelined,
    /// By a consumer's own SETNX, a way of awaiting.
    PythonSetnx(&'static str),
    PythonClient,
    JetStream,
    /// With a cache.
    Benthos(&'static str),
}

#[derive(Clone, Copy)]
pub(crate) struct RedisBenchmark {
    pipeline: u32,
    clients: u32,
    key: &'static str,
    value: &'static str,
    /// With `GET`, as claims are.
    gets: bool,
}

/// Its own command in pipelines of 128 on 50 connections.
const REDIS_BENCHMARK: RedisBenchmark = RedisBenchmark {
    pipeline: 128,
    clients: 50,
    key: "bench:",
    value: "v",
    gets: false,
};

impl How {
    /// Whether many keys are added to Redis, so that the growth of its table would be measured.
    const fn claims_much(&self) -> bool {
        match self {
            How::Bench(On::Redis | On::Known | On::Unknown, _)
            | How::HalfRate(..)
            | How::Pipelined
            | How::PythonClient => true,
            How::RedisBenchmark(RedisBenchmark { clients, .. }) => *clients > 1,
            How::Bench(On::Bare | On::BareBeside | On::Embedded, _)
            | How::PythonSetnx(_)
            | How::JetStream
            | How::Benthos(_) => false,
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) enum On {
    /// On a CPU of its own, as the embedded service.
    Bare,
    /// Beside its client, as the service on Redis.
    BareBeside,
    Embedded,
    Redis,
    /// With known claims or without; service and client may have what Redis leaves.
    Known,
    Unknown,
}

pub(crate) const CONTENDERS: &[(&str, How)] = &[
    ("redis-benchmark", How::RedisBenchmark(REDIS_BENCHMARK)),
    (
        "redis-benchmark, bytes of a transition",
        How::RedisBenchmark(OF_A_TRANSITION),
    ),
    (
        "redis-benchmark, command of a transition",
        How::RedisBenchmark(RedisBenchmark {
            gets: true,
            ..OF_A_TRANSITION
        }),
    ),
    (
        "redis-benchmark, bytes of a keyed event",
        How::RedisBenchmark(RedisBenchmark {
            key: "dedup:keyed",
            value: "a record's",
            ..REDIS_BENCHMARK
        }),
    ),
    (
        "redis-benchmark, one",
        How::RedisBenchmark(RedisBenchmark {
            pipeline: 1,
            clients: 1,
            ..REDIS_BENCHMARK
        }),
    ),
    ("pipelined client", How::Pipelined),
    ("bare, transitions", How::Bench(On::Bare, TUMBLING)),
    ("bare, keyed", How::Bench(On::Bare, "--kind keyed")),
    (
        "bare, moving pings",
        How::Bench(On::Bare, "--kind moving-pings"),
    ),
    (
        "bare, parked pings",
        How::Bench(On::Bare, "--kind parked-pings"),
    ),
    (
        "bare, 64 single calls",
        How::Bench(On::BareBeside, MANY_SINGLE),
    ),
    ("bare, single call", How::Bench(On::BareBeside, ONE_SINGLE)),
    ("embedded, transitions", How::Bench(On::Embedded, TUMBLING)),
    ("embedded, keyed", How::Bench(On::Embedded, "--kind keyed")),
    (
        "embedded, moving pings",
        How::Bench(On::Embedded, "--kind moving-pings"),
    ),
    (
        "embedded, parked pings",
        How::Bench(On::Embedded, "--kind parked-pings"),
    ),
    ("embedded, confirmed", How::Bench(On::Embedded, CONFIRMED)),
    (
        "embedded, keyed, no request ids",
        How::Bench(On::Embedded, "--kind keyed --without-request-ids"),
    ),
    ("redis, transitions", How::Bench(On::Redis, REDIS_TUMBLING)),
    (
        "redis, keyed",
        How::Bench(On::Redis, "--kind keyed --in-flight 2"),
    ),
    (
        "redis, guarded",
        How::Bench(On::Redis, "--namespace guarded --in-flight 2"),
    ),
    (
        "redis, sliding",
        How::Bench(On::Redis, "--namespace sliding --in-flight 2"),
    ),
    ("redis, confirmed", How::Bench(On::Redis, CONFIRMED)),
    (
        "redis, moving pings",
        How::Bench(On::Redis, "--kind moving-pings --in-flight 2"),
    ),
    (
        "redis, parked pings",
        How::Bench(On::Unknown, PARKED_CONFIRMED),
    ),
    (
        "redis, parked pings, known claims",
        How::Bench(On::Known, PARKED_CONFIRMED),
    ),
    ("redis, 64 single calls", How::Bench(On::Redis, MANY_SINGLE)),
    ("redis, single call", How::Bench(On::Redis, ONE_SINGLE)),
    (
        "redis, half load",
        How::HalfRate(On::Redis, "redis, transitions", "--namespace tumbling"),
    ),
    ("python, one at a time", How::PythonSetnx("one")),
    ("python, gather", How::PythonSetnx("gather")),
    ("python, pipeline", How::PythonSetnx("pipeline")),
    ("python client of dedupd", How::PythonClient),
    ("jetstream", How::JetStream),
    ("benthos, memory", How::Benthos("memory")),
    ("benthos, redis", How::Benthos("redis")),
];

const OF_A_TRANSITION: RedisBenchmark = RedisBenchmark {
    // Of 44 bytes: the prefix and 39 digits.
    key: "idem:012345678901234567890123456",
    value: "a record's 18 byte",
    ..REDIS_BENCHMARK
};
/// Redis doubles its tables at powers of two and moves every key then, step by step with what it is
/// asked: at 2,097,152 keys, until there are half as many more. From here to 4,194,304 it only takes
/// keys, as one does that has reached its size.
const CLAIMS_BEFORE: u64 = 3_200_000;
/// Enough where Redis and its contender have run before.
const SHORT_WARM_UP: Duration = Duration::from_millis(300);
/// For so long, or the tables double.
const LONGEST_ON_REDIS: Duration = Duration::from_millis(1_200);
const TUMBLING: &str = "--namespace tumbling";
const REDIS_TUMBLING: &str = "--namespace tumbling --in-flight 2";
const CONFIRMED: &str = "--namespace leased --confirm";
const PARKED_CONFIRMED: &str =
    "--kind parked-pings --namespace parked --streams 8 --in-flight 2 --omit-claims";
const MANY_SINGLE: &str = "--kind keyed --unary --batch 1 --in-flight 64";
const ONE_SINGLE: &str = "--kind keyed --unary --batch 1 --in-flight 1";

/// Claims of the embedded store live for a few seconds, so that after the warm-up it neither grows
/// nor gives memory back. A busy machine is no outage.
fn config(ttl: &str, store: &str) -> String {
    format!(
        "store: {{ budget: 5s{store} }}
namespaces:
  tumbling: {{ accepts: [transition], window: {{ tumbling: 2s }}, ttl: {ttl}, failure_mode: closed }}
  guarded: {{ accepts: [transition], window: {{ tumbling: 2s, guard: 200ms }}, ttl: {ttl}, failure_mode: closed }}
  sliding: {{ accepts: [transition], window: {{ sliding: 200ms }}, ttl: {ttl}, failure_mode: closed }}
  leased: {{ accepts: [transition], window: {{ tumbling: 2s }}, ttl: {ttl}, lease: 3s, failure_mode: closed }}
  pings: {{ accepts: [ping], window: {{ tumbling: 2s }}, place: {{ resolution: 12 }}, ttl: {ttl}, failure_mode: closed }}
  parked: {{ accepts: [ping], window: {{ tumbling: 5m }}, place: {{ resolution: 12 }}, ttl: 6m, failure_mode: closed }}
  events: {{ accepts: [keyed], window: none, ttl: {ttl}, failure_mode: closed }}
"
    )
}

/// How long each is measured.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) warm_up: Duration,
    pub(crate) duration: Duration,
}

pub(crate) struct World {
    redis: Redis,
    on_redis: Service,
    known: Service,
    unknown: Service,
    embedded: Service,
    bare: Service,
    bare_beside: Service,
    python: Option<PathBuf>,
    benthos: Option<PathBuf>,
    pub(crate) sizes: Sizes,
    folder: Folder,
}

impl World {
    pub(crate) fn start(sizes: Sizes) -> Result<Self, Error> {
        let folder = Folder::new()?;
        let redis = Redis::start(folder.path())?;
        let url = format!("redis://127.0.0.1:{}", redis.port);
        let tool = |name: &str| env::var_os(name).filter(|path| !path.is_empty());
        let service =
            |name, config: &str, url, cpus| Service::dedupd(folder.path(), name, config, url, cpus);
        let on_redis = config("5m", "");
        let unknown = config("5m", ", known_claims: { max_age: 0s }");
        Ok(Self {
            on_redis: service("redis", &on_redis, Some(&url), Cpus::Others)?,
            known: service("known", &on_redis, Some(&url), Cpus::Any)?,
            unknown: service("unknown", &unknown, Some(&url), Cpus::Any)?,
            embedded: service("embedded", &config("3s", ""), None, Cpus::Own)?,
            bare: Service::bare(folder.path(), "bare", Cpus::Own)?,
            bare_beside: Service::bare(folder.path(), "bare-beside", Cpus::Others)?,
            redis,
            python: tool("PYTHON").map(PathBuf::from),
            benthos: tool("BENTHOS").map(PathBuf::from),
            sizes,
            folder,
        })
    }

    /// `None`: its tool is not there.
    pub(crate) fn measure(
        &self,
        how: &How,
        round: &BTreeMap<&str, Measured>,
    ) -> Result<Option<Measured>, Error> {
        self.redis.flush()?;
        let mut sizes = self.sizes;
        if how.claims_much() {
            pipelined::fill(&self.redis, CLAIMS_BEFORE)?;
            sizes.warm_up = SHORT_WARM_UP;
            sizes.duration = sizes.duration.min(LONGEST_ON_REDIS);
        }
        let Sizes { warm_up, duration } = sizes;
        let measured = match *how {
            How::Bench(on, arguments) => self.bench(on, arguments, sizes)?,
            How::HalfRate(on, of, arguments) => {
                let Some(full) = round.get(of) else {
                    return Ok(None);
                };
                let rate = full.events_per_s / 2.0;
                self.bench(on, &format!("{arguments} --rate {rate}"), sizes)?
            }
            How::RedisBenchmark(benchmark) => self.redis_benchmark(benchmark, duration)?,
            How::Pipelined => pipelined::run(&self.redis, warm_up, duration)?,
            How::JetStream => jetstream::run(self.folder.path(), warm_up, duration)?,
            How::PythonSetnx(way) => {
                let Some(python) = &self.python else {
                    return Ok(None);
                };
                let port = self.redis.port.to_string();
                python_events(python, "setnx.py", &[&port, way], self.sizes)?
            }
            How::PythonClient => {
                let Some(python) = &self.python else {
                    return Ok(None);
                };
                let target = &self.on_redis.target;
                python_events(python, "client.py", &[target], sizes)?
            }
            How::Benthos(cache) => {
                let Some(benthos) = &self.benthos else {
                    return Ok(None);
                };
                self.benthos(benthos, cache)?
            }
        };
        Ok(Some(measured))
    }

    fn bench(&self, on: On, arguments: &str, sizes: Sizes) -> Result<Measured, Error> {
        let service = match on {
            On::Bare => &self.bare,
            On::BareBeside => &self.bare_beside,
            On::Embedded => &self.embedded,
            On::Redis => &self.on_redis,
            On::Known => &self.known,
            On::Unknown => &self.unknown,
        };
        let redis = match on {
            On::Redis | On::Known | On::Unknown => &[&self.redis][..],
            On::Bare | On::BareBeside | On::Embedded => &[],
        };
        let report = bench(service, redis, arguments, sizes)?;
        Ok(Measured::of(&report))
    }

    fn redis_benchmark(
        &self,
        benchmark: RedisBenchmark,
        duration: Duration,
    ) -> Result<Measured, Error> {
        let RedisBenchmark {
            pipeline,
            clients,
            key,
            value,
            gets,
        } = benchmark;
        let share = if clients == 1 { 0.05 } else { 1.0 };
        let requests = (REDIS_RATE * duration.as_secs_f64() * share).ceil();
        let before_ns = self.redis.process.cpu_ns()?;
        let words = format!(
            "-p {} -P {pipeline} -c {clients} -n {requests} -r 2000000000 --csv SET",
            self.redis.port
        );
        let text = output(
            command("redis-benchmark", Cpus::Others)
                .args(words.split(' '))
                .args([&format!("{key}__rand_int__"), value])
                .args(["NX", "PX", "300000"])
                .args(gets.then_some("GET")),
        )?;
        let rate = text
            .lines()
            .last()
            .and_then(|line| line.split("\",\"").nth(1));
        let events_per_s: f64 = rate.ok_or("no rate from redis-benchmark")?.parse()?;
        let spent_ns = self.redis.process.cpu_ns()? - before_ns;
        Ok(Measured {
            events_per_s,
            redis_ns: Some(spent_ns as f64 / requests),
            // Of one at a time: that is the round trip.
            p50_ns: (clients == 1).then_some(1e9 / events_per_s),
            ..Measured::default()
        })
    }

    /// It counts what leaves it; what it makes up costs it little beside the cache.
    fn benthos(&self, benthos: &Path, cache: &str) -> Result<Measured, Error> {
        let port = free_port()?;
        // On Redis a message waits for its round trip, and a batch for those of all its messages.
        let (cache, batch) = match cache {
            "redis" => {
                let url = format!("redis://127.0.0.1:{}", self.redis.port);
                (format!("redis: {{ url: '{url}', default_ttl: 300s }}"), 10)
            }
            _ => ("memory: { default_ttl: 300s }".to_owned(), 500),
        };
        let file = self.folder.path().join("benthos.yaml");
        fs::write(
            &file,
            format!(
                "http: {{ address: '127.0.0.1:{port}' }}
logger: {{ level: 'OFF' }}
metrics: {{ json_api: {{}} }}
input: {{ generate: {{ interval: '', batch_size: {batch}, mapping: 'root = \"event-\" + count(\"n\").string()' }} }}
pipeline: {{ threads: 64, processors: [ {{ dedupe: {{ cache: claims, key: '${{! content() }}' }} }} ] }}
output: {{ drop: {{}} }}
cache_resources: [ {{ label: claims, {cache} }} ]
"
            ),
        )?;
        let process = start(command(benthos, Cpus::Others).arg("-c").arg(&file))?;
        let passed = || -> Result<f64, Error> {
            let metrics: Value = serde_json::from_str(&http_get(port, "/metrics")?)?;
            let metrics = metrics.as_object().ok_or("no metrics")?;
            let sent = metrics
                .iter()
                .find(|(name, _)| name.starts_with("output_sent"));
            let count = sent.and_then(|(_, count)| count.as_f64());
            Ok(count.ok_or_else(|| format!("no output_sent in {metrics:?}"))?)
        };
        until("benthos sends", || passed().is_ok_and(|count| count > 0.0))?;
        thread::sleep(self.sizes.warm_up);
        let (begun, before) = (Instant::now(), passed()?);
        let (cpu_ns, redis_ns) = (process.cpu_ns()?, self.redis.process.cpu_ns()?);
        thread::sleep(self.sizes.duration);
        let (took, events) = (begun.elapsed(), passed()? - before);
        Ok(Measured {
            events_per_s: events / took.as_secs_f64(),
            server_ns: Some((process.cpu_ns()? - cpu_ns) as f64 / events),
            redis_ns: cache
                .starts_with("redis")
                .then_some((self.redis.process.cpu_ns()? - redis_ns) as f64 / events),
            ..Measured::default()
        })
    }
}

/// The report of a load all of which was decided by the store.
pub(crate) fn bench(
    service: &Service,
    redis: &[&Redis],
    arguments: &str,
    sizes: Sizes,
) -> Result<Value, Error> {
    let mut command = command(dedupd(), service.clients_cpus);
    let ms = |duration: Duration| format!("{}ms", duration.as_millis());
    command
        .args(["bench", "--output", "json", "--target", &service.target])
        .args([
            "--warm-up",
            &ms(sizes.warm_up),
            "--duration",
            &ms(sizes.duration),
        ])
        .args(["--server-pid", &service.process.pid().to_string()])
        .args(
            redis
                .iter()
                .flat_map(|redis| ["--redis-pid".to_owned(), redis.process.pid().to_string()]),
        )
        .args(arguments.split(' '));
    let report = json(&mut command)?;
    for reason in ["STORE_UNAVAILABLE", "OVERLOADED", "FAIL_OPEN"] {
        if let Some(events) = report["verdicts"].get(reason) {
            return Err(format!("{arguments}: {events} events were {reason}").into());
        }
    }
    Ok(report)
}

fn python_events(
    python: &Path,
    script: &str,
    arguments: &[&str],
    sizes: Sizes,
) -> Result<Measured, Error> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("benches/compare")
        .join(script);
    let mut command = command(python, Cpus::Others);
    command
        .arg(script)
        .args(arguments)
        .args([sizes.warm_up, sizes.duration].map(|size| size.as_secs_f64().to_string()));
    let report = json(&mut command)?;
    Ok(Measured {
        events_per_s: report["events_per_s"].as_f64().ok_or("no rate")?,
        client_ns: report["cpu_per_event_ns"].as_f64(),
        ..Measured::default()
    })
}
