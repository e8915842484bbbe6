# weightfs: build, demonstrate, test. Needs Go and make; everything that is built lands in build/.

GO      ?= go
BUILD   := build
FUZZTIME ?= 5s

.PHONY: all build demo test test-race test-serial test-purego fuzz conformance check check-online bench soak golden clean

all: build

build: $(BUILD)/weightfs

$(BUILD)/weightfs: FORCE
	$(GO) build -o $@ ./cmd/weightfs
FORCE:

# demo shows everything on loopback, with no network, and compares every byte it reads with values known in closed form.
demo: build
	$(BUILD)/weightfs demo --selfcheck

# test runs everything and lists at its end what this machine could not run.
test: check
	@mkdir -p $(BUILD)
	@set -o pipefail; ./testdata/run-tests.sh $(GO) $(FUZZTIME)

# fuzz runs every fuzz target for FUZZTIME.
fuzz:
	./testdata/run-fuzz.sh $(GO) $(FUZZTIME)

# conformance lets programs nobody here wrote open the views: Python safetensors, NumPy, huggingface_hub, tinygrad, ONNX Runtime; and
# replays what transformers loaded and how engines open files.
conformance: build
	./testdata/conformance/run.sh $(BUILD)

# soak lets everything go wrong at random for half an hour and compares every byte that is read; SOAK="-for 60s -seed 1" is another run.
SOAK ?= -for 30m
soak: build
	$(GO) run ./internal/soak -bin $(BUILD)/weightfs $(SOAK)

check:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not formatted:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

# bench measures weightfs beside floors and rivals on loopback servers, and writes the table of docs/performance.md. It needs root and FUSE.
bench: build
	$(GO) build -o $(BUILD)/bench ./internal/bench
	$(BUILD)/bench --weightfs $(BUILD)/weightfs --markdown docs/performance.md $(BENCHFLAGS)

check-online:
	$(GO) run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...

# golden rewrites the golden files of all packages; look at the diff before you commit it.
golden:
	$(GO) test ./fs/plan ./cache ./transform ./sources/release -update

clean:
	rm -rf $(BUILD)

SHELL := /bin/bash
