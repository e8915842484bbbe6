package main

import (
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
	for _, want := range []string{"wrong byte", "a TestX: x_test.go:3: no /dev/fuse here", "plain words of the compiler", "1 passed, 2 failed, 1 skipped"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("report lacks %q:\n%s", want, out.String())
		}
	}
}
