// Package generated checks committed assembly against its generator.
package generated

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Check runs the generator in _generate of the package under test and compares the assembly and the declarations that it writes, stem.s and stem.go,
// with what is committed, but for the first line, which names the files. A generator is a module of its own; where what it depends on is not in the
// module cache it cannot run.
func Check(t *testing.T, stem string) {
	t.Helper()
	if testing.Short() {
		t.Skip("the generator is not run: -short")
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := goTool("list", "-deps", "-f", "{{.ImportPath}}", "."); err != nil {
		t.Skipf("the generator is not run: its dependencies are not here (cd _generate && go mod download): %s", bytes.TrimSpace(out))
	}
	dir := t.TempDir()
	to := func(ext string) string { return filepath.Join(dir, stem+ext) }
	if out, err := goTool("run", ".", "-out", to(".s"), "-stubs", to(".go"), "-pkg", filepath.Base(here)); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, ext := range []string{".s", ".go"} {
		if !bytes.Equal(afterFirstLine(t, to(ext)), afterFirstLine(t, stem+ext)) {
			t.Errorf("%s is not what the generator writes: go generate", stem+ext)
		}
	}
}

func goTool(args ...string) ([]byte, error) {
	c := exec.Command("go", args...)
	c.Dir, c.Env = "_generate", append(os.Environ(), "GOPROXY=off")
	return c.CombinedOutput()
}

func afterFirstLine(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(text, []byte("\n"))
	return rest
}
