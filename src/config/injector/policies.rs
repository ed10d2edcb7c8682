//! The texts that sidecars are started with, validated as sidecars do.

use std::{collections::BTreeMap, ffi::OsString};

use super::{PolicyText, Store, StoreSource, WithoutStore};
use crate::{
    config::{
        Config, ConfigErrors, Flags, StoreUrl, load as load_service,
        scope::{Scope, shown_key},
        written::Field,
    },
    store::redis::target::Password,
};

/// Stands for what only the pod will see.
const FROM_A_SECRET: &str = "redis://from-a-secret";

pub(super) fn policies(
    written: Option<Field<BTreeMap<String, Field<String>>>>,
    store: &Store,
    scope: &mut Scope<'_>,
) -> BTreeMap<String, PolicyText> {
    let mut scope_of_all = scope.at("policies");
    let written = scope_of_all.read("", written).unwrap_or_default();
    if !written.is_empty() && !written.contains_key(super::validate::DEFAULT_POLICY) {
        scope_of_all.fault(format!(
            "needs one named {}, for pods that name none",
            super::validate::DEFAULT_POLICY
        ));
    }
    let mut policies = BTreeMap::new();
    for (name, text) in written {
        let mut scope = scope_of_all.at(shown_key(&name));
        let Some(text) = scope.read("", Some(text)) else {
            continue;
        };
        match without_store(&text, store) {
            Ok(without_store) => {
                policies.insert(
                    name,
                    PolicyText {
                        text,
                        without_store,
                    },
                );
            }
            Err(faults) => faults.into_iter().for_each(|fault| scope.fault(fault)),
        }
    }
    policies
}

/// Valid beside the store that is configured here, or its own, or one that an annotation names.
fn without_store(text: &str, store: &Store) -> Result<WithoutStore, Vec<String>> {
    let says_password = store.password.is_some();
    let own = load(text, None, false);
    if own.as_ref().is_ok_and(holds_password) {
        return Err(vec![
            "store.url holds a password, which everyone who may read a pod could read: put the URL into a Secret and name it in sidecar.store.secret".to_owned(),
        ]);
    }
    if names_redis(&own) || (says_password && names_redis(&load(text, None, true))) {
        return Ok(WithoutStore::OwnStore);
    }
    let url = match &store.url {
        Some(StoreSource::Url(url)) => url,
        Some(StoreSource::Secret(_)) | None => FROM_A_SECRET,
    };
    match (load(text, Some(url), says_password), own) {
        (Ok(_), Ok(_)) => Ok(WithoutStore::InMemory),
        (Ok(_), Err(errors)) => Ok(WithoutStore::Refused(messages(&errors).join("; "))),
        (Err(errors), _) => Err(messages(&errors)),
    }
}

fn names_redis(loaded: &Result<Config, ConfigErrors>) -> bool {
    match loaded {
        Ok(config) => config.store.url != StoreUrl::Memory,
        Err(_) => false,
    }
}

fn messages(errors: &ConfigErrors) -> Vec<String> {
    errors.0.iter().map(ToString::to_string).collect()
}

fn load(text: &str, store_url: Option<&str>, says_password: bool) -> Result<Config, ConfigErrors> {
    let flags = Flags {
        without_store_files: true,
        ..Flags::default()
    };
    let environment = |name: &str| -> Option<OsString> {
        match name {
            "DEDUPD_CONFIG_INLINE" => Some(text.into()),
            "DEDUPD_STORE_URL" => store_url.map(Into::into),
            "DEDUPD_STORE_PASSWORD" => says_password.then(|| "from-a-secret".into()),
            _ => None,
        }
    };
    load_service(&flags, &environment).map(|(config, _)| config)
}

fn holds_password(config: &Config) -> bool {
    match &config.store.url {
        StoreUrl::Memory => false,
        StoreUrl::Redis(target) => matches!(target.access.password, Some(Password::Text(_))),
    }
}
