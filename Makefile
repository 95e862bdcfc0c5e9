STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
ERRCHECK    = github.com/kisielk/errcheck@v1.20.0
ACTIONLINT  = github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
GOTESTSUM   = gotest.tools/gotestsum@v1.13.0

# Many targets want the machine for themselves.
.NOTPARALLEL:
.PHONY: run build test test-ci test-all tools mutants chaos collations consistency crash leases deluge differential draws histories fleet simulation overload lint pictures bench bench-quick ratelimit traefik h2spec peers

# Runs the gateway on :8080, in front of the sample API, with examples/api.yaml.
run:
	go run ./cmd/sluice serve --upstream sample

# Builds the static binary, bin/sluice, for GOOS and GOARCH. The same commit and version of Go give the same bytes on
# every machine.
VERSION = $(shell git describe --tags --match 'v[0-9]*' --always --dirty 2>/dev/null)
COMMIT  = $(shell git rev-parse HEAD 2>/dev/null)
BINARY  = bin/sluice
build:
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -o $(BINARY) \
		-ldflags '-s -w -X main.release=$(VERSION) -X main.commit=$(COMMIT)' ./cmd/sluice

# The race detector needs a C compiler.
RACE = $(shell [ "$$(go env CGO_ENABLED)" = 1 ] && command -v "$$(go env CC)" >/dev/null && echo -race)

# PLAIN has the packages that mostly compute, and the tests of the whole program. The race detector makes them five
# to fifteen times slower, so "make test" runs them without it, and "make test-ci" with it. In PLAIN and in the other
# packages, the slowest packages start first.
PLAIN = ./cmd/e2e/console ./cmd/e2e ./cmd/e2e/... ./cmd/internal/adaptivesim ./cmd/internal/adminapi \
	./cmd/internal/console ./cmd/internal/histories ./cmd/internal/incident ./cmd/internal/licencegen \
	./cmd/internal/recent ./cmd/internal/replay/... ./cmd/internal/schemagen ./answer ./internal/usage \
	./kernel ./policy/... ./policyfile ./storetest ./telemetry
SLOWEST = ./redisstore ./memory ./failover ./cmd/internal/source ./lease ./cmd/internal/cli
RACED = $(SLOWEST) $$(go list work | grep -vxF "$$(go list $(PLAIN) $(SLOWEST))")
# Go reuses the result of a test although programs or files outside of its module have changed. Tests that use these
# read TEST_TREE, in internal/testkit, so that Go runs them again after each change of the tree or of the list of missing
# programs. Without git, TEST_TREE always changes.
TREE = { { git ls-files -s && git diff HEAD && git ls-files -o --exclude-standard | git hash-object --stdin-paths; } 2>/dev/null || date +%s%N; scripts/tools; } | cksum

# The argument of TESTSUM names the record of the run, in which .ci/run looks for skipped tests.
TESTSUM = mkdir -p $(CURDIR)/bin/test && TEST_TREE=$$(cd $(CURDIR) && $(TREE)) go run $(GOTESTSUM) --format pkgname --format-hide-empty-pkg --jsonfile $(CURDIR)/bin/test/$(1).json --

# The tests to run before a push: about four minutes on two cores. It installs nothing: tests that need a missing
# program are skipped, and listed at the end. Three packages run at a time, because some wait for other processes.
# "make lint" runs vet. Without GORACE, each process with the race detector would sleep for a second at its end.
test test-ci test-all: export GORACE = atexit_sleep_ms=50
test:
	@[ -n "$(RACE)" ] || echo "no C compiler: the tests run without the race detector"
	@scripts/tools
	$(call TESTSUM,plain) -vet=off -p 3 -timeout 20m $(PLAIN)
	$(call TESTSUM,raced) $(RACE) -vet=off -p 3 -timeout 20m $(RACED)

