//! What people write without a sidecar, for comparison: sets of keys that expire.

use std::collections::VecDeque;

use hashbrown::HashMap;
use xxhash_rust::xxh3::xxh3_128;

/// Counts claims that live equally long, each from when it was made.
#[derive(Debug)]
pub struct Living {
    ttl_ms: u64,
    /// When how many of them expire.
    expiring: VecDeque<(u64, u64)>,
    now: u64,
    peak: u64,
}

impl Living {
    pub const fn new(ttl_ms: u64) -> Self {
        Self {
            ttl_ms,
            expiring: VecDeque::new(),
            now: 0,
            peak: 0,
        }
    }

    /// `now_ms` never goes back.
    pub fn add(&mut self, claims: u64, now_ms: u64) {
        while let Some(&(expires_ms, expired)) = self.expiring.front()
            && expires_ms <= now_ms
        {
            self.now -= expired;
            self.expiring.pop_front();
        }
        let expires_ms = now_ms + self.ttl_ms;
        match self.expiring.back_mut() {
            Some((latest, count)) if *latest == expires_ms => *count += claims,
            Some(_) | None => self.expiring.push_back((expires_ms, claims)),
        }
        self.now += claims;
        self.peak = self.peak.max(self.now);
    }

    pub const fn peak(&self) -> u64 {
        self.peak
    }
}

/// Keys with the time at which they expire.
#[derive(Debug)]
pub struct ExpiringKeys {
    keys: HashMap<u128, u64>,
    living: Living,
    sweep_at_len: usize,
}

impl ExpiringKeys {
    pub fn new(ttl_ms: u64) -> Self {
        Self {
            keys: HashMap::new(),
            living: Living::new(ttl_ms),
            sweep_at_len: 1024,
        }
    }

    /// `SET key 1 NX PX ttl`: true if nothing stood there.
    pub fn set_if_absent(&mut self, material: &[u8], now_ms: u64) -> bool {
        if self.keys.len() >= self.sweep_at_len {
            self.keys.retain(|_, expires_ms| *expires_ms > now_ms);
            // A pass visits each key once, and a quarter as many were added since the last.
            self.sweep_at_len = (self.keys.len() + self.keys.len() / 4).max(1024);
        }
        let expires_ms = self.keys.entry(xxh3_128(material)).or_insert(0);
        let absent = *expires_ms <= now_ms;
        if absent {
            *expires_ms = now_ms + self.living.ttl_ms;
            self.living.add(1, now_ms);
        }
        absent
    }

    /// Most keys that lived at a time.
    pub const fn peak(&self) -> u64 {
        self.living.peak()
    }

    /// Of the table, which never shrinks.
    pub fn bytes(&self) -> u64 {
        self.keys.allocation_size() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_expire_to_the_millisecond() {
        let mut keys = ExpiringKeys::new(100);
        assert!(keys.set_if_absent(b"a", 0));
        assert!(!keys.set_if_absent(b"a", 99));
        assert!(keys.set_if_absent(b"a", 100));
        for number in 0..100_000_u64 {
            assert!(keys.set_if_absent(&number.to_be_bytes(), 1000 + number));
        }
        assert_eq!(keys.peak(), 100);
        assert!(keys.keys.len() < 2000, "{}", keys.keys.len());
    }
}
