//! Ports below the range from which the kernel gives them to outgoing connections, so that none of
//! these sits on one when its server restarts.

use std::{
    net::{Ipv4Addr, TcpListener},
    process,
    sync::atomic::{AtomicU16, Ordering},
};

const FIRST: u16 = 10_000;
const COUNT: u16 = 20_000;
/// From a cluster node's port to that of its bus.
const TO_BUS: u16 = 10_000;

pub(crate) fn free_port() -> u16 {
    free_port_of(COUNT)
}

/// The port of a cluster node: the one of its bus is free as well.
pub(crate) fn free_node_port() -> u16 {
    loop {
        let port = free_port_of(COUNT - TO_BUS);
        if is_free(port + TO_BUS) {
            return port;
        }
    }
}

fn free_port_of(count: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = process::id().wrapping_mul(97);
    loop {
        let step = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let offset = start.wrapping_add(step) % u32::from(count);
        let port = FIRST + u16::try_from(offset).expect("less than COUNT");
        if is_free(port) {
            return port;
        }
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
