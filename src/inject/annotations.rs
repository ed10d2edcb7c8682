//! What a pod's annotations ask for.

use serde_json::{Map, Value};

use super::outcome::{Refusal, Refused};
use crate::config::{
    LogFormat,
    injector::{
        Grpc, LogLevel, PORTS, Quantity, SecretKey, Sidecar, StoreSource, check_key, check_name,
    },
};

const PREFIX: &str = "dedupd.io/";
pub const INJECT: &str = "dedupd.io/inject";
/// Written into pods that have their sidecar.
pub const INJECTED: &str = "dedupd.io/injected";
const CONFIG: &str = "dedupd.io/config";
/// Longest piece of a value that a message shows.
const MAX_SHOWN_CHARS: usize = 64;

/// Whether a sidecar is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Enabled,
    Disabled,
    Unsaid,
}

/// Those that people write.
pub fn names() -> impl Iterator<Item = &'static str> {
    [INJECT]
        .into_iter()
        .chain(KINDS.iter().map(|kind| kind.name))
}

pub(super) fn wish(annotations: &Map<String, Value>) -> Result<Wish, Refused> {
    match annotations.get(INJECT) {
        None | Some(Value::Null) => Ok(Wish::Unsaid),
        Some(Value::String(text)) if text == "enabled" => Ok(Wish::Enabled),
        Some(Value::String(text)) if text == "disabled" => Ok(Wish::Disabled),
        Some(other) => Err(Refused::new(
            Refusal::BadAnnotation,
            format!("{INJECT}: {} is neither enabled nor disabled", shown(other)),
        )),
    }
}

/// What is configured, as far as annotations say nothing else. All faults make one message.
pub(super) fn apply(
    annotations: &Map<String, Value>,
    sidecar: &Sidecar,
) -> Result<Wanted, Refused> {
    let mut wanted = Wanted {
        sidecar: sidecar.clone(),
        policy: None,
        names_store: false,
    };
    let mut faults: Vec<(Refusal, String)> = Vec::new();
    let ours = annotations.iter().filter(|(name, value)| {
        name.starts_with(PREFIX) && *name != INJECT && *name != INJECTED && !value.is_null()
    });
    for (name, value) in ours {
        let Some(kind) = KINDS.iter().find(|kind| kind.name == name) else {
            let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
            let message = format!(
                "{}: is not known; there are {INJECT}, {}",
                shown_text(name),
                known.join(", ")
            );
            faults.push((Refusal::UnknownAnnotation, message));
            continue;
        };
        let read = match value {
            Value::String(text) => (kind.read)(&mut wanted, text),
            _ => Err("is not text: put it in quotes".to_owned()),
        };
        if let Err(message) = read {
            faults.push((Refusal::BadAnnotation, format!("{name}: {message}")));
        }
    }
    if faults.is_empty() {
        faults.extend(wanted.contradictions());
    }
    match faults.first() {
        None => Ok(wanted),
        Some((reason, _)) => {
            let messages: Vec<&str> = faults.iter().map(|(_, text)| text.as_str()).collect();
            Err(Refused::new(*reason, messages.join("; ")))
        }
    }
}

/// The sidecar that a pod wants.
pub(super) struct Wanted {
    pub(super) sidecar: Sidecar,
    /// The name of one.
    pub(super) policy: Option<String>,
    /// An annotation says where the store is.
    pub(super) names_store: bool,
}

struct Kind {
    name: &'static str,
    read: fn(&mut Wanted, &str) -> Result<(), String>,
}

