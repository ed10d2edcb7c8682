//! What the service does, done for real on keys that nobody else has.
//!
//! Each command is tried by itself first, so that a refusal names the command or the prefix; then a
//! claim is made, confirmed and deleted, and another one released, by the scripts themselves. What
//! is written expires by itself if it cannot be deleted.

use std::{sync::atomic::AtomicBool, time::Duration};

use rand::seq::SliceRandom;
use redis::{RedisError, Value};

use super::{
    refusal::{COMMANDS, EVALSHA, Refusals, refusal},
    sample::glob,
    words::advice,
};
use crate::{
    domain::{
        claim::{ClaimState, Guards, Nonce, Record, Sighting, Standing},
        key::{KeyName, KeyScheme, Partition, RESERVED_PREFIX},
    },
    store::{
        HoldMs, StoreError,
        examination::{Check, Finding, Severity},
        redis::{
            commands::{self, Adoption},
            error::from_text,
            script::{Abilities, Script, ScriptCall},
            wire::{Commands, Wire},
            work::error_of,
        },
    },
};

/// How long a canary lives at most.
const CANARY_LIFE: Duration = Duration::from_secs(5);
const CANARY_MS: u64 = CANARY_LIFE.as_millis() as u64;
/// Prefixes that are tried at a time, of thousands.
const MAX_PLACES: usize = 64;
/// A server of a cluster holds one slot in so many at least, or it takes no part in the trial.
const MAX_KEYS: usize = 64;

/// A prefix under which the service keeps keys.
#[derive(Clone, Debug)]
struct Place {
    prefix: String,
    /// `None`: dedupd's own prefix.
    scheme: Option<KeyScheme>,
}

impl Place {
    fn all(schemes: &[KeyScheme]) -> Vec<Self> {
        let mut places = vec![Self {
            prefix: RESERVED_PREFIX.to_owned(),
            scheme: None,
        }];
        for scheme in schemes {
            if places.iter().all(|place| place.prefix != scheme.prefix()) {
                places.push(Self {
                    prefix: scheme.prefix().to_owned(),
                    scheme: Some(scheme.clone()),
                });
            }
        }
        places
    }

    fn random_key(&self) -> Vec<u8> {
        let (name, partition) = (rand::random::<u128>(), rand::random::<u64>());
        let Some(scheme) = &self.scheme else {
            return format!("{}canary:{name:032x}", self.prefix).into_bytes();
        };
        let mut key = Vec::new();
        scheme.write_key(KeyName::Hex(name), Partition(partition), &mut key);
        key
    }
}

/// What is to be tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial<'s> {
    pub(super) schemes: &'s [KeyScheme],
    /// Under every prefix, or under so many of them that each has its turn.
    pub(super) is_thorough: bool,
    pub(super) is_cluster: bool,
    /// Claims wait for replicas.
    pub(super) waits: bool,
}

