package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestRowJudgesMedianOfRatios(t *testing.T) {
	b := &bench{samples: map[string][]float64{"a": {1, 8, 3}, "b": {2, 10, 3}, "c": {0, 0, 1}}}
	for _, x := range []struct {
		w        want
		measured bool
		ratio    float64
		ok       bool
	}{
		{want{num: "a", den: "b", atLeast: 0.8}, true, 0.8, true}, // 0.5, 0.8, 1
		{want{num: "a", den: "b", atLeast: 0.81}, true, 0.8, false},
		{want{num: "a", den: "b", atMost: 0.8}, true, 0.8, true},
		{want{num: "a", atMost: 2.9}, true, 0, false}, // the median is 3
		{want{num: "c", exactly: true}, true, 0, true},
		{want{num: "a", den: "missing", atLeast: 1}, false, 0, false},
		{want{num: "missing", atLeast: 1}, false, 0, false},
	} {
		r, measured := b.row(x.w)
		if measured != x.measured || r.Ratio != x.ratio || measured && *r.OK != x.ok {
			t.Errorf("%+v: %+v %v", x.w, r, measured)
		}
	}
	if r, _ := b.row(want{num: "a", den: "b"}); r.OK != nil || r.Bound != "" {
		t.Errorf("a row without a bound is judged: %+v", r)
	}
}

func TestBetween(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.md")
	write := func(s string) {
		if err := os.WriteFile(path, []byte(s), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("head\n" + begin + "\nold\n" + end + "\ntail\n")
	for range 2 { // what it wrote it can replace
		if err := between(path, "new\n"); err != nil {
			t.Fatal(err)
		}
	}
	got, _ := os.ReadFile(path)
	if want := "head\n" + begin + "\n\nnew\n\n" + end + "\ntail\n"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
	write("no markers\n")
	if err := between(path, "new\n"); err == nil {
		t.Error("a file without markers is written")
	}
}

// TestEveryBoundIsMeasured: names of samples that bounds speak of are names that some workload adds.
func TestEveryBoundIsMeasured(t *testing.T) {
	words := workloadStrings(t)
	for _, s := range otherShapes() {
		words = append(words, s.String())
	}
	for _, w := range wants() {
		for _, sample := range []string{w.num, w.den} {
			if !spelled(sample, words) {
				t.Errorf("nobody measures %q", sample)
			}
		}
	}
	if spelled("warm dusk", words) {
		t.Error("any name passes")
	}
}

// workloadStrings are the string constants of the files with workloads, but for the functions that say what is wanted.
func workloadStrings(t *testing.T) (out []string) {
	for _, name := range []string{"workloads.go", "servers.go", "experts.go", "cached.go", "kernels.go", "rivals.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				return !strings.HasSuffix(n.Name.Name, "Wants")
			case *ast.BasicLit:
				if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && s != "" {
					out = append(out, s)
				}
			}
			return true
		})
	}
	return out
}

// spelled says whether s is some of the words, one after another.
func spelled(s string, words []string) bool {
	return s == "" || slices.ContainsFunc(words, func(w string) bool {
		rest, ok := strings.CutPrefix(s, w)
		return ok && spelled(rest, words)
	})
}

// TestReaders: every way to read gives all bytes that were asked for, and one part a pass, file or range.
func TestReaders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	const size = 5<<20 + 123
	if _, err := writeFile(path, size); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	spans := []span{{5, 10}, {1 << 20, 3<<20 + 1}, {size - 1, size}}
	for _, x := range []struct {
		j     job
		bytes int64
		parts int
	}{
		{job{Op: "read", Path: path}, size, 1},
		{job{Op: "read", Path: path, Map: true, Drop: 2, Again: 3}, 5 * size, 5},
		{job{Op: "read", Path: path, Size: 1000, Drop: 1}, 1000, 1},
		{job{Op: "files", Paths: []string{path, path}}, 2 * size, 2},
		{job{Op: "ranges", Path: path, Ranges: spans}, 5 + 2<<20 + 1 + 1, 3},
		{job{Op: "ranges", Path: path, Ranges: spans, Threads: 3}, 5 + 2<<20 + 1 + 1, 3},
		{job{Op: "ranges", Path: path, Ranges: spans, Map: true, Random: true}, 5 + 2<<20 + 1 + 1, 3},
	} {
		r, err := x.j.do()
		if err != nil || r.Bytes != x.bytes || len(r.Parts) != x.parts || r.seconds() <= 0 {
			t.Errorf("%+v: %d bytes in %d parts, %v", x.j, r.Bytes, len(r.Parts), err)
		}
	}
}

func TestRates(t *testing.T) {
	j := job{Drop: 2, Again: 4}
	dropped, again := j.rates(result{Bytes: 600, Parts: []float64{1, 2, 100, 50, 4, 5}})
	if !slices.Equal(dropped, []float64{100, 50}) || !slices.Equal(again, []float64{25, 20}) {
		t.Errorf("%v, %v", dropped, again)
	}
}

// TestUnmeasuredRowsAreNamed: a whole run says which rows it has no samples for; one of some workloads does not.
func TestUnmeasuredRowsAreNamed(t *testing.T) {
	b := &bench{samples: map[string][]float64{"memcpy": {1}}, notes: map[string]string{}}
	rows := b.rows()
	if len(rows) != 1 || b.notes["Floors: one raw socket"] == "" || b.notes["Floors: memcpy, 32 MiB buffers, one core"] != "" {
		t.Errorf("%v, %v", rows, b.notes)
	}
	b = &bench{notes: map[string]string{}}
	b.opt.only = "x"
	if b.rows(); len(b.notes) != 0 {
		t.Errorf("notes of what was not asked for: %v", b.notes)
	}
}

func TestRandomPages(t *testing.T) {
	seen := map[int64]bool{}
	for _, s := range randomPages(10_000, 10_000+50*4096, 40) {
		if s.Start%4096 != 0 || s.End != s.Start+4096 || s.Start < 8192 || s.End > 10_000+50*4096 || seen[s.Start] {
			t.Errorf("page %v", s)
		}
		seen[s.Start] = true
	}
	if len(seen) != 40 {
		t.Errorf("%d pages", len(seen))
	}
}
