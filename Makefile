# The work is in hack/*.sh; each target is one line of help and one command. Extra arguments: make demo ARGS="-h".

SHELL    := /bin/bash
FUZZTIME ?= 10s
FLAKES   ?= 20m
ARGS     ?=
PKG      ?=
LAB  := hack/lab.sh

.DEFAULT_GOAL := help

.PHONY: help
help: ## Print this list.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build every binary into bin/.
	hack/build.sh

.PHONY: demo
demo: ## Place 3,000 pods, many with a part of a GPU, on a mixed cluster and draw the GPUs.
	$(LAB) demo $(ARGS)

.PHONY: serve-demo
serve-demo: ## Serve functions on simulated GPUs, autoscaled, on whole GPUs and kept alive, and compare them (90 s).
	hack/serve-demo.sh $(ARGS)

.PHONY: replay
replay: ## Replay a cluster trace: make replay ARGS="--nodes F --pods F".
	$(LAB) replay $(ARGS)

.PHONY: bench
bench: ## Compare scheduling throughput with stock kube-scheduler (minutes).
	$(LAB) bench $(ARGS)

.PHONY: bench-perf
bench-perf: ## Run scheduler_perf with gshare's plugins (minutes).
	hack/bench-perf.sh $(ARGS)

.PHONY: bench-rules
bench-rules: ## Run the Go benchmarks of the rule packages.
	go test -run '^$$' -bench . -benchmem ./vgpu/... ./serving/rules/...

.PHONY: bench-gateway
bench-gateway: ## Compare the gateway's processor time with httputil.ReverseProxy and nginx (minutes).
	go run ./hack/benchgateway $(ARGS)

.PHONY: soak
soak: ## Measure gshare-controller with 10,000 functions and 30,000 hollow pods for an hour: ARGS="-for 10m" for less.
	nice go test -count=1 -v -timeout 4h ./test/soak -functions 10000 -for 1h $(ARGS)

.PHONY: results
results: ## Regenerate the simulations' tables and figures (tens of minutes).
	hack/results.sh $(ARGS)

.PHONY: results-check
results-check: ## Hold two seeds of each simulation against the stored ranges.
	hack/results.sh --check --runs 2 $(ARGS)

.PHONY: test
test: ## Run the tests that prove that gshare works: rules, hook, plugins on an API server, the agent on a kubelet (minutes).
	hack/test.sh core

.PHONY: test-all
test-all: ## Run lint and all other tests, and for BUDGET (default 10m) those that take minutes. CI runs test and test-all.
	hack/test.sh rest

.PHONY: test-quick
test-quick: ## Run what needs neither an API server nor the fake driver, and the packages of the change with the race detector.
	hack/test.sh quick

.PHONY: test-unit
test-unit: ## Run the tests that need the fake driver but no API server, and what test-quick leaves out.
	hack/test.sh unit

.PHONY: race
race: ## Run tests with the race detector: make race PKG=./serving/gateway; without PKG those of all packages where goroutines meet.
	hack/test.sh race $(PKG)

.PHONY: test-integration
test-integration: ## Run the tests that start an API server (minutes).
	hack/test.sh integration

.PHONY: flakes
flakes: ## Run CI's tests again and again beside busy processes for FLAKES (default 20m): make flakes ARGS="./hook ./node/...".
	FLAKES=$(FLAKES) hack/flakes.sh $(ARGS)

.PHONY: e2e
e2e: ## Run every test that takes minutes, or those whose name contains ARGS: kubelets, containerd, runc; needs root (an hour).
	hack/test.sh long $(ARGS)

.PHONY: kind-up
kind-up: ## Make a kind cluster with simulated GPUs and gshare; needs docker or podman; PULL=no pulls no image.
	PULL=$(PULL) kind/up.sh

.PHONY: kind-image
kind-image: ## Make a node image for kind from packages of Debian and Go modules, where none can be pulled; needs root.
	kind/node-image.sh

.PHONY: kind-demo
kind-demo: ## Run three pods on one GPU of the kind cluster.
	kind/demo.sh

