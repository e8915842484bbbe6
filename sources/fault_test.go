package sources_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weightfs/sources"
	"weightfs/sources/sourcetest"
)

const (
	shard = "model-00001-of-00002.safetensors"
	large = "model-00003-of-00003.safetensors"
)

// remotes are the two sources that ask for ranges over HTTP, and the kind that their data requests have in the ledger.
func remotes(t *testing.T, run func(t *testing.T, kind string, s *sourcetest.Server, fresh func(t testing.TB) sources.Source)) {
	remotesWith(t, 100_000, run)
}

// remotesWith is remotes with a third shard of that size.
func remotesWith(t *testing.T, size int64, run func(t *testing.T, kind string, s *sourcetest.Server, fresh func(t testing.TB) sources.Source)) {
	files := withIndex(append(sourcetest.Small(), sourcetest.Synthetic(large, size)))
	files[len(files)-1] = sourcetest.Bytes("model.safetensors.index.json", bytes.Replace(files[len(files)-1].Slice(0, files[len(files)-1].Size),
		[]byte(`"weight_map": {`), []byte(`"weight_map": {"z": "`+large+`", `), 1))
	t.Run("Hub", func(t *testing.T) {
		s := sourcetest.Start(t, &sourcetest.Server{Files: files})
		run(t, "data", s, func(t testing.TB) sources.Source { return newHub(t, s, options(t)) })
	})
	t.Run("HTTP", func(t *testing.T) {
		s := sourcetest.Start(t, &sourcetest.Server{Files: files})
		run(t, "plain", s, func(t testing.TB) sources.Source { return newHTTP(t, s.HubURL+"/plain/", options(t)) })
	})
}

