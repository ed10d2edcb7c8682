//! A connection that speaks RESP: commands go out in the order in which they were given, and each
//! group of them gets its own replies.
//!
//! Commands are written as bytes by whoever gives them, and replies are read in one pass: the general
//! encoder and parser of the client library cost as much as a claim in Redis itself.

mod command;
mod reply;
mod stream;

use std::{collections::VecDeque, io, sync::Arc};

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use redis::{ErrorKind, RedisError, Value};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split},
    sync::{Notify, mpsc, oneshot},
};

pub(super) use self::{
    command::{Commands, Form},
    stream::{Stream, open},
};

/// One read.
const READ_BYTES: usize = 64 << 10;
/// Groups of commands that are waiting are written together up to this.
const WRITE_BYTES: usize = 256 << 10;

/// Clones share the one connection, which lives until the last of them is dropped.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    requests: mpsc::UnboundedSender<Request>,
}

#[derive(Debug)]
struct Request {
    commands: Vec<u8>,
    replies: usize,
    answer: oneshot::Sender<Result<Vec<Value>, RedisError>>,
}

/// Replies that are owed, the oldest first.
type Owed = Mutex<VecDeque<OwedReplies>>;

#[derive(Debug)]
struct OwedReplies {
    arrived: Vec<Value>,
    missing: usize,
    answer: oneshot::Sender<Result<Vec<Value>, RedisError>>,
}

impl Wire {
    /// `lost` is told when the connection ends by itself.
    pub(super) fn new(stream: Box<dyn Stream>, lost: Option<Arc<Notify>>) -> Self {
        let (requests, given) = mpsc::unbounded_channel();
        tokio::spawn(drive(stream, given, lost));
        Self { requests }
    }

    /// Gives encoded commands: they have their place on the connection when this returns.
    pub(super) fn send(
        &self,
        commands: Vec<u8>,
        replies: usize,
    ) -> impl Future<Output = Result<Vec<Value>, RedisError>> + Send + 'static {
        let (answer, answered) = oneshot::channel();
        let request = Request {
            commands,
            replies,
            answer,
        };
        // Of one that has ended, the answer's sender is dropped.
        let _ = self.requests.send(request);
        async move { answered.await.unwrap_or_else(|_| Err(ended())) }
    }

    pub(super) async fn ask(&self, mut commands: Commands) -> Result<Vec<Value>, RedisError> {
        let replies = commands.len();
        self.send(commands.take(), replies).await
    }
}

fn ended() -> RedisError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}

async fn drive(
    stream: Box<dyn Stream>,
    given: mpsc::UnboundedReceiver<Request>,
    lost: Option<Arc<Notify>>,
) {
    let (reading, writing) = split(stream);
    let owed = Owed::default();
    let ended = tokio::select! {
        // Nobody can ask any more: there is nothing to tell.
        written = write(writing, given, &owed) => written.err(),
        read = read(reading, &owed) => Some(read),
    };
    let Some(error) = ended else {
        return;
    };
    for waiting in owed.into_inner() {
        let error = error.told();
        let _ = waiting.answer.send(Err(error));
    }
    if let Some(lost) = lost {
        lost.notify_one();
    }
}

/// Ends without an error when the last handle is dropped.
async fn write(
    mut stream: WriteHalf<Box<dyn Stream>>,
    mut given: mpsc::UnboundedReceiver<Request>,
    owed: &Owed,
) -> Result<(), Failure> {
    while let Some(first) = given.recv().await {
        let mut commands = owe(first, owed);
        while commands.len() < WRITE_BYTES
            && let Ok(next) = given.try_recv()
        {
            commands.extend(owe(next, owed));
        }
        stream.write_all(&commands).await?;
        stream.flush().await?;
    }
    Ok(())
}

fn owe(request: Request, owed: &Owed) -> Vec<u8> {
    owed.lock().push_back(OwedReplies {
        arrived: Vec::with_capacity(request.replies),
        missing: request.replies,
        answer: request.answer,
    });
    request.commands
}

async fn read(mut stream: ReadHalf<Box<dyn Stream>>, owed: &Owed) -> Failure {
    let mut buffer = BytesMut::with_capacity(READ_BYTES);
    loop {
        buffer.reserve(READ_BYTES / 2);
        match stream.read_buf(&mut buffer).await {
            Ok(0) => return io::Error::from(io::ErrorKind::UnexpectedEof).into(),
            Ok(_) => {}
            Err(error) => return error.into(),
        }
        if let Err(nonsense) = hand_out(&mut buffer, owed) {
            return nonsense;
        }
    }
}

/// Takes the replies that have arrived in whole.
fn hand_out(buffer: &mut BytesMut, owed: &Owed) -> Result<(), Failure> {
    let mut at = 0;
    let mut owed = owed.lock();
    while let Some((value, bytes)) = reply::read(&buffer[at..]).map_err(Failure::Nonsense)? {
        at += bytes;
        if matches!(value, Value::Push { .. }) {
            continue;
        }
        let Some(oldest) = owed.front_mut() else {
            return Err(Failure::Nonsense("a reply that nobody asked for"));
        };
        oldest.arrived.push(value);
        oldest.missing -= 1;
        if oldest.missing == 0
            && let Some(whole) = owed.pop_front()
        {
            // A caller who has gone wants no answer.
            let _ = whole.answer.send(Ok(whole.arrived));
        }
    }
    buffer.advance(at);
    Ok(())
}

/// How a connection ended.
#[derive(Debug)]
enum Failure {
    Io(io::Error),
    /// What came is no RESP.
    Nonsense(&'static str),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Io(error)
    }
}

impl Failure {
    /// For each who waits: an error of the system as its kind and text.
    fn told(&self) -> RedisError {
        match self {
            Failure::Io(error) => io::Error::new(error.kind(), error.to_string()).into(),
            Failure::Nonsense(what) => RedisError::from((ErrorKind::Parse, *what)),
        }
    }
}
