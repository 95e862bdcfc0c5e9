package follow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// A list is written in place, as by a shell that truncates the file and then writes to it. A look applies only content
// that the look before has found as well.
func TestLookInPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	list, path := filepath.Join(dir, "abusers.txt"), filepath.Join(dir, "policy.yaml")
	write := func(file, content string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const head = "version: 1\nlists: {abusers: {file: abusers.txt}}\nrules:\n  - {name: abusers, clients: [abusers], block: true}\n"
	write(list, "192.0.2.1\n")
	write(path, head)
	f := &File{Path: path, Logger: slog.New(slog.DiscardHandler), Refused: func(err error) { t.Error(err) }}
	p, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	engine, applied, onApply := policy.NewEngine(memory.New(), p), 0, func() {}
	apply := func(p *policy.Policy) {
		engine.Swap(p)
		applied++
		onApply()
	}
	blocks := func(addr string) bool {
		d := engine.Decide(t.Context(), &policy.Request{Path: "/", Peer: netip.MustParseAddr(addr)})
		return !d.Allowed
	}
	look := func(again bool, want int) {
		t.Helper()
		if got := f.look(nil, apply); got != again || applied != want || !blocks("192.0.2.1") {
			t.Fatalf("waits: %v, %d policies applied, 192.0.2.1 blocked: %v; want %v, %d, true",
				got, applied, blocks("192.0.2.1"), again, want)
		}
	}
	look(false, 0)
	write(path, head+"  - {name: all, limit: 1/day}\n")
	look(true, 0)
	onApply = func() { write(list, "") } // the list is truncated just when the policy is applied
	look(false, 1)
	look(true, 1)
	onApply = func() {}
	write(list, "192.0.2.1\n198.51.100.7")
	look(true, 1)
	write(list, "192.0.2.1\n198.51.100.77\n")
	f.forced = true // a signal does not make the list complete
	look(true, 1)
	look(false, 2)
	look(false, 2)
	if !blocks("198.51.100.77") || blocks("198.51.100.7") {
		t.Error("the list is not the one that was written")
	}
	write(list, "")
	look(true, 2)
	write(list, "192.0.2.1\n198.51.100.77\n") // as it was
	look(false, 2)
}

// Prices in a separate file are followed. If they cannot be read, the old prices stay in force.
func TestLookPrices(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, prices := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "prices.json")
	write := func(file, content string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(path, "version: 1\nprices: {file: prices.json}\nrules:\n  - {name: usd, limit: 50 USD/day, cost: {usd: prices}}\n")
	write(prices, `{"gpt-5*": {"input": 1.25, "output": 10}}`)
	refused := 0
	f := &File{Path: path, Logger: slog.New(slog.DiscardHandler), Refused: func(error) { refused++ }}
	p, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{p.Fingerprint(): true}
	for i, c := range []struct {
		content string
		refused int
	}{{`{"gpt-5*": {"input": 1.50, "output": 10}}`, 0}, {`{"gpt-5*": {"input": 1.50}}`, 1}, {`{"gpt-5*": {"input": 1.75, "output": 10}}`, 1}} {
		write(prices, c.content)
		for f.look(nil, func(p *policy.Policy) { seen[p.Fingerprint()] = true }) {
		}
		if want := 2 + i - c.refused; len(seen) != want || refused != c.refused {
			t.Errorf("%s: %d policies so far, %d refused, want %d and %d", c.content, len(seen), refused, want, c.refused)
		}
	}
}

// The file of a shell's <(command) can be read only once. Its policy stays, the log mentions the pipe, and a reload is
// an error.
func TestWatchPipe(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("version: 1\nrules: [{name: all, limit: 1/day}]\n"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var log strings.Builder
	var refused error
	f := &File{
		Path: fmt.Sprintf("/dev/fd/%d", r.Fd()), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Refused: func(err error) { refused = err; stop() },
	}
	if _, err := f.Load(); err != nil {
		t.Fatal(err)
	}
	reload := make(chan os.Signal, 1)
	reload <- syscall.SIGHUP
	f.Watch(ctx, reload, func(*policy.Policy) { t.Error("the policy is applied again"); stop() })
	if !strings.Contains(log.String(), "from a pipe") || !errors.Is(refused, errPipe) {
		t.Errorf("the log contains %q, and the error of a reload is %v", log.String(), refused)
	}
}
