//! The configuration as it takes effect, for people: in the shape and spelling of the file, with
//! defaults filled in and secrets left out.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{
    Config, StoreConfig, StoreUrl,
    quantity::{duration_text, size_text},
};
use crate::{
    domain::{
        key::Digest,
        policy::{Bounds, ContentMismatch, Policy, Window},
        time::{Implausible, TimeLimits},
    },
    store::redis::target::{Access, Password, Tls, Topology},
};

impl Config {
    /// What a file would say to have this effect (with other secrets), and each namespace's
    /// `contract`, which a file does not hold.
    pub fn redacted(&self) -> Value {
        let namespaces: Map<_, _> = self
            .namespaces
            .iter()
            .map(|policy| (policy.name().to_string(), namespace(policy)))
            .collect();
        let grpc: Vec<_> = self.listen.grpc.iter().map(ToString::to_string).collect();
        let mut listen = json!({
            "grpc": grpc,
            "socket_mode": format!("{:04o}", self.listen.socket_mode),
            "admin": self.listen.admin.to_string(),
        });
        if let Some(tls) = &self.listen.tls {
            listen["tls"] = json!({
                "cert_file": tls.cert_file,
                "key_file": tls.key_file,
                "client_ca_file": tls.client_ca_file,
            });
        }
        json!({
            "listen": listen,
            "store": store(&self.store),
            "limits": {
                "max_events_per_request": self.limits.max_events_per_request,
                "max_request_bytes": size_text(self.limits.max_request_bytes as u64),
                "max_response_bytes": size_text(self.limits.max_response_bytes as u64),
            },
            "drain": {
                "quiet": duration_text(self.drain.quiet),
                "deadline": duration_text(self.drain.deadline),
            },
            "inspect": { "allow_forget": self.inspect.allow_forget },
            "namespaces": namespaces,
        })
    }
}

/// User and password in the URL stand for those that take effect, wherever they were given.
fn store(config: &StoreConfig) -> Value {
    let mut shown = json!({
        "url": config.url.to_string(),
        "budget": duration_text(config.budget),
        "max_memory": size_text(config.max_memory_bytes),
        "max_local_memory": size_text(config.max_local_memory_bytes),
    });
    let StoreUrl::Redis(target) = &config.url else {
        return shown;
    };
    shown["wait_replicas"] = target.wait_replicas.into();
    shown["known_claims"] = json!({
        "max_age": duration_text(config.known_claims.max_age),
        "max_memory": size_text(config.known_claims.max_bytes),
    });
    show_files(&target.access, &mut shown);
    if let Topology::Sentinel { access, .. } = &target.topology {
        shown["sentinel"] = json!({});
        if access.user.is_some() {
            shown["sentinel"]["user"] = "***".into();
        }
        show_files(access, &mut shown["sentinel"]);
    }
    shown
}

fn show_files(access: &Access, shown: &mut Value) {
    match &access.password {
        Some(Password::File(path)) => shown["password_file"] = json!(path),
        Some(Password::Text(_)) | None => {}
    }
    if let Some(Tls { ca, identity }) = &access.tls {
        shown["tls"] = json!({
            "ca": ca,
            "certificate": identity.as_ref().map(|identity| &identity.certificate),
            "key": identity.as_ref().map(|identity| &identity.key),
        });
    }
}

fn namespace(policy: &Policy) -> Value {
    let bounds = policy.bounds();
    let accepts = policy.accepts();
    let kinds: Vec<_> = accepts.kinds().map(|kind| kind.to_string()).collect();
    let mut shown = json!({
        "accepts": kinds,
        "window": window(policy.window()),
        "ttl": duration_text(policy.ttl()),
        "failure_mode": policy.failure_mode().to_string(),
        "lease": duration_text(policy.lease()),
        "in_flight_retry": duration_text(policy.in_flight_retry()),
        "key": { "prefix": policy.scheme().prefix(), "layout": policy.scheme().layout().name() },
        "mode": policy.mode().to_string(),
        "contract": policy.contract(),
    });
    if accepts.keyed {
        shown["content_mismatch"] = match policy.content_mismatch() {
            ContentMismatch::DeadLetter => "dead_letter",
            ContentMismatch::Suppress => "suppress",
        }
        .into();
    } else {
        let digest = if accepts.transition {
            policy.scheme().transition_digest()
        } else {
            Digest::Blake2b
        };
        shown["key"]["digest"] = digest.name().into();
        shown["time"] = time(policy.time_limits());
    }
    if accepts.ping {
        shown["place"] = place(policy);
    }
    if bounds != Bounds::default() {
        shown["bounds"] = json!({
            "max_duplicate_spread": bounds.max_duplicate_spread.map(duration_text),
            "min_revisit": bounds.min_revisit.map(duration_text),
        });
    }
    shown
}

fn window(window: Window) -> Value {
    let text = |nanos| duration_text(Duration::from_nanos(nanos));
    match window {
        Window::None => json!("none"),
        Window::Buckets { width_ns, guard_ns } if guard_ns == width_ns => {
            json!({ "sliding": text(width_ns) })
        }
        Window::Buckets { width_ns, guard_ns } => {
            json!({ "tumbling": text(width_ns), "guard": text(guard_ns) })
        }
        Window::Session { gap_ns } => json!({ "session": text(gap_ns) }),
    }
}

fn place(policy: &Policy) -> Value {
    let Some(place) = policy.place() else {
        return json!("none");
    };
    json!({
        "resolution": u8::from(place.resolution()),
        "guard_m": place.guard_m(),
        "jitter_radius_m": place.jitter_radius_m(),
        "region": place.region().map(|region| region.corners_deg()),
    })
}

fn time(limits: &TimeLimits) -> Value {
    let text = |limit: Option<u64>| {
        limit.map_or("off".to_owned(), |nanos| {
            duration_text(Duration::from_nanos(nanos))
        })
    };
    let implausible = match limits.implausible() {
        Implausible::DeadLetter => "dead_letter",
        Implausible::Clamp => "clamp",
    };
    json!({
        "max_future": text(limits.max_future_ns()),
        "max_age": text(limits.max_age_ns()),
        "implausible": implausible,
    })
}
