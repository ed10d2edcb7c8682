//! A client's connection to a running service.

use std::{error::Error, time::Duration};

use tonic::transport::{Channel, Endpoint};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot reach {address}: {why}")]
pub struct Unreachable {
    address: String,
    why: String,
}

/// Connects to `HOST:PORT` or `unix:PATH`.
pub async fn dial(address: &str) -> Result<Channel, Unreachable> {
    let fault = |why: String| Unreachable {
        address: address.to_owned(),
        why,
    };
    let uri = match address.strip_prefix("unix:") {
        // tonic takes an absolute path behind unix: as it is.
        Some(path) => format!("unix:{}", path.strip_prefix("//").unwrap_or(path)),
        None if address.contains("://") => {
            return Err(fault(
                "give HOST:PORT or unix:PATH; TLS is not spoken here".to_owned(),
            ));
        }
        None => format!("http://{address}"),
    };
    let endpoint = Endpoint::from_shared(uri).map_err(|error| fault(error.to_string()))?;
    endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .connect()
        .await
        .map_err(|error| {
            let cause = error.source().map(ToString::to_string);
            fault(cause.unwrap_or_else(|| error.to_string()))
        })
}
