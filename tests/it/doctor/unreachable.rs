//! No connection, and why; and no answer, however the server keeps silent.

use std::{io::Write, net::TcpListener, thread, time::Duration};

use super::{CONFIG, Report, doctor, run};
use crate::support::{
    proxy::Proxy,
    redis::{Options, RedisServer},
};

/// What starting a process may take on a busy machine.
const SLACK: Duration = Duration::from_secs(2);

fn hurried(url: &str, timeout: &str) -> Report {
    run(
        &["--output", "json", "--timeout", timeout],
        &[("DEDUPD_CONFIG_INLINE", CONFIG), ("DEDUPD_STORE_URL", url)],
    )
}

#[test]
fn nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("bound");
    drop(listener);
    let report = doctor(&format!("redis://user:hunter2@{addr}"));
    report.check_failures(&[("connection", "cannot connect: Connection refused")]);
    assert!(report.stdout.contains("see whether the server runs"));
    assert!(!report.stdout.contains("hunter2"), "{report:?}");
}

#[test]
fn a_name_that_is_none() {
    let report = hurried("redis://no-such-host.invalid", "5s");
    report.check_failures(&[("connection", "cannot connect: ")]);
    assert!(report.took < Duration::from_secs(5) + SLACK, "{report:?}");
}

#[test]
fn the_credentials_are_refused() {
    let redis = RedisServer::start(Options {
        password: Some("correct".to_owned()),
        ..Options::default()
    });
    doctor(&redis.url()).check_warnings(&[]);
    let addr = redis.addr();
    for (url, part) in [
        (format!("redis://{addr}"), "NOAUTH"),
        (
            format!("redis://:hunter2@{addr}"),
            "invalid username-password pair",
        ),
        (
            format!("redis://nobody:hunter2@{addr}"),
            "invalid username-password pair",
        ),
    ] {
        let report = doctor(&url);
        report.check_failures(&[("connection", part)]);
        assert!(
            report.stdout.contains("correct user and password"),
            "{report:?}"
        );
        assert!(!report.stdout.contains("hunter2"), "{report:?}");
    }
}

#[test]
fn too_many_clients() {
    let redis = RedisServer::start(Options::default());
    redis.cli(&["CONFIG", "SET", "maxclients", "1"]);
    let _other = std::net::TcpStream::connect(redis.addr()).expect("Redis listens");
    thread::sleep(Duration::from_millis(100));
    // Its refusal may come too late to be read.
    doctor(&redis.url()).check_failures(&[("connection", "cannot connect: ")]);
}

/// Before the connection, and after it.
#[test]
fn r11_a_stopped_server_is_no_answer_in_time() {
    let redis = RedisServer::start(Options::default());
    redis.pause();
    // The kernel takes the connection; the handshake has four budgets.
    let report = hurried(&redis.url(), "1s");
    report.check_failures(&[("connection", "no answer within 1s, while connecting")]);
    assert!(report.took < Duration::from_secs(1) + SLACK, "{report:?}");
    let report = hurried(&redis.url(), "8s");
    report.check_failures(&[("connection", "cannot connect: ")]);
    redis.resume();
    doctor(&redis.url()).check_warnings(&[]);
}

#[test]
fn r11_a_black_hole_is_no_answer_in_time() {
    let redis = RedisServer::start(Options::default());
    let proxy = Proxy::start(redis.addr());
    proxy.black_hole();
    let report = hurried(&redis.url_at(proxy.addr()), "500ms");
    report.check_failures(&[("connection", "no answer within 500ms")]);
    assert!(
        report.stdout.contains("a firewall swallows its packets"),
        "{report:?}"
    );
    assert!(
        report.took < Duration::from_millis(500) + SLACK,
        "{report:?}"
    );
}

/// What was found by then is told.
#[test]
fn r11_a_slow_server_is_cut_short() {
    let redis = RedisServer::start(Options::default());
    let proxy = Proxy::start(redis.addr());
    proxy.delay_replies(Duration::from_millis(300));
    let report = hurried(&redis.url_at(proxy.addr()), "4s");
    report.check_failures(&[("connection", "no answer within 4s, while ")]);
    let rows = report.findings();
    assert!(
        rows.iter().any(|(check, ..)| check == "version"),
        "{report:?}"
    );
    assert!(report.took < Duration::from_secs(4) + SLACK, "{report:?}");
}

/// A stranger's answers, of which nothing makes sense.
#[test]
fn something_else_listens_there() {
    for greeting in [
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "\u{0}\u{1}\u{2}\r\n",
        "$999999999999\r\n",
        "*3\r\n",
        "",
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("bound");
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut stream = stream;
                // An error says that the other side has gone.
                let _ = stream.write_all(greeting.as_bytes());
                drop(stream);
            }
        });
        let report = hurried(&format!("redis://{addr}"), "3s");
        report.check_failures(&[("connection", "cannot connect: ")]);
        assert!(
            report.took < Duration::from_secs(3) + SLACK,
            "{greeting:?}: {report:?}"
        );
    }
}
