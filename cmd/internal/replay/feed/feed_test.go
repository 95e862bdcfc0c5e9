package feed

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var day = time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)

// line returns a line of a combined log with a unique target.
func line(at time.Time, id int) string {
	return fmt.Sprintf(`192.0.2.%d - - [%s] "GET /%d HTTP/1.1" 200 %d "-" "agent"`, id%200, at.Format("02/Jan/2006:15:04:05 -0700"), id, id%7)
}

// request has the fields of an entry that tests compare.
type request struct {
	time   int64
	target string
}

// naive is the expected result of reading logs.
type naive struct {
	requests                         []request
	lines, skipped, unreadable, late int64
}

// readNaively reads the decompressed contents of files in memory, one line after the other.
func readNaively(t *testing.T, size sizes, files ...[]byte) (n naive) {
	t.Helper()
	format := combinedFormat(t).Format
	type file struct {
		first    int64
		requests []request
	}
	var all []file
	for _, data := range files {
		f := file{first: -1 << 63}
		latest, seen := int64(-1<<62), 0
		for line := range bytes.Lines(bytes.TrimPrefix(data, bom)) {
			n.lines++
			line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
			if len(line) > 0 {
				seen++
			}
			var e accesslog.Entry
			err := errLong
			if len(line) <= size.line {
				err = format.Parse(line, &e)
			}
			if errors.Is(err, accesslog.ErrSkip) {
				n.skipped++
				continue
			}
			if err != nil {
				n.unreadable++
				continue
			}
			if len(f.requests) == 0 && seen <= 100 {
				f.first = e.Time
			}
			at := e.Time
			if at < latest-size.window.Microseconds() {
				at = latest
				n.late++
			}
			latest = max(latest, at)
			f.requests = append(f.requests, request{at, string(e.Target)})
		}
		all = append(all, f)
	}
	slices.SortStableFunc(all, func(a, b file) int { return cmp.Compare(a.first, b.first) })
	for _, f := range all {
		n.requests = append(n.requests, f.requests...)
	}
	slices.SortStableFunc(n.requests, func(a, b request) int { return cmp.Compare(a.time, b.time) })
	return n
}

