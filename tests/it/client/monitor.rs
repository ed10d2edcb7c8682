//! What Redis is told, command by command.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
};

use super::PATIENCE;
use crate::support::redis::RedisServer;

/// A connection on which `MONITOR` runs.
pub(crate) struct Monitor<'r> {
    redis: &'r RedisServer,
    lines: BufReader<TcpStream>,
    ends: usize,
}

impl<'r> Monitor<'r> {
    pub(crate) fn start(redis: &'r RedisServer) -> Self {
        let mut stream = TcpStream::connect(redis.addr()).expect("Redis listens");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a TCP socket");
        stream.write_all(b"MONITOR\r\n").expect("Redis reads");
        let lines = BufReader::new(stream);
        let mut monitor = Self {
            redis,
            lines,
            ends: 0,
        };
        assert_eq!(monitor.line(), "+OK");
        monitor
    }

    /// What was executed since the start or the last call, scripts' commands among it.
    pub(crate) fn commands(&mut self) -> Vec<String> {
        self.ends += 1;
        let end = format!("monitor-ends-{}", self.ends);
        self.redis.cli(&["ECHO", &end]);
        let mut commands = Vec::new();
        loop {
            let line = self.line();
            if line.contains(&end) {
                return commands;
            }
            commands.push(line);
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("Redis tells");
        line.trim_end().to_owned()
    }
}
