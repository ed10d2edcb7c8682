//! Whether the store still is the one that it was: a server that was started anew, or a promoted
//! replica, may have lost claims that it had acknowledged.

use hashbrown::HashMap;

use crate::store::examination::ServerFacts;

/// Servers that are remembered, to know one that was replaced.
const MAX_SERVERS: usize = 1_000;

/// Which servers held the claims, by address.
#[derive(Debug, Default)]
pub(super) struct Epochs(HashMap<Option<String>, Epoch>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Epoch {
    run_id: String,
    promoted_from: Option<String>,
}

impl Epochs {
    /// How many servers are others than before: started anew, promoted, or reached under the same
    /// name. The first ones are none.
    pub(super) fn changes(&mut self, servers: &[ServerFacts]) -> u64 {
        let is_first = self.0.is_empty();
        let mut changes = 0;
        for server in servers {
            let Some(run_id) = server.run_id.clone() else {
                continue;
            };
            let now = Epoch {
                run_id,
                promoted_from: server.promoted_from.clone(),
            };
            let has_changed = match self.0.get(&server.address) {
                Some(before) => now.follows(before),
                // A server that joins a cluster brings no claims, unless it was promoted.
                None => !is_first && now.promoted_from.is_some(),
            };
            changes += u64::from(has_changed);
            if self.0.len() < MAX_SERVERS || self.0.contains_key(&server.address) {
                self.0.insert(server.address.clone(), now);
            }
        }
        changes
    }
}

impl Epoch {
    /// A primary without replicas drops what it was promoted from after a while: that is no change.
    fn follows(&self, before: &Self) -> bool {
        self.run_id != before.run_id
            || (self.promoted_from.is_some() && self.promoted_from != before.promoted_from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(address: Option<&str>, run_id: &str, promoted_from: Option<&str>) -> ServerFacts {
        ServerFacts {
            address: address.map(str::to_owned),
            run_id: Some(run_id.to_owned()),
            promoted_from: promoted_from.map(str::to_owned),
            ..ServerFacts::default()
        }
    }

    #[test]
    fn r08_another_server_under_the_same_name_is_an_epoch() {
        let mut epochs = Epochs::default();
        let steps = [
            (vec![server(None, "a", None)], 0, "the first"),
            (vec![server(None, "a", None)], 0, "the same"),
            (vec![], 0, "away"),
            (vec![server(None, "a", None)], 0, "back, unchanged"),
            (vec![server(None, "b", Some("x"))], 1, "a promoted replica"),
            (vec![server(None, "b", None)], 0, "it forgets whose it was"),
            (vec![server(None, "a", None)], 1, "the old one again"),
            (
                vec![server(None, "a", Some("y"))],
                1,
                "demoted and promoted between",
            ),
            (vec![server(None, "c", None)], 1, "restarted"),
        ];
        for (servers, expected, what) in steps {
            assert_eq!(epochs.changes(&servers), expected, "{what}");
        }
    }

    #[test]
    fn r08_on_a_cluster_each_address_has_its_own() {
        let of =
            |id: &str, promoted: Option<&str>, address: &str| server(Some(address), id, promoted);
        let mut epochs = Epochs::default();
        let steps = [
            (vec![of("a", None, "1"), of("b", None, "2")], 0),
            (vec![of("a", None, "1"), of("c", None, "3")], 0),
            (vec![of("a", None, "1"), of("d", Some("x"), "4")], 1),
            (vec![of("e", None, "1"), of("d", Some("x"), "4")], 1),
        ];
        for (step, (servers, expected)) in steps.into_iter().enumerate() {
            assert_eq!(epochs.changes(&servers), expected, "step {step}");
        }
    }
}
