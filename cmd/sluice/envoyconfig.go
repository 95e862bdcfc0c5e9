package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/door/rls"
	"github.com/sluicehq/sluice/policy"
)

// envoySettings are those of Envoy's rate limit service.
type envoySettings struct {
	dir          string
	algorithm    algorithm
	countRefused bool
	answers      bool
	metadata     bool

	limits *envoyFiles // set by serve
}

func (e *envoySettings) flags(f *pflag.FlagSet) {
	f.StringVar(&e.dir, "envoy-config", "", "`directory` with a configuration of envoyproxy/ratelimit, in place of --policy")
	e.algorithmFlag(f)
	f.BoolVar(&e.countRefused, "envoy-count-refused", false, "count as envoyproxy/ratelimit does: each descriptor by itself, and one that is refused uses up what is left")
	f.BoolVar(&e.answers, "envoy-answers", false, "have Envoy add the fields and the body with which the gateway would answer")
	f.BoolVar(&e.metadata, "envoy-metadata", false, "return the request to Envoy as dynamic metadata, with the metadata of the limits that it passed")
}

func (e *envoySettings) algorithmFlag(f *pflag.FlagSet) {
	e.algorithm = algorithm(sluice.SlidingWindowCounter)
	f.Var(&e.algorithm, "envoy-algorithm", "how to count the limits of a configuration of envoyproxy/ratelimit, and those that Envoy brings, unless they say it themselves:\nfixed_window is that project's way, which lets twice the limit pass at the edge of two windows")
}

func (e *envoySettings) check(at address) error {
	if e.dir != "" && at == "" {
		return errors.New("--envoy-config: nobody could ask for these limits: give --grpc, the address of the rate limit service")
	}
	return nil
}

// algorithm is a flag that names one.
type algorithm sluice.Algorithm

func (a *algorithm) String() string { return sluice.Algorithm(*a).String() }
func (a *algorithm) Type() string   { return "algorithm" }

func (a *algorithm) Set(s string) error {
	v, err := sluice.ParseAlgorithm(s)
	*a = algorithm(v)
	return err
}

// envoyPoll is how often the files are looked at: they have no name of their own to wait for.
const envoyPoll = time.Second

// envoyFiles are the files of a configuration of envoyproxy/ratelimit, which is followed.
type envoyFiles struct {
	dir       string
	algorithm sluice.Algorithm
	log       *slog.Logger
	compile   func(policy.Document, func(string) (string, int)) (*policy.Policy, error)
	inForce   func() *policy.Document
	refused   func(error) // is told what was

	limits atomic.Pointer[rls.Limits]
	done   [sha256.Size]byte // of what was applied or refused last
}

// now returns the limits in force; nil if there is no such configuration.
func (e *envoyFiles) now() *rls.Limits {
	if e == nil {
		return nil
	}
	return e.limits.Load()
}

// openEnvoy reads the configuration of a start, and puts it into force.
func (r *rules) openEnvoy(s *envoySettings) error {
	e := &envoyFiles{dir: s.dir, algorithm: sluice.Algorithm(s.algorithm), log: r.log, compile: r.stack.File, inForce: r.stack.FileDocument, refused: r.refuseFile}
	files, err := rls.ReadDir(s.dir)
	if err != nil {
		return err
	}
	e.done = sumOf(files)
	limits, _, err := e.read(files)
	if err != nil {
		return err
	}
	if err := r.stack.UseFile(); err != nil {
		return err
	}
	e.limits.Store(limits)
	r.file, r.envoy = e, e
	return nil
}

func (e *envoyFiles) read(files []rls.File) (*rls.Limits, *policy.Policy, error) {
	limits, err := rls.Read(files, e.algorithm)
	if err != nil {
		return nil, nil, err
	}
	p, err := e.compile(limits.Document, limits.Where)
	return limits, p, err
}

func sumOf(files []rls.File) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%q %d ", f.Name, len(f.Data))
		_, _ = h.Write(f.Data) // it never fails
	}
	h.Sum(sum[:0])
	return sum
}

// Watch puts the configuration into force again whenever it changes. As with a policy, what is
// applied has been read twice with the same content, and what is wrong changes nothing.
func (e *envoyFiles) Watch(ctx context.Context, reload <-chan os.Signal, apply func(*policy.Policy)) {
	tick := time.NewTicker(envoyPoll)
	defer tick.Stop()
	var seen [sha256.Size]byte
	for {
		forced := false
		select {
		case <-ctx.Done():
			return
		case <-reload:
			forced = true
		case <-tick.C:
		}
		files, err := rls.ReadDir(e.dir)
		sum := sumOf(files)
		if err != nil {
			sum = sha256.Sum256([]byte(err.Error()))
		}
		if stable := sum == seen; forced || stable && sum != e.done {
			e.done = sum
			e.apply(files, err, apply)
		}
		seen = sum
	}
}

func (e *envoyFiles) apply(files []rls.File, err error, apply func(*policy.Policy)) {
	var limits *rls.Limits
	var p *policy.Policy
	if err == nil {
		limits, p, err = e.read(files)
	}
	if err != nil {
		e.refused(err)
		logRefused(e.log, "configuration cannot be read, the old one stays", "configuration refused, the old one stays", err)
		return
	}
	// The policy first: a limit that is in both is in force all the time.
	if apply(p); limits.Made(e.inForce()) {
		e.limits.Store(limits)
		e.log.Info("configuration loaded", "directory", e.dir)
	}
}
