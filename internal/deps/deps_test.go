package deps

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "weightfs"

// rule says what the packages of one folder may import. Test files are held to the same module-internal rules but may use test
// libraries and internal/ helpers.
type rule struct {
	dir      string   // package folder below the module root
	stdOnly  bool     // nothing but the standard library and what allow names
	allow    []string // import paths allowed beside std; a trailing * matches a prefix
	forbid   []string // import paths never allowed; a trailing * matches a prefix
	nonTests bool     // the rule holds for non-test files only
}

var rules = []rule{
	{dir: "fs/plan", stdOnly: true, nonTests: true},
	{dir: "sources/safetensors", stdOnly: true, nonTests: true},
	{dir: "transform/quant", stdOnly: true, nonTests: true,
		allow: []string{"weightfs/fs/plan", "github.com/x448/float16", "golang.org/x/sys/cpu"}},
	{dir: "transform", nonTests: true,
		forbid: []string{"weightfs/cache*", "weightfs/fs", "weightfs/sources", "weightfs/sources/sourcetest"}},
	{dir: "sources", forbid: []string{"weightfs/sources/release", "weightfs/transform*", "weightfs/cache", "weightfs/fs*"}, nonTests: true},
	{dir: "sources/release", forbid: []string{"weightfs/transform*", "weightfs/cache", "weightfs/fs*"}, nonTests: true},
	{dir: "cache", forbid: []string{"weightfs/sources/release", "weightfs/sources/safetensors", "weightfs/transform*", "weightfs/fs"}, nonTests: true},
	{dir: "fs", forbid: []string{"weightfs/transform*", "weightfs/sources/release", "weightfs/cmd*"}, nonTests: true},
}

func matches(patterns []string, imp string) bool {
	for _, p := range patterns {
		if prefix, ok := strings.CutSuffix(p, "*"); ok && strings.HasPrefix(imp, prefix) || p == imp {
			return true
		}
	}
	return false
}

// isStd reports whether an import path belongs to the standard library: its first element has no dot.
func isStd(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return !strings.Contains(first, ".") && first != module
}

func (r rule) check(imp string) string {
	if matches(r.forbid, imp) {
		return "is forbidden there"
	}
	if r.stdOnly && !isStd(imp) && !matches(r.allow, imp) {
		return "is neither the standard library nor allowed there"
	}
	return ""
}

// imports calls f with every import of every Go file of the module; dir is slash-separated and relative to the root.
func imports(t *testing.T, f func(dir, file, imp string)) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	err = fs.WalkDir(os.DirFS(root), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "build" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), "_") || p != "." && strings.HasPrefix(d.Name(), ".")) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		files++
		src, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, p), nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, s := range src.Imports {
			imp, err := strconv.Unquote(s.Path.Value)
			if err != nil {
				return err
			}
			f(path.Dir(p), p, imp)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 20 {
		t.Fatalf("found %d Go files below %s: the test looks in the wrong place", files, root)
	}
}

func TestImportRules(t *testing.T) {
	seen := map[string]bool{}
	imports(t, func(dir, file, imp string) {
		for _, r := range rules {
			if r.dir != dir || r.nonTests && strings.HasSuffix(file, "_test.go") {
				continue
			}
			seen[r.dir] = true
			if why := r.check(imp); why != "" {
				t.Errorf("%s imports %s, which %s", file, imp, why)
			}
		}
	})
	for _, r := range rules {
		if !seen[r.dir] {
			t.Errorf("no import was checked in %s: the rule is stale", r.dir)
		}
	}
}

func TestWhoImportsGoFuse(t *testing.T) {
	found := false
	imports(t, func(dir, file, imp string) {
		if !strings.HasPrefix(imp, "github.com/hanwen/go-fuse/") {
			return
		}
		if dir != "fs" && dir != "internal/bench" { // bench compares with a server that does nothing else
			t.Errorf("%s imports %s: only packages fs and internal/bench may", file, imp)
		}
		found = true
	})
	if !found {
		t.Error("nothing imports go-fuse")
	}
}

func TestOnlyCmdWires(t *testing.T) {
	imports(t, func(dir, file, imp string) {
		if imp == "weightfs/transform" && dir != "cmd/weightfs" && dir != "transform" && !strings.HasSuffix(file, "_test.go") {
			t.Errorf("%s imports %s: only cmd/weightfs wires views to doors", file, imp)
		}
	})
}

// TestRulesReject makes sure that the checker can fail.
func TestRulesReject(t *testing.T) {
	for _, c := range []struct {
		dir, imp string
		bad      bool
	}{
		{"fs/plan", "context", false},
		{"fs/plan", "golang.org/x/sys/unix", true},
		{"fs/plan", "weightfs/sources", true},
		{"transform", "weightfs/cache", true},
		{"transform", "weightfs/fs", true},
		{"transform", "weightfs/fs/plan", false},
		{"transform/quant", "weightfs/sources/release", true},
		{"cache", "weightfs/sources/release", true},
		{"cache", "weightfs/fs/plan", false},
		{"sources", "weightfs/sources/release", true},
	} {
		bad := false
		for _, r := range rules {
			bad = bad || r.dir == c.dir && r.check(c.imp) != ""
		}
		if bad != c.bad {
			t.Errorf("%s importing %s: refused is %v, want %v", c.dir, c.imp, bad, c.bad)
		}
	}
}
