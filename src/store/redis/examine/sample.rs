//! What stands under a prefix: a bounded look at some of its keys.

use redis::{RedisError, Value};

use super::{refusal::refusal, trial::send};
use crate::{
    domain::claim::{MAX_RECORD_BYTES, Standing},
    store::{
        StoreError,
        examination::Sample,
        redis::{
            wire::{Commands, Wire},
            work::error_of,
        },
    },
};

/// Keys that are looked at, for each prefix and server.
const MAX_KEYS: u64 = 1_000;
/// Keys that one step of the scan passes over: a fraction of a millisecond of the server's time.
const KEYS_PER_STEP: u64 = 500;
/// A prefix of which so many steps show little is rare among the server's keys.
const MAX_STEPS: usize = 40;
/// Of all prefixes together: a second or so.
const MAX_STEPS_OF_ALL: usize = 400;

pub(super) fn steps_each(prefixes: usize) -> usize {
    (MAX_STEPS_OF_ALL / prefixes.max(1)).clamp(1, MAX_STEPS)
}

/// Adds what stands under the sample's prefix; `false`: looking is not permitted.
pub(super) async fn look(
    client: &Wire,
    sample: &mut Sample,
    steps: usize,
) -> Result<bool, RedisError> {
    let mut cursor = b"0".to_vec();
    let mut looked_at = 0;
    for _ in 0..steps {
        let mut pipeline = Commands::default();
        pipeline
            .cmd("SCAN")
            .arg(&cursor)
            .arg("MATCH")
            .arg(&sample.pattern)
            .arg("COUNT")
            .arg(KEYS_PER_STEP);
        let reply = send(client, pipeline).await?.pop();
        let Some((next, mut keys)) = reply.as_ref().and_then(read_step) else {
            return Ok(false);
        };
        keys.truncate((MAX_KEYS - looked_at) as usize);
        looked_at += keys.len() as u64;
        if !look_at(client, &keys, sample).await? {
            return Ok(false);
        }
        if next == b"0" {
            return Ok(true);
        }
        if looked_at >= MAX_KEYS {
            break;
        }
        cursor = next;
    }
    sample.complete = false;
    Ok(true)
}

/// `[cursor, [key, …]]`
fn read_step(reply: &Value) -> Option<(Vec<u8>, Vec<Vec<u8>>)> {
    let Value::Array(parts) = reply else {
        return None;
    };
    let [Value::BulkString(cursor), Value::Array(keys)] = parts.as_slice() else {
        return None;
    };
    let keys = keys.iter().filter_map(|key| match key {
        Value::BulkString(key) => Some(key.clone()),
        _ => None,
    });
    Some((cursor.clone(), keys.collect()))
}

/// A record is short: of anything longer its beginning is enough.
async fn look_at(client: &Wire, keys: &[Vec<u8>], sample: &mut Sample) -> Result<bool, RedisError> {
    if keys.is_empty() {
        return Ok(true);
    }
    let mut pipeline = Commands::default();
    for key in keys {
        pipeline
            .cmd("GETRANGE")
            .arg(key)
            .arg(0)
            .arg(MAX_RECORD_BYTES);
        pipeline.cmd("PTTL").arg(key);
    }
    let replies = send(client, pipeline).await?;
    if replies.iter().any(|reply| refusal(reply).is_some()) {
        return Ok(false);
    }
    let (pairs, _) = replies.as_chunks::<2>();
    for [value, ttl] in pairs {
        count(value, ttl, sample);
    }
    Ok(true)
}

fn count(value: &Value, ttl: &Value, sample: &mut Sample) {
    let kind = match value {
        Value::BulkString(value) => match Standing::decode(value) {
            Standing::Record(_) => &mut sample.claims,
            Standing::Newer { .. } => &mut sample.newer,
            Standing::Foreign => &mut sample.foreign,
        },
        Value::ServerError(_) if error_of(value) == StoreError::WrongType => {
            &mut sample.other_types
        }
        _ => return,
    };
    // -2: it has expired since the scan saw it.
    match ttl {
        Value::Int(-2) => return,
        Value::Int(-1) => sample.without_ttl += 1,
        _ => {}
    }
    *kind += 1;
    sample.keys += 1;
}

/// The pattern of all keys under a prefix.
pub(super) fn glob(prefix: &str) -> String {
    let mut pattern = String::with_capacity(prefix.len() + 1);
    for c in prefix.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '^' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('*');
    pattern
}
