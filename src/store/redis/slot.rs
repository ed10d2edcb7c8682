//! A Redis Cluster's hash slots, as its specification defines them: CRC16 (XMODEM) of the key, or
//! of what stands between its first braces, modulo 16,384.

use crc16::{State, XMODEM};

pub(super) const SLOTS: usize = 16_384;

pub(super) fn slot_of(key: &[u8]) -> usize {
    usize::from(State::<XMODEM>::calculate(hashed_part(key))) % SLOTS
}

/// What stands between the first `{` and the first `}` behind it, if that is anything.
fn hashed_part(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else {
        return key;
    };
    let rest = &key[open + 1..];
    match rest.iter().position(|byte| *byte == b'}') {
        None | Some(0) => key,
        Some(close) => &rest[..close],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected slots are those that a Redis server gives to `CLUSTER KEYSLOT`.
    #[test]
    fn slots_are_those_of_the_server() {
        for (key, slot) in [
            ("foo", 12182),
            ("123456789", 12739),
            ("{user1000}.following", 3443),
            ("{user1000}.followers", 3443),
            ("user1000", 3443),
            ("foo{}{bar}", 8363),
            ("foo{{bar}}zap", 4015),
            ("foo{bar}{zap}", 5061),
            ("", 0),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }
}
