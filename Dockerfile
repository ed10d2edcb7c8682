# docker build --tag dedupd:0.1.0 .
FROM rust:1.95-bookworm AS build
WORKDIR /dedupd
COPY Cargo.toml Cargo.lock build.rs ./
COPY proto proto
COPY benches benches
COPY src src
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/dedupd/target \
    cargo build --release --locked --bin dedupd \
    && cp target/release/dedupd /usr/local/bin/dedupd

# The C library, authorities for TLS, a user without rights; no shell.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /usr/local/bin/dedupd /usr/local/bin/dedupd
USER 65532:65532
EXPOSE 50061 9461
ENTRYPOINT ["/usr/local/bin/dedupd"]
CMD ["serve"]
