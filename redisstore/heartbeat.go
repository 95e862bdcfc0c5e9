package redisstore

import (
	"context"
	"fmt"
)

// heartbeat adds an instance, deletes the instances without a heartbeat for five seconds, and returns the number of
// instances that remain, including this one. It also deletes heartbeats in the future: they were written before the
// clock was set back.
const heartbeat = `
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 5000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], now + 5000, '+inf')
redis.call('PEXPIRE', KEYS[1], 10000)
return redis.call('ZCARD', KEYS[1])
`

// Heartbeat records that the instance with the given id is alive. It returns the number of instances, with the same
// prefix, that were alive in the last five seconds.
func (s *Store) Heartbeat(ctx context.Context, id string) (instances int, err error) {
	m, err := s.eval(ctx, heartbeat, []string{s.names.prefix + "instances"}, id)
	if err != nil {
		return 0, err
	}
	n, err := m.AsInt64()
	if err != nil || n < 1 {
		return 0, &Error{BadReply, fmt.Errorf("%d instances", n)}
	}
	return int(n), nil
}
