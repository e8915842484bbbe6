package sourcetest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Commit is the commit that every branch of a Server's repository points to.
const Commit = "0123456789abcdef0123456789abcdef01234567"

// Secret is in the signature of every signed address.
const Secret = "s3cretsignature"

// Server is a repository on a stand-in hub and its CDN, two servers on different ports and addresses. It is also a plain file server
// below /plain/. Fields are set before the first request, Inject may be called at any time.
type Server struct {
	Repo  string // org/name
	Files Truth
	// Token is needed to read anything, "" if nothing is.
	Token string
	// Gated repositories are listed for everyone, their model card is read by everyone, the other files are refused to the token NoAccess.
	Gated    bool
	NoAccess string
	// PageSize is the number of entries of a tree page.
	PageSize int
	// Direct answers for small files at resolve itself, rather than after a relative redirect.
	Direct bool
	// Life is how long a signed address is good for.
	Life time.Duration
	// Weak, NoETag: what the plain server says of its files. It always says Last-Modified.
	Weak, NoETag bool

	HubURL, CDNURL string

	mu     sync.Mutex // guards the fields below
	faults []*Fault
	log    []Request
	hashes map[string]string
}

// Request is a line of the server's ledger.
type Request struct {
	Kind       string // api, resolve, data (a request to the CDN), plain
	Method     string
	Path       string // of the file in the release for all but api
	Start, End int64  // of the range, 0 and the size without one
	Auth       bool
	Status     int
	Bytes      int64 // of the body
	At         time.Time
}

// Fault is a reply that is not the right one, for requests of a kind and a part of the path, a number of times (0 for always). Do may
// call right to give the right reply, to w or to a writer of its own.
type Fault struct {
	Kind, Path string
	Times      int
	Do         func(w http.ResponseWriter, r *http.Request, right http.Handler)

	done int
}

// Start serves on two loopback addresses until the test ends.
func Start(t testing.TB, s *Server) *Server {
	t.Helper()
	hub, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cdn, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	s.serve(t, hub, cdn)
	return s
}

// StartIn serves at hub.test and cdn.test in a network in memory.
func StartIn(t testing.TB, n *MemNet, s *Server) *Server {
	s.serve(t, n.Listen("hub.test:80"), n.Listen("cdn.test:80"))
	s.HubURL, s.CDNURL = "http://hub.test", "http://cdn.test"
	return s
}

func (s *Server) serve(t testing.TB, hub, cdn net.Listener) {
	if s.Repo == "" {
		s.Repo = "org/small"
	}
	if s.PageSize == 0 {
		s.PageSize = 4
	}
	if s.Life == 0 {
		s.Life = time.Hour
	}
	s.hashes = map[string]string{}
	s.HubURL, s.CDNURL = "http://"+hub.Addr().String(), "http://"+cdn.Addr().String()
	for l, h := range map[net.Listener]http.Handler{hub: http.HandlerFunc(s.hub), cdn: http.HandlerFunc(s.cdn)} {
		srv := &http.Server{Handler: h, ErrorLog: quiet()}
		done := make(chan struct{})
		go func() { defer close(done); srv.Serve(l) }()
		t.Cleanup(func() { srv.Close(); <-done })
	}
}

// Inject adds a fault. The first that fits a request is taken.
func (s *Server) Inject(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
}

// Heal removes all faults.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// Log is the ledger so far, without the requests before mark lines of it.
func (s *Server) Log(mark int) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.log[mark:]...)
}

// fault is the fault for a request, nil for none.
func (s *Server) fault(kind, path string) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.faults {
		if (f.Kind == "" || f.Kind == kind) && strings.Contains(path, f.Path) && (f.Times == 0 || f.done < f.Times) {
			f.done++
			return f
		}
	}
	return nil
}

// answer gives the right reply or a fault, and writes the ledger.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, kind, path string, size int64, right http.HandlerFunc) {
	line := Request{Kind: kind, Method: r.Method, Path: path, End: size, Auth: r.Header.Get("Authorization") != "", At: time.Now()}
	if a, b, ok := rangeOf(r, size); ok {
		line.Start, line.End = a, b+1
	}
	s.mu.Lock()
	at := len(s.log)
	s.log = append(s.log, line)
	s.mu.Unlock()
	cw := &counter{ResponseWriter: w, status: http.StatusOK}
	defer func() {
		s.mu.Lock()
		s.log[at].Status, s.log[at].Bytes = cw.status, cw.n
		s.mu.Unlock()
	}()
	if f := s.fault(kind, path); f != nil {
		f.Do(cw, r, right)
		return
	}
	right(cw, r)
}

type counter struct {
	http.ResponseWriter
	status int
	n      int64
}

