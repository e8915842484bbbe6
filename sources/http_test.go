package sources_test

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"weightfs/sources"
	"weightfs/sources/sourcetest"
)

func paths(l *sources.Listing) (p []string) {
	for _, f := range l.Files {
		p = append(p, f.Path)
	}
	return p
}

// TestHTTPListing: the index names the shards, the table the other files; each costs one header request.
func TestHTTPListing(t *testing.T) {
	s := sourcetest.Start(t, &sourcetest.Server{Files: append(withIndex(sourcetest.Small()), sourcetest.Bytes("unknown.bin", []byte("x")))})
	l, err := newHTTP(t, s.HubURL+"/plain", options(t)).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"README.md", "config.json", shard, "model-00002-of-00002.safetensors", "model.safetensors.index.json"}
	if !reflect.DeepEqual(paths(l), want) || l.Complete || len(l.Hidden) > 0 || l.Name != s.HubURL+"/plain/" || l.Time.Year() != 2026 {
		t.Errorf("got %+v", l)
	}
	asked := map[string]int{}
	for _, r := range s.Log(0) {
		asked[r.Method+" "+r.Path]++
		if r.Method == http.MethodGet && !strings.HasSuffix(r.Path, "index.json") {
			t.Errorf("a body was asked for: %+v", r)
		}
	}
	for what, n := range asked {
		if n != 1 {
			t.Errorf("%s: asked %d times", what, n)
		}
	}
}

// TestHTTPOddServers: what becomes of servers that are not quite file servers.
func TestHTTPOddServers(t *testing.T) {
	files := withIndex(sourcetest.Small())
	for _, c := range []struct {
		name   string
		faults []sourcetest.Fault
		files  string // that are listed, "" for an error
		hidden string // a name and a reason
		err    error
		words  string
	}{
		{name: "missing shard", faults: []sourcetest.Fault{{Path: shard, Do: sourcetest.Status(404)}}, files: "README.md config.json model-00002-of-00002.safetensors model.safetensors.index.json",
			hidden: shard + ": named by model.safetensors.index.json, but"},
		{name: "403 for what is missing", faults: []sourcetest.Fault{{Path: "README.md", Do: sourcetest.Status(403)}}, files: "config.json " + shard + " model-00002-of-00002.safetensors model.safetensors.index.json"},
		{name: "403 for all", faults: []sourcetest.Fault{{Do: sourcetest.Status(403)}}, err: sources.ErrDenied, words: "403 Forbidden"},
		{name: "404 for all", faults: []sourcetest.Fault{{Do: sourcetest.Status(404)}}, err: sources.ErrNotFound, words: "none of the files of a release"},
		{name: "web pages for all", faults: []sourcetest.Fault{{Do: sourcetest.Header("Content-Type", "text/html; charset=utf-8")}}, err: sources.ErrNotFound, words: "none of the files"},
		{name: "once 503", faults: []sourcetest.Fault{{Path: "config.json", Times: 1, Do: sourcetest.Status(503)}}, files: "README.md config.json " + shard + " model-00002-of-00002.safetensors model.safetensors.index.json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := sourcetest.Start(t, &sourcetest.Server{Files: files})
			for _, f := range c.faults {
				s.Inject(f)
			}
			l, err := newHTTP(t, s.HubURL+"/plain/", options(t)).List(t.Context())
			if c.err != nil {
				if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.words) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(paths(l), " "); got != c.files {
				t.Errorf("files %s", got)
			}
			if c.hidden != "" && (len(l.Hidden) != 1 || !strings.HasPrefix(l.Hidden[0].Path+": "+l.Hidden[0].Reason, c.hidden)) {
				t.Errorf("hidden %v", l.Hidden)
			}
		})
	}
}

// TestHTTPRedirected: files that are kept at another server are read there.
func TestHTTPRedirected(t *testing.T) {
	s := sourcetest.Start(t, &sourcetest.Server{Files: sourcetest.Small()})
	front := newStranger(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, s.HubURL+"/plain"+r.URL.Path+"?Signature="+sourcetest.Secret, http.StatusFound)
	})
	src := newHTTP(t, front.URL+"/"+shard, options(t))
	if _, err := read(t, s, open(t, src, shard), shard, 7, 1000); err != nil {
		t.Error(err)
	}
}

// TestHTTPSigned: a signed address permits one method only, so HEAD is refused.
func TestHTTPSigned(t *testing.T) {
	s := sourcetest.Start(t, &sourcetest.Server{Files: sourcetest.Small()})
	s.Inject(sourcetest.Fault{Kind: "plain", Do: func(w http.ResponseWriter, r *http.Request, right http.Handler) {
		if r.Method != http.MethodGet || r.URL.RawQuery != "Signature="+sourcetest.Secret {
			sourcetest.Status(403)(w, r, right)
			return
		}
		right.ServeHTTP(w, r)
	}})
	src := newHTTP(t, s.HubURL+"/plain/"+shard+"?Signature="+sourcetest.Secret, options(t))
	if l, err := src.List(t.Context()); err != nil || strings.Contains(l.Name, sourcetest.Secret) {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := read(t, s, open(t, src, shard), shard, 7, 1000); err != nil {
		t.Error(err)
	}
}

// TestTLSUnknownAuthority: a certificate that nobody vouches for is refused at once.
func TestTLSUnknownAuthority(t *testing.T) {
	asked := false
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	for _, url := range []string{srv.URL + "/dir/", strings.Replace(srv.URL, "https", "http", 1) + "/dir/"} {
		_, err := newHTTP(t, url, options(t)).List(t.Context())
		if err == nil || errors.Is(err, sources.ErrTemporary) || asked {
			t.Errorf("%s: asked %v, got %v", url, asked, err)
		}
	}
}

// TestHTTPConditions: a strong ETag is sent with every range, or the date.
func TestHTTPConditions(t *testing.T) {
	for _, c := range []struct {
		server      *sourcetest.Server
		header, not string
		id          bool
	}{
		{&sourcetest.Server{}, "If-Match", "If-Unmodified-Since", true},
		{&sourcetest.Server{NoETag: true}, "If-Unmodified-Since", "If-Match", true},
		{&sourcetest.Server{Weak: true}, "Range", "If-Match", true}, // its date is strong
	} {
		c.server.Files = sourcetest.Small()
		s := sourcetest.Start(t, c.server)
		b := open(t, newHTTP(t, s.HubURL+"/plain/"+shard, options(t)), shard)
		var got http.Header
		s.Inject(sourcetest.Fault{Kind: "plain", Do: func(w http.ResponseWriter, r *http.Request, right http.Handler) {
			got = r.Header.Clone()
			right.ServeHTTP(w, r)
		}})
		if _, err := read(t, s, b, shard, 0, 10); err != nil {
			t.Error(err)
		}
		if got.Get(c.header) == "" || got.Get(c.not) != "" || got.Get("Accept-Encoding") != "identity" || got.Get("User-Agent") == "" {
			t.Errorf("%+v: sent %v", c, got)
		}
		if c.id != (b.ID() != sources.ID{}) {
			t.Errorf("%+v: ID %x", c, b.ID())
		}
	}
}

func TestHTTPBadURLs(t *testing.T) {
	for url, want := range map[string]string{
		"ftp://h/":               "not an http or https URL",
		"https://":               "not an http or https URL",
		"https://u:hf_pw@h/dir/": "user names and passwords",
		"https://h/dir/?sig=hf_": "has no query",
	} {
		if _, err := sources.HTTP(url, options(t)); noSecret(t, err) == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", url, err)
		}
	}
}
