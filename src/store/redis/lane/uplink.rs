//! A lane's connection: found, made, lost and made again.

use std::{sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use futures_util::FutureExt;
use tokio::{sync::watch, time::Instant};

use crate::store::{
    StoreError,
    redis::{
        connection::{Connection, Connector, DialError},
        pipeline::Boxed,
        sentinel::Sentinels,
        target::{Address, Endpoint},
    },
};

/// A connection that has been silent for so many budgets is left, though other lanes may do well.
const BUDGETS_TO_LEAVE: u32 = 3;
/// Between attempts to connect: the longest is half of what recovery may take.
const MIN_CONNECT_DELAY: Duration = Duration::from_millis(50);
const MAX_CONNECT_DELAY: Duration = Duration::from_secs(1);

/// Where a lane's server is.
#[derive(Clone, Debug)]
pub(in crate::store::redis) enum Whereabouts {
    Fixed(Endpoint),
    /// The primary that the sentinels name.
    Primary(Arc<Sentinels>),
}

impl Whereabouts {
    async fn find(&self) -> Result<Endpoint, DialError> {
        match self {
            Whereabouts::Fixed(endpoint) => Ok(endpoint.clone()),
            Whereabouts::Primary(sentinels) => sentinels.find().await.map(Endpoint::Tcp),
        }
    }
}

pub(super) type Connected = Result<(Connection, Endpoint), DialError>;

pub(super) struct Uplink {
    whereabouts: Whereabouts,
    pub(super) connector: Connector,
    budget: Duration,
    connection: Option<(Connection, Endpoint)>,
    /// Which connection it is.
    generation: u64,
    pub(super) connecting: Option<Boxed<Connected>>,
    /// Not before this.
    connect_at: Instant,
    connect_delays: ExponentialBackoff,
    /// Something was asked of this lane: it is connected from then on.
    pub(super) wanted: bool,
    /// The last attempt to connect failed, or the last connection was silent for too long: work is
    /// refused at once until there is a connection.
    down: Option<StoreError>,
    /// Since when the connection owes an answer beyond the budget.
    silent_since: Option<Instant>,
}

impl Uplink {
    pub(super) fn new(whereabouts: Whereabouts, connector: Connector, budget: Duration) -> Self {
        Self {
            whereabouts,
            connector,
            budget,
            connection: None,
            generation: 0,
            connecting: None,
            connect_at: Instant::now(),
            connect_delays: connect_delays(),
            wanted: false,
            down: None,
            silent_since: None,
        }
    }

    pub(super) fn connection(&self) -> Option<&Connection> {
        self.connection.as_ref().map(|(connection, _)| connection)
    }

    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) const fn down(&self) -> Option<StoreError> {
        self.down
    }

    pub(super) const fn is_silent(&self) -> bool {
        self.silent_since.is_some()
    }

    /// Where the sentinels' word of another primary arrives.
    pub(super) fn changes(&self) -> Option<watch::Receiver<Option<Address>>> {
        match &self.whereabouts {
            Whereabouts::Fixed(_) => None,
            Whereabouts::Primary(sentinels) => Some(sentinels.primary()),
        }
    }

    /// Begins to connect, if that is due.
    pub(super) fn connect(&mut self) {
        if self.connecting.is_some() || !self.wanted || self.connect_at > Instant::now() {
            return;
        }
        let (whereabouts, connector) = (self.whereabouts.clone(), self.connector.clone());
        let connecting = async move {
            let endpoint = whereabouts.find().await?;
            let connection = connector.connect(&endpoint).await?;
            Ok((connection, endpoint))
        };
        self.connecting = Some(connecting.boxed());
    }

    /// When there is something to do though nothing happens.
    pub(super) fn next_attempt(&self) -> Option<Instant> {
        (self.wanted && self.connection.is_none() && self.connecting.is_none())
            .then_some(self.connect_at)
    }

    /// Takes over what an attempt came to.
    pub(super) fn connected(&mut self, connected: Connected) -> Result<(), StoreError> {
        self.connecting = None;
        let now = Instant::now();
        match connected {
            Ok(connection) => {
                self.connection = Some(connection);
                self.generation += 1;
                self.silent_since = None;
                self.down = None;
                self.connect_delays = connect_delays();
                self.connect_at = now + MIN_CONNECT_DELAY;
                Ok(())
            }
            Err(refused) => {
                tracing::debug!(%refused, "could not connect to the store");
                self.down = Some(refused.error);
                let delay = self.connect_delays.next().unwrap_or(MAX_CONNECT_DELAY);
                self.connect_at = now + delay.min(MAX_CONNECT_DELAY);
                Err(refused.error)
            }
        }
    }

    pub(super) fn heard(&mut self) {
        self.silent_since = None;
    }

    /// A pipeline that was sent then is late. Leaves a connection that is silent for too long, and
    /// says so.
    pub(super) fn late(&mut self, sent_at: Instant) -> bool {
        let since = *self.silent_since.get_or_insert(sent_at);
        let leaves = Instant::now() >= since + self.budget * BUDGETS_TO_LEAVE;
        if leaves {
            self.retire();
            self.down = Some(StoreError::Timeout);
        }
        leaves
    }

    /// The socket lives on while replies on it are awaited.
    pub(super) fn retire(&mut self) {
        self.connection = None;
        self.silent_since = None;
    }

    /// The sentinels name a primary: if it is not this one, this one is left.
    pub(super) fn follow(&mut self, primary: Address) {
        if let Some((_, current)) = &self.connection
            && *current != Endpoint::Tcp(primary)
        {
            self.retire();
        }
    }
}

fn connect_delays() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(MIN_CONNECT_DELAY)
        .with_max_delay(MAX_CONNECT_DELAY)
        .with_jitter()
        .without_max_times()
        .build()
}
