package hubtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"weightfs/internal/testrel"
)

// client follows no redirect and adds no header.
var client = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Transport:     &http.Transport{DisableCompression: true},
}

func start(t *testing.T, cfg Config) *Hub {
	t.Helper()
	h, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close(); client.CloseIdleConnections() })
	return h
}

func mustPlan(t *testing.T, text string) *Plan {
	t.Helper()
	p, err := ParsePlan(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

type answer struct {
	*http.Response
	body []byte
	err  error // of reading the body
}

// do sends one request; headers are "Name: value".
func do(t *testing.T, method, url string, headers ...string) answer {
	t.Helper()
	q, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range headers {
		k, v, _ := strings.Cut(s, ": ")
		q.Header.Set(k, v)
	}
	r, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return answer{r, b, err}
}

func get(t *testing.T, url string, headers ...string) answer { return do(t, "GET", url, headers...) }

const shard = "model-00003-of-00010.safetensors"

// signed is the CDN's URL of a shard.
func signed(t *testing.T, h *Hub) string {
	t.Helper()
	r := get(t, h.URL+"/demo/qwen-fp8/resolve/main/"+shard)
	if r.StatusCode != 302 {
		t.Fatalf("resolve: %d %s", r.StatusCode, r.body)
	}
	return r.Header.Get("Location")
}

func TestResolveLFS(t *testing.T) {
	h, rel := start(t, Config{}), testrel.QwenFP8()
	commit := h.AddRelease("demo/qwen-fp8", rel)
	r := do(t, "HEAD", h.URL+"/demo/qwen-fp8/resolve/main/"+shard)
	f := rel.File(shard)
	if r.StatusCode != 302 || r.Header.Get("X-Repo-Commit") != commit || r.Header.Get("X-Linked-Size") != itoa(f.Size) {
		t.Errorf("HEAD resolve: %d %v", r.StatusCode, r.Header)
	}
	if oid := r.Header.Get("X-Linked-ETag"); len(oid) != 66 || oid[0] != '"' || r.Header.Get("ETag") == oid {
		t.Errorf("X-Linked-ETag %s, ETag %s", oid, r.Header.Get("ETag"))
	}
	url := signed(t, h)
	if !strings.HasPrefix(url, h.CDN+"/") || strings.Contains(url, h.URL) {
		t.Errorf("signed URL %s is not on the CDN %s", url, h.CDN)
	}
	got := get(t, url)
	if got.StatusCode != 200 || !bytes.Equal(got.body, f.Bytes()) {
		t.Errorf("whole file: %d, %d bytes", got.StatusCode, len(got.body))
	}
	if x := do(t, "HEAD", url); x.StatusCode != 403 {
		t.Errorf("HEAD on a URL signed for GET: %d", x.StatusCode)
	}
	if x := get(t, strings.Replace(url, "Signature=", "Signature=0", 1)); x.StatusCode != 403 {
		t.Errorf("wrong signature: %d", x.StatusCode)
	}
}

func itoa(n int64) string { b, _ := json.Marshal(n); return string(b) }

// RFC 9110, and what CDNs do with what it leaves open.
func TestRanges(t *testing.T) {
	h, rel := start(t, Config{}), testrel.QwenFP8()
	h.AddRelease("demo/qwen-fp8", rel)
	url, f := signed(t, h), rel.File(shard)
	whole, n := f.Bytes(), f.Size
	for _, x := range []struct {
		header     string
		status     int
		start, end int64
	}{
		{"bytes=0-0", 206, 0, 1},
		{"bytes=5-104", 206, 5, 105},
		{"bytes=" + itoa(n-10) + "-" + itoa(n+50), 206, n - 10, n},
		{"bytes=" + itoa(n-1) + "-", 206, n - 1, n},
		{"bytes=-7", 206, n - 7, n},
		{"bytes=-" + itoa(n+5), 206, 0, n},
		{"bytes=" + itoa(n) + "-", 416, 0, 0},
		{"bytes=-0", 416, 0, 0},
		{"bytes=9-5", 200, 0, n},
		{"bytes=a-b", 200, 0, n},
		{"bytes=0-1,4-5", 200, 0, n},
		{"items=0-1", 200, 0, n},
	} {
		r := get(t, url, "Range: "+x.header)
		if r.StatusCode != x.status || r.err != nil || !bytes.Equal(r.body, whole[x.start:x.end]) {
			t.Errorf("%s: %d, %d bytes, %v; want %d [%d, %d)", x.header, r.StatusCode, len(r.body), r.err, x.status, x.start, x.end)
		}
		want := map[int]string{206: "bytes " + itoa(x.start) + "-" + itoa(x.end-1) + "/" + itoa(n), 416: "bytes */" + itoa(n)}[x.status]
		if got := r.Header.Get("Content-Range"); got != want {
			t.Errorf("%s: Content-Range %q, want %q", x.header, got, want)
		}
		if r.ContentLength != int64(len(r.body)) {
			t.Errorf("%s: Content-Length %d of %d bytes", x.header, r.ContentLength, len(r.body))
		}
	}
	etag := get(t, url, "Range: bytes=0-0").Header.Get("ETag")
	for _, x := range []struct {
		header string
		status int
	}{{"If-Match: " + etag, 206}, {`If-Match: "other"`, 412}, {"If-Range: " + etag, 206}, {`If-Range: "other"`, 200}} {
		if r := get(t, url, "Range: bytes=0-0", x.header); r.StatusCode != x.status {
			t.Errorf("%s: %d, want %d", x.header, r.StatusCode, x.status)
		}
	}
}

func TestEmptyFileAndPlainFiles(t *testing.T) {
	for _, plan := range []string{"", "hub plain=307"} {
		h := start(t, Config{Plan: mustPlan(t, plan)})
		h.AddRelease("demo/qwen-fp8", testrel.QwenFP8())
		for _, path := range []string{"config.json", "assets/empty.txt"} {
			url := h.URL + "/demo/qwen-fp8/resolve/main/" + path
			r := get(t, url)
			if plan != "" {
				if r.StatusCode != 307 || !strings.HasPrefix(r.Header.Get("Location"), "/api/resolve-cache/models/demo/qwen-fp8/") || r.Header.Get("X-Repo-Commit") == "" {
					t.Fatalf("%s: %d %v", path, r.StatusCode, r.Header)
				}
				r = get(t, h.URL+r.Header.Get("Location"))
			}
			if r.StatusCode != 200 || !bytes.Equal(r.body, testrel.QwenFP8().File(path).Bytes()) || len(r.Header.Get("ETag")) != 42 || r.Header.Get("X-Repo-Commit") == "" {
				t.Errorf("%s: %d, %d bytes, %v", path, r.StatusCode, len(r.body), r.Header)
			}
		}
		if r := get(t, h.URL+"/demo/qwen-fp8/resolve/main/assets/empty.txt", "Range: bytes=0-0"); plan == "" && r.StatusCode != 416 {
			t.Errorf("range of an empty file: %d", r.StatusCode)
		}
	}
}

func TestTreePagesAreTheWholeListing(t *testing.T) {
	rel := testrel.QwenFP8()
	h := start(t, Config{Plan: mustPlan(t, "hub page-size=4")})
	h.AddRelease("demo/qwen-fp8", rel)
	var got []string
	pages := 0
	for url := h.URL + "/api/models/demo/qwen-fp8/tree/main?recursive=true"; url != ""; pages++ {
		r := get(t, url)
		var page []struct{ Type, Path string }
		if err := json.Unmarshal(r.body, &page); err != nil || len(page) > 4 {
			t.Fatalf("page of %d: %v", len(page), err)
		}
		for _, e := range page {
			if e.Type == "file" {
				got = append(got, e.Path)
			}
		}
		next, ok := strings.CutSuffix(r.Header.Get("Link"), `>; rel="next"`)
		if ok && !strings.HasPrefix(next, "<"+h.URL) {
			t.Fatalf("Link %s is not absolute", next)
		}
		url = strings.TrimPrefix(next, "<")
	}
	if len(got) != len(rel.Files) || pages != 6 {
		t.Errorf("%d files in %d pages, want %d in 6", len(got), pages, len(rel.Files))
	}
}

func TestErrorsAreToldApart(t *testing.T) {
	h := start(t, Config{})
	files := FilesOf(testrel.DenseBF16())
	h.Add(Repo{Name: "demo/open", Files: files})
	h.Add(Repo{Name: "demo/gated", Files: files, Access: Gated, Token: "hf_good"})
	h.Add(Repo{Name: "demo/private", Files: files, Access: Private, Token: "hf_good"})
	h.Add(Repo{Name: "demo/disabled", Files: files, Access: Disabled})
	for _, x := range []struct {
		url, token string
		status     int
		code       string
	}{
		{"/api/models/demo/open", "", 200, ""},
		{"/api/models/demo/open", "hf_other", 200, ""},
		{"/api/models/demo/none", "", 401, "RepoNotFound"},
		{"/api/models/demo/none", "hf_good", 404, "RepoNotFound"},
		{"/api/models/demo/open/revision/none", "", 404, "RevisionNotFound"},
		{"/api/models/demo/open/tree/main/none", "", 404, "EntryNotFound"},
		{"/api/models/demo/gated", "", 200, ""},
		{"/api/models/demo/private", "", 401, "RepoNotFound"},
		{"/api/models/demo/private", "hf_other", 404, "RepoNotFound"},
		{"/api/models/demo/private", "hf_good", 200, ""},
		{"/api/models/demo/disabled", "hf_good", 403, ""},
		{"/demo/open/resolve/main/none", "", 404, "EntryNotFound"},
		{"/demo/open/resolve/none/config.json", "", 404, "RevisionNotFound"},
		{"/demo/none/resolve/main/config.json", "", 401, "RepoNotFound"},
		{"/demo/gated/resolve/main/config.json", "", 401, "GatedRepo"},
		{"/demo/gated/resolve/main/config.json", "hf_other", 403, "GatedRepo"},
		{"/demo/gated/resolve/main/config.json", "hf_good", 200, ""},
		{"/api/models/demo/open/xet-read-token/main", "", 404, ""},
		{"/api/agent-harnesses", "", 404, ""},
	} {
		var auth []string
		if x.token != "" {
			auth = []string{"Authorization: Bearer " + x.token}
		}
		r := get(t, h.URL+x.url, auth...)
		if r.StatusCode != x.status || r.Header.Get("X-Error-Code") != x.code {
			t.Errorf("%s with %q: %d %s, want %d %s", x.url, x.token, r.StatusCode, r.Header.Get("X-Error-Code"), x.status, x.code)
		}
	}
}

func TestRevisions(t *testing.T) {
	h := start(t, Config{})
	first := h.AddRelease("demo/m", testrel.DenseBF16())
	second := h.AddRelease("demo/m", testrel.MixtralSingle())
	h.Tag("demo/m", "v1", first)
	h.Tag("demo/m", "refs/pr/1", second)
	for rev, want := range map[string]string{"main": second, "HEAD": second, first: first, second: second, "v1": first, "refs%2Fpr%2F1": second} {
		var info struct{ Sha string }
		if r := get(t, h.URL+"/api/models/demo/m/revision/"+rev); json.Unmarshal(r.body, &info) != nil || info.Sha != want {
			t.Errorf("revision %s is %s, want %s", rev, info.Sha, want)
		}
	}
	old := get(t, h.URL+"/demo/m/resolve/"+first+"/config.json")
	if !bytes.Equal(old.body, testrel.DenseBF16().File("config.json").Bytes()) {
		t.Error("the old commit is gone")
	}
}

// The log has the keys that outsiders read, is complete when the reply is, and may be truncated meanwhile.
func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log, closeLog, err := FileLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer closeLog()
	h, rel := start(t, Config{Log: log}), testrel.QwenFP8()
	h.AddRelease("demo/qwen-fp8", rel)
	url := signed(t, h)
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	get(t, url, "Range: bytes=8-15")
	get(t, h.URL+"/demo/qwen-fp8/resolve/main/config.json", "Authorization: Bearer x")
	get(t, h.URL+"/api/models/demo/qwen-fp8/tree/main")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	config := itoa(rel.File("config.json").Size)
	for i, want := range []string{
		`{"path":"` + shard + `","start":8,"end":16,"status":206,"bytes":8,"auth":false,"kind":"data"}`,
		`{"path":"config.json","start":0,"end":` + config + `,"status":200,"bytes":` + config + `,"auth":true,"kind":"resolve"}`,
		`{"path":"/api/models/demo/qwen-fp8/tree/main","start":0,"end":0,"status":200,`,
	} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], want) {
			t.Fatalf("line %d of\n%s\nis not %s", i+1, b, want)
		}
	}
}

