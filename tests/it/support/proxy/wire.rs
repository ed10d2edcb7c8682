//! The bytes of one connection after the other, and what happens to them.

use std::{
    future,
    net::IpAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use super::{Counts, Faults};

const CHUNK_BYTES: usize = 64 * 1024;
/// Chunks under way in one direction of a connection; past that the sender waits.
const CHUNKS_IN_FLIGHT: usize = 1024;
/// So often in a second a piece is sent where bandwidth is limited.
const PIECES_PER_SECOND: u32 = 500;

pub(super) async fn accept(
    listener: std::net::TcpListener,
    faults: &watch::Sender<Faults>,
    on_wire: &watch::Receiver<Faults>,
    counts: &Arc<Counts>,
) {
    let addr = listener.local_addr().expect("a bound socket");
    let mut listener = TcpListener::from_std(listener).expect("a socket of ours");
    let narrow = Arc::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => Some(accepted.expect("a connection")),
            () = until(on_wire, |faults| faults.refuse) => None,
        };
        let Some((client, peer)) = accepted else {
            drop(listener);
            until(on_wire, |faults| !faults.refuse).await;
            listener = TcpListener::bind(addr).await.expect("still our port");
            continue;
        };
        let (generation, refuse) = {
            let faults = on_wire.borrow();
            (faults.generation, faults.refuse)
        };
        if refuse {
            // It came at the same moment, and would live on as a new one.
            continue;
        }
        counts.accepted.fetch_add(1, Ordering::SeqCst);
        counts.open.fetch_add(1, Ordering::SeqCst);
        let wire = Wire {
            peer: peer.ip(),
            generation,
            faults: faults.clone(),
            on_wire: on_wire.clone(),
            deaf: AtomicBool::default(),
            narrow: Arc::clone(&narrow),
        };
        let counts = Arc::clone(counts);
        tokio::spawn(async move {
            wire.carry(client).await;
            counts.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

async fn until(on_wire: &watch::Receiver<Faults>, holds: impl FnMut(&Faults) -> bool) {
    // The sender lives as long as whoever waits here, who has a clone of it.
    let _ = on_wire.clone().wait_for(holds).await;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Request,
    Reply,
}

/// One proxied connection.
#[derive(Debug)]
struct Wire {
    peer: IpAddr,
    generation: u64,
    faults: watch::Sender<Faults>,
    on_wire: watch::Receiver<Faults>,
    deaf: AtomicBool,
    /// When the requests of all connections so far will have passed.
    narrow: Arc<Mutex<Option<Instant>>>,
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
        self.until(|faults| !faults.holds(Direction::Request, self.peer))
            .await;
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
                self.until(|faults| !faults.holds(direction, self.peer))
                    .await;
                if !self.lets_through(direction) {
                    continue;
                }
                if self.write(direction, &chunk, &mut to).await.is_err() {
                    break;
                }
            }
        };
        tokio::join!(read, write);
    }

    async fn write(
        &self,
        direction: Direction,
        chunk: &[u8],
        to: &mut OwnedWriteHalf,
    ) -> std::io::Result<()> {
        let limit = match direction {
            Direction::Request => self.on_wire.borrow().request_bytes_per_second,
            Direction::Reply => None,
        };
        let Some(bytes_per_second) = limit else {
            return to.write_all(chunk).await;
        };
        for piece in chunk.chunks((bytes_per_second / PIECES_PER_SECOND).max(1) as usize) {
            let takes = Duration::from_secs(1) * piece.len() as u32 / bytes_per_second;
            let due = {
                let mut free = self.narrow.lock().expect("no panic inside");
                let due = free.map_or_else(Instant::now, |free| free.max(Instant::now()));
                *free = Some(due + takes);
                due
            };
            sleep_until(due).await;
            to.write_all(piece).await?;
        }
        Ok(())
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
        until(&self.on_wire, holds).await;
    }
}

impl Faults {
    fn holds(&self, direction: Direction, peer: IpAddr) -> bool {
        let held = match direction {
            Direction::Request => self.hold_requests,
            Direction::Reply => self.hold_replies,
        };
        held || self.severed == Some(peer)
    }
}
