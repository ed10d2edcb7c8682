//! Each fault, on a wire to a real server.

use std::{
    io::{BufRead, BufReader, ErrorKind, Write},
    net::TcpStream,
    time::Instant,
};

use super::*;
use crate::support::redis::{Options, RedisServer};

const LONG: Duration = Duration::from_secs(5);
/// Long enough for a reply that is not lost to arrive.
const SHORT: Duration = Duration::from_millis(200);

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(proxy: &Proxy) -> Self {
        Self(BufReader::new(TcpStream::connect(proxy.addr()).unwrap()))
    }

    fn send(&mut self, command: &str) {
        let line = format!("{command}\r\n");
        self.0.get_mut().write_all(line.as_bytes()).unwrap();
    }

    /// One line; none within `patience`: `None`; the end of the connection: empty.
    fn receive(&mut self, patience: Duration) -> Option<String> {
        self.0.get_mut().set_read_timeout(Some(patience)).unwrap();
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(_) => Some(line.trim_end().to_owned()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Some(String::new()),
            Err(error) => panic!("{error}"),
        }
    }

    fn ask(&mut self, command: &str) -> Option<String> {
        self.send(command);
        self.receive(LONG)
    }
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn wired() -> (RedisServer, Arc<Proxy>, Client) {
    let server = RedisServer::start(Options::default());
    let proxy = Proxy::start(server.addr());
    let mut client = Client::connect(&proxy);
    assert_eq!(client.ask("PING"), some("+PONG"));
    (server, proxy, client)
}

