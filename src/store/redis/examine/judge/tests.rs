use super::*;

const EXPECTED: Expected = Expected {
    is_cluster: false,
    wait_replicas: 0,
    budget: Duration::from_millis(50),
};

fn judged(info: &str, expected: Expected) -> Vec<(Check, Severity)> {
    let observed = Observed {
        info: Some(Info::parse(info)),
        ..Observed::default()
    };
    let found = findings(&observed, expected);
    let all = found.iter().map(|one| (one.check, one.severity));
    all.filter(|(_, severity)| *severity > Severity::Ok)
        .collect()
}

#[test]
fn each_line_is_judged() {
    use Check::{Eviction, Memory, Persistence, Replication, Role, Topology, Version};
    use Severity::{Failure, Note, Warning};
    let rows: [(&str, &[(Check, Severity)]); 17] = [
        ("", &[]),
        ("redis_version:6.0.20", &[(Version, Failure)]),
        ("redis_version:6.2.0", &[(Version, Note)]),
        ("redis_version:7.4.1", &[]),
        ("redis_version:7.2.4\nvalkey_version:8.1.0", &[]),
        ("redis_mode:sentinel", &[(Topology, Failure)]),
        ("redis_mode:cluster", &[(Topology, Failure)]),
        ("role:slave", &[(Role, Failure)]),
        (
            "role:master\nloading:1\nconnected_slaves:1\nslave0:state=online,offset=5,lag=0",
            &[(Role, Warning)],
        ),
        (
            "maxmemory_policy:noeviction\nevicted_keys:3",
            &[(Eviction, Note)],
        ),
        ("maxmemory_policy:volatile-lfu", &[(Eviction, Warning)]),
        ("maxmemory:0\nused_memory:5", &[(Memory, Note)]),
        ("maxmemory:100\nused_memory:89", &[]),
        (
            "maxmemory:100\nused_memory:18446744073709551615",
            &[(Memory, Warning)],
        ),
        (
            "aof_enabled:1\naof_last_write_status:err",
            &[(Persistence, Warning)],
        ),
        (
            "aof_enabled:0\nrdb_last_bgsave_status:err",
            &[(Persistence, Warning)],
        ),
        (
            "role:master\nmaster_repl_offset:9000000\nconnected_slaves:2\n\
             slave0:state=online,offset=1,lag=0\nslave1:state=online,offset=9000000,lag=60",
            &[(Replication, Warning)],
        ),
    ];
    for (info, expected) in rows {
        assert_eq!(judged(info, EXPECTED), expected, "{info}");
    }
    let on_a_cluster = Expected {
        is_cluster: true,
        ..EXPECTED
    };
    assert_eq!(judged("redis_mode:cluster", on_a_cluster), []);
    let waiting = Expected {
        wait_replicas: 1,
        ..EXPECTED
    };
    let with_one = "role:master\nconnected_slaves:1\nslave0:state=online,offset=5,lag=0";
    assert_eq!(judged(with_one, waiting), []);
    let without = [(Check::Replication, Severity::Failure)];
    assert_eq!(judged("role:master", waiting), without);
    assert_eq!(
        judged(&with_one.replace("lag=0", "lag=60"), waiting),
        without
    );
    let alone = judged("redis_mode:standalone", on_a_cluster);
    assert_eq!(alone, [(Topology, Failure)]);
}

#[test]
fn a_clock_is_as_far_off_as_is_certain() {
    let rows = [
        (0.5, 0.0, Severity::Ok),
        (-1.2, 0.3, Severity::Ok),
        (1.2, 0.1, Severity::Warning),
        (-3600.0, 1.0, Severity::Warning),
    ];
    for (offset_s, error_s, expected) in rows {
        let found = clock(ClockReading { offset_s, error_s });
        assert_eq!(found.severity, expected, "{found:?}");
    }
}

#[test]
fn a_round_trip_is_held_against_the_budget() {
    let rows = [
        (24, Severity::Ok),
        (25, Severity::Warning),
        (49, Severity::Warning),
        (50, Severity::Failure),
    ];
    for (median_ms, expected) in rows {
        let found = round_trip(Duration::from_millis(median_ms), EXPECTED.budget);
        assert_eq!(found.severity, expected, "{found:?}");
    }
}
