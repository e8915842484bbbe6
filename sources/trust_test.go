package sources_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"weightfs/sources"
	"weightfs/sources/sourcetest"
)

const token = "hf_verysecrettoken"

// stranger is another server. It notes every request and whether the token came along.
type stranger struct {
	*httptest.Server
	mu     sync.Mutex // guards the fields below
	asked  int
	tokens int
}

func newStranger(t *testing.T, h http.HandlerFunc) *stranger {
	s := &stranger{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked++
		for _, v := range r.Header {
			if strings.Contains(strings.Join(v, " "), token) {
				s.tokens++
			}
		}
		s.mu.Unlock()
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *stranger) counts() (asked, tokens int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked, s.tokens
}

// hubWithToken is a hub that needs the token, and its source.
func hubWithToken(t *testing.T, o *sources.Options) (*sourcetest.Server, sources.Source) {
	s := sourcetest.Start(t, &sourcetest.Server{Files: sourcetest.Small(), Token: token})
	return s, newHub(t, s, o)
}

// TestTokenStays: wherever the hub redirects to, the token goes to the hub's own scheme, host and port only.
func TestTokenStays(t *testing.T) {
	for _, kind := range []string{"api", "resolve", "data"} {
		t.Run(kind, func(t *testing.T) {
			s, src := hubWithToken(t, options(t, "HF_TOKEN", token))
			other := newStranger(t, func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) })
			s.Inject(sourcetest.Fault{Kind: kind, Do: sourcetest.Status(302, "Location: "+other.URL+"/elsewhere?"+sourcetest.Secret)})
			b, err := src.Open(t.Context(), shard)
			if err == nil {
				_, err = read(t, s, b, shard, 0, 10)
			}
			if noSecret(t, err) == nil {
				t.Error("a read from a stranger that has nothing succeeds")
			}
			if asked, tokens := other.counts(); asked == 0 || tokens != 0 {
				t.Errorf("the stranger was asked %d times, with the token %d times", asked, tokens)
			}
		})
	}
}

// TestRedirects: what is refused, and what of it was asked.
func TestRedirects(t *testing.T) {
	chain := newStranger(t, func(w http.ResponseWriter, r *http.Request) {
		var n int
		fmt.Sscanf(r.URL.Path, "/%d", &n)
		http.Redirect(w, r, fmt.Sprintf("/%d", n+1), http.StatusFound)
	})
	loop := newStranger(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	for _, c := range []struct{ name, location, want string }{
		{"file", "file:///etc/passwd", "file: address refused"},
		{"gopher", "gopher://127.0.0.1/", "gopher: address refused"},
		{"no host", "http:///x", "address refused"},
		{"user", "http://user:pass@127.0.0.1/", "user name refused"},
		{"nothing", "", "without a usable Location"},
		{"garbage", "http://[::1", "without a usable Location"},
		{"circle of its own", "/org/small/resolve/" + sourcetest.Commit + "/" + shard, "more than 5 redirects"},
		{"chain", chain.URL + "/0", "more than 5 redirects"},
		{"loop", loop.URL + "/loop", "in a circle"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, src := hubWithToken(t, options(t, "HF_TOKEN", token))
			b := open(t, src, shard)
			s.Inject(sourcetest.Fault{Kind: "resolve", Do: sourcetest.Status(302, "Location: "+c.location)})
			_, err := read(t, s, b, shard, 0, 10)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if asked, _ := chain.counts(); asked != 6 {
		t.Errorf("the chain was followed to %d servers, want the first and five more", asked)
	}
	if asked, _ := loop.counts(); asked != 1 {
		t.Errorf("the loop was asked %d times", asked)
	}
}

// TestPrivateRedirects: a public hub (127.0.0.1 here) may not send us to a private address (127.0.0.2, the CDN), whether it is written in
// digits or a name.
func TestPrivateRedirects(t *testing.T) {
	private := func(a netip.Addr) bool { return a == netip.MustParseAddr("127.0.0.2") }
	for _, allow := range []bool{false, true} {
		o := sources.SetPrivate(options(t, "HF_TOKEN", token), private)
		o.AllowPrivateRedirects = allow
		s, src := hubWithToken(t, o)
		_, err := read(t, s, open(t, src, shard), shard, 0, 10)
		if allow != (err == nil) || err != nil && !strings.Contains(err.Error(), "private address") {
			t.Errorf("allowed: %v, got %v", allow, err)
		}
		asked := 0
		for _, l := range s.Log(0) {
			if l.Kind == "data" {
				asked++
			}
		}
		if (asked > 0) != allow {
			t.Errorf("allowed: %v, and the private address got %d requests", allow, asked)
		}
	}
}

// TestPrivateName: the address is checked after the name was resolved, before anything is sent.
func TestPrivateName(t *testing.T) {
	asked := 0
	o := options(t)
	s := sourcetest.Start(t, &sourcetest.Server{Files: sourcetest.Small()})
	sources.SetPrivate(o, func(a netip.Addr) bool { asked++; return asked > 1 }) // the first is the server itself
	other := newStranger(t, func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) })
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(other.URL, "http://"))
	s.Inject(sourcetest.Fault{Kind: "plain", Do: sourcetest.Status(302, "Location: http://localhost:"+port+"/")})
	_, err := newHTTP(t, s.HubURL+"/plain/"+shard, o).List(t.Context())
	if err == nil || !strings.Contains(err.Error(), "private address") {
		t.Errorf("got %v", err)
	}
	if n, _ := other.counts(); n != 0 || asked < 2 {
		t.Errorf("%d requests to the private address, %d addresses checked", n, asked)
	}
}

