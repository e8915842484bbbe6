package sources

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// maxPiece is the longest range that is held in memory, where a server does not say how long its reply is.
const maxPiece = 16 << 20

// maxWhole is the largest file of which a whole copy is taken for an answer to a range of it. Files that a hub keeps in git itself are
// smaller.
const maxWhole = maxPiece

// ranged is a range that was asked for, of a file that is pinned.
type ranged struct {
	off, n, size int64
	pin          validator
}

// validator is what a server says to tell one content of a URL from another.
type validator struct {
	etag     string // as sent, with quotes and W/
	modified string // Last-Modified as sent
}

func validatorOf(h http.Header) validator {
	return validator{etag: strings.TrimSpace(h.Get("ETag")), modified: strings.TrimSpace(h.Get("Last-Modified"))}
}

// strongETag is the ETag if it is a strong one, else "".
func (v validator) strongETag() string {
	if len(v.etag) > 2 && v.etag[0] == '"' && v.etag[len(v.etag)-1] == '"' {
		return v.etag
	}
	return ""
}

// conditions are the headers that make a server refuse the request for another content.
func (v validator) conditions() http.Header {
	if e := v.strongETag(); e != "" {
		return http.Header{"If-Match": {e}}
	}
	if v.etag == "" && v.modified != "" {
		return http.Header{"If-Unmodified-Since": {v.modified}}
	}
	return http.Header{}
}

// differs says how a reply's validator contradicts the pinned one, "" if it does not. A missing one contradicts nothing.
func (v validator) differs(got validator) string {
	if v.etag != "" && got.etag != "" {
		if bare(v.etag) != bare(got.etag) {
			return fmt.Sprintf("ETag %s, was %s", printable(got.etag), printable(v.etag))
		}
		return ""
	}
	if v.modified != "" && got.modified != "" && v.modified != got.modified {
		return fmt.Sprintf("Last-Modified %s, was %s", printable(got.modified), printable(v.modified))
	}
	return ""
}

// bare is an ETag without W/ and quotes.
func bare(etag string) string {
	return strings.Trim(strings.TrimPrefix(etag, "W/"), `"`)
}

// accept is the rule for the reply to a range request: a 206 with exactly the range that was asked for, of a file of the pinned size and
// validator, not encoded and not multipart; or a 200 that is the whole file where that is all that was asked for, or small. It
// returns where in the body the range begins and how long the body is. The error is [ErrChanged] if the file is another one now,
// [ErrBroken] if the reply cannot be trusted, else what the status means; the body is not touched.
func (r ranged) accept(resp *http.Response) (skip, length int64, err error) {
	switch resp.StatusCode {
	case http.StatusPartialContent:
		return 0, r.n, r.accept206(resp)
	case http.StatusOK:
		return r.off, r.size, r.accept200(resp)
	case http.StatusRequestedRangeNotSatisfiable:
		return 0, 0, r.refused416(resp.Header)
	}
	return 0, 0, kindOf(resp.StatusCode, statusText(resp))
}

func (r ranged) accept206(resp *http.Response) error {
	lines := resp.Header.Values("Content-Range")
	if len(lines) != 1 {
		return broken("206 with %d Content-Range headers for bytes %d-%d", len(lines), r.off, r.off+r.n-1)
	}
	a, b, total, ok := parseContentRange(lines[0])
	switch {
	case !ok:
		return broken("206 with Content-Range %s", printable(lines[0]))
	case total != r.size:
		return changed("the file has %d bytes, was %d", total, r.size)
	case a != r.off || b != r.off+r.n-1:
		return broken("206 with bytes %d-%d for bytes %d-%d", a, b, r.off, r.off+r.n-1)
	case r.pin.differs(validatorOf(resp.Header)) != "":
		return changed("%s", r.pin.differs(validatorOf(resp.Header)))
	}
	return plain(resp, r.n)
}

