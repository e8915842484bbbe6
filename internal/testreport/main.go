// Command testreport reads the output of one or more "go test -json" runs and prints what a person wants to know of it: a line a
// package, the whole output of whatever failed, and at the end every skipped test with its reason. It exits 1 if anything failed. With the name of a
// file it adds the skipped tests to that instead, so that several runs end in one list.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
)

// event is one line of go test -json.
type event struct {
	Action, Package, Test, Output string
	ImportPath                    string // of a build failure
	Elapsed                       float64
}

type report struct {
	out                     io.Writer
	passed, failed, skipped int
	output                  map[string][]string // of each test or package that still runs
	skips                   []string
}

func main() {
	r := &report{out: os.Stdout, output: map[string][]string{}}
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
	r.close()
	if err := r.listSkips(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
	if r.failed > 0 || r.passed == 0 {
		os.Exit(1)
	}
}

func (r *report) read(in io.Reader) error {
	s := bufio.NewScanner(in)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		var e event
		if json.Unmarshal(s.Bytes(), &e) != nil {
			fmt.Fprintln(r.out, s.Text()) // not an event: the compiler or the shell speaks
			continue
		}
		r.event(e)
	}
	return s.Err()
}

func (r *report) event(e event) {
	key := e.Package + e.ImportPath + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		r.output[key] = append(r.output[key], e.Output)
		return
	case "pass", "fail", "skip", "build-fail":
		r.ended(e, strings.Join(r.output[key], ""))
		delete(r.output, key)
	}
}

func (r *report) ended(e event, output string) {
	name := strings.TrimSpace(e.Package + e.ImportPath + " " + e.Test)
	switch {
	case e.Action == "build-fail":
		fmt.Fprint(r.out, output)
	case e.Action == "fail" && e.Test == "":
		r.failed++
		fmt.Fprintf(r.out, "FAIL %s (%.1f s)\n%s", name, e.Elapsed, output)
	case e.Action == "fail":
		r.failed++
		fmt.Fprintf(r.out, "FAIL %s\n%s", name, output)
	case e.Action == "skip" && e.Test != "":
		r.skipped++
		r.skips = append(r.skips, name+": "+reason(output))
	case e.Action == "pass" && e.Test == "":
		fmt.Fprintf(r.out, "ok   %s (%.1f s)\n", name, e.Elapsed)
	case e.Action == "pass":
		r.passed++
	}
}

// reason is what the test said when it skipped itself.
func reason(output string) string {
	var lines []string
	for _, l := range strings.Split(output, "\n") {
		l = strings.TrimSpace(l)
		if l != "" && !strings.HasPrefix(l, "===") && !strings.HasPrefix(l, "---") {
			lines = append(lines, l)
		}
	}
	return strings.Join(lines, " ")
}

func (r *report) close() {
	for key, lines := range r.output { // a run that was cut off
		if strings.Contains(strings.Join(lines, ""), "panic:") {
			fmt.Fprintf(r.out, "%s\n%s", key, strings.Join(lines, ""))
		}
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
}

// listSkips says what was skipped, and why: at the end of the file named, or, if none is, of the report.
func (r *report) listSkips(file []string) error {
	sort.Strings(r.skips)
	var list strings.Builder
	for _, s := range r.skips {
		fmt.Fprintf(&list, "Not run on this machine: %s\n", s)
	}
	if len(file) == 0 {
		_, err := io.WriteString(r.out, list.String())
		return err
	}
	f, err := os.OpenFile(file[0], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(list.String())
	return errors.Join(err, f.Close())
}