// TestPages: the listing's pages stay at the hub and come to an end.
func TestPages(t *testing.T) {
	const pageLimit = 1 << 20
	other := newStranger(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "[]") })
	link := func(f func(w http.ResponseWriter, r *http.Request) string) sourcetest.Doer {
		return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			w.Header().Set("Link", f(w, r))
			fmt.Fprint(w, `[{"type":"file","path":"a","size":1,"oid":""}]`)
		}
	}
	n := 0
	for _, c := range []struct {
		name string
		do   sourcetest.Doer
		want string
	}{
		{"other server", link(func(http.ResponseWriter, *http.Request) string { return `<` + other.URL + `/x>; rel="next"` }), "at another server"},
		{"other scheme", link(func(_ http.ResponseWriter, r *http.Request) string { return `<https://` + r.Host + `/x>; rel="next"` }), "at another server"},
		{"circle", link(func(_ http.ResponseWriter, r *http.Request) string { return `<` + r.URL.String() + `>; rel="next"` }), "in a circle"},
		{"no end", link(func(_ http.ResponseWriter, r *http.Request) string {
			n++
			return fmt.Sprintf(`<%s?cursor=%d>; rel="next"`, r.URL.Path, n)
		}), "more than 1000 pages"},
		{"no array", sourcetest.Change(func(r *httptest.ResponseRecorder) { r.Body.Reset(); r.Body.WriteString(`{"a": 1}`) }), "not a JSON array"},
		{"too many", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			fmt.Fprint(w, "[{}"+strings.Repeat(",{}", 200_000)+"]")
		}, "more than 200000 entries"},
		{"too long", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			fmt.Fprint(w, "["+strings.Repeat(" ", pageLimit)+"]")
		}, "longer than"},
		{"gzip", sourcetest.Header("Content-Encoding", "gzip"), "which was not asked for"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, src := hubWithToken(t, options(t, "HF_TOKEN", token))
			sources.SetPageLimit(src, pageLimit)
			s.Inject(sourcetest.Fault{Kind: "api", Path: "/tree/", Do: c.do})
			_, err := src.List(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if asked, _ := other.counts(); asked != 0 {
		t.Errorf("the other server was asked %d times", asked)
	}
}

// TestRefusals: why the Hub refuses, and what can be done, in words and under the right sentinel.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name, repo, revision, token string
		server                      *sourcetest.Server
		inject                      *sourcetest.Fault
		want                        error
		words                       []string
	}{
		{name: "no repository", repo: "org/none", server: &sourcetest.Server{}, want: sources.ErrNotFound, words: []string{"no repository org/none", "if it is private", "--token-file", "Root=1-feed"}},
		{name: "no repository, token", repo: "org/none", token: token, server: &sourcetest.Server{}, want: sources.ErrNotFound, words: []string{"no right to see it"}},
		{name: "no revision", revision: "v9", server: &sourcetest.Server{}, want: sources.ErrNotFound, words: []string{"no revision v9"}},
		{name: "private", server: &sourcetest.Server{Token: token}, want: sources.ErrNotFound, words: []string{"if it is private"}},
		{name: "bad token", token: "hf_old", server: &sourcetest.Server{Token: token}, want: sources.ErrDenied, words: []string{"does not accept the token", "/settings/tokens"}},
		{name: "gated", server: &sourcetest.Server{Gated: true, Token: token}, want: sources.ErrDenied, words: []string{"gated", "accept its terms at", "HF_TOKEN"}},
		{name: "gated, no access", token: "hf_other", server: &sourcetest.Server{Gated: true, Token: token, NoAccess: "hf_other"}, want: sources.ErrDenied, words: []string{"gated", "no access", "not in the authorized list"}},
		{name: "disabled", server: &sourcetest.Server{}, want: sources.ErrDenied, words: []string{"is disabled by the Hub"},
			inject: &sourcetest.Fault{Kind: "api", Do: sourcetest.Status(403, "X-Error-Message: Access to this resource is disabled.")}},
		{name: "terminal", server: &sourcetest.Server{}, want: sources.ErrDenied, words: []string{`"\u202eevil"`},
			inject: &sourcetest.Fault{Kind: "api", Do: sourcetest.Status(403, "X-Error-Message: \u202eevil")}},
		{name: "bad name", repo: "org/../x", server: &sourcetest.Server{}, words: []string{"not the name of a repository"}},
		{name: "bad revision", revision: "../x", server: &sourcetest.Server{}, words: []string{"revision ../x"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.server.Files = sourcetest.Small()
			s := sourcetest.Start(t, c.server)
			if c.inject != nil {
				s.Inject(*c.inject)
			}
			o := options(t, "HF_TOKEN", c.token)
			o.Endpoint = s.HubURL
			if c.repo == "" {
				c.repo = s.Repo
			}
			src, err := sources.Hub(c.repo, c.revision, o)
			if err == nil {
				_, err = src.List(t.Context())
			}
			if noSecret(t, err) == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			for _, w := range c.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("got %q, want %q in it", err, w)
				}
			}
		})
	}
}

