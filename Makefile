PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python -m

# Modules that are compiled once serve all processes of the tests, and the next run.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: age year cluster help setup setup-faketime setup-node setup-promtool setup-deploy setup-java setup-android monitoring golden tables demo docs docs-version test test-long chaos check unit fuzz bench bench-against bench-pipeline release-check package chart release-notes check-workflows attack lock audit sbom images setup-images proto clean setup-pgbouncer

help: ## Show this help
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /  make \1\t/' | expand -t 16

setup: $(VENV)/.installed ## Make .venv with everything, by version and hash

$(VENV)/.installed: requirements/dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "wakupush needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(RUN) pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	$(RUN) pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Only the tests in tests/interop and those of examples/js in tests/e2e use Node.js: what is missing here is for them to report.
setup-node: tests/interop/node_modules/.package-lock.json examples/js/node_modules/.package-lock.json

%/node_modules/.package-lock.json: %/package-lock.json
	@if ! command -v npm && command -v apt-get && test "$$(id -u)" = 0; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends nodejs npm; \
	fi >/dev/null || true
	@if command -v npm >/dev/null; then (cd $* && npm ci) && touch $@ || true; fi

# Only the pipeline uses Java: what is missing here is for its tests to report.
setup-java:
	@if ! command -v java && command -v apt-get && test "$$(id -u)" = 0; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends openjdk-17-jre-headless; \
	fi >/dev/null || true

# Only tests/e2e/one_server/test_android.py uses Maven, without the network. This loads what it needs by running it once: 110 MB,
# so `make test` does without, and pytest skips the test.
setup-android: setup-java
	@if ! command -v mvn && command -v apt-get && test "$$(id -u)" = 0; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends maven; \
	fi >/dev/null
	mvn --quiet --batch-mode -f examples/android -Doutput=$(CURDIR)/.tools/android test

# Only tests/integration/runtime/test_pooler.py uses it: if it is missing here, pytest skips that.
setup-pgbouncer:
	@if ! command -v pgbouncer && ! test -x /usr/sbin/pgbouncer && command -v apt-get && test "$$(id -u)" = 0; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends pgbouncer; \
	fi >/dev/null || true

