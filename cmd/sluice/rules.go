package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/examples"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
	"github.com/sluicehq/sluice/policyfile/follow"
	"github.com/sluicehq/sluice/stores"
)

const (
	// startPatience is how long a start waits for the database.
	startPatience = 30 * time.Second
	// migratePause is between attempts to make its tables.
	migratePause = time.Second
)

// rules are what the policy is made of: a file, a database, or both.
type rules struct {
	log   *slog.Logger
	stack *source.Stack
	file  watcher
	db    *source.Database // nil: there is none
	envoy *envoyFiles      // nil: the file is a policy
	ready bool             // the tables of the database are there

	engine *policy.Engine // set by serve
	store  *stores.Store

	recorded recorded // likewise: what is seen of decisions

	silent  func(*policy.Policy) []policy.Problem // what the doors warn of
	warned  []string                              // the warnings that were logged last
	reloads reloads
	looked  chan struct{} // gets one when the file has been taken, refused, or is none
	staying atomic.Bool   // the database is refused, and an older policy stays
	watches atomic.Bool   // it was told that the whole policy is a shadow
}

// openRules reads the policy of a start.
func (s *serveSettings) openRules(ctx context.Context, log *slog.Logger) (*rules, error) {
	r := &rules{log: log, stack: &source.Stack{}, looked: make(chan struct{}, 1)}
	r.stack.Swap, r.stack.Accept = r.swap, s.accept
	r.stack.FileTaken = func() {
		r.fileHolds()
		log.Info("policy loaded: with what the database says now, the file that was refused makes a policy", "file", s.policy)
	}
	r.silent = s.doors.unheard
	if s.rules != "" {
		db, err := source.Open(s.rules, log)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.origin("rules"), err)
		}
		r.db, r.stack.Name, db.Check = db, db.String(), r.stack.Check
	}
	if s.envoy.dir != "" {
		if err := r.openEnvoy(&s.envoy); err != nil {
			return nil, errors.Join(unreadable(s.origin("envoy-config"), err), r.close())
		}
	} else if err := r.openFile(s.policy); err != nil {
		return nil, errors.Join(unreadable(s.origin("policy"), err), r.close())
	}
	if r.db == nil {
		return r, nil
	}
	if err := r.begin(ctx); err != nil {
		if s.policy == "" && s.envoy.dir == "" {
			return nil, errors.Join(fmt.Errorf("%s: %w\ngive --policy FILE, too, for what holds until the database has a policy", s.origin("rules"), err), r.close())
		}
		r.refuse(err)
	}
	if doc, _ := r.stack.Document(); len(doc.Rules) == 0 {
		log.Warn("there are no rules: nothing is limited", "database", r.stack.Name)
	}
	return r, nil
}

// openFile reads the file, if there is one, and puts it into force.
func (r *rules) openFile(name string) (err error) {
	switch name {
	case "":
		r.file = noFile{r.log, "the policy is that of the database, which is followed", r.noteLooked}
		return nil
	case examplePolicy:
		r.file = noFile{r.log, "the policy is the built-in one; give --policy FILE", r.noteLooked}
		_, err = policyfile.ParseTo("examples/api.yaml", examples.API, nil, r.stack.File)
	default:
		file := &follow.File{Path: name, Logger: r.log, Compile: r.stack.File, Refused: r.refuseFile}
		r.file = file
		_, err = file.Load()
	}
	if err != nil {
		return err
	}
	return r.stack.UseFile()
}

// begin puts what the database says into force.
func (r *rules) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if err := r.migrate(ctx); err != nil {
		return err
	}
	c, err := r.db.Read(ctx)
	if err != nil {
		return err
	}
	return r.stack.Contents(c)
}

func (r *rules) migrate(ctx context.Context) error {
	steps, err := r.db.Migrate(ctx)
	if err != nil {
		return err
	}
	r.ready = true
	if steps > 0 {
		r.log.Info("the tables of the database are up to date", "database", r.db.String(), "migrations", steps)
	}
	return nil
}

func (r *rules) close() error {
	if r.db == nil {
		return nil
	}
	return r.db.Close()
}

// follow puts what changes into force, until ctx ends.
func (r *rules) follow(ctx context.Context, reload <-chan os.Signal) {
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { r.followShadow(ctx) })
	following.Go(func() { r.file.Watch(ctx, reload, func(*policy.Policy) { r.useFile() }) })
	if r.db == nil {
		return
	}
	following.Go(func() { r.migrateLate(ctx) })
	r.db.Watch(ctx, r.apply)
}

