package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

const (
	// maxPosts is the number of posts that a part keeps, one for each instance. A new post replaces the one that
	// expires first.
	maxPosts = 256
	// maxPosted bounds the bytes of a post, and maxPostedAll the bytes that Posted reads.
	maxPosted    = 1 << 20
	maxPostedAll = 32 << 20
	maxInstance  = 256 // bytes of the name of an instance
	maxSealed    = maxPosted + codecOverhead
)

// post stores a message in a hash. Not all servers support the expiry of single fields, so a second key has the
// times when posts expire. A post that would expire much later than the new one is deleted: it was probably written
// before the server's clock was set back.
var post = fmt.Sprintf(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function forget(list)
	for _, id in ipairs(list) do
		redis.call('HDEL', KEYS[1], id)
		redis.call('ZREM', KEYS[2], id)
	end
end
forget(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now))
forget(redis.call('ZRANGEBYSCORE', KEYS[2], now + 2 * ARGV[3], '+inf'))
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], now + ARGV[3], ARGV[1])
local over = redis.call('ZCARD', KEYS[2]) - %d
if over > 0 then
	forget(redis.call('ZRANGE', KEYS[2], 0, over - 1))
end
local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
redis.call('PEXPIREAT', KEYS[1], last[2])
redis.call('PEXPIREAT', KEYS[2], last[2])
`, maxPosts)

// postedScript returns the names of instances and their posts, in the same order. After a MiB of posts, it returns
// only the names of the remaining instances. Without arguments, it chooses the names with the posts that expire
// last. It does not load values that are longer than a post, because any client may have written them.
var postedScript = fmt.Sprintf(`
local names = ARGV
if #names == 0 then
	names = {}
	local found = redis.call('ZRANGE', KEYS[2], -%d, -1)
	for i = #found, 1, -1 do
		if #found[i] <= %d then
			names[#names + 1] = found[i]
		end
	end
end
local texts, size = {}, 0
for i, name in ipairs(names) do
	if size >= %d then
		break
	end
	local length = redis.call('HSTRLEN', KEYS[1], name)
	texts[i] = length <= %d and redis.call('HGET', KEYS[1], name)
	size = size + #(texts[i] or '')
end
return {names, texts}
`, maxPosts, maxInstance, maxPosted, maxSealed)

// Post stores a message for the other instances that share the store. It replaces the previous message of the instance,
// and is kept for the given time. A part is a separate board of messages. It takes two keys in Redis:
// PREFIX{posts:PART} and PREFIX{posts:PART}:until. With a HashKey, messages are encrypted, but not the names of
// instances. The name of an instance has at most 256 bytes, and a message at most 1 MiB. A part has room for 256
// instances. All posts of a part should expire after about the same time. Post deletes a message that would stay at
// least twice as long as the new one: such a message was probably written before the server's clock was set back.
func (s *Store) Post(ctx context.Context, part, instance string, message []byte, expires time.Duration) error {
	if len(message) > maxPosted {
		return fmt.Errorf("redisstore: a message of %d bytes cannot be posted: the maximum is %d", len(message), maxPosted)
	}
	if len(instance) > maxInstance {
		return fmt.Errorf("redisstore: the name of the instance has %d bytes, the maximum is %d", len(instance), maxInstance)
	}
	key := s.postKey(part)
	text := s.posts.seal(message, postContext(part, instance))
	_, err := s.eval(ctx, post, []string{key, key + ":until"}, instance, text, fmt.Sprint(expires.Milliseconds()))
	if rueidis.IsRedisNil(err) { // the script's reply is nil
		return nil
	}
	return err
}

// Posted returns the messages of a part, by instance. It ignores messages that are not encrypted with this HashKey.
// It reads at most about 32 MiB, starting with the messages that expire last.
func (s *Store) Posted(ctx context.Context, part string) (map[string][]byte, error) {
	key := s.postKey(part)
	all := map[string][]byte{}
	for names, size := []string(nil), 0; size < maxPostedAll; {
		m, err := s.eval(ctx, postedScript, []string{key, key + ":until"}, names...)
		if err != nil {
			return nil, err
		}
		var texts []rueidis.RedisMessage
		if names, texts, err = readPosted(m, names); err != nil {
			return nil, err
		}
		for i, m := range texts {
			text, err := m.ToString()
			if err != nil {
				continue // the post has expired in the meantime, or is too long
			}
			size += len(text)
			if message, ok := s.posts.open(text, postContext(part, names[i])); ok {
				all[names[i]] = message
			}
		}
		if names = names[len(texts):]; len(names) == 0 {
			break
		}
	}
	return all, nil
}

// readPosted reads the reply of postedScript: names, and the posts of the first of them. requested has the names in the
// arguments of the script, or is nil if the script chose them.
func readPosted(m rueidis.RedisMessage, requested []string) (names []string, texts []rueidis.RedisMessage, err error) {
	bad := &Error{BadReply, errors.New("the answer has no posts")}
	lists, err := m.ToArray()
	if err != nil || len(lists) != 2 {
		return nil, nil, bad
	}
	names, err1 := lists[0].AsStrSlice()
	texts, err2 := lists[1].ToArray()
	if err1 != nil || err2 != nil || len(texts) > len(names) || len(texts) == 0 && len(names) > 0 || requested != nil && !slices.Equal(names, requested) {
		return nil, nil, bad
	}
	return names, texts, nil
}

func (s *Store) postKey(part string) string { return s.names.prefix + "{posts:" + part + "}" }

// eval runs a script other than the script of Take. It returns as soon as its context ends.
func (s *Store) eval(ctx context.Context, script string, keys []string, args ...string) (rueidis.RedisMessage, error) {
	type answer struct {
		message rueidis.RedisMessage
		err     error
	}
	if !s.track() {
		return rueidis.RedisMessage{}, errClosed
	}
	done := make(chan answer, 1)
	go func() {
		defer s.running.Done()
		var a answer
		for range maxStale {
			b := s.client.B().Arbitrary("EVAL", script, strconv.Itoa(len(keys))).Keys(keys...).Args(args...)
			if a.message, a.err = s.client.Do(ctx, b.Build()).ToMessage(); !errors.Is(a.err, errStale) {
				break
			}
		}
		done <- a
	}()
	select {
	case a := <-done:
		if a.err != nil && !rueidis.IsRedisNil(a.err) {
			a.err = failure(a.err)
		}
		return a.message, a.err
	case <-ctx.Done():
		return rueidis.RedisMessage{}, failure(ctx.Err())
	}
}

// postContext is the context of the encryption. It prevents clients from presenting the post of one instance or
// part as the post of another.
func postContext(part, instance string) string { return part + "\x00" + instance }
