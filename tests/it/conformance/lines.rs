//! From messages to lines.

use std::{
    collections::HashMap,
    fmt::{Display, Write as _},
};

use dedupd::grpc::proto::{
    AdmitResponse, Counter, ExplainResponse, LatLng, ListNamespacesResponse, OperationError,
    Reason, SettleOutcome, Verdict,
};
use prost::bytes::Bytes;
use prost_types::{Duration, Timestamp};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::messages::Tokens;

#[derive(Default)]
pub(super) struct Lines {
    pub(super) text: String,
    pub(super) tokens: Tokens,
}

fn seconds(span: &Duration) -> String {
    format!("{}.{:09}", span.seconds, span.nanos)
}

fn instant(at: &Timestamp) -> String {
    format!("{}.{:09}", at.seconds, at.nanos)
}

fn degrees(position: &LatLng) -> String {
    format!("{:.5},{:.5}", position.latitude(), position.longitude())
}

impl Lines {
    pub(super) fn line(&mut self, line: impl Display) {
        writeln!(self.text, "  {line}").expect("memory suffices");
    }

    /// A token has the name of the verdict that it was first seen in.
    fn name(&mut self, token: &Bytes, verdict: &str) -> String {
        let known = self.tokens.iter().find(|(_, known)| *known == token);
        let name = known.map_or(verdict, |(name, _)| name).to_owned();
        self.tokens.insert(verdict.to_owned(), token.clone());
        name
    }

    fn verdict(&mut self, verdict: &Verdict, name: &str) {
        let decision = verdict.decision().as_str_name();
        let reason = verdict.reason().as_str_name();
        let mut line = format!(
            "{} {}",
            decision.trim_start_matches("DECISION_"),
            reason.trim_start_matches("REASON_")
        );
        let mut word = |word: String| line = format!("{line} {word}");
        if !verdict.claim.is_empty() {
            word(format!("claim={}", self.name(&verdict.claim, name)));
        }
        match (verdict.reason(), &verdict.retry_after) {
            (_, None) => {}
            // When the breaker probes next depends on when it was asked.
            (Reason::StoreUnavailable, Some(_)) => word("retry_after=soon".to_owned()),
            (_, Some(span)) => word(format!("retry_after={}", seconds(span))),
        }
        if let Some(at) = &verdict.first_occurred_at {
            word(format!("first_occurred_at={}", instant(at)));
        }
        for (flag, set) in [
            ("degraded", verdict.degraded),
            ("shadow", verdict.shadow),
            ("time_clamped", verdict.time_clamped),
        ] {
            if set {
                word(flag.to_owned());
            }
        }
        if let Some(index) = verdict.copy_of_index {
            word(format!("copy_of_index={index}"));
        }
        if !verdict.detail.is_empty() {
            word(format!("detail={}", verdict.detail));
        }
        self.line(line);
    }

    pub(super) fn admitted(&mut self, answer: &AdmitResponse, name: &str) {
        for (index, verdict) in answer.verdicts.iter().enumerate() {
            self.verdict(verdict, &format!("{name}.{index}"));
        }
        if let Some(lease) = &answer.lease {
            self.line(format_args!("lease={}", seconds(lease)));
        }
    }

    pub(super) fn settled(&mut self, outcomes: impl Iterator<Item = SettleOutcome>) {
        let names =
            outcomes.map(|outcome| outcome.as_str_name().trim_start_matches("SETTLE_OUTCOME_"));
        self.line(names.collect::<Vec<_>>().join(" "));
    }

    pub(super) fn error(&mut self, error: &OperationError) {
        let retry = error.retry_after.as_ref();
        let retry = retry.map_or(String::new(), |span| {
            format!(" retry_after={}", seconds(span))
        });
        self.line(format_args!("! {} {}{retry}", error.code, error.message));
        self.reason(&error.reason, &error.metadata);
        if !error.field.is_empty() {
            self.line(format_args!("! field {}", error.field));
        }
    }

    fn reason(&mut self, reason: &str, metadata: &HashMap<String, String>) {
        let mut pairs: Vec<_> = metadata.iter().collect();
        pairs.sort_unstable();
        let pairs = pairs.iter().map(|(key, value)| format!(" {key}={value}"));
        let pairs: String = pairs.collect();
        self.line(format_args!("! {reason}{pairs}"));
    }

    pub(super) fn refused(&mut self, status: &Status) {
        let name = code_name(status.code());
        // Whether the client or the service says these first is a matter of microseconds.
        if matches!(status.code(), Code::Cancelled | Code::DeadlineExceeded) {
            return self.line(format_args!("! {name}"));
        }
        self.line(format_args!("! {name} {}", status.message()));
        let details = status.get_error_details();
        if let Some(info) = details.error_info() {
            self.reason(&format!("{} {}", info.domain, info.reason), &info.metadata);
        }
        for violation in details
            .bad_request()
            .iter()
            .flat_map(|bad| &bad.field_violations)
        {
            self.line(format_args!(
                "! field {}: {}",
                violation.field, violation.description
            ));
        }
    }

    pub(super) fn explained(&mut self, answer: &ExplainResponse) {
        self.verdict(answer.verdict.as_ref().expect("a verdict"), "none");
        for key in &answer.keys {
            self.line(format_args!("key={key}"));
        }
        self.line(format_args!("material={}", answer.material));
        self.line(format_args!("contract={}", answer.contract));
        if let Some(at) = &answer.occurred_at {
            self.line(format_args!("occurred_at={}", instant(at)));
        }
        if let Some(position) = &answer.position {
            self.line(format_args!(
                "position={} cell={}",
                degrees(position),
                answer.cell
            ));
        }
        for claim in &answer.claims {
            let state = claim
                .state()
                .as_str_name()
                .trim_start_matches("CLAIM_STATE_");
            let mut line = format!("claim={state} key={}", claim.key);
            if let Some(at) = &claim.occurred_at {
                line += &format!(" occurred_at={}", instant(at));
            }
            if let Some(position) = &claim.position {
                line += &format!(" position={}", degrees(position));
            }
            if claim.near {
                line += " near";
            }
            self.line(line);
        }
    }

    /// Those that are not zero.
    pub(super) fn counted(&mut self, counters: &[Counter]) {
        for counter in counters.iter().filter(|counter| counter.events > 0) {
            let decision = counter
                .decision()
                .as_str_name()
                .trim_start_matches("DECISION_");
            let reason = counter.reason().as_str_name().trim_start_matches("REASON_");
            self.line(format_args!(
                "{} {decision} {reason} {}",
                counter.namespace, counter.events
            ));
        }
    }

    pub(super) fn namespaces(&mut self, answer: &ListNamespacesResponse) {
        for namespace in &answer.namespaces {
            let [ttl, lease] = [&namespace.ttl, &namespace.lease]
                .map(|span| span.as_ref().map_or("0.000000000".to_owned(), seconds));
            self.line(format_args!(
                "{} ttl={ttl} lease={lease} {} {}",
                namespace.name, namespace.failure_mode, namespace.mode
            ));
            self.line(format_args!("  contract={}", namespace.contract));
            if !namespace.refused.is_empty() {
                self.line(format_args!("  refused={}", namespace.refused));
            }
        }
    }
}

fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
