package source

import (
	"errors"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/sluicehq/sluice/policy"
)

// Stack puts a database on top of a file (see [Merge]), and the resulting policy into force. Either may change at
// any time, and either may be missing. An invalid policy changes nothing. A Stack is safe for concurrent use once
// its fields are set.
type Stack struct {
	// Name is that of the database, for problems in it.
	Name string
	// Swap puts a policy into force, such as [policy.Engine.Swap]. It is called in the order of
	// the changes, and never by two at once.
	Swap func(*policy.Policy)

	// Accept, if not nil, returns the objections of the integrations to a policy: a [policy.Errors].
	Accept func(*policy.Policy) error

	// FileTaken, if not nil, is called when a file that File rejected is in force, because it is valid with a
	// change of the database.
	FileTaken func()

	changing sync.Mutex // held while a policy comes into force
	state    atomic.Pointer[state]
	checked  atomic.Pointer[state] // what Check has made last
	tried    *state                // what File has made last
	refused  *file                 // what File has refused, if it was the last
	unused   *Contents             // likewise of Contents

	fileFault, contentsFault atomic.Pointer[error] // why the file, and the contents, that are there now are not in force
}

// state is what is in force, and what it was made of.
type state struct {
	file     *file
	before   *file // in force before file, with other contents
	contents *Contents
	merged   *merged
	policy   *policy.Policy
}

// file is a document as it is written, and where.
type file struct {
	policy.Document
	where func(path string) (string, int)
}

// Policy returns the policy in force; nil before there is one.
func (s *Stack) Policy() *policy.Policy {
	if now := s.state.Load(); now != nil {
		return now.policy
	}
	return nil
}

// Document returns the document of the policy in force, and the contents of the database in it,
// which are nil if it is the file's alone. Change neither.
func (s *Stack) Document() (*policy.Document, *Contents) {
	if now := s.state.Load(); now != nil {
		return &now.merged.Document, now.contents
	}
	return &policy.Document{}, nil
}

// FileDocument returns the document of the file, or nil without a file. Do not change it.
func (s *Stack) FileDocument() *policy.Document {
	if f := s.file(); f != nil {
		return &f.Document
	}
	return nil
}

// FileBefore returns the document of the file that was in force before with other contents, or nil. Do not change
// it.
func (s *Stack) FileBefore() *policy.Document {
	if now := s.state.Load(); now != nil && now.before != nil {
		return &now.before.Document
	}
	return nil
}

// RefuseFile records why the file that is there now is not in force. File is not called with what cannot be decoded.
func (s *Stack) RefuseFile(err error) { s.fileFault.Store(&err) }

// Refused returns why the file and the database that are there now are not in force; nil if they are.
func (s *Stack) Refused() (file, database error) {
	if err := s.fileFault.Load(); err != nil {
		file = *err
	}
	if err := s.contentsFault.Load(); err != nil {
		database = *err
	}
	return file, database
}

// File compiles a file's document with the database on top, for [Stack.UseFile]. For where see
// [policy.CompileAt]. A file that makes no policy with the database is tried again whenever that
// changes.
func (s *Stack) File(doc policy.Document, where func(path string) (string, int)) (*policy.Policy, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	f := &file{doc, where}
	tried, err := s.make(f, s.contents())
	if err != nil && s.unused != nil { // they may need each other
		if both, err2 := s.make(f, s.unused); err2 == nil {
			tried, err = both, nil
		}
	}
	s.tried, s.refused = tried, nil
	if err != nil {
		s.refused = f
		return nil, err
	}
	return tried.policy, nil
}

// UseFile puts what File has returned last into force.
func (s *Stack) UseFile() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.tried == nil {
		return errors.New("source: UseFile before File")
	}
	next := s.tried
	if next.contents != s.contents() && next.contents != s.unused { // the database has changed since
		var err error
		if next, err = s.make(next.file, s.contents()); err != nil {
			s.contentsFault.Store(&err)
			return err
		}
	}
	s.use(next)
	return nil
}

// Contents puts the contents of a database into force, on top of the file if any, unless newer contents are in
// force. The error is a [policy.Errors] with paths as in [Database.Change]; then nothing has changed.
func (s *Stack) Contents(c *Contents) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if now := s.contents(); c.SamePolicy(now) || c.olderThan(now) {
		return nil
	}
	if s.refused != nil {
		if next, err := s.make(s.refused, c); err == nil {
			s.use(next)
			if s.FileTaken != nil {
				s.FileTaken()
			}
			return nil
		}
	}
	next, err := s.make(s.file(), c)
	if err != nil {
		s.unused = c
		s.contentsFault.Store(&err)
		return err
	}
	s.use(next)
	return nil
}

