//! What becomes of a pod. The names are labels of metrics and reasons of Events: a fixed list.

use std::fmt;

use json_patch::Patch;

#[derive(Debug)]
pub enum Outcome {
    Injected(Injection),
    Skipped(Skip),
    Refused(Refused),
}

#[derive(Debug)]
pub struct Injection {
    pub patch: Patch,
    /// What is allowed but probably not meant, for people.
    pub warnings: Vec<String>,
}

/// Why a pod stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    AnnotationAbsent,
    AnnotationDisabled,
    AlreadyInjected,
    HostNetwork,
    Windows,
    MirrorPod,
    NotAPod,
}

/// A pod that cannot be what it asks for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    pub reason: Refusal,
    /// What is wrong and what to do.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    BadAnnotation,
    UnknownAnnotation,
    UnknownPolicy,
    StoreNeeded,
    NameTaken,
    PortTaken,
    BadPod,
}

impl Skip {
    pub const ALL: [Self; 7] = [
        Self::AnnotationAbsent,
        Self::AnnotationDisabled,
        Self::AlreadyInjected,
        Self::HostNetwork,
        Self::Windows,
        Self::MirrorPod,
        Self::NotAPod,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Skip::AnnotationAbsent => "annotation_absent",
            Skip::AnnotationDisabled => "annotation_disabled",
            Skip::AlreadyInjected => "already_injected",
            Skip::HostNetwork => "host_network",
            Skip::Windows => "windows",
            Skip::MirrorPod => "mirror_pod",
            Skip::NotAPod => "not_a_pod",
        }
    }

    /// It asked for a sidecar and gets none.
    pub const fn is_surprising(self) -> bool {
        match self {
            Skip::HostNetwork | Skip::Windows | Skip::MirrorPod => true,
            Skip::AnnotationAbsent
            | Skip::AnnotationDisabled
            | Skip::AlreadyInjected
            | Skip::NotAPod => false,
        }
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Skip::AnnotationAbsent => {
                "no annotation dedupd.io/inject: enabled on the pod or its template"
            }
            Skip::AnnotationDisabled => "the annotation dedupd.io/inject is disabled",
            Skip::AlreadyInjected => "it has its dedupd already",
            Skip::HostNetwork => {
                "it uses the host's network, where the ports of two pods would meet"
            }
            Skip::Windows => "it is for Windows, for which there is no dedupd",
            Skip::MirrorPod => "it mirrors a static pod, which only its file can change",
            Skip::NotAPod => "it is no pod that is being created",
        })
    }
}

impl Refusal {
    pub const ALL: [Self; 7] = [
        Self::BadAnnotation,
        Self::UnknownAnnotation,
        Self::UnknownPolicy,
        Self::StoreNeeded,
        Self::NameTaken,
        Self::PortTaken,
        Self::BadPod,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Refusal::BadAnnotation => "bad_annotation",
            Refusal::UnknownAnnotation => "unknown_annotation",
            Refusal::UnknownPolicy => "unknown_policy",
            Refusal::StoreNeeded => "store_needed",
            Refusal::NameTaken => "name_taken",
            Refusal::PortTaken => "port_taken",
            Refusal::BadPod => "bad_pod",
        }
    }
}

impl Refused {
    pub(super) fn new(reason: Refusal, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}