const KINDS: [Kind; 12] = [
    Kind {
        name: CONFIG,
        read: |wanted, text| {
            wanted.policy = Some(text.to_owned());
            Ok(())
        },
    },
    Kind {
        name: "dedupd.io/store-secret",
        read: |wanted, text| {
            wanted.sidecar.store.url = Some(StoreSource::Secret(secret_key(text)?));
            wanted.names_store = true;
            Ok(())
        },
    },
    Kind {
        name: "dedupd.io/cpu-request",
        read: |wanted, text| quantity(&mut wanted.sidecar.resources.cpu_request, text),
    },
    Kind {
        name: "dedupd.io/cpu-limit",
        read: |wanted, text| quantity(&mut wanted.sidecar.resources.cpu_limit, text),
    },
    Kind {
        name: "dedupd.io/memory-request",
        read: |wanted, text| quantity(&mut wanted.sidecar.resources.memory_request, text),
    },
    Kind {
        name: "dedupd.io/memory-limit",
        read: |wanted, text| quantity(&mut wanted.sidecar.resources.memory_limit, text),
    },
    Kind {
        name: "dedupd.io/image",
        read: |wanted, text| {
            if text.is_empty() || text.contains(char::is_whitespace) {
                return Err(format!("{} is not an image", shown_text(text)));
            }
            text.clone_into(&mut wanted.sidecar.image);
            Ok(())
        },
    },
    Kind {
        name: "dedupd.io/log-level",
        read: |wanted, text| {
            let levels = LogLevel::ALL.map(|level| (level.name(), level));
            wanted.sidecar.log_level = one_of(text, &levels)?;
            Ok(())
        },
    },
    Kind {
        name: "dedupd.io/log-format",
        read: |wanted, text| {
            let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
            wanted.sidecar.log_format = one_of(text, &formats)?;
            Ok(())
        },
    },
    Kind {
        name: "dedupd.io/grpc",
        read: |wanted, text| {
            let ways = [("loopback", Grpc::Loopback), ("socket", Grpc::Socket)];
            wanted.sidecar.grpc = one_of(text, &ways)?;
            Ok(())
        },
    },
    Kind {
        name: "dedupd.io/grpc-port",
        read: |wanted, text| port(&mut wanted.sidecar.grpc_port, text),
    },
    Kind {
        name: "dedupd.io/admin-port",
        read: |wanted, text| port(&mut wanted.sidecar.admin_port, text),
    },
];

impl Wanted {
    fn contradictions(&self) -> Vec<(Refusal, String)> {
        let limits = self.sidecar.resources.contradictions();
        let mut found: Vec<(Refusal, String)> = limits
            .into_iter()
            .map(|(what, message)| {
                let message = format!("dedupd.io/{what}-limit: {message}");
                (Refusal::BadAnnotation, message)
            })
            .collect();
        if self.sidecar.grpc_port == self.sidecar.admin_port {
            let message = format!(
                "dedupd.io/admin-port: {} is the port of gRPC too",
                self.sidecar.admin_port
            );
            found.push((Refusal::BadAnnotation, message));
        }
        found
    }
}

fn quantity(place: &mut Option<Quantity>, text: &str) -> Result<(), String> {
    *place = Some(Quantity::parse(text)?);
    Ok(())
}

fn port(place: &mut u16, text: &str) -> Result<(), String> {
    match text.parse() {
        Ok(port) if PORTS.contains(&port) => {
            *place = port;
            Ok(())
        }
        _ => Err(format!(
            "{} is not a port of {} to {}",
            shown_text(text),
            PORTS.start(),
            PORTS.end()
        )),
    }
}

/// `NAME` or `NAME/KEY`.
fn secret_key(text: &str) -> Result<SecretKey, String> {
    let (secret, key) = text.split_once('/').unwrap_or((text, "url"));
    check_name(secret).map_err(|message| format!("{} {message}", shown_text(secret)))?;
    check_key(key).map_err(|message| format!("{} {message}", shown_text(key)))?;
    Ok(SecretKey {
        secret: secret.to_owned(),
        key: key.to_owned(),
    })
}

fn one_of<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    match words.iter().find(|(word, _)| *word == text) {
        Some((_, meaning)) => Ok(*meaning),
        None => {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            Err(format!(
                "{} is none of {}",
                shown_text(text),
                known.join(", ")
            ))
        }
    }
}

fn shown(value: &Value) -> String {
    shown_text(value.as_str().unwrap_or(&value.to_string()))
}

fn shown_text(text: &str) -> String {
    format!(
        "{:?}",
        text.chars().take(MAX_SHOWN_CHARS).collect::<String>()
    )
}