// migrateLate makes the tables of a database that was away at the start.
func (r *rules) migrateLate(ctx context.Context) {
	for !r.ready && r.migrate(ctx) != nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(migratePause):
		}
	}
}

// useFile puts a file that has changed into force, and what the database says if that did not make
// a policy with the old one.
func (r *rules) useFile() {
	defer r.noteLooked()
	if err := r.stack.UseFile(); err != nil {
		r.refuse(err)
		return
	}
	r.fileHolds()
	if r.db != nil && r.staying.Load() {
		if c := r.db.Known(); c != nil {
			r.apply(c)
		}
	}
}

// apply puts what the database says into force.
func (r *rules) apply(c *source.Contents) {
	if err := r.stack.Contents(c); err != nil {
		r.refuse(err)
		return
	}
	if r.staying.Swap(false) {
		r.noteHeld()
	}
	r.log.Info("rules of the database are in force", "version", c.Version)
}

// refuse says why what the database says is not in force.
func (r *rules) refuse(err error) {
	if len(problems(err)) > 0 { // before the log: who reads it there finds the metric says so, too
		r.noteRefused(err)
		r.reloads.refused.Add(1)
		r.staying.Store(true)
	}
	logRefused(r.log, "rules of the database cannot be read, the file's hold", "rules of the database refused, the policy stays", err)
}

// swap puts a policy into force. The stack calls it, and never two at once.
func (r *rules) swap(p *policy.Policy) {
	r.warn(p)
	r.reloads.took(time.Now())
	if r.engine == nil { // it begins with it
		return
	}
	old := r.engine.Policy()
	r.engine.Swap(p)
	r.recorded.swapped(old, p)
	r.tellShadow()
	logRestarts(r.log, p.Restarts(old))
	logCrossSlot(r.log, r.store, p)
	logEvicted(r.log, r.store, p)
}

// followShadow tells it within a second when a shadow of the whole policy ends by itself, which nobody
// swaps a policy for.
func (r *rules) followShadow(ctx context.Context) {
	each := time.NewTicker(time.Second)
	defer each.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-each.C:
			r.tellShadow()
		}
	}
}

// tellShadow tells that the whole policy has become a shadow, or is none any more, once.
func (r *rules) tellShadow() {
	now := r.engine.Policy()
	if r.watches.Swap(now.WatchOnly()) == now.WatchOnly() {
		return
	}
	if !now.WatchOnly() {
		r.log.Info("the policy is enforced again: it was a shadow")
		r.recorded.note("reload", "the policy is enforced again: it was a shadow")
		return
	}
	until := "that is taken away"
	if ends, _ := now.ShadowUntil(); !ends.IsZero() {
		until = ends.Format(time.RFC3339)
	}
	r.log.Warn("NOTHING IS REFUSED: the policy says that all of it is a shadow; every rule only counts and reports", "until", until)
	r.recorded.note("reload", "nothing is refused any more: the whole policy is a shadow until "+until)
}

// warn logs the warnings that were not there before.
func (r *rules) warn(p *policy.Policy) {
	all := warningLines(slices.Concat(p.Warnings(), r.silent(p)))
	for _, text := range all {
		if !slices.Contains(r.warned, text) {
			r.log.Warn("policy looks wrong", "problem", text)
		}
	}
	r.warned = all
}

// tokens returns those of the file and of the database. While the database has not been read, those
// of the file hold.
func (r *rules) tokens(file *tokenFile) func() ([]control.Token, error) {
	return func() ([]control.Token, error) {
		all, err := file.read()
		if err != nil {
			return nil, err
		}
		more, err := control.Tokens(r.db)
		if err != nil && len(all) > 0 {
			return all, nil
		}
		return append(slices.Clip(all), more...), err
	}
}

type watcher interface {
	Watch(ctx context.Context, reload <-chan os.Signal, apply func(*policy.Policy))
}

// noFile is in place of a file that could change.
type noFile struct {
	log    *slog.Logger
	why    string
	looked func()
}

func (n noFile) Watch(ctx context.Context, reload <-chan os.Signal, _ func(*policy.Policy)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-reload:
			n.log.Warn("nothing to load again: " + n.why)
			n.looked()
		}
	}
}
