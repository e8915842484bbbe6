package sources

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
)

// remote is the pinned state of one remote file. All blobs of the file share it: what one of them finds to have changed has changed
// for all.
type remote struct {
	c     *client
	entry Entry
	id    ID
	fetch func(ctx context.Context, r ranged) (io.ReadCloser, error)
	gone  atomic.Pointer[error] // why the file is not the pinned one any more
}

// remoteBlob is an open remote file. There is nothing to close: connections belong to the client.
type remoteBlob struct{ *remote }

func (b remoteBlob) Size() int64  { return b.entry.Size }
func (b remoteBlob) ID() ID       { return b.id }
func (b remoteBlob) Close() error { return nil }

// Stream asks for the range in one request. Where the server does not say how long its reply is, ranges of more than 16 MiB fail.
func (b remoteBlob) Stream(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	if off < 0 || n < 0 || off > b.entry.Size-n {
		return nil, b.failed(off, n, fmt.Errorf("beyond the file's %d bytes", b.entry.Size))
	}
	if n == 0 {
		return io.NopCloser(bytes.NewReader(nil)), nil
	}
	if why := b.gone.Load(); why != nil {
		return nil, b.failed(off, n, *why)
	}
	rc, err := b.fetch(ctx, ranged{off: off, n: n, size: b.entry.Size})
	if err != nil {
		return nil, b.failed(off, n, err)
	}
	return &remoteReader{rc, b.remote, off, n}, nil
}

// failed names the file and the range, counts, and makes a change sticky.
func (f *remote) failed(off, n int64, err error) error {
	if errors.Is(err, ErrBroken) {
		f.c.o.count(func(m *Metrics) *atomic.Int64 { return &m.Refused }, 1)
	}
	if errors.Is(err, ErrChanged) && statusOf(err) != http.StatusNotFound {
		f.gone.CompareAndSwap(nil, &err)
	}
	return &Error{Op: "read", Path: f.entry.Path, Off: off, Len: n, Err: err}
}

type remoteReader struct {
	io.ReadCloser
	f      *remote
	off, n int64 // still to come
}

func (r *remoteReader) Read(p []byte) (int, error) {
	k, err := r.ReadCloser.Read(p)
	r.off, r.n = r.off+int64(k), r.n-int64(k)
	r.f.c.o.count(func(m *Metrics) *atomic.Int64 { return &m.Bytes }, int64(k))
	if err != nil && err != io.EOF {
		err = r.f.failed(r.off, r.n, err)
	}
	return k, err
}

// getRange asks for one range and returns its bytes, and the validator of the reply.
func (c *client) getRange(ctx context.Context, r request, rg ranged) (io.ReadCloser, validator, error) {
	g := c.gate(r.url)
	body, v, err := c.askRange(ctx, r, rg)
	var refused *brokenError
	if errors.As(err, &refused) {
		refused.passing = g.ranged.Load()
	} else if err == nil {
		g.ranged.Store(true)
	}
	return body, v, err
}

func (c *client) askRange(ctx context.Context, r request, rg ranged) (io.ReadCloser, validator, error) {
	if r.method = http.MethodGet; r.header == nil {
		r.header = http.Header{}
	}
	r.header.Set("Range", fmt.Sprintf("bytes=%d-%d", rg.off, rg.off+rg.n-1))
	rep, err := c.send(ctx, r)
	if err != nil {
		return nil, validator{}, err
	}
	skip, length, err := rg.accept(rep.Response)
	if err != nil {
		c.logRefusal(rep)
		rep.Body.Close()
		return nil, validator{}, fmt.Errorf("%s: %w", place(rep.url), err)
	}
	body, err := rangeBody(rep.Response, skip, length, rg.n)
	if err != nil {
		return nil, validator{}, err
	}
	return body, validatorOf(rep.Header), nil
}

// logRefusal puts the beginning of an error's body into the log: the clouds explain there what a bare 403 means.
func (c *client) logRefusal(rep *reply) {
	if rep.StatusCode < 400 {
		return
	}
	text, _ := io.ReadAll(io.LimitReader(rep.Body, maxErrorBody))
	said := scrub(string(text), rep.url)
	if len(said) > 200 {
		said = said[:200]
	}
	c.o.log().Warn("a range was refused", "from", place(rep.url), "status", rep.StatusCode, "body", printable(said))
}

// scrub removes from a server's text the query of the URL it answers, in any form it may be quoted in: a signature is a secret.
func scrub(text string, u *url.URL) string {
	secrets := []string{u.RawQuery}
	for part := range strings.SplitSeq(u.RawQuery, "&") {
		_, v, _ := strings.Cut(part, "=")
		plain, _ := url.QueryUnescape(v)
		secrets = append(secrets, v, plain)
	}
	for _, s := range secrets {
		if len(s) >= 6 {
			text = strings.ReplaceAll(text, s, "[redacted]")
		}
	}
	return text
}