impl Trial<'_> {
    pub(super) async fn attempt(self, client: &Wire) -> Result<Vec<Finding>, RedisError> {
        let mut refusals = Refusals::default();
        let mut findings = Vec::new();
        let abilities = load_scripts(client, &mut findings).await?;
        self.run_others(client, &mut refusals).await?;
        let mut worked = Vec::new();
        for place in self.places() {
            let Some((key, replies)) = run_commands(client, &place).await? else {
                continue;
            };
            match refusals.read(&place.prefix, &replies) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    findings.push(canary_failure(error));
                    break;
                }
            }
            match run_scripts(client, &place, key, &abilities).await? {
                Ok(()) => worked.push(place.prefix),
                Err(StoreError::Denied) => refusals.command(EVALSHA),
                Err(error) => findings.push(canary_failure(error).about(glob(&place.prefix))),
            }
        }
        let refused = refusals.findings();
        let is_well = findings.iter().all(|one| one.severity < Severity::Failure);
        if refused.is_empty() && is_well && !worked.is_empty() {
            let under = worked.join(", ");
            findings.extend([
                Finding::new(
                    Check::Permission,
                    Severity::Ok,
                    "everything that the service does is permitted",
                ),
                Finding::new(
                    Check::Canary,
                    Severity::Ok,
                    format!("claimed, confirmed and released under {under}"),
                ),
            ]);
        }
        findings.extend(refused);
        Ok(findings)
    }

    fn places(self) -> Vec<Place> {
        let mut places = Place::all(self.schemes);
        if !self.is_thorough && places.len() > MAX_PLACES {
            places.shuffle(&mut rand::rng());
            places.truncate(MAX_PLACES);
        }
        places
    }

    /// Commands that are sent in some topologies only.
    async fn run_others(self, client: &Wire, refusals: &mut Refusals) -> Result<(), RedisError> {
        let mut pipeline = Commands::default();
        let mut names = Vec::new();
        if self.waits {
            names.push("WAIT");
            pipeline.cmd("WAIT").arg(0).arg(1);
        }
        if self.is_cluster {
            names.push("ASKING");
            pipeline.cmd("ASKING");
        }
        if names.is_empty() {
            return Ok(());
        }
        let replies = send(client, pipeline).await?;
        for (name, reply) in names.into_iter().zip(&replies) {
            if refusal(reply).is_some() {
                refusals.command(name);
            }
        }
        Ok(())
    }
}

fn canary_failure(error: StoreError) -> Finding {
    let message = format!("a claim fails: {error}; {}", advice(error));
    Finding::new(Check::Canary, Severity::Failure, message)
}

async fn load_scripts(client: &Wire, findings: &mut Vec<Finding>) -> Result<Abilities, RedisError> {
    let mut pipeline = Commands::default();
    for script in Script::ALL {
        pipeline.cmd("SCRIPT").arg("LOAD").arg(script.source());
    }
    let replies = send(client, pipeline).await?;
    if replies.iter().any(|reply| refusal(reply).is_some()) {
        findings.push(Finding::new(
            Check::Permission,
            Severity::Note,
            "SCRIPT LOAD is refused, so that scripts are sent in full each time; permit +script|load",
        ));
    }
    let hashes = replies.into_iter().map(|reply| match reply {
        Value::BulkString(hash) => String::from_utf8(hash).ok(),
        _ => None,
    });
    Ok(Abilities {
        hashes: hashes.collect(),
        sets_and_gets: AtomicBool::new(true),
    })
}

/// The replies to [`COMMANDS`], and the key that they were run on; `None`: it holds no such key.
async fn run_commands(
    client: &Wire,
    place: &Place,
) -> Result<Option<(Vec<u8>, Vec<Value>)>, RedisError> {
    for _ in 0..MAX_KEYS {
        let key = place.random_key();
        let mut pipeline = Commands::default();
        for (name, _) in COMMANDS {
            let command = pipeline.cmd(name);
            match name {
                "SET" => command.arg(&key).arg(1).arg("NX").arg("PX").arg(CANARY_MS),
                "PEXPIRE" => command.arg(&key).arg(CANARY_MS),
                "EVAL" => command.arg("return 1").arg(1).arg(&key),
                _ => command.arg(&key),
            };
        }
        let replies = send(client, pipeline).await?;
        let is_elsewhere = |reply: &Value| {
            let is_error = matches!(reply, Value::ServerError(_));
            is_error && matches!(error_of(reply), StoreError::Moved | StoreError::TryAgain)
        };
        if !replies.iter().any(is_elsewhere) {
            return Ok(Some((key, replies)));
        }
    }
    Ok(None)
}