// Check returns what would be wrong with a policy of the file and c. The policy that it compiles is kept for
// [Stack.Contents] or [Stack.Would], whichever gets the same contents next.
func (s *Stack) Check(c *Contents) error {
	next, err := s.make(s.file(), c)
	if err == nil {
		s.checked.Store(next)
	}
	return err
}

// Would returns the policy that c would make with the file, and its document, which is not to be changed.
func (s *Stack) Would(c *Contents) (*policy.Policy, *policy.Document, error) {
	next, err := s.make(s.file(), c)
	if err != nil {
		return nil, nil, err
	}
	s.checked.CompareAndSwap(next, nil)
	return next.policy, &next.merged.Document, nil
}

// WouldFile returns the policy that another file would make with the database, and its document, which is not to be
// changed. For where see [policy.CompileAt].
func (s *Stack) WouldFile(doc policy.Document, where func(path string) (string, int)) (*policy.Policy, *policy.Document, error) {
	next, err := s.make(&file{doc, where}, s.contents())
	if err != nil {
		return nil, nil, err
	}
	return next.policy, &next.merged.Document, nil
}

// Readable returns the [policy.Errors] of the rows that cannot be read, if there are any.
func (s *Stack) Readable(c *Contents) error {
	if c == nil {
		return nil
	}
	if faults := c.faults(); len(faults) > 0 {
		return s.named(faults)
	}
	return nil
}

func (s *Stack) use(next *state) {
	if next.file != s.file() {
		s.refused = nil
		s.fileFault.Store(nil)
	}
	if next.contents != s.contents() {
		s.contentsFault.Store(nil)
	}
	if now := s.state.Load(); now != nil {
		next.before = now.before
		if now.file != nil && next.file != now.file && !reflect.DeepEqual(now.file.Document, next.file.Document) {
			next.before = now.file
		}
	}
	s.unused = nil
	s.checked.CompareAndSwap(next, nil)
	s.state.Store(next)
	s.Swap(next.policy)
}

func (s *Stack) file() *file {
	if now := s.state.Load(); now != nil {
		return now.file
	}
	return nil
}

func (s *Stack) contents() *Contents {
	if now := s.state.Load(); now != nil {
		return now.contents
	}
	return nil
}

// make compiles a file, which may be nil, and contents, which may be nil. Where only overrides
// and subjects differ from what is in force, it compiles nothing else, and nothing at all after Check.
func (s *Stack) make(f *file, c *Contents) (*state, error) {
	if done := s.checked.Load(); done != nil && done.file == f && done.contents == c {
		return done, nil
	}
	next := &state{file: f, contents: c}
	if err := s.Readable(c); err != nil {
		return nil, err
	}
	var doc *policy.Document
	if f != nil {
		doc = &f.Document
	}
	next.merged = merge(doc, c)
	if strays := next.merged.strays(); len(strays) > 0 {
		return nil, s.named(strays)
	}
	var err error
	now := s.state.Load()
	if now != nil && now.file == f && c.sameBase(now.contents) {
		next.policy, err = now.tables(next)
	} else {
		next.policy, err = policy.CompileAt(next.merged.Document, next.where(s.Name))
		if err == nil && s.Accept != nil {
			err = s.Accept(next.policy)
		}
	}
	if err != nil {
		return nil, next.explain(err, s.Name)
	}
	return next, nil
}

// tables returns the policy with the overrides and subjects of next.
func (s *state) tables(next *state) (p *policy.Policy, err error) {
	p = s.policy
	if s.contents.versions.overrides != next.contents.versions.overrides {
		if p, err = p.WithOverrides(next.merged.Overrides); err != nil {
			return nil, err
		}
	}
	if s.contents.versions.subjects != next.contents.versions.subjects {
		p, err = p.WithSubjects(next.merged.Subjects)
	}
	return p, err
}

// where returns the file and line, or the database, of a path.
func (s *state) where(name string) func(path string) (string, int) {
	if s.file == nil && s.contents == nil {
		return nil
	}
	return func(path string) (string, int) {
		own, inFile := s.merged.origin(path)
		switch {
		case !inFile:
			return name, 0
		case s.file == nil || s.file.where == nil:
			return "", 0
		}
		return s.file.where(own)
	}
}

// explain adds places and paths to problems.
func (s *state) explain(err error, name string) error {
	problems, ok := errors.AsType[policy.Errors](err)
	if !ok {
		return err
	}
	all := make(policy.Errors, len(problems))
	where := s.where(name)
	for i, p := range problems {
		if where != nil {
			p.File, p.Line = where(p.Path)
		}
		p.Path, _ = s.merged.origin(p.Path)
		all[i] = p
	}
	return all
}

// named names the database in problems.
func (s *Stack) named(problems policy.Errors) policy.Errors {
	for i := range problems {
		problems[i].File = s.Name
	}
	return problems
}
