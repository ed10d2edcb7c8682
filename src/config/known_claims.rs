//! How long confirmed claims are believed to stand in Redis, and how many.

use super::{
    KnownClaims, defaults,
    quantity::duration_text,
    scope::Scope,
    store::memory_bytes,
    written::{self, Field},
};

pub(super) fn known_claims(
    written: Option<Field<written::KnownClaims>>,
    memory_limit_bytes: Option<u64>,
    scope: &mut Scope<'_>,
) -> KnownClaims {
    let (written, mut scope) = scope.section("known_claims", written);
    let most = defaults::MAX_KNOWN_CLAIMS_MAX_AGE;
    KnownClaims {
        max_age: scope.checked(
            "max_age",
            written.max_age,
            defaults::KNOWN_CLAIMS_MAX_AGE,
            |age| *age <= most,
            &format!(
                "must be at most {}, or 0s to remember none",
                duration_text(most)
            ),
        ),
        max_bytes: memory_bytes(
            "max_memory",
            written.max_memory,
            defaults::known_claims_bytes(memory_limit_bytes),
            &mut scope,
        ),
    }
}
