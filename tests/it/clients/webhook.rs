//! The receiver of webhooks: what its senders are answered.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    process::{Child, Stdio},
    thread,
    time::Duration,
};

use super::{PENDING, Sidecar, built};
use crate::client::wait_until;

struct Receiver {
    child: Child,
    addr: SocketAddr,
}

impl Receiver {
    fn start(sidecar: &Sidecar, folder: &Path) -> Self {
        let mut child = built("typescript", "webhook")
            .arg("0")
            .arg(folder)
            .env("DEDUPD_ADDRESS", sidecar.addr.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the receiver runs");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("it prints");
        let port = line
            .trim()
            .strip_prefix("listening on ")
            .and_then(|port| port.parse().ok());
        let addr = (Ipv4Addr::LOCALHOST, port.expect("a port")).into();
        Self { child, addr }
    }

    /// Status and `Retry-After` of a delivery.
    fn post(&self, id: &str, fails: u32, takes_ms: u64) -> (u16, Option<u64>) {
        post(self.addr, id, fails, takes_ms)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // An error says that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn post(addr: SocketAddr, id: &str, fails: u32, takes_ms: u64) -> (u16, Option<u64>) {
    let body = format!(r#"{{"id":"{id}","fails":{fails},"takesMs":{takes_ms}}}"#);
    let mut stream = TcpStream::connect(addr).expect("the receiver listens");
    let length = body.len();
    write!(
        stream,
        "POST / HTTP/1.0\r\nwebhook-id: {id}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .expect("the receiver reads");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("the receiver answers");
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    let retry_after = answer
        .lines()
        .find_map(|line| line.strip_prefix("retry-after: "));
    let retry_after = retry_after.map(|seconds| seconds.trim().parse().expect("seconds"));
    (code.expect("a status"), retry_after)
}

#[test]
fn webhooks_are_answered_by_typescript() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let sidecar = Sidecar::prepare();
    let mut service = sidecar.start();
    let receiver = Receiver::start(&sidecar, folder.path());
    let lines = |name: &str| {
        let text = fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        text.lines().count()
    };

    assert_eq!(receiver.post("evt-1", 0, 0), (200, None));
    assert_eq!(receiver.post("evt-1", 0, 0), (200, None), "suppressed");
    assert_eq!(lines("done.jsonl"), 1);

    assert_eq!(receiver.post("evt-2", 1, 0), (500, None), "the work failed");
    assert_eq!(receiver.post("evt-2", 1, 0), (200, None), "it was released");
    assert_eq!(lines("done.jsonl"), 2);

    assert_eq!(receiver.post("", 0, 0), (200, None), "parked");
    assert_eq!((lines("done.jsonl"), lines("dead.jsonl")), (2, 1));

    // A burst, each delivery sent twice: handled once.
    let addr = receiver.addr;
    let before = lines("done.jsonl");
    let burst: Vec<_> = (0..100)
        .map(|number| {
            thread::spawn(move || {
                loop {
                    match post(addr, &format!("burst-{}", number % 50), 0, 0) {
                        (503, Some(_)) => thread::sleep(Duration::from_millis(50)),
                        answered => break answered,
                    }
                }
            })
        })
        .collect();
    for delivery in burst {
        assert_eq!(delivery.join().expect("answered"), (200, None));
    }
    assert_eq!(lines("done.jsonl") - before, 50);

    let long = thread::spawn(move || post(addr, "evt-3", 0, 2_000));
    sidecar.wait_claims(PENDING, 1);
    assert_eq!(receiver.post("evt-3", 0, 0), (503, Some(1)), "in flight");
    assert_eq!(long.join().expect("answered"), (200, None));
    assert_eq!(receiver.post("evt-3", 0, 0), (200, None));
    assert_eq!(lines("done.jsonl") - before, 51);

    service.signal("KILL");
    service.wait_exit(Duration::from_secs(5));
    assert_eq!(receiver.post("evt-4", 0, 0), (503, Some(1)), "no service");
    let _service = sidecar.start();
    wait_until("it has connected again", || {
        receiver.post("evt-4", 0, 0) == (200, None)
    });
    assert_eq!(lines("done.jsonl") - before, 52);
}
