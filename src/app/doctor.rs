//! The store as the service would open it, examined once.

use std::{io, time::Duration};

use tokio::runtime;

use super::{Tasks, open_store};
use crate::{
    clock::Clock,
    config::Config,
    engine::judgement,
    store::examination::{Examination, ExamineRequest},
};

/// Writes nothing that stays, and takes no longer than `limit`.
pub(crate) fn examine(config: &Config, limit: Duration) -> io::Result<Examination> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut examination = runtime.block_on(async {
        let clock = Clock::system();
        let store = open_store(config, &clock, &mut Tasks::default());
        let namespaces = config.namespaces.iter();
        let request = ExamineRequest {
            namespaces: namespaces.map(|policy| policy.name().to_string()).collect(),
            clock,
            limit,
            is_thorough: true,
        };
        store.examine(request).await
    });
    // A name that is being looked up would hold it.
    runtime.shutdown_background();
    let contracts = config.namespaces.iter().zip(&examination.contracts);
    let contracts: Vec<_> = contracts
        .filter_map(|(policy, found)| {
            judgement::contract(policy.name().as_str(), &policy.contract(), found)
        })
        .collect();
    let samples: Vec<_> = examination.samples.iter().map(judgement::sample).collect();
    examination
        .findings
        .extend(contracts.into_iter().chain(samples));
    Ok(examination)
}