// A directory is served as it is: the branch moves when a file changes, and a hub that starts anew knows the same commits.
func TestRoot(t *testing.T) {
	root, rel := t.TempDir(), testrel.DenseBF16()
	dir := filepath.Join(root, "demo", rel.Name)
	if err := testrel.WriteDir(dir, rel); err != nil {
		t.Fatal(err)
	}
	sha := func(h *Hub) string {
		var info struct{ Sha string }
		json.Unmarshal(get(t, h.URL+"/api/models/demo/"+rel.Name).body, &info)
		return info.Sha
	}
	h := start(t, Config{Root: root})
	first := sha(h)
	again := start(t, Config{Root: root})
	if r := get(t, again.URL+"/demo/"+rel.Name+"/resolve/"+first+"/config.json"); r.StatusCode != 200 || !bytes.Equal(r.body, rel.File("config.json").Bytes()) {
		t.Errorf("a new hub does not know commit %s: %d", first, r.StatusCode)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o666); err != nil {
		t.Fatal(err)
	}
	if second := sha(h); second == first || len(second) != 40 {
		t.Errorf("the branch stayed at %s", second)
	}
	for _, name := range []string{"demo", "demo/none", "../etc"} {
		if r := get(t, h.URL+"/api/models/"+name); r.StatusCode != 401 && r.StatusCode != 404 {
			t.Errorf("%s: %d", name, r.StatusCode)
		}
	}
}

