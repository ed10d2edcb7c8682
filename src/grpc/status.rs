//! One table from faults to the wire: a status for a call, an error for an operation on a stream.

use std::{collections::HashMap, time::Duration};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::{encode, proto as pb};
use crate::engine::RequestFault;

const DOMAIN: &str = "dedupd";

/// Why a call or an operation on a stream is refused as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Request(#[from] RequestFault),
    /// A field that only this surface knows.
    #[error("{field} {problem}")]
    Field {
        field: &'static str,
        problem: &'static str,
    },
    #[error("this instance is stopping; use another, or connect again")]
    Draining,
    #[error("forgetting claims is not allowed here; set inspect.allow_forget to allow it")]
    ForgetNotAllowed,
}

/// A row of the table.
struct Row {
    code: Code,
    reason: &'static str,
    field: Option<&'static str>,
    retry_after: Option<Duration>,
    metadata: HashMap<String, String>,
}

impl Row {
    fn new(code: Code, reason: &'static str) -> Self {
        Self {
            code,
            reason,
            field: None,
            retry_after: None,
            metadata: HashMap::new(),
        }
    }

    fn invalid(reason: &'static str, field: &'static str) -> Self {
        Self {
            field: Some(field),
            ..Self::new(Code::InvalidArgument, reason)
        }
    }

    fn with(mut self, key: &str, value: &str) -> Self {
        self.metadata.insert(key.to_owned(), value.to_owned());
        self
    }
}

impl Fault {
    fn row(&self) -> Row {
        match self {
            Fault::Request(fault) => request_row(fault),
            Fault::Field { field, .. } => Row::invalid("INVALID_ARGUMENT", field),
            Fault::Draining => Row::new(Code::Unavailable, "DRAINING"),
            Fault::ForgetNotAllowed => Row::new(Code::PermissionDenied, "FORGET_NOT_ALLOWED"),
        }
    }
}

fn request_row(fault: &RequestFault) -> Row {
    match fault {
        RequestFault::UnknownNamespace(asked, _) => {
            Row::new(Code::NotFound, "UNKNOWN_NAMESPACE").with("namespace", asked)
        }
        RequestFault::Empty(field) => Row::invalid("EMPTY_REQUEST", field),
        RequestFault::TooMany { what, limit, .. } => {
            Row::invalid("TOO_MANY_EVENTS", what).with("limit", &limit.to_string())
        }
        RequestFault::BadRequestId => Row::invalid("BAD_REQUEST_ID", "request_id"),
        RequestFault::ResponseTooLarge { limit, .. } => {
            Row::invalid("RESPONSE_TOO_LARGE", "events").with("limit", &limit.to_string())
        }
        RequestFault::Unreadable(_) => Row::new(Code::InvalidArgument, "UNREADABLE_REQUEST"),
        RequestFault::NoOperation => Row::invalid("NO_OPERATION", "operation"),
        RequestFault::InvalidEvent(reason, _) => {
            Row::invalid("INVALID_EVENT", "event").with("reason", reason.name())
        }
        RequestFault::UnsettledClaim => Row::new(Code::FailedPrecondition, "UNSETTLED_CLAIM"),
        RequestFault::ContractMismatch { namespace, why } => {
            Row::new(Code::FailedPrecondition, "CONTRACT_MISMATCH")
                .with("namespace", namespace)
                .with("difference", why)
        }
        RequestFault::Overloaded { retry_after } => Row {
            retry_after: Some(*retry_after),
            ..Row::new(Code::ResourceExhausted, "OVERLOADED")
        },
        RequestFault::StoreUnavailable(_) => Row::new(Code::Unavailable, "STORE_UNAVAILABLE"),
        RequestFault::DeadlineExceeded => Row::new(Code::DeadlineExceeded, "DEADLINE_EXCEEDED"),
    }
}

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        let Row {
            code,
            reason,
            field,
            retry_after,
            metadata,
        } = fault.row();
        let message = fault.to_string();
        let mut details = ErrorDetails::with_error_info(reason, DOMAIN, metadata);
        if let Some(field) = field {
            details.add_bad_request_violation(field, &message);
        }
        if retry_after.is_some() {
            details.set_retry_info(retry_after);
        }
        Status::with_error_details(code, message, details)
    }
}

