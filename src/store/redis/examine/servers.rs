//! The servers that hold claims, as each topology tells of them, and a connection to each.

use futures_util::future::join_all;

use super::words::cannot_connect;
use crate::store::{
    StoreError,
    examination::{Check, Finding, Severity},
    redis::{
        cluster,
        connection::{DialError, Dialer},
        sentinel::Sentinels,
        slot::SLOTS,
        target::{Address, Endpoint, Topology},
        wire::Wire,
    },
};

pub(super) struct Server {
    /// Where there are several.
    pub(super) address: Option<String>,
    pub(super) client: Wire,
}

pub(super) async fn connect(dialer: &Dialer, findings: &mut Vec<Finding>) -> Vec<Server> {
    match &dialer.target().topology {
        Topology::Standalone { endpoint, .. } => {
            let dialed = dialer.dial(endpoint, None).await;
            one(dialed, "connected".to_owned(), findings)
        }
        Topology::Sentinel {
            sentinels,
            service,
            access,
            ..
        } => {
            let sentinels = Sentinels::new(
                dialer.clone(),
                sentinels.clone(),
                service.clone(),
                access.clone(),
            );
            let Some(primary) = primary_of(&sentinels, findings).await else {
                return Vec::new();
            };
            let dialed = dialer.dial(&Endpoint::Tcp(primary.clone()), None).await;
            let connected = format!("connected to {primary}, the primary of {service}");
            one(dialed, connected, findings)
        }
        Topology::Cluster { seeds } => members(dialer, seeds, findings).await,
    }
}

fn one(
    dialed: Result<Wire, DialError>,
    connected: String,
    findings: &mut Vec<Finding>,
) -> Vec<Server> {
    match dialed {
        Ok(client) => {
            findings.push(Finding::new(Check::Connection, Severity::Ok, connected));
            vec![Server {
                address: None,
                client,
            }]
        }
        Err(fault) => {
            findings.push(unreachable(&fault));
            Vec::new()
        }
    }
}

fn unreachable(fault: &DialError) -> Finding {
    Finding::new(Check::Connection, Severity::Failure, cannot_connect(fault))
}

/// The primary that most of the sentinels name; those that do not are warnings.
async fn primary_of(sentinels: &Sentinels, findings: &mut Vec<Finding>) -> Option<Address> {
    let said = sentinels.survey().await;
    let named = || said.iter().filter_map(|(_, answer)| answer.as_ref().ok());
    let votes = |primary: &Address| named().filter(|one| *one == primary).count();
    let primary = named().max_by_key(|primary| votes(primary)).cloned();
    for (sentinel, answer) in &said {
        let message = match (answer, &primary) {
            (Ok(named), Some(primary)) if named != primary => {
                format!("it names {named} where most name {primary}; see whether it is cut off")
            }
            (Ok(_), _) => continue,
            (Err(fault), _) => format!("it does not tell where the primary is: {fault}"),
        };
        let warning = Finding::new(Check::Topology, Severity::Warning, message);
        findings.push(warning.about(format!("sentinel {sentinel}")));
    }
    if primary.is_none() {
        let error = said.iter().find_map(|(_, answer)| answer.as_ref().err());
        let error = error.map_or(StoreError::Connection, |fault| fault.error);
        let nobody = DialError::new(error, "no sentinel tells where the primary is");
        findings.push(unreachable(&nobody));
    }
    primary
}

async fn members(dialer: &Dialer, seeds: &[Address], findings: &mut Vec<Finding>) -> Vec<Server> {
    let map = match cluster::discover(dialer, seeds.to_vec()).await {
        Ok(map) => map,
        Err(fault) => {
            findings.push(unreachable(&fault));
            return Vec::new();
        }
    };
    let mut addresses: Vec<&Address> = Vec::new();
    let mut served = 0;
    for (first, last, address) in &map.ranges {
        served += last - first + 1;
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if served < SLOTS {
        let message = format!(
            "{} of {SLOTS} slots are served by nobody: their events meet failure modes; look at CLUSTER SLOTS",
            SLOTS - served
        );
        findings.push(Finding::new(Check::Topology, Severity::Failure, message));
    }
    let dialed = addresses.into_iter().map(|address| async move {
        let endpoint = Endpoint::Tcp(address.clone());
        (address.to_string(), dialer.dial(&endpoint, None).await)
    });
    let mut servers = Vec::new();
    for (address, dialed) in join_all(dialed).await {
        let finding = match dialed {
            Ok(client) => {
                servers.push(Server {
                    address: Some(address.clone()),
                    client,
                });
                Finding::new(Check::Connection, Severity::Ok, "connected")
            }
            Err(fault) => unreachable(&fault),
        };
        findings.push(finding.about(address));
    }
    servers
}
