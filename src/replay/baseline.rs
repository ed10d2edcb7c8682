//! What people write without a sidecar, for comparison: sets of keys that expire.

use hashbrown::HashMap;
use xxhash_rust::xxh3::xxh3_128;

/// Keys with the time at which they expire.
#[derive(Debug, Default)]
pub struct ExpiringKeys {
    keys: HashMap<u128, u64>,
    ttl_ms: u64,
    swept_at_len: usize,
    peak: usize,
}

/// Of one key: digest and expiry, at the map's load.
const BYTES_PER_KEY: u64 = 40;

impl ExpiringKeys {
    pub fn new(ttl_ms: u64) -> Self {
        Self {
            ttl_ms,
            swept_at_len: 1024,
            ..Self::default()
        }
    }

    /// `SET key 1 NX PX ttl`: true if nothing stood there.
    pub fn set_if_absent(&mut self, material: &[u8], now_ms: u64) -> bool {
        if self.keys.len() >= self.swept_at_len * 2 {
            self.keys.retain(|_, expires_ms| *expires_ms > now_ms);
            self.swept_at_len = self.keys.len().max(1024);
        }
        let expires_ms = now_ms + self.ttl_ms;
        let slot = self.keys.entry(xxh3_128(material)).or_insert(0);
        let absent = *slot <= now_ms;
        if absent {
            *slot = expires_ms;
        }
        self.peak = self.peak.max(self.keys.len());
        absent
    }

    /// Most keys that were held, expired ones among them until they are swept, and their bytes.
    pub fn peak(&self) -> (u64, u64) {
        (self.peak as u64, self.peak as u64 * BYTES_PER_KEY)
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
            keys.set_if_absent(&number.to_be_bytes(), 1000 + number);
        }
        assert!(keys.peak().0 < 3000, "{:?}", keys.peak());
    }
}
