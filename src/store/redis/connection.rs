//! One connection to Redis: opened with a limit on time, its scripts loaded, its abilities known.

use std::{
    fmt, fs, io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::{RedisError, ServerError, Value};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::{
    error::{reason, said},
    lane::LaneStats,
    script::{Abilities, Script},
    target::{Access, Address, Endpoint, Password, Target, Topology},
    wire::{self, Commands, Wire},
    work::error_of,
};
use crate::store::StoreError;

/// For connecting, the handshake and loading the scripts together: a healthy server in the same
/// region needs a tenth of it.
const MIN_CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// They are as many exchanges, each of which may take the budget.
const EXCHANGES_TO_CONNECT: u32 = 4;
/// Sockets of one lane at a time: the one in use, and those whose last replies are still awaited.
const CONNECTIONS_PER_LANE: usize = 8;

/// Why there is no connection.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub(super) struct DialError {
    pub(super) error: StoreError,
    /// For people; without secrets.
    pub(super) why: String,
}

impl DialError {
    pub(super) fn new(error: StoreError, why: impl Into<String>) -> Self {
        Self {
            error,
            why: why.into(),
        }
    }

    pub(super) fn client(error: &RedisError) -> Self {
        Self::new(StoreError::from(error), reason(error))
    }

    pub(super) fn server(error: &ServerError) -> Self {
        Self::new(StoreError::from(error), said(error))
    }

    pub(super) fn file(what: &str, path: &Path, error: &io::Error) -> Self {
        let path = path.display();
        Self::new(
            StoreError::Unauthenticated,
            format!("cannot read {what} {path}: {error}"),
        )
    }
}

/// Opens connections to the servers of a target.
#[derive(Clone, Debug)]
pub(super) struct Dialer {
    target: Arc<Target>,
    timeout: Duration,
}

impl Dialer {
    pub(super) fn new(target: Arc<Target>, budget: Duration) -> Self {
        Self {
            target,
            timeout: MIN_CONNECT_TIMEOUT.max(budget * EXCHANGES_TO_CONNECT),
        }
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// Connects to a server that holds claims; `lost` is told when the connection ends.
    pub(super) async fn dial(
        &self,
        endpoint: &Endpoint,
        lost: Option<Arc<Notify>>,
    ) -> Result<Wire, DialError> {
        let database = match &self.target.topology {
            Topology::Standalone { database, .. } | Topology::Sentinel { database, .. } => {
                *database
            }
            Topology::Cluster { .. } => 0,
        };
        self.open(endpoint, &self.target.access, database, lost)
            .await
    }

    /// Connects to a sentinel.
    pub(super) async fn dial_sentinel(
        &self,
        address: &Address,
        access: &Access,
    ) -> Result<Wire, DialError> {
        let endpoint = Endpoint::Tcp(address.clone());
        self.open(&endpoint, access, 0, None).await
    }

    async fn open(
        &self,
        endpoint: &Endpoint,
        access: &Access,
        database: u32,
        lost: Option<Arc<Notify>>,
    ) -> Result<Wire, DialError> {
        let opening = async {
            let stream = wire::open(endpoint, access.tls.as_ref()).await?;
            let client = Wire::new(stream, lost);
            self.greet(&client, access, database).await?;
            Ok(client)
        };
        let opened = tokio::time::timeout(self.timeout, opening).await;
        opened.unwrap_or_else(|_| Err(self.timed_out("connect")))
    }

    /// The newer protocol: a server that asks for a password says so at once.
    async fn greet(&self, client: &Wire, access: &Access, database: u32) -> Result<(), DialError> {
        let mut greeting = Commands::default();
        greeting.cmd("HELLO").arg(3);
        if let Some(password) = password(access)? {
            let user = access.user.as_deref().unwrap_or("default");
            greeting.arg("AUTH").arg(user).arg(&password);
        }
        if database != 0 {
            greeting.cmd("SELECT").arg(database);
        }
        let replies = self.ask(client, greeting).await?;
        let refused = replies.iter().find_map(|reply| match reply {
            Value::ServerError(error) => Some(DialError::server(error)),
            _ => None,
        });
        refused.map_or(Ok(()), Err)
    }

    /// Runs the commands of a connection's set-up.
    pub(super) async fn ask(
        &self,
        client: &Wire,
        commands: Commands,
    ) -> Result<Vec<Value>, DialError> {
        let asking = client.ask(commands);
        match tokio::time::timeout(self.timeout, asking).await {
            Ok(Ok(replies)) => Ok(replies),
            Ok(Err(error)) => Err(DialError::client(&error)),
            Err(_) => Err(self.timed_out("answer")),
        }
    }

    fn timed_out(&self, what: &str) -> DialError {
        let within = self.timeout.as_millis();
        DialError::new(
            StoreError::Timeout,
            format!("it did not {what} within {within} ms"),
        )
    }
}

fn password(access: &Access) -> Result<Option<String>, DialError> {
    Ok(match &access.password {
        Some(Password::Text(secret)) => Some(secret.expose().to_owned()),
        Some(Password::File(path)) => {
            let text = fs::read_to_string(path)
                .map_err(|error| DialError::file("the password file", path, &error))?;
            Some(text.trim_end().to_owned())
        }
        None => None,
    })
}

/// What a lane's connections are made with.
#[derive(Clone)]
pub(super) struct Connector {
    dialer: Dialer,
    /// Written to find out whether the server takes writes, and of which form.
    canary_key: Arc<[u8]>,
    /// Told when a connection ends.
    lost: Arc<Notify>,
    sockets: Arc<Semaphore>,
    stats: Arc<LaneStats>,
}

impl Connector {
    pub(super) fn new(dialer: Dialer, canary_key: Vec<u8>, stats: Arc<LaneStats>) -> Self {
        Self {
            dialer,
            canary_key: canary_key.into(),
            lost: Arc::default(),
            sockets: Arc::new(Semaphore::new(CONNECTIONS_PER_LANE)),
            stats,
        }
    }

