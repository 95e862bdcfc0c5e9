// Package rules puts the policy of a gateway into force. It reads a file, a database or both, follows changes, and
// logs the policies that it applies or refuses. Package server imports it. Package source, which it imports, merges
// file and database.
package rules

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

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/server/tokens"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile/follow"
	"github.com/sluicehq/sluice/stores"
	"github.com/sluicehq/sluice/telemetry"
)

const (
	// startTimeout bounds the wait for the database at the start.
	startTimeout = 30 * time.Second
	// migratePause is the time between two attempts to create the database's tables.
	migratePause = time.Second
)

// Config configures the rules of a gateway.
type Config struct {
	Settings *Settings
	Log      *slog.Logger
	Origin   func(flag string) string              // returns the source of a flag's value, such as a variable
	Accept   func(*policy.Policy) error            // returns an error if the gateway cannot serve a policy
	Warnings func(*policy.Policy) []policy.Problem // returns the warnings of the gateway's integrations
}

// Rules has the policy in force and its sources.
type Rules struct {
	Config
	stack    *source.Stack
	file     watcher
	db       *source.Database // nil without a database
	envoy    *envoyFiles      // nil without a configuration of envoyproxy/ratelimit
	migrated bool

	// Set by Use.
	engine   *policy.Engine
	store    *stores.Store
	recorder *telemetry.Recorder // nil if telemetry is off

	warned       []string // the last warnings in the log
	reloads      reloads
	looked       chan struct{} // receives a value when the file has been read or, without a file, at a hangup
	shadowLogged atomic.Bool   // the start of the shadow mode was logged
}

// Open reads and compiles the policy.
func Open(ctx context.Context, c Config) (*Rules, error) {
	r := &Rules{Config: c, stack: &source.Stack{}, looked: make(chan struct{}, 1)}
	s := c.Settings
	r.stack.Swap, r.stack.Accept = r.swap, c.Accept
	r.stack.FileTaken = func() {
		r.noteAccepted()
		r.Log.Info("policy loaded: the file is valid with the current rules of the database", "file", s.File)
	}
	if s.Database != "" {
		db, err := source.Open(s.Database, r.Log)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Origin("rules"), err)
		}
		r.db, r.stack.Name, db.Check = db, db.String(), r.stack.Check
	}
	if s.EnvoyConfig != "" {
		if err := r.openEnvoy(s); err != nil {
			return nil, errors.Join(command.Unreadable(r.Origin("envoy-config"), err), r.Close())
		}
	} else if err := r.openFile(s.File); err != nil {
		return nil, errors.Join(command.Unreadable(r.Origin("policy"), err), r.Close())
	}
	if r.db == nil {
		return r, nil
	}
	if err := r.start(ctx); err != nil {
		if s.File == "" && s.EnvoyConfig == "" {
			return nil, errors.Join(fmt.Errorf("%s: %w\nto start nevertheless, also give --policy FILE, which applies until the database can be read", r.Origin("rules"), err), r.Close())
		}
		r.refuse(err)
	}
	if doc, _ := r.stack.Document(); len(doc.Rules) == 0 {
		r.Log.Warn("the policy has no rules: nothing is limited", "database", r.stack.Name)
	}
	return r, nil
}

// openFile reads the policy file, if one is given.
func (r *Rules) openFile(name string) (err error) {
	switch name {
	case "":
		r.file = noFile{r.Log, "changes of the database take effect automatically", r.noteLooked}
		return nil
	case command.ExamplePolicy:
		r.file = noFile{r.Log, "the policy is the built-in one; give --policy FILE", r.noteLooked}
		_, err = command.ParseExample(r.stack.File)
	default:
		file := &follow.File{Path: name, Logger: r.Log, Compile: r.stack.File, Refused: r.refuseFile}
		r.file = file
		_, err = file.Load()
	}
	if err != nil {
		return err
	}
	return r.stack.UseFile()
}

// start reads the database for the first time.
func (r *Rules) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
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

func (r *Rules) migrate(ctx context.Context) error {
	steps, err := r.db.Migrate(ctx)
	if err != nil {
		return err
	}
	r.migrated = true
	if steps > 0 {
		r.Log.Info("database tables are up to date", "database", r.db.String(), "migrations", steps)
	}
	return nil
}

// Stack returns the stack with the policy in force as written in its sources.
func (r *Rules) Stack() *source.Stack { return r.stack }

// Database returns the database, or nil.
func (r *Rules) Database() *source.Database { return r.db }

