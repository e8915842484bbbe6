package fs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/iotest"
	"time"

	"weightfs/fs/plan"
	"weightfs/sources"
)

// TestErrnoTable: every kind of failure has its errno and HTTP status, however deep it is wrapped.
func TestErrnoTable(t *testing.T) {
	for _, x := range []struct {
		err    error
		errno  syscall.Errno
		status int
	}{
		{iofs.ErrNotExist, syscall.ENOENT, 404},
		{&iofs.PathError{Op: "open", Path: "x", Err: iofs.ErrNotExist}, syscall.ENOENT, 404},
		{errNotDir, syscall.ENOTDIR, 404},
		{errIsDir, syscall.EISDIR, 409},
		{&sources.Error{Op: "read", Err: sources.ErrChanged}, syscall.ESTALE, 410},
		{&sources.Error{Op: "read", Err: sources.ErrNotFound}, syscall.ESTALE, 410},
		{&sources.Error{Op: "read", Err: sources.ErrDenied}, syscall.EACCES, 403},
		{&sources.Error{Op: "read", Err: sources.ErrCorrupt}, syscall.EIO, 502},
		{&sources.Error{Op: "read", Err: sources.ErrTemporary}, syscall.EIO, 504},
		{&sources.Error{Op: "read", Err: sources.ErrOffline}, syscall.EIO, 504},
		{fmt.Errorf("a: %w", fmt.Errorf("b: %w", plan.ErrBadInput)), syscall.EIO, 502},
		{errDeadline, syscall.EIO, 504},
		{context.DeadlineExceeded, syscall.EIO, 504},
		{errKilled, syscall.EINTR, 503},
		{syscall.EAGAIN, syscall.EIO, 500},
		{syscall.EINTR, syscall.EIO, 500},
		{errors.New("anything"), syscall.EIO, 500},
	} {
		wrapped := fmt.Errorf("read x [1, 2): %w", x.err)
		if e, s := errno(wrapped), answerTo(wrapped).status; e != x.errno || s != x.status {
			t.Errorf("%v: %v, %d; want %v, %d", x.err, e, s, x.errno, x.status)
		}
	}
	if errno(nil) != 0 {
		t.Error("nil has an errno")
	}
}

// TestLogRedaction: no secret stays in a line, and the rest does.
func TestLogRedaction(t *testing.T) {
	var out bytes.Buffer
	log := NewLog(&out, slog.LevelInfo, 0)
	for _, x := range [][2]string{
		{"get https://cdn.example/a/b?X-Amz-Signature=SECRET&x=1 failed", "https://cdn.example/a/b?[redacted] failed"},
		{"header Authorization: Bearer hf_SECRETSECRET1 sent", "Bearer [redacted] sent"},
		{"token is hf_SECRETsecret123", "token is hf_[redacted]"},
		{"https://user:SECRET@host/x", "https://[redacted]@host/x"},
		{"Signature=SECRET&Policy=SECRET", "Signature=[redacted]&Policy=[redacted]"},
		{"read release/model.safetensors [0, 100): temporary failure", "read release/model.safetensors [0, 100): temporary failure"},
	} {
		log.Logger().Info(x[0])
		last := out.String()
		if strings.Contains(strings.ToUpper(last), "SECRET") || !strings.Contains(last, x[1]) {
			t.Errorf("%q became %q", x[0], last)
		}
		if !bytes.HasSuffix(log.Bytes(), out.Bytes()) {
			t.Errorf("the ring has %q", log.Bytes())
		}
		out.Reset()
	}
}

