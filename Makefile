# One verb for each thing to do; `make help` lists them. The work is done by cargo and by the scripts in .ci.

CARGO := .ci/cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)

# Seconds that `make fuzz TIME=…` gives each target, and the one figure that `make bench ONLY=…` measures.
TIME ?= 60
ONLY ?=

# The model of examples/config.toml that thinks in `make demo-work MODEL=…`; its script when empty.
MODEL ?=

.PHONY: help demo demo-work demo-fleet test soak check bench fuzz doc promises clean

help: ## Lists the verbs
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

demo: ## Sets the machine up, builds, and lets an agent work in a real container
	@.ci/demo

demo-work: ## Lets an agent mend a small repository with git and python3, and hand out its patch
	@MODEL=$(MODEL) .ci/demo-work

demo-fleet: ## Lets two agents work together, kills the daemon in the middle, and shows that nothing is lost
	@.ci/demo-fleet

test: ## Tests everything against a real engine, as root, and a part of it as a user of the docker group
	@.ci/test

soak: ## Runs the tests with many more rounds (hours)
	@RUNNER_SOAK=1 .ci/test

check: ## Checks format, lints, documentation, licences, promises and the scripts
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) clippy --workspace --all-targets --features runner/crash --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked
	@.ci/deny
	@.ci/architecture
	@.ci/promises
	@.ci/engine-check

bench: ## Measures every figure, or one with ONLY=name, and writes the README's table
	@.ci/bench $(ONLY)

fuzz: ## Fuzzes both decoders of the link, TIME=60 each
	@.ci/fuzz $(TIME)

doc: ## Builds the reference of all packages, private items included
	$(CARGO) doc --workspace --no-deps --document-private-items --locked
	@echo "open $(TARGET)/doc/runner/index.html"

promises: ## Lists every rule of docs/contracts with the tests that hold it; fails on a rule without one
	@.ci/promises

clean: ## Removes everything that was built, our images included
	@.ci/clean
