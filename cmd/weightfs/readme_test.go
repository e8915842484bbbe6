package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestReadme runs the sessions that README.md prints, line by line, with the real main.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	script := sessions(t, string(text))
	if n := strings.Count(script, "exec weightfs"); n < 8 {
		t.Fatalf("README.md has %d tested commands:\n%s", n, script)
	}
	file := filepath.Join(t.TempDir(), "readme.txt")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Files: []string{file},
		Setup: func(e *testscript.Env) error {
			e.Setenv("XDG_CACHE_HOME", filepath.Join(e.WorkDir, "cache"))
			e.Setenv("HOME", e.WorkDir)
			return nil
		},
		Condition: func(string) (bool, error) {
			_, err := os.Stat("/dev/fuse")
			return err == nil, nil
		},
	})
}

// sessions is the README's blocks marked as run, as one script. Blocks that need FUSE run where it is.
func sessions(t *testing.T, text string) string {
	t.Helper()
	var script strings.Builder
	for _, part := range strings.Split(text, "<!-- run by cmd/weightfs: TestReadme")[1:] {
		mark, rest, _ := strings.Cut(part, "\n")
		_, block, ok := strings.Cut(rest, "```sh\n")
		block, _, ok2 := strings.Cut(block, "```")
		if !ok || !ok2 {
			t.Fatalf("no sh block after the mark%s", mark)
		}
		cond := ""
		if strings.Contains(mark, "FUSE") {
			cond = "[fuse] "
		}
		for _, line := range strings.Split(strings.TrimSpace(block), "\n") {
			if strings.HasPrefix(line, "weightfs ") {
				line = "exec " + line
			}
			script.WriteString(cond + line + "\n")
		}
	}
	return script.String()
}
