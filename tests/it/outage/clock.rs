//! A Redis whose clock is set while it serves.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use dedupd::grpc::proto::{Reason, SettleOutcome};

use super::world::{AMPLE, World, admit, fresh_ids, reasons};
use crate::support::redis::{Options, redis_62};

/// A server whose clock is as far off as the file `offset` in this directory says.
fn server_on_a_clock(directory: &Path) -> Option<Options> {
    // Other builds bring an allocator that cannot bear the library.
    let (Some(library), Some(server)) = (std::env::var_os("DEDUPD_TEST_FAKETIME"), redis_62())
    else {
        eprintln!("left out: no DEDUPD_TEST_FAKETIME or DEDUPD_TEST_REDIS_62, see tests/run.sh");
        return None;
    };
    let script = format!(
        "#!/bin/sh\n\
         export FAKETIME_TIMESTAMP_FILE={offset} FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1\n\
         export LD_PRELOAD={library}\n\
         exec {server} \"$@\"\n",
        offset = directory.join("offset").display(),
        library = library.display(),
        server = server.display(),
    );
    let path = directory.join("redis-server");
    fs::write(&path, script).expect("the directory is ours");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("the file is ours");
    Some(Options {
        binary: Some(path),
        ..Options::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn r19_a_clock_that_jumps_ends_claims_or_keeps_them() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let set_clock = |offset: &str| {
        fs::write(directory.path().join("offset"), offset).expect("the directory is ours");
    };
    set_clock("+0s");
    let Some(options) = server_on_a_clock(directory.path()) else {
        return;
    };
    let mut world = World::start_on(AMPLE, options).await;
    let ids = fresh_ids(10);
    let claims = admit(&mut world.client, "leased", &ids, "").await;
    assert_eq!(reasons(&claims), [Reason::FirstSeen; 10]);
    set_clock("+3600s");
    for verdict in &claims {
        assert_eq!(world.confirm(&verdict.claim).await, SettleOutcome::NotHeld);
    }
    let again = admit(&mut world.client, "leased", &ids, "").await;
    assert_eq!(reasons(&again), [Reason::FirstSeen; 10]);
    // Set back, so that these live for an hour too long: nobody else is admitted meanwhile.
    set_clock("+0s");
    let copies = admit(&mut world.client, "leased", &ids, "").await;
    assert_eq!(reasons(&copies), [Reason::InFlight; 10]);
    for verdict in &again {
        assert_eq!(world.confirm(&verdict.claim).await, SettleOutcome::Applied);
    }
    let copies = admit(&mut world.client, "leased", &ids, "").await;
    assert_eq!(reasons(&copies), [Reason::Redelivery; 10]);
}
