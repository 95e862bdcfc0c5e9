STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
ERRCHECK    = github.com/kisielk/errcheck@v1.20.0
ACTIONLINT  = github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
GOTESTSUM   = gotest.tools/gotestsum@v1.13.0

.PHONY: run build test test-ci test-all tools mutants chaos collations consistency crash leases deluge differential draws histories fleet simulation overload lint pictures bench bench-quick ratelimit traefik h2spec peers

# The gateway on :8080, in front of the sample API, with examples/api.yaml.
run:
	go run ./cmd/sluice serve --upstream sample

# The static binary, bin/sluice: the same bytes from the same commit, wherever it is built, for GOOS and
# GOARCH.
VERSION = $(shell git describe --tags --match 'v[0-9]*' --always --dirty 2>/dev/null)
COMMIT  = $(shell git rev-parse HEAD 2>/dev/null)
BINARY  = bin/sluice
build:
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -o $(BINARY) \
		-ldflags '-s -w -X main.release=$(VERSION) -X main.commit=$(COMMIT)' ./cmd/sluice

# The race detector needs a C compiler.
RACE = $(shell [ "$$(go env CGO_ENABLED)" = 1 ] && command -v "$$(go env CC)" >/dev/null && echo -race)

# Packages that "make test" runs without the race detector, which makes them five to fifteen times slower:
# those that compute, and those that test the whole program. "make test-ci" runs them with it. The slowest
# begin first.
PLAIN = ./cmd/e2e/console ./cmd/e2e ./cmd/e2e/... ./cmd/internal/adaptivesim ./cmd/internal/adminapi \
	./cmd/internal/console ./cmd/internal/histories ./cmd/internal/incident ./cmd/internal/licencegen \
	./cmd/internal/recent ./cmd/internal/replay/... ./cmd/internal/schemagen ./answer ./internal/usage \
	./kernel ./policy/... ./policyfile ./storetest
SLOWEST = ./redisstore ./telemetry ./memory ./failover ./cmd/internal/source ./lease ./cmd/internal/cli
RACED = $(SLOWEST) $$(go list work | grep -vxF "$$(go list $(PLAIN) $(SLOWEST))")
# Its argument names the record of the run: .ci/run looks for skipped tests there.
TESTSUM = mkdir -p bin/test && go run $(GOTESTSUM) --format pkgname --format-hide-empty-pkg --jsonfile bin/test/$(1).json --

# The tests to run before a push: about six minutes on two cores. It installs nothing: tests that need a program
# that is missing are skipped, and listed at the end. Three packages run at a time, because some wait for
# other processes; "make lint" vets. Without GORACE each process with the race detector sleeps for a second at
# its end.
test test-ci test-all: export GORACE = atexit_sleep_ms=50
test:
	@[ -n "$(RACE)" ] || echo "no C compiler: the tests run without the race detector"
	@scripts/tools
	$(call TESTSUM,plain) -vet=off -p 3 -timeout 20m $(PLAIN)
	$(call TESTSUM,raced) $(RACE) -vet=off -p 3 -timeout 20m $(RACED)

# What "make test" leaves out, in short forms: the race detector over the packages of PLAIN, the tests
# named TestLong, which have a build tag, and those of the other modules. Databases and a proxy that take
# long to install or to build have targets of their own: collations and traefik.
LONG = $$(grep -rl --include='*_test.go' --exclude-dir=bench '^//go:build long' . | xargs -n1 dirname | sort -u)
test-ci:
	$(call TESTSUM,race) $(RACE) -vet=off -timeout 20m $(PLAIN)
	$(call TESTSUM,long) $(RACE) -tags long -run '^TestLong' -skip 'TestLongServers|TestLongTraefik|TestLongSimulation|TestLongRivals|TestLongOverload' -vet=off -p 2 -timeout 40m $(LONG)
	cd bench && go test -tags long $(RACE) ./migrate ./fleet ./letpass
	cd deploy/check && GOWORK=off go test -count 1 -timeout 30m ./...

# Everything, in full: see the table in CONTRIBUTING.md.
test-all: test test-ci leases collations ratelimit h2spec peers crash fleet traefik simulation overload histories draws chaos consistency differential deluge

# Installs what the tests run, which it lists first: on Debian and Ubuntu, packages, as root.
tools:
	@scripts/tools install

# The long forms. Each is a test that "make test-ci" runs in a short form; CONTRIBUTING.md says how long
# they take.
IN_FULL = go test -tags long -count 1 -timeout 0 -v

# Faults of the shared store under load. It wants the machine to itself.
chaos:
	SLUICE_CHAOS=1 $(IN_FULL) -run TestLongChaos -parallel 8 ./cmd/e2e

# Four gateways that count together, strictly, leased and synced, for as long as PHASE says in each of a
# few faults: the union of what they let pass against the limit.
PHASE = 1m
consistency:
	SLUICE_CONSISTENCY=$(PHASE) $(IN_FULL) -run Consistency -parallel 1 ./cmd/e2e

