//go:build linux

package main

import (
	"bytes"
	"log/slog"
	"net/url"
	"syscall"
	"testing"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// The connections that there may be leave files for everything else.
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
		settings serveSettings
		all, one int
		warned   bool
		upstream string // a host; empty is the sample
	}{
		{200, serveSettings{}, 48, 16, false, "h"},
		{200, serveSettings{}, 32, 16, false, ""},
		{1024, serveSettings{}, 460, 57, false, "h"},
		{32, serveSettings{}, 16, 16, true, "h"},
		{1024, serveSettings{maxConnections: 400}, 400, 50, false, "h"},
		{1024, serveSettings{maxConnections: 500, maxPerAddress: 3}, 500, 3, true, "h"},
	} {
		limit := syscall.Rlimit{Cur: test.files, Max: before.Max}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		test.settings.upstream.rest.url = &url.URL{Host: test.upstream}
		var log bytes.Buffer
		b := test.settings.bounds(slog.New(slog.NewTextHandler(&log, nil)), engine)
		if b.Most != test.all || b.PerAddress != test.one || (log.Len() > 0) != test.warned {
			t.Errorf("%d files, %+v: %d in all, %d of one, %q", test.files, test.settings, b.Most, b.PerAddress, &log)
		}
	}
}
