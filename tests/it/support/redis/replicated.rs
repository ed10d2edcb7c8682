//! A primary with replicas, and the sentinels that watch them.
//!
//! Every server stands behind a proxy and announces its address, so that clients, replicas and
//! sentinels all come through it. Replicas and sentinels come from [`PEERS`]: a server can be cut
//! off from them and still serve the clients, which is what a partition does.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use super::{Options, RedisServer, Tls};
use crate::{client::wait_until, support::proxy::Proxy};

/// Where replicas and sentinels connect from.
pub(crate) const PEERS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// The primary's name with the sentinels.
pub(crate) const SERVICE: &str = "claims";

#[derive(Debug, Clone)]
pub(crate) struct ReplicatedOptions {
    pub(crate) replicas: usize,
    /// 0 or 3.
    pub(crate) sentinels: usize,
    /// Of the servers, and of the sentinels towards them.
    pub(crate) password: Option<String>,
    /// Of the sentinels themselves.
    pub(crate) sentinel_password: Option<String>,
    /// Of servers and sentinels.
    pub(crate) tls: Option<Tls>,
    pub(crate) down_after: Duration,
    pub(crate) failover_timeout: Duration,
    /// Further arguments of the servers, such as `["--min-replicas-to-write", "1"]`.
    pub(crate) args: Vec<String>,
}

