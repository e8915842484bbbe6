package quant

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weightfs/fs/plan"
)

func TestSurvey(t *testing.T) {
	config := func(list string) Config {
		c, err := FindConfig(map[string][]byte{"config.json": []byte(`{"quantization_config": {"quant_method": "x", ` + list + `}}`)})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var codec plan.Codec = rawBF16(2)
	quantized := &Match{Format: "fp8", How: "blocks", Codec: codec}
	for _, x := range []struct {
		name   string
		config Config
		groups map[string]*Match
		want   []string // parts of the disagreements, in order
	}{
		{"agreement", config(`"ignore": ["lm_head", "re:.*gate$"]`), map[string]*Match{"a.up": quantized, "lm_head": nil, "a.gate": nil}, nil},
		{"declared, absent", config(`"bits": 4`), map[string]*Match{"a": nil}, []string{"declares x, but no tensor is quantized"}},
		{"present, undeclared", Config{}, map[string]*Match{"a": quantized}, []string{"nothing is declared"}},
		{"quantized though listed", config(`"modules_to_not_convert": ["up"]`), map[string]*Match{"a.up": quantized}, []string{"a.up is quantized"}},
		{"substring is no component", config(`"modules_to_not_convert": ["p"]`), map[string]*Match{"a.up": quantized}, []string{`1 entries of skip lists match no module: modules_to_not_convert "p"`}},
		{"glob", config(`"exclude_modules": ["lm_head*"]`), map[string]*Match{"lm_head.x": nil, "a": quantized}, nil},
		{"look-around is left alone", config(`"ignore": ["re:^(?!.*experts)"]`), map[string]*Match{"a": quantized}, []string{"match no module"}},
		{"problem", config(`"group_size": 0`), map[string]*Match{"a": quantized}, []string{"group_size 0"}},
	} {
		s := NewSurvey(x.config)
		s.CompareSkips()
		for module, m := range x.groups {
			s.Add(module, m, nil)
		}
		got := s.Disagreements()
		if len(got) != len(x.want) || !slices.EqualFunc(got, x.want, strings.Contains) {
			t.Errorf("%s: %q, want %q", x.name, got, x.want)
		}
	}
	s := NewSurvey(Config{})
	s.Add("b", nil, &Refused{Tensor: "b.weight", Format: "aqlm", Reason: "code books"})
	s.Add("a", quantized, nil)
	s.Add("c", quantized, nil)
	want := []Kind{{"fp8", "blocks", 2, "a"}, {"refused", "aqlm: code books", 1, "b"}}
	if got := s.Kinds(); !slices.Equal(got, want) {
		t.Errorf("kinds %+v, want %+v", got, want)
	}
	if got := s.Warnings(); got != nil {
		t.Errorf("warnings %q of nothing", got)
	}
}

// TestSurveyOtherFormats: what a declared method does not have is told, once a format, and whether anything is of the method.
func TestSurveyOtherFormats(t *testing.T) {
	blocks, rows := &Match{Format: "fp8", How: "blocks"}, &Match{Format: "fp8", How: "rows"}
	experts := &Match{Format: "deepseek-fp4"}
	marlin := &Refused{Format: "gptq", Reason: "marlin"}
	for _, x := range []struct {
		method string
		kinds  map[string]any
		want   string
	}{
		{"fp8", map[string]any{"a": blocks, "b": experts}, ""},
		{"gptq", map[string]any{"a": blocks}, "config.json declares gptq, but no tensor is of it: a is fp8"},
		{"gptq", map[string]any{"a": marlin}, ""},
		{"gptq", map[string]any{"a": marlin, "b": blocks, "c": rows, "d": experts}, "config.json declares gptq, but d is deepseek-fp4, b is fp8"},
		{"awq", map[string]any{"a": &Refused{Format: "unknown", Reason: "odd"}}, ""},
		{"awq", map[string]any{"a": &Refused{Format: "exl3", Reason: "a trellis"}}, "config.json declares awq, but no tensor is of it: a is exl3"},
		{"a new one", map[string]any{"a": blocks}, ""},
	} {
		s := NewSurvey(Config{Method: x.method, Source: "config.json"})
		for module, what := range x.kinds {
			switch what := what.(type) {
			case *Match:
				s.Add(module, what, nil)
			case *Refused:
				s.Add(module, nil, what)
			}
		}
		if got := strings.Join(s.Disagreements(), "; "); got != x.want {
			t.Errorf("%s, %v: %q, want %q", x.method, x.kinds, got, x.want)
		}
	}
}

// TestSurveyWarnings: modules of which the same is said share a sentence, and a release that says something else of each gets a few.
func TestSurveyWarnings(t *testing.T) {
	s := NewSurvey(Config{})
	s.Add("a", &Match{Format: "x", Warnings: []string{"is scaled"}}, nil)
	s.AddAlike("b", 5, &Match{Format: "x", Warnings: []string{"is scaled", "is rotated"}}, nil)
	s.Add("c", &Match{Format: "x", Warnings: []string{"is rotated"}}, nil)
	want := []string{"a and 5 more: is scaled", "b and 5 more: is rotated"}
	if got := s.Warnings(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for i := range 20 {
		s.Add(fmt.Sprint("d", i), &Match{Format: "x", Warnings: []string{fmt.Sprint("has ", i)}}, nil)
	}
	got := s.Warnings()
	if n := len(got); n != maxWarnings+1 || got[2] != "d0: has 0" || got[n-1] != "14 more such remarks about other modules" {
		t.Errorf("%d sentences: %q", n, got)
	}
}

// TestSkipPaths compares entries that are paths with what they are as expressions or components.
func TestSkipPaths(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entry := rapid.StringMatching(`[ab.]{0,5}`).Draw(t, "entry")
		module := rapid.StringMatching(`[ab.é\n]{0,8}`).Draw(t, "module")
		want := regexp.MustCompile("^(?:"+entry+")").MatchString(module) || strings.Contains("."+module+".", "."+entry+".")
		if !isPath(entry) {
			t.Fatalf("%q is no path", entry)
		}
		match, _ := skipMatcher("modules_to_not_convert", entry, maxCost)
		if got := match(module); got != want {
			t.Fatalf("entry %q, module %q: %v, want %v", entry, module, got, want)
		}
	})
	for _, entry := range []string{"a*", "a|b", "^a", "a[0]", "é", `a\.b`} {
		if isPath(entry) {
			t.Errorf("%q is taken for a path", entry)
		}
	}
}

