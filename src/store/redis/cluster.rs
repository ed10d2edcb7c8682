//! Which server of a cluster holds which slots.

use std::time::Duration;

use futures_util::{StreamExt, stream::FuturesUnordered};
use rand::seq::SliceRandom;
use redis::Value;
use tokio::time::timeout;

use super::{
    connection::{DialError, Dialer},
    slot::SLOTS,
    target::{Address, Endpoint},
    wire::Commands,
    work::error_of,
};
use crate::store::StoreError;

/// Servers that are asked at a time.
const ASKED: usize = 3;
/// After the first answer, for the others: one of them may have been cut off and know an old map.
const WAIT_FOR_OTHERS: Duration = Duration::from_millis(100);

/// What a server says about the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlotMap {
    /// Grows with every change that the server has heard of.
    epoch: u64,
    /// First and last slot, and the primary that holds them.
    pub(super) ranges: Vec<(usize, usize, Address)>,
}

/// The newest map that some of the candidates know.
pub(super) async fn discover(
    dialer: &Dialer,
    mut candidates: Vec<Address>,
) -> Result<SlotMap, DialError> {
    candidates.shuffle(&mut rand::rng());
    let mut rest = candidates.into_iter();
    let mut asked: FuturesUnordered<_> = rest
        .by_ref()
        .take(ASKED)
        .map(|address| ask(dialer, address))
        .collect();
    let mut newest: Option<SlotMap> = None;
    let mut faults = Vec::new();
    loop {
        let next = match newest {
            None => asked.next().await,
            Some(_) => timeout(WAIT_FOR_OTHERS, asked.next()).await.ok().flatten(),
        };
        match next {
            Some(Ok(map)) => {
                if newest.as_ref().is_none_or(|known| known.epoch < map.epoch) {
                    newest = Some(map);
                }
            }
            Some(Err(fault)) => {
                faults.push(fault);
                if let Some(address) = rest.next() {
                    asked.push(ask(dialer, address));
                }
            }
            None => break,
        }
    }
    newest.ok_or_else(|| {
        let error = faults
            .first()
            .map_or(StoreError::Connection, |fault| fault.error);
        let each: Vec<String> = faults.iter().map(DialError::to_string).collect();
        DialError::new(error, each.join("; "))
    })
}

async fn ask(dialer: &Dialer, address: Address) -> Result<SlotMap, DialError> {
    let named = |fault: DialError| DialError {
        why: format!("{address}: {fault}"),
        ..fault
    };
    let endpoint = Endpoint::Tcp(address.clone());
    let connection = dialer.dial(&endpoint, None).await.map_err(named)?;
    let mut questions = Commands::default();
    questions.cmd("CLUSTER").arg("SLOTS");
    questions.cmd("CLUSTER").arg("INFO");
    let answers = dialer.ask(&connection, questions).await.map_err(named)?;
    match answers.as_slice() {
        [Value::Array(slots), info] => Ok(SlotMap {
            epoch: read_epoch(info),
            ranges: slots
                .iter()
                .filter_map(|range| read_range(range, &address))
                .collect(),
        }),
        [error @ Value::ServerError(text), _] => {
            Err(named(DialError::new(error_of(error), text.to_string())))
        }
        _ => Err(named(DialError::new(
            StoreError::Protocol,
            "its answer makes no sense",
        ))),
    }
}

/// `CLUSTER INFO` is a text of lines `name:value`. A server that does not permit it knows no epoch.
fn read_epoch(info: &Value) -> u64 {
    let Value::BulkString(text) = info else {
        return 0;
    };
    String::from_utf8_lossy(text)
        .lines()
        .find_map(|line| line.strip_prefix("cluster_current_epoch:"))
        .and_then(|epoch| epoch.trim().parse().ok())
        .unwrap_or(0)
}

/// `[first, last, [host, port, …], replicas…]`; a host that is missing is the one that was asked.
fn read_range(range: &Value, asked: &Address) -> Option<(usize, usize, Address)> {
    let Value::Array(parts) = range else {
        return None;
    };
    let [
        Value::Int(first),
        Value::Int(last),
        Value::Array(primary),
        ..,
    ] = parts.as_slice()
    else {
        return None;
    };
    let [host, Value::Int(port), ..] = primary.as_slice() else {
        return None;
    };
    let host = match host {
        Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
        _ => String::new(),
    };
    let host = match host.as_str() {
        "" | "?" => asked.host.clone(),
        _ => host,
    };
    let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
    let port = u16::try_from(*port).ok()?;
    (first <= last && last < SLOTS).then_some((first, last, Address { host, port }))
}