// collect reads the files and returns their requests.
func collect(t *testing.T, size sizes, o Options, files ...string) (Stats, []request) {
	t.Helper()
	var all []request
	stats, err := read(t.Context(), files, o, size, func(b *Batch) error {
		for _, e := range b.Entries {
			all = append(all, request{e.Time, string(e.Target)})
		}
		b.Release()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return stats, all
}

func combinedFormat(t testing.TB) Options {
	t.Helper()
	f, err := accesslog.Lookup("combined", accesslog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return Options{Format: f}
}

func (n naive) compare(t *testing.T, s Stats, got []request) {
	t.Helper()
	counts := [...]int64{s.Lines, s.Skipped, s.Unreadable, s.Late, s.Requests}
	if want := [...]int64{n.lines, n.skipped, n.unreadable, n.late, int64(len(n.requests))}; counts != want {
		t.Errorf("lines, skipped, unreadable, late, requests: %d, want %d", counts, want)
	}
	for i := range max(len(got), len(n.requests)) {
		if i >= len(got) || i >= len(n.requests) || got[i] != n.requests[i] {
			t.Fatalf("request %d of %d and of %d wanted differs: %v", i, len(got), len(n.requests), got[min(i, len(got)):min(i+1, len(got))])
		}
	}
	if len(got) > 0 && (s.From != got[0].time || s.To != got[len(got)-1].time) {
		t.Errorf("from %d to %d, want %d to %d", s.From, s.To, got[0].time, got[len(got)-1].time)
	}
}

// seconds returns a log of n lines, one a second.
func seconds(n int) (log []byte) {
	for id := range n {
		log = append(log, line(day.Add(time.Duration(id)*time.Second), id)+"\n"...)
	}
	return log
}

func write(t testing.TB, data []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(data)
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zstdOf(t testing.TB, data []byte) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	return z.EncodeAll(data, nil)
}

// randomLogs returns the contents of some files, with times that go back and forth, unreadable lines, and other
// irregularities.
func randomLogs(r *rand.Rand, size sizes) [][]byte {
	files := make([][]byte, 1+r.IntN(5))
	id := 0
	reach := int(size.window.Seconds())
	if r.IntN(3) == 0 {
		reach *= 3 // some lines are late
	}
	for f := range files {
		var b bytes.Buffer
		if r.IntN(4) == 0 {
			b.WriteString("\xef\xbb\xbf")
		}
		at := day.Add(time.Duration(r.IntN(4)) * time.Hour)
		for range r.IntN(400) {
			switch r.IntN(12) {
			case 0:
				b.WriteString(strings.Repeat("x", r.IntN(60)))
			case 1:
				b.WriteString(strings.Repeat("long ", size.line/5) + strings.Repeat("y", r.IntN(4)))
			case 2:
				b.WriteString("nul \x00 \x00")
			case 3: // empty
			default:
				id++
				b.WriteString(line(at.Add(-time.Duration(r.IntN(reach+1))*time.Second), id))
				if r.IntN(3) > 0 {
					at = at.Add(time.Duration(r.IntN(20)) * time.Second)
				}
			}
			if r.IntN(5) == 0 {
				b.WriteByte('\r')
			}
			b.WriteByte('\n')
		}
		files[f] = b.Bytes()
		if r.IntN(2) == 0 {
			files[f] = bytes.TrimRight(files[f], "\r\n")
		}
	}
	return files
}

// For any files, block sizes, compression and number of processors, the requests equal those of the naive reader.
func TestSameAsNaive(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for i := range 60 {
		runtime.GOMAXPROCS([]int{1, 2, 8}[i%3])
		size := sizes{block: 1 + r.IntN(4000), line: 150 + r.IntN(500), window: 5 * time.Minute, memory: 1 << 30, batch: 1 + r.IntN(50)}
		logs := randomLogs(r, size)
		var names []string
		for _, data := range logs {
			switch r.IntN(4) {
			case 0:
				data = gzipped(t, data)
			case 1:
				half := r.IntN(len(data) + 1)
				data = append(gzipped(t, data[:half]), gzipped(t, data[half:])...)
			case 2:
				data = zstdOf(t, data)
			}
			names = append(names, write(t, data))
		}
		want := readNaively(t, size, logs...)
		s, got := collect(t, size, combinedFormat(t), names...)
		want.compare(t, s, got)
		for i, f := range s.Files {
			if data := bytes.TrimPrefix(logs[i], bom); f.Bytes != int64(len(data)) {
				t.Errorf("%d of %d bytes were read", f.Bytes, len(data))
			}
		}
		if t.Failed() {
			t.Fatalf("with %+v", size)
		}
	}
}

// One log that is split into overlapping files is merged in the order of the whole log, with the usual sizes.
func TestMerge(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	logs := make([][]byte, 100)
	at := day
	for id := range 20_000 {
		f := min(len(logs)-1, id/200+r.IntN(40))
		logs[f] = append(logs[f], line(at.Add(-time.Duration(r.IntN(120))*time.Second), id)+"\n"...)
		at = at.Add(time.Duration(r.IntN(2)) * time.Second)
	}
	var names []string
	for _, data := range logs {
		names = append(names, write(t, data))
	}
	want := readNaively(t, usual, logs...)
	s, got := collect(t, usual, combinedFormat(t), names...)
	want.compare(t, s, got)
	if want.late != 0 {
		t.Error("some requests are late")
	}
}

// With less memory than the window needs, every request is still read once, times never go back, and requests that
// arrived too late are counted.
func TestLittleMemory(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var log []byte
	times := map[string]int64{}
	for id := range 5000 {
		at := day.Add(time.Duration(id/100-r.IntN(30)) * time.Second)
		log = append(log, line(at, id)+"\n"...)
		times[fmt.Sprintf("/%d", id)] = at.UnixMicro()
	}
	size := usual
	size.block, size.memory = 1000, 100_000
	s, got := collect(t, size, combinedFormat(t), write(t, log))
	var late, clock int64
	for _, q := range got {
		at, ok := times[q.target]
		if !ok {
			t.Fatalf("%s is unknown or read twice", q.target)
		}
		delete(times, q.target)
		if q.time < clock {
			t.Fatalf("%s is at %d, after %d", q.target, q.time, clock)
		}
		if q.time != at {
			late++
			if q.time != clock {
				t.Fatalf("%s has the time %d, want its own or the clock's %d", q.target, q.time, clock)
			}
		}
		clock = q.time
	}
	if len(times) != 0 || late == 0 || s.Late != late {
		t.Errorf("%d requests are lost, %d late, %d counted as late", len(times), late, s.Late)
	}
	again, same := collect(t, size, combinedFormat(t), write(t, gzipped(t, log)))
	if again.Late != s.Late || !slices.Equal(got, same) {
		t.Error("the late requests differ between two runs")
	}
}

// A compressed file that is cut off yields its lines up to the cut, and is reported. Its incomplete last line is not a
// request.
func TestBroken(t *testing.T) {
	log := seconds(20_000)
	for name, data := range map[string][]byte{"gzip": gzipped(t, log), "zstd": zstdOf(t, log)} {
		t.Run(name, func(t *testing.T) {
			for _, cut := range []int{5, 11, len(data) / 2, len(data) - 1} {
				s, got := collect(t, usual, combinedFormat(t), write(t, data[:cut]))
				if !strings.Contains(s.Files[0].Broken, "breaks off") {
					t.Errorf("cut at %d: the problem is %q", cut, s.Files[0].Broken)
				}
				n := int(s.Lines)
				whole := bytes.Count(log[:s.Files[0].Bytes], []byte("\n"))
				if len(got) != whole || s.Unreadable > 1 || s.Unreadable == 1 && s.Unread[0].Why != s.Files[0].Broken {
					t.Errorf("cut at %d: %d of %d lines are requests, want %d; unreadable: %v", cut, len(got), n, whole, s.Unread)
				}
				if cut == len(data)/2 && len(got) < 4000 {
					t.Errorf("half of the file gave %d lines", len(got))
				}
			}
			damaged := bytes.Clone(data)
			for i := range 100 {
				damaged[len(data)/2+i] ^= 0x55
			}
			if s, _ := collect(t, usual, combinedFormat(t), write(t, damaged)); s.Files[0].Broken == "" {
				t.Error("a damaged file was not noticed")
			}
		})
	}
}

// Standard input and named pipes, which cannot be opened twice, are read completely.
func TestStandardInput(t *testing.T) {
	log := seconds(3000)
	want := readNaively(t, usual, log)
	for _, data := range [][]byte{log, gzipped(t, log), zstdOf(t, log)} {
		o := combinedFormat(t)
		o.Stdin = io.MultiReader(bytes.NewReader(data[:5]), bytes.NewReader(data[5:]))
		s, got := collect(t, usual, o, "-")
		want.compare(t, s, got)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	written := make(chan error, 1)
	go func() {
		_, err := w.Write(log)
		written <- errors.Join(err, w.Close())
	}()
	s, got := collect(t, usual, Options{}, fmt.Sprintf("/dev/fd/%d", r.Fd()))
	want.compare(t, s, got)
	if err := <-written; err != nil {
		t.Error(err)
	}
}

func TestUnread(t *testing.T) {
	log := line(day, 1) + "\n\n" + strings.Repeat("garbage\n", 30) + strings.Repeat("z", 3<<20) + "\n" + line(day, 2)
	s, got := collect(t, usual, combinedFormat(t), write(t, []byte(log)))
	if len(got) != 2 || s.Lines != 34 || s.Skipped != 1 || s.Unreadable != 31 || len(s.Unread) != shown {
		t.Errorf("%d requests with %+v", len(got), s)
	}
	if u := s.Unread[0]; u.Line != 3 || u.Text != "garbage" {
		t.Errorf("%+v", u)
	}
	s, _ = collect(t, usual, combinedFormat(t), write(t, []byte(log[len(log)-2<<20:])))
	if u := s.Unread[0]; u.Line != 1 || u.Text != strings.Repeat("z", shownBytes) || u.Why != errLong.Error() {
		t.Errorf("%+v", u)
	}
	if s.Files[0].Bytes != 2<<20 {
		t.Errorf("%d bytes were read", s.Files[0].Bytes)
	}
}

func TestErrors(t *testing.T) {
	good := write(t, []byte(line(day, 1)+"\n"))
	dir := t.TempDir()
	for _, c := range []struct {
		name  string
		files []string
		want  string
	}{
		{"missing", []string{good, filepath.Join(dir, "none")}, "no such file"},
		{"directory", []string{good, dir}, "is a directory: name the logs in it"},
		{"bzip2", []string{write(t, []byte("BZh91AY&SY"))}, "bzip2 -dc"},
		{"xz", []string{write(t, []byte("\xfd7zXZ\x00..."))}, "xz -dc"},
		{"input twice", []string{"-", "-"}, "only once"},
		{"unknown format", []string{good, write(t, []byte("a\nb\n"))}, "--format"},
	} {
		t.Run(c.name, func(t *testing.T) {
			called := false
			_, err := Read(t.Context(), c.files, Options{Stdin: strings.NewReader("")}, func(*Batch) error {
				called = true
				return nil
			})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v", err)
			}
			if called {
				t.Error("batches were processed before the error")
			}
		})
	}
}

// Files without a request are not an error, neither alone nor with others.
func TestNoRequests(t *testing.T) {
	s, got := collect(t, usual, Options{}, write(t, nil), write(t, []byte("# a comment\n\n")), write(t, gzipped(t, nil)), write(t, []byte(line(day, 1))))
	if len(got) != 1 || s.Skipped != 2 || s.Files[0].Format != "" || s.Files[3].Format != "combined" {
		t.Errorf("%d requests with %+v", len(got), s)
	}
	if s, got := collect(t, usual, Options{}, write(t, nil)); len(got) != 0 || s.From != 0 || s.To != 0 {
		t.Errorf("%d requests with %+v", len(got), s)
	}
}

var errEnough = errors.New("enough")

// endless is a log without an end.
type endless struct{ id int }

func (e *endless) Read(p []byte) (int, error) {
	e.id++
	return copy(p, line(day.Add(time.Duration(e.id)*time.Second), e.id)+"\n"), nil
}

// Read returns the error of the function that takes batches or of Begin, or ends with its context.
func TestEndsEarly(t *testing.T) {
	read := func(ctx context.Context, begin func([]File) error, take func(*Batch) error) error {
		o := combinedFormat(t)
		o.Stdin, o.Begin = &endless{}, begin
		_, err := Read(ctx, []string{"-"}, o, take)
		return err
	}
	n := 0
	if err := read(t.Context(), nil, func(b *Batch) error {
		b.Release()
		if n++; n == 3 {
			return errEnough
		}
		return nil
	}); err != errEnough || n != 3 {
		t.Errorf("%v after %d batches", err, n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := read(ctx, nil, func(*Batch) error {
		cancel() // the batch is not released
		return nil
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	if err := read(t.Context(), func(files []File) error {
		if len(files) != 1 || files[0].Format != "combined" {
			t.Errorf("files are %v", files)
		}
		return errEnough
	}, nil); err != errEnough {
		t.Errorf("the error is %v", err)
	}
}

// Read ends with its context even if the input blocks forever.
func TestStuckInput(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	o := combinedFormat(t)
	o.Stdin = r
	done := make(chan error)
	go func() {
		_, err := Read(ctx, []string{"-"}, o, func(*Batch) error { return nil })
		done <- err
	}()
	fmt.Fprintln(w, line(day, 1)) // returns after the line was read
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

func TestProgress(t *testing.T) {
	log := seconds(20_000)
	a, b := gzipped(t, log), zstdOf(t, log)
	var last Progress
	o := combinedFormat(t)
	o.Progress = func(p Progress) {
		if p.Done < last.Done || p.Lines < last.Lines {
			t.Errorf("the progress went from %+v to %+v", last, p)
		}
		last = p
	}
	collect(t, usual, o, write(t, a), write(t, b))
	if all := int64(len(a) + len(b)); last != (Progress{Lines: 40_000, Done: all, Total: all}) {
		t.Errorf("the last progress is %+v", last)
	}
	o.Stdin = bytes.NewReader(log)
	last = Progress{}
	collect(t, usual, o, "-")
	if last != (Progress{Lines: 20_000, Done: int64(len(log))}) {
		t.Errorf("the last progress is %+v", last)
	}
}

// If a log is rotated between the detection of its format and the reading, Read fails.
func TestRotated(t *testing.T) {
	name := write(t, []byte(line(day, 1)))
	o := combinedFormat(t)
	o.Begin = func([]File) error {
		return errors.Join(os.Rename(name, name+".1"), os.WriteFile(name, []byte(line(day, 2)), 0o600))
	}
	_, err := Read(t.Context(), []string{name}, o, func(*Batch) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "rotated") {
		t.Errorf("the error is %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(line(day, 1)+"\r\n\n"+line(day.Add(-time.Hour), 2)+"\n# x\n"), uint16(3), uint16(200))
	f.Add([]byte("\xef\xbb\xbf"+line(day, 1)+"\nx\n"+line(day.Add(-time.Second), 2)), uint16(40), uint16(90))
	f.Fuzz(func(t *testing.T, data []byte, block, longest uint16) {
		// Compressed data is the subject of FuzzCompressed.
		if len(data) < 2 || data[0] != '1' && !bytes.HasPrefix(data, bom) {
			data = append([]byte(line(day, 0)+"\n"), data...)
		}
		size := sizes{block: 1 + int(block), line: 1 + int(longest), window: time.Minute, memory: 1 << 30, batch: 7}
		s, got := collect(t, size, combinedFormat(t), write(t, data))
		readNaively(t, size, data).compare(t, s, got)
	})
}

// Reading a compressed file with any contents ends without a panic.
func FuzzCompressed(f *testing.F) {
	log := []byte(line(day, 1) + "\n" + line(day, 2) + "\n")
	f.Add(gzipped(f, log))
	f.Add(zstdOf(f, log))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = Read(t.Context(), []string{write(t, data)}, combinedFormat(t), func(b *Batch) error {
			b.Release()
			return nil
		})
	})
}

// A directive changes the format in the middle of a file, at any position relative to blocks. Lines after an unreadable
// directive are refused.
func TestDirectives(t *testing.T) {
	head := "#Software: Microsoft Internet Information Services 10.0\n#Version: 1.0\n"
	log := head + "#Fields: date time c-ip cs-method cs-uri-stem sc-status\n" +
		"2026-11-20 10:00:00 192.0.2.1 GET /1 200\n" +
		"2026-11-20 10:00:01 192.0.2.1 GET /2 200\n" + head +
		"#Fields: cs-uri-stem cs-method c-ip time date\r\n" +
		"/3 GET 192.0.2.1 10:00:02 2026-11-20\r\n" +
		"#Fields: c-ip cs-method\n" +
		"192.0.2.1 GET\n" + head +
		"192.0.2.1 GET\n" +
		"#Fields: date time cs-uri-stem\n" +
		"2026-11-20 10:00:03 /4\n" +
		"2026-11-20 10:00:04 /5"
	format, err := accesslog.Lookup("iis", accesslog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for block := 1; block < len(log)+10; block += 7 {
		size := usual
		size.block = block
		var clients []string
		s, err := read(t.Context(), []string{write(t, []byte(log))}, Options{Format: format}, size, func(b *Batch) error {
			for _, e := range b.Entries {
				clients = append(clients, string(e.Target)+" "+string(e.Client))
			}
			b.Release()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"/1 192.0.2.1", "/2 192.0.2.1", "/3 192.0.2.1", "/4 ", "/5 "}
		if !slices.Equal(clients, want) {
			t.Errorf("in blocks of %d: %q", block, clients)
		}
		if s.Lines != 17 || s.Skipped != 9 || s.Unreadable != 3 || len(s.Unread) != 3 || s.Unread[0].Line != 10 || s.Unread[2].Line != 14 {
			t.Errorf("in blocks of %d: %+v", block, s)
		}
		if s.Unread[1].Why != errRefused.Error() {
			t.Errorf("the reason is %q", s.Unread[1].Why)
		}
	}
}
