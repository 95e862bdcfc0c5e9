package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/rueidis"
)

// needed tries the commands of take.lua. A server checks the permission for a command of a script only when the
// script runs the command. So without this test, the first decision that needs the command would fail. The key of
// the test exists for at most a second.
const needed = `
try('TIME')
try('SET', key, '0', 'PX', '1000')
try('GET', key)
try('MGET', key)
try('INCRBY', key, '0')
try('STRLEN', key)
try('GETRANGE', key, '0', '0')
try('SETRANGE', key, '0', '')
try('APPEND', key, '')
try('PEXPIREAT', key, '1')
try('DEL', key)
try('ZADD', key, 'XX', '0', 'x')
try('ZCARD', key)
try('ZCOUNT', key, '0', '0')
try('ZSCORE', key, 'x')
try('ZRANGEBYSCORE', key, '0', '0')
try('ZREM', key, 'x')
try('ZREMRANGEBYSCORE', key, '0', '0')
`

// useful tries the other commands, which the heartbeat, posts and resets need.
const useful = `
try('PEXPIRE', key, '1')
try('HSET', key, 'x', '0')
try('HDEL', key, 'x')
try('HGET', key, 'x')
try('HSTRLEN', key, 'x')
try('ZRANGE', key, '0', '0')
try('PUBLISH', ARGV[2], '')
`

// trial returns a script that reports the names of failed commands, with the reasons. Its key is not declared, so
// each node of a cluster runs the script, regardless of the key's slot: permissions are checked before slots.
func trial(commands string) string {
	return `
local key, failed = ARGV[1], {}
local function try(name, ...)
	local answer = redis.pcall(name, ...)
	if type(answer) == 'table' and answer.err then
		failed[#failed + 1] = name
		failed[#failed + 1] = answer.err
	end
end
` + commands + `return failed`
}

// lacking reads the reply of a trial, and returns the missing permissions in the form of ACL SETUSER.
func (c Config) lacking(m rueidis.RedisMessage) (rights []string) {
	failed, _ := m.AsStrSlice()
	for pair := range slices.Chunk(failed, 2) {
		if len(pair) < 2 || !deniedInScript(pair[1]) {
			continue
		}
		right := "+" + strings.ToLower(pair[0])
		switch {
		case strings.Contains(pair[1], " key"):
			right = "~" + c.prefix() + "*"
		case strings.Contains(pair[1], " channel"):
			right = "&" + c.resetChannel()
		}
		if !slices.Contains(rights, right) {
			rights = append(rights, right)
		}
	}
	return rights
}

// deniedInScript reports whether the text of an error means that the user lacks the permission for a command in a
// script. The texts of servers differ.
func deniedInScript(text string) bool {
	return strings.Contains(text, "The user executing the script can't") || strings.Contains(text, "ACL failure in script") || strings.HasPrefix(text, "NOPERM")
}

// prepare loads the script into a node, and tries the commands of the script.
func (c Config) prepare(ctx context.Context, address string, node rueidis.Client) error {
	arbitrary := func(words ...string) rueidis.Completed { return node.B().Arbitrary(words...).Build() }
	tries := trial(needed)
	sum := sha1.Sum([]byte(tries))
	results := node.DoMulti(ctx,
		arbitrary("SCRIPT", "LOAD", script),
		arbitrary("SCRIPT", "LOAD", tries),
		arbitrary("EVALSHA", hex.EncodeToString(sum[:]), "0", c.trialKey()),
		arbitrary("EVAL", "return 1", "0"))
	if err := results[0].Error(); err != nil {
		return err
	}
	for _, r := range results[2:] {
		if err := r.Error(); err != nil && failure(err).Kind == Denied {
			return err
		}
	}
	m, err := results[2].ToMessage()
	if err != nil {
		return nil // the server is busy, or runs only known scripts: if a permission is missing, decisions fail
	}
	if rights := c.lacking(m); len(rights) > 0 {
		return &Error{Misconfigured, fmt.Errorf("%s: the user lacks permissions within scripts, which every decision needs: ACL SETUSER NAME %s (Config.Username)", address, strings.Join(rights, " "))}
	}
	return nil
}

// missed returns a sentence about the permissions that the user lacks for messages between instances.
func (c Config) missed(ctx context.Context, node rueidis.Client) (problem string, found bool) {
	m, err := node.Do(ctx, node.B().Arbitrary("EVAL", trial(useful), "0", c.trialKey(), c.resetChannel()).Build()).ToMessage()
	if err != nil {
		return "", false
	}
	rights := c.lacking(m)
	return fmt.Sprintf("instances cannot exchange all messages, because the user lacks permissions: ACL SETUSER NAME %s", strings.Join(rights, " ")), len(rights) > 0
}

func (c Config) trialKey() string { return c.prefix() + "rights" }