# Runs, in short forms, what "make test" leaves out: the race detector over the packages in PLAIN, the tests named
# TestLong, which have a build tag, and tests of the modules bench and deploy/check. Tests of programs that take long to
# build have separate targets: traefik, and clocks in consistency. So have collations, simulation, overload, h2spec and
# peers.
LONG = $$(grep -rl --include='*_test.go' --exclude-dir=bench '^//go:build long' . | xargs -n1 dirname | sort -u)
test-ci:
	$(call TESTSUM,race) $(RACE) -vet=off -timeout 20m $(PLAIN)
	$(call TESTSUM,long) $(RACE) -tags long -run '^TestLong' -skip 'TestLongServers|TestLongTraefik|TestLongSimulation|TestLongRivals|TestLongOverload|TestLongConsistencyClocks' -vet=off -p 2 -timeout 40m $(LONG)
	cd bench && $(call TESTSUM,bench) $(RACE) -tags long -vet=off -timeout 20m ./...
	cd deploy/check && export GOWORK=off && $(call TESTSUM,deploy) -count 1 -timeout 30m ./...

# Runs all tests in full: see the table in CONTRIBUTING.md. A test whose program is missing fails.
test-all: export TEST_TOOLS = all
test-all: test test-ci leases collations ratelimit h2spec peers crash fleet traefik simulation overload histories draws chaos consistency differential deluge

# Lists, and then installs, the programs that the tests run: on Debian and Ubuntu, packages, as root.
tools:
	@scripts/tools install

# The following targets run tests in full that "make test-ci" runs in short forms or not at all. CONTRIBUTING.md has
# the time that each takes.
IN_FULL = go test -tags long -count 1 -timeout 0 -v

# Tests faults of the shared store under load. Run nothing else on the machine.
chaos:
	SLUICE_CHAOS=1 $(IN_FULL) -run TestLongChaos -parallel 8 ./cmd/e2e

# Compares the requests that four gateways let pass together with their common limit: strict, leased and synced, and
# for a time of PHASE in each of a few faults.
PHASE = 1m
consistency:
	SLUICE_CONSISTENCY=$(PHASE) $(IN_FULL) -run Consistency -parallel 1 ./cmd/e2e

# Tests more orders of steps in which leases can go wrong.
leases:
	$(IN_FULL) -run AllOrders ./lease

# Compares which names MariaDB, PostgreSQL and Perl treat as equal with the recorded results, with the table that is
# generated from these, and with the folding of names in policies. COLLATIONS=write records the results.
COLLATIONS = check
collations:
	SLUICE_COLLATIONS=$(COLLATIONS) $(IN_FULL) -run TestLongServers ./policy/internal/fold
	go generate ./policy/internal/fold
	git diff --exit-code policy/internal/fold/fold.txt
	go test -run Name ./policy/internal/fold

# Sends odd requests through the gateway to real frameworks, for a time of FOR.
FOR = 30m
differential:
	SLUICE_DIFFERENTIAL=$(FOR) $(IN_FULL) -race -run Frameworks ./cmd/e2e/frameworks

# Makes the pictures in docs/: the requests that the algorithms let pass, the dashboard after half an hour of
# visitors, and a replay. The last two need Chromium.
pictures:
	cd bench && go run ./letpass ../docs
	SLUICE_PICTURES=$(CURDIR)/docs $(IN_FULL) -run TestLongPictures ./cmd/e2e/console

# Compares Sluice, as Envoy's rate limit service, with envoyproxy/ratelimit, which the test builds: with the same
# configurations and histories, both must give the same answers.
ratelimit:
	SLUICE_RATELIMIT=1 $(IN_FULL) -race -run TestLongSameAsRatelimit ./cmd/internal/door/rls

# Tests the memory store with floods of ten and of a hundred million keys.
deluge:
	SLUICE_DELUGE=1 $(IN_FULL) -run 'Deluge|Limited' ./memory

# Compares Redis with the memory store, and the memory store with the model, over random histories of STEPS steps.
STEPS = 1000000
histories:
	SLUICE_STEPS=$(STEPS) $(IN_FULL) -race -run 'TestLongHistories|Differential' ./redisstore ./memory

