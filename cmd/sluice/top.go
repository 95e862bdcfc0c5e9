package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sluicehq/sluice/internal/adminapi"
)

// topSettings is what the command line of top says.
type topSettings struct {
	adminClient
	once bool
}

func topCommand() *cobra.Command {
	s := &topSettings{}
	c := s.command("top", "Show live what is allowed and refused, and for whom",
		"Show what all instances let pass and refuse: one sentence that says what is going on, rates,\n"+
			"rules by how far they are from what is usual, the subjects that are refused most, instances\n"+
			"and their stores. In a terminal it is redrawn every second; else, or with --once, it is\n"+
			"shown once.\n\n"+
			"Keys: q ends it; s sorts rules by another column; up and down choose a rule, and r goes\n"+
			"through the rules whose subjects are shown; b shows who asks most in place of who is refused\n"+
			"most; left and right choose the minute, the hour or the day.",
		"  sluice top\n  sluice top --once --output json | jq -r .stats.headline.text",
		func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("top: %.60q: it takes no arguments", args[0])
			}
			return s.run(c)
		})
	c.Flags().BoolVar(&s.once, "once", false, "show it once, as plain text, and exit")
	return c
}

// seenNow is what one look at a gateway has found.
type seenNow struct {
	Stats *adminapi.Stats `json:"stats"`
	Top   *adminapi.Top   `json:"top"`
	err   error
	asked topChoice // what Top is of
}

// topChoice is what whoever looks has chosen to see.
type topChoice struct {
	rule   string // whose subjects are shown; empty: all
	by     string
	window string
}

var topWindows = []string{"minute", "hour", "day"}

func (s *topSettings) run(c *cobra.Command) error {
	choice := topChoice{by: "refusals", window: "hour"}
	in, out := terminalOf(c.InOrStdin()), terminalOf(c.OutOrStdout())
	if in != nil && out != nil && !s.once && s.output == "text" {
		ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		return s.watch(ctx, in, out, choice)
	}
	now := s.look(c.Context(), choice)
	if now.err != nil {
		return now.err
	}
	var b bytes.Buffer
	if s.output == "json" {
		encoder := json.NewEncoder(&b)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(now); err != nil {
			return &failedError{err}
		}
	} else {
		screen := topScreen{now: now, choice: choice, source: s.url, width: 120, plain: true}
		for _, line := range screen.lines() {
			b.WriteString(line + "\n")
		}
	}
	if _, err := c.OutOrStdout().Write(b.Bytes()); err != nil {
		return &failedError{err}
	}
	return nil
}

// look asks the gateway once.
func (s *topSettings) look(ctx context.Context, choice topChoice) (now seenNow) {
	now.asked = choice
	now.Stats, now.Top = new(adminapi.Stats), new(adminapi.Top)
	if _, now.err = s.call(ctx, http.MethodGet, "/v1/stats", nil, "", nil, now.Stats); now.err != nil {
		return now
	}
	q := url.Values{"by": {choice.by}, "window": {choice.window}, "limit": {"50"}}
	if choice.rule != "" {
		q.Set("rule", choice.rule)
	}
	_, now.err = s.call(ctx, http.MethodGet, "/v1/top", q, "", nil, now.Top)
	return now
}

// refresh is how often a live screen is made anew, and resized how often the size of the terminal is
// looked at.
const (
	refresh = time.Second
	resized = 200 * time.Millisecond
)

// watch shows a live screen until somebody ends it.
func (s *topSettings) watch(ctx context.Context, in, out *os.File, choice topChoice) error {
	t, err := openTerminal(in, out)
	if err != nil {
		return &failedError{err}
	}
	defer t.restore() // after a panic, too
	ctx, stop := context.WithCancel(ctx)
	looks := make(chan seenNow)
	wanted := make(chan topChoice, 1)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		s.lookOften(ctx, choice, wanted, looks)
	}()
	defer func() { stop(); <-gone }()
	screen := topScreen{choice: choice, source: s.url, coloured: os.Getenv("NO_COLOR") == ""}
	size := time.NewTicker(resized)
	defer size.Stop()
	for {
		screen.width, screen.height = t.size()
		if err := t.draw(screen.lines()); err != nil {
			return &failedError{err}
		}
		select {
		case <-ctx.Done():
			return nil
		case screen.now = <-looks:
		case <-size.C:
		case key, open := <-t.keys:
			if !open || !screen.press(key) {
				return nil
			}
			if screen.choice != choice {
				choice = screen.choice
				select { // only the latest is wanted
				case <-wanted:
				default:
				}
				wanted <- choice
			}
		}
	}
}

// lookOften asks every second, and at once when something else is wanted.
func (s *topSettings) lookOften(ctx context.Context, choice topChoice, wanted <-chan topChoice, looks chan<- seenNow) {
	for {
		now := s.lookSafely(ctx, choice)
		select {
		case looks <- now:
		case <-ctx.Done():
			return
		}
		select {
		case <-ctx.Done():
			return
		case choice = <-wanted:
		case <-time.After(refresh):
		}
	}
}

