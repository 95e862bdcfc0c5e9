package redisstore

import (
	"context"
	"fmt"
)

// heartbeat notes an instance, forgets those not heard of for five seconds, and returns
// how many are left. Those of the future are of a clock that has stepped back.
const heartbeat = `
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 5000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], now + 5000, '+inf')
redis.call('PEXPIRE', KEYS[1], 10000)
return redis.call('ZCARD', KEYS[1])
`

// Heartbeat notes that the instance of that id is alive, and returns how many instances with the
// same prefix were alive in the last five seconds.
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