// TestRootOddities: links to nothing and pipes are no files, and a file that has gone since it was listed is not found.
func TestRootOddities(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "org", "odd")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.txt", "w.safetensors", "gone.txt", "gone.safetensors"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("text"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("nowhere", filepath.Join(dir, "link")), syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o666)); err != nil {
		t.Fatal(err)
	}
	h := start(t, Config{Root: root})
	var info struct {
		Sha      string
		Siblings []struct{ Rfilename string }
	}
	json.Unmarshal(get(t, h.URL+"/api/models/org/odd").body, &info)
	if len(info.Siblings) != 4 {
		t.Errorf("files: %v", info.Siblings)
	}
	at := h.URL + "/org/odd/resolve/" + info.Sha + "/"
	signed := get(t, at+"gone.safetensors").Header.Get("Location")
	os.Remove(filepath.Join(dir, "gone.txt"))
	os.Remove(filepath.Join(dir, "gone.safetensors"))
	for url, want := range map[string]int{at + "a.txt": 200, at + "w.safetensors": 302, at + "link": 404, at + "pipe": 404, at + "gone.txt": 404, signed: 404} {
		if r := get(t, url); r.StatusCode != want {
			t.Errorf("%s: %d, want %d", url, r.StatusCode, want)
		}
	}
}