impl Default for ReplicatedOptions {
    fn default() -> Self {
        Self {
            replicas: 1,
            sentinels: 3,
            password: None,
            sentinel_password: None,
            tls: None,
            // With less, sentinels give up a primary that they have only just promoted.
            down_after: Duration::from_secs(1),
            failover_timeout: Duration::from_secs(2),
            args: Vec::new(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Replicated {
    /// The first one starts as the primary.
    pub(crate) servers: Vec<RedisServer>,
    /// In front of each server.
    pub(crate) proxies: Vec<Arc<Proxy>>,
    pub(crate) sentinels: Vec<RedisServer>,
}

impl Replicated {
    /// Returns once the replicas are in sync and every sentinel knows all of them and each other.
    pub(crate) fn start(options: &ReplicatedOptions) -> Self {
        let mut this = Self {
            servers: Vec::new(),
            proxies: Vec::new(),
            sentinels: Vec::new(),
        };
        for number in 0..=options.replicas {
            // Its target is known once the server has its port.
            let proxy = Proxy::start((Ipv4Addr::LOCALHOST, 1).into());
            let mut args = words(&["--replica-announce-ip", "127.0.0.1"]);
            args.extend(words(&[
                "--replica-announce-port",
                &proxy.port().to_string(),
            ]));
            args.extend(words(&["--bind-source-addr", &PEERS.to_string()]));
            args.extend(words(&["--repl-diskless-sync-delay", "0"]));
            args.extend(words(&["--repl-ping-replica-period", "1"]));
            if let Some(primary) = this.proxies.first() {
                let port = primary.port().to_string();
                args.extend(words(&["--replicaof", "127.0.0.1", &port]));
                args.extend(words(&["--replica-priority", &number.to_string()]));
            }
            args.extend(options.args.iter().cloned());
            let server = RedisServer::start(Options {
                password: options.password.clone(),
                tls: options.tls,
                args,
                ..Options::default()
            });
            proxy.set_target(server.addr());
            this.proxies.push(proxy);
            this.servers.push(server);
        }
        this.wait_in_sync();
        let sentinel = |_| start_sentinel(options, this.proxies[0].addr());
        this.sentinels = (0..options.sentinels).map(sentinel).collect();
        wait_until("the sentinels know everybody", || {
            let usable = format!("OK {} usable", options.sentinels);
            this.sentinels.iter().all(|sentinel| {
                let master = sentinel.cli(&["SENTINEL", "MASTER", SERVICE]);
                field(&master, "num-slaves") == Some(&options.replicas.to_string())
                    && field(&master, "flags") == Some("master")
                    && sentinel
                        .cli(&["SENTINEL", "CKQUORUM", SERVICE])
                        .starts_with(&usable)
            })
        });
        this
    }

    pub(crate) fn sentinel_addrs(&self) -> Vec<SocketAddr> {
        self.sentinels.iter().map(RedisServer::addr).collect()
    }

    /// Which server the sentinels name as the primary; without sentinels, the first that says so.
    pub(crate) fn primary(&self) -> Option<usize> {
        if self.sentinels.is_empty() {
            return (0..self.servers.len()).find(|&server| self.is_primary(server));
        }
        let named = |sentinel: &RedisServer| {
            let asked = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE];
            let port: u16 = sentinel.cli(&asked).lines().nth(1)?.parse().ok()?;
            self.proxies.iter().position(|proxy| proxy.port() == port)
        };
        let mut all = self.sentinels.iter().map(named);
        let first = all.next()??;
        all.all(|other| other == Some(first)).then_some(first)
    }

    /// What the server itself says; of one that is stopped, no.
    pub(crate) fn is_primary(&self, server: usize) -> bool {
        self.servers[server].info("role") == "master"
    }

    /// An orderly failover by the sentinels; returns the new primary once it takes writes and the
    /// others follow it. They refuse to do it again within twice the failover timeout.
    pub(crate) fn failover(&self) -> usize {
        let old = self.primary().expect("the sentinels agree");
        wait_until("a sentinel begins a failover", || {
            let asked = ["SENTINEL", "FAILOVER", SERVICE];
            self.sentinels.iter().any(|it| it.cli(&asked) == "OK")
        });
        self.wait_promoted(old)
    }

    /// Waits until the sentinels agree on another primary than `old`, and it is one.
    pub(crate) fn wait_promoted(&self, old: usize) -> usize {
        let promoted = || {
            let primary = self.primary().filter(|primary| *primary != old)?;
            self.is_primary(primary).then_some(primary)
        };
        wait_until("another primary", || promoted().is_some());
        promoted().expect("it stays for now")
    }

    /// A failover by hand, without sentinels: what `server` has not received is lost.
    pub(crate) fn promote(&self, server: usize) {
        assert_eq!(self.servers[server].cli(&["REPLICAOF", "NO", "ONE"]), "OK");
        let port = self.proxies[server].port().to_string();
        for (other, redis) in self.servers.iter().enumerate() {
            if other != server {
                assert_eq!(redis.cli(&["REPLICAOF", "127.0.0.1", &port]), "OK");
            }
        }
    }

    /// The server serves clients, and neither replicas nor sentinels reach it.
    pub(crate) fn cut_off(&self, server: usize) {
        self.proxies[server].sever(Some(PEERS));
    }

    pub(crate) fn rejoin(&self, server: usize) {
        self.proxies[server].sever(None);
    }

    /// Waits until every replica has what the primary has then.
    pub(crate) fn wait_in_sync(&self) {
        let offset = |server: &RedisServer, field| server.info(field).parse().unwrap_or(0_u64);
        wait_until("the replicas in sync", || {
            let Some(primary) = self.primary() else {
                return false;
            };
            let written = offset(&self.servers[primary], "master_repl_offset");
            self.servers.iter().enumerate().all(|(server, redis)| {
                server == primary
                    || (redis.info("master_link_status") == "up"
                        && offset(redis, "slave_repl_offset") >= written)
            })
        });
    }
}

fn start_sentinel(options: &ReplicatedOptions, primary: SocketAddr) -> RedisServer {
    let (ip, port) = (primary.ip(), primary.port());
    let mut file = format!(
        "sentinel monitor {SERVICE} {ip} {port} 2\n\
         sentinel down-after-milliseconds {SERVICE} {}\n\
         sentinel failover-timeout {SERVICE} {}\n\
         sentinel announce-ip {ip}\n\
         bind-source-addr {PEERS}\n",
        options.down_after.as_millis(),
        options.failover_timeout.as_millis(),
    );
    if let Some(password) = &options.password {
        file += &format!("sentinel auth-pass {SERVICE} {password}\n");
    }
    if let Some(password) = &options.sentinel_password {
        file += &format!("sentinel sentinel-pass {password}\n");
    }
    RedisServer::start(Options {
        password: options.sentinel_password.clone(),
        tls: options.tls,
        file: Some(file),
        args: words(&["--sentinel"]),
        ..Options::default()
    })
}

/// The value after a name in a flat list, one on each line.
fn field<'t>(list: &'t str, name: &str) -> Option<&'t str> {
    list.lines().skip_while(|line| *line != name).nth(1)
}

pub(super) fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
