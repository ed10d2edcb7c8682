//! A faulty wire between the service and Redis.
//!
//! It does what a real TCP path can do: be slow, stall, lose the way back, break, lead elsewhere.
//! It never drops bytes out of the middle of a stream that goes on: a client that pipelines would
//! take the next reply for the lost one, which no network can make it do.
//!
//! The proxy has a thread and a runtime of its own, so a test may block.

use std::{
    future,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};

const CHUNK_BYTES: usize = 64 * 1024;
/// Chunks under way in one direction of a connection; past that the sender waits.
const CHUNKS_IN_FLIGHT: usize = 1024;

#[derive(Debug, Clone)]
struct Faults {
    target: SocketAddr,
    request_delay: Duration,
    reply_delay: Duration,
    replies_to_swallow: usize,
    hold_requests: bool,
    hold_replies: bool,
    /// Connections that were accepted under an earlier number are cut.
    generation: u64,
}

#[derive(Debug)]
pub(crate) struct Proxy {
    addr: SocketAddr,
    faults: watch::Sender<Faults>,
    counts: Arc<Counts>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicUsize,
    open: AtomicUsize,
}

impl Proxy {
    pub(crate) fn start(target: SocketAddr) -> Arc<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a socket of ours");
        let addr = listener.local_addr().expect("a bound socket");
        let (faults, on_wire) = watch::channel(Faults {
            target,
            request_delay: Duration::ZERO,
            reply_delay: Duration::ZERO,
            replies_to_swallow: 0,
            hold_requests: false,
            hold_replies: false,
            generation: 0,
        });
        let counts = Arc::new(Counts::default());
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn({
            let (faults, counts) = (faults.clone(), Arc::clone(&counts));
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .expect("a runtime");
                runtime.block_on(async {
                    tokio::select! {
                        () = accept(listener, &faults, &on_wire, &counts) => {}
                        _ = stopped => {}
                    }
                });
            }
        });
        Arc::new(Self {
            addr,
            faults,
            counts,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Connections that are open now.
    pub(crate) fn connections(&self) -> usize {
        self.counts.open.load(Ordering::SeqCst)
    }

    /// Connections that were ever accepted.
    pub(crate) fn accepted(&self) -> usize {
        self.counts.accepted.load(Ordering::SeqCst)
    }

    /// Ends every fault. What was held goes on; a connection that has lost replies stays deaf.
    pub(crate) fn pass(&self) {
        self.change(|faults| {
            faults.request_delay = Duration::ZERO;
            faults.reply_delay = Duration::ZERO;
            faults.replies_to_swallow = 0;
            faults.hold_requests = false;
            faults.hold_replies = false;
        });
    }

    /// Latency, not bandwidth: chunks are under way together.
    pub(crate) fn delay_requests(&self, delay: Duration) {
        self.change(|faults| faults.request_delay = delay);
    }

    pub(crate) fn delay_replies(&self, delay: Duration) {
        self.change(|faults| faults.reply_delay = delay);
    }

    /// Each of the next `chunks` request chunks makes its connection deaf: this request and later
    /// ones are executed, and none of their replies arrives, while the connection stays up.
    /// Requests on a deaf connection are not counted; those of a client's handshake are.
    pub(crate) fn swallow_replies(&self, chunks: usize) {
        self.change(|faults| faults.replies_to_swallow = chunks);
    }

    /// How many chunks of [`Self::swallow_replies`] are still to come.
    pub(crate) fn replies_to_swallow(&self) -> usize {
        self.faults.borrow().replies_to_swallow
    }

    /// Accepts and forwards nothing, either way. What was sent meanwhile arrives after
    /// [`Self::pass`], as over a real network; to lose it, cut the connections first.
    pub(crate) fn black_hole(&self) {
        self.change(|faults| {
            faults.hold_requests = true;
            faults.hold_replies = true;
        });
    }

    /// Requests are executed; their replies wait for [`Self::release_replies`].
    pub(crate) fn hold_replies(&self) {
        self.change(|faults| faults.hold_replies = true);
    }

    pub(crate) fn release_replies(&self) {
        self.change(|faults| faults.hold_replies = false);
    }

    /// Closes every open connection, with what is under way in it. New ones are accepted.
    pub(crate) fn cut_connections(&self) {
        self.change(|faults| faults.generation += 1);
    }

    /// Where new connections lead to; open ones stay where they are.
    pub(crate) fn set_target(&self, target: SocketAddr) {
        self.change(|faults| faults.target = target);
    }

    fn change(&self, change: impl FnOnce(&mut Faults)) {
        self.faults.send_modify(change);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is already on stderr.
            let _ = thread.join();
        }
    }
}

