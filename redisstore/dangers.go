package redisstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/rueidis"
)

// Dangers returns a sentence for each setting of a master that endangers limits, with the change to make. It also
// reports missing permissions that instances need to reach each other, for example the permission to subscribe. It
// ignores settings that a server hides. Dangers fails if no server answers.
func (s *Store) Dangers(ctx context.Context) ([]string, error) {
	var all []string
	var failed error
	answered := false
	for address, node := range s.client.Nodes() {
		info, err := node.Do(ctx, node.B().Arbitrary("INFO").Build()).ToString()
		if err != nil {
			failed = failure(err)
			continue
		}
		answered = true
		for _, d := range dangers(parseInfo(info), setting(ctx, node, "save")) {
			all = append(all, address+": "+d)
		}
		if d, found := (Config{Prefix: s.names.prefix}).missed(ctx, node); found {
			all = append(all, address+": "+d)
		}
	}
	if !answered {
		return nil, failed
	}
	if d, found := s.resets.danger(ctx); found {
		all = append(all, d)
	}
	return all, nil
}

// setting returns the value of a server's setting, or "unknown".
func setting(ctx context.Context, node rueidis.Client, name string) string {
	m, err := node.Do(ctx, node.B().Arbitrary("CONFIG", "GET", name).Build()).AsStrMap()
	if value, found := m[name]; err == nil && found {
		return value
	}
	return "unknown"
}

func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			info[name] = value
		}
	}
	return info
}

// dangers returns the dangers in the output of INFO and in the setting save. Missing values are ignored.
func dangers(info map[string]string, save string) (found []string) {
	if info["role"] == "slave" {
		return nil // its master has the same settings
	}
	switch policy := info["maxmemory_policy"]; {
	case policy == "" || policy == "noeviction":
	case policy == "volatile-ttl": // safe for some rules: see EvictsByExpiry
	case info["maxmemory"] != "0":
		found = append(found, fmt.Sprintf("maxmemory-policy is %s: when memory is full, a flood of new keys evicts the counters of clients that have used up their limits; set it to noeviction", policy))
	}
	if info["aof_enabled"] == "0" && save == "" {
		found = append(found, "nothing is saved to disk: a restart resets all counters; set appendonly yes if that matters")
	}
	if version := info["redis_version"]; tooOld(version) {
		found = append(found, fmt.Sprintf("version %s is older than 6.2, the oldest that is supported", version))
	}
	return found
}

func tooOld(version string) bool {
	var major, minor int
	n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor)
	return n == 2 && (major < 6 || major == 6 && minor < 2)
}