    pub(super) fn lost(&self) -> &Arc<Notify> {
        &self.lost
    }

    /// An error always says something about the server as a whole.
    pub(super) async fn connect(&self, endpoint: &Endpoint) -> Result<Connection, DialError> {
        let opened = tokio::time::timeout(self.dialer.timeout, self.open(endpoint)).await;
        opened
            .unwrap_or_else(|_| Err(self.dialer.timed_out("take the set-up")))
            .map_err(|refused| DialError {
                error: match refused.error {
                    error if error.is_outage() => error,
                    StoreError::Denied => StoreError::Unauthenticated,
                    _ => StoreError::Connection,
                },
                ..refused
            })
    }

    async fn open(&self, endpoint: &Endpoint) -> Result<Connection, DialError> {
        let permit = Arc::clone(&self.sockets).try_acquire_owned().map_err(|_| {
            DialError::new(
                StoreError::Connection,
                "all connections are waiting for late replies",
            )
        })?;
        let lost = Some(Arc::clone(&self.lost));
        let client = self.dialer.dial(endpoint, lost).await?;
        let mut setup = Commands::default();
        for script in Script::ALL {
            setup.cmd("SCRIPT").arg("LOAD").arg(script.source());
        }
        // It expires at once.
        let canary = setup.cmd("SET").arg(&*self.canary_key).arg(1).arg("NX");
        canary.arg("PX").arg(1).arg("GET");
        let replies = self.dialer.ask(&client, setup).await?;
        let (canary, loaded) = replies
            .split_last()
            .ok_or_else(|| DialError::new(StoreError::Protocol, "it gave no answer"))?;
        // A server that refuses SCRIPT LOAD is sent the scripts' text each time.
        let hashes = loaded.iter().map(|reply| match reply {
            Value::BulkString(hash) => String::from_utf8(hash.clone()).ok(),
            _ => None,
        });
        let abilities = Abilities {
            hashes: hashes.collect(),
            sets_and_gets: AtomicBool::new(sets_and_gets(canary)?),
        };
        Ok(Connection {
            link: Link {
                client,
                _socket: Arc::new(Socket::new(permit, Arc::clone(&self.stats))),
            },
            abilities: Arc::new(abilities),
        })
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

/// Redis 6.2 knows NX and GET, but not together. Where another error hides that, the first claim
/// finds out. A demoted or loading server is no connection: the next attempt may find another.
fn sets_and_gets(canary: &Value) -> Result<bool, DialError> {
    let Value::ServerError(error) = canary else {
        return Ok(true);
    };
    match error_of(canary) {
        refused @ (StoreError::ReadOnly | StoreError::Loading) => {
            Err(DialError::new(refused, error.to_string()))
        }
        _ => Ok(!is_syntax_error(canary)),
    }
}

/// The server does not know a form of the command.
pub(super) fn is_syntax_error(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error)
        if error.details().is_some_and(|details| details.contains("syntax error")))
}

/// A connection that a lane owns. Clones of its link share the one socket, in order.
pub(super) struct Connection {
    link: Link,
    abilities: Arc<Abilities>,
}

impl Connection {
    pub(super) fn link(&self) -> Link {
        self.link.clone()
    }

    pub(super) fn abilities(&self) -> &Arc<Abilities> {
        &self.abilities
    }
}

/// Sends on a connection; its socket lives until the last link to it is dropped.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) client: Wire,
    _socket: Arc<Socket>,
}

/// Counts a socket for as long as it is used.
struct Socket {
    _permit: OwnedSemaphorePermit,
    stats: Arc<LaneStats>,
}

impl Socket {
    fn new(permit: OwnedSemaphorePermit, stats: Arc<LaneStats>) -> Self {
        stats.connections.fetch_add(1, Ordering::Relaxed);
        stats.connects.fetch_add(1, Ordering::Relaxed);
        Self {
            _permit: permit,
            stats,
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.stats.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
