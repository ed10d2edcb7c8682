//! One connection to Redis: opened with a limit on time, its scripts loaded, its abilities known.

use std::{fmt, sync::Arc, time::Duration};

use deadpool_redis::{Manager, Pool, Runtime};
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Pipeline,
    ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, Value, aio::MultiplexedConnection,
    io::tcp::TcpSettings,
};
use tokio::sync::Notify;

use super::{
    script::{Abilities, Script},
    target::{Address, Endpoint, Password, Target, Topology},
};
use crate::store::StoreError;

/// For connecting, the handshake and loading the scripts together: a healthy server in the same
/// region needs a tenth of it.
const MIN_CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// They are as many exchanges, each of which may take the budget.
const EXCHANGES_TO_CONNECT: u32 = 4;

/// Written to find out whether the server takes writes, and of which form. It expires at once.
pub(super) const CANARY_KEY: &str = "dedupd:canary";

/// The pool from which lanes take their connections.
#[derive(Clone)]
pub(super) struct Connector {
    pool: Pool,
    timeout: Duration,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("status", &self.pool.status())
            .finish()
    }
}

impl Connector {
    /// `connections` bounds how many there are at a time; `lost` is told when one of them ends.
    pub(super) fn new(
        server: ConnectionInfo,
        connections: usize,
        budget: Duration,
        lost: Arc<Notify>,
    ) -> Result<Self, UrlError> {
        let connect_timeout = MIN_CONNECT_TIMEOUT.max(budget * EXCHANGES_TO_CONNECT);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(connect_timeout))
            // The lanes keep the budget themselves: a reply after it still matters to them, and the
            // client's own default of 500 ms would drop it.
            .set_response_timeout(None)
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    lost.notify_one();
                }
                Ok::<(), redis::aio::SendError>(())
            });
        let manager =
            Manager::new_with_config(server, config).map_err(|error| UrlError::new(&error))?;
        let pool = Pool::builder(manager)
            .max_size(connections)
            .create_timeout(Some(connect_timeout))
            .wait_timeout(Some(connect_timeout))
            // A connection whose set-up was cut short comes back: it has one budget to prove itself.
            .recycle_timeout(Some(budget))
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| UrlError(error.to_string()))?;
        Ok(Self {
            pool,
            timeout: connect_timeout,
        })
    }

    /// An error always says something about the server as a whole.
    pub(super) async fn connect(&self) -> Result<Connection, StoreError> {
        let opened = tokio::time::timeout(self.timeout, self.open()).await;
        opened
            .unwrap_or(Err(StoreError::Timeout))
            .map_err(|error| match error {
                error if error.is_outage() => error,
                StoreError::Denied => StoreError::Unauthenticated,
                _ => StoreError::Connection,
            })
    }

    async fn open(&self) -> Result<Connection, StoreError> {
        use deadpool_redis::PoolError;
        let mut pooled = self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => {
                tracing::debug!(error = error.category(), "could not connect to the store");
                StoreError::from(&error)
            }
            PoolError::Timeout(_) => StoreError::Timeout,
            PoolError::Closed | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
                StoreError::Connection
            }
        })?;
        let mut setup = Pipeline::new();
        for script in Script::ALL {
            setup.cmd("SCRIPT").arg("LOAD").arg(script.source());
        }
        setup
            .cmd("SET")
            .arg(CANARY_KEY)
            .arg(1)
            .arg("NX")
            .arg("PX")
            .arg(1)
            .arg("GET");
        let count = setup.len();
        let replies = pooled
            .send_packed_commands(&setup, 0, count)
            .await
            .map_err(|error| StoreError::from(&error))?;
        let (canary, loaded) = replies.split_last().ok_or(StoreError::Protocol)?;
        // A server that refuses SCRIPT LOAD is sent the scripts' text each time.
        let hashes = loaded.iter().map(|reply| match reply {
            Value::BulkString(hash) => String::from_utf8(hash.clone()).ok(),
            _ => None,
        });
        // Redis 6.2 knows NX and GET, but not together. Where another error hides that, the script
        // does for both.
        let sets_and_gets = matches!(
            canary,
            Value::Nil | Value::Okay | Value::BulkString(_) | Value::SimpleString(_)
        );
        Ok(Connection {
            client: (*pooled).clone(),
            abilities: Arc::new(Abilities {
                hashes: hashes.collect(),
                sets_and_gets,
            }),
            _pooled: pooled,
        })
    }
}

/// Why a URL cannot be used; never the URL itself, which may hold a password.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the store's URL cannot be used: {0}")]
pub struct UrlError(String);

impl UrlError {
    fn new(error: &redis::RedisError) -> Self {
        Self(error.category().to_owned())
    }
}

/// The one server without TLS that this version reaches. The newer protocol is asked for, since
/// only with it the client says when a connection ends that nothing is waiting for.
pub(super) fn server(target: &Target) -> Result<ConnectionInfo, UrlError> {
    let (Topology::Standalone { endpoint, database }, None, 0) =
        (&target.topology, &target.access.tls, target.wait_replicas)
    else {
        return Err(UrlError("only redis:// is served".to_owned()));
    };
    let addr = match endpoint {
        Endpoint::Tcp(Address { host, port }) => ConnectionAddr::Tcp(host.clone(), *port),
        Endpoint::Unix(path) => ConnectionAddr::Unix(path.clone()),
    };
    let mut settings = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP3)
        .set_db((*database).into());
    if let Some(user) = &target.access.user {
        settings = settings.set_username(user);
    }
    match &target.access.password {
        Some(Password::Text(password)) => settings = settings.set_password(password.expose()),
        Some(Password::File(_)) => {
            return Err(UrlError("password files are not served".to_owned()));
        }
        None => {}
    }
    let info = addr
        .into_connection_info()
        .map_err(|error| UrlError::new(&error))?;
    Ok(info
        .set_redis_settings(settings)
        .set_tcp_settings(TcpSettings::default().set_nodelay(true)))
}

/// A connection that a lane owns. Clones of its client share the one socket, in order.
pub(super) struct Connection {
    client: MultiplexedConnection,
    abilities: Arc<Abilities>,
    _pooled: deadpool_redis::Connection,
}

impl Connection {
    pub(super) fn client(&self) -> MultiplexedConnection {
        self.client.clone()
    }

    pub(super) fn abilities(&self) -> &Arc<Abilities> {
        &self.abilities
    }

    /// Takes the connection out of the pool, so that nobody gets it again; the socket lives on
    /// while commands on it are awaited.
    pub(super) fn retire(self) {
        let _ = deadpool_redis::Connection::take(self._pooled);
    }
}
