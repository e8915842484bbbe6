package sources

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestCheckPath has one path for every rule, and those that are odd and allowed.
func TestCheckPath(t *testing.T) {
	refused := []string{
		"", ".", "..", "a//b", "/a", "a/", "a/../b", "../a", "a/./b", `a\b`, "C:", "c:/x", "C:x", `\\host\share`,
		"a\x00b", "a\nb", "a\x7fb", "a\u0085b", "\xff\xfe", "a\ufffdb", "a\u2028b", "a\u2029b", "a\u202eb", "a\u2066b", "\x1b[2J",
		strings.Repeat("x", 256), strings.Repeat("x/", 64) + "x", strings.Repeat(strings.Repeat("x", 200)+"/", 21) + "x",
	}
	for _, p := range refused {
		if checkPath(p) == nil {
			t.Errorf("%.40q is allowed", p)
		}
	}
	for _, p := range []string{"a", "a/b", ".gitattributes", "...", "a b", "ü", "ü", "模型.json", "A", "ab:c", "CON", strings.Repeat("x", 255), "-rf", "~", "*"} {
		if err := checkPath(p); err != nil {
			t.Errorf("%q: %v", p, err)
		}
	}
}

// TestSift: what wins where two entries cannot both be.
func TestSift(t *testing.T) {
	sha, oid := strings.Repeat("Ab", 32), strings.Repeat("0f", 20)
	files, hidden := sift([]Entry{
		{Path: "z", Size: 1}, {Path: "a", Size: 2}, {Path: "a/b", Size: 3}, {Path: "a/b/c", Size: 4}, {Path: "z", Size: 5}, {Path: "d"},
		{Path: "neg", Size: -1}, {Path: "../up"}, {Path: "A", SHA256: sha, GitOID: oid}, {Path: "n", SHA256: "xyz", GitOID: sha},
	}, "d")
	want := []Entry{{Path: "A", SHA256: strings.ToLower(sha), GitOID: oid}, {Path: "a/b/c", Size: 4}, {Path: "n"}, {Path: "z", Size: 1}}
	if !reflect.DeepEqual(files, want) {
		t.Errorf("files %+v", files)
	}
	wantHidden := []Hidden{{"../up", `component ".." in the path`}, {"a", "also a directory"}, {"a/b", "also a directory"}, {"d", "also a directory"},
		{"neg", "size is not a number of bytes"}, {"z", "listed twice"}}
	if !reflect.DeepEqual(hidden, wantHidden) {
		t.Errorf("hidden %+v", hidden)
	}
}

// TestTreeEntries: a bad entry of a tree page hides itself and nothing else.
func TestTreeEntries(t *testing.T) {
	page := `[
		{"type":"file","path":"ok","size":5,"oid":"` + strings.Repeat("ab", 20) + `","future":{"x":[1]}},
		{"type":"file","path":"lfs","size":7,"oid":"x","lfs":{"oid":"` + strings.Repeat("cd", 32) + `","size":7,"pointerSize":1}},
		{"type":"file","path":"lfs2","size":7,"lfs":{"oid":"","size":8}},
		{"type":"file","path":"float","size":1.5}, {"type":"file","path":"exp","size":1e3}, {"type":"file","path":"minus","size":-1},
		{"type":"file","path":"2^63","size":9223372036854775808}, {"type":"file","path":"max","size":9223372036854775807},
		{"type":"file","path":"nosize"}, {"type":"file","path":["x"],"size":1}, 5, null,
		{"type":"symlink","path":"link","size":1}, {"type":"directory","path":"dir"}, {"type":"file","path":"dir","size":1},
		{"type":"file","path":"/etc/passwd","size":1}
	]`
	tr := &tree{}
	if err := tr.page(strings.NewReader(page)); err != nil {
		t.Fatal(err)
	}
	files, hidden := sift(tr.entries, tr.dirs...)
	want := []Entry{{Path: "lfs", Size: 7, SHA256: strings.Repeat("cd", 32)}, {Path: "max", Size: 1<<63 - 1}, {Path: "ok", Size: 5, GitOID: strings.Repeat("ab", 20)}}
	if !reflect.DeepEqual(files, want) {
		t.Errorf("files %+v", files)
	}
	if n := len(hidden) + len(tr.hidden); n != 12 {
		t.Errorf("%d hidden, want 12: %+v %+v", n, hidden, tr.hidden)
	}
}

// FuzzTreePage: whatever the Hub says, what comes out is a listing that can be mounted.
func FuzzTreePage(f *testing.F) {
	f.Add([]byte(`[{"type":"file","path":"a/b","size":5,"oid":"x","lfs":{"oid":"y","size":5}},{"type":"directory","path":"a"}]`))
	f.Add([]byte(`[{"type":"file","path":"..","size":1e3},{"path":5},null,3]`))
	f.Add([]byte(`[{"type":"file","path":"a","size":1},{"type":"file","path":"a/\u202e","size":1}`))
	f.Fuzz(func(t *testing.T, page []byte) {
		tr := &tree{}
		err := tr.page(bytes.NewReader(page))
		files, hidden := sift(tr.entries, tr.dirs...)
		if err == nil && len(files)+len(hidden)+len(tr.hidden)+len(tr.dirs) != tr.count {
			t.Fatalf("%d entries became %d files, %d and %d hidden, %d directories", tr.count, len(files), len(hidden), len(tr.hidden), len(tr.dirs))
		}
		for i, e := range files {
			if checkPath(e.Path) != nil || e.Size < 0 || i > 0 && files[i-1].Path >= e.Path {
				t.Fatalf("file %+v", e)
			}
			for _, other := range files {
				if strings.HasPrefix(other.Path, e.Path+"/") {
					t.Fatalf("%q is a file and a directory", e.Path)
				}
			}
			if hubID(e) != (ID{}) && e.SHA256 == "" && len(e.GitOID) != 40 {
				t.Fatalf("an ID without a hash: %+v", e)
			}
		}
		for _, h := range append(hidden, tr.hidden...) {
			if !utf8.ValidString(h.Path) || strings.ContainsFunc(h.Path, steers) {
				t.Fatalf("hidden name %q would steer a terminal", h.Path)
			}
		}
	})
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"a b/ü": "a b/ü", "": `""`, "\x1b[2J": `"\x1b[2J"`, "\xff": `"\xff"`, "a\u202eb": `"a\u202eb"`,
		strings.Repeat("x", 300): strings.Repeat("x", 256) + "…",
	} {
		if got := printable(in); got != want {
			t.Errorf("printable(%q) = %s, want %s", in, got, want)
		}
	}
}
