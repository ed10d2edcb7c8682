//! The store keys of an event, without dedupd: the contract of docs/keys.md.
//!
//! Reads vectors as JSON lines on standard input and prints the keys of each.

use std::{error::Error, io};

use blake2::{Blake2b, Digest, digest::consts::U16};
use h3o::{LatLng, Resolution};
use serde::Deserialize;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// What a namespace's configuration says of keys. Numbers are text here, as in the vectors.
#[derive(Deserialize)]
pub struct Namespace {
    prefix: String,
    layout: String,         // plain or tagged
    digest: Option<String>, // xxh3 or blake2b
    resolution: Option<u8>, // H3, for pings whose position is part of the key
    width_ns: String,       // of a session its gap
    guard_ns: String,       // of a sliding window as wide as the window
    session: bool,
}

#[derive(Deserialize)]
pub struct Event {
    unix_nanos: String,
    transition: Option<Transition>,
    ping: Option<Ping>,
    keyed: Option<Keyed>,
}

#[derive(Deserialize)]
struct Transition {
    device_id: String,
    fence_id: String,
    kind: String,
    sequence: Option<String>,
    sequence_epoch: Option<String>,
}

#[derive(Deserialize)]
struct Ping {
    asset_id: String,
    latitude: String,
    longitude: String,
}

#[derive(Deserialize)]
struct Keyed {
    event_id: String,
}

type Fault = Box<dyn Error>;

/// The keys to look at, the primary first; what is written goes there.
pub fn store_keys(namespace: &Namespace, event: &Event) -> Result<Vec<String>, Fault> {
    let (names, subject) = names_and_subject(namespace, event)?;
    let tag = match namespace.layout.as_str() {
        "tagged" => format!("{{{:016x}}}:", xxh3_64(subject.as_bytes())),
        _ => String::new(),
    };
    let keys = names
        .iter()
        .map(|name| format!("{}{tag}{name}", namespace.prefix));
    Ok(keys.collect())
}

fn names_and_subject(namespace: &Namespace, event: &Event) -> Result<(Vec<String>, String), Fault> {
    if let Some(Keyed { event_id }) = &event.keyed {
        return Ok((vec![event_id.clone()], event_id.clone()));
    }
    if let Some(crossing) = &event.transition {
        let letter = match crossing.kind.as_str() {
            "ENTER" => 'E',
            "EXIT" => 'X',
            "DWELL" => 'D',
            other => return Err(other.into()),
        };
        let (device, fence) = (escaped(&crossing.device_id), escaped(&crossing.fence_id));
        let subject = format!("{device}|{fence}|{letter}");
        let Some(sequence) = &crossing.sequence else {
            let buckets = buckets(namespace, event)?;
            let names = buckets
                .iter()
                .map(|bucket| digest(namespace, &format!("{subject}|{bucket}")));
            return Ok((names.collect(), subject));
        };
        let numbered = match crossing.sequence_epoch.as_deref() {
            None | Some("0") => format!("{subject}|#{sequence}"),
            Some(epoch) => format!("{subject}|#{epoch}.{sequence}"),
        };
        return Ok((vec![digest(namespace, &numbered)], numbered));
    }
    let ping = event.ping.as_ref().ok_or("no event")?;
    let subject = escaped(&ping.asset_id);
    let cell = match namespace.resolution {
        Some(resolution) => {
            let place = LatLng::new(ping.latitude.parse()?, ping.longitude.parse()?)?;
            place.to_cell(Resolution::try_from(resolution)?).to_string()
        }
        None => "-".to_owned(),
    };
    let width_s = namespace.width_ns.parse::<i64>()? / 1_000_000_000;
    let buckets = buckets(namespace, event)?;
    let materials = buckets
        .iter()
        .map(|bucket| format!("{subject}|{}|{cell}", bucket * width_s));
    Ok((
        materials
            .map(|material| digest(namespace, &material))
            .collect(),
        subject,
    ))
}

/// The event's own, then those that a guard or a session reaches. Division is toward minus infinity.
fn buckets(namespace: &Namespace, event: &Event) -> Result<Vec<i64>, Fault> {
    let time: i64 = event.unix_nanos.parse()?;
    let (width, guard): (i64, i64) = (namespace.width_ns.parse()?, namespace.guard_ns.parse()?);
    let (bucket, offset) = (time.div_euclid(width), time.rem_euclid(width));
    let mut buckets = vec![bucket];
    if namespace.session || offset + 1 < guard {
        buckets.push(bucket - 1);
    }
    if namespace.session || width - offset < guard {
        buckets.push(bucket + 1);
    }
    Ok(buckets)
}

fn digest(namespace: &Namespace, material: &str) -> String {
    match namespace.digest.as_deref() {
        Some("blake2b") => {
            let digest = Blake2b::<U16>::digest(material);
            digest.iter().map(|byte| format!("{byte:02x}")).collect()
        }
        _ => xxh3_128(material.as_bytes()).to_string(),
    }
}

fn escaped(id: &str) -> String {
    id.replace('\\', r"\\").replace('|', r"\|")
}

#[derive(Deserialize)]
struct Vector {
    namespace: Namespace,
    event: Event,
}

fn main() -> Result<(), Fault> {
    for line in io::stdin().lines() {
        let vector: Vector = serde_json::from_str(&line?)?;
        println!(
            "{}",
            store_keys(&vector.namespace, &vector.event)?.join("\t")
        );
    }
    Ok(())
}
