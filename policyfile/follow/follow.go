// Package follow reads a policy from a file again whenever that changes.
//
//	file := &follow.File{Path: "api.yaml"}
//	rules, err := file.Load()
//	engine := policy.NewEngine(store, rules)
//	go file.Watch(ctx, nil, engine.Swap)
package follow

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
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

// File is a policy in a file, JSON if its name ends with ".json", else YAML, with the lists
// and answers that it has in others.
type File struct {
	Path string
	// Logger is told of each policy that is loaded or refused, a line for each problem.
	// Nil is slog.Default().
	Logger *slog.Logger
	// OnError, if not nil, is told in place of the log why the file cannot be read, or what
	// is wrong with the policy in it, which is a [policy.Errors]. The old policy stays.
	OnError func(error)
	// Compile makes a policy of the document; nil is policy.CompileAt. See [policyfile.ParseTo].
	Compile policyfile.Compiler

	seen    map[string]state // of the files that were last read, by their paths
	missing bool             // the policy could not be read the last time
}

// state tells what is in a file from what was.
type state struct {
	sum   [sha256.Size]byte
	fault string // why it could not be read
}

func stateOf(data []byte, err error) state {
	if err != nil {
		return state{fault: err.Error()}
	}
	return state{sum: sha256.Sum256(data)}
}

// Load reads the file, and those of its lists and answers. The error lists everything that is wrong. It is
// not to be called while Watch runs.
func (f *File) Load() (*policy.Policy, error) {
	data, err := policyfile.ReadFile(f.Path)
	if err != nil {
		return nil, err
	}
	return f.parse(data)
}

// parse makes a policy of what was read, and keeps in mind which files it is made of.
func (f *File) parse(data []byte) (*policy.Policy, error) {
	f.seen = map[string]state{f.Path: stateOf(data, nil)}
	compile := f.Compile
	if compile == nil {
		compile = policy.CompileAt
	}
	return policyfile.ParseTo(f.Path, data, func(path string) ([]byte, error) {
		data, err := policyfile.ReadFile(path)
		f.seen[path] = stateOf(data, err)
		return data, err
	}, compile)
}

// changed reports whether there is something else in one of the files than when the policy,
// which is data now, was last made of them.
func (f *File) changed(data []byte) bool {
	if f.seen[f.Path] != stateOf(data, nil) {
		return true
	}
	for path, was := range f.seen {
		if path != f.Path && stateOf(policyfile.ReadFile(path)) != was {
			return true
		}
	}
	return false
}

// Watch calls apply with each new policy until ctx ends, and returns then: when the content of
// the file, or of that of a list or an answer, has changed, by whatever way (written in place, renamed over, a symbolic link on the
// way to it turned), and whenever reload receives, which may be nil. It looks once at once, and
// applies what is not what Load has read. A policy that cannot be read changes nothing.
//
// A change is noticed 100 ms after the last write, or within ten seconds on file systems that
// tell nobody of changes.
func (f *File) Watch(ctx context.Context, reload <-chan os.Signal, apply func(*policy.Policy)) {
	var ( // stay nil where the system has no watches left
		notes  chan fsnotify.Event
		faults chan error
	)
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		f.log().Warn("file changes are noticed late", "file", f.Path, "every", poll, "error", err)
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
			f.look(watcher, apply, true)
		case <-quiet.C:
			f.look(watcher, apply, false)
		case <-tick.C:
			f.look(watcher, apply, false)
		}
	}
}

// look applies what has changed. It looks again at what may be in new files by then, which
// nobody has watched while they were read.
func (f *File) look(w *fsnotify.Watcher, apply func(*policy.Policy), forced bool) {
	f.follow(w)
	if f.reload(apply, forced) {
		f.follow(w)
		f.reload(apply, false)
	}
}

// follow watches the directories of the files and of what they link to. Directories, since
// a watch on a file stays with it when another takes its name. They may have changed.
func (f *File) follow(w *fsnotify.Watcher) {
	if w == nil {
		return
	}
	var dirs []string
	for path := range f.seen {
		dirs = append(dirs, filepath.Dir(path))
		if target, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(target))
		}
	}
	for _, old := range w.WatchList() {
		if !slices.Contains(dirs, old) {
			_ = w.Remove(old) // gone already, if it fails
		}
	}
	for _, dir := range dirs {
		if err := w.Add(dir); err != nil {
			f.log().Debug("directory cannot be watched", "directory", dir, "error", err)
		}
	}
}

// reload applies the file if it has changed, or anyway if forced, and reports whether it was
// read anew.
func (f *File) reload(apply func(*policy.Policy), forced bool) bool {
	data, err := policyfile.ReadFile(f.Path)
	if err != nil {
		if forced || !f.missing {
			f.unread(err)
		}
		f.missing = true
		return false
	}
	if !forced && !f.missing && !f.changed(data) {
		return false
	}
	f.missing = false
	p, err := f.parse(data)
	if err != nil {
		f.refuse(err)
		return true
	}
	apply(p)
	f.log().Info("policy loaded", "file", f.Path)
	return true
}

func (f *File) log() *slog.Logger { return cmp.Or(f.Logger, slog.Default()) }

// unread says why the file cannot be read.
func (f *File) unread(err error) {
	if f.OnError != nil {
		f.OnError(err)
		return
	}
	f.log().Error("policy cannot be read, the old one stays", "error", err)
}

// refuse says why a policy is not taken.
func (f *File) refuse(err error) {
	if f.OnError != nil {
		f.OnError(err)
		return
	}
	log := f.log()
	problems, _ := errors.AsType[policy.Errors](err)
	if len(problems) == 0 {
		log.Error("policy refused, the old one stays", "file", f.Path, "error", err)
		return
	}
	for _, p := range problems[:min(len(problems), maxLogged)] {
		log.Error("policy refused, the old one stays", "problem", p.String())
	}
	if more := len(problems) - maxLogged; more > 0 {
		log.Error("policy refused, the old one stays", "more_problems", more)
	}
}