impl From<Fault> for pb::OperationError {
    fn from(fault: Fault) -> Self {
        let Row {
            code,
            reason,
            field,
            retry_after,
            metadata,
        } = fault.row();
        Self {
            code: code.into(),
            reason: reason.to_owned(),
            message: fault.to_string(),
            retry_after: retry_after.map(encode::duration),
            metadata,
            field: field.unwrap_or_default().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreError;

    #[track_caller]
    fn check(fault: impl Into<Fault>, code: Code, reason: &str, field: Option<&str>) -> Status {
        let fault = fault.into();
        let status = Status::from(fault.clone());
        assert_eq!(
            (status.code(), status.message()),
            (code, fault.to_string().as_str())
        );
        let details = status.get_error_details();
        let info = details.error_info().expect("every fault has an ErrorInfo");
        assert_eq!(
            (info.reason.as_str(), info.domain.as_str()),
            (reason, "dedupd")
        );
        let violations = details
            .bad_request()
            .map(|bad| bad.field_violations.clone())
            .unwrap_or_default();
        assert_eq!(
            violations.first().map(|violation| violation.field.as_str()),
            field
        );
        let error = pb::OperationError::from(fault.clone());
        assert_eq!((error.code, error.reason.as_str()), (code as i32, reason));
        assert_eq!(error.message, fault.to_string());
        assert_eq!(error.metadata, info.metadata);
        assert_eq!(error.field, field.unwrap_or_default());
        status
    }

    #[test]
    fn every_fault_has_its_code_and_reason() {
        use Code::{DeadlineExceeded, FailedPrecondition, InvalidArgument, NotFound, Unavailable};
        let unknown = RequestFault::UnknownNamespace("x".to_owned(), "a, b".to_owned());
        check(unknown, NotFound, "UNKNOWN_NAMESPACE", None);
        check(
            RequestFault::Empty("claims"),
            InvalidArgument,
            "EMPTY_REQUEST",
            Some("claims"),
        );
        check(
            RequestFault::Unreadable("it ends within a field".to_owned()),
            InvalidArgument,
            "UNREADABLE_REQUEST",
            None,
        );
        let too_many = RequestFault::TooMany {
            what: "events",
            count: 9,
            limit: 8,
        };
        check(too_many, InvalidArgument, "TOO_MANY_EVENTS", Some("events"));
        check(
            RequestFault::BadRequestId,
            InvalidArgument,
            "BAD_REQUEST_ID",
            Some("request_id"),
        );
        let too_large = RequestFault::ResponseTooLarge { bytes: 9, limit: 8 };
        check(
            too_large,
            InvalidArgument,
            "RESPONSE_TOO_LARGE",
            Some("events"),
        );
        check(
            RequestFault::NoOperation,
            InvalidArgument,
            "NO_OPERATION",
            Some("operation"),
        );
        check(
            RequestFault::UnsettledClaim,
            FailedPrecondition,
            "UNSETTLED_CLAIM",
            None,
        );
        let field = Fault::Field {
            field: "interval",
            problem: "must be at least 100 ms",
        };
        check(field, InvalidArgument, "INVALID_ARGUMENT", Some("interval"));
        let store = RequestFault::StoreUnavailable(StoreError::Timeout);
        check(store, Unavailable, "STORE_UNAVAILABLE", None);
        check(
            RequestFault::DeadlineExceeded,
            DeadlineExceeded,
            "DEADLINE_EXCEEDED",
            None,
        );
        check(Fault::Draining, Unavailable, "DRAINING", None);
        check(
            Fault::ForgetNotAllowed,
            Code::PermissionDenied,
            "FORGET_NOT_ALLOWED",
            None,
        );

        let mismatch = RequestFault::ContractMismatch {
            namespace: "pings".to_owned(),
            why: "place=12".to_owned(),
        };
        let details =
            check(mismatch, FailedPrecondition, "CONTRACT_MISMATCH", None).get_error_details();
        let metadata = &details.error_info().expect("checked").metadata;
        assert_eq!(
            (
                metadata["namespace"].as_str(),
                metadata["difference"].as_str()
            ),
            ("pings", "place=12")
        );
    }

    #[test]
    fn an_overload_says_when_to_come_again() {
        let retry_after = Duration::from_millis(40);
        let fault = RequestFault::Overloaded { retry_after };
        let status = check(fault.clone(), Code::ResourceExhausted, "OVERLOADED", None);
        let details = status.get_error_details();
        assert_eq!(
            details.retry_info().and_then(|info| info.retry_delay),
            Some(retry_after)
        );
        let error = pb::OperationError::from(Fault::from(fault));
        assert_eq!(
            error.retry_after,
            Some(prost_types::Duration {
                seconds: 0,
                nanos: 40_000_000
            })
        );
    }
}
