package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	in := `{"Action":"output","Package":"a","Test":"TestX","Output":"=== RUN TestX\n"}
{"Action":"output","Package":"a","Test":"TestX","Output":"    x_test.go:3: no /dev/fuse here\n"}
{"Action":"skip","Package":"a","Test":"TestX"}
{"Action":"pass","Package":"a","Test":"TestY"}
{"Action":"output","Package":"a","Test":"TestZ","Output":"    z_test.go:9: wrong byte\n"}
{"Action":"fail","Package":"a","Test":"TestZ"}
{"Action":"fail","Package":"a","Elapsed":1}
plain words of the compiler
`
	var out strings.Builder
	r := &report{out: &out, output: map[string][]string{}}
	if err := r.read(strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	r.close()
	if err := r.listSkips(nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"wrong byte", "a TestX: x_test.go:3: no /dev/fuse here", "plain words of the compiler", "1 passed, 2 failed, 1 skipped"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("report lacks %q:\n%s", want, out.String())
		}
	}
}

// TestSkipsAreCollected: several runs end in one list.
func TestSkipsAreCollected(t *testing.T) {
	file := filepath.Join(t.TempDir(), "skips")
	for _, skips := range [][]string{{"b TestB: no disk", "a TestA: no C compiler"}, nil, {"c TestC: no FUSE"}} {
		r := &report{out: io.Discard, skips: skips}
		if err := r.listSkips([]string{file}); err != nil {
			t.Fatal(err)
		}
	}
	const want = "Not run on this machine: a TestA: no C compiler\nNot run on this machine: b TestB: no disk\nNot run on this machine: c TestC: no FUSE\n"
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
}
