package hubtest

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weightfs/internal/testrel"
)

// Every plan that is committed can be read.
func TestCommittedPlansParse(t *testing.T) {
	plans, err := filepath.Glob("../../testdata/faults/*.txt")
	if err != nil || len(plans) == 0 {
		t.Fatalf("%d plans, %v", len(plans), err)
	}
	for _, p := range plans {
		if _, err := ReadPlan(p); err != nil {
			t.Error(err)
		}
	}
}

func TestPlanErrors(t *testing.T) {
	for _, text := range []string{
		"off data : stall", "on", "on data", "on data : ", "on disk : stall", "on data : explode", "on data nth=x : stall",
		"on data : stall after=1Q", "on data : stall before=1", "on data color=red : drop", "hub plain=308", "hub speed=1",
		"repo", "repo demo/x access=some", `on data : header set="nothing"`, `on data : header set="open`, "on data : status code=99", "on data per=day : drop",
	} {
		if _, err := ParsePlan("# first\n" + text); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Which requests a rule selects, of ten to each of two files.
func TestSelection(t *testing.T) {
	for when, want := range map[string]string{
		"nth=1,3":            "a1 a3",
		"nth=1,3 per=file":   "a1 a3 b1 b3",
		"first=2 per=file":   "a1 a2 b1 b2",
		"after=18":           "b9 b10",
		"every=9":            "a9 b8",
		"path=b nth=2":       "b2",
		"path=*b* every=5":   "b5 b10",
		"method=HEAD":        "",
		"from=1":             "",
		"p=0.2 seed=1":       "a5 a6 b1 b5 b7",
		"p=0.2 seed=2":       "a1 b2 b3 b4 b9",
		"nth=2 per=range":    "a2 b2",
		"first=3 every=2":    "a2",
		"after=2 first=4":    "a3 a4",
		"path=*.safetensors": "",
	} {
		plan := mustPlan(t, "on data "+when+" : status code=503")
		var got []string
		for _, path := range []string{"a", "b"} {
			for n := range 10 {
				q := &request{Request: &http.Request{Method: "GET", Header: http.Header{}}, kind: kindData, path: path, size: 100}
				p := newReply(200, nil)
				plan.apply(q, p)
				if p.status == 503 {
					got = append(got, path+itoa(int64(n+1)))
				}
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s selects %q, want %q", when, strings.Join(got, " "), want)
		}
	}
}

func TestGlob(t *testing.T) {
	for _, x := range []struct {
		pattern, s string
		want       bool
	}{
		{"*", "", true}, {"a", "a", true}, {"a", "ab", false}, {"a*", "ab/c", true}, {"*c", "ab/c", true}, {"a*b*c", "aXbYc", true},
		{"a*b*c", "acb", false}, {"ab*ba", "aba", false}, {"*.json", "model.safetensors.index.json", true},
	} {
		if got := glob(x.pattern, x.s); got != x.want {
			t.Errorf("glob(%q, %q) = %v", x.pattern, x.s, got)
		}
	}
}

// Every action, as a client sees it that asks for bytes [100, 200) of a shard.
func TestActions(t *testing.T) {
	rel := testrel.QwenFP8()
	whole := rel.File(shard).Bytes()
	want := whole[100:200]
	size := itoa(int64(len(whole)))
	for _, x := range []struct {
		action string
		check  func(r answer) bool
	}{
		{"drop after=10", func(r answer) bool {
			return r.ContentLength == 100 && bytes.Equal(r.body, want[:10]) && errors.Is(r.err, io.ErrUnexpectedEOF)
		}},
		{"reset after=10", func(r answer) bool { return r.ContentLength == 100 && r.err != nil }},
		{"stall after=10 for=20ms", func(r answer) bool { return bytes.Equal(r.body, want[:10]) && r.err != nil }},
		{"drip rate=1000", func(r answer) bool { return r.err == nil && bytes.Equal(r.body, want) }},
		{"short by=1", func(r answer) bool {
			return r.err == nil && r.ContentLength == 99 && bytes.Equal(r.body, want[:99]) && r.StatusCode == 206
		}},
		{"long by=2", func(r answer) bool { return r.err == nil && string(r.body) == string(want)+"  " }},
		{"chunked", func(r answer) bool { return r.ContentLength == -1 && bytes.Equal(r.body, want) }},
		{`status code=429 header="Retry-After: 3" header="RateLimit: x;r=0;t=3" body=slow`, func(r answer) bool {
			return r.StatusCode == 429 && r.Header.Get("Retry-After") == "3" && r.Header.Get("RateLimit") != "" && string(r.body) == "slow"
		}},
		{"unsatisfiable", func(r answer) bool { return r.StatusCode == 416 && r.Header.Get("Content-Range") == "bytes */"+size }},
		{"unsatisfiable total=177", func(r answer) bool { return r.StatusCode == 416 && r.Header.Get("Content-Range") == "bytes */177" }},
		{"expired", func(r answer) bool { return r.StatusCode == 403 && strings.Contains(string(r.body), "expired") }},
		{"redirect to=http://127.0.0.1:1/x code=307", func(r answer) bool { return r.StatusCode == 307 && r.Header.Get("Location") == "http://127.0.0.1:1/x" }},
		{"redirect", func(r answer) bool { return r.StatusCode == 302 && r.Header.Get("Location") == r.Request.URL.String() }},
		{`header drop=Content-Range set="ETag: \"x\""`, func(r answer) bool { return r.StatusCode == 206 && r.Header["Content-Range"] == nil }},
		{"range start=4 total=-1", func(r answer) bool {
			return r.Header.Get("Content-Range") == "bytes 104-203/"+itoa(int64(len(whole))-1) && bytes.Equal(r.body, want)
		}},
		{"weak", func(r answer) bool { return strings.HasPrefix(r.Header.Get("ETag"), `W/"`) }},
		{"link to=http://elsewhere/", func(r answer) bool { return r.Header.Get("Link") == `<http://elsewhere/>; rel="next"` }},
		{"link to=endless", func(r answer) bool { return strings.Contains(r.Header.Get("Link"), "again=1") }},
		{"multipart", func(r answer) bool {
			return r.StatusCode == 206 && strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") && bytes.Contains(r.body, want)
		}},
		{"full", func(r answer) bool { return r.StatusCode == 200 && bytes.Equal(r.body, whole) }},
		{"long by=2\non data nth=1 : full", func(r answer) bool { return r.StatusCode == 200 && string(r.body) == string(whole)+"  " }},
		{"gzip", func(r answer) bool {
			return r.StatusCode == 200 && r.Header.Get("Content-Encoding") == "gzip" && r.body[0] == 0x1F
		}},
		{"shift by=4", func(r answer) bool {
			return r.Header.Get("Content-Range") == "bytes 100-199/"+size && bytes.Equal(r.body, whole[104:204])
		}},
		{"flip at=150", func(r answer) bool { return r.body[50] == want[50]^1 && bytes.Equal(r.body[51:], want[51:]) }},
		{"body text=other", func(r answer) bool { return r.StatusCode == 206 && string(r.body) == "other" }},
	} {
		h := start(t, Config{Plan: mustPlan(t, "on data nth=1 : "+strings.ReplaceAll(x.action, `\"`, ""))})
		h.AddRelease("demo/qwen-fp8", rel)
		url := signed(t, h)
		if r := get(t, url, "Range: bytes=100-199"); !x.check(r) {
			t.Errorf("%s: %d %v %d bytes, %v", x.action, r.StatusCode, r.Header, len(r.body), r.err)
		}
		if r := get(t, url, "Range: bytes=100-199"); r.StatusCode != 206 || !bytes.Equal(r.body, want) {
			t.Errorf("%s: the request after it: %d", x.action, r.StatusCode)
		}
	}
}

// A reply that never comes ends with the client or after its time, and the log says that nothing was sent.
func TestSilence(t *testing.T) {
	for _, action := range []string{"hang", "hang for=10ms", "close", "abort"} {
		var log Ledger
		h := start(t, Config{Log: log.Add, Plan: mustPlan(t, "on data : "+action)})
		h.AddRelease("demo/qwen-fp8", testrel.QwenFP8())
		url := signed(t, h)
		c := &http.Client{Timeout: 200 * time.Millisecond, Transport: &http.Transport{}}
		if r, err := c.Get(url); err == nil {
			t.Errorf("%s: %d", action, r.StatusCode)
		}
		data := Of("data", log.Take())
		if len(data) == 0 || data[0].Status != 0 || data[0].Bytes != 0 {
			t.Errorf("%s: log %v", action, data)
		}
	}
}

func TestSignedURLsExpire(t *testing.T) {
	h := start(t, Config{Plan: mustPlan(t, "hub signed=1ns")})
	h.AddRelease("demo/qwen-fp8", testrel.QwenFP8())
	url := signed(t, h)
	for range 30 { // it lives to the end of a second
		if r := get(t, url, "Range: bytes=0-0"); r.StatusCode == 403 {
			if !strings.Contains(string(r.body), "expired") {
				t.Errorf("%s", r.body)
			}
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Error("it lives after 3 s")
}

func TestPlanFileErrorsNameIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.txt")
	if err := os.WriteFile(path, []byte("nonsense\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPlan(path); err == nil || !strings.Contains(err.Error(), "plan.txt: line 1") {
		t.Errorf("%v", err)
	}
}

// The document names every action, and none that does not exist.
func TestDocumentNamesEveryAction(t *testing.T) {
	b, err := os.ReadFile("../../docs/stand-in-hub.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(b), "| action |")
	named := map[string]bool{}
	for _, line := range strings.Split(table, "\n") {
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		for i, code := range strings.Split(cell, "`") {
			if name, _, _ := strings.Cut(code, " "); i%2 == 1 && !strings.Contains(name, "=") {
				named[name] = true
			}
		}
	}
	for name := range actions {
		if !named[name] {
			t.Errorf("%s is not in the document", name)
		}
		delete(named, name)
	}
	for name := range named {
		t.Errorf("the document has %s, which does not exist", name)
	}
}
