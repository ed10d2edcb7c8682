//! The servers do what the tests take for granted.

use std::os::unix::net::UnixStream;

use super::*;

const ORDER: [&str; 3] = ["EVAL", "return tostring('a' < 'B')", "0"];

#[test]
fn lua_compares_bytes_without_a_locale() {
    let server = RedisServer::start(Options::default());
    assert_eq!(server.cli(&ORDER), "false");
}

#[test]
fn lua_collates_under_a_locale() {
    let Some(locale) = collating_locale() else {
        eprintln!("left out: no DEDUPD_TEST_LOCALE, see tests/run.sh");
        return;
    };
    for binary in [None, redis_62()] {
        let server = RedisServer::start(Options {
            binary,
            locale: Some(locale.clone()),
            ..Options::default()
        });
        assert_eq!(server.cli(&ORDER), "true");
    }
}

#[test]
fn redis_62_is_a_redis_62() {
    let Some(binary) = redis_62() else {
        eprintln!("left out: no DEDUPD_TEST_REDIS_62, see tests/run.sh");
        return;
    };
    let server = RedisServer::start(Options {
        binary: Some(binary),
        ..Options::default()
    });
    assert!(
        server
            .cli(&["INFO", "server"])
            .contains("redis_version:6.2.")
    );
}

#[test]
fn options_reach_the_server() {
    let server = RedisServer::start(Options {
        password: Some("secret".into()),
        args: vec!["--maxmemory".into(), "2mb".into()],
        ..Options::default()
    });
    assert_eq!(
        server.cli(&["CONFIG", "GET", "maxmemory"]),
        "maxmemory\n2097152"
    );
    assert_eq!(
        server.url(),
        format!("redis://:secret@127.0.0.1:{}", server.port())
    );
    UnixStream::connect(server.socket_path()).expect("the socket listens");
}

#[test]
fn a_paused_server_hangs_and_goes_on() {
    let server = RedisServer::start(Options::default());
    server.pause();
    assert!(!replies(server.addr()));
    server.resume();
    assert!(replies(server.addr()));
}

#[test]
fn a_restarted_server_is_empty_and_on_the_same_port() {
    let mut server = RedisServer::start(Options::default());
    let (port, pid) = (server.port(), server.pid());
    assert_eq!(server.cli(&["SET", "key", "value"]), "OK");
    server.kill();
    assert!(!replies(server.addr()));
    server.restart();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(server.cli(&["GET", "key"]), "");
}

#[test]
fn a_dropped_server_is_gone() {
    let server = RedisServer::start(Options::default());
    let (addr, directory) = (server.addr(), server.directory.path().to_owned());
    drop(server);
    assert!(!replies(addr));
    assert!(!directory.exists());
}

#[test]
fn tls_is_for_those_who_trust_us_and_mutual_for_those_whom_we_trust() {
    for (tls, without_a_certificate) in [(Tls::ServerOnly, "PONG"), (Tls::Mutual, "")] {
        let server = RedisServer::start(Options {
            tls: Some(tls),
            ..Options::default()
        });
        assert_eq!(server.cli(&["PING"]), "PONG");
        assert!(!replies(server.addr()), "plain TCP is not served");
        assert!(server.url().starts_with("rediss://"));
        let ca = certificates::path("ca.pem");
        let mut anonymous = Command::new("redis-cli");
        anonymous.args(["-p", &server.port().to_string(), "--tls", "--cacert"]);
        let output = anonymous.arg(ca).arg("PING").output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text.trim_end(), without_a_certificate, "{output:?}");
    }
}

#[test]
fn a_user_may_do_what_its_rules_say() {
    let options = Options::default().user("dedupd", "secret", "~idem:* +get +set");
    let server = RedisServer::start(options);
    let as_user = |command: &[&str]| {
        let user = ["--user", "dedupd", "--pass", "secret", "--no-auth-warning"];
        server.cli(&[&user, command].concat())
    };
    assert_eq!(as_user(&["SET", "idem:1", "value"]), "OK");
    assert!(as_user(&["SET", "other", "value"]).starts_with("NOPERM"));
    assert!(as_user(&["DEL", "idem:1"]).starts_with("NOPERM"));
}

#[test]
fn a_durable_server_loses_nothing_that_it_acknowledged() {
    let mut server = RedisServer::start(Options::default().durable());
    assert_eq!(server.cli(&["SET", "key", "value"]), "OK");
    server.restart();
    assert_eq!(server.cli(&["GET", "key"]), "value");
}
