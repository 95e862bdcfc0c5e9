package resp

import (
	"errors"
	"time"
)

// login is the identity of a connection.
type login struct {
	permitted bool
	token     string
	verified  time.Time
}

// verifyEvery is the time after which a token is verified again, because it may have been deleted or have expired.
const verifyEvery = time.Second

// verify verifies the token again if the last verification was at least verifyEvery ago.
func (c *conn) verify() {
	if c.server.Authorize == nil || !c.permitted {
		return
	}
	if now := time.Now(); now.Sub(c.verified) >= verifyEvery {
		c.verified, c.permitted = now, c.authorize(c.token) == nil
	}
}

func (c *conn) authorize(token string) error {
	return c.server.Authorize(c.socket.RemoteAddr().String(), token)
}

const wrongPass = "WRONGPASS invalid token"

// auth executes AUTH [user] token. It ignores the name of the user.
func (c *conn) auth(args [][]byte) {
	if c.enter(args[len(args)-1]) {
		c.ok()
	}
}

// enter permits a connection with a valid token. Otherwise it appends an error and returns false.
func (c *conn) enter(token []byte) bool {
	if c.server.Authorize == nil {
		c.fail("ERR this server does not use tokens: --door-tokens is not set")
		return false
	}
	if len(token) == 0 {
		c.fail(wrongPass)
		return false
	}
	if err := c.authorize(string(token)); err != nil {
		var many interface{ RetrySeconds() int }
		if errors.As(err, &many) {
			c.fail("ERR " + err.Error())
		} else {
			c.fail(wrongPass)
		}
		return false
	}
	c.login = login{permitted: true, token: string(token), verified: time.Now()}
	return true
}

// hello executes HELLO [version [AUTH user token] [SETNAME name]].
func (c *conn) hello(args [][]byte) {
	proto, name := c.proto, c.name
	if len(args) > 1 {
		switch string(args[1]) {
		case "2":
			proto = 2
		case "3":
			proto = 3
		default:
			c.fail("NOPROTO unsupported protocol version: use 2 or 3")
			return
		}
	}
	var token []byte
	for at := 2; at < len(args); {
		switch {
		case is(args[at], "AUTH") && at+2 < len(args):
			token = args[at+2]
			at += 3
		case is(args[at], "SETNAME") && at+1 < len(args):
			var ok bool
			if name, ok = clientName(args[at+1]); !ok {
				c.fail(badName)
				return
			}
			at += 2
		default:
			c.fail("ERR syntax error in HELLO option " + quoted(args[at]))
			return
		}
	}
	switch {
	case token != nil && !c.enter(token):
		return
	case !c.permitted:
		c.fail("NOAUTH Authentication required: send HELLO 3 AUTH default TOKEN, or AUTH TOKEN first")
		return
	}
	c.proto, c.name = proto, name
	c.replyHello()
}

func (c *conn) replyHello() {
	c.pairs(7)
	c.textPair("server", "sluice")
	c.textPair("version", speaks)
	c.pair("proto", int64(c.proto))
	c.pair("id", c.id)
	c.textPair("mode", "standalone")
	c.textPair("role", "master")
	c.bulk("modules")
	c.array(0)
}
