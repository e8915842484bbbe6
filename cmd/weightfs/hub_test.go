package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"weightfs/internal/hubtest"
	"weightfs/internal/testrel"
)

// testHub is a stand-in hub with the small releases as demo/NAME, one gated and one private repository, and a ledger.
func testHub(plan *hubtest.Plan) (*hubtest.Hub, *hubtest.Ledger, error) {
	ledger := &hubtest.Ledger{}
	h, err := hubtest.Start(hubtest.Config{Make: demoRelease, Log: ledger.Add, Plan: plan})
	if err != nil {
		return nil, nil, err
	}
	dense := hubtest.FilesOf(testrel.ByName("dense-bf16")[0])
	h.Add(hubtest.Repo{Name: "closed/gated", Access: hubtest.Gated, Token: "hf_right", Files: dense})
	h.Add(hubtest.Repo{Name: "closed/private", Access: hubtest.Private, Token: "hf_right", Files: dense})
	return h, ledger, nil
}

// ledgerKey is where a script keeps the ledger of its hub.
type ledgerKey struct{}

// startHub is "hub [PLAN]": it starts a stand-in hub, under the fault plan in that file if given, and points HF_ENDPOINT to it.
func startHub(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 1 {
		ts.Fatalf("usage: hub [PLAN]")
	}
	var plan *hubtest.Plan
	if len(args) == 1 {
		var err error
		plan, err = hubtest.ParsePlan(ts.ReadFile(args[0]))
		ts.Check(err)
	}
	h, ledger, err := testHub(plan)
	ts.Check(err)
	ts.Defer(h.Close)
	ts.Value(ledgerKey{}).(*scriptLedger).Ledger = ledger
	ts.Setenv("HF_ENDPOINT", h.URL)
}

type scriptLedger struct{ *hubtest.Ledger }

// writeLedger is "ledger FILE": the requests since the last time, one a line, sorted: kind path start end.
func writeLedger(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: ledger FILE")
	}
	var lines []string
	for _, e := range ts.Value(ledgerKey{}).(*scriptLedger).Take() {
		lines = append(lines, fmt.Sprintf("%s %s %d %d\n", e.Kind, e.Path, e.Start, e.End))
	}
	slices.Sort(lines)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Join(lines, "")), 0o666))
}

// startFiles is "files DIR": it serves a directory as any web server would, at $FILES.
func startFiles(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: files DIR")
	}
	s := httptest.NewServer(http.FileServer(http.Dir(ts.MkAbs(args[0]))))
	ts.Defer(s.Close)
	ts.Setenv("FILES", s.URL)
}

// writeHubCache is "hubcache RELEASE ORG/NAME COMMIT links|copies [FILE...]": it writes what huggingface_hub leaves in $HF_HOME when files of
// a release, all of them if none is named, are downloaded from the main branch, with links or on a system without.
func writeHubCache(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 {
		ts.Fatalf("usage: hubcache RELEASE ORG/NAME COMMIT links|copies [FILE...]")
	}
	repo := filepath.Join(ts.Getenv("HF_HOME"), "hub", "models--"+strings.ReplaceAll(args[1], "/", "--"))
	write := func(name string, content []byte) {
		name = filepath.Join(repo, name)
		ts.Check(os.MkdirAll(filepath.Dir(name), 0o777))
		ts.Check(os.WriteFile(name, content, 0o666))
	}
	write("refs/main", []byte(args[2]))
	for _, f := range testrel.ByName(args[0])[0].Files {
		if len(args) > 4 && !slices.Contains(args[4:], f.Path) {
			continue
		}
		content, err := io.ReadAll(io.NewSectionReader(&f, 0, f.Size))
		ts.Check(err)
		name := path.Join("snapshots", args[2], f.Path)
		if args[3] == "copies" {
			write(name, content)
			continue
		}
		sum := sha256.Sum256(content)
		blob := "blobs/" + hex.EncodeToString(sum[:])
		write(blob, content)
		link := filepath.Join(repo, name)
		ts.Check(os.MkdirAll(filepath.Dir(link), 0o777))
		ts.Check(os.Symlink(strings.Repeat("../", strings.Count(name, "/"))+blob, link))
	}
}

// command runs the program and returns what it printed.
func command(t *testing.T, args ...string) []byte {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(t.Context(), append([]string{"weightfs"}, args...), nil, &out, &errs); code != exitOK {
		t.Fatalf("weightfs %s: exit code %d: %s", strings.Join(args, " "), code, errs.String())
	}
	return out.Bytes()
}

// transfers is the ranges of content that were asked for, sorted.
func transfers(entries []hubtest.Entry) (out []byteRange) {
	for _, e := range entries {
		if e.Kind == "data" || e.Kind == "resolve" && e.Bytes > 0 {
			out = append(out, byteRange{e.Path, e.Start, e.End})
		}
	}
	return sorted(out)
}

func sorted(r []byteRange) []byteRange {
	slices.SortFunc(r, func(a, b byteRange) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End))
	})
	return r
}

// TestExplainIsWhatReadingSends: with an empty cache, reading a whole file sends exactly the requests that explain prints, beside those
// for headers, which explain itself sends.
func TestExplainIsWhatReadingSends(t *testing.T) {
	h, ledger, err := testHub(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	t.Setenv("HF_ENDPOINT", h.URL)
	for _, c := range []struct{ release, path string }{
		{"qwen-fp8", "experts/native/blocks/L001/E011.bin"},
		{"qwen-fp8", "experts/bf16/blocks/L000/E000.bin"},
		{"qwen-fp8", "experts/native/expert_blocks.bin"},
		{"qwen-fp8", "bf16/model-00003-of-00010.safetensors"},
		{"qwen-fp8", "release/model-00001-of-00010.safetensors"},
		{"dense-bf16", "bf16-all/model-00001-of-00001.safetensors"},
		{"kimi-mxfp4", "resident/model-00002-of-00006.safetensors"},
		{"qwen-fp8", "release/tokenizer.json"},
		{"kimi-mxfp4", "experts/native/blocks/L001/E000.bin"},
		{"qwen-fused", "experts/native/blocks/L000/E001.bin"},
	} {
		source := "hf://demo/" + c.release
		explained := command(t, "explain", "--json", "--cache-dir", t.TempDir(), source, c.path)
		headers := transfers(ledger.Take())
		var x explanation
		if err := json.Unmarshal(explained, &x); err != nil {
			t.Fatal(err)
		}
		body := command(t, "cat", "--cache-dir", t.TempDir(), source, c.path)
		got := transfers(ledger.Take())
		want := sorted(append(headers, x.Requests...))
		if strings.HasPrefix(c.path, "release/") {
			want = sorted(x.Requests) // no headers are needed
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: read\n%v\nexplained (with headers)\n%v", c.path, got, want)
		}
		var total int64
		for _, r := range x.Requests {
			total += r.End - r.Start
		}
		if total != x.Bytes || int64(len(body)) != x.Size {
			t.Errorf("%s: requests of %d bytes, said %d; a file of %d, said %d", c.path, total, x.Bytes, len(body), x.Size)
		}
	}
}
