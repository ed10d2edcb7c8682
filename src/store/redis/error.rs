//! What Redis or its client reports, as a [`StoreError`].

use redis::{ErrorKind, RedisError, ServerError};

use crate::store::StoreError;

impl From<&ServerError> for StoreError {
    fn from(error: &ServerError) -> Self {
        from_code(error.code())
    }
}

impl From<&RedisError> for StoreError {
    fn from(error: &RedisError) -> Self {
        if let Some(code) = error.code() {
            return from_code(code);
        }
        match error.kind() {
            ErrorKind::AuthenticationFailed => StoreError::Unauthenticated,
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => StoreError::Protocol,
            _ if error.is_timeout() => StoreError::Timeout,
            _ => StoreError::Connection,
        }
    }
}

/// The error that a script reports as a text, which begins with its code.
pub(super) fn from_text(text: &str) -> StoreError {
    from_code(
        text.trim_start_matches('-')
            .split(' ')
            .next()
            .unwrap_or_default(),
    )
}

/// The first word of an error reply.
fn from_code(code: &str) -> StoreError {
    match code {
        "WRONGTYPE" => StoreError::WrongType,
        "READONLY" => StoreError::ReadOnly,
        "LOADING" | "MASTERDOWN" => StoreError::Loading,
        "OOM" => StoreError::OutOfMemory,
        "MISCONF" => StoreError::MisConfigured,
        "NOSCRIPT" => StoreError::NoScript,
        "NOREPLICAS" => StoreError::NoReplicas,
        "MOVED" | "ASK" | "CROSSSLOT" => StoreError::Moved,
        "CLUSTERDOWN" => StoreError::ClusterDown,
        "TRYAGAIN" => StoreError::TryAgain,
        "BUSY" => StoreError::Busy,
        "NOPERM" => StoreError::Denied,
        "NOAUTH" | "WRONGPASS" => StoreError::Unauthenticated,
        _ => StoreError::Other,
    }
}
