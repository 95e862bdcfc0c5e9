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

	"github.com/sluicehq/sluice/examples"
	"github.com/sluicehq/sluice/internal/adminapi"
	"github.com/sluicehq/sluice/internal/source"
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
	// maxRefused bounds the problems of a database that are logged.
	maxRefused = 20
)

// rules are what the policy is made of: a file, a database, or both.
type rules struct {
	log   *slog.Logger
	stack *source.Stack
	file  watcher
	db    *source.Database // nil: there is none
	admin *adminRules
	ready bool // the tables of the database are there

	engine *policy.Engine // set by serve
	store  *stores.Store

	warned  []string      // the warnings that were logged last
	refused atomic.Uint64 // how often the database was
	staying atomic.Bool   // it is, and an older policy stays
}

// openRules reads the policy of a start.
func (s *serveSettings) openRules(ctx context.Context, log *slog.Logger) (*rules, error) {
	r := &rules{log: log, stack: &source.Stack{}}
	r.stack.Swap = r.swap
	r.stack.FileTaken = func() {
		log.Info("policy loaded: with what the database says now, the file that was refused makes a policy", "file", s.policy)
	}
	r.admin = &adminRules{stack: r.stack}
	if s.rules != "" {
		db, err := source.Open(s.rules, log)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.origin("rules"), err)
		}
		r.db, r.admin.db, r.stack.Name, db.Check = db, db, db.String(), r.stack.Check
	}
	if err := r.openFile(s.policy); err != nil {
		return nil, errors.Join(unreadable(s.origin("policy"), err), r.close())
	}
	if r.db == nil {
		return r, nil
	}
	if err := r.begin(ctx); err != nil {
		if s.policy == "" {
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
		r.file = noFile{r.log, "the policy is that of the database, which is followed"}
		return nil
	case examplePolicy:
		r.file = noFile{r.log, "the policy is the built-in one; give --policy FILE"}
		_, err = policyfile.ParseTo("examples/api.yaml", examples.API, nil, r.stack.File)
	default:
		file := &follow.File{Path: name, Logger: r.log, Compile: r.stack.File}
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
	if err := r.stack.UseFile(); err != nil {
		r.refuse(err)
		return
	}
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
	r.staying.Store(false)
	r.log.Info("rules of the database are in force", "version", c.Version)
}

// refuse says why what the database says is not in force.
func (r *rules) refuse(err error) {
	problems, _ := errors.AsType[policy.Errors](err)
	if len(problems) == 0 { // it is away
		r.log.Error("rules of the database cannot be read, the file's hold", "error", err)
		return
	}
	r.refused.Add(1)
	r.staying.Store(true)
	for _, p := range problems[:min(len(problems), maxRefused)] {
		r.log.Error("rules of the database refused, the policy stays", "problem", p.String())
	}
	if more := len(problems) - maxRefused; more > 0 {
		r.log.Error("rules of the database refused, the policy stays", "more_problems", more)
	}
}

// swap puts a policy into force. The stack calls it, and never two at once.
func (r *rules) swap(p *policy.Policy) {
	r.warn(p)
	if r.engine == nil { // it begins with it
		return
	}
	old := r.engine.Policy()
	r.engine.Swap(p)
	logAnew(r.log, p.Anew(old))
	logCrossSlot(r.log, r.store, p)
}

// warn logs the warnings that were not there before.
func (r *rules) warn(p *policy.Policy) {
	var all []string
	for _, w := range p.Warnings() {
		text := w.String()
		if all = append(all, text); !slices.Contains(r.warned, text) {
			r.log.Warn("policy looks wrong", "problem", text)
		}
	}
	r.warned = all
}

// tokens returns those of the file and of the database. While the database has not been read, those
// of the file hold.
func (r *rules) tokens(file *tokenFile) func() ([]adminapi.Token, error) {
	return func() ([]adminapi.Token, error) {
		all, err := file.read()
		if err != nil {
			return nil, err
		}
		more, err := r.admin.tokens()
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
	log *slog.Logger
	why string
}

func (n noFile) Watch(ctx context.Context, reload <-chan os.Signal, _ func(*policy.Policy)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-reload:
			n.log.Warn("nothing to load again: " + n.why)
		}
	}
}
