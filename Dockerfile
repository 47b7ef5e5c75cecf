# One image for all services and the operator; the subcommand says which.
#
#   docker build -t swiftlet:dev .
#   make image NATIVE=prebuilt      takes native/target/wheels/*.whl (`make setup` leaves it there) and no Rust image
#   make image PLATFORM=linux/arm64 for another kind of machine: cross-compiled, and the rest of it run by qemu
#   make image RDMA=1               with RDMA: UCX in the native package, rdma-core's libraries in the image; prebuilt it is
#                                   native/target/wheels-rdma/*.whl, which `hack/rdma wheel` leaves there

ARG PYTHON_IMAGE=python:3.11-slim
ARG RUST_IMAGE=rust:1.95-slim
ARG NATIVE=built

# --- the native package, compiled here: on the machine that builds, for the platform of the image ---
# Emulated, the compiler would take hours. Buildah has to be told both platforms (`make image` does): having seen one of
# them, older ones take it for the stages that follow, too, unless these name theirs.
FROM --platform=$BUILDPLATFORM ${RUST_IMAGE} AS native-built
ARG TARGETARCH
# Empty, or 1: then it is built with the feature `rdma`.
ARG RDMA=
ENV CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER=x86_64-linux-gnu-gcc \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
WORKDIR /src
COPY requirements/build.txt requirements/
RUN case $TARGETARCH in \
        amd64) machine=x86_64 ;; \
        arm64) machine=aarch64 ;; \
        *) echo "error: the native package is not built for '$TARGETARCH'" >&2; exit 1 ;; \
    esac \
    && echo "$machine-unknown-linux-gnu" >/target \
    && if [ "$machine" != "$(uname -m)" ]; then \
        if [ -n "$RDMA" ]; then \
            echo "error: an image with RDMA is built on a machine of its own platform: UCX is not cross-compiled" >&2; exit 1; \
        fi; \
        rustup target add "$(cat /target)" \
        && compiler="gcc-$(echo $machine | tr _ -)-linux-gnu libc6-dev-$TARGETARCH-cross"; \
    fi \
    && apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-venv $compiler ${RDMA:+make libibverbs-dev} \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /build \
    && /build/bin/pip install --no-cache-dir --require-hashes -r requirements/build.txt
COPY native native
RUN rm -rf native/target \
    && /build/bin/maturin build --release --locked --target "$(cat /target)" \
        --manifest-path native/crates/python/Cargo.toml --out /wheels \
        ${RDMA:+--features rdma --auditwheel skip --compatibility linux}

# --- or compiled before: there may be one for each kind of machine ---
FROM scratch AS native-prebuilt
ARG RDMA=
COPY native/target/wheels${RDMA:+-rdma} /wheels

FROM native-${NATIVE} AS native

# --- the wheel by itself, which a release has beside the image: --target native-wheel --output DIR ---
FROM scratch AS native-wheel
COPY --from=native /wheels /

# --- what goes to /usr/local: packages, the native package, and last what changes most often ---
FROM --platform=$TARGETPLATFORM ${PYTHON_IMAGE} AS packages
WORKDIR /src
COPY requirements/build.txt requirements/operator.txt requirements/
RUN pip install --no-cache-dir --require-hashes -r requirements/build.txt \
    && pip install --no-cache-dir --prefix=/packages --ignore-installed --require-hashes -r requirements/operator.txt
# The Kubernetes client's generated classes, a class for each kind and call, are a third of the image. They are loaded by
# name when somebody asks for one; the operator uses the dynamic client, which knows none.
RUN cd /packages/lib/python3*/site-packages/kubernetes \
    && find client/api client/models aio/client/api aio/client/models -type f ! -name '__init__.*' -delete

FROM packages AS wheels
COPY --from=native /wheels /wheels
RUN pip install --no-cache-dir --prefix=/native --ignore-installed --no-deps --no-index /wheels/*_$(uname -m).whl

FROM packages AS project
COPY pyproject.toml README.md LICENSE ./
COPY requirements/runtime.in requirements/
COPY services services
COPY operator operator
RUN pip install --no-cache-dir --prefix=/project --ignore-installed --no-deps --no-build-isolation .

# --- the image ---
FROM --platform=$TARGETPLATFORM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="Swiftlet" \
      org.opencontainers.image.description="An object store for Kubernetes that speaks the OpenStack Swift API" \
      org.opencontainers.image.licenses="Apache-2.0"
# What an RDMA build loads: libibverbs and, as plug-ins of it, what knows each maker's cards. Nothing without RDMA.
ARG RDMA=
RUN if [ -n "$RDMA" ]; then \
        apt-get update \
        && apt-get install -y --no-install-recommends libibverbs1 ibverbs-providers \
        && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb; \
    fi
# A layer each: nodes that have an older image take only what has changed.
COPY --from=packages /packages /usr/local
COPY --from=wheels /native /usr/local
COPY --from=project /project /usr/local
# Modules are compiled when they are installed, and the root file system may be read-only.
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp
# By number, so that Kubernetes can see that it is not root (runAsNonRoot).
USER 65532:65532
WORKDIR /tmp
STOPSIGNAL SIGTERM
ENTRYPOINT ["swiftlet"]
CMD ["--help"]