// TestSkipBounds: lists that would take hours, or expressions that would take gigabytes, are not compared, and that is said.
func TestSkipBounds(t *testing.T) {
	survey := func(list ...string) *Survey {
		text, err := json.Marshal(map[string]any{"quantization_config": map[string]any{"quant_method": "x", "ignore": list}})
		if err != nil {
			t.Fatal(err)
		}
		c, err := FindConfig(map[string][]byte{"config.json": text})
		if err != nil {
			t.Fatal(err)
		}
		s := NewSurvey(c)
		s.CompareSkips()
		return s
	}
	large := strings.Repeat(`\pL{1000}`, 100)
	for _, x := range []struct {
		name     string
		list     []string
		compared int
	}{
		{"names", slices.Repeat([]string{"a"}, maxCost+7), maxCost},
		{"expressions", slices.Repeat([]string{"re:.*[a-z]{100}"}, maxCost), maxCost / 404},
		{"a large expression, and what follows", []string{"a", "re:" + large, "a", "a"}, 1},
		{"long entries alone", []string{strings.Repeat("a", maxPattern+1), "a"}, 1},
		{"look-arounds, which are parsed in vain", slices.Repeat([]string{"re:" + large[:900] + "(?!a)"}, maxCost), maxCost / (8 * (900 + len("^(?:(?!a))")))},
	} {
		s := survey(x.list...)
		said := fmt.Sprintf("%d entries of skip lists are too many, or too large, to be compared", len(x.list)-len(s.skips))
		if !slices.Contains(s.Disagreements(), said) {
			t.Errorf("%s: %q lack %q", x.name, s.Disagreements(), said)
		}
		if n := len(s.skips); n > x.compared || n < x.compared-x.compared/8 || s.cost > maxCost {
			t.Errorf("%s: %d are compared, not %d; they cost %d", x.name, n, x.compared, s.cost)
		}
	}
	s := survey("a", "b")
	s.steps = 2 * 2 * int64(perName+len("x"))
	for range 5 {
		s.Add("x", &Match{Format: "fp8"}, nil)
	}
	want := []string{"skip lists are too large to be compared with all modules: 3 are left out"}
	if got := s.Disagreements(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