/// By the scripts: a contract's line under our own prefix, claims under the others.
async fn run_scripts(
    client: &Wire,
    place: &Place,
    key: Vec<u8>,
    abilities: &Abilities,
) -> Result<Result<(), StoreError>, RedisError> {
    let mut pipeline = Commands::default();
    if place.scheme.is_none() {
        let key = String::from_utf8_lossy(&key).into_owned();
        let line = "canary".to_owned();
        let call = commands::contract_call(key.clone(), line, CANARY_MS, false);
        push(&call, abilities, &mut pipeline);
        pipeline.cmd("DEL").arg(key);
        let replies = send(client, pipeline).await?;
        return Ok(match replies.first() {
            Some(Value::BulkString(line)) if line == b"canary" => Ok(()),
            other => Err(error_of(other.unwrap_or(&Value::Nil))),
        });
    }
    let pending = Record {
        state: ClaimState::Pending,
        nonce: Nonce::from_bytes(rand::random()),
        sighting: Sighting::default(),
    };
    let confirmed = Record {
        state: ClaimState::Confirmed,
        ..pending
    };
    let mut record = Vec::new();
    pending.encode(&mut record);
    let calls = [
        claim_call(&key, &record),
        settle_call(&key, "confirm", pending.nonce),
        forget_call(&key, &confirmed),
    ];
    for call in calls {
        push(&call, abilities, &mut pipeline);
    }
    pipeline
        .cmd("SET")
        .arg(&key)
        .arg(&record)
        .arg("NX")
        .arg("PX")
        .arg(CANARY_MS)
        .arg("GET");
    let release = settle_call(&key, "release", pending.nonce);
    push(&release, abilities, &mut pipeline);
    let replies = send(client, pipeline).await?;
    let [claimed, settled, forgotten, set, released] = replies.as_slice() else {
        return Ok(Err(StoreError::Protocol));
    };
    // A Redis 6.2 does not know this form, and is not sent it.
    let is_known = !matches!(set, Value::ServerError(_)) || error_of(set) != StoreError::Other;
    Ok(scripted(claimed, 256)
        .and_then(|()| scripted(settled, 1))
        .and_then(|()| scripted(forgotten, 1))
        .and_then(|()| match set {
            Value::Nil => scripted(released, 1),
            _ if !is_known => Ok(()),
            other => Err(error_of(other)),
        }))
}

/// By its hash if the server has it.
fn push(call: &ScriptCall, abilities: &Abilities, pipeline: &mut Commands) {
    match abilities.hash(call.script) {
        Some(hash) => call.write(hash, pipeline.cmd(EVALSHA)),
        None => call.write(call.script.source(), pipeline.cmd("EVAL")),
    }
}

/// Of a plan without neighbours.
fn claim_call(key: &[u8], record: &[u8]) -> ScriptCall {
    let hold = HoldMs::at_least(CANARY_LIFE);
    let guards = Guards {
        time_ns: 0,
        space_m: 0.0,
    };
    let mut call = ScriptCall::new(Script::Claim);
    call.keys.push(key.to_vec());
    let before = commands::claim_arguments((hold, hold), guards, Adoption::Nothing, false);
    call.arguments.extend(before);
    call.arguments
        .extend([record.to_vec(), Vec::new(), Vec::new()]);
    call
}

fn settle_call(key: &[u8], action: &str, nonce: Nonce) -> ScriptCall {
    let mut call = ScriptCall::new(Script::Settle);
    call.keys.push(key.to_vec());
    call.arguments.extend([
        action.into(),
        nonce.to_bytes().to_vec(),
        CANARY_MS.to_string().into_bytes(),
    ]);
    call
}

fn forget_call(key: &[u8], record: &Record) -> ScriptCall {
    let mut call = ScriptCall::new(Script::Forget);
    call.keys.push(key.to_vec());
    let head = Standing::Record(*record).head();
    call.arguments.push(head.unwrap_or_default());
    call
}

/// A script's answer about its one key.
fn scripted(reply: &Value, expected: i64) -> Result<(), StoreError> {
    match reply {
        Value::Array(parts) => match parts.as_slice() {
            [Value::Int(number)] if *number == expected => Ok(()),
            [Value::BulkString(text)] => Err(from_text(&String::from_utf8_lossy(text))),
            _ => Err(StoreError::Protocol),
        },
        other => Err(error_of(other)),
    }
}

pub(super) async fn send(client: &Wire, commands: Commands) -> Result<Vec<Value>, RedisError> {
    client.ask(commands).await
}