// lookSafely makes an error of a panic, which would leave the terminal as it is.
func (s *topSettings) lookSafely(ctx context.Context, choice topChoice) (now seenNow) {
	defer func() {
		if p := recover(); p != nil {
			now = seenNow{err: fmt.Errorf("top: %v", p), asked: choice}
		}
	}()
	return s.look(ctx, choice)
}

// press does what a key stands for. It is false if that is to end.
func (s *topScreen) press(key string) bool {
	names := []string{""}
	for _, r := range s.rules() {
		names = append(names, r.Rule)
	}
	step := func(list []string, now string, by int) string {
		i := slices.Index(list, now) + by
		return list[(i+len(list))%len(list)]
	}
	switch key {
	case "q", "Q", "\x03", "\x04":
		return false
	case "s":
		s.order = (s.order + 1) % len(topOrders)
	case "r", "down":
		s.choice.rule = step(names, s.choice.rule, 1)
	case "R", "up":
		s.choice.rule = step(names, s.choice.rule, -1)
	case "b":
		s.choice.by = step([]string{"refusals", "traffic"}, s.choice.by, 1)
	case "right":
		s.choice.window = step(topWindows, s.choice.window, 1)
	case "left":
		s.choice.window = step(topWindows, s.choice.window, -1)
	}
	return true
}

// topOrders are how rules can be sorted; the largest are first.
var topOrders = []struct {
	name string
	less func(a, b *adminapi.RuleStats) int
}{
	{"change", func(a, b *adminapi.RuleStats) int { return cmp.Compare(changeOf(b), changeOf(a)) }},
	{"refused", func(a, b *adminapi.RuleStats) int { return cmp.Compare(refusedRate(b), refusedRate(a)) }},
	{"traffic", func(a, b *adminapi.RuleStats) int { return cmp.Compare(totalRate(b), totalRate(a)) }},
	{"name", func(a, b *adminapi.RuleStats) int { return cmp.Compare(a.Rule, b.Rule) }},
}

// changeOf is how far refusals are from what is usual, where nothing is known from none.
func changeOf(r *adminapi.RuleStats) float64 {
	usual := 0.0
	if r.Usual != nil {
		usual = *r.Usual
	}
	change := refusedRate(r) - usual
	return max(change, -change)
}

// refusedRate is how many a second a rule refuses, or would.
func refusedRate(r *adminapi.RuleStats) float64 {
	return r.Requests.Rate["deny"] + r.Requests.Rate["would_deny"]
}

func totalRate(r *adminapi.RuleStats) (sum float64) {
	for _, rate := range r.Requests.Rate {
		sum += rate
	}
	return sum
}

// terminal is one that shows a screen, and is as it was once it is restored.
type terminal struct {
	in, out *os.File
	before  *term.State
	keys    chan string // closed when the terminal is
}

const (
	// enterScreen has another screen, without a cursor and without wrapping lines, leaveScreen what
	// there was before.
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
)

func openTerminal(in, out *os.File) (*terminal, error) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("top: the terminal does not say what is typed: %w: use --once", err)
	}
	t := &terminal{in: in, out: out, before: before, keys: make(chan string)}
	if _, err := io.WriteString(out, enterScreen); err != nil {
		t.restore()
		return nil, err
	}
	// It ends with the terminal or the program: nothing interrupts the read of a terminal.
	go t.readKeys()
	return t, nil
}

func (t *terminal) restore() {
	_, _ = io.WriteString(t.out, leaveScreen)
	_ = term.Restore(int(t.in.Fd()), t.before)
}

// size is that of the screen in columns and lines.
func (t *terminal) size() (width, height int) {
	width, height, err := term.GetSize(int(t.out.Fd()))
	if err != nil || width < 1 || height < 1 {
		return 80, 24
	}
	return width, height
}

// draw writes lines over what there was, at once.
func (t *terminal) draw(lines []string) error {
	var b bytes.Buffer
	b.WriteString("\x1b[H")
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	_, err := t.out.Write(b.Bytes())
	return err
}

func (t *terminal) readKeys() {
	defer close(t.keys)
	buffer := make([]byte, 64)
	for {
		n, err := t.in.Read(buffer)
		for _, key := range keysOf(buffer[:n]) {
			t.keys <- key
		}
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// keysOf tells keys apart in what a terminal has sent at once.
func keysOf(sent []byte) (keys []string) {
	arrows := map[byte]string{'A': "up", 'B': "down", 'C': "right", 'D': "left"}
	for len(sent) > 0 {
		if len(sent) >= 3 && sent[0] == '\x1b' && (sent[1] == '[' || sent[1] == 'O') {
			keys = append(keys, arrows[sent[2]])
			sent = sent[3:]
			continue
		}
		keys = append(keys, string(sent[:1]))
		sent = sent[1:]
	}
	return keys
}
