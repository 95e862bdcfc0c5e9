//go:build linux

package server

import (
	"bytes"
	"log/slog"
	"syscall"
	"testing"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// The maximum of connections leaves enough file descriptors for everything else.
func TestBoundsFollowFiles(t *testing.T) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	})
	engine := policy.NewEngine(memory.New(), nil)
	for _, test := range []struct {
		files    uint64
		settings connectionSettings
		all, one int
		warned   bool
		sample   bool
	}{
		{200, connectionSettings{}, 48, 16, false, false},
		{200, connectionSettings{}, 32, 16, false, true},
		{1024, connectionSettings{}, 460, 57, false, false},
		{32, connectionSettings{}, 16, 16, true, false},
		{1024, connectionSettings{max: 400}, 400, 50, false, false},
		{1024, connectionSettings{max: 500, maxPerAddress: 3}, 500, 3, true, false},
	} {
		limit := syscall.Rlimit{Cur: test.files, Max: before.Max}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		b := test.settings.bounds(slog.New(slog.NewTextHandler(&log, nil)), engine.TrustedProxies, test.sample)
		if b.Most != test.all || b.PerAddress != test.one || (log.Len() > 0) != test.warned {
			t.Errorf("%d files, %+v: %d connections in all, %d per address, log %q", test.files, test.settings, b.Most, b.PerAddress, &log)
		}
	}
}