# More orders in which leases can go wrong.
leases:
	$(IN_FULL) -run AllOrders ./lease

# What MariaDB, PostgreSQL and Perl take for one name, asked of them, against what is kept of
# it and against how the policy folds names, and the table that is made from it. It needs
# Debian's mariadb-server-core, mariadb-client-core and postgresql. With COLLATIONS=write it writes what
# they say.
COLLATIONS = check
collations:
	SLUICE_COLLATIONS=$(COLLATIONS) $(IN_FULL) -run TestLongServers ./policy/internal/fold
	go generate ./policy/internal/fold
	git diff --exit-code policy/internal/fold/fold.txt
	go test -run Name ./policy/internal/fold

# Odd requests through the gateway to real frameworks, for as long as FOR says.
FOR = 30m
differential:
	SLUICE_DIFFERENTIAL=$(FOR) $(IN_FULL) -race -run Frameworks ./cmd/e2e/frameworks

# The pictures in docs/: what the algorithms let pass, the dashboard after half an hour of visitors,
# and a replay. The last two need Chromium.
pictures:
	cd bench && go run ./letpass ../docs
	SLUICE_PICTURES=$(CURDIR)/docs $(IN_FULL) -run TestLongPictures ./cmd/e2e/console

# Envoy's rate limit service beside envoyproxy/ratelimit, which is built for it: the same
# configurations, histories and answers.
ratelimit:
	SLUICE_RATELIMIT=1 $(IN_FULL) -race -run TestLongSameAsRatelimit ./cmd/internal/door/rls

# Floods of ten and of a hundred million keys against the memory store.
deluge:
	SLUICE_DELUGE=1 $(IN_FULL) -run 'Deluge|Limited' ./memory

# Redis against memory, and that against the model, over random histories, for as many steps as STEPS says.
STEPS = 1000000
histories:
	SLUICE_STEPS=$(STEPS) $(IN_FULL) -race -run 'TestLongHistories|Differential' ./redisstore ./memory

# What is drawn at random, drawn by a new seed, and POLICIES of the random policies. What fails says from
# which SLUICE_SEED. The other targets always draw the same.
POLICIES = 2000
draws:
	now=$$(date +%s%N) && SLUICE_SEED=$$now SLUICE_RANDOM_SEED=$$now SLUICE_RANDOM_POLICIES=$(POLICIES) SLUICE_TRIALS=40 \
		go test -tags long -race -count 1 -timeout 0 -skip 'TestLongServers|TestLongTraefik' ./policy/... ./internal/... ./cmd/internal/... ./cmd/e2e/doors

# Writers into a database of rules, killed in the middle, fifty times.
crash:
	SLUICE_CRASH=50 $(IN_FULL) -run Killed ./cmd/internal/source

# A fleet whose rules change under load, for as long as FLEET says, and everything has to be in force
# everywhere within a second: it wants the machine to itself.
FLEET = 2m
fleet:
	SLUICE_FLEET=$(FLEET) $(IN_FULL) -run RulesUnderLoad ./cmd/e2e

# Two to a thousand processes with leases in virtual time, two and four gateways over one Redis beside
# them, and bench/RESULTS-fleet.md with its pictures made of both.
simulation:
	cd bench && SLUICE_SIMULATION=write $(IN_FULL) -run TestLongSimulation ./fleet

# Automatic limits of requests under way: all rows of the simulation, five times each, their rivals, and a real
# gateway before an upstream that gets too much. It wants the machine to itself.
overload:
	$(IN_FULL) -run 'TestLongSimulation|TestLongRivals' ./cmd/internal/adaptivesim
	SLUICE_CHAOS=1 $(IN_FULL) -run TestLongOverload ./cmd/e2e

# deploy/traefik with a real Traefik, which takes six minutes to build the first time.
traefik:
	$(IN_FULL) -run TestLongTraefik ./cmd/e2e/doors

# HTTP/2 of the gateway, held to h2spec beside that of net/http.
h2spec:
	scripts/h2spec

# The suites of other projects, in a module of their own: connectrpc's conformance through the gateway,
# over HTTP/1.1 and HTTP/2, beside the same without it.
peers:
	cd peers && GOWORK=off go test -count 1 -v ./...

# What the tests of PKG notice of N changes to its code, drawn by SEED: see internal/mutants, and its
# accepted.txt for changes that no test has to notice.
PKG = ./policy
N = 40
SEED = 1
mutants:
	go run ./internal/mutants -n $(N) -seed $(SEED) $(PKG)

# .errcheck names the calls whose error tells nobody anything: printing to a buffer or to
# a client that may have left, and closing what was only read or is given up.
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

# Sluice and its rivals on the same work: see bench/. It wants the machine to itself, needs
# redis-server, PostgreSQL, nginx, HAProxy and, for instructions, valgrind, and takes up to twenty minutes.
bench:
	cd bench && go test . && go run . -out RESULTS.md

# The same in three minutes: one round of what decides, nothing written.
bench-quick:
	cd bench && go run . -quick