# Runs the random tests with a new seed, and with POLICIES random policies. A test that fails prints its SLUICE_SEED. All
# other targets except differential always use the same seeds. Only pauses of clients in some tests with real gateways
# are random each time.
POLICIES = 2000
draws:
	now=$$(date +%s%N) && SLUICE_SEED=$$now SLUICE_RANDOM_SEED=$$now SLUICE_RANDOM_POLICIES=$(POLICIES) SLUICE_TRIALS=40 \
		go test -tags long -race -count 1 -timeout 0 -skip 'TestLongServers|TestLongTraefik|TestLongSimulation|TestLongRivals' ./policy/... ./internal/... ./kernel ./failover ./lease ./memory ./redisstore ./synced ./telemetry ./cmd/internal/... ./cmd/e2e/doors ./cmd/e2e/llm

# Kills writers into a rules database in the middle of their work, fifty times.
crash:
	SLUICE_CRASH=50 $(IN_FULL) -run Killed ./cmd/internal/source

# Changes the rules of a fleet under load, for a time of FLEET. Each change has to be in force everywhere within a
# second. For as long, a fleet admits what one gateway would. Run nothing else on the machine.
FLEET = 2m
fleet:
	SLUICE_FLEET=$(FLEET) $(IN_FULL) -run 'RulesUnderLoad|TestLongFleet' ./cmd/e2e

# Simulates two to a thousand processes with leases in virtual time, runs two and four real gateways over one Redis
# for comparison, and writes bench/RESULTS-fleet.md with its pictures.
simulation:
	cd bench && SLUICE_SIMULATION=write $(IN_FULL) -run TestLongSimulation ./fleet

# Tests automatic limits (in_flight: auto): all rows of the simulation, five times each, the rivals, and a real
# gateway in front of an overloaded upstream. Run nothing else on the machine.
overload:
	$(IN_FULL) -run 'TestLongSimulation|TestLongRivals' ./cmd/internal/adaptivesim
	SLUICE_CHAOS=1 $(IN_FULL) -run TestLongOverload ./cmd/e2e

# Tests deploy/traefik with a real Traefik, which takes six minutes to build the first time.
traefik:
	$(IN_FULL) -run TestLongTraefik ./cmd/e2e/doors

# Tests the gateway's HTTP/2 with h2spec, and net/http's for comparison.
h2spec:
	scripts/h2spec

# Runs the test suites of other projects, which are in a separate module. connectrpc's conformance suite runs
# through the gateway, over HTTP/1.1 and HTTP/2, and without the gateway for comparison.
peers:
	cd peers && GOWORK=off go test -count 1 -v ./...

# Measures how many of N changes to the code of PKG, chosen by SEED, its tests notice: see internal/mutants, and its
# accepted.txt for changes that no test has to notice.
PKG = ./policy
N = 40
SEED = 1
mutants:
	go run ./internal/mutants -n $(N) -seed $(SEED) $(PKG)

# .errcheck lists calls whose errors may be ignored, such as writing to a buffer or to a client that may have left, and
# closing a file that was only read or is discarded.
lint:
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt -w $$unformatted"; exit 1; }
	go vet -tags long,h2spec work
	GOARCH=386 go build work
	go run $(STATICCHECK) work
	go run $(STATICCHECK) -tags long work
	go run $(ERRCHECK) -ignoretests -exclude .errcheck work
	cd bench && go vet -tags long ./... && go run $(STATICCHECK) -tags long ./...
	cd deploy/check && export GOWORK=off && go vet ./... && go run $(STATICCHECK) ./...
	cd peers && export GOWORK=off && go build tool && go vet ./... && go run $(STATICCHECK) ./...
	go run $(ACTIONLINT)
	scripts/api

# Measures Sluice and its rivals on the same work: see bench/. It needs redis-server, PostgreSQL, nginx, HAProxy
# and, for instructions, valgrind, and takes up to twenty minutes. Run nothing else on the machine.
bench:
	cd bench && go test . && go run . -out RESULTS.md

# Measures one round of the most important works in three minutes, and writes no files.
bench-quick:
	cd bench && go run . -quick
