"""What runs on the node beside the chart: a Redis, and apps that admit and confirm with grpcurl."""

APP_IMAGE, REDIS_IMAGE = "docker.io/local/app:1", "docker.io/local/redis:1"
DEDUPD_REPOSITORY = "docker.io/local/dedupd"

RESTRICTED_POD = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}

# `handle ID` does what a consumer does with one event; PAUSE is its work.
FUNCTIONS = r"""
case $DEDUPD_ADDRESS in
    unix:*) socket=-unix; address=${DEDUPD_ADDRESS#unix:} ;;
    *) address=$DEDUPD_ADDRESS ;;
esac
call() { grpcurl -plaintext $socket -d "$2" "$address" "dedupd.v1.DedupService/$1"; }
handle() {
    answer=$(call Admit '{"namespace": "orders", "events": [{"keyed": {"eventId": "'"$1"'"}}]}')
    claim=$(echo "$answer" | busybox sed -n 's/.*"claim": "\(.*\)".*/\1/p')
    if [ -z "$claim" ]; then echo "no claim: $1 $answer"; return; fi
    busybox sleep "${PAUSE:-0}"
    case $(call Confirm '{"claims": ["'"$claim"'"]}') in
        *SETTLE_OUTCOME_APPLIED*) echo "confirmed: $1" ;;
        *) echo "not confirmed: $1" ;;
    esac
}
"""
# Told to stop, it takes one more event, works on it for a second, and only then ends.
CONSUMER = (
    FUNCTIONS
    + r"""
trap 'stopping=1' TERM
number=0
until [ "$stopping" ]; do
    number=$((number + 1))
    handle "$HOSTNAME-$number"
done
PAUSE=1 handle "$HOSTNAME-last"
"""
)
JOB = FUNCTIONS + 'for number in 1 2 3 4 5; do handle "job-$number"; done\n'


def pod_spec(script, **more):
    container = {
        "name": "app",
        "image": APP_IMAGE,
        "args": ["-c", script],
        "securityContext": RESTRICTED,
    }
    return {"containers": [container], "securityContext": RESTRICTED_POD} | more


def pod_template(script, annotations, labels, **more):
    meta = {"labels": labels, "annotations": annotations}
    return {"metadata": meta, "spec": pod_spec(script, **more)}


ASKS = {"dedupd.io/inject": "enabled"}


def consumers(namespace, replicas=2, annotations=ASKS, name="consumer"):
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": pod_template(CONSUMER, annotations, labels),
        },
    }


def job(namespace):
    template = pod_template(JOB, ASKS, {"app": "job"}, restartPolicy="Never")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job", "namespace": namespace},
        "spec": {"backoffLimit": 0, "template": template},
    }


def bare_pod(namespace, name, annotations):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": pod_spec("busybox sleep 1000"),
    }


def redis(namespace, address):
    labels = {"app": "redis"}
    container = {
        "name": "redis",
        "image": REDIS_IMAGE,
        "args": ["--save", "", "--protected-mode", "no", "--dir", "/data"],
        "ports": [{"containerPort": 6379}],
        "readinessProbe": {"tcpSocket": {"port": 6379}, "periodSeconds": 1},
        "securityContext": RESTRICTED,
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    spec = {
        "containers": [container],
        "securityContext": RESTRICTED_POD,
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    meta = {"name": "redis", "namespace": namespace}
    service = {"clusterIP": address, "selector": labels, "ports": [{"port": 6379}]}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": service},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        },
    ]
