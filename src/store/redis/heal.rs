//! Keys that would stay for ever, and the script that gives them a TTL.

use redis::Value;

use super::script::{Script, ScriptCall};
use crate::{
    domain::key::KeyScheme,
    store::{
        StoreError,
        heal::{HealRequest, Healed},
    },
};

/// A call for each key, so that each goes where its key is.
pub(super) fn calls(
    request: &HealRequest,
    schemes: &[KeyScheme],
) -> impl Iterator<Item = ScriptCall> {
    request.items.iter().map(|item| {
        let mut key = Vec::with_capacity(64);
        let name = request.names.resolve(item.key);
        schemes[usize::from(item.namespace.0)].write_key(name, item.partition, &mut key);
        let mut call = ScriptCall::new(Script::Heal);
        call.keys.push(key);
        call.arguments
            .push(item.hold.get().to_string().into_bytes());
        call
    })
}

pub(super) fn outcome(reply: Result<Value, StoreError>) -> Result<Healed, StoreError> {
    match reply? {
        Value::Int(0) => Ok(Healed::Sound),
        Value::Int(1) => Ok(Healed::Healed),
        Value::Int(2) => Ok(Healed::Left),
        _ => Err(StoreError::Protocol),
    }
}