// TestLogRing: the ring keeps whole lines, the last ones.
func TestLogRing(t *testing.T) {
	log := NewLog(nil, slog.LevelInfo, 1000)
	for i := range 500 {
		fmt.Fprintf(log, "line %d\n", i)
	}
	got := string(log.Bytes())
	if len(got) > 1000 || !strings.HasPrefix(got, "line ") || !strings.HasSuffix(got, "line 499\n") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

// TestIOFS: the io/fs door behaves as testing/fstest and testing/iotest ask.
func TestIOFS(t *testing.T) {
	small := plan.NewStatic(
		plan.File("a.txt", plan.New(plan.Literal{Name: "a", Size: 5, Bytes: []byte("hello")})),
		plan.File("zero", plan.New(plan.Zero{Size: 70_000})),
		plan.Folder("dir", plan.NewStatic(copyOf("c.bin", 1, 5000), plan.File("empty", plan.New()), plan.Folder("none", plan.NewStatic()))),
	)
	tree := testTree("org/name")
	tree.Root = small
	c := testConfig(tree)
	c.HideControl = true
	fsys := newFS(t, c).IO(t.Context())
	if err := fstest.TestFS(fsys, "org/name/a.txt", "org/name/zero", "org/name/dir/c.bin", "org/name/dir/empty"); err != nil {
		t.Error(err)
	}
	file, err := fsys.Open("org/name/dir/c.bin")
	if err != nil {
		t.Fatal(err)
	}
	exp := make([]byte, 5000)
	fill(exp, 1, 0)
	if err := iotest.TestReader(file, exp); err != nil {
		t.Error(err)
	}
	if tag, err := file.(Tagged).ETag(); len(tag) != 49 || err != nil {
		t.Errorf("tag %q, %v", tag, err)
	}
	if data, err := iofs.ReadFile(fsys, ".weightfs/status.json"); err != nil || !json.Valid(data) {
		t.Errorf("the hidden status: %q, %v", data, err)
	}
}

// TestIOFSErrors: errors name the path and keep their kind; the context ends reads.
func TestIOFSErrors(t *testing.T) {
	f := newFS(t, testConfig())
	ctx, cancel := context.WithCancel(t.Context())
	fsys := f.IO(ctx)
	for name, kind := range map[string]error{
		"nowhere": iofs.ErrNotExist, "mix.bin/x": iofs.ErrNotExist, "/abs": iofs.ErrInvalid, "failing/refuses.bin": iofs.ErrPermission, "late/x": sources.ErrTemporary,
	} {
		_, err := fsys.Open(name)
		var pe *iofs.PathError
		if !errors.Is(err, kind) || !errors.As(err, &pe) || pe.Path != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := iofs.ReadFile(fsys, "failing/changed.bin"); !errors.Is(err, sources.ErrChanged) || !strings.Contains(err.Error(), "[0, ") {
		t.Errorf("a changed file: %v", err)
	}
	file, err := f.Open(t.Context(), "mix.bin")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if n, err := file.ReadAt(ctx, make([]byte, 10), 8000); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("read with an ended context: %d, %v", n, err)
	}
}

// get does one request. The header "Host" sets the host.
func get(t *testing.T, s *httptest.Server, method, path string, header ...string) (*http.Response, []byte, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, body, err
}

func httpServer(t *testing.T, f *FS) *httptest.Server {
	s := httptest.NewServer(f.Handler(HTTPOptions{Hosts: []string{"models.example"}}))
	s.Config.ErrorLog = nil
	t.Cleanup(s.Close)
	return s
}

// TestHTTPRanges: status, length and bytes for every form of Range.
func TestHTTPRanges(t *testing.T) {
	s := httpServer(t, newFS(t, testConfig()))
	for _, x := range []struct {
		value  string
		status int
		off, n int64
	}{
		{"", 200, 0, mixSize}, {"lines=1-2", 200, 0, mixSize}, {"bytes=0-0", 206, 0, 1}, {"bytes=8000-8099", 206, 8000, 100}, {"bytes=8000-", 206, 8000, mixSize - 8000},
		{"bytes=-100", 206, mixSize - 100, 100}, {"bytes=-99999999999", 206, 0, mixSize}, {"bytes=5-99999999999", 206, 5, mixSize - 5},
		{"bytes=0-1,5-6", 416, 0, 0}, {"bytes=99999999-", 416, 0, 0}, {"bytes=5-4", 416, 0, 0}, {"bytes=-0", 416, 0, 0}, {"bytes=-", 416, 0, 0},
		{"bytes=+1-2", 416, 0, 0}, {"bytes=99999999999999999999-", 416, 0, 0}, {"bytes=a-b", 416, 0, 0},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			header := []string{"Range", x.value}
			if x.value == "" {
				header = nil
			}
			resp, body, err := get(t, s, method, "/mix.bin", header...)
			if resp.StatusCode != x.status || err != nil {
				t.Errorf("%s %q: %d, %v", method, x.value, resp.StatusCode, err)
				continue
			}
			if x.status == 416 {
				if got := resp.Header.Get("Content-Range"); got != fmt.Sprintf("bytes */%d", mixSize) {
					t.Errorf("%q: Content-Range %q", x.value, got)
				}
				continue
			}
			if resp.ContentLength != x.n {
				t.Errorf("%s %q: length %d", method, x.value, resp.ContentLength)
			}
			if got := resp.Header.Get("Content-Range"); x.status == 206 && got != fmt.Sprintf("bytes %d-%d/%d", x.off, x.off+x.n-1, mixSize) {
				t.Errorf("%q: Content-Range %q", x.value, got)
			}
			if exp, _ := want("mix.bin", x.off, x.n); method == "GET" && !bytes.Equal(body, exp) {
				t.Errorf("%q: wrong bytes", x.value)
			}
		}
	}
}

