package sources_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"weightfs/sources"
	"weightfs/sources/sourcetest"
)

func TestMain(m *testing.M) {
	for _, key := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		os.Unsetenv(key) // servers in memory are not behind this machine's proxy
	}
	goleak.VerifyTestMain(m)
}

// quietEnv is an environment with nothing of this machine's.
func quietEnv(t testing.TB, pairs ...string) func(string) string {
	home := t.TempDir()
	return func(key string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == key {
				return pairs[i+1]
			}
		}
		if key == "HOME" {
			return home
		}
		return ""
	}
}

// secretLog is a log that no secret may reach; secrets are looked for when the test ends.
func secretLog(t testing.TB, secrets ...string) *slog.Logger {
	var out lockedBuffer
	t.Cleanup(func() {
		for _, s := range append(secrets, sourcetest.Secret, "Signature=") {
			if strings.Contains(out.String(), s) {
				t.Errorf("the log has the secret %q:\n%s", s, out.String())
			}
		}
	})
	return newLog(&out)
}

// options are those of a test: no environment, counters, a log without secrets.
func options(t testing.TB, env ...string) *sources.Options {
	o := &sources.Options{Getenv: quietEnv(t, env...), Metrics: &sources.Metrics{}, Log: secretLog(t)}
	t.Cleanup(o.Close)
	return o
}

func newHub(t testing.TB, s *sourcetest.Server, o *sources.Options) sources.Source {
	t.Helper()
	o.Endpoint = s.HubURL
	src, err := sources.Hub(s.Repo, "", o)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func TestHub(t *testing.T) {
	for _, direct := range []bool{false, true} {
		t.Run(map[bool]string{false: "Redirected", true: "Direct"}[direct], func(t *testing.T) {
			sourcetest.Run(t, func(t *testing.T) (sources.Source, sourcetest.Truth) {
				s := sourcetest.Start(t, &sourcetest.Server{Files: sourcetest.Small(), Token: "hf_suite", Direct: direct})
				return newHub(t, s, options(t, "HF_TOKEN", "hf_suite")), s.Files
			})
		})
	}
}

func TestHTTP(t *testing.T) {
	for name, server := range map[string]*sourcetest.Server{"ETag": {}, "Weak": {Weak: true}, "Modified": {NoETag: true}} {
		t.Run(name, func(t *testing.T) {
			sourcetest.Run(t, func(t *testing.T) (sources.Source, sourcetest.Truth) {
				s := sourcetest.Start(t, &sourcetest.Server{Files: withIndex(sourcetest.Small()), Weak: server.Weak, NoETag: server.NoETag})
				return newHTTP(t, s.HubURL+"/plain", options(t)), s.Files
			})
		})
	}
}

func TestHTTPFile(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) (sources.Source, sourcetest.Truth) {
		s := sourcetest.Start(t, &sourcetest.Server{Files: sourcetest.Small()})
		return newHTTP(t, s.HubURL+"/plain/model-00001-of-00002.safetensors?x=1", options(t)), s.Files
	})
}

// TestHTTPFileServer reads from the standard library's file server.
func TestHTTPFileServer(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) (sources.Source, sourcetest.Truth) {
		truth := withIndex(sourcetest.Small())
		srv := httptest.NewServer(http.FileServer(http.Dir(write(t, truth))))
		t.Cleanup(srv.Close)
		return newHTTP(t, srv.URL, options(t)), truth
	})
}

func newHTTP(t testing.TB, url string, o *sources.Options) sources.Source {
	t.Helper()
	src, err := sources.HTTP(url, o)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// withIndex adds an index that names the shards.
func withIndex(files sourcetest.Truth) sourcetest.Truth {
	index := `{"metadata": {"total_size": 1}, "weight_map": {"b": "model-00002-of-00002.safetensors", "a": "model-00001-of-00002.safetensors",
		"c": "model-00001-of-00002.safetensors"}}`
	return append(files, sourcetest.Bytes("model.safetensors.index.json", []byte(index)))
}

func TestDir(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) (sources.Source, sourcetest.Truth) {
		truth := sourcetest.Small()
		return newDir(t, write(t, truth)), truth
	})
}

func TestDirFile(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) (sources.Source, sourcetest.Truth) {
		truth := sourcetest.Small()
		return newDir(t, filepath.Join(write(t, truth), "model-00002-of-00002.safetensors")), truth[5:]
	})
}

// TestDirSnapshot reads a snapshot of the Hugging Face cache: links into the blobs directory.
func TestDirSnapshot(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) (sources.Source, sourcetest.Truth) {
		truth := sourcetest.Small()
		root := t.TempDir()
		for _, f := range truth {
			put(t, filepath.Join(root, "blobs", f.SHA256()), f.Slice(0, f.Size))
			link := filepath.Join(root, "snapshots", sourcetest.Commit, f.Path)
			up := strings.Repeat("../", strings.Count(f.Path, "/")+2)
			if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(up+"blobs/"+f.SHA256(), link); err != nil {
				t.Fatal(err)
			}
		}
		return newDir(t, filepath.Join(root, "snapshots", sourcetest.Commit)), truth
	})
}

func newDir(t testing.TB, path string) sources.Source {
	t.Helper()
	src, err := sources.Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// write puts the files into a directory.
func write(t testing.TB, truth sourcetest.Truth) string {
	dir := t.TempDir()
	for _, f := range truth {
		put(t, filepath.Join(dir, f.Path), f.Slice(0, f.Size))
	}
	return dir
}

func put(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}
