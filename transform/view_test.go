package transform

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weightfs/fs/plan"
	"weightfs/internal/testrel"
)

// TestGolden has every file of every view of the small releases: names and sizes, and how each file is made.
func TestGolden(t *testing.T) {
	for _, r := range testrel.Small() {
		t.Run(r.Name, func(t *testing.T) {
			dir, m := open(r)
			var list strings.Builder
			for _, f := range filesBut(t, dir) {
				fmt.Fprintf(&list, "%12d %s\n", f.node.Size, f.path)
			}
			golden(t, r.Name+"/tree", list.String())
			golden(t, r.Name+"/README", string(at(t, dir, m, "README.md")))
		})
	}
}

func TestAbsentViews(t *testing.T) {
	dir, _ := open(testrel.DenseBF16())
	for _, path := range []string{"experts", "experts/native", "experts/bf16/manifest.json"} {
		_, err := plan.Walk(t.Context(), dir, path)
		var a *Absent
		if !errors.As(err, &a) || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestGoldenPlans has how the files of the views are made: the digest of every plan, and the whole text of one shard and one block of
// each view.
func TestGoldenPlans(t *testing.T) {
	for _, r := range testrel.Small() {
		t.Run(r.Name, func(t *testing.T) {
			dir, m := open(r)
			var out strings.Builder
			shown := map[string]bool{}
			names := func(i int) string { return m.files[i].path }
			for _, f := range filesBut(t, dir, "release") {
				p, err := f.node.Open(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				sum, err := plan.Digest(p, names)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&out, "%.6x %s\n", sum, f.path)
				kind := numbers.ReplaceAllString(strings.TrimSuffix(f.path, path.Base(f.path))+path.Ext(f.path), "#")
				if ext := path.Ext(f.path); shown[kind] || ext != ".safetensors" && ext != ".bin" || path.Base(f.path) == "expert_blocks.bin" {
					continue
				}
				shown[kind] = true
				var text strings.Builder
				if err := plan.Text(&text, p, names); err != nil {
					t.Fatal(err)
				}
				lines := strings.SplitAfter(text.String(), "\n")
				if len(lines) > 25 {
					lines = append(lines[:24], fmt.Sprintf("... %d lines in all\n", len(lines)-1))
				}
				out.WriteString("\t" + strings.Join(lines, "\t"))
				out.WriteString("\n")
			}
			golden(t, r.Name+"/plans", out.String())
		})
	}
}

// filesBut lists a tree without some of its entries, of ranks/ the ranks of two only, of the blocks those of experts 0, of the 4-bit
// encodings one.
func filesBut(t *testing.T, dir plan.Dir, without ...string) []file {
	nodes, err := dir.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []file
	for _, n := range nodes {
		switch {
		case n.Name == "ranks":
			out = append(out, files(t, dir, "ranks/2")...)
		case !slices.Contains(without, n.Name):
			out = append(out, files(t, dir, n.Name)...)
		}
	}
	return slices.DeleteFunc(out, func(f file) bool { return repeated.MatchString(f.path) })
}

var repeated = regexp.MustCompile(`/E0*[1-9][0-9]*\.|/q4-(sym|asym-(16|64))|^tensors/.*/experts/[1-9]`)

var numbers = regexp.MustCompile(`[0-9]+`)

// TestGoldenFamilies has, for a release in every naming form, which views are absent and why, the parts of a block, and the digest of
// every view.
func TestGoldenFamilies(t *testing.T) {
	for _, f := range testrel.Families() {
		var out strings.Builder
		dir, m := open(f.Release)
		names := func(i int) string { return m.files[i].path }
		for _, v := range Views() {
			if _, err := plan.Walk(t.Context(), dir, v.Name); err != nil {
				fmt.Fprintf(&out, "%v\n", err)
				continue
			}
			sum := sha256.New()
			view := v.Name
			if view == "ranks" {
				view = "ranks/3/1"
			}
			list := files(t, dir, view)
			var bytes int64
			for _, f := range list {
				p, err := f.node.Open(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				one, err := plan.Digest(p, names)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(sum, "%s %d %x\n", f.path, f.node.Size, one)
				bytes += f.node.Size
			}
			fmt.Fprintf(&out, "%s: %d files, %d bytes, %.6x\n", view, len(list), bytes, sum.Sum(nil))
		}
		_, _, parts := readManifest(t, dir, m, "experts/native")
		for _, p := range parts {
			fmt.Fprintf(&out, "\t%d +%d %s %s %v %s\n", p.Offset, p.ByteLength, p.Name, p.DType, p.Shape, p.Tensor)
		}
		golden(t, "families/"+strings.TrimPrefix(f.Name, "family-"), out.String())
	}
}

// TestDocumented: docs/views.md names every view.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/views.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range Views() {
		name := map[string]string{"ranks": "ranks/<n>/<r>"}[v.Name]
		if name == "" {
			name = v.Name
		}
		if !strings.Contains(string(text), "`"+name+"/`") {
			t.Errorf("docs/views.md does not name %s/", v.Name)
		}
	}
}
