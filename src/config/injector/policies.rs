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

fn without_store(text: &str, store: &Store) -> Result<WithoutStore, Vec<String>> {
    let named = store.url.as_ref().map(|source| match source {
        StoreSource::Url(url) => url.as_str(),
        StoreSource::Secret(_) => FROM_A_SECRET,
    });
    let says_password = store.password.is_some();
    let refusal = |errors: ConfigErrors| -> Vec<String> {
        errors.0.iter().map(ToString::to_string).collect()
    };
    match load(text, named, says_password) {
        Ok(config) => {
            if !says_password && holds_password(&config) {
                return Err(vec![
                    "store.url holds a password, which everyone who may read a pod could read: put the URL into a Secret and name it in sidecar.store.secret".to_owned(),
                ]);
            }
            Ok(match config.store.url {
                StoreUrl::Memory => WithoutStore::InMemory,
                StoreUrl::Redis(_) => WithoutStore::OwnStore,
            })
        }
        // An annotation of the pod may name the store.
        Err(errors) if named.is_none() => match load(text, Some(FROM_A_SECRET), says_password) {
            Ok(_) => Ok(WithoutStore::Refused(refusal(errors).join("; "))),
            Err(errors) => Err(refusal(errors)),
        },
        Err(errors) => Err(refusal(errors)),
    }
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
