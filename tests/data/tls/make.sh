#!/usr/bin/env bash
# Makes the certificates of the TLS tests: for tests only, valid for a hundred years, kept in the
# tree so that the tests need no openssl. Run it again to replace them all.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
readonly days=36500

authority() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days "$days" \
        -subj "/CN=dedupd test $1" -addext basicConstraints=critical,CA:TRUE \
        -keyout "$1.key" -out "$1.pem"
}

# Signed by an authority: name, authority, extensions.
certificate() {
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=dedupd test $1" \
        -keyout "$1.key" -out "$1.csr"
    openssl x509 -req -in "$1.csr" -CA "$2.pem" -CAkey "$2.key" -CAcreateserial -days "$days" \
        -extfile <(printf '%s\n' "basicConstraints=CA:FALSE" "$3") -out "$1.pem"
    rm "$1.csr"
}

authority ca
authority other-ca
certificate server ca "subjectAltName=DNS:localhost,IP:127.0.0.1"
certificate client ca "extendedKeyUsage=clientAuth"
certificate stranger other-ca "extendedKeyUsage=clientAuth"
rm ./*.srl ca.key other-ca.key other-ca.pem
