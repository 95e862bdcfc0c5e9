package rules

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/door/rls"
	"github.com/sluicehq/sluice/policy"
)

// envoyPoll is the interval at which the directory is read. The files have no fixed names, so a watcher could not
// follow them.
const envoyPoll = time.Second

// envoyFiles follows a configuration of envoyproxy/ratelimit.
type envoyFiles struct {
	dir       string
	algorithm sluice.Algorithm
	rules     *Rules

	limits atomic.Pointer[rls.Limits]
	done   [sha256.Size]byte // the hash of the files that were last applied or refused
}

// EnvoyLimits returns the limits of the configuration of envoyproxy/ratelimit, or nil without such a configuration.
func (r *Rules) EnvoyLimits() *rls.Limits {
	if r.envoy == nil {
		return nil
	}
	return r.envoy.limits.Load()
}

// openEnvoy reads the configuration and puts it into force.
func (r *Rules) openEnvoy(s *Settings) error {
	e := &envoyFiles{dir: s.EnvoyConfig, algorithm: sluice.Algorithm(s.EnvoyAlgorithm), rules: r}
	files, err := rls.ReadDir(e.dir)
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
	p, err := e.rules.stack.File(limits.Document, limits.Where)
	return limits, p, err
}

func sumOf(files []rls.File) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%q %d ", f.Name, len(f.Data))
		_, _ = h.Write(f.Data) // writing to a hash never fails
	}
	h.Sum(sum[:0])
	return sum
}

// Watch puts a changed configuration into force after two readings with the same content, or at once after a signal
// to reload. An invalid configuration has no effect.
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
		e.rules.refuseFile(err)
		logRefused(e.rules.Log, "cannot read the configuration, the old one stays in force", "invalid configuration, the old one stays in force", err)
		return
	}
	// Apply the policy before the limits, so that a limit in both the old and the new configuration stays in force
	// throughout.
	if apply(p); limits.Made(e.rules.stack.FileDocument()) {
		e.limits.Store(limits)
		e.rules.Log.Info("configuration loaded", "directory", e.dir)
	}
}