// read streams a range and gives what was yielded. What is yielded is right, whatever comes after.
func read(t testing.TB, s *sourcetest.Server, b sources.Blob, path string, off, n int64) ([]byte, error) {
	t.Helper()
	r, err := b.Stream(t.Context(), off, n)
	if err != nil {
		return nil, noSecret(t, err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if d := s.Files.Find(path).Diff(got, off); d != "" {
		t.Error(d)
	}
	if err == nil && int64(len(got)) != n {
		t.Errorf("a stream of %d bytes ended after %d without an error", n, len(got))
	}
	return got, noSecret(t, err)
}

// noSecret fails the test if an error has a token or a signature in it.
func noSecret(t testing.TB, err error) error {
	t.Helper()
	if err != nil {
		for _, s := range []string{sourcetest.Secret, "Signature=", "hf_"} {
			if strings.Contains(err.Error(), s) {
				t.Errorf("the error has a secret: %v", err)
			}
		}
	}
	return err
}

func open(t testing.TB, src sources.Source, path string) sources.Blob {
	t.Helper()
	b, err := src.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestRangeDefects makes the server break the rule of ranges in each way that real servers have, once for good, once so that it heals.
func TestRangeDefects(t *testing.T) {
	const off, n = 1000, 150_000 // of the shard's 300,001
	cr := func(v string) sourcetest.Doer { return sourcetest.Header("Content-Range", v) }
	defects := []struct {
		name   string
		do     sourcetest.Doer
		want   error
		broken bool // ErrBroken as well
		some   bool // a right prefix may be yielded
	}{
		{"body cut, right length", sourcetest.Cut(70_000, false), sources.ErrTemporary, false, true},
		{"body cut, chunked", sourcetest.Cut(70_000, true), sources.ErrTemporary, false, false},
		{"body empty, length 0", sourcetest.Cut(0, true), sources.ErrTemporary, true, false},
		{"body cut, matching length", sourcetest.Change(func(r *httptest.ResponseRecorder) {
			r.Body.Truncate(70_000)
			r.Header().Set("Content-Length", "70000")
		}), sources.ErrTemporary, true, false},
		{"connection reset", sourcetest.Reset, sources.ErrTemporary, false, false},
		{"body longer, with length", sourcetest.Longer("x", false), sources.ErrTemporary, true, false},
		{"body longer, chunked", sourcetest.Longer("x", true), sources.ErrTemporary, true, false},
		{"no Content-Range", cr(""), sources.ErrTemporary, true, false},
		{"Content-Range of another unit", cr("items 1000-150999/300001"), sources.ErrTemporary, true, false},
		{"Content-Range shifted", cr("bytes 1004-151003/300001"), sources.ErrTemporary, true, false},
		{"Content-Range longer", cr("bytes 1000-151000/300001"), sources.ErrTemporary, true, false},
		{"Content-Range without total", cr("bytes 1000-150999/*"), sources.ErrTemporary, true, false},
		{"Content-Range with signs", cr("bytes +1000-150999/300001"), sources.ErrTemporary, true, false},
		{"Content-Range twice", sourcetest.Change(func(r *httptest.ResponseRecorder) {
			r.Header().Add("Content-Range", "bytes 0-149999/300001")
		}), sources.ErrTemporary, true, false},
		{"another total", cr("bytes 1000-150999/300002"), sources.ErrChanged, false, false},
		{"another ETag", sourcetest.Header("ETag", `"another"`), sources.ErrChanged, false, false},
		{"multipart", sourcetest.Header("Content-Type", "multipart/byteranges; boundary=x"), sources.ErrTemporary, true, false},
		{"gzip", sourcetest.Header("Content-Encoding", "gzip"), sources.ErrTemporary, true, false},
		{"416 with the same total", sourcetest.Status(416, "Content-Range: bytes */300001"), sources.ErrTemporary, false, false},
		{"416 with another total", sourcetest.Status(416, "Content-Range: bytes */177"), sources.ErrChanged, false, false},
		{"416 without a total", sourcetest.Status(416), sources.ErrTemporary, true, false},
		{"412", sourcetest.Status(412), sources.ErrChanged, false, false},
		{"404", sourcetest.Status(404), sources.ErrChanged, false, false},
		{"403", sourcetest.Status(403), sources.ErrDenied, false, false},
		{"500", sourcetest.Status(500), sources.ErrTemporary, false, false},
		{"503", sourcetest.Status(503), sources.ErrTemporary, false, false},
		{"a login page", sourcetest.Change(func(r *httptest.ResponseRecorder) {
			r.Code = 200
			r.Body = bytes.NewBufferString("<html>please log in</html>")
			r.Header().Del("Content-Range")
			r.Header().Set("Content-Length", "26")
			r.Header().Set("ETag", `"login"`)
		}), sources.ErrTemporary, true, false},
	}
	remotes(t, func(t *testing.T, kind string, s *sourcetest.Server, fresh func(testing.TB) sources.Source) {
		for _, d := range defects {
			t.Run(d.name, func(t *testing.T) {
				b := open(t, fresh(t), shard)
				if _, err := read(t, s, b, shard, 0, 1); err != nil { // pins the CDN's ETag
					t.Fatal(err)
				}
				s.Inject(sourcetest.Fault{Kind: kind, Path: shard, Do: d.do})
				got, err := read(t, s, b, shard, off, n)
				var named *sources.Error
				if !errors.Is(err, d.want) || errors.Is(err, sources.ErrBroken) != d.broken || !errors.As(err, &named) || named.Path != shard {
					t.Errorf("got %v, want %v (broken: %v)", err, d.want, d.broken)
				}
				if len(got) > 0 && !d.some {
					t.Errorf("%d bytes were yielded", len(got))
				}
				s.Heal()
				_, err = read(t, s, b, shard, off, n)
				sticky := d.want == sources.ErrChanged && d.name != "404"
				if sticky != errors.Is(err, sources.ErrChanged) || !sticky && err != nil {
					t.Errorf("after the server healed: %v", err)
				}
			})
		}
	})
}

// TestOddAndRight: replies that are unusual and follow the rule.
func TestOddAndRight(t *testing.T) {
	weak := sourcetest.Change(func(r *httptest.ResponseRecorder) { r.Header().Set("ETag", "W/"+r.Header().Get("ETag")) })
	remotes(t, func(t *testing.T, kind string, s *sourcetest.Server, fresh func(testing.TB) sources.Source) {
		for name, do := range map[string]sourcetest.Doer{
			"chunked": sourcetest.Header("Content-Length", ""), "weak ETag": weak, "no ETag": sourcetest.Header("ETag", ""),
			"identity": sourcetest.Header("Content-Encoding", "Identity"), "slow": sourcetest.Drip(50_000, 0),
		} {
			t.Run(name, func(t *testing.T) {
				b := open(t, fresh(t), shard)
				if _, err := read(t, s, b, shard, 0, 1); err != nil {
					t.Fatal(err)
				}
				s.Inject(sourcetest.Fault{Kind: kind, Path: shard, Do: do})
				defer s.Heal()
				if _, err := read(t, s, b, shard, 1000, 150_000); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// TestListingContradicted: what the Hub says about a file when it is read must be what it said when it was listed.
func TestListingContradicted(t *testing.T) {
	for _, c := range []struct{ path, header, value, want string }{
		{shard, "X-Repo-Commit", strings.Repeat("f", 40), "commit ffff"},
		{shard, "X-Linked-Size", "5", "size 5, listed as 300001"},
		{shard, "X-Linked-ETag", `"` + strings.Repeat("f", 64) + `"`, "sha256 ffff"},
		{"config.json", "ETag", `"` + strings.Repeat("f", 40) + `"`, "git blob ffff"},
		{"config.json", "Content-Length", "5", "size 5, listed as 23"},
	} {
		t.Run(c.path+" "+c.header, func(t *testing.T) {
			s := sourcetest.Start(t, &sourcetest.Server{Files: sourcetest.Small(), Direct: true})
			b := open(t, newHub(t, s, options(t)), c.path)
			s.Inject(sourcetest.Fault{Kind: "resolve", Do: sourcetest.Header(c.header, c.value)})
			_, err := read(t, s, b, c.path, 0, 10)
			if !errors.Is(err, sources.ErrChanged) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestRefusalIsLogged: what a cloud says about a 403 is in the log, without the signature it may repeat.
func TestRefusalIsLogged(t *testing.T) {
	s := sourcetest.Start(t, &sourcetest.Server{Files: sourcetest.Small(), Life: -time.Hour}) // every address is over
	o := options(t)
	var out lockedBuffer
	o.Log = newLog(&out)
	if _, err := read(t, s, open(t, newHub(t, s, o), shard), shard, 0, 10); !errors.Is(err, sources.ErrDenied) {
		t.Errorf("got %v", err)
	}
	if text := out.String(); !strings.Contains(text, "Request has expired") || !strings.Contains(text, "[redacted]") || strings.Contains(text, sourcetest.Secret) {
		t.Errorf("the log is %s", text)
	}
}

// TestChangedSticks: once a file is another one it stays so, for other blobs of the source, too, and for no other file.
func TestChangedSticks(t *testing.T) {
	remotes(t, func(t *testing.T, kind string, s *sourcetest.Server, fresh func(testing.TB) sources.Source) {
		src := fresh(t)
		b := open(t, src, shard)
		s.Inject(sourcetest.Fault{Kind: kind, Path: shard, Times: 1, Do: sourcetest.Status(416, "Content-Range: bytes */1")})
		if _, err := read(t, s, b, shard, 0, 10); !errors.Is(err, sources.ErrChanged) {
			t.Fatalf("got %v", err)
		}
		mark := len(s.Log(0))
		if _, err := read(t, s, open(t, src, shard), shard, 0, 10); !errors.Is(err, sources.ErrChanged) {
			t.Errorf("another blob of the file gives %v", err)
		}
		if l := s.Log(mark); len(l) > 0 {
			t.Errorf("it was asked for again: %v", l)
		}
		if _, err := read(t, s, open(t, src, large), large, 0, 10); err != nil {
			t.Errorf("another file: %v", err)
		}
	})
}

// TestWholeReplies: a server that does not know ranges is fine where the whole file was asked for or the file is small, and refused before
// its body is read where it is not.
func TestWholeReplies(t *testing.T) {
	remotesWith(t, 17<<20, func(t *testing.T, kind string, s *sourcetest.Server, fresh func(testing.TB) sources.Source) {
		src := fresh(t)
		bigFile, small := open(t, src, large), open(t, src, shard)
		s.Inject(sourcetest.Fault{Kind: kind, Do: sourcetest.Whole})
		if _, err := read(t, s, small, shard, 5, 1000); err != nil {
			t.Errorf("a range of a small file: %v", err)
		}
		if _, err := read(t, s, bigFile, large, 0, bigFile.Size()); err != nil {
			t.Errorf("the whole of a big one: %v", err)
		}
		if got, err := read(t, s, bigFile, large, 5, 1000); !errors.Is(err, sources.ErrBroken) || got != nil {
			t.Errorf("a range of a big one: %v", err)
		}
	})
}

// TestWholeReplyIsNotRead: the body of a 200 that nobody wants is not transferred.
func TestWholeReplyIsNotRead(t *testing.T) {
	const huge = 10 << 30
	s := sourcetest.Start(t, &sourcetest.Server{Files: sourcetest.Truth{sourcetest.Synthetic("model.safetensors", huge)}})
	o := options(t)
	b := open(t, newHTTP(t, s.HubURL+"/plain/", o), "model.safetensors")
	s.Inject(sourcetest.Fault{Kind: "plain", Do: sourcetest.Whole})
	if _, err := read(t, s, b, "model.safetensors", 1<<30, 1000); !errors.Is(err, sources.ErrBroken) {
		t.Fatalf("got %v", err)
	}
	if n := o.Metrics.Bytes.Load(); n != 0 {
		t.Errorf("%d bytes were read", n)
	}
}

// TestEmptyFile: a file without bytes is never asked for.
func TestEmptyFile(t *testing.T) {
	remotes(t, func(t *testing.T, kind string, s *sourcetest.Server, fresh func(testing.TB) sources.Source) {
		if kind == "plain" {
			s.Files = append(s.Files, sourcetest.Bytes("LICENSE", nil))
		}
		path := map[string]string{"plain": "LICENSE", "data": "empty.txt"}[kind]
		b := open(t, fresh(t), path)
		mark := len(s.Log(0))
		if _, err := read(t, s, b, path, 0, 0); err != nil {
			t.Error(err)
		}
		if l := s.Log(mark); len(l) > 0 {
			t.Errorf("requests: %v", l)
		}
	})
}

// TestRequests pins what reading costs: one header request a file on the Hub, then one request a range, without the token.
func TestRequests(t *testing.T) {
	s := sourcetest.Start(t, &sourcetest.Server{Files: sourcetest.Small(), Token: "hf_ledger"})
	o := options(t, "HF_TOKEN", "hf_ledger")
	src := newHub(t, s, o)
	b := open(t, src, shard)
	listing := len(s.Log(0))
	if want := 1 + (len(s.Files)+3)/4; listing != want { // the revision, pages of four
		t.Errorf("the listing took %d requests, want %d: %+v", listing, want, s.Log(0))
	}
	for i := range int64(5) {
		if _, err := read(t, s, b, shard, i*50_000, 50_000); err != nil {
			t.Fatal(err)
		}
	}
	for i, l := range s.Log(0) {
		kind, auth := "api", true
		switch {
		case i == listing:
			kind = "resolve"
		case i > listing:
			kind, auth = "data", false
		}
		if l.Kind != kind || l.Auth != auth {
			t.Errorf("request %d: %+v, want kind %s, auth %v", i, l, kind, auth)
		}
	}
	if got := o.Metrics.Requests.Load(); got != int64(len(s.Log(0))) || o.Metrics.Bytes.Load() != 250_000 || o.Metrics.Resolves.Load() != 1 {
		t.Errorf("counters: %d requests of %d, %d bytes, %d resolves", got, len(s.Log(0)), o.Metrics.Bytes.Load(), o.Metrics.Resolves.Load())
	}
}

// TestHeadRefused: servers without HEAD are asked for the first byte instead.
func TestHeadRefused(t *testing.T) {
	remotes(t, func(t *testing.T, kind string, s *sourcetest.Server, fresh func(testing.TB) sources.Source) {
		noHead := func(w http.ResponseWriter, r *http.Request, right http.Handler) {
			if r.Method == http.MethodHead {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			right.ServeHTTP(w, r)
		}
		s.Inject(sourcetest.Fault{Kind: "resolve", Do: noHead})
		s.Inject(sourcetest.Fault{Kind: "plain", Do: noHead})
		for _, path := range []string{shard, "config.json"} {
			b := open(t, fresh(t), path)
			if _, err := read(t, s, b, path, 3, b.Size()-3); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestRetryEndsWithTheContext: the last failure and the end of the context are both in the error.
func TestRetryEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("nobody wants it")
	err := sources.Retry(ctx, func(context.Context) error {
		cancel(why)
		return sources.ErrTemporary
	})
	if !errors.Is(err, sources.ErrTemporary) || !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}
