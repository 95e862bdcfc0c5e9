package follow_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile/follow"
)

// document returns a policy with one rule of the given name.
func document(rule string) string {
	return fmt.Sprintf("version: 1\nrules:\n  - {name: %s, limit: 1/day}\n", rule)
}

// followed is a file that is watched.
type followed struct {
	*follow.File
	reload  chan os.Signal
	applied chan string // the first rule of each policy
	refused chan error
	ended   chan struct{}
	stop    context.CancelFunc
}

func watch(t *testing.T, path string, load bool) *followed {
	t.Helper()
	f := &followed{
		File:    &follow.File{Path: path, Logger: slog.New(slog.DiscardHandler)},
		reload:  make(chan os.Signal),
		applied: make(chan string, 10),
		refused: make(chan error, 10),
		ended:   make(chan struct{}),
	}
	f.Refused = func(err error) { f.refused <- err }
	if load {
		p, err := f.Load()
		if err != nil || rule(p) != "first" {
			t.Fatal(rule(p), err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	f.stop = stop
	go func() {
		defer close(f.ended)
		f.Watch(ctx, f.reload, func(p *policy.Policy) { f.applied <- rule(p) })
	}()
	t.Cleanup(func() { stop(); <-f.ended })
	return f
}

func rule(p *policy.Policy) string { return p.Outages()[0].Rule }

// write replaces the content of a file atomically.
func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// next waits until a policy is applied or rejected, and returns its rule or the error.
func (f *followed) next(t *testing.T) (rule string, err error) {
	t.Helper()
	select {
	case rule = <-f.applied:
	case err = <-f.refused:
	case <-time.After(testkit.Patience):
		t.Fatal("no policy was applied or rejected")
	}
	return rule, err
}

func (f *followed) wantApplied(t *testing.T, want string) {
	t.Helper()
	if rule, err := f.next(t); rule != want {
		t.Fatalf("the policy of %q is applied, want that of %s: %v", rule, want, err)
	}
}

func (f *followed) wantError(t *testing.T) error {
	t.Helper()
	rule, err := f.next(t)
	if err == nil {
		t.Fatalf("the policy of %s is applied, want an error", rule)
	}
	return err
}

func TestFollow(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, document("first"))
	f := watch(t, path, true)

	write(t, path, document("second"))
	f.wantApplied(t, "second")
	write(t, path, strings.ReplaceAll(document("third"), "limit", "limt"))
	problems, ok := errors.AsType[policy.Errors](f.wantError(t))
	if !ok || problems[0].Line != 3 || !strings.Contains(problems.Error(), path) {
		t.Errorf("the problems: %v", problems)
	}
	f.reload <- syscall.SIGHUP
	f.wantError(t) // a signal reports the error again
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := f.wantError(t); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed file: %v", err)
	}
	write(t, path, document("fourth"))
	f.wantApplied(t, "fourth")
	f.reload <- syscall.SIGHUP
	f.wantApplied(t, "fourth")
	f.stop()
	<-f.ended
}

// A symbolic link in the path of the file is replaced, as Kubernetes does to update a mounted volume.
func TestFollowLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"first", "second"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "policy.yaml"), document(name))
	}
	link := func(to, as string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, as)); err != nil {
			t.Fatal(err)
		}
	}
	link("first", "data")
	link(filepath.Join("data", "policy.yaml"), "policy.yaml")
	f := watch(t, filepath.Join(dir, "policy.yaml"), true)
	link("second", "data.new")
	if err := os.Rename(filepath.Join(dir, "data.new"), filepath.Join(dir, "data")); err != nil {
		t.Fatal(err)
	}
	f.wantApplied(t, "second")
}

// Without a call of Load before, Watch applies the policy at once.
func TestFollowUnread(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, document("only"))
	watch(t, path, false).wantApplied(t, "only")
}
