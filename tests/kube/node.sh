#!/usr/bin/env bash
# A single-node Kubernetes for tests, without Docker: the control plane and the kubelet built from
# their Go modules; the distribution's etcd, containerd and runc; all inside one network namespace, which
# nothing leaves. Root on Linux; cgroup v1 will do.
#
#   node.sh build          the programs, whose folder it prints (6 to 10 minutes on two cores)
#   node.sh up             until the node is ready
#   node.sh load FILE.tar  an image archive, as image.py makes one
#   node.sh kubectl ARG…
#   node.sh exec COMMAND…  in the node's network, where pods and Services have addresses
#   node.sh down           stops everything, and removes what it has left
#
# STATE is the folder of one node, short (it holds sockets).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here version=1.36.3 state=${STATE:-/tmp/dedupd-node}
readonly bin=${XDG_CACHE_HOME:-$HOME/.cache}/dedupd/kubernetes-$version
netns=$(basename "$state")
readonly netns address=192.0.2.10 # of a range that leads nowhere (TEST-NET-1)

in_node() { nsenter --net="/run/netns/$netns" "$@"; } # `ip netns exec` hides the cgroup mounts
images() { ctr -a "$state/containerd.sock" -n k8s.io "$@"; }
kubectl() { in_node "$bin/kubectl" --kubeconfig "$state/kubeconfig" "$@"; }

start() {
    local name=$1
    shift
    nsenter --net="/run/netns/$netns" "$@" >"$state/log/$name.log" 2>&1 &
    echo $! >"$state/$name.pid"
}

# SIGTERM, and SIGKILL to what does not heed it.
stop() {
    local pid
    [[ -f $state/$1.pid ]] || return 0
    pid=$(<"$state/$1.pid")
    kill "$pid" 2>/dev/null || return 0
    for _ in $(seq 100); do
        [[ -e /proc/$pid/exe ]] || return 0 # nor has a zombie one
        sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null || true
}

await() {
    local what=$1
    shift
    for _ in $(seq 300); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.3
    done
    echo "node.sh: timed out: $what; see $state/log" >&2
    exit 1
}

build() {
    local commands=(kube-apiserver kubectl kube-controller-manager kubelet kube-scheduler kube-proxy)
    local module command build
    if [[ -e $bin/complete ]]; then
        echo "$bin"
        return
    fi
    build=$(mktemp -d)
    trap 'rm -rf "$build"' RETURN
    mkdir -p "$bin"
    cd "$build"
    # Kubernetes requires its own libraries at v0.0.0; each is published as v0.MINOR.PATCH.
    printf 'module node\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v%s\n' "$version" >go.mod
    module=$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
    sed -nE "s#^\s+(k8s\.io/\S+) v0\.0\.0\$#replace \1 => \1 v0${version#1}#p" "$module" >>go.mod
    {
        echo 'package tools'
        printf 'import _ "k8s.io/kubernetes/cmd/%s"\n' "${commands[@]}"
    } >tools.go
    go mod tidy >&2
    for command in "${commands[@]}"; do
        go build -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v$version" \
            -o "$bin/$command" "k8s.io/kubernetes/cmd/$command"
    done
    touch "$bin/complete"
    echo "$bin"
}

network() {
    ip netns add "$netns"
    ip -n "$netns" link set lo up
    ip -n "$netns" link add node0 type veth peer name node0p
    ip -n "$netns" addr add $address/24 dev node0
    ip -n "$netns" link set node0p up
    ip -n "$netns" link set node0 up
    ip -n "$netns" route add default via 192.0.2.1
    in_node sysctl -qw net.ipv4.ip_forward=1
}

configure() {
    local token
    openssl genrsa -out sa.key 2048 2>/dev/null
    openssl rsa -in sa.key -pubout -out sa.pub 2>/dev/null
    token=$(openssl rand -hex 16)
    echo "$token,admin,admin,system:masters" >tokens.csv
    cat >kubeconfig <<YAML
apiVersion: v1
kind: Config
clusters: [{ name: node, cluster: { server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true } }]
users: [{ name: admin, user: { token: "$token" } }]
contexts: [{ name: node, context: { cluster: node, user: admin } }]
current-context: node
YAML
    cat >containerd.toml <<TOML
version = 2
root = "$state/containerd"
state = "$state/containerd-run"
[grpc]
  address = "$state/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/local/pause:1"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true # so that they go with it
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$state/cni"
TOML
    cat >cni/10-bridge.conflist <<'JSON'
{ "cniVersion": "0.4.0", "name": "pods", "plugins": [
  { "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
    "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.244.0.0/24" }]], "routes": [{ "dst": "0.0.0.0/0" }] } }] }
