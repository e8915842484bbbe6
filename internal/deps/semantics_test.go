package deps

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// folders is where the tests of the packages that SEMANTICS.md names stand.
var folders = map[string]string{
	"fs": "fs", "plan": "fs/plan", "cache": "cache", "sources": "sources", "transform": "transform", "quant": "transform/quant",
	"release": "sources/release", "safetensors": "sources/safetensors", "cmd": "cmd/weightfs", "soak": "internal/soak", "deps": "internal/deps",
}

// TestSemanticsNamesItsTests holds every sentence of SEMANTICS.md's lists to a test that exists.
func TestSemanticsNamesItsTests(t *testing.T) {
	text, err := os.ReadFile("../../SEMANTICS.md")
	if err != nil {
		t.Fatal(err)
	}
	promises, _, _ := strings.Cut(string(text), "## What is not promised")
	named := regexp.MustCompile("`([a-z]+)\\.(Test[A-Za-z0-9_]+)`")
	sentences := 0
	for _, line := range strings.Split(promises, "\n") {
		if !strings.HasPrefix(line, "* ") {
			continue
		}
		sentences++
		tests := named.FindAllStringSubmatch(line, -1)
		if len(tests) == 0 {
			t.Errorf("no test is named: %s", line)
		}
		for _, m := range tests {
			if !hasTest(t, folders[m[1]], m[2]) {
				t.Errorf("%s has no %s: %s", m[1], m[2], line)
			}
		}
	}
	if sentences < 30 {
		t.Errorf("found %d sentences", sentences)
	}
}

// TestDocumentsNameTests holds the fault matrix and the table of threats to tests that exist, one at least in each row.
func TestDocumentsNameTests(t *testing.T) {
	named := regexp.MustCompile("`([a-z]+)\\.((?:Test|Fuzz)[A-Za-z0-9_]+)`")
	for file, rows := range map[string]struct {
		row   *regexp.Regexp
		least int
	}{
		"docs/reliability.md": {regexp.MustCompile(`^\| T\d+ \|`), 40},
		"SECURITY.md":         {regexp.MustCompile(`^\| [a-z0-9].*Test`), 20},
	} {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, line := range strings.Split(string(text), "\n") {
			tests := named.FindAllStringSubmatch(line, -1)
			for _, m := range tests {
				if !hasTest(t, folders[m[1]], m[2]) {
					t.Errorf("%s: %s has no %s", file, m[1], m[2])
				}
			}
			if rows.row.MatchString(line) {
				found++
				if len(tests) == 0 {
					t.Errorf("%s: no test is named: %s", file, line)
				}
			}
		}
		if found < rows.least {
			t.Errorf("%s: found %d rows", file, found)
		}
	}
}

// hasTest reports whether some test file of the folder, or of its sub-folder sourcetest, declares the test.
func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	if dir == "" {
		return false
	}
	files, err := filepath.Glob("../../" + dir + "/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	more, _ := filepath.Glob("../../" + dir + "/sourcetest/*_test.go")
	for _, f := range append(files, more...) {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "func "+name+"(") {
			return true
		}
	}
	return false
}
