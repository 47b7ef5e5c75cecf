# Everything one does here by hand or in CI. The work is in hack/; this is its table of contents.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

# make up SWIFTLET_PORT=9090 DATA=/somewhere UP_ARGS='--workers 4'
SWIFTLET_PORT ?= 8080
DATA ?= var
UP_ARGS ?=
# make test WORKERS=0 PYTEST_ARGS='-k ring -x'
WORKERS ?=
PYTEST_ARGS ?=
# make image IMAGE=registry/name:tag NATIVE=prebuilt RDMA=1 PLATFORM=linux/arm64
IMAGE ?= swiftlet:dev
NATIVE ?= built
RDMA ?=
PLATFORM ?=
ROOT ?=
PYTHON_IMAGE ?= python:3.11-slim
RUST_IMAGE ?= rust:1.95-slim
BUILDER ?= $(shell for one in docker buildah podman; do $$one info >/dev/null 2>&1 && { echo $$one; break; }; done)

export WORKERS PYTEST_ARGS SWIFTLET_PORT

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## .venv with everything in it; quick when nothing has changed
	@hack/setup

.PHONY: up
up: setup ## a whole store on this machine, in the foreground: port SWIFTLET_PORT, data in DATA
	@exec .venv/bin/swiftlet standalone --port $(SWIFTLET_PORT) --data $(DATA) $(UP_ARGS)

.PHONY: down
down: ## stop the store that `make up` started
	@exec .venv/bin/swiftlet standalone --stop --data $(DATA)

.PHONY: check
check: ## everything that must be green before a change lands
	@hack/setup --tests
	@hack/check

.PHONY: quick
quick: setup ## linters, types and the Python tests that take seconds
	@hack/check --quick

.PHONY: fmt
fmt: setup ## format Python and Rust
	@.venv/bin/ruff check --quiet --fix-only .
	@.venv/bin/ruff format --quiet .
	@cargo fmt --all --manifest-path native/Cargo.toml

.PHONY: lint
lint: ## linters, import contracts, types and documentation
	@hack/setup --tests
	@hack/check ruff format imports mypy docs shell rustfmt clippy

.PHONY: test
test: setup ## all tests, of Rust and of Python
	@hack/check rust-tests python-tests

# make flaky RUNS=20 FILES='e2e/standalone/test_keys.py operator/swiftlet_operator/tests/test_watch.py'
RUNS ?= 20
FILES ?=
.PHONY: flaky
flaky: setup ## tests that depend on timing: FILES, or all that wait for something, RUNS times while all cores are busy
	@RUNS=$(RUNS) hack/flaky $(FILES)

# make coverage PARTS=python
PARTS ?= python rust
.PHONY: coverage
coverage: setup ## which lines and branches the tests run, by room and crate: build/coverage
	@hack/setup --tests
	@hack/coverage $(PARTS)

# make apiserver KUBE=1.34 PYTEST_ARGS='-k rollout'
.PHONY: apiserver
apiserver: setup ## the operator and the chart against a real API server of version KUBE (hack/cluster setup builds it)
	@hack/apiserver true
	@.venv/bin/python -m pytest -q -m apiserver -n $(or $(WORKERS),2) --dist loadfile $(PYTEST_ARGS) operator charts

.PHONY: clients
clients: ## other people's clients, and their test suites, against a store on this machine
	@hack/setup --clients
	@CLIENTS_SCALE=1 .venv/bin/python -m pytest -q e2e/clients $(PYTEST_ARGS)

.PHONY: monitoring
monitoring: setup ## alerts and dashboards over the metrics of a store that is loaded and broken, by Prometheus' promtool (root; 20 minutes)
	@hack/setup --monitoring
	@unshare --mount .venv/bin/python -m pytest -q e2e/monitoring charts/tests/test_alerts_fire.py $(PYTEST_ARGS)

# make filesystem TORCH=1
TORCH ?=
.PHONY: filesystem
filesystem: setup ## the client's wheel, and pandas, pyarrow, zarr and dask over its file system, against a store on this machine
	@hack/setup --filesystem$(if $(TORCH),-torch)
	@.venv/bin/python -m pytest -q e2e/filesystem $(PYTEST_ARGS)

