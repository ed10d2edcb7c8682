//! A client of Redis that does nothing but `SET key value NX PX ttl`, in pipelines of its own
//! writing: what a Rust consumer without a service could reach.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use crate::{Error, measured::Measured, process::Redis};

const PIPELINE: usize = 500;
const IN_FLIGHT: usize = 4;
/// As long as a claim of a transition.
const VALUE: [u8; 18] = [b'v'; 18];

/// Every key is fresh.
pub(crate) fn run(redis: &Redis, warm_up: Duration, duration: Duration) -> Result<Measured, Error> {
    let mut client = Client::new(redis, "pipelined:")?;
    let begun = Instant::now();
    let mut from = None;
    loop {
        let answered = client.advance()?;
        let took = begun.elapsed();
        match &from {
            None if took >= warm_up => {
                from = Some((took, answered, redis.process.cpu_ns()?));
            }
            Some((at, before, cpu_ns)) if took >= warm_up + duration => {
                let events = answered - before;
                let redis_ns = redis.process.cpu_ns()? - cpu_ns;
                return Ok(Measured {
                    events_per_s: events as f64 / (took - *at).as_secs_f64(),
                    redis_ns: Some(redis_ns as f64 / events as f64),
                    ..Measured::default()
                });
            }
            None | Some(_) => {}
        }
    }
}

/// Puts so many claims of transitions into Redis.
pub(crate) fn fill(redis: &Redis, claims: u64) -> Result<(), Error> {
    let mut client = Client::new(redis, "filled-up:")?;
    while client.advance()? < claims {}
    Ok(())
}

struct Client {
    stream: TcpStream,
    prefix: &'static str,
    requests: Vec<u8>,
    answers: Vec<u8>,
    sent: u64,
    answered_bytes: u64,
}

impl Client {
    fn new(redis: &Redis, prefix: &'static str) -> Result<Self, Error> {
        let stream = TcpStream::connect(("127.0.0.1", redis.port))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            prefix,
            requests: Vec::new(),
            answers: vec![0; 64 << 10],
            sent: 0,
            answered_bytes: 0,
        })
    }

    /// Sends what may be on its way and takes some answers; says how many there were by now.
    fn advance(&mut self) -> Result<u64, Error> {
        const ANSWER_BYTES: u64 = 5;
        while self.sent < self.answered_bytes / ANSWER_BYTES + (PIPELINE * IN_FLIGHT) as u64 {
            self.requests.clear();
            for number in self.sent..self.sent + PIPELINE as u64 {
                push_set(&mut self.requests, self.prefix, number);
            }
            self.stream.write_all(&self.requests)?;
            self.sent += PIPELINE as u64;
        }
        let read = self.stream.read(&mut self.answers)?;
        // A fresh key is answered "+OK\r\n", any other "$-1\r\n".
        if read == 0 || self.answers[..read].contains(&b'-') {
            return Err("Redis refused a fresh key".into());
        }
        self.answered_bytes += read as u64;
        Ok(self.answered_bytes / ANSWER_BYTES)
    }
}

fn push_set(out: &mut Vec<u8>, prefix: &str, number: u64) {
    let key = format!("{prefix}{number:030}");
    // Writing to a vector does not fail.
    let _ = write!(out, "*6\r\n$3\r\nSET\r\n${}\r\n{key}\r\n$18\r\n", key.len());
    out.extend_from_slice(&VALUE);
    out.extend_from_slice(b"\r\n$2\r\nNX\r\n$2\r\nPX\r\n$6\r\n300000\r\n");
}
