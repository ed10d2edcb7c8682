//! What an examination means to a namespace: contracts that differ, and what stands under its keys.

use super::{Namespace, keeper::contract_difference};
use crate::store::examination::{Check, Finding, FoundContract, Sample, Severity};

/// What a namespace's line in the store means for an instance whose own is `ours`.
pub fn contract(namespace: &str, ours: &str, found: &FoundContract) -> Option<Finding> {
    let (severity, message) = match found {
        FoundContract::NotRead => return None,
        FoundContract::Absent => (
            Severity::Note,
            "no instance has put it up yet, or none for a while".to_owned(),
        ),
        FoundContract::Unreadable(error) => (
            Severity::Failure,
            format!(
                "the key dedupd:contract:{namespace} cannot be read: {error}; delete it, or permit it"
            ),
        ),
        FoundContract::Line(theirs) => match contract_difference(ours, theirs) {
            Some(difference) => (Severity::Failure, difference),
            None if ours == theirs => (Severity::Ok, ours.to_owned()),
            None => (
                Severity::Warning,
                format!(
                    "instances use different guards: here {}, in the store {}; let all of them have the same",
                    guards(ours),
                    guards(theirs)
                ),
            ),
        },
    };
    Some(Finding::new(Check::Contract, severity, message).about(namespace))
}

/// What stands behind the `;`.
fn guards(line: &str) -> &str {
    line.split_once(';')
        .map_or("none", |(_, guards)| guards.trim())
}

pub(super) fn strangers(namespace: &Namespace) -> Option<Finding> {
    let met = namespace.strangers();
    let (foreign, healed, left) = (met.foreign(), met.healed(), met.left());
    if foreign + healed + left == 0 {
        return None;
    }
    let message = format!(
        "since the start {foreign} events were suppressed by values that are no claims; keys without a \
         TTL: {healed} were given one, {left} times one was left that is no claim and longer than a \
         consumer's mark; find out who writes them"
    );
    let about = namespace.policy().name().as_str();
    Some(Finding::new(Check::Keys, Severity::Warning, message).about(about))
}

/// What some of the keys under a prefix say about who writes there.
pub fn sample(sample: &Sample) -> Finding {
    let Sample {
        prefix: _,
        pattern,
        complete,
        keys,
        claims,
        newer,
        foreign,
        other_types,
        without_ttl,
    } = sample;
    let more = if *complete { "" } else { " and more" };
    let mut message = format!("keys: {keys}{more}; claims: {claims}");
    let mut severity = Severity::Ok;
    let rows = [
        (newer, Severity::Note, "claims of a newer version: {}"),
        (
            foreign,
            Severity::Note,
            "values that are no claims, such as older consumers write: {}; they suppress as UNCLASSIFIED",
        ),
        (
            other_types,
            Severity::Warning,
            "keys of another type: {}; claims on them fail: find out who writes them",
        ),
        (
            without_ttl,
            Severity::Warning,
            "keys without a TTL: {}; the service gives one to those that events meet, if they may be its own",
        ),
    ];
    for (count, found, what) in rows {
        if *count > 0 {
            severity = severity.max(found);
            message.push_str("; ");
            message.push_str(&what.replace("{}", &count.to_string()));
        }
    }
    Finding::new(Check::Keys, severity, message).about(pattern.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contract_is_judged_by_what_stands_before_the_semicolon() {
        let ours = "v1 window=2ns prefix=a:; guard=1ns guard_m=0";
        let line = |text: &str| FoundContract::Line(text.to_owned());
        let rows = [
            (line(ours), Severity::Ok, ours),
            (
                line("v1 window=3ns prefix=a:; guard=1ns guard_m=0"),
                Severity::Failure,
                "window=3ns",
            ),
            (
                line("v1 window=2ns prefix=a:; guard=0ns guard_m=0"),
                Severity::Warning,
                "in the store guard=0ns guard_m=0",
            ),
            (line(""), Severity::Failure, "window=2ns"),
            (FoundContract::Absent, Severity::Note, "no instance"),
        ];
        for (found, severity, part) in rows {
            let finding = contract("a", ours, &found).expect("a finding");
            assert_eq!(finding.severity, severity, "{found:?}");
            assert!(finding.message.contains(part), "{finding:?}");
        }
        assert_eq!(contract("a", ours, &FoundContract::NotRead), None);
    }
}
