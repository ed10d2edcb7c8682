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
    let mut stream = TcpStream::connect(("127.0.0.1", redis.port))?;
    stream.set_nodelay(true)?;
    let (mut requests, mut answers) = (Vec::new(), vec![0; 64 << 10]);
    let (mut sent, mut answered_bytes, mut answered) = (0_u64, 0, 0_u64);
    let begun = Instant::now();
    let mut from = None;
    loop {
        while sent < answered + (PIPELINE * IN_FLIGHT) as u64 {
            requests.clear();
            for number in sent..sent + PIPELINE as u64 {
                push_set(&mut requests, number);
            }
            stream.write_all(&requests)?;
            sent += PIPELINE as u64;
        }
        let read = stream.read(&mut answers)?;
        // A fresh key is answered "+OK\r\n", any other "$-1\r\n": five bytes each.
        if read == 0 || answers[..read].contains(&b'-') {
            return Err("Redis refused a fresh key".into());
        }
        answered_bytes += read as u64;
        answered = answered_bytes / 5;
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

fn push_set(out: &mut Vec<u8>, number: u64) {
    let key = format!("pipelined:{number:030}");
    // Writing to a vector does not fail.
    let _ = write!(out, "*6\r\n$3\r\nSET\r\n${}\r\n{key}\r\n$18\r\n", key.len());
    out.extend_from_slice(&VALUE);
    out.extend_from_slice(b"\r\n$2\r\nNX\r\n$2\r\nPX\r\n$6\r\n300000\r\n");
}