// TestHTTPConditions: strong tags, 304, 412, and a range of another version gives the whole file.
func TestHTTPConditions(t *testing.T) {
	s := httpServer(t, newFS(t, testConfig()))
	resp, _, _ := get(t, s, "HEAD", "/mix.bin")
	tag := resp.Header.Get("ETag")
	if len(tag) != 51 || resp.Header.Get("Last-Modified") != "Tue, 03 Feb 2026 04:05:06 GMT" {
		t.Fatalf("tag %s of %q", tag, resp.Header)
	}
	other := testTree("")
	other.Revision = "another"
	if resp, _, _ := get(t, httpServer(t, newFS(t, testConfig(other))), "HEAD", "/mix.bin"); resp.Header.Get("ETag") == tag {
		t.Error("another revision has the same tag")
	}
	for _, x := range []struct {
		name, value string
		status      int
	}{
		{"If-None-Match", tag, 304}, {"If-None-Match", `"x", W/` + tag, 304}, {"If-None-Match", "*", 304}, {"If-None-Match", `"x"`, 206},
		{"If-Match", tag, 206}, {"If-Match", `"x"`, 412}, {"If-Range", tag, 206}, {"If-Range", `"x"`, 200},
	} {
		if resp, _, _ := get(t, s, "GET", "/mix.bin", x.name, x.value, "Range", "bytes=0-9"); resp.StatusCode != x.status {
			t.Errorf("%s: %s: %d, not %d", x.name, x.value, resp.StatusCode, x.status)
		}
	}
}

// TestHTTPFailures: statuses before the body, a broken connection in the middle of it.
func TestHTTPFailures(t *testing.T) {
	tree := testTree("")
	half := plan.New(plan.Zero{Size: 2 << 20}, plan.Copy{Span: plan.Span{File: fileTemporary, Start: 0, End: 100}})
	tree.Root = plan.NewStatic(append([]plan.Node{plan.File("half.bin", half)}, testRoot().(plan.Static)...)...)
	f := newFS(t, testConfig(tree))
	s := httpServer(t, f)
	for path, status := range map[string]int{
		"/failing/temporary.bin": 504, "/failing/changed.bin": 410, "/failing/denied.bin": 403, "/nowhere": 404, "/mix.bin/x": 404,
		"/.weightfs/log": 403, "/.weightfs/status.json": 200, "/../../etc/passwd": 404, "/empty": 200,
	} {
		resp, body, err := get(t, s, "GET", path)
		if resp.StatusCode != status || err != nil {
			t.Errorf("%s: %d %s, %v", path, resp.StatusCode, body, err)
		}
		if status >= 400 && (resp.Header.Get("ETag") != "" || resp.Header.Get("Content-Type") != "text/plain; charset=utf-8") {
			t.Errorf("%s: an error with %q", path, resp.Header)
		}
	}
	resp, body, err := get(t, s, "GET", "/half.bin")
	if resp.StatusCode != 200 || err == nil || len(body) == 2<<20+100 {
		t.Errorf("a body that fails in the middle: %d, %d bytes, %v", resp.StatusCode, len(body), err)
	}
	if resp, _, _ := get(t, s, "POST", "/mix.bin"); resp.StatusCode != 405 || resp.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d", resp.StatusCode)
	}
	if f.Status().Errors == 0 {
		t.Error("failures are not counted")
	}
}

