STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
ERRCHECK    = github.com/kisielk/errcheck@v1.20.0

.PHONY: run test chaos collations crash deluge differential lint bench bench-quick

# The gateway on :8080, in front of the sample API, with examples/api.yaml.
run:
	go run ./cmd/sluice serve --upstream sample

test:
	scripts/test-tools
	go test -race -timeout 20m ./...
	cd examples/frameworks && go test -race ./...
	cd bench && go test -race ./migrate

# Faults of the shared store under load, in full. It takes nearly ten minutes, eight of
# them for one test, beside which others run, and wants the machine to itself. "make test"
# has a short form.
chaos:
	SLUICE_CHAOS=1 go test -count 1 -run Chaos -parallel 8 -timeout 12m -v ./e2e

# What MariaDB, PostgreSQL and Perl take for one name, asked of them, against what is kept of
# it and against how the policy folds names, and the table that is made from it. It needs
# Debian's mariadb-server-core, mariadb-client-core and postgresql, and takes a minute. With
# COLLATIONS=write it writes what they say.
COLLATIONS = check
collations:
	SLUICE_COLLATIONS=$(COLLATIONS) go test -count 1 -run 'Servers' -v ./policy/internal/fold
	go generate ./policy/internal/fold
	git diff --exit-code policy/internal/fold/fold.txt
	go test -run Name ./policy/internal/fold

# Odd requests through the gateway to real frameworks, for as long as FOR says. "make test"
# has a short form.
FOR = 30m
differential:
	scripts/test-tools
	SLUICE_DIFFERENTIAL=$(FOR) go test -race -count 1 -timeout 0 -v -run Frameworks ./e2e/frameworks

# Floods of ten and of a hundred million keys against the memory store, in full. It takes an hour
# on a busy machine. "make test" has a short form.
deluge:
	SLUICE_DELUGE=1 go test -count 1 -run Deluge -timeout 3h -v ./memory

# Whoever writes into a database of rules is killed in the middle, fifty times: it takes a few
# minutes. "make test" has a short form.
crash:
	SLUICE_CRASH=50 go test -count 1 -run Killed -v ./internal/source

# .errcheck names the calls whose error tells nobody anything: printing to a buffer or to
# a client that may have left, and closing what was only read or is given up.
lint:
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt -w $$unformatted"; exit 1; }
	go vet ./...
	GOARCH=386 go build ./...
	go run $(STATICCHECK) ./...
	go run $(ERRCHECK) -ignoretests -exclude .errcheck ./...
	cd bench && go vet ./... && go run $(STATICCHECK) ./...
	cd examples/frameworks && go vet ./... && go run $(STATICCHECK) ./...

# Sluice and its rivals on the same work: see bench/. It wants the machine to itself, needs
# redis-server and, for instructions, valgrind, and takes up to a quarter of an hour.
bench:
	cd bench && go test . && go run . -out RESULTS.md

# The same in two minutes: one round of what decides, nothing written.
bench-quick:
	cd bench && go run . -quick