# make fuzz MINUTES=10 FUZZ_SEED=7
MINUTES ?= 10
FUZZ_SEED ?= 1
.PHONY: fuzz
fuzz: setup ## requests made from docs/openapi.yaml and shapes that no library sends, for MINUTES
	@FUZZ_SECONDS=$$(( $(MINUTES) * 60 )) FUZZ_SEED=$(FUZZ_SEED) .venv/bin/python -m pytest -q -s e2e/standalone/test_fuzz.py

# make sim SEED=13 SIM_ARGS=--trace
SEED ?= 1
SEEDS ?= 1
# make sim SEEDS=100000 JOBS=2
JOBS ?=
# make kills KILLS=200 SEED=3
KILLS ?= 20
SIM_ARGS ?=
.PHONY: sim
sim: setup ## whole clusters simulated from SEED on, SEEDS of them, in JOBS processes; SIM_ARGS='--trace' tells one seed's whole history
	@cd services && exec ../.venv/bin/python -m swiftlet.testing.sim --seed $(SEED) --seeds $(SEEDS) $(if $(JOBS),--workers $(JOBS)) $(SIM_ARGS)

# make mutants MUTANT_SEEDS=500
MUTANT_SEEDS ?= 500
.PHONY: mutants
mutants: setup ## rules of sync and listings broken one by one in the simulator: the first of MUTANT_SEEDS seeds that finds each
	@MUTANT_SEEDS=$(MUTANT_SEEDS) .venv/bin/python -m pytest -q -s services/swiftlet/testing/sim/tests/test_mutants.py $(PYTEST_ARGS)

# make fragment-sim SEED=7 SEEDS=1 FRAGMENT_TRACE=1
.PHONY: fragment-sim
fragment-sim: ## the commit of erasure-coded objects simulated from SEED on, SEEDS times; FRAGMENT_TRACE=1 tells each history
	@FRAGMENT_SEED=$(SEED) FRAGMENT_SEEDS=$(SEEDS) cargo test --release --quiet --manifest-path native/Cargo.toml -p swiftlet-fragments --lib what_was_acknowledged -- --nocapture

# make pack-sim SEED=7 SEEDS=1 PACK_TRACE=1
.PHONY: pack-sim
pack-sim: ## packs of small objects simulated from SEED on, SEEDS times; PACK_TRACE=1 tells each history
	@PACK_SEED=$(SEED) PACK_SEEDS=$(SEEDS) cargo test --release --quiet --manifest-path native/Cargo.toml -p swiftlet-fragments --lib packs_keep -- --nocapture

# make form-sim SEED=7 SEEDS=1 FORM_TRACE=1
.PHONY: form-sim
form-sim: ## small objects that become large, and the other way round, simulated like packs; FORM_TRACE=1 tells each history
	@FORM_SEED=$(SEED) FORM_SEEDS=$(SEEDS) cargo test --release --quiet --manifest-path native/Cargo.toml -p swiftlet-fragments --lib in_whichever_form -- --nocapture

# make fragment-mutants FRAGMENT_MUTANT_SEEDS=100000
FRAGMENT_MUTANT_SEEDS ?= 60000
.PHONY: fragment-mutants
fragment-mutants: ## rules of that commit broken one by one: the first of FRAGMENT_MUTANT_SEEDS seeds that finds each
	@FRAGMENT_MUTANT_SEEDS=$(FRAGMENT_MUTANT_SEEDS) cargo test --release --quiet --manifest-path native/Cargo.toml -p swiftlet-fragments --lib every_broken_rule -- --nocapture

# make pack-mutants PACK_MUTANT_SEEDS=20000
PACK_MUTANT_SEEDS ?= 20000
.PHONY: pack-mutants
pack-mutants: ## rules of packs broken one by one: the first of PACK_MUTANT_SEEDS seeds that finds each
	@PACK_MUTANT_SEEDS=$(PACK_MUTANT_SEEDS) cargo test --release --quiet --manifest-path native/Cargo.toml -p swiftlet-fragments --lib packs::mutants -- --nocapture

.PHONY: kills
kills: setup ## a replicator killed KILLS times at moments chosen by SEED, with a real Redis that is killed too
	@KILLS=$(KILLS) SEED=$(SEED) .venv/bin/python -m pytest -q services/swiftlet/main/tests/test_replicator_faults.py -k again_and_again