.PHONY: kind-down
kind-down: ## Remove the kind cluster.
	kind/down.sh

.PHONY: cluster-build
cluster-build: ## Build the programs of the test cluster into bin/cluster.
	hack/cluster.sh build

.PHONY: enforce
enforce: ## Run all experiments on the simulated GPU: accuracy, isolation, delivery (an hour).
	nice go test -count=1 -v -timeout 3h ./test/enforce -full $(ARGS)

.PHONY: test-gpu
test-gpu: ## Run the experiments on a real GPU with PyTorch; says SKIP without one; ARGS=--dry-run: on the fake driver.
	go build -o bin/ ./cmd/gshare ./cmd/gshare-node ./cmd/gshare-model && hack/hook.sh build && hook/fake/build.sh bin/fake && python3 test/gpu/lane.py $(ARGS)

.PHONY: ecosystem
ecosystem: ## Let published clients and autoscalers use gshare, KEDA's on the test cluster; needs the network the first time.
	hack/ecosystem.sh

.PHONY: compat
compat: ## Install, load, upgrade and remove gshare on real clusters of each supported Kubernetes: ARGS=1.36 for one; needs root (an hour).
	hack/compat.sh $(ARGS)

.PHONY: nvidia
nvidia: ## Fetch NVIDIA's user space from Debian and test against it, without a GPU (gigabytes the first time).
	hack/nvidia.sh

.PHONY: test-layers
test-layers: ## Check the rings: imports, clocks, exits, package comments, READMEs.
	hack/test.sh layers

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (default 10s).
	FUZZTIME=$(FUZZTIME) hack/fuzz.sh

.PHONY: coverage
coverage: ## Write coverage.out and coverage.html for the rules and the plugins.
	hack/coverage.sh

.PHONY: mutate
mutate: ## Change 300 random places of rules, plugins, grant and token server, and see whether a test notices (10 minutes).
	nice go run ./hack/mutate $(ARGS)

.PHONY: lint
lint: ## Check format, go.mod and generated files; run the checks of go vet, staticcheck and misspell.
	hack/lint.sh

.PHONY: hook
hook: ## Build libgshare.so into bin/hook and check its exports and imports.
	hack/hook.sh build && hack/hook.sh check

.PHONY: test-hook
test-hook: ## Test the hook on a fake driver: plain, sanitizers, valgrind (minutes).
	hack/hook.sh test

.PHONY: vuln
vuln: ## Look for known vulnerabilities of what the programs call, in a database: make vuln VULNDB=file:///DIRECTORY.
	VULNDB=$(VULNDB) hack/vuln.sh

.PHONY: release
release: ## Make images, manifests, chart and archives of a release: make release VERSION=v0.1.0 (minutes the first time).
	VERSION=$(VERSION) REGISTRY=$(REGISTRY) hack/release.sh

.PHONY: chart
chart: ## Write the Helm chart's templates from the kustomize bases.
	go run ./hack/chart

.PHONY: reference
reference: ## Write the reference pages of docs from the source.
	go run ./hack/reference
	GSHARE_WRITE_REFERENCE=1 go test -count=1 -p 1 -run '^TestManual$$' ./cmd/gshare ./cmd/gshare-node ./cmd/gshare-controller ./cmd/gshare-gateway ./cmd/gshare-model ./cmd/internal/features

.PHONY: site
site: ## Write the documentation as a static site to bin/site, and check every link in it.
	go run ./hack/site

.PHONY: crds
crds: ## Write the CustomResourceDefinitions of manifests/serving, and the code that copies such objects, from their Go types.
	hack/crds.sh

.PHONY: fmt
fmt: ## Format every Go file.
	gofmt -w $$(hack/gofiles.sh)

.PHONY: tidy
tidy: ## Bring go.mod and go.sum up to date.
	go mod tidy

.PHONY: clean
clean: ## Remove what was built and measured.
	rm -rf bin hack/bin coverage coverage.out coverage.html
