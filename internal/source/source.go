// Package source brings policies from where they are kept, and notices when they change.
package source

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

const (
	// settle is how long a file must be quiet before it is read, so that one that is
	// being written is not read in halves.
	settle = 100 * time.Millisecond
	// poll is how often a file is looked at where nothing is heard of it: network
	// file systems tell nobody.
	poll = 10 * time.Second
	// maxLogged bounds the problems of a refused file that are logged.
	maxLogged = 20
)

// File is a policy in a file.
type File struct {
	Path string
	Log  *slog.Logger

	data    []byte // as last read
	missing bool   // it could not be read the last time
}

// Load reads the file. The error lists everything that is wrong with it.
func (f *File) Load() (*policy.Policy, error) {
	data, err := f.read()
	if err != nil {
		return nil, err
	}
	f.data = data
	return policyfile.Parse(f.Path, data)
}

// read returns the content, or enough of it to be refused.
func (f *File) read() ([]byte, error) {
	file, err := os.Open(f.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, policyfile.MaxDocument+1))
}

// Watch calls apply with each new policy until ctx ends: when the content of the file
// has changed, by whatever way (written in place, renamed over, a symbolic link on the
// way to it turned), and whenever reload receives. A policy that cannot be read is
// logged and changes nothing. Load must have been called once before.
func (f *File) Watch(ctx context.Context, reload <-chan os.Signal, apply func(*policy.Policy)) {
	var ( // stay nil where the system has no watches left
		notes  chan fsnotify.Event
		faults chan error
	)
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		f.Log.Warn("file changes are noticed late", "file", f.Path, "every", poll, "error", err)
	} else {
		defer watcher.Close()
		notes, faults = watcher.Events, watcher.Errors
	}
	quiet := time.NewTimer(0) // looks once at once: it may have changed since Load
	defer quiet.Stop()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-notes:
			quiet.Reset(settle)
		case <-faults: // notes were lost
			quiet.Reset(settle)
		case <-reload:
			f.reload(apply, true)
		case <-quiet.C:
			f.follow(watcher)
			f.reload(apply, false)
		case <-tick.C:
			f.follow(watcher)
			f.reload(apply, false)
		}
	}
}

// follow watches the directories of the file and of what it links to. Directories, since
// a watch on a file stays with it when another takes its name. They may have changed.
func (f *File) follow(w *fsnotify.Watcher) {
	if w == nil {
		return
	}
	dirs := []string{filepath.Dir(f.Path)}
	if target, err := filepath.EvalSymlinks(f.Path); err == nil {
		dirs = append(dirs, filepath.Dir(target))
	}
	for _, old := range w.WatchList() {
		if old != dirs[0] && old != dirs[len(dirs)-1] {
			_ = w.Remove(old) // gone already, if it fails
		}
	}
	for _, dir := range dirs {
		if err := w.Add(dir); err != nil {
			f.Log.Debug("directory cannot be watched", "directory", dir, "error", err)
		}
	}
}

// reload applies the file if it has changed, or anyway if forced.
func (f *File) reload(apply func(*policy.Policy), forced bool) {
	data, err := f.read()
	if err != nil {
		if forced || !f.missing {
			f.Log.Error("policy cannot be read, the old one stays", "error", err)
		}
		f.missing = true
		return
	}
	if !forced && !f.missing && bytes.Equal(data, f.data) {
		return
	}
	f.data, f.missing = data, false
	p, err := policyfile.Parse(f.Path, data)
	if err != nil {
		f.refuse(err)
		return
	}
	apply(p)
	f.Log.Info("policy loaded", "file", f.Path)
}

// refuse logs why a policy is not taken, a line for each problem.
func (f *File) refuse(err error) {
	problems, _ := errors.AsType[policy.Errors](err)
	if len(problems) == 0 {
		f.Log.Error("policy refused, the old one stays", "file", f.Path, "error", err)
		return
	}
	for _, p := range problems[:min(len(problems), maxLogged)] {
		f.Log.Error("policy refused, the old one stays", "problem", p.String())
	}
	if more := len(problems) - maxLogged; more > 0 {
		f.Log.Error("policy refused, the old one stays", "more_problems", more)
	}
}