// Use sets the engine for later policies. The engine already has the first one. recorder, which may be nil, records
// reloads.
func (r *Rules) Use(engine *policy.Engine, store *stores.Store, recorder *telemetry.Recorder) {
	r.engine, r.store, r.recorder = engine, store, recorder
	if r.Settings.Shadow {
		engine.ShadowAll()
		r.shadowLogged.Store(true)
		r.Log.Warn("NOTHING IS DENIED: with --shadow every rule only counts and reports; remove the flag to enforce the policy")
	}
	r.logCluster(engine.Policy())
	r.logShadow()
}

// Close closes the database.
func (r *Rules) Close() error {
	if r.db == nil {
		return nil
	}
	return r.db.Close()
}

// Follow puts changes into force until ctx ends. At a hangup, it reads the file at once.
func (r *Rules) Follow(ctx context.Context, hangups <-chan os.Signal) {
	var following sync.WaitGroup
	defer following.Wait()
	reload := make(chan os.Signal)
	following.Go(func() { r.relay(ctx, hangups, reload) })
	following.Go(func() { r.followShadow(ctx) })
	following.Go(func() { r.awaitStore(ctx) })
	following.Go(func() { r.file.Watch(ctx, reload, func(*policy.Policy) { r.useFile() }) })
	if r.db == nil {
		return
	}
	following.Go(func() { r.migrateLater(ctx) })
	r.db.Watch(ctx, r.apply)
}

// migrateLater creates the tables of a database that was unavailable at the start.
func (r *Rules) migrateLater(ctx context.Context) {
	for !r.migrated && r.migrate(ctx) != nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(migratePause):
		}
	}
}

// useFile puts a changed file into force. If the database was refused together with the old file, useFile tries the
// database again.
func (r *Rules) useFile() {
	defer r.noteLooked()
	file, database := r.stack.Refused()
	if err := r.stack.UseFile(); err != nil {
		r.refuse(err)
		return
	}
	if _, still := r.stack.Refused(); file != nil || database != nil && still == nil {
		r.noteAccepted()
	}
	if r.db != nil && database != nil {
		if c := r.db.Known(); c != nil {
			r.apply(c)
		}
	}
}

// apply puts the contents of the database into force.
func (r *Rules) apply(c *source.Contents) {
	_, was := r.stack.Refused()
	if err := r.stack.Contents(c); err != nil {
		r.refuse(err)
		return
	}
	if was != nil {
		r.noteAccepted()
	}
	r.Log.Info("rules of the database are in force", "version", c.Version)
}

// refuse logs the reason why the database is not in force.
func (r *Rules) refuse(err error) {
	if len(problems(err)) > 0 { // update the metric before logging
		r.noteRefused(err)
		r.reloads.refused.Add(1)
	}
	logRefused(r.Log, "cannot read the rules of the database, the policy file stays in force", "invalid rules in the database, the old policy stays in force", err)
}

// swap puts a policy into force. The stack never calls it concurrently.
func (r *Rules) swap(p *policy.Policy) {
	r.warn(p)
	r.reloads.taken.Add(1)
	r.reloads.last.Store(time.Now().UnixMilli())
	if r.engine == nil { // at the start
		return
	}
	old := r.engine.Policy()
	r.engine.Swap(p)
	r.noteSwap(old, p)
	r.logShadow()
	logRestarts(r.Log, p.Restarts(old))
	r.logCluster(p)
	r.logEvictable(p)
}

// warn logs the warnings about a policy that the previous policy did not have.
func (r *Rules) warn(p *policy.Policy) {
	all := command.WarningLines(slices.Concat(p.Warnings(), r.Warnings(p)))
	for _, text := range all {
		if !slices.Contains(r.warned, text) {
			r.Log.Warn("policy warning", "problem", text)
		}
	}
	r.warned = all
}

// Tokens returns the tokens of a file and of the database. Until the database has been read, only those of the file
// are valid.
func (r *Rules) Tokens(file *tokens.File) ([]source.TokenRow, error) {
	all, err := file.Read()
	if err != nil {
		return nil, err
	}
	more, err := r.db.Tokens()
	if err != nil && len(all) > 0 {
		return all, nil
	}
	return append(slices.Clip(all), more...), err
}

// watcher follows a file.
type watcher interface {
	Watch(ctx context.Context, reload <-chan os.Signal, apply func(*policy.Policy))
}

// noFile is the watcher if the policy is not in a file.
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
			n.log.Warn("nothing to reload: " + n.why)
			n.looked()
		}
	}
}