# make listing-histories AUDIT_SEEDS=200 AUDIT_SEED=1000
AUDIT_SEEDS ?= 200
AUDIT_SEED ?= 0
.PHONY: listing-histories
listing-histories: setup ## AUDIT_SEEDS random histories of writes with kills from AUDIT_SEED on: listings equal objects, damaged rows are mended
	@AUDIT_SEEDS=$(AUDIT_SEEDS) AUDIT_SEED=$(AUDIT_SEED) .venv/bin/python -m pytest -q services/swiftlet/placement/tests/test_listing_audit_history.py

# make shard-histories SHARD_SEEDS=500 SHARD_SEED=1000
SHARD_SEEDS ?= 100
SHARD_SEED ?= 0
.PHONY: shard-histories
shard-histories: setup ## random histories of containers that are being split, SHARD_SEEDS of each kind, with every fault, against a model
	@SHARD_SEEDS=$(SHARD_SEEDS) SHARD_SEED=$(SHARD_SEED) .venv/bin/python -m pytest -q services/swiftlet/servers/tests/test_shard_histories.py services/swiftlet/servers/tests/test_sharding.py

# make pending-updates UPDATE_SEEDS=200 UPDATE_SEED=1000
UPDATE_SEEDS ?= 200
UPDATE_SEED ?= 0
.PHONY: pending-updates
pending-updates: setup ## random histories of PUT, POST, DELETE and COPY with failing servers: listings say what objects there are
	@UPDATE_SEEDS=$(UPDATE_SEEDS) UPDATE_SEED=$(UPDATE_SEED) .venv/bin/python -m pytest -q services/swiftlet/placement/tests/test_pending_updates_history.py

# make rotations ROTATION_SEEDS=1000 ROTATION_SEED=5000
ROTATION_SEEDS ?= 200
ROTATION_SEED ?= 0
.PHONY: rotations
rotations: setup ## ROTATION_SEEDS random histories of the rotation of the cluster key: nobody is refused, no key is lost
	@ROTATION_SEEDS=$(ROTATION_SEEDS) ROTATION_SEED=$(ROTATION_SEED) .venv/bin/python -m pytest -q operator/swiftlet_operator/tests/test_keys.py

# make stale-reads READS=100000
READS ?= 20000
.PHONY: stale-reads
stale-reads: setup ## READS reads under overwrites while object servers are killed, or stopped, one at a time: none may be stale
	@READS=$(READS) .venv/bin/python -m pytest -q -s e2e/standalone/test_stale_reads.py

# make model-kills SEED=1 OPS=20000
OPS ?= 600
.PHONY: model-kills
model-kills: setup ## OPS random writes while servers are killed, chosen by SEED: objects, listings and totals agree on every replica
	@OPS=$(OPS) SEED=$(SEED) .venv/bin/python -m pytest -q -s e2e/standalone/test_model_kills.py

# make move-kills KILLS=50 SEED=3
.PHONY: move-kills
move-kills: setup ## containers moved to erasure coding and out of it under load, by movers killed KILLS times at moments chosen by SEED, and with all other processes killed as well
	@KILLS=$(KILLS) SEED=$(SEED) .venv/bin/python -m pytest -q -s e2e/standalone/test_move_kills.py

# make coded-kills KILLS=200 SEED=3
.PHONY: coded-kills
coded-kills: setup ## every process of a 4+2 store killed, KILLS in all, chosen by SEED, and devices wiped, while objects are written, packed, rebuilt and moved to another policy
	@KILLS=$(KILLS) SEED=$(SEED) .venv/bin/python -m pytest -q -s e2e/standalone/test_kill_matrix.py

# make fragment-kills KILLS=200 SEED=3
.PHONY: fragment-kills
fragment-kills: setup ## proxies, object servers and replicators of a 4+2 store without small objects killed KILLS times, chosen by SEED, and devices wiped: no read is stale
	@KILLS=$(KILLS) SEED=$(SEED) .venv/bin/python -m pytest -q -s e2e/standalone/test_erasure_coding.py -k nothing_acknowledged

# make pack-kills KILLS=200 SEED=3
.PHONY: pack-kills
pack-kills: setup ## processes of a store that packs small objects killed KILLS times, chosen by SEED: nothing is lost, no pack is left behind
	@KILLS=$(KILLS) SEED=$(SEED) .venv/bin/python -m pytest -q -s e2e/standalone/test_pack_kills.py

# make hot-kills KILLS=200 SEED=1
.PHONY: hot-kills
hot-kills: setup ## each kind of process of a store killed under load that the front answers, KILLS in all, chosen by SEED: nothing acknowledged is lost
	@KILLS=$(KILLS) SEED=$(SEED) .venv/bin/python -m pytest -q -s e2e/kills

