//! NATS JetStream's own deduplication: every message has a fresh `Nats-Msg-Id`, and is published
//! asynchronously, many unacknowledged at a time. The protocol is written here, so that a client
//! library's own cost is not in the figure.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    time::{Duration, Instant},
};

use crate::{
    Error,
    measured::Measured,
    process::{Cpus, command, free_port, listens, start, until},
};

const UNACKNOWLEDGED: u64 = 4_000;
const CHUNK: u64 = 500;
const STREAM: &str = r#"{"name":"B","subjects":["b"],"storage":"memory","max_msgs":1000000,"duplicate_window":60000000000}"#;

pub(crate) fn run(folder: &Path, warm_up: Duration, duration: Duration) -> Result<Measured, Error> {
    let port = free_port()?;
    let server = start(
        command("nats-server", Cpus::Own)
            .args(["--addr", "127.0.0.1", "--port", &port.to_string()])
            .arg("--jetstream")
            .arg("--store_dir")
            .arg(folder.join("jetstream")),
    )?;
    until("nats-server listens", || listens(port))?;
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    let mut answers = BufReader::with_capacity(64 << 10, stream.try_clone()?);
    let hello = r#"{"verbose":false,"pedantic":false,"headers":true}"#;
    write!(stream, "CONNECT {hello}\r\nSUB i.> 1\r\n")?;
    write!(
        stream,
        "PUB $JS.API.STREAM.CREATE.B i.c {}\r\n{STREAM}\r\n",
        STREAM.len()
    )?;
    let created = next_message(&mut answers)?;
    if created.contains("\"error\"") {
        return Err(format!("JetStream makes no stream: {created}").into());
    }

    let (mut sent, mut acknowledged) = (0, 0);
    let mut requests = Vec::new();
    let begun = Instant::now();
    let mut from = None;
    loop {
        while sent + CHUNK <= acknowledged + UNACKNOWLEDGED {
            requests.clear();
            for number in sent..sent + CHUNK {
                let head = format!("NATS/1.0\r\nNats-Msg-Id: event-{number:012}\r\n\r\n");
                let bytes = head.len();
                write!(requests, "HPUB b i.a {bytes} {bytes}\r\n{head}\r\n")?;
            }
            stream.write_all(&requests)?;
            sent += CHUNK;
        }
        let answer = next_message(&mut answers)?;
        if answer.contains("\"error\"") || answer.contains("\"duplicate\"") {
            return Err(format!("JetStream refused a fresh message: {answer}").into());
        }
        acknowledged += 1;
        if acknowledged % CHUNK > 0 {
            continue;
        }
        let took = begun.elapsed();
        match &from {
            None if took >= warm_up => from = Some((took, acknowledged, server.cpu_ns()?)),
            Some((at, before, cpu_ns)) if took >= warm_up + duration => {
                let events = acknowledged - before;
                let server_ns = server.cpu_ns()? - cpu_ns;
                return Ok(Measured {
                    events_per_s: events as f64 / (took - *at).as_secs_f64(),
                    server_ns: Some(server_ns as f64 / events as f64),
                    ..Measured::default()
                });
            }
            None | Some(_) => {}
        }
    }
}

/// The body of the next `MSG`; what else the server says is passed over.
fn next_message(answers: &mut BufReader<TcpStream>) -> Result<String, Error> {
    let mut line = String::new();
    loop {
        line.clear();
        if answers.read_line(&mut line)? == 0 {
            return Err("nats-server closed the connection".into());
        }
        if line.starts_with("-ERR") {
            return Err(format!("nats-server: {}", line.trim()).into());
        }
        if line.starts_with("MSG ") {
            let bytes: usize = line.trim().rsplit(' ').next().unwrap_or_default().parse()?;
            let mut body = vec![0; bytes + 2];
            answers.read_exact(&mut body)?;
            return Ok(String::from_utf8(body)?);
        }
    }
}
