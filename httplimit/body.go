package httplimit

import (
	"io"
	"net/http"
)

// peekBody returns the whole body of r if it has at most limit bytes, else nil; where
// there is none, it is empty and not nil. The handler behind us reads everything from
// its beginning, and gets the same error where the body breaks off.
func peekBody(r *http.Request, limit int64) []byte {
	if r.Body == nil || r.Body == http.NoBody {
		return []byte{}
	}
	if r.ContentLength > limit {
		return nil
	}
	read, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	r.Body = &replay{read: read, err: err, rest: r.Body}
	if err != nil || int64(len(read)) > limit {
		return nil
	}
	return read
}

// replay is a body of which the beginning has been read already.
type replay struct {
	read []byte
	err  error // what came behind read; nil if that is for rest to say
	rest io.ReadCloser
}

func (b *replay) Read(p []byte) (int, error) {
	switch {
	case len(b.read) > 0:
		n := copy(p, b.read)
		b.read = b.read[n:]
		return n, nil
	case b.err != nil:
		return 0, b.err
	}
	return b.rest.Read(p)
}

func (b *replay) Close() error { return b.rest.Close() }
