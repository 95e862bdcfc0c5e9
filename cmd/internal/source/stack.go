package source

import (
	"errors"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/sluicehq/sluice/policy"
)

// Stack merges a policy file and a database (see [Merge]), and puts the resulting policy into force. Both may
// change at any time, and one of them may be missing. An invalid policy has no effect. A Stack is safe for
// concurrent use after its fields are set.
type Stack struct {
	// Name is the name of the database in problems.
	Name string
	// Swap puts a policy into force, such as [policy.Engine.Swap]. It is called in the order of the changes, and
	// never concurrently.
	Swap func(*policy.Policy)

	// Accept, if not nil, returns a [policy.Errors] if integrations cannot apply a policy.
	Accept func(*policy.Policy) error

	// FileTaken, if not nil, is called when a file that File has refused comes into force because a change of the
	// database has made it valid.
	FileTaken func()

	changing sync.Mutex // guards the fields below; locked while a policy comes into force
	state    atomic.Pointer[state]
	checked  atomic.Pointer[state] // the latest result of Check
	tried    *state                // the latest result of File
	refused  *file                 // the latest file, if File has refused it
	unused   *Contents             // the latest contents, if Contents has refused them

	fileFault, contentsFault atomic.Pointer[error] // the reasons why the latest file and the latest contents are not in force
}

// state is a policy with its sources.
type state struct {
	file     *file
	before   *file // the previous file that was in force and had other contents
	contents *Contents
	merged   *merged
	policy   *policy.Policy
}

// file is the document of a file with the positions of its parts.
type file struct {
	policy.Document
	where func(path string) (string, int)
}

// Policy returns the policy in force, or nil before the first one.
func (s *Stack) Policy() *policy.Policy {
	if now := s.state.Load(); now != nil {
		return now.policy
	}
	return nil
}

// Document returns the merged document of the policy in force, and the contents of the database that it includes. The
// contents are nil if the policy comes only from the file. Do not change either.
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

// FileBefore returns the document of the previous file that was in force and had other contents, or nil. Do not
// change it.
func (s *Stack) FileBefore() *policy.Document {
	if now := s.state.Load(); now != nil && now.before != nil {
		return &now.before.Document
	}
	return nil
}

// RefuseFile records the reason why the present file is not in force. It is for a file that cannot be decoded, and
// so cannot be passed to File.
func (s *Stack) RefuseFile(err error) { s.fileFault.Store(&err) }

// Refused returns the reasons why the present file and the present database are not in force, or nil for one that
// is in force.
func (s *Stack) Refused() (file, database error) {
	if err := s.fileFault.Load(); err != nil {
		file = *err
	}
	if err := s.contentsFault.Load(); err != nil {
		database = *err
	}
	return file, database
}

// File compiles a file's document merged with the database, for [Stack.UseFile]. It passes the function to
// [policy.CompileAt]. A file that is invalid with the database is tried again whenever the database changes.
func (s *Stack) File(doc policy.Document, where func(path string) (string, int)) (*policy.Policy, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	f := &file{doc, where}
	tried, err := s.make(f, s.contents())
	if err != nil && s.unused != nil { // the file may be valid only together with the unused contents
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

// UseFile puts the last file that File has compiled into force.
func (s *Stack) UseFile() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.tried == nil {
		return errors.New("source: UseFile before File")
	}
	next := s.tried
	if next.contents != s.contents() && next.contents != s.unused { // the database has changed since File
		var err error
		if next, err = s.make(next.file, s.contents()); err != nil {
			s.contentsFault.Store(&err)
			return err
		}
	}
	s.use(next)
	return nil
}

// Contents puts the contents of a database into force, merged with the file if any, unless newer contents are in
// force. The error is a [policy.Errors] with paths as in [Database.Change]. After an error, nothing has changed.
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

// Check returns the errors of the policy of the file and c. It keeps the compiled policy for the next
// [Stack.Contents] or [Stack.Would] with the same contents.
func (s *Stack) Check(c *Contents) error {
	next, err := s.make(s.file(), c)
	if err == nil {
		s.checked.Store(next)
	}
	return err
}

// Would returns the policy that the file and c would make, and its document. Do not change the document.
func (s *Stack) Would(c *Contents) (*policy.Policy, *policy.Document, error) {
	next, err := s.make(s.file(), c)
	if err != nil {
		return nil, nil, err
	}
	s.checked.CompareAndSwap(next, nil)
	return next.policy, &next.merged.Document, nil
}

// WouldFile returns the policy that another file and the database would make, and its document. Do not change the
// document. It passes the function to [policy.CompileAt].
func (s *Stack) WouldFile(doc policy.Document, where func(path string) (string, int)) (*policy.Policy, *policy.Document, error) {
	next, err := s.make(&file{doc, where}, s.contents())
	if err != nil {
		return nil, nil, err
	}
	return next.policy, &next.merged.Document, nil
}

// Readable returns a [policy.Errors] about unreadable rows, or nil.
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

// make compiles a file and contents, either of which may be nil. If only overrides and subjects differ from the
// policy in force, it compiles only these. After Check with the same contents, it returns the result of Check.
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

// tables returns the policy of s with the overrides and subjects of the state next.
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

// where returns a function that returns the file and line of a path, or the name of the database.
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

// explain adds the file, the line and the path in the source to each problem.
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

// named adds the name of the database to problems.
func (s *Stack) named(problems policy.Errors) policy.Errors {
	for i := range problems {
		problems[i].File = s.Name
	}
	return problems
}
