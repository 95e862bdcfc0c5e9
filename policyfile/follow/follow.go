// Package follow loads a policy file again whenever it changes. Programs import it. It imports package policyfile.
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
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

const (
	// settle is how long the files must be unchanged before they are read, and then again before they are applied, so
	// that a half-written file is not applied.
	settle = 100 * time.Millisecond
	// poll is the interval at which files are checked even without a notification, because network file systems send
	// none.
	poll = 10 * time.Second
	// maxLogged bounds the problems of a rejected file that are logged.
	maxLogged = 20
)

// File is a policy in a file. Its lists, answers and prices can be in other files. The file is JSON if its name ends
// with ".json", and otherwise YAML.
type File struct {
	Path string
	// Logger gets a line for each policy that Watch applies, and for each of the first 20 problems of a policy that
	// Watch rejects. Nil means slog.Default().
	Logger *slog.Logger
	// Refused, if not nil, is called if Watch rejects a file. The error is the reason why the file cannot be read, or a
	// [policy.Errors] with the problems of the policy. It is also logged. The old policy stays in force.
	Refused func(error)
	// Compile compiles the document to a policy: see [policyfile.ParseTo]. Nil means [policy.CompileAt].
	Compile policyfile.Compiler

	seen   files // the files as they were last read
	done   files // the files as they were when a policy was last applied or rejected
	forced bool  // apply or reject once more, even if nothing has changed
}

// files has the states of the files of a policy, by their paths.
type files map[string]state

// state identifies the content of a file, to notice changes.
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

// Load reads the file, and the files of its lists, answers and prices. The error lists all problems. Do not call Load
// while Watch runs.
func (f *File) Load() (*policy.Policy, error) {
	p, read, err := f.read()
	f.seen, f.done = read, read
	return p, err
}

// read returns the policy of the file, and the files that it was read from.
func (f *File) read() (*policy.Policy, files, error) {
	data, err := policyfile.ReadFile(f.Path)
	made := files{f.Path: stateOf(data, err)}
	if err != nil {
		return nil, made, err
	}
	compile := f.Compile
	if compile == nil {
		compile = policy.CompileAt
	}
	p, err := policyfile.ParseTo(f.Path, data, func(path string) ([]byte, error) {
		data, err := policyfile.ReadFile(path)
		made[path] = stateOf(data, err)
		return data, err
	}, compile)
	return p, made, err
}

// changed reports whether the content of any file has changed since the last read.
func (f *File) changed() bool {
	for path, was := range f.seen {
		if stateOf(policyfile.ReadFile(path)) != was {
			return true
		}
	}
	return len(f.seen) == 0
}

var errPipe = errors.New("the policy comes from a pipe, which can be read only once: use a file to make reloads possible")

// Watch calls the function apply with each new policy until ctx ends. It reads the file, and the files of its lists,
// answers and prices, at the start and when a file may have changed: it was written in place or replaced by a rename,
// or a symbolic link in its path was changed. Watch calls the function if the content has changed since Load, or since
// a policy was last applied or rejected. After a signal from the channel reload, which may be nil, it calls the function
// even if the content is the same. If the policy cannot be read, the function is not called.
//
// A file is applied when two reads at an interval of 100 ms have returned the same content. So a half-written file is
// applied only if its writer pauses for longer. Such a writer should write a complete new file, and rename it. On file
// systems without notifications, a change is noticed after up to ten seconds. Changes of a pipe are not noticed;
// Watch logs this.
func (f *File) Watch(ctx context.Context, reload <-chan os.Signal, apply func(*policy.Policy)) {
	if info, err := os.Stat(f.Path); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		f.log().Warn("the policy comes from a pipe, which can be read only once: use a file to make reloads possible", "file", f.Path)
		for {
			select {
			case <-ctx.Done():
				return
			case <-reload:
				f.refuse(errPipe)
			}
		}
	}
	var ( // stay nil if the system has no watches left
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
	quiet := time.NewTimer(0) // expires at once, because the file may have changed since Load
	defer quiet.Stop()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-notes:
			quiet.Reset(settle)
			continue
		case <-faults: // notifications were lost
			quiet.Reset(settle)
			continue
		case <-reload:
			f.forced = true
		case <-quiet.C:
		case <-tick.C:
		}
		for f.look(watcher, apply) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(settle):
			}
		}
	}
}

// look applies a change if two consecutive looks have read the same content. It reports whether another look is needed
// to confirm a change.
func (f *File) look(w *fsnotify.Watcher, apply func(*policy.Policy)) bool {
	f.follow(w) // including the files that the last look has found
	if !f.forced && maps.Equal(f.seen, f.done) && !f.changed() {
		return false
	}
	p, read, err := f.read()
	stable := maps.Equal(read, f.seen)
	f.seen = read
	switch {
	case !f.forced && maps.Equal(read, f.done): // the content is the same again
		return false
	case !stable:
		return true
	}
	f.forced, f.done = false, read
	if err != nil {
		f.refuse(err)
		return false
	}
	apply(p)
	f.log().Info("policy loaded", "file", f.Path)
	return false
}

// follow watches the directories of the files and of the targets of their links, which may have changed. It watches
// directories, because a watch on a file stays with that file when another file takes its name.
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
			_ = w.Remove(old) // fails if the directory no longer exists
		}
	}
	for _, dir := range dirs {
		if err := w.Add(dir); err != nil {
			f.log().Debug("directory cannot be watched", "directory", dir, "error", err)
		}
	}
}

func (f *File) log() *slog.Logger { return cmp.Or(f.Logger, slog.Default()) }

// refuse logs why a policy is rejected.
func (f *File) refuse(err error) {
	if f.Refused != nil {
		f.Refused(err)
	}
	log := f.log()
	problems, ok := errors.AsType[policy.Errors](err)
	if !ok {
		log.Error("cannot read the policy, the old one stays in force", "error", err)
		return
	}
	for _, p := range problems[:min(len(problems), maxLogged)] {
		log.Error("invalid policy, the old one stays in force", "problem", p.String())
	}
	if more := len(problems) - maxLogged; more > 0 {
		log.Error("invalid policy, the old one stays in force", "more_problems", more)
	}
}