// TestGatedWithAccess: with the right token a gated repository is read, and its listing says so.
func TestGatedWithAccess(t *testing.T) {
	s := sourcetest.Start(t, &sourcetest.Server{Files: sourcetest.Small(), Gated: true, Token: token})
	src := newHub(t, s, options(t, "HUGGING_FACE_HUB_TOKEN", token))
	if l, err := src.List(t.Context()); err != nil || !l.Gated {
		t.Errorf("got %+v, %v", l, err)
	}
	if _, err := read(t, s, open(t, src, "config.json"), "config.json", 0, 10); err != nil {
		t.Error(err)
	}
}

// TestTokenRotates: on a 401 the token file is read again, once.
func TestTokenRotates(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	put(t, file, []byte("hf_old\n"))
	o := options(t)
	o.TokenFile = file
	s := sourcetest.Start(t, &sourcetest.Server{Files: sourcetest.Small(), Token: token})
	src := newHub(t, s, o)
	if _, err := src.List(t.Context()); !errors.Is(err, sources.ErrDenied) {
		t.Fatalf("with the old token: %v", err)
	}
	if n := len(s.Log(0)); n != 1 {
		t.Errorf("the old token was sent %d times", n)
	}
	put(t, file, []byte(token+"\n"))
	if _, err := read(t, s, open(t, src, "config.json"), "config.json", 0, 10); err != nil {
		t.Errorf("with the new token: %v", err)
	}
}

// TestTokenPlaces: where a token is looked for, in which order, and when it is refused.
func TestTokenPlaces(t *testing.T) {
	dir := t.TempDir()
	for name, value := range map[string]string{"option": "hf_option", "path": "hf_path", "home/token": "hf_home", "bad": "hf_a b",
		"xdg/huggingface/token": "hf_xdg"} {
		put(t, filepath.Join(dir, name), []byte(value+"\n"))
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, c := range []struct {
		file string
		env  []string
		want string // the token, or of an error with "!" before it
	}{
		{in("option"), []string{"HF_TOKEN", "hf_env"}, "hf_option"},
		{"", []string{"HF_TOKEN", " hf_env\n", "HUGGING_FACE_HUB_TOKEN", "hf_env2"}, "hf_env"},
		{"", []string{"HUGGING_FACE_HUB_TOKEN", "hf_env2", "HF_TOKEN_PATH", in("path")}, "hf_env2"},
		{"", []string{"HF_TOKEN_PATH", in("path"), "HF_HOME", in("home")}, "hf_path"},
		{"", []string{"HF_HOME", in("home")}, "hf_home"},
		{"", []string{"XDG_CACHE_HOME", in("xdg")}, "hf_xdg"},
		{"", []string{"HF_HOME", in("nowhere")}, ""},
		{"", []string{"HF_TOKEN", "hf_env", "HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"}, ""},
		{in("nowhere"), nil, "!token file"},
		{in("bad"), nil, "!not one word"},
		{"", []string{"HF_TOKEN", "hf_a\x01b"}, "!not one word"},
	} {
		var got string
		s := newStranger(t, func(w http.ResponseWriter, r *http.Request) {
			got = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
			w.WriteHeader(http.StatusNotFound)
		})
		o := options(t, c.env...)
		o.Endpoint, o.TokenFile = s.URL, c.file
		src, err := sources.Hub("org/name", "", o)
		if err == nil {
			src.List(t.Context())
		}
		if why, bad := strings.CutPrefix(c.want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "hf_a") {
				t.Errorf("%+v: got %v", c, err)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%+v: got %q, %v", c, got, err)
		}
	}
}

// TestTokenInClear: the token does not go over plain http to another machine unless told so.
func TestTokenInClear(t *testing.T) {
	for _, insecure := range []bool{false, true} {
		o := options(t, "HF_TOKEN", token, "HF_ENDPOINT", "http://hub.example")
		o.InsecureToken = insecure
		if _, err := sources.Hub("org/name", "", o); noSecret(t, err) == nil != insecure {
			t.Errorf("insecure: %v, got %v", insecure, err)
		}
	}
}

// TestTokenFileMode: a token file that others can read is worth a warning.
func TestTokenFileMode(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	put(t, file, []byte(token))
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	o := options(t)
	o.TokenFile = file
	var out lockedBuffer
	o.Log = newLog(&out)
	if _, err := sources.Hub("org/name", "", o); err != nil || !strings.Contains(out.String(), "chmod 600") {
		t.Errorf("%v, log %q", err, out.String())
	}
}
