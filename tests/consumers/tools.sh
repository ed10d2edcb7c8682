# What the tests of the contract and of consumers need; sourced by tests/run.sh.

readonly buf_version=1.75.0

install_buf() {
    local directory=$cache/buf-$buf_version
    [[ -x $directory/buf ]] || GOBIN=$directory go install \
        "github.com/bufbuild/buf/cmd/buf@v$buf_version" || return 1
    buf=$directory/buf
}

# A broker is its jars and a Java to run them.
install_kafka() {
    local pom=tests/consumers/kafka/pom.xml key directory
    type -P java >/dev/null || return 1
    key=$(sha256sum "$pom" | cut -c1-16)
    directory=$cache/kafka-$key
    if [[ ! -e $directory/complete ]]; then
        mvn -B -q -Dstyle.color=never -f "$pom" dependency:copy-dependencies \
            -DoutputDirectory="$directory" &&
            touch "$directory/complete" || return 1
    fi
    export DEDUPD_TEST_KAFKA=$directory
}

# dedupd's client is generated with buf, as its README says.
build_go_example() {
    local program=${CARGO_TARGET_DIR:-$PWD/target}/warehouse
    [[ -n $buf ]] && mkdir -p "${program%/*}" || return 1
    (cd examples/go && PATH=${buf%/*}:$PATH go generate . && go vet . && go build -o "$program" .) ||
        return 1
    export DEDUPD_TEST_WAREHOUSE=$program
}

# Names and numbers as they should be, and none changed since the contract was published.
# After a release, or a change before the first one that the changelog names:
# buf build proto --exclude-source-info -o tests/data/published.binpb
check_contract() {
    step "The published contract"
    "$buf" lint
    "$buf" breaking proto --against tests/data/published.binpb
}

test_consumers() {
    step "Consumers, on real brokers and beside old ones"
    cargo build --locked --bin dedupd
    "$DEDUPD_TEST_PYTHON" -m pytest -q -p no:cacheprovider tests/consumers
}
