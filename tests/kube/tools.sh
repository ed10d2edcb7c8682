# What the tests of the chart need; sourced by tests/run.sh.

readonly helm_version=3.22.0 helm_docs_version=1.14.2
readonly crd_modules=(
    github.com/prometheus-operator/prometheus-operator@v0.85.0
    github.com/cert-manager/cert-manager@v1.21.2
)

# Packages that are missing: for an API server alone and for a node.
missing_packages_for_kubernetes() {
    local program package
    while read -r program package; do
        type -P "$program" >/dev/null || echo "$package"
    done <<'END'
etcd etcd-server
promtool prometheus
openssl openssl
strip binutils
END
    [[ $with_node == true ]] || return 0
    while read -r program package; do
        type -P "$program" >/dev/null || echo "$package"
    done <<'END'
/usr/lib/cni/bridge containernetworking-plugins
busybox busybox-static
conntrack conntrack
containerd containerd
ip iproute2
iptables iptables
nsenter util-linux
runc runc
END
}

# Kubernetes' own programs, helm, and helm-docs, which writes the chart's README.
install_kubernetes() {
    DEDUPD_TEST_KUBERNETES=$(tests/kube/node.sh build) && export DEDUPD_TEST_KUBERNETES || return 1
    install_go_program helm "$helm_version" helm.sh/helm/v3/cmd/helm &&
        install_go_program helm-docs "$helm_docs_version" github.com/norwoodj/helm-docs/cmd/helm-docs &&
        fetch_crds || return 1
    export DEDUPD_TEST_HELM=$cache/helm-$helm_version/helm
    export DEDUPD_TEST_HELM_DOCS=$cache/helm-docs-$helm_docs_version/helm-docs
}

install_go_program() {
    local name=$1 version=$2 package=$3
    local directory=$cache/$name-$version
    [[ -x $directory/$name ]] || GOBIN=$directory go install "$package@v$version"
}

# The definitions of the objects that the chart makes for others, as their modules carry them.
fetch_crds() {
    local directory module folder
    directory=$cache/crds-$(printf '%s\n' "${crd_modules[@]}" | sha256sum | cut -c1-16)
    if [[ ! -e $directory/complete ]]; then
        mkdir -p "$directory"
        for module in "${crd_modules[@]}"; do
            folder=$(go mod download -json "$module" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
            find "$folder" \( -path '*/prometheus-operator-crd/monitoring*_pod*' \
                -o -path '*/prometheus-operator-crd/monitoring*_prometheusrules*' \
                -o -path '*/deploy/crds/cert-manager.io_*' \) -exec cp {} "$directory" \;
        done
        chmod u+w "$directory"/* && touch "$directory/complete"
    fi
    [[ $(find "$directory" -name '*.yaml' | wc -l) -ge 6 ]] || return 1
    export DEDUPD_TEST_CRDS=$directory
}

test_chart() {
    step "The chart: rendered, refused, taken by an API server; alerts and dashboard"
    cargo build --locked --bin dedupd
    "$DEDUPD_TEST_PYTHON" -m pytest -q -p no:cacheprovider tests/kube --ignore-glob "*/test_node*.py"
}

test_node() {
    step "A Kubernetes node"
    cargo build --locked --bin dedupd
    "$DEDUPD_TEST_PYTHON" -m pytest -q -p no:cacheprovider tests/kube/test_node*.py
}