func (c *counter) WriteHeader(status int) { c.status = status; c.ResponseWriter.WriteHeader(status) }
func (c *counter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.n += int64(n)
	return n, err
}
func (c *counter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (s *Server) hub(w http.ResponseWriter, r *http.Request) {
	p := r.URL.EscapedPath()
	resolve := "/" + s.Repo + "/resolve/"
	cache := "/api/resolve-cache/models/" + s.Repo + "/"
	switch {
	case strings.HasPrefix(p, "/plain/"):
		s.file(w, r, "plain", strings.TrimPrefix(p, "/plain/"), s.plain)
	case strings.HasPrefix(p, resolve):
		rev, file, _ := strings.Cut(strings.TrimPrefix(p, resolve), "/")
		s.file(w, r, "resolve", file, func(w http.ResponseWriter, r *http.Request, f *File) { s.resolve(w, r, rev, f) })
	case strings.HasPrefix(p, cache):
		_, file, _ := strings.Cut(strings.TrimPrefix(p, cache), "/")
		s.file(w, r, "resolve", file, func(w http.ResponseWriter, r *http.Request, f *File) {
			if s.Gated && f.Path == "README.md" || s.admit(w, r) {
				s.small(w, r, f)
			}
		})
	default:
		s.answer(w, r, "api", p, 0, s.api)
	}
}

// file finds the file of an escaped path and answers for it.
func (s *Server) file(w http.ResponseWriter, r *http.Request, kind, escaped string, right func(http.ResponseWriter, *http.Request, *File)) {
	path, _ := url.PathUnescape(escaped)
	f := s.Files.Find(path)
	if f == nil {
		s.answer(w, r, kind, path, 0, func(w http.ResponseWriter, r *http.Request) {
			refuse(w, http.StatusNotFound, "EntryNotFound", "Entry not found")
		})
		return
	}
	s.answer(w, r, kind, path, f.Size, func(w http.ResponseWriter, r *http.Request) { right(w, r, f) })
}

// refuse gives an error as the Hub words it.
func refuse(w http.ResponseWriter, status int, code, message string) {
	if code != "" {
		w.Header().Set("X-Error-Code", code)
	}
	w.Header().Set("X-Error-Message", message)
	w.Header().Set("X-Request-Id", "Root=1-feed")
	http.Error(w, message, status)
}

// admit checks the token.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) bool {
	got := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case s.Token == "" && !s.Gated, got == s.Token && got != "":
		return true
	case s.Gated && got == s.NoAccess && got != "":
		refuse(w, http.StatusForbidden, "GatedRepo", "Access to model "+s.Repo+" is restricted and you are not in the authorized list.")
	case s.Gated:
		refuse(w, http.StatusUnauthorized, "GatedRepo", "Access to model "+s.Repo+" is restricted. You must be authenticated to access it.")
	case got == "":
		refuse(w, http.StatusUnauthorized, "RepoNotFound", "Repository not found")
	default:
		refuse(w, http.StatusUnauthorized, "", "Invalid credentials in Authorization header")
	}
	return false
}

func (s *Server) api(w http.ResponseWriter, r *http.Request) {
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), "/api/models/"+s.Repo+"/")
	if !ok {
		refuse(w, map[bool]int{true: 404, false: 401}[r.Header.Get("Authorization") != ""], "RepoNotFound", "Repository not found")
		return
	}
	if !s.Gated && !s.admit(w, r) {
		return
	}
	what, rev, _ := strings.Cut(rest, "/")
	if rev, _ = url.PathUnescape(rev); rev != "main" && rev != "refs/pr/1" && rev != Commit {
		refuse(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+rev)
		return
	}
	switch what {
	case "revision":
		gated := any(false)
		if s.Gated {
			gated = "manual"
		}
		json.NewEncoder(w).Encode(map[string]any{"id": s.Repo, "sha": Commit, "lastModified": "2026-01-02T03:04:05.000Z", "gated": gated,
			"private": s.Token != "" && !s.Gated, "disabled": false})
	case "tree":
		s.tree(w, r)
	default:
		refuse(w, http.StatusNotFound, "", "Sorry, we can't find the page you are looking for.")
	}
}

// tree gives one page; the cursor is the number of the first entry.
func (s *Server) tree(w http.ResponseWriter, r *http.Request) {
	from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	to := min(from+s.PageSize, len(s.Files))
	entries := []map[string]any{}
	for i := range s.Files[from:to] {
		f := &s.Files[from+i]
		e := map[string]any{"type": "file", "path": f.Path, "size": f.Size}
		if lfs(f) {
			e["lfs"] = map[string]any{"oid": s.sha256(f), "size": f.Size, "pointerSize": 134}
			e["oid"] = "00000000000000000000000000000000000000aa" // the pointer's
		} else {
			e["oid"] = f.GitOID()
		}
		entries = append(entries, e)
	}
	if to < len(s.Files) {
		q := r.URL.Query()
		q.Set("cursor", strconv.Itoa(to))
		w.Header().Set("Link", fmt.Sprintf(`<%s%s?%s>; rel="next"`, s.HubURL, r.URL.EscapedPath(), q.Encode()))
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(entries)
}

func lfs(f *File) bool { return strings.HasSuffix(f.Path, ".safetensors") }

func (s *Server) sha256(f *File) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hashes[f.Path] == "" {
		s.hashes[f.Path] = f.SHA256()
	}
	return s.hashes[f.Path]
}