// TestHTTPHost: on loopback only loopback names and those that were given are answered.
func TestHTTPHost(t *testing.T) {
	s := httpServer(t, newFS(t, testConfig()))
	for host, status := range map[string]int{
		"localhost": 200, "localhost:1234": 200, "127.0.0.1:80": 200, "[::1]:80": 200, "models.example": 200, "evil.example": 421, "localhost.evil.example": 421, "10.0.0.1": 421,
	} {
		if resp, _, _ := get(t, s, "GET", "/config.json", "Host", host); resp.StatusCode != status {
			t.Errorf("%s: %d, not %d", host, resp.StatusCode, status)
		}
	}
}

// TestHTTPListing: directories as escaped text and as JSON.
func TestHTTPListing(t *testing.T) {
	tree := testTree("")
	tree.Root = plan.NewStatic(copyOf("a b<script>.bin", 1, 10), copyOf("x\n.bin", 1, 5), plan.Folder("d", plan.NewStatic()))
	c := testConfig(tree)
	c.HideControl = true
	s := httpServer(t, newFS(t, c))
	_, body, _ := get(t, s, "GET", "/")
	if exp := "a%20b%3Cscript%3E.bin\nd/\nx%0A.bin\n"; string(body) != exp {
		t.Errorf("%q", body)
	}
	_, body, _ = get(t, s, "GET", "/", "Accept", "text/html, application/json;q=0.5")
	if exp := `[{"name":"a b\u003cscript\u003e.bin","size":10},{"name":"d","dir":true,"size":0},{"name":"x\n.bin","size":5}]` + "\n"; string(body) != exp {
		t.Errorf("%s", body)
	}
	resp, _, _ := get(t, s, "GET", "/d")
	if resp.StatusCode != 301 || resp.Header.Get("Location") != "/d/" {
		t.Errorf("a directory without its slash: %d to %q", resp.StatusCode, resp.Header.Get("Location"))
	}
	if resp, body, _ := get(t, s, "GET", "/a%20b%3Cscript%3E.bin"); resp.StatusCode != 200 || len(body) != 10 || resp.Header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("a file with an odd name: %d, %d bytes, %s", resp.StatusCode, len(body), resp.Header.Get("Content-Type"))
	}
}

// FuzzRange: a range that is accepted lies in the file.
func FuzzRange(f *testing.F) {
	for _, s := range []string{"bytes=0-0", "bytes=-5", "bytes=3-", "bytes=0-1,2-3", "bytes=-", "bytes=18446744073709551615-", "bytes= 1-2", ""} {
		f.Add(s, int64(10))
	}
	f.Fuzz(func(t *testing.T, value string, size int64) {
		start, n, err := parseRange(value, max(0, size))
		if err == nil && (start < 0 || n <= 0 || start > size-n) {
			t.Errorf("%q of %d: [%d, +%d)", value, size, start, n)
		}
	})
}

