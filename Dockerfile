# The image of publish-ingest: built with no database, run as nobody in particular.
FROM rust:1.95-bookworm AS build
WORKDIR /src
# The statements are checked against the committed descriptions.
ENV SQLX_OFFLINE=true CARGO_INCREMENTAL=0

# The dependencies alone, with an empty program: this layer stays as long as these files do.
COPY Cargo.toml Cargo.lock ./
COPY .cargo .cargo
RUN mkdir src \
    && echo 'fn main() {}' >src/main.rs \
    && touch src/lib.rs \
    && cargo build --locked --release \
    && rm -r src

COPY .sqlx .sqlx
COPY migrations migrations
COPY templates templates
COPY src src
# Newer than what was built of the empty program.
RUN touch src/main.rs src/lib.rs && cargo build --locked --release

FROM debian:bookworm-slim
# Callbacks and platforms are called over TLS. Pinned by the distribution's release: an exact version is gone from its
# archive with the next security update.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -qy --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --no-log-init --uid 10001 --no-create-home --home-dir /nonexistent publish \
    && install -d -o 10001 -g 10001 /site
COPY --from=build /src/target/release/publish-ingest /usr/local/bin/publish-ingest
ENV PUBLISH_LISTEN=0.0.0.0:8080 PUBLISH_LOG_FORMAT=json
# By number, so that a platform can tell that it is not root.
USER 10001
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["publish-ingest", "health"]
ENTRYPOINT ["publish-ingest"]
CMD ["serve"]