fn wait_for(what: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !what() {
        assert!(Instant::now() < deadline, "not within {LONG:?}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn connections_are_counted() {
    let (_server, proxy, client) = wired();
    let _other = Client::connect(&proxy);
    wait_for(|| proxy.connections() == 2);
    drop(client);
    wait_for(|| proxy.connections() == 1);
    assert_eq!(proxy.accepted(), 2);
}

#[test]
fn delays_add_up_once_for_a_pipeline() {
    let (_server, proxy, mut client) = wired();
    proxy.delay_requests(Duration::from_millis(100));
    proxy.delay_replies(Duration::from_millis(150));
    let begin = Instant::now();
    for _ in 0..10 {
        client.send("PING");
        thread::sleep(Duration::from_millis(5));
    }
    for _ in 0..10 {
        assert_eq!(client.receive(LONG), some("+PONG"));
    }
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(250), "{took:?}");
    assert!(took < Duration::from_millis(2000), "{took:?}");
    proxy.pass();
    let begin = Instant::now();
    assert_eq!(client.ask("PING"), some("+PONG"));
    assert!(begin.elapsed() < Duration::from_millis(250));
}

#[test]
fn a_swallowed_reply_was_executed() {
    let (server, proxy, mut client) = wired();
    proxy.swallow_replies(1);
    client.send("SET key value");
    assert_eq!(client.receive(SHORT), None);
    assert_eq!(proxy.replies_to_swallow(), 0);
    wait_for(|| server.cli(&["GET", "key"]) == "value");
    client.send("SET key later");
    assert_eq!(client.receive(SHORT), None);
    wait_for(|| server.cli(&["GET", "key"]) == "later");
    assert_eq!(proxy.connections(), 1);
    assert_eq!(Client::connect(&proxy).ask("GET key"), some("$5"));
}

#[test]
fn held_replies_arrive_when_released() {
    let (server, proxy, mut client) = wired();
    proxy.hold_replies();
    client.send("SET key value");
    assert_eq!(client.receive(SHORT), None);
    wait_for(|| server.cli(&["GET", "key"]) == "value");
    proxy.release_replies();
    assert_eq!(client.receive(LONG), some("+OK"));
}

#[test]
fn a_black_hole_accepts_and_forwards_nothing() {
    let (server, proxy, mut client) = wired();
    proxy.black_hole();
    let mut late = Client::connect(&proxy);
    late.send("PING");
    client.send("SET key value");
    assert_eq!(client.receive(SHORT), None);
    assert_eq!(late.receive(SHORT), None);
    assert_eq!(server.cli(&["GET", "key"]), "");
    proxy.pass();
    assert_eq!(client.receive(LONG), some("+OK"));
    assert_eq!(late.receive(LONG), some("+PONG"));
}

#[test]
fn cut_connections_lose_what_was_held() {
    let (server, proxy, mut client) = wired();
    proxy.black_hole();
    client.send("SET key value");
    assert_eq!(client.receive(SHORT), None);
    proxy.cut_connections();
    assert_eq!(client.receive(LONG), some(""));
    wait_for(|| proxy.connections() == 0);
    proxy.pass();
    assert_eq!(Client::connect(&proxy).ask("PING"), some("+PONG"));
    assert_eq!(server.cli(&["GET", "key"]), "");
}

#[test]
fn new_connections_follow_the_target() {
    let (first, proxy, mut client) = wired();
    let second = RedisServer::start(Options::default());
    proxy.set_target(second.addr());
    assert_eq!(client.ask("SET key first"), some("+OK"));
    assert_eq!(Client::connect(&proxy).ask("SET key second"), some("+OK"));
    assert_eq!(first.cli(&["GET", "key"]), "first");
    assert_eq!(second.cli(&["GET", "key"]), "second");
}

#[test]
fn a_server_that_dies_ends_its_connections() {
    let (mut server, proxy, mut client) = wired();
    server.kill();
    assert_eq!(client.receive(LONG), some(""));
    assert_eq!(Client::connect(&proxy).receive(LONG), some(""));
    wait_for(|| proxy.connections() == 0);
}

#[test]
fn requests_are_no_faster_than_their_limit() {
    let (_server, proxy, mut client) = wired();
    let mut other = Client::connect(&proxy);
    assert_eq!(other.ask("PING"), some("+PONG"));
    proxy.limit_requests(20_000);
    let command = format!("ECHO {}", "x".repeat(993));
    let begin = Instant::now();
    for _ in 0..5 {
        client.send(&command);
        other.send(&command);
    }
    for client in [&mut client, &mut other] {
        for _ in 0..5 {
            assert_eq!(client.receive(LONG), some("$993"));
            assert_eq!(client.receive(LONG).map(|text| text.len()), Some(993));
        }
    }
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(400), "10 kB in {took:?}");
    proxy.pass();
    let begin = Instant::now();
    assert_eq!(client.ask(&command), some("$993"));
    assert!(begin.elapsed() < Duration::from_millis(250));
}

#[test]
fn a_refused_connection_is_refused_until_packets_pass() {
    let (_server, proxy, mut client) = wired();
    proxy.refuse();
    assert_eq!(client.receive(LONG), some(""));
    let connects = || TcpStream::connect(proxy.addr());
    wait_for(|| connects().is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused));
    proxy.pass();
    wait_for(|| connects().is_ok());
    assert_eq!(Client::connect(&proxy).ask("PING"), some("+PONG"));
}

#[test]
fn every_connection_can_be_made_deaf() {
    let (server, proxy, mut client) = wired();
    proxy.swallow_all_replies();
    for client in [&mut client, &mut Client::connect(&proxy)] {
        client.send("INCR executed");
        assert_eq!(client.receive(SHORT), None);
    }
    wait_for(|| server.cli(&["GET", "executed"]) == "2");
    proxy.pass();
    assert_eq!(Client::connect(&proxy).ask("PING"), some("+PONG"));
}

#[test]
fn only_the_severed_address_is_held() {
    let (server, proxy, mut client) = wired();
    proxy.sever(Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    client.send("INCR held");
    assert_eq!(client.receive(SHORT), None);
    assert_eq!(server.cli(&["GET", "held"]), "");
    proxy.sever(Some(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2))));
    assert_eq!(client.receive(LONG), some(":1"));
}
