//! Where the primary is, as the sentinels say.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};
use hashbrown::HashMap;
use parking_lot::Mutex;
use redis::Value;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    connection::{DialError, Dialer},
    target::{Access, Address},
    wire::{Commands, Wire},
    work::error_of,
};
use crate::store::StoreError;

/// How often they are asked whether there is another primary: an old one that can still be reached
/// would otherwise be written to until it is told.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// After the first answer, for the others: one of them may have been cut off and know an old primary.
const WAIT_FOR_OTHERS: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Sentinels {
    dialer: Dialer,
    addresses: Vec<Address>,
    service: String,
    access: Access,
    connections: Mutex<HashMap<Address, Wire>>,
    primary: watch::Sender<Option<Address>>,
}

impl Sentinels {
    pub(super) fn new(
        dialer: Dialer,
        addresses: Vec<Address>,
        service: String,
        access: Access,
    ) -> Self {
        Self {
            dialer,
            addresses,
            service,
            access,
            connections: Mutex::default(),
            primary: watch::Sender::default(),
        }
    }

    /// Changes whenever they name another primary.
    pub(super) fn primary(&self) -> watch::Receiver<Option<Address>> {
        self.primary.subscribe()
    }

    /// Asks again and again, until nobody else holds this.
    pub(super) async fn watch(self: Arc<Self>) {
        while Arc::strong_count(&self) > 1 {
            if let Err(unknown) = self.find().await {
                tracing::debug!(%unknown, "no sentinel told where the primary is");
            }
            sleep(POLL_EVERY.mul_f64(rand::random_range(0.75..1.25))).await;
        }
    }

    /// The primary that most of them name.
    pub(super) async fn find(&self) -> Result<Address, DialError> {
        let mut asked: FuturesUnordered<_> = self
            .addresses
            .iter()
            .map(|address| async move { (address, self.ask(address).await) })
            .collect();
        let (mut votes, mut faults) = (Vec::<Address>::new(), Vec::new());
        loop {
            let next = if votes.is_empty() {
                asked.next().await
            } else {
                timeout(WAIT_FOR_OTHERS, asked.next()).await.ok().flatten()
            };
            match next {
                Some((_, Ok(primary))) => votes.push(primary),
                Some((sentinel, Err(fault))) => faults.push((sentinel, fault)),
                None => break,
            }
        }
        let count = |primary: &Address| votes.iter().filter(|vote| *vote == primary).count();
        match votes.iter().max_by_key(|primary| count(primary)) {
            Some(primary) => {
                self.primary.send_if_modified(|known| {
                    let changed = known.as_ref() != Some(primary);
                    if changed {
                        tracing::info!(%primary, service = self.service, "the sentinels name the primary");
                        *known = Some(primary.clone());
                    }
                    changed
                });
                Ok(primary.clone())
            }
            None => Err(none_knows(faults)),
        }
    }

    /// What each of them says.
    pub(super) async fn survey(&self) -> Vec<(&Address, Result<Address, DialError>)> {
        let asked = self.addresses.iter();
        join_all(asked.map(|address| async move { (address, self.ask(address).await) })).await
    }

    async fn ask(&self, sentinel: &Address) -> Result<Address, DialError> {
        let kept = self.connections.lock().get(sentinel).cloned();
        let connection = match kept {
            Some(connection) => connection,
            None => self.dialer.dial_sentinel(sentinel, &self.access).await?,
        };
        let mut question = Commands::default();
        question
            .cmd("SENTINEL")
            .arg("GET-MASTER-ADDR-BY-NAME")
            .arg(&self.service);
        let answer = self.dialer.ask(&connection, question).await;
        if answer.is_ok() {
            self.connections.lock().insert(sentinel.clone(), connection);
        } else {
            self.connections.lock().remove(sentinel);
        }
        let answer = answer?;
        match answer.as_slice() {
            [Value::Array(parts)] => read_address(parts)
                .ok_or_else(|| DialError::new(StoreError::Protocol, "its answer makes no sense")),
            [error @ Value::ServerError(text)] => {
                Err(DialError::new(error_of(error), text.to_string()))
            }
            _ => Err(DialError::new(
                StoreError::Connection,
                format!("it does not know a service {:?}", self.service),
            )),
        }
    }
}

fn none_knows(faults: Vec<(&Address, DialError)>) -> DialError {
    let error = match faults.first() {
        Some((_, first)) if faults.iter().all(|(_, fault)| fault.error == first.error) => {
            first.error
        }
        _ => StoreError::Connection,
    };
    let each: Vec<String> = faults
        .iter()
        .map(|(sentinel, fault)| format!("sentinel {sentinel}: {fault}"))
        .collect();
    DialError::new(error, each.join("; "))
}

fn read_address(parts: &[Value]) -> Option<Address> {
    match parts {
        [Value::BulkString(host), Value::BulkString(port)] => Some(Address {
            host: String::from_utf8(host.clone()).ok()?,
            port: std::str::from_utf8(port).ok()?.parse().ok()?,
        }),
        _ => None,
    }
}