.PHONY: memory
memory: setup ## an object of 5 GiB through all processes of a store, none of which may grow by 64 MiB
	@MEMORY_GIB=5 .venv/bin/python -m pytest -q -s e2e/standalone/test_memory.py

# make splits SPLIT_SECONDS=900 SEED=3
SPLIT_SECONDS ?= 300
.PHONY: splits
splits: setup ## a container split under load for SPLIT_SECONDS while its servers are killed at moments chosen by SEED
	@SPLIT_SECONDS=$(SPLIT_SECONDS) SEED=$(SEED) .venv/bin/python -m pytest -q -s e2e/standalone/test_sharding.py

.PHONY: store-kills
store-kills: ## the native store's process killed 2000 times, at named points and at random moments
	@SWIFTLET_STORE_KILLS=2000 cargo test --quiet --manifest-path native/Cargo.toml -p swiftlet-store --test killed -- --nocapture killed_at

.PHONY: store-flakey
store-flakey: ## the native store on XFS on a disk that fails in four ways, in an emulated machine (Debian, root; hack/flakey)
	@hack/flakey

# make fuzz-wire MINUTES=10 TARGETS='frames record'
TARGETS ?= frames messages handshake objects record checkpoint device rows journal erasure fragments
.PHONY: fuzz-wire
fuzz-wire: ## libFuzzer on every decoder of the wire and of the disk, MINUTES in all (installs cargo-fuzz and a nightly compiler)
	@hack/fuzz-wire $(MINUTES) $(TARGETS)

.PHONY: native
native: ## build the native package anew and install it
	@hack/setup --native

.PHONY: rdma
rdma: ## RDMA over real verbs, on Soft-RoCE in emulated machines of QEMU (Debian, root; the first time 15 minutes)
	@hack/rdma

.PHONY: rdma-build
rdma-build: ## build what needs rdma-core, and test it as far as it goes without a device
	@hack/rdma build

# make bench BENCH_ARGS='--turns 3 --large "1 GiB"'
BENCH_ARGS ?=
.PHONY: bench
bench: setup ## this store, OpenStack Swift, MinIO and SeaweedFS in turns, and degraded modes: bench/RESULTS.md (root; half an hour, and once as long to build)
	@bench/peers/prepare.sh
	@bench/peers/build.sh
	@unshare --net --mount .venv/bin/python -m bench.sitting --page bench/RESULTS.md $(BENCH_ARGS)

.PHONY: bench-quick
bench-quick: setup ## a few workloads of this store, OpenStack Swift and what else was built, in under 5 minutes: .cache/bench/page.md (root)
	@bench/peers/prepare.sh
	@unshare --net --mount .venv/bin/python -m bench.sitting --quick --turns 2 --seconds 0.5 --phase-seconds 3 --most-seconds 235 $(BENCH_ARGS)

# make bench-micro MICRO='hash erasure' ROUNDS=20
MICRO ?=
ROUNDS ?= 3
.PHONY: bench-micro
bench-micro: setup ## digests, erasure coding, transport and load generator, each alone: their part of bench/RESULTS.md
	@.venv/bin/python -m bench.micro run --rounds $(ROUNDS) $(MICRO)

.PHONY: bench-page
bench-page: setup ## bench/RESULTS.md anew from bench/measured, without measuring
	@.venv/bin/python -m bench.micro page

.PHONY: bench-baseline
bench-baseline: setup ## objects per second, latency and processor time of a store on this machine
	@.venv/bin/python -m bench.baseline.run

# make bench-advise ADVISE_ARGS='--directory /mnt/disk --runs 5 --measure'
ADVISE_ARGS ?= --directory .cache/bench-advise
.PHONY: bench-advise
bench-advise: setup ## what `swiftlet advise` predicts beside what a store takes, at three sizes; within a quarter or exit code 1
	@.venv/bin/python -m bench.advise.run $(ADVISE_ARGS)

# make bench-degrade DEGRADE_ARGS='--modes process disk --seconds 20'
DEGRADE_ARGS ?= --directory .cache/bench-degrade --html .cache/bench-degrade/page.html
.PHONY: bench-degrade
bench-degrade: setup ## what clients notice while something of a store is broken, and when it is whole again; a page with pictures (root)
	@mkdir -p .cache/bench-degrade
	@unshare --net --mount .venv/bin/python -m bench.degrade.run $(DEGRADE_ARGS)