JSON
    cat >kubelet.yaml <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: { anonymous: { enabled: true }, webhook: { enabled: false } }
authorization: { mode: AlwaysAllow }
containerRuntimeEndpoint: unix://$state/containerd.sock
cgroupDriver: cgroupfs
failCgroupV1: false
cgroupsPerQOS: false
enforceNodeAllocatable: []
localStorageCapacityIsolation: false
failSwapOn: false
evictionHard: { memory.available: 1Mi }
# Secrets and ConfigMaps reach pods within seconds.
syncFrequency: 5s
YAML
}

up() {
    [[ ! -e $state ]] || { echo "node.sh: $state exists: node.sh down, or another STATE" >&2; exit 1; }
    mkdir -p "$state"/{log,cni}
    cd "$state"
    network
    configure
    start containerd containerd -c containerd.toml
    start etcd etcd --data-dir etcd --unsafe-no-fsync --listen-client-urls http://127.0.0.1:2379 \
        --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380
    await containerd images version
    start apiserver "$bin/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 --advertise-address=$address \
        --cert-dir=certs --service-account-issuer=https://kubernetes.default.svc \
        --service-account-key-file=sa.pub --service-account-signing-key-file=sa.key \
        --service-cluster-ip-range=10.96.0.0/16 --token-auth-file=tokens.csv --authorization-mode=RBAC \
        --kubelet-preferred-address-types=InternalIP
    await "the API server" kubectl get --raw /readyz
    start controllers "$bin/kube-controller-manager" --kubeconfig kubeconfig \
        --service-account-private-key-file sa.key --root-ca-file certs/apiserver.crt --cert-dir controllers
    start scheduler "$bin/kube-scheduler" --kubeconfig kubeconfig --cert-dir scheduler
    start proxy "$bin/kube-proxy" --kubeconfig kubeconfig --hostname-override node --proxy-mode iptables \
        --conntrack-max-per-core 0 --cluster-cidr 10.244.0.0/24
    start kubelet "$bin/kubelet" --config kubelet.yaml --kubeconfig kubeconfig --root-dir "$state/kubelet" \
        --hostname-override node --node-ip $address --cert-dir "$state/kubelet/pki"
    python3 "$here/image.py" local/pause:1 pause.tar '["/bin/busybox", "sleep", "2147483647"]' \
        "$(command -v busybox):/bin/busybox"
    load pause.tar
    await "the node" kubectl wait --for=condition=Ready node/node --timeout=1s
    await "the default service account" kubectl get serviceaccount default
}

load() { images images import "$1"; }

down() {
    local name mount task
    # Their network namespaces are freed by the kubelet.
    timeout 60 "$here/node.sh" kubectl delete pods --all --all-namespaces --force --grace-period=0 \
        >/dev/null 2>&1 || true
    for _ in $(seq 50); do
        [[ -n $(images tasks ls -q 2>/dev/null) ]] || break
        sleep 0.2
    done
    for name in kubelet proxy scheduler controllers apiserver; do stop $name; done
    for task in $(images tasks ls -q 2>/dev/null || true); do
        images tasks rm -f "$task" >/dev/null 2>&1 || true
    done
    for name in etcd containerd; do stop $name; done
    awk -v state="$state/" 'index($2, state) == 1 { print $2 }' /proc/mounts | sort -r |
        while read -r mount; do umount -l "$mount"; done
    ip netns del "$netns" 2>/dev/null || true
    rm -rf "$state"
}

case ${1:-} in
    build | up | down) "$1" ;;
    load) load "$2" ;;
    kubectl) shift && kubectl "$@" ;;
    exec) shift && exec nsenter --net="/run/netns/$netns" "$@" ;;
    *) sed -n '2,15p' "${BASH_SOURCE[0]}" && exit 64 ;;
esac
