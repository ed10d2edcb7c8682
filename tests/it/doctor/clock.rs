//! A server whose clock is wrong.

use super::doctor;
use crate::support::redis::{Options, RedisServer, faketime, redis_62};

#[test]
fn r19_a_clock_that_is_off_is_a_warning() {
    let (Some(_), Some(binary)) = (faketime(), redis_62()) else {
        eprintln!("left out: no DEDUPD_TEST_FAKETIME or DEDUPD_TEST_REDIS_62, see tests/run.sh");
        return;
    };
    for (clock_ahead_s, expected) in [
        (3600, "the server's clock is 3600.0 s ahead of ours"),
        (-90, "the server's clock is 90.0 s behind ours"),
    ] {
        let redis = RedisServer::start(Options {
            binary: Some(binary.clone()),
            clock_ahead_s,
            ..Options::default()
        });
        doctor(&redis.url()).check_warnings(&[("clock", expected)]);
    }
}