// resolve answers for a file: a signed address on the CDN for LFS files, a relative redirect or the bytes for others.
func (s *Server) resolve(w http.ResponseWriter, r *http.Request, rev string, f *File) {
	if !(s.Gated && f.Path == "README.md") && !s.admit(w, r) {
		return
	}
	if rev != Commit && rev != "main" {
		refuse(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+rev)
		return
	}
	h := w.Header()
	h.Set("X-Repo-Commit", Commit)
	switch {
	case lfs(f):
		h.Set("X-Linked-Size", strconv.FormatInt(f.Size, 10))
		h.Set("X-Linked-ETag", `"`+s.sha256(f)+`"`)
		h.Set("ETag", `"00000000000000000000000000000000000000aa"`)
		h.Set("Location", fmt.Sprintf("%s/lfs/%s?Expires=%d&Signature=%s", s.CDNURL, url.PathEscape(f.Path), time.Now().Add(s.Life).Unix(), Secret))
		w.WriteHeader(http.StatusFound)
	case s.Direct:
		s.small(w, r, f)
	default:
		h.Set("Location", "/api/resolve-cache/models/"+s.Repo+"/"+Commit+"/"+(&url.URL{Path: f.Path}).EscapedPath()+"?etag=%22"+f.GitOID()+"%22")
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
}

// small gives the bytes of a file that is in git itself.
func (s *Server) small(w http.ResponseWriter, r *http.Request, f *File) {
	w.Header().Set("X-Repo-Commit", Commit)
	w.Header().Set("ETag", `"`+f.GitOID()+`"`)
	ServeRange(w, r, f)
}

// cdn gives the bytes of an LFS file to whoever has an address that is signed and not over.
func (s *Server) cdn(w http.ResponseWriter, r *http.Request) {
	s.file(w, r, "data", strings.TrimPrefix(r.URL.EscapedPath(), "/lfs/"), func(w http.ResponseWriter, r *http.Request, f *File) {
		end, _ := strconv.ParseInt(r.URL.Query().Get("Expires"), 10, 64)
		if r.URL.Query().Get("Signature") != Secret || time.Now().Unix() >= end {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, "<Error><Code>AccessDenied</Code><Message>Request has expired</Message><Url>%s</Url></Error>", r.URL)
			return
		}
		w.Header().Set("ETag", `"cdn-`+s.sha256(f)[:8]+`"`)
		ServeRange(w, r, f)
	})
}

// plain is a file server that knows conditions.
func (s *Server) plain(w http.ResponseWriter, r *http.Request, f *File) {
	modified := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w.Header().Set("Last-Modified", modified.Format(http.TimeFormat))
	etag := fmt.Sprintf(`"%x-%x"`, f.Size, splitmix(uint64(len(f.Path))))
	if s.Weak {
		etag = "W/" + etag
	}
	if !s.NoETag {
		w.Header().Set("ETag", etag)
	}
	if m := r.Header.Get("If-Match"); m != "" && (m != etag || s.Weak) {
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	}
	ServeRange(w, r, f)
}

// rangeOf reads "bytes=a-b" of a request for a file of that size.
func rangeOf(r *http.Request, size int64) (a, b int64, ok bool) {
	n, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &a, &b)
	return a, min(b, size-1), err == nil && n == 2
}

// ServeRange answers a GET or HEAD for a file, with or without a range, as RFC 9110 says.
func ServeRange(w http.ResponseWriter, r *http.Request, f *File) {
	h := w.Header()
	h.Set("Accept-Ranges", "bytes")
	a, b, ok := rangeOf(r, f.Size)
	status := http.StatusPartialContent
	switch {
	case !ok || r.Method == http.MethodHead:
		a, b, status = 0, f.Size-1, http.StatusOK
	case a >= f.Size || a > b:
		h.Set("Content-Range", fmt.Sprintf("bytes */%d", f.Size))
		w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		return
	default:
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", a, b, f.Size))
	}
	h.Set("Content-Length", strconv.FormatInt(b-a+1, 10))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		WriteSpan(w, f, a, b+1)
	}
}

// WriteSpan writes the bytes [a, b) of a file.
func WriteSpan(w io.Writer, f *File, a, b int64) {
	const step = 64 << 10
	for ; a < b; a += step {
		if _, err := w.Write(f.Slice(a, min(step, b-a))); err != nil {
			return
		}
	}
}