async fn accept(
    listener: std::net::TcpListener,
    faults: &watch::Sender<Faults>,
    on_wire: &watch::Receiver<Faults>,
    counts: &Arc<Counts>,
) {
    let listener = TcpListener::from_std(listener).expect("a socket of ours");
    loop {
        let (client, _) = listener.accept().await.expect("a connection");
        counts.accepted.fetch_add(1, Ordering::SeqCst);
        counts.open.fetch_add(1, Ordering::SeqCst);
        let wire = Wire {
            generation: on_wire.borrow().generation,
            faults: faults.clone(),
            on_wire: on_wire.clone(),
            deaf: Arc::default(),
        };
        let counts = Arc::clone(counts);
        tokio::spawn(async move {
            wire.carry(client).await;
            counts.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Request,
    Reply,
}

/// One proxied connection.
#[derive(Debug)]
struct Wire {
    generation: u64,
    faults: watch::Sender<Faults>,
    on_wire: watch::Receiver<Faults>,
    deaf: Arc<AtomicBool>,
}

impl Wire {
    async fn carry(&self, client: TcpStream) {
        tokio::select! {
            // A cut wins over whatever is let go at the same moment.
            biased;
            () = self.until(|faults| faults.generation != self.generation) => {}
            () = self.forward(client) => {}
        }
    }

    async fn forward(&self, client: TcpStream) {
        self.until(|faults| !faults.hold_requests).await;
        let target = self.on_wire.borrow().target;
        let Ok(server) = TcpStream::connect(target).await else {
            return;
        };
        let no_delay = client.set_nodelay(true).and(server.set_nodelay(true));
        no_delay.expect("a TCP socket");
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let requests = async {
            self.pump(Direction::Request, from_client, to_server).await;
            // The server answers what it has, then closes: that ends the connection.
            future::pending::<()>().await;
        };
        tokio::select! {
            () = requests => {}
            () = self.pump(Direction::Reply, from_server, to_client) => {}
        }
    }

    async fn pump(&self, direction: Direction, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let (under_way, mut arriving) = mpsc::channel(CHUNKS_IN_FLIGHT);
        let read = async move {
            let mut buffer = vec![0; CHUNK_BYTES];
            while let Ok(length @ 1..) = from.read(&mut buffer).await {
                let due = Instant::now() + self.delay(direction);
                let chunk = (due, buffer[..length].to_vec());
                if under_way.send(chunk).await.is_err() {
                    break;
                }
            }
        };
        let write = async move {
            while let Some((due, chunk)) = arriving.recv().await {
                sleep_until(due).await;
                self.until(|faults| !faults.holds(direction)).await;
                if !self.lets_through(direction) {
                    continue;
                }
                if to.write_all(&chunk).await.is_err() {
                    break;
                }
            }
        };
        tokio::join!(read, write);
    }

    fn delay(&self, direction: Direction) -> Duration {
        let faults = self.on_wire.borrow();
        match direction {
            Direction::Request => faults.request_delay,
            Direction::Reply => faults.reply_delay,
        }
    }

    fn lets_through(&self, direction: Direction) -> bool {
        match direction {
            Direction::Request => {
                if !self.deaf.load(Ordering::SeqCst) && self.takes_a_swallow() {
                    self.deaf.store(true, Ordering::SeqCst);
                }
                true
            }
            Direction::Reply => !self.deaf.load(Ordering::SeqCst),
        }
    }

    fn takes_a_swallow(&self) -> bool {
        self.faults.send_if_modified(|faults| {
            let left = faults.replies_to_swallow;
            faults.replies_to_swallow = left.saturating_sub(1);
            left > 0
        })
    }

    async fn until(&self, holds: impl FnMut(&Faults) -> bool) {
        let mut on_wire = self.on_wire.clone();
        // The sender lives as long as this connection, which has a clone of it.
        let _ = on_wire.wait_for(holds).await;
    }
}

impl Faults {
    fn holds(&self, direction: Direction) -> bool {
        match direction {
            Direction::Request => self.hold_requests,
            Direction::Reply => self.hold_replies,
        }
    }
}

mod tests {
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
}