.PHONY: bench-generator
bench-generator: setup ## what the load generator can do and costs, and how exact it is: its part of bench/RESULTS.md
	@.venv/bin/python -m bench.micro run load

# make bench-large LARGE_ARGS='/mnt/disk /dev/shm/large --rounds 5'
LARGE_ARGS ?= .cache/bench-large
.PHONY: bench-large
bench-large: setup ## 1 GiB up and down through the API, beside MD5 and three files on the same disk
	@.venv/bin/python -m bench.dataplane.large $(LARGE_ARGS)

MEMORY_ARGS ?= .cache/bench-memory
.PHONY: bench-memory
bench-memory: setup ## memory of all processes while 200 objects of 1 GiB are uploaded at once
	@.venv/bin/python -m bench.dataplane.memory $(MEMORY_ARGS)

# make soak MINUTES=30
SOAK_ARGS ?= .cache/soak
.PHONY: soak
soak: setup ## requests that cost much, one kind after the other, and how long each keeps a worker from others, for MINUTES
	@.venv/bin/python -m bench.soak.run $(SOAK_ARGS) --minutes $(MINUTES)

# make bench-modes SWIFTX_ARGS='--sizes 1 10 100 1000 5000 --scale 1 --directory /mnt/large'
SWIFTX_ARGS ?=
.PHONY: bench-modes
bench-modes: setup ## objects through the proxies and directly, and both beside OpenStack Swift (installs it; root)
	@.venv/bin/python -m bench.modes.run --rounds 7 --seconds 1
	@.venv/bin/python -m bench.modes.floor
	@bench/peers/prepare.sh
	@unshare --net .venv/bin/python -m bench.modes.swiftx $(SWIFTX_ARGS)

.PHONY: wan
wan: setup ## three regions joined by emulated wide-area links, with a store over them (as root)
	@exec hack/wan up

# make bench-wan WAN_ARGS='--threads 10 --congestion bbr'
WAN_ARGS ?=
.PHONY: bench-wan
bench-wan: setup ## what a client gets from stores over one, another and three regions (as root)
	@hack/wan measure $(WAN_ARGS)

# make bench-wan-cut CUT_ARGS='--minutes 1 --away ga'
CUT_ARGS ?=
.PHONY: bench-wan-cut
bench-wan-cut: setup ## what clients notice of a region that is cut off for 10 minutes, and when all regions are equal again (as root)
	@hack/wan cut $(CUT_ARGS)

# make bench-wan-single SINGLE_ARGS='--congestion cubic --places remote'
SINGLE_ARGS ?=
.PHONY: bench-wan-single
bench-wan-single: setup ## one stream of 1 GB over a wide-area link, with cubic and bbr, beside plain TCP and OpenStack Swift (installs it; root)
	@bench/peers/prepare.sh
	@hack/wan single run $(SINGLE_ARGS)

# make bench-wan-study STUDY_ARGS='--rounds 1 --places three --scale 50'
STUDY_ARGS ?=
.PHONY: bench-wan-study
bench-wan-study: setup ## OpenStack Swift, Tahoe-LAFS and this store over the same wide-area links: their part of bench/wan/RESULTS.md (installs them; root)
	@bench/wan/prepare.sh
	@hack/wan study run $(STUDY_ARGS)

.PHONY: bench-slo
bench-slo: setup ## a static large object of 1,000 segments against a plain object of the same bytes
	@.venv/bin/python -m bench.slo.run

.PHONY: bench-operator
bench-operator: setup ## one operator with 100 clusters: reconcile times, memory, requests at rest (needs hack/cluster setup)
	@.venv/bin/python -m bench.operator.run

# make bench-sync SYNC_ARGS='--objects 10000 --replicas 3 5 --json rounds.json'
SYNC_ARGS ?=
.PHONY: bench-sync
bench-sync: setup ## rounds in all five modes: bytes, messages, time, processor time, memory; a quick run without SYNC_ARGS
	@.venv/bin/python -m bench.sync.run $(SYNC_ARGS)

# make bench-scale SCALE_ARGS='--only objects --objects 10000 1000000 10000000'
SCALE_ARGS ?=
.PHONY: bench-scale
bench-scale: setup ## cost of operations and rounds by workers, objects, devices, containers and part power, with a model beyond them
	@.venv/bin/python -m bench.scale.run --directory .cache/bench-scale $(SCALE_ARGS)

