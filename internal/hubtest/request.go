package hubtest

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// The kinds of request.
const (
	kindAPI     = "api"
	kindResolve = "resolve"
	kindData    = "data"
)

// request is what the answer functions know of a request. They fill in kind, repo, path and size.
type request struct {
	*http.Request
	segments []string // of the URL's path, split at unescaped slashes, each unescaped

	kind string
	repo string
	path string // of the file in its release, else of the URL
	size int64  // of the file, 0 if there is none
}

func newRequest(r *http.Request) *request {
	q := &request{Request: r, kind: kindAPI, path: r.URL.Path}
	for _, s := range strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/") {
		u, err := url.PathUnescape(s)
		if err != nil {
			u = s
		}
		q.segments = append(q.segments, u)
	}
	return q
}

// file says that the request is for one file.
func (q *request) file(kind, repo, path string) { q.kind, q.repo, q.path = kind, repo, path }

// token is the bearer token, "" if there is none.
func (q *request) token() string {
	return strings.TrimPrefix(q.Header.Get("Authorization"), "Bearer ")
}

// span is the range that a Range header asks of a file of that size. ok is false if there is none, or one that a server must ignore:
// of another unit, malformed, or of several parts. A satisfiable range is cut at the size; start >= size is not satisfiable.
func span(header string, size int64) (start, end int64, ok bool) {
	spec, found := strings.CutPrefix(header, "bytes=")
	if !found || strings.Contains(spec, ",") {
		return 0, size, false
	}
	from, to, found := strings.Cut(strings.TrimSpace(spec), "-")
	if !found {
		return 0, size, false
	}
	a, errA := strconv.ParseUint(from, 10, 62)
	b, errB := strconv.ParseUint(to, 10, 62)
	switch {
	case from == "" && errB == nil: // the last b bytes
		if b == 0 {
			return size, size, true
		}
		return max(size-int64(b), 0), size, true
	case errA == nil && to == "":
		return int64(a), size, true
	case errA == nil && errB == nil && a <= b:
		return int64(a), min(int64(b)+1, size), true
	}
	return 0, size, false
}
