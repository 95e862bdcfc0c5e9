package resp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/policy"
)

// command describes a known command.
type command struct {
	run         func(c *conn, args [][]byte)
	least, most int  // the bounds of the number of arguments, including the name; an upper bound of 0 means none
	open        bool // the command is permitted without a token
	asks        bool // the command needs a decision, and is answered with its batch; otherwise it is answered immediately
	key         int  // the index of the key among the arguments, for COMMAND
}

// commands has the commands by name in upper case: commands for users, and commands that clients send when they
// connect.
var commands map[string]command

func init() { // in init, because the command COMMAND refers to commands
	commands = map[string]command{
		"CL.THROTTLE":  {run: (*conn).throttle, least: 5, most: 6, asks: true, key: 1},
		"SLUICE.CHECK": {run: func(c *conn, args [][]byte) { c.check(args, policy.Charge) }, least: 2, asks: true},
		"SLUICE.PEEK":  {run: func(c *conn, args [][]byte) { c.check(args, policy.Peek) }, least: 2, asks: true},
		"SLUICE.RESET": {run: (*conn).resetSubject, least: 2},

		"AUTH":    {run: (*conn).auth, least: 2, most: 3, open: true},
		"CLIENT":  {run: (*conn).client, least: 2},
		"COMMAND": {run: (*conn).listCommands, least: 1},
		"CONFIG":  {run: (*conn).config, least: 2},
		"ECHO":    {run: func(c *conn, args [][]byte) { c.bulk(string(args[1])) }, least: 2, most: 2},
		"HELLO":   {run: (*conn).hello, least: 1, open: true},
		"INFO":    {run: (*conn).info, least: 1},
		"MULTI":   {run: (*conn).multi, least: 1, most: 1},
		"EXEC":    {run: (*conn).multi, least: 1, most: 1}, // clients report an error of EXEC, but ignore one of MULTI
		"DISCARD": {run: (*conn).multi, least: 1, most: 1},
		"PING":    {run: (*conn).ping, least: 1, most: 2},
		"QUIT":    {run: func(c *conn, _ [][]byte) { c.ok(); c.leaving = true }, least: 1, open: true},
		"RESET":   {run: (*conn).reset, least: 1, most: 1, open: true},
		"SELECT":  {run: (*conn).selectDB, least: 2, most: 2},
	}
}

// run executes a command.
func (c *conn) run(args [][]byte) {
	if len(args) == 0 {
		return
	}
	cmd, known := find(args[0])
	switch {
	case !cmd.open && !c.permitted:
		c.refuse("NOAUTH Authentication required: send AUTH with a token")
	case !known:
		c.refuse("ERR unknown command " + quoted(args[0]) + ": Sluice knows CL.THROTTLE, SLUICE.CHECK, SLUICE.PEEK and SLUICE.RESET")
	case len(args) < cmd.least || cmd.most > 0 && len(args) > cmd.most:
		c.refuse("ERR wrong number of arguments for " + quoted(args[0]) + usage(args[0]))
	case cmd.asks:
		cmd.run(c, args)
	default:
		c.decide()
		cmd.run(c, args)
	}
}

// find looks up a name, ignoring case.
func find(name []byte) (cmd command, known bool) {
	var upper [16]byte
	if len(name) > len(upper) {
		return cmd, false
	}
	for i, b := range name {
		if 'a' <= b && b <= 'z' {
			b -= 'a' - 'A'
		}
		upper[i] = b
	}
	cmd, known = commands[string(upper[:len(name)])]
	return cmd, known
}

func usage(name []byte) string {
	switch {
	case is(name, "CL.THROTTLE"):
		return ": write CL.THROTTLE key max_burst count period [quantity]"
	case len(name) > 7 && is(name[:7], "SLUICE."):
		return ": write it as in SLUICE.CHECK rule part value"
	}
	return ""
}

func (c *conn) ping(args [][]byte) {
	if len(args) == 2 {
		c.bulk(string(args[1]))
		return
	}
	c.line('+', "PONG")
}

func (c *conn) selectDB(args [][]byte) {
	if string(args[1]) != "0" {
		c.fail("ERR the only database is 0")
		return
	}
	c.ok()
}

