//! CPU per event as a service grows: by batch, streams, live claims, namespaces, and shards of a
//! cluster. Each row is measured in every round, and its figure is the ratio to the first row of
//! its table in the same round.

use std::{fs, path::Path, time::Duration};

use serde_json::Value;

use crate::{
    Error,
    contenders::{Sizes, bench},
    is_wanted,
    measured::Measured,
    number,
    process::{Cpus, Folder, Redis, Service, until},
    ratios::median,
};

const BATCHES: [usize; 6] = [500, 1, 10, 100, 1_000, 5_000];
const STREAMS: [usize; 4] = [1, 4, 16, 64];
const CLAIMS: [usize; 3] = [100_000, 1_000_000, 10_000_000];
const NAMESPACES: [usize; 3] = [1, 10, 100];
const SHARDS: [usize; 3] = [1, 2, 3];
const SLOTS: usize = 16_384;
/// A step in which a store is filled.
const FILLING: Duration = Duration::from_millis(200);

pub(crate) fn run(sizes: Sizes) -> Result<(), Error> {
    let rounds = number("ROUNDS", 3.0) as usize;
    let most_claims = number("CLAIMS", 10e6) as usize;
    println!(
        "{rounds} rounds, each row measured for {:.1} s after {:.1} s of warm-up",
        sizes.duration.as_secs_f64(),
        sizes.warm_up.as_secs_f64(),
    );
    let batches = BATCHES.map(|batch| {
        let arguments = format!("--namespace n1 --in-flight 2 --batch {batch}");
        (batch.to_string(), arguments)
    });
    let streams = STREAMS.map(|streams| {
        // As many calls in flight on all together.
        let in_flight = 64 / streams;
        let arguments =
            format!("--namespace n1 --batch 100 --streams {streams} --in-flight {in_flight}");
        (streams.to_string(), arguments)
    });
    let namespaces = NAMESPACES.map(|count| {
        let names: Vec<String> = (1..=count).map(|number| format!("n{number}")).collect();
        (
            count.to_string(),
            format!("--in-flight 2 --namespace {}", names.join(",")),
        )
    });
    for (name, place) in [("embedded", Place::Embedded), ("Redis", Place::Redis)] {
        for (title, rows) in [
            ("events a call", batches.as_slice()),
            ("streams", &streams),
            ("namespaces", &namespaces),
        ] {
            let title = format!("{title}, {name}");
            if is_wanted(&title) {
                table(&title, place, rows, rounds, sizes)?;
            }
        }
        let title = format!("live claims, {name}");
        if is_wanted(&title) {
            live_claims(&title, place, rounds, most_claims, sizes)?;
        }
    }
    if is_wanted("shards") {
        shards(rounds, sizes)?;
    }
    Ok(())
}

/// Claims of the first namespace stay; those of the others live for a second.
fn config(namespaces: usize) -> String {
    let mut config = "store: { budget: 5s, max_memory: 8GiB }\nnamespaces:\n".to_owned();
    for number in 0..namespaces {
        let ttl = if number == 0 { "1h" } else { "1s" };
        config.push_str(&format!(
            "  n{number}: {{ accepts: [keyed], window: none, ttl: {ttl}, failure_mode: closed }}\n"
        ));
    }
    config
}

/// A service and its store.
struct Site {
    service: Service,
    /// None: the embedded store.
    redis: Vec<Redis>,
    _folder: Folder,
}

impl Site {
    fn start(place: Place) -> Result<Self, Error> {
        let folder = Folder::new()?;
        let (redis, url) = match place {
            Place::Embedded => (Vec::new(), None),
            Place::Redis => {
                let redis = Redis::start(folder.path())?;
                let url = format!("redis://127.0.0.1:{}", redis.port);
                (vec![redis], Some(url))
            }
            Place::Cluster(shards) => {
                let shards = cluster(folder.path(), shards)?;
                let nodes = shards
                    .iter()
                    .map(|redis| format!("127.0.0.1:{}", redis.port));
                let url = format!("redis-cluster://{}", nodes.collect::<Vec<_>>().join(","));
                (shards, Some(url))
            }
        };
        let config = config(101);
        let cpus = match place {
            Place::Embedded => Cpus::Own,
            Place::Redis | Place::Cluster(_) => Cpus::Others,
        };
        Ok(Self {
            service: Service::dedupd(folder.path(), "dedupd", &config, url.as_deref(), cpus)?,
            redis,
            _folder: folder,
        })
    }

    /// Of keyed events.
    fn measure(&self, arguments: &str, sizes: Sizes) -> Result<Value, Error> {
        let redis: Vec<&Redis> = self.redis.iter().collect();
        bench(
            &self.service,
            &redis,
            &format!("--kind keyed {arguments}"),
            sizes,
        )
    }

    /// Of what holds the claims.
    fn resident_bytes(&self) -> Result<f64, Error> {
        let pids = match self.redis.as_slice() {
            [] => vec![self.service.process.pid()],
            redis => redis.iter().map(|redis| redis.process.pid()).collect(),
        };
        let mut kib = 0.0;
        for pid in pids {
            let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
            let line = status.lines().find(|line| line.starts_with("VmRSS:"));
            let number = line.and_then(|line| line.split_whitespace().nth(1));
            kib += number.ok_or("no VmRSS")?.parse::<f64>()?;
        }
        Ok(kib * 1024.0)
    }
}

