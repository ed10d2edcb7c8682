//! A faulty wire between the service and Redis.
//!
//! It does what a real TCP path can do: be slow, be narrow, stall, lose the way back, break, refuse,
//! lead elsewhere. It never drops bytes out of the middle of a stream that goes on: a client that
//! pipelines would take the next reply for the lost one, which no network can make it do.
//!
//! The proxy has a thread and a runtime of its own, so a test may block.

mod tests;
mod wire;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::sync::{oneshot, watch};

use super::redis::ports::free_port;

#[derive(Debug, Clone)]
struct Faults {
    target: SocketAddr,
    request_delay: Duration,
    reply_delay: Duration,
    replies_to_swallow: usize,
    hold_requests: bool,
    hold_replies: bool,
    /// Whose connections are held in both directions.
    severed: Option<IpAddr>,
    request_bytes_per_second: Option<u32>,
    refuse: bool,
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
        // Not the kernel's choice: nobody must sit on the port while it is refused.
        let listener = std::iter::repeat_with(free_port)
            .find_map(|port| std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok())
            .expect("ports without end");
        listener.set_nonblocking(true).expect("a socket of ours");
        let addr = listener.local_addr().expect("a bound socket");
        let (faults, on_wire) = watch::channel(Faults {
            target,
            request_delay: Duration::ZERO,
            reply_delay: Duration::ZERO,
            replies_to_swallow: 0,
            hold_requests: false,
            hold_replies: false,
            severed: None,
            request_bytes_per_second: None,
            refuse: false,
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
                        () = wire::accept(listener, &faults, &on_wire, &counts) => {}
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

    pub(crate) fn port(&self) -> u16 {
        self.addr.port()
    }

    /// Connections that are open now.
    pub(crate) fn connections(&self) -> usize {
        self.counts.open.load(Ordering::SeqCst)
    }

    /// Connections that were ever accepted.
    pub(crate) fn accepted(&self) -> usize {
        self.counts.accepted.load(Ordering::SeqCst)
    }

    /// Ends every fault, save that a severed address stays severed. What was held goes on; a
    /// connection that has lost replies stays deaf.
    pub(crate) fn pass(&self) {
        self.change(|faults| {
            faults.request_delay = Duration::ZERO;
            faults.reply_delay = Duration::ZERO;
            faults.replies_to_swallow = 0;
            faults.hold_requests = false;
            faults.hold_replies = false;
            faults.request_bytes_per_second = None;
            faults.refuse = false;
        });
    }

    /// Latency, not bandwidth: chunks are under way together.
    pub(crate) fn delay_requests(&self, delay: Duration) {
        self.change(|faults| faults.request_delay = delay);
    }

    pub(crate) fn delay_replies(&self, delay: Duration) {
        self.change(|faults| faults.reply_delay = delay);
    }

    /// Bandwidth of the requests of all connections together: a Redis that can take no more. A
    /// claim of a short key is some 100 bytes.
    pub(crate) fn limit_requests(&self, bytes_per_second: u32) {
        self.change(|faults| faults.request_bytes_per_second = Some(bytes_per_second));
    }

    /// Each of the next `chunks` request chunks makes its connection deaf: this request and later
    /// ones are executed, and none of their replies arrives, while the connection stays up.
    /// Requests on a deaf connection are not counted; those of a client's handshake are.
    pub(crate) fn swallow_replies(&self, chunks: usize) {
        self.change(|faults| faults.replies_to_swallow = chunks);
    }

    /// Every connection becomes deaf with its next request.
    pub(crate) fn swallow_all_replies(&self) {
        self.swallow_replies(usize::MAX);
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

    /// A black hole for the connections of one address; the others pass.
    pub(crate) fn sever(&self, peer: Option<IpAddr>) {
        self.change(|faults| faults.severed = peer);
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

    /// As if the server were gone: nobody listens, and open connections are closed.
    pub(crate) fn refuse(&self) {
        self.change(|faults| {
            faults.refuse = true;
            faults.generation += 1;
        });
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