func (c *conn) multi([][]byte) {
	c.fail("ERR transactions are not supported: use a pipeline without one, as in pipeline(transaction=False)")
}

// reset executes RESET, which restores the state of a new connection.
func (c *conn) reset([][]byte) {
	c.proto, c.name = 2, ""
	c.login = login{permitted: c.server.Authorize == nil}
	c.line('+', "RESET")
}

// speaks is the version of Redis that clients see. Clients choose their commands by this version.
const speaks = "7.0.0"

func (c *conn) info([][]byte) {
	c.bulk("# Server\r\nserver_name:sluice\r\nredis_version:" + speaks + "\r\nredis_mode:standalone\r\n" +
		"# Persistence\r\nloading:0\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n")
}

// config answers CONFIG GET for the settings that clients read.
func (c *conn) config(args [][]byte) {
	if !is(args[1], "GET") || len(args) < 3 {
		c.fail("ERR only CONFIG GET is supported: settings are flags of sluice serve")
		return
	}
	known := [...][2]string{{"save", ""}, {"appendonly", "no"}, {"databases", "1"}, {"timeout", "0"}}
	var found [][2]string
	for _, setting := range known {
		if slices.ContainsFunc(args[2:], func(arg []byte) bool { return is(arg, setting[0]) }) {
			found = append(found, setting)
		}
	}
	c.pairs(len(found))
	for _, setting := range found {
		c.textPair(setting[0], setting[1])
	}
}

// listCommands executes COMMAND, which lists the commands and the positions of their keys.
func (c *conn) listCommands(args [][]byte) {
	switch {
	case len(args) == 1:
		c.array(len(commands))
		for name, cmd := range commands {
			c.describe(name, cmd)
		}
	case is(args[1], "COUNT"):
		c.integer(int64(len(commands)))
	case is(args[1], "DOCS"):
		c.pairs(0)
	case is(args[1], "INFO"):
		c.array(len(args) - 2)
		for _, arg := range args[2:] {
			if cmd, known := find(arg); known {
				c.describe(string(arg), cmd)
			} else {
				c.null()
			}
		}
	default:
		c.fail("ERR COMMAND supports only COUNT, DOCS and INFO")
	}
}

func (c *conn) describe(name string, cmd command) {
	arity := int64(cmd.least)
	if cmd.most != cmd.least {
		arity = -arity
	}
	c.array(6)
	c.bulk(strings.ToLower(name))
	c.integer(arity)
	c.array(1)
	c.line('+', "fast")
	c.integer(int64(cmd.key))
	c.integer(int64(cmd.key))
	c.integer(int64(min(cmd.key, 1)))
}

// client executes CLIENT, with which clients send their names.
func (c *conn) client(args [][]byte) {
	what, rest := args[1], args[2:]
	switch {
	case is(what, "SETNAME") && len(rest) == 1:
		c.setName(rest[0])
	case is(what, "GETNAME") && len(rest) == 0:
		c.bulk(c.name)
	case is(what, "ID") && len(rest) == 0:
		c.integer(c.id)
	case is(what, "INFO") && len(rest) == 0:
		c.bulk(fmt.Sprintf("id=%d addr=%v laddr=%v name=%s db=0 resp=%d\n", c.id, c.socket.RemoteAddr(), c.socket.LocalAddr(), c.name, c.proto))
	case is(what, "SETINFO") && len(rest) == 2, is(what, "NO-EVICT"), is(what, "NO-TOUCH"), is(what, "TRACKING"):
		c.ok() // no effect, because the server has neither client-side caching nor eviction of clients
	default:
		c.fail("ERR unknown subcommand or wrong number of arguments for CLIENT " + quoted(what))
	}
}

// setName sets the name of the connection, and appends the reply.
func (c *conn) setName(name []byte) {
	if text, ok := clientName(name); ok {
		c.name = text
		c.ok()
		return
	}
	c.fail(badName)
}

const badName = "ERR a client's name must have at most 128 printable characters and no spaces"

func clientName(name []byte) (text string, ok bool) {
	for _, b := range name {
		if b <= ' ' || b > '~' {
			return "", false
		}
	}
	return string(name), len(name) <= 128
}
