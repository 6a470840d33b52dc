# syntax=docker/dockerfile:1
#
# The daemon as an image: a wheel built inside, on a base without a shell, for a fixed user and a
# root that nobody can write to.
#
#   docker build --build-arg SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)" \
#     --build-arg VERSION=0.1.0 --build-arg REVISION="$(git rev-parse HEAD)" \
#     --output type=image,name=breaker-sidecar:0.1.0,rewrite-timestamp=true .
#
# The same source, bases and SOURCE_DATE_EPOCH give the same image. Pin the bases by digest where
# that matters: BUILD_BASE=debian:bookworm-slim@sha256:…

ARG BUILD_BASE=debian:bookworm-slim
ARG BASE=gcr.io/distroless/python3-debian12:nonroot

# hadolint ignore=DL3006 # the tag stands in the argument
FROM ${BUILD_BASE} AS build
SHELL ["/bin/sh", "-eu", "-c"]
# Debian keeps no old versions to pin.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends \
      binutils gcc libc6-dev python3-dev python3-venv tini \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE breakers.yaml ./
COPY container container
COPY sidecar sidecar
ARG SOURCE_DATE_EPOCH=0
RUN container/install.sh /src

# hadolint ignore=DL3006 # the tag stands in the argument
FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="breaker-sidecar" \
      org.opencontainers.image.description="A local circuit breaker that every agent runs beside" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# A signal in the first milliseconds, before Python can take one, must not be lost on process 1.
COPY --from=build /usr/bin/tini /usr/bin/tini
COPY --from=build /opt/breaker-sidecar /opt/breaker-sidecar
ENV PATH=/opt/breaker-sidecar/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONSAFEPATH=1
USER 65532:65532
WORKDIR /
# It listens on loopback, also in here: share the network of the agent's container. For anything
# else say so, with `serve --listen 0.0.0.0:7600`.
EXPOSE 7600
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 \
  CMD ["/opt/breaker-sidecar/bin/breaker-sidecar", "healthcheck"]
# 143 is how tini tells that the signal came before Python was there to end by itself with 0.
ENTRYPOINT ["/usr/bin/tini", "-e", "143", "--", "/opt/breaker-sidecar/bin/breaker-sidecar"]
CMD ["serve"]