# Only `make year` and its test use libfaketime: what is missing here is for them to report.
setup-faketime:
	@if ! ls /usr/lib/*/faketime/libfaketimeMT.so.1 && command -v apt-get && test "$$(id -u)" = 0; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends faketime; \
	fi >/dev/null 2>&1 || true

# Only the tests in tests/deploy use them: Helm, and the loader of compose files that Docker Compose itself uses. Go builds
# them; what is missing here is for the tests to report.
GO := $(firstword $(shell command -v go) $(wildcard /usr/local/go/bin/go))

setup-deploy: .tools/helm .tools/compose-spec

.tools/helm:
	@if test -n "$(GO)"; then GOBIN=$(CURDIR)/.tools $(GO) install helm.sh/helm/v3/cmd/helm@v3.22.0 || true; fi

.tools/compose-spec:
	@if test -n "$(GO)"; then \
		GOBIN=$(CURDIR)/.tools $(GO) install github.com/compose-spec/compose-go/v2/cmd@v2.16.2 && mv .tools/cmd $@ || true; \
	fi

golden: setup setup-deploy ## Write anew what the chart renders, its schema of settings and its table of values
	PYTHONPATH=tests $(RUN) support.deploy.golden

# Only the tests in tests/monitoring use promtool. Debian's package of Prometheus has it; nothing of it is installed.
setup-promtool:
	@if ! command -v promtool && ! test -x tests/monitoring/bin/promtool && command -v apt-get && test "$$(id -u)" = 0; then \
		mkdir -p tests/monitoring/bin && cd tests/monitoring/bin && apt-get update -qq && \
		apt-get download -qq -o APT::Sandbox::User=root prometheus && \
		dpkg --fsys-tarfile prometheus_*.deb | tar -x --strip-components=3 ./usr/bin/promtool; rm -f prometheus_*.deb; \
	fi >/dev/null || true

# Only `make images` and its tests use them; nothing else installs them.
setup-images:
	@if ! command -v apt-get >/dev/null || test "$$(id -u)" != 0; then echo "make images needs Debian, and root" >&2; exit 1; fi
	@if ! (command -v buildah && command -v podman && command -v crun && command -v mmdebstrap) >/dev/null; then \
		apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends buildah podman crun mmdebstrap; \
	fi

images: setup-images ## Build the four images with buildah on bases of Debian's packages (root, Debian; opt-in)
	docker/build.sh

monitoring: setup ## Write the dashboards and alerts anew, out of deploy/monitoring
	$(RUN) deploy.monitoring.generate

tables: setup ## Write the tables of the documents anew, out of the code
	PYTHONPATH=tests $(VENV)/bin/python tests/unit/docs/test_documents.py

.tools/site/.installed: requirements/docs.lock
	$(PYTHON) -m venv .tools/site
	.tools/site/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.lock
	@touch $@

docs: .tools/site/.installed deploy/site/node_modules/.package-lock.json ## Build the documents as a site into dist/site (needs Node.js); no link may be dead
	NO_MKDOCS_2_WARNING=1 .tools/site/bin/mkdocs build --strict --config-file deploy/site/mkdocs.yml

docs-version: .tools/site/.installed deploy/site/node_modules/.package-lock.json ## Commit the documents as those of VERSION= to the branch gh-pages
	PATH=.tools/site/bin:$$PATH NO_MKDOCS_2_WARNING=1 mike deploy --config-file deploy/site/mkdocs.yml --update-aliases --alias-type redirect $(VERSION) latest
	PATH=.tools/site/bin:$$PATH mike set-default --config-file deploy/site/mkdocs.yml latest

demo: setup ## Run the whole server on embedded parts, send it messages, and show what happens
	@$(VENV)/bin/wakupush demo

# More than two cores: half of the time tests wait for processes. First those of the pipeline, on one worker
# (tests/support/order.py), then in the order of their folders, which has the long files first and the unit tests last;
# pytest-xdist would put the files of few tests last, which are the long ones.
test: setup setup-node setup-promtool setup-deploy setup-java setup-pgbouncer check check-workflows ## Run everything but what takes minutes: linters, types, tests
	$(RUN) pytest tests -m "not long" -n 4 --dist loadfile --no-loadscope-reorder

test-long: setup setup-node setup-promtool setup-deploy setup-java setup-pgbouncer setup-faketime ## Run what takes minutes: images, Spark clusters, killed exports, broken servers, upgrades under load
	$(RUN) pytest tests -m long -n 2 --dist loadfile --no-loadscope-reorder

release-check: setup ## Check all that has to hold before a release is tagged, a rolling upgrade included (ONLY="clean version …", LIST=1; hours)
	$(RUN) deploy.release.check $(if $(ONLY),--only $(ONLY)) $(if $(LIST),--list)

package: setup ## Build the wheel and the source archive into dist
	$(RUN) hatchling build -d dist

chart: setup setup-deploy ## Package the chart into dist, with the images in REGISTRY= by the digests in dist/digests
	$(RUN) deploy.release.publish chart

release-notes: setup ## Write what CHANGELOG.md says of this version into dist/notes.md
	$(RUN) deploy.release.publish notes

.tools/actionlint:
	@if test -n "$(GO)"; then GOBIN=$(CURDIR)/.tools $(GO) install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12 || true; fi

check-workflows: setup .tools/actionlint ## Lint the workflows in .github
	@if test -x .tools/actionlint; then .tools/actionlint; else echo "actionlint is skipped: it needs Go" >&2; test -z "$$CI"; fi
	$(VENV)/bin/zizmor --offline --quiet .github

cluster: setup setup-deploy ## Rehearse the chart on a real Kubernetes control plane (root, WAKUPUSH_TEST_CLUSTER=; ONLY="drain scaling", LIST=1, KEEP=1)
	PYTHONPATH=tests $(RUN) cluster.run $(if $(ONLY),--only $(ONLY)) $(if $(LIST),--list) $(if $(KEEP),--keep)

chaos: setup ## Kill parts of a loaded server for minutes and judge what came of it (SEED=, MINUTES=, MESSAGES=, JSON=, REAL_NODES=1)
	PYTHONPATH=tests $(RUN) chaos.run $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(MESSAGES),--messages $(MESSAGES)) \
		$(if $(JSON),--json $(JSON)) $(if $(REAL_NODES),--real-nodes)

year: setup setup-faketime setup-java ## Let a server live 400 days with jumps of the clock, and judge what grows (DAYS=40, EXPORT=no, JSON=; 100 minutes)
	PYTHONPATH=tests $(RUN) year.run $(if $(DAYS),--days $(DAYS)) $(if $(filter no,$(EXPORT)),--no-export) $(if $(JSON),--json $(JSON))

check: setup ## Run the linters, the type checker, the spelling, and the rules of the house
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) mypy
	$(VENV)/bin/codespell *.md deploy docker docs examples requirements benchmarks ingest pipeline tests wakupush workers
	$(VENV)/bin/deptry .
	$(VENV)/bin/lint-imports --no-logo
	$(RUN) pytest -q tests/unit/test_house.py

unit: setup ## Run the unit tests alone: no sockets, a minute or two
	$(RUN) pytest tests/unit

fuzz: setup ## Throw 20,000 examples of strange bytes at each parser, for hours; what is asked over a socket gets 40 to 60
	$(RUN) pytest tests/unit -m hypothesis --hypothesis-profile=long --timeout=0

bench: setup ## Measure the budgets: a second, latencies, what grows (about half an hour)
	$(RUN) benchmarks.bench

bench-against: setup ## Compare what messages cost with another revision, alternating (REV= is the last release, PAIRS=, LOAD=, CONCURRENCY=, JSON=; an hour)
	$(RUN) benchmarks.against $(if $(REV),--rev $(REV)) $(if $(PAIRS),--pairs $(PAIRS)) $(if $(LOAD),--load "$(LOAD)") \
		$(if $(CONCURRENCY),--concurrency $(CONCURRENCY)) $(if $(JSON),--json $(JSON))

age: setup ## Run each job and statement on a database of ten million users, a year old (DIRECTORY=, USERS=; two hours, 45 GB)
	$(RUN) benchmarks.age $(if $(DIRECTORY),--directory "$(DIRECTORY)") $(if $(USERS),--users $(USERS))

bench-pipeline: setup setup-java ## Measure the pipeline: 1 M and 10 M events, archives of 100 k and 1 M messages (EVENTS=, MESSAGES=; hours)
	$(RUN) benchmarks.pipeline $(if $(EVENTS),--events $(EVENTS))
	$(RUN) benchmarks.rebuild $(or $(MESSAGES),1000000)

attack: setup ## Flood the server with all that strangers can send, beside honest traffic, and judge it (KIND=, MESSAGES=, SECONDS=, RUNS=, JSON=)
	$(RUN) benchmarks.attack $(if $(KIND),--kind "$(KIND)") $(if $(MESSAGES),--messages $(MESSAGES)) $(if $(SECONDS),--seconds $(SECONDS)) \
		$(if $(RUNS),--runs $(RUNS)) $(if $(JSON),--json $(JSON))

lock: ## Resolve the dependencies anew (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url \
		pyproject.toml --all-extras --group test -o requirements/dev.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url \
		-c requirements/dev.lock pyproject.toml --extra server --extra otel -o requirements/runtime.lock
	for name in build devnet docs flower pipeline; do \
		uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url \
			-c requirements/dev.lock requirements/$$name.in -o requirements/$$name.lock; \
	done

audit: setup ## Fail on known vulnerabilities in what is locked, but for what deploy/supply/accepted.toml accepts for a while
	$(RUN) deploy.supply.audit

sbom: setup ## Write a bill of materials (CycloneDX) of what each image is locked to into dist/sbom
	$(RUN) deploy.supply.sbom

proto: setup ## Generate the protobuf modules anew
	proto/generate.sh

clean: ## Remove .venv and caches
	rm -rf $(VENV) .tools dist tests/interop/node_modules examples/js/node_modules tests/monitoring/bin .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
