//! `admission.k8s.io/v1`: the question and the answer.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::inject::{Outcome, Refused, Skip};

const API_VERSION: &str = "admission.k8s.io/v1";

/// A question about one object.
#[derive(Debug)]
pub struct Review {
    uid: String,
    /// Nothing but the answer may come of it.
    pub dry_run: bool,
    /// A pod is being created, which is all that this server is for.
    pub creates_pod: bool,
    pub namespace: String,
    pub object: Value,
}

/// Why something is no review, for whoever sent it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(String);

impl Review {
    pub fn read(body: &[u8]) -> Result<Self, Malformed> {
        let mut review: Value = serde_json::from_slice(body)
            .map_err(|error| Malformed(format!("the body is not JSON: {error}")))?;
        let malformed = |message: &str| Err(Malformed(message.to_owned()));
        if review["kind"] != "AdmissionReview" || review["apiVersion"] != API_VERSION {
            return malformed("the body is no AdmissionReview of admission.k8s.io/v1");
        }
        let Some(request) = review.get_mut("request").filter(|value| value.is_object()) else {
            return malformed("request is missing, or no mapping");
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let uid = text(&request["uid"]);
        if uid.is_empty() {
            return malformed("request.uid is missing, or no text");
        }
        let resource = &request["resource"];
        let creates_pod = request["operation"] == "CREATE"
            && text(&resource["group"]).is_empty()
            && resource["resource"] == "pods"
            && text(&request["subResource"]).is_empty();
        if creates_pod && !request["object"].is_object() {
            return malformed("request.object is missing, or no mapping");
        }
        Ok(Self {
            uid,
            dry_run: request["dryRun"] == true,
            creates_pod,
            namespace: text(&request["namespace"]),
            object: request["object"].take(),
        })
    }

    /// `decision` is an outcome or, for what is no pod being created, the skip that says so.
    pub fn answer(&self, decision: &Outcome) -> Value {
        let mut response = json!({ "uid": self.uid, "allowed": true });
        let mut warnings: Vec<String> = Vec::new();
        match decision {
            Outcome::Injected(injection) => {
                let patch = serde_json::to_vec(&injection.patch).unwrap_or_default();
                response["patchType"] = "JSONPatch".into();
                response["patch"] = BASE64_STANDARD.encode(patch).into();
                warnings.clone_from(&injection.warnings);
            }
            Outcome::Skipped(skip) => {
                if skip.is_surprising() {
                    warnings.push(skipped(*skip));
                }
            }
            Outcome::Refused(refused) => {
                response["allowed"] = false.into();
                response["status"] = json!({
                    "status": "Failure",
                    "reason": "BadRequest",
                    "code": 400,
                    "message": refusal(refused),
                });
            }
        }
        if !warnings.is_empty() {
            response["warnings"] = warnings.into();
        }
        json!({ "apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response })
    }
}

pub(super) fn skipped(skip: Skip) -> String {
    format!("dedupd is not put into this pod: {skip}")
}

fn refusal(refused: &Refused) -> String {
    format!("dedupd cannot be put into this pod: {refused}")
}