// accept200 never says that the file has changed: a login page of some proxy is a 200, too.
func (r ranged) accept200(resp *http.Response) error {
	switch {
	case r.n != r.size && r.size > maxWhole:
		return broken("200 with the whole file for bytes %d-%d: the server does not know ranges, which weightfs needs", r.off, r.off+r.n-1)
	case r.pin.differs(validatorOf(resp.Header)) != "":
		return broken("200 with %s", r.pin.differs(validatorOf(resp.Header)))
	}
	return plain(resp, r.size)
}

// plain checks that the body is n bytes as they are, as far as the headers say.
func plain(resp *http.Response, n int64) error {
	switch enc := resp.Header.Get("Content-Encoding"); {
	case enc != "" && !strings.EqualFold(enc, identityEncoding):
		return broken("%d with Content-Encoding %s, which was not asked for", resp.StatusCode, printable(enc))
	case strings.HasPrefix(strings.ToLower(resp.Header.Get("Content-Type")), "multipart/"):
		return broken("%d with several parts", resp.StatusCode)
	case resp.ContentLength >= 0 && resp.ContentLength != n:
		return broken("%d with %d bytes for %d", resp.StatusCode, resp.ContentLength, n)
	case resp.ContentLength < 0 && n > maxPiece:
		return broken("%d without Content-Length for a range of %d bytes", resp.StatusCode, n)
	}
	return nil
}

// refused416 tells a file that has another size now from a server that refuses a range that it has.
func (r ranged) refused416(h http.Header) error {
	text, ok := strings.CutPrefix(h.Get("Content-Range"), "bytes */")
	total, okN := decimal(text)
	switch {
	case !ok || !okN:
		return broken("416 for bytes %d-%d of %d, without the size", r.off, r.off+r.n-1, r.size)
	case total != r.size:
		return changed("the file has %d bytes, was %d", total, r.size)
	}
	return temporary("416 for bytes %d-%d, which the file of %d bytes has", r.off, r.off+r.n-1, r.size)
}

// parseContentRange reads "bytes a-b/N".
func parseContentRange(s string) (a, b, total int64, ok bool) {
	unit, rest, _ := strings.Cut(s, " ")
	span, size, _ := strings.Cut(rest, "/")
	first, last, _ := strings.Cut(span, "-")
	a, ok1 := decimal(first)
	b, ok2 := decimal(last)
	total, ok3 := decimal(size)
	ok = strings.EqualFold(unit, "bytes") && ok1 && ok2 && ok3 && a <= b && b < total
	return a, b, total, ok
}

// decimal is s as a number written in digits alone, below 2^63.
func decimal(s string) (int64, bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// rangeBody is the reader of the n bytes that were asked for in an accepted reply. With a Content-Length the transport ends the body
// there and reports a shorter one. Without, the whole range is read first, because only the end shows whether it was the right length.
func rangeBody(resp *http.Response, skip, length, n int64) (io.ReadCloser, error) {
	if resp.ContentLength == length && skip == 0 && n == length {
		if w, ok := resp.Body.(*watched); ok {
			w.rest = n
		}
		return &exactBody{body: resp.Body, left: n, n: n}, nil
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(io.LimitReader(resp.Body, length+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(all)) < length:
		return nil, temporary("the body ended after %d of %d bytes", len(all), length)
	case int64(len(all)) > length:
		return nil, broken("a body longer than %d bytes", length)
	}
	return io.NopCloser(bytes.NewReader(all[skip : skip+n])), nil
}

// exactBody yields n bytes and io.EOF, or an error.
type exactBody struct {
	body    io.ReadCloser
	left, n int64
	err     error
}

func (b *exactBody) Read(p []byte) (int, error) {
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	k, err := b.body.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(k)
	switch {
	case b.left == 0 && (err == nil || err == io.EOF):
		b.err = io.EOF
	case err == io.EOF:
		b.err = temporary("the body ended after %d of %d bytes", b.n-b.left, b.n)
	default:
		b.err = err
	}
	if k > 0 && b.err == io.EOF {
		return k, nil
	}
	return k, b.err
}

func (b *exactBody) Close() error { return b.body.Close() }
