#!/usr/bin/env bash
# dedupd beside what is used today, in one run: docs/benchmarks.md says what is compared.
#
#   benches/compare.sh           the contenders and the ratios
#   benches/compare.sh growth    CPU per event against batch, streams, claims, namespaces, shards
#
# Sizes by environment: ROUNDS, SECONDS, WARM_UP; ONLY='a;b' for rows whose name contains a or b;
# PROFILE=dev for a build without optimisation, which measures nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly cache=${XDG_CACHE_HOME:-$HOME/.cache}/dedupd
readonly mode=${1:-compare} only=${ONLY:-}

wants() { [[ $mode == compare && (-z $only || $only == *"$1"*) ]]; }

for program in redis-server redis-benchmark redis-cli; do
    type -P "$program" >/dev/null || { echo "$0: there is no $program: install Redis" >&2; exit 1; }
done

# A venv of the versions in requirements.txt.
make_python() {
    local file=benches/compare/requirements.txt directory
    directory=$cache/compare-python-$({ python3 --version && cat "$file"; } | sha256sum | cut -c1-16)
    if [[ ! -e $directory/complete ]]; then
        python3 -m venv --clear "$directory" &&
            "$directory/bin/pip" install -q --only-binary :all: -r "$file" &&
            touch "$directory/complete" || return 1
    fi
    export PYTHON=$directory/bin/python
}

make_benthos() {
    local directory
    directory=$cache/compare-benthos-$(cat benches/compare/benthos/* | sha256sum | cut -c1-16)
    [[ -x $directory/benthos ]] ||
        (cd benches/compare/benthos && go build -o "$directory/benthos" .) || return 1
    export BENTHOS=$directory/benthos
}

if wants python && [[ -z ${PYTHON:-} ]]; then
    make_python || echo "left out, the packages cannot be had: Python" >&2
fi
if wants benthos && [[ -z ${BENTHOS:-} ]]; then
    make_benthos || echo "left out, it does not build: benthos" >&2
fi

# Redis has a core of its own, which only the rows of known claims share, and so has the service where
# there is no Redis.
cores=$(nproc)
if [[ -z ${OWN_CPU:-} ]] && ((cores > 1)) && type -P taskset >/dev/null; then
    export OWN_CPU=0 OTHER_CPUS=1-$((cores - 1))
fi

cargo bench -q --locked --profile "${PROFILE:-bench}" --bench compare --no-run
run=(cargo bench -q --locked --profile "${PROFILE:-bench}" --bench compare -- "$mode")
[[ -z ${OTHER_CPUS:-} ]] || run=(taskset -c "$OTHER_CPUS" "${run[@]}")

# In a process group of its own, so that what it has started ends with it.
set -m
"${run[@]}" &
readonly group=$!
trap 'kill -- -$group 2>/dev/null || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
wait "$group"