// TestPublicNames: redirects and pages name the proxies before the two servers, whose ports can be chosen.
func TestPublicNames(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	h := start(t, Config{CDNAddr: addr, PublicURL: "http://hub.test", PublicCDN: "http://cdn.test"})
	h.AddRelease("demo/qwen-fp8", testrel.QwenFP8())
	if h.CDN != "http://"+addr {
		t.Errorf("the CDN is at %s", h.CDN)
	}
	to := get(t, h.URL+"/demo/qwen-fp8/resolve/main/model-00001-of-00010.safetensors").Header.Get("Location")
	if !strings.HasPrefix(to, "http://cdn.test/lfs/") {
		t.Errorf("a redirect to %s", to)
	}
	if link := get(t, h.URL+"/api/models/demo/qwen-fp8/tree/main?limit=1").Header.Get("Link"); !strings.HasPrefix(link, "<http://hub.test/api/") {
		t.Errorf("the next page is %s", link)
	}
}

// 5 TB on no disk: any byte of it in one request.
func TestContentFunction(t *testing.T) {
	rel := testrel.Qwen38Max()
	made := 0
	h := start(t, Config{Make: func(name string) *testrel.Release {
		if made++; name == "demo/max" {
			return rel
		}
		return nil
	}})
	gate := rel.Tensor("model.layers.10.mlp.experts.gate_up_proj")
	r := get(t, h.URL+"/demo/max/resolve/main/"+gate.Path)
	got := get(t, r.Header.Get("Location"), "Range: bytes="+itoa(gate.End-100)+"-"+itoa(gate.End-1))
	want := make([]byte, 100)
	gate.ReadAt(want, gate.End-gate.Start-100)
	if got.StatusCode != 206 || !bytes.Equal(got.body, want) {
		t.Errorf("last bytes of a tensor of 34 GB: %d, %d bytes", got.StatusCode, len(got.body))
	}
	if made != 1 {
		t.Errorf("made %d times", made)
	}
}

func TestLatencyAndRate(t *testing.T) {
	h := start(t, Config{Latency: 30 * time.Millisecond, Rate: 4 << 20})
	h.AddRelease("demo/qwen-fp8", testrel.QwenFP8())
	began := time.Now()
	url := signed(t, h)
	if d := time.Since(began); d < 30*time.Millisecond {
		t.Errorf("a reply began after %v", d)
	}
	began = time.Now()
	get(t, url, "Range: bytes=0-524287")
	if d := time.Since(began); d < 130*time.Millisecond { // 30 ms, and 512 KiB at 4 MiB/s less the lead of 10 ms
		t.Errorf("512 KiB at 4 MiB/s took %v", d)
	}
}
