#!/usr/bin/env bash
# Builds the clients of one language (go, java, rust or typescript) and prints the folder of their
# programs. Sources are copied to a cache outside the tree, by what they and their tools are, and
# what was built there before is not built again. Go's stubs are made by Python's protoc.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly language=$1 cache=${XDG_CACHE_HOME:-$HOME/.cache}/dedupd
exec 3>&1 1>&2 # Only the folder is printed.

need() { # a program, and the package that brings it
    type -P "$1" >/dev/null && return
    ((EUID == 0)) || { echo "missing, install as root: $2" >&2; return 1; }
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >&2
}

tools() {
    case $language in
        go) go version && "$DEDUPD_TEST_PYTHON" --version ;;
        java) need javac openjdk-17-jdk-headless && need mvn maven && javac -version 2>&1 && mvn -v ;;
        typescript) node -e 'if (parseInt(process.versions.node) < 20) throw "Node 20 or later"' && node -v ;;
    esac
}

sources() {
    local folders=(proto "tests/conformance/$language")
    [[ $language == go ]] || folders+=("examples/$language")
    git ls-files -co --exclude-standard -- "${folders[@]}"
}

build_rust() {
    local manifest
    export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
    for manifest in {tests/conformance,examples}/rust/Cargo.toml; do
        cargo build -q --locked --manifest-path "$manifest"
    done
    echo "$CARGO_TARGET_DIR/debug" >&3
}

build_go() {
    local module=dedupd.example/conformance options=() file
    cd tests/conformance/go
    go build -o tools/ google.golang.org/protobuf/cmd/protoc-gen-go \
        google.golang.org/grpc/cmd/protoc-gen-go-grpc
    for file in ../../../proto/dedupd/v1/*.proto; do
        options+=("--"{go,go-grpc}"_opt=M${file#../../../proto/}=$module/gen/dedupd/v1")
    done
    PATH=$PWD/tools:$PATH "$DEDUPD_TEST_PYTHON" -m grpc_tools.protoc -I../../../proto \
        --{go,go-grpc}_out=. --{go,go-grpc}_opt=module="$module" "${options[@]}" \
        ../../../proto/dedupd/v1/*.proto
    go build -o "$1" ./cmd/...
}

build_java() {
    local program class folder
    mvn -q -B -Dstyle.color=never -f tests/conformance/java package
    mvn -q -B -Dstyle.color=never -f examples/java package
    while read -r program class folder; do
        # A program of seconds: no second compiler, no second collector.
        printf '#!/bin/sh\nexec java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp "%s:%s" %s "$@"\n' \
            "$PWD/$folder/target/classes" "$PWD/$folder/target/lib/*" "$class" >"$1/$program"
    done <<'END'
conformance dedupd.conformance.Conformance tests/conformance/java
keys dedupd.conformance.Keys tests/conformance/java
consumer fleet.Consumer examples/java
END
}

build_typescript() {
    local folder program
    for folder in {tests/conformance,examples}/typescript; do
        (cd "$folder" && npm ci --silent --ignore-scripts && npm run --silent build)
        for program in conformance keys consumer webhook; do
            [[ -e $folder/dist/$program.js ]] || continue
            printf '#!/bin/sh\nexec node "%s" "$@"\n' "$PWD/$folder/dist/$program.js" >"$1/$program"
        done
    done
}

tools=$(tools)
[[ $language != rust ]] || { build_rust; exit; }
mapfile -t files < <(sources)
key=$({ echo "$tools"; cat tests/clients.sh; sha256sum "${files[@]}"; } | sha256sum | cut -c1-16)
folder=$cache/client-$language-$key
if [[ ! -e $folder/complete ]]; then
    rm -rf "$folder"
    mkdir -p "$folder/bin"
    cp --parents -t "$folder" "${files[@]}"
    (cd "$folder" && "build_$language" "$folder/bin")
    chmod +x "$folder"/bin/*
    touch "$folder/complete"
    find "$cache" -maxdepth 1 -name "client-$language-*" -mtime +7 -exec rm -rf {} +
fi
echo "$folder/bin" >&3
