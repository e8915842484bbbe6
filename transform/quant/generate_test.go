//go:build amd64 && !purego

package quant

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestGenerated runs the generator of the assembly and compares what it writes with what is committed, but for the first line, which names the files.
// The generator is a module of its own; where its one dependency is not in the module cache it cannot run.
func TestGenerated(t *testing.T) {
	if testing.Short() {
		t.Skip("the generator is not run: -short")
	}
	dir := t.TempDir()
	list := exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}}", ".")
	list.Dir, list.Env = "_generate", append(os.Environ(), "GOPROXY=off")
	if out, err := list.CombinedOutput(); err != nil {
		t.Skipf("the generator is not run: its dependencies are not here (cd transform/quant/_generate && go mod download): %s", bytes.TrimSpace(out))
	}
	run := exec.Command("go", "run", ".", "-out", filepath.Join(dir, "simd_amd64.s"), "-stubs", filepath.Join(dir, "simd_amd64.go"), "-pkg", "quant")
	run.Dir, run.Env = "_generate", append(os.Environ(), "GOPROXY=off")
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"simd_amd64.s", "simd_amd64.go"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, got, _ = bytes.Cut(got, []byte("\n"))
		_, want, _ = bytes.Cut(want, []byte("\n"))
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the generator writes: go generate ./transform/quant", name)
		}
	}
}