// TestHTTPBrowsers: pages from this machine and from named origins may read, with ranges and preflights; others may not.
func TestHTTPBrowsers(t *testing.T) {
	f := newFS(t, testConfig())
	s := httptest.NewServer(f.Handler(HTTPOptions{Origins: []string{"https://app.example"}}))
	defer s.Close()
	for origin, ok := range map[string]bool{
		"https://app.example": true, "http://localhost:3000": true, "http://127.0.0.1": true, s.URL: true,
		"https://evil.example": false, "http://app.example": false, "null": false, "https://localhost.evil.example": false, "http://evil.example@localhost.x": false,
	} {
		resp, _, _ := get(t, s, "GET", "/mix.bin", "Origin", origin, "Range", "bytes=0-9")
		allowed := resp.Header.Get("Access-Control-Allow-Origin")
		if ok && (resp.StatusCode != 206 || allowed != origin || !strings.Contains(resp.Header.Get("Access-Control-Expose-Headers"), "Content-Range")) {
			t.Errorf("%s: %d, %q", origin, resp.StatusCode, resp.Header)
		}
		if !ok && (resp.StatusCode != 403 || allowed != "") {
			t.Errorf("%s: %d, %q", origin, resp.StatusCode, resp.Header)
		}
	}
	resp, _, _ := get(t, s, "OPTIONS", "/mix.bin", "Origin", "https://app.example", "Access-Control-Request-Private-Network", "true")
	if h := resp.Header; resp.StatusCode != 204 || h.Get("Access-Control-Allow-Private-Network") != "true" || !strings.Contains(h.Get("Access-Control-Allow-Headers"), "Range") {
		t.Errorf("preflight: %d, %q", resp.StatusCode, h)
	}
	resp, _, _ = get(t, s, "GET", "/mix.bin")
	for name, part := range map[string]string{"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin"} {
		if got := resp.Header.Get(name); !strings.Contains(got, part) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestHTTPToken: with a token set, nothing is served without it.
func TestHTTPToken(t *testing.T) {
	s := httptest.NewServer(newFS(t, testConfig()).Handler(HTTPOptions{Token: "right"}))
	defer s.Close()
	for value, status := range map[string]int{"Bearer right": 200, "Bearer wrong": 401, "": 401, "right": 401, "Basic right": 401} {
		if resp, body, _ := get(t, s, "GET", "/config.json", "Authorization", value); resp.StatusCode != status {
			t.Errorf("%q: %d %s", value, resp.StatusCode, body)
		}
	}
}

// TestHTTPSlowClient: a client that asks for much and takes nothing is left, and does not get a whole body later.
func TestHTTPSlowClient(t *testing.T) {
	door := &httpDoor{fs: newFS(t, testConfig()), take: 50 * time.Millisecond}
	ended := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		door.ServeHTTP(w, r)
	}))
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /big.bin HTTP/1.1\r\nHost: localhost\r\n\r\n")
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the server still waits for its client")
	}
	if n, _ := io.Copy(io.Discard, conn); n >= bigSize {
		t.Errorf("a client that was left gets %d bytes", n)
	}
}

// FuzzHTTP: whatever is asked for, the answer is a status of the table's, and a body that is as long as it says.
func FuzzHTTP(f *testing.F) {
	for _, x := range [][3]string{
		{"/mix.bin", "bytes=0-9", ""}, {"/", "", "application/json"}, {"/blocks/E00001.bin", "bytes=-1", "*"}, {"//../x%2f..", "bytes=1-0", ","},
		{"/failing/changed.bin", "", ""}, {"/.weightfs/log", "", ""}, {"/\x00", "", ""},
	} {
		f.Add(x[0], x[1], x[2])
	}
	fsys, err := New(testConfig())
	if err != nil {
		f.Fatal(err)
	}
	h := fsys.Handler(HTTPOptions{})
	f.Fuzz(func(t *testing.T, path, value, accept string) {
		if strings.HasPrefix(path, "/failing/hangs") || strings.HasPrefix(path, "/failing/panics") {
			return
		}
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		r.URL.Path = path
		r.Header.Set("Range", value)
		r.Header.Set("Accept", accept)
		h.ServeHTTP(w, r)
		switch w.Code {
		case 200, 206, 301, 403, 404, 410, 416, 500, 504:
		default:
			t.Errorf("%q %q: status %d", path, value, w.Code)
		}
		if n := w.Header().Get("Content-Length"); n != "" && w.Code < 300 && n != fmt.Sprint(w.Body.Len()) {
			t.Errorf("%q %q: %s bytes were promised, %d came", path, value, n, w.Body.Len())
		}
	})
}
