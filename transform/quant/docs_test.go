package quant

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFormatsAreDocumented compares docs/formats.md with the table of formats: every row has a line, and every line a row.
func TestFormatsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/formats.md")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{}
	for _, f := range formats {
		if f.name != "refused" && f.name != "unknown" {
			want["Dequantized formats"] = append(want["Dequantized formats"], f.name)
		}
	}
	for _, m := range markers() {
		if !slices.Contains(want["Refused by name"], m.name) {
			want["Refused by name"] = append(want["Refused by name"], m.name)
		}
	}
	want["Refused by name"] = append(want["Refused by name"], "zipnn", "unknown")
	for section, names := range want {
		got := firstColumn(string(text), section)
		slices.Sort(names)
		slices.Sort(got)
		if !slices.Equal(got, names) {
			t.Errorf("section %q documents %v, the table has %v", section, got, names)
		}
	}
	for _, f := range formats {
		for _, s := range f.data {
			if s != "" && f.name != "refused" && !strings.Contains(string(text), strings.TrimPrefix(s, ".")) {
				t.Errorf("%s: %q is not mentioned", f.name, s)
			}
		}
	}
}

// TestOraclesAreListed compares the folders of vectors with the first table of their README.md.
func TestOraclesAreListed(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(oracles, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	folders, err := filepath.Glob(filepath.Join(oracles, "*", "*.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, f := range folders {
		want = append(want, filepath.Base(filepath.Dir(f)))
	}
	got := firstColumn("\n## Recorded\n"+string(text), "Recorded")
	slices.Sort(want)
	slices.Sort(got)
	if want = slices.Compact(want); !slices.Equal(got, want) {
		t.Errorf("README.md lists %v, there are %v", got, want)
	}
}

// firstColumn is the names in the first table of a section, without what precedes it.
func firstColumn(text, section string) []string {
	_, text, _ = strings.Cut(text, "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var names []string
	for _, line := range strings.Split(text, "\n") {
		if cell, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "` |"); ok && strings.HasPrefix(line, "| `") {
			names = append(names, cell)
		} else if len(names) > 0 && line == "" {
			break
		}
	}
	return names
}