#[derive(Clone, Copy)]
enum Place {
    Embedded,
    Redis,
    Cluster(usize),
}

/// Shards without replicas, each with its part of the slots.
fn cluster(folder: &Path, shards: usize) -> Result<Vec<Redis>, Error> {
    let mut nodes = Vec::with_capacity(shards);
    for number in 0..shards {
        let directory = folder.join(number.to_string());
        fs::create_dir_all(&directory)?;
        nodes.push(Redis::start_with(
            &directory,
            &["--cluster-enabled", "yes"],
        )?);
    }
    for (number, node) in nodes.iter().enumerate() {
        let edge = |number: usize| number * SLOTS / shards;
        let (first, last) = (edge(number).to_string(), (edge(number + 1) - 1).to_string());
        node.cli(&["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
        node.cli(&["CLUSTER", "MEET", "127.0.0.1", &nodes[0].port.to_string()])?;
    }
    let knows_all = |node: &Redis| {
        node.cli(&["CLUSTER", "INFO"]).is_ok_and(|info| {
            info.contains("cluster_state:ok") && info.contains(&format!("cluster_size:{shards}"))
        })
    };
    until("the cluster is whole", || nodes.iter().all(knows_all))?;
    Ok(nodes)
}

/// A row of a table: its name, and what it came to in each round.
type Row = (String, Vec<Measured>);

fn table(
    title: &str,
    place: Place,
    rows: &[(String, String)],
    rounds: usize,
    sizes: Sizes,
) -> Result<(), Error> {
    let site = Site::start(place)?;
    let mut measured: Vec<Row> = rows
        .iter()
        .map(|(name, _)| (name.clone(), Vec::new()))
        .collect();
    for _ in 0..rounds {
        for ((_, arguments), (_, found)) in rows.iter().zip(&mut measured) {
            found.push(Measured::of(&site.measure(arguments, sizes)?));
        }
    }
    print(title, &measured, &[]);
    Ok(())
}

/// One store is filled further and further, and each time events whose claims live for a second are
/// measured at a rate that keeps few of them.
fn live_claims(
    title: &str,
    place: Place,
    rounds: usize,
    most: usize,
    sizes: Sizes,
) -> Result<(), Error> {
    let steps: Vec<usize> = CLAIMS
        .into_iter()
        .filter(|claims| *claims <= most)
        .collect();
    let mut measured: Vec<Row> = steps
        .iter()
        .map(|claims| (claims.to_string(), Vec::new()))
        .collect();
    let mut bytes = vec![Vec::new(); steps.len()];
    for _ in 0..rounds {
        let site = Site::start(place)?;
        let (empty, mut held) = (site.resident_bytes()?, 0);
        for (step, claims) in steps.iter().enumerate() {
            while held < *claims as u64 {
                let filling = Sizes {
                    warm_up: Duration::ZERO,
                    duration: FILLING,
                };
                let report = site.measure("--namespace n0 --in-flight 2", filling)?;
                held += report["events"].as_u64().ok_or("no events")?;
            }
            bytes[step].push((site.resident_bytes()? - empty) / held as f64);
            let report = site.measure("--namespace n1 --rate 50000", sizes)?;
            measured[step].1.push(Measured::of(&report));
        }
    }
    let bytes: Vec<f64> = bytes.iter_mut().map(|bytes| median(bytes)).collect();
    print(title, &measured, &bytes);
    Ok(())
}

fn shards(rounds: usize, sizes: Sizes) -> Result<(), Error> {
    let mut measured: Vec<Row> = SHARDS
        .iter()
        .map(|count| (count.to_string(), Vec::new()))
        .collect();
    for _ in 0..rounds {
        for (count, (_, found)) in SHARDS.into_iter().zip(&mut measured) {
            let site = Site::start(Place::Cluster(count))?;
            let report = site.measure("--namespace n1 --in-flight 2", sizes)?;
            found.push(Measured::of(&report));
        }
    }
    print("shards of a cluster", &measured, &[]);
    Ok(())
}

fn print(title: &str, rows: &[Row], bytes: &[f64]) {
    println!(
        "\n| {title} | events/s | server CPU ns | of the first row (min–max) | Redis CPU ns | bytes a claim |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: |");
    for (place, (name, found)) in rows.iter().enumerate() {
        let middle = |read: &dyn Fn(&Measured) -> Option<f64>| {
            let mut values: Vec<f64> = found.iter().filter_map(read).collect();
            match values.is_empty() {
                true => "–".to_owned(),
                false => format!("{:.0}", median(&mut values)),
            }
        };
        let ratios = found.iter().zip(&rows[0].1);
        let ratios =
            ratios.filter_map(|(measured, first)| Some(measured.server_ns? / first.server_ns?));
        let mut ratios: Vec<f64> = ratios.collect();
        let ratio = median(&mut ratios);
        let (least, largest) = (ratios[0], ratios[ratios.len() - 1]);
        let bytes = bytes
            .get(place)
            .map_or("–".to_owned(), |bytes| format!("{bytes:.0}"));
        println!(
            "| {name} | {} | {} | {ratio:.2} ({least:.2}–{largest:.2}) | {} | {bytes} |",
            middle(&|measured| Some(measured.events_per_s)),
            middle(&|measured| measured.server_ns),
            middle(&|measured| measured.redis_ns),
        );
    }
}
