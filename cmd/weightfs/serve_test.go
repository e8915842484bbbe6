package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weightfs/internal/testrel"
)

// startServe runs the serve command and returns its URL; the command must end well when the test does.
func startServe(t *testing.T, args ...string) string {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	out, w := io.Pipe()
	var errs bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append([]string{"weightfs", "serve", "--listen", "127.0.0.1:0"}, args...), nil, w, &errs)
		w.Close()
	}()
	t.Cleanup(func() {
		cancel()
		if c := <-code; c != exitOK {
			t.Errorf("serve ended with %d: %s", c, errs.String())
		}
	})
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("serve said nothing: %v", err)
	}
	return strings.TrimSpace(url)
}

func get(t *testing.T, url, ranges string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if ranges != "" {
		req.Header.Set("Range", ranges)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func TestServe(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	if err := testrel.WriteDir(dir, testrel.QwenFP8()); err != nil {
		t.Fatal(err)
	}
	url := startServe(t, dir)
	want, err := os.ReadFile(filepath.Join(dir, "model-00001-of-00010.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	if _, body := get(t, url+"release/model-00001-of-00010.safetensors", ""); body != string(want) {
		t.Error("a whole file differs")
	}
	res, body := get(t, url+"release/model-00001-of-00010.safetensors", "bytes=100-199")
	if res.StatusCode != http.StatusPartialContent || body != string(want[100:200]) || res.Header.Get("ETag") == "" {
		t.Errorf("a range: %s, %d bytes, ETag %q", res.Status, len(body), res.Header.Get("ETag"))
	}
	if _, body := get(t, url, ""); !strings.Contains(body, "bf16/\n") {
		t.Errorf("the root lists %q", body)
	}
	if res, _ := get(t, url+"bf16/nonesuch", ""); res.StatusCode != http.StatusNotFound {
		t.Errorf("a missing file: %s", res.Status)
	}
	if _, body := get(t, url+"metrics", ""); !strings.Contains(body, "weightfs_served_bytes_total ") {
		t.Errorf("metrics are %q", body)
	}
}

func TestServeOneView(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	if err := testrel.WriteDir(dir, testrel.QwenFP8()); err != nil {
		t.Fatal(err)
	}
	url := startServe(t, "--view", "bf16", dir)
	if _, body := get(t, url, ""); !strings.Contains(body, "config.json\n") || strings.Contains(body, "weightfs") {
		t.Errorf("the root lists %q", body)
	}
}

func TestServeAsksForToken(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := testrel.WriteDir(filepath.Join(dir, "model"), testrel.DenseBF16()); err != nil {
		t.Fatal(err)
	}
	url := startServe(t, "--auth-token-file", token, filepath.Join(dir, "model"))
	for _, path := range []string{"", "release/config.json", "metrics"} {
		if res, _ := get(t, url+path, ""); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("/%s without the token: %s", path, res.Status)
		}
	}
}

// TestServeGated: what a token opened is not served to other machines, unless they need a token too.
func TestServeGated(t *testing.T) {
	h, _, err := testHub(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	t.Setenv("HF_ENDPOINT", h.URL)
	t.Setenv("HF_TOKEN", "hf_right")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"weightfs", "serve", "--listen", "0.0.0.0:0", "hf://closed/gated"}, nil, &out, &errs)
	if code != exitFailure || !strings.Contains(errs.String(), "gated or private") || !strings.Contains(errs.String(), "--auth-token-file") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}

// TestServedReleaseIsASource: what one weightfs serves, another reads over HTTP, and has the same views of it.
func TestServedReleaseIsASource(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	if err := testrel.WriteDir(dir, testrel.QwenFP8()); err != nil {
		t.Fatal(err)
	}
	url := startServe(t, dir) + "release/"
	for _, path := range []string{"bf16/model-00003-of-00010.safetensors", "experts/native/blocks/L001/E003.bin", "release/config.json"} {
		got := command(t, "cat", "--cache-dir", "none", url, path)
		if want := command(t, "cat", dir, path); !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes over HTTP differ from %d bytes of the directory", path, len(got), len(want))
		}
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"weightfs", "ls", url + "nonesuch/"}, nil, &out, &errs); code != exitNotFound {
		t.Errorf("a directory that is not there: exit code %d: %s", code, errs.String())
	}
}
