//! A server that speaks the protocol of Redis and gives the answers that a test wants.
//!
//! It holds no keys: each `SET … NX` wins, each script answers that all of it was done.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

/// What a command is answered with, of its words; `None`: as usual.
type Script = dyn Fn(&[Vec<u8>]) -> Option<String> + Send + Sync;

pub(super) struct FakeRedis {
    pub(super) addr: SocketAddr,
    state: Arc<State>,
}

struct State {
    script: Mutex<Arc<Script>>,
}

impl FakeRedis {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let addr = listener.local_addr().expect("a bound socket");
        let state = Arc::new(State {
            script: Mutex::new(Arc::new(|_| None)),
        });
        let on_wire = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&on_wire);
                // An error says that the client is gone.
                thread::spawn(move || drop(state.serve(stream)));
            }
        });
        Self { addr, state }
    }

    pub(super) fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    pub(super) fn answer(
        &self,
        script: impl Fn(&[Vec<u8>]) -> Option<String> + Send + Sync + 'static,
    ) {
        *self.state.script.lock().expect("no panic inside") = Arc::new(script);
    }
}

impl State {
    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut to = stream.try_clone()?;
        let mut from = BufReader::new(stream);
        loop {
            let words = command(&mut from)?;
            let script = Arc::clone(&self.script.lock().expect("no panic inside"));
            let reply = script(&words).unwrap_or_else(|| usual(&words));
            to.write_all(reply.as_bytes())?;
        }
    }
}

/// One command: an array of bulk strings.
fn command(from: &mut impl BufRead) -> io::Result<Vec<Vec<u8>>> {
    let count = number(from)?;
    (0..count)
        .map(|_| {
            let mut word = vec![0; number(from)? + 2];
            from.read_exact(&mut word)?;
            word.truncate(word.len() - 2);
            Ok(word)
        })
        .collect()
}

fn number(from: &mut impl BufRead) -> io::Result<usize> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end()[1..].parse().expect("a length"))
}

/// Which of the service's scripts this is, by its text or by the hash that it was given.
pub(super) fn script_name(words: &[Vec<u8>]) -> Option<&'static str> {
    let text = String::from_utf8_lossy(words.get(1)?);
    let of =
        |begin: &str, name: &'static str| (text.starts_with(begin) || text == name).then_some(name);
    words[0].starts_with(b"EVAL").then_some(())?;
    of("-- Decides plans", "claim")
        .or_else(|| of("-- Settles claims", "settle"))
        .or_else(|| of("-- Deletes each key whose record", "give back"))
        .or_else(|| of("-- Puts up the contract", "contract"))
}

fn usual(words: &[Vec<u8>]) -> String {
    let array = |items: &[&str]| format!("*{}\r\n{}", items.len(), items.concat());
    let keys = || -> usize {
        let count = words.get(2).map(|count| String::from_utf8_lossy(count));
        count.and_then(|count| count.parse().ok()).unwrap_or(0)
    };
    let bulk = |word: &[u8]| format!("${}\r\n{}\r\n", word.len(), String::from_utf8_lossy(word));
    match (words[0].as_slice(), script_name(words)) {
        (b"HELLO", _) => "%1\r\n$5\r\nproto\r\n:3\r\n".to_owned(),
        (b"PING", _) => "+PONG\r\n".to_owned(),
        (b"SCRIPT", _) => {
            let loaded = [b"EVAL".to_vec(), words[2].clone()];
            bulk(script_name(&loaded).unwrap_or("forget").as_bytes())
        }
        (b"SET", _) if words.iter().any(|word| word == b"NX") => "_\r\n".to_owned(),
        (_, Some("claim")) => {
            // Three arguments for each plan, behind six.
            array(&vec![":256\r\n"; (words.len() - 3 - keys() - 6) / 3])
        }
        (_, Some("settle")) => array(&vec![":1\r\n"; keys()]),
        (_, Some("give back")) => array(&[&format!(":{}\r\n", keys()), ":0\r\n"]),
        (_, Some("contract")) => bulk(&words[4]),
        _ => "+OK\r\n".to_owned(),
    }
}