.PHONY: bench-sync-plots
bench-sync-plots: setup ## draw bench/sync/results.json: PNGs, SVGs and one HTML page (installs matplotlib into .cache)
	@bench/sync/plots.sh

# make bench-peers PEERS_ARGS='--objects 1000 --rounds 0'
PEERS_ARGS ?=
.PHONY: bench-peers
bench-peers: setup ## OpenStack Swift's daemons beside ours: rounds of replication, and small objects (installs them; root)
	@bench/peers/prepare.sh
	@unshare --net .venv/bin/python -m bench.peers.run $(PEERS_ARGS)

# make bench-erasure ERASURE_ARGS='--scheme 4+2 --turns 1 --large 100'
ERASURE_ARGS ?=
.PHONY: bench-erasure
bench-erasure: setup ## erasure coding beside three copies, ours and OpenStack Swift's: objects, bytes of disk, devices lost and rebuilt, processor time (root)
	@bench/peers/prepare.sh
	@unshare --net .venv/bin/python -m bench.erasure.objects $(ERASURE_ARGS)

# make peers-sync SYNC_PEERS_ARGS='--objects 2000'
SYNC_PEERS_ARGS ?=
.PHONY: peers-sync
peers-sync: setup ## container sync with a real OpenStack Swift, in both directions (installs it; root)
	@bench/peers/prepare.sh
	@unshare --net .venv/bin/python -m bench.peers.container_sync $(SYNC_PEERS_ARGS)

.PHONY: docs
docs: ## write docs/settings.md, docs/limits.md and the tables of docs/swift-api.md anew, then build the site in build/site
	@hack/setup --docs
	@.venv/bin/python -c 'from swiftlet.settings import SERVICES, reference; print(reference.render_page(SERVICES.values()), end="")' > docs/settings.md
	@.venv/bin/python -m e2e.api_table
	@.venv/bin/python -m e2e.limits_page
	@hack/check docs

.PHONY: chart
chart: setup ## copy crds/ into the chart and write its README anew
	@.venv/bin/python -m charts.make

# make e2e PART='store redis' KUBE=1.34
PART ?=
KUBE ?=
.PHONY: e2e
e2e: setup ## the store on a real Kubernetes: hack/cluster brought up, used, and removed; in parts of at most 25 minutes
	@PART='$(PART)' KUBE='$(KUBE)' hack/e2e $(PYTEST_ARGS)

.PHONY: demo
demo: setup ## a Kubernetes on this machine with the operator, a store and a file in it; each step with its time, and how to go on
	@KUBE='$(KUBE)' hack/cluster demo

# What docker knows by itself.
told = --build-arg BUILDPLATFORM=linux/$(if $(filter aarch64,$(shell uname -m)),arm64,amd64) --build-arg TARGETPLATFORM=$(PLATFORM)
.PHONY: image
image: ## the container image, IMAGE; NATIVE=prebuilt takes the wheel that `make setup` built
	@test -n "$(BUILDER)" || { echo "error: none of docker, buildah, podman answers to \"info\": install one, or start its daemon" >&2; exit 1; }
	DOCKER_BUILDKIT=1 $(BUILDER) build $(if $(PLATFORM),--platform $(PLATFORM) $(if $(filter-out docker,$(BUILDER)),$(told))) \
		--build-arg NATIVE=$(NATIVE) --build-arg RDMA=$(RDMA) --build-arg PYTHON_IMAGE=$(PYTHON_IMAGE) \
		--build-arg RUST_IMAGE=$(RUST_IMAGE) --tag $(IMAGE) .

.PHONY: image-check
image-check: setup ## build the image; its size, its user, that everything starts read-only; and its bill of materials
	@hack/image-check

.PHONY: sbom
sbom: setup ## what the image is made of, as CycloneDX in build/sbom.json; ROOT= its root file system, for Debian's packages
	@hack/sbom "$(ROOT)"

# make release SIGN=KEY REPOSITORY=registry/name BASE_URL=https://.../v0.2.0 PLATFORMS='linux/amd64 linux/arm64' SNAPSHOT=1
.PHONY: release
release: setup ## images, chart, plugin, OLM bundle, bills of materials and provenance in dist/; hack/release says how
	@hack/release

.PHONY: lock
lock: ## pin requirements/*.in anew
	@hack/lock

.PHONY: clean
clean: ## remove what was built; the data in DATA stays
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist native/target
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
