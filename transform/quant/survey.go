package quant

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// Survey is what the groups of a release are, and where that disagrees with the release's own declaration. It only informs: recognition
// never looks at skip lists.
type Survey struct {
	config   Config
	skips    []*skip
	cost     int64 // of comparing all skips with one byte of a name
	steps    int64 // that are left for comparing skips
	left     int   // entries of skip lists that are not compared: too many, or too large
	unnamed  int   // modules that skip lists were not compared with: there were no steps left
	kinds    map[string]*Kind
	inSkip   []string // quantized modules that a skip list names, a few
	warnings []*warning
	more     int // modules with other warnings than those
}

// warning is what matches say of some modules.
type warning struct {
	text, first string // first is the first module
	modules     int
}

// maxWarnings bounds the warnings that are told; a hostile release can give each module its own.
const maxWarnings = 8

// Kind is the groups of one format that were recognised in the same way.
type Kind struct {
	Format, How string // Format is "refused" for refusals, How then the reason
	Groups      int
	First       string // the first module
}

// skip is one entry of a list of modules that are not quantized.
type skip struct {
	key, entry string
	match      func(module string) bool
	used       bool
}

// NewSurvey begins a survey under what the release declares, but for its lists of modules that are not quantized.
func NewSurvey(c Config) *Survey {
	return &Survey{config: c, steps: maxSteps, kinds: map[string]*Kind{}}
}

// CompareSkips has the survey compare those lists too, which takes the name of every module.
func (s *Survey) CompareSkips() {
	for _, key := range []string{"modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules", "exclude"} {
		var entries []string
		if json.Unmarshal(s.config.members()[key], &entries) != nil {
			continue
		}
		for _, e := range entries {
			if s.cost == maxCost || len(e) > maxPattern {
				s.left++
				continue
			}
			match, cost := skipMatcher(key, e, maxCost-s.cost)
			if match == nil {
				cost = maxCost - s.cost // no more entries: each may take long to parse
				s.left++
			} else {
				s.skips = append(s.skips, &skip{key: key, entry: e, match: match})
			}
			s.cost += cost
		}
	}
}

// Bounds on skip lists, whose entries are patterns. The cost of an entry is about how many comparisons each byte of a module's name takes: 1
// for a name or a path.
const (
	maxPattern = 1 << 10 // bytes of an entry
	maxCost    = 1 << 16 // of all entries
	maxSteps   = 1 << 33 // costs times bytes of names, of a survey
	perName    = 16      // bytes that a name takes beside its own
)

// skipMatcher says how an entry is read, and what that costs: shell globs for ModelOpt and Quark; exact names or "re:" with a regular expression
// anchored at its start for compressed-tensors; a component path anywhere, or such an expression, for the lists of transformers. It is nil if it
// costs more than most.
func skipMatcher(key, entry string, most int64) (match func(module string) bool, cost int64) {
	pattern, isPattern := strings.CutPrefix(entry, "re:")
	switch {
	case key == "exclude_modules" || key == "exclude":
		match, cost = func(m string) bool { ok, err := path.Match(entry, m); return ok && err == nil }, int64(1+len(entry)/16)
	case key == "ignore" && !isPattern:
		match, cost = func(m string) bool { return m == entry }, 1
	case !isPattern && isPath(entry):
		match, cost = func(m string) bool { return beginsLike(m, entry) || hasPath(m, entry) }, 1
	default:
		re, size := expression("^(?:"+pattern+")", most)
		match, cost = func(m string) bool { return re != nil && re.MatchString(m) || !isPattern && hasPath(m, entry) }, size
	}
	if cost > most {
		return nil, cost
	}
	return match, cost
}

// expression compiles a regular expression if its size is not over most. It is nil for what Go does not have (look-arounds).
func expression(pattern string, most int64) (re *regexp.Regexp, size int64) {
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, int64(8 * len(pattern)) // it may have taken long to parse
	}
	if size = sizeOf(tree); size <= most {
		re, _ = regexp.Compile(pattern)
	}
	return re, size
}

// sizeOf is about how many instructions and ranges of characters an expression has when it is compiled, which repeats what it repeats.
func sizeOf(re *syntax.Regexp) int64 {
	n := int64(1 + len(re.Rune))
	for _, sub := range re.Sub {
		n += sizeOf(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= int64(max(re.Min, re.Max, 1))
	}
	return min(n, maxCost+1)
}

// isPath says that an entry has no characters of a regular expression but dots. There may be hundreds, compared with every module.
func isPath(entry string) bool {
	return !strings.ContainsFunc(entry, func(r rune) bool { return r >= utf8.RuneSelf || r != '.' && regexp.QuoteMeta(string(r)) != string(r) })
}

// beginsLike says that entry, as an expression, matches the beginning of m: a dot is any character.
func beginsLike(m, entry string) bool {
	for _, r := range m {
		if entry == "" {
			break
		}
		if c := entry[0]; rune(c) != r && c != '.' || r == '\n' {
			return false
		}
		entry = entry[1:]
	}
	return entry == ""
}

// hasPath says that the components of entry follow each other in m.
func hasPath(m, entry string) bool {
	for at := 0; ; at++ {
		i := strings.Index(m[at:], entry)
		if i < 0 {
			return false
		}
		at += i
		end := at + len(entry)
		if (at == 0 || m[at-1] == '.') && (end == len(m) || m[end] == '.') {
			return true
		}
	}
}

// Add counts one group with what [Recognise] said of it.
func (s *Survey) Add(module string, m *Match, err error) { s.AddAlike(module, 1, m, err) }

// AddAlike counts n groups of which [Recognise] says the same; module is the first, and the one that skip lists are compared with.
func (s *Survey) AddAlike(module string, n int, m *Match, err error) {
	k := Kind{Groups: n, First: module}
	switch {
	case err != nil:
		k.Format, k.How = "refused", err.Error()
		if r, ok := err.(*Refused); ok {
			k.How = r.Format + ": " + r.Reason
		}
	case m != nil:
		k.Format, k.How = m.Format, m.How
	}
	if m != nil {
		s.warn(module, n, m.Warnings)
	}
	s.compareSkips(module, n, m)
	if k.Format == "" {
		return
	}
	if seen := s.kinds[k.Format+"\x00"+k.How]; seen != nil {
		seen.Groups += n
		return
	}
	s.kinds[k.Format+"\x00"+k.How] = &k
}

// compareSkips compares the skip lists with a module's name.
func (s *Survey) compareSkips(module string, n int, m *Match) {
	if s.steps -= s.cost * int64(perName+len(module)); s.steps < 0 {
		s.unnamed += n
		return
	}
	for _, e := range s.skips {
		if e.match(module) {
			e.used = true
			if m != nil && m.Codec != nil && len(s.inSkip) < 8 {
				s.inSkip = append(s.inSkip, module)
			}
		}
	}
}

func (s *Survey) warn(module string, n int, texts []string) {
	for _, text := range texts {
		i := slices.IndexFunc(s.warnings, func(w *warning) bool { return w.text == text })
		switch {
		case i >= 0:
			s.warnings[i].modules += n
		case len(s.warnings) < maxWarnings:
			s.warnings = append(s.warnings, &warning{text, module, n})
		default:
			s.more += n
		}
	}
}

// Warnings are sentences about what the release holds beside the exact values, each with the first module it is said of.
func (s *Survey) Warnings() []string {
	var out []string
	for _, w := range s.warnings {
		whom := w.first
		if w.modules > 1 {
			whom += fmt.Sprintf(" and %d more", w.modules-1)
		}
		out = append(out, whom+": "+w.text)
	}
	if s.more > 0 {
		out = append(out, fmt.Sprintf("%d more such remarks about other modules", s.more))
	}
	return out
}

// Kinds lists the recognised groups, most frequent first.
func (s *Survey) Kinds() []Kind {
	var list []Kind
	for _, k := range s.kinds {
		list = append(list, *k)
	}
	slices.SortFunc(list, func(a, b Kind) int {
		if a.Groups != b.Groups {
			return b.Groups - a.Groups
		}
		return strings.Compare(a.Format+a.How, b.Format+b.How)
	})
	return list
}

// Disagreements are sentences about the declaration and what the tensors say.
func (s *Survey) Disagreements() []string {
	var out []string
	quantized := slices.ContainsFunc(s.Kinds(), func(k Kind) bool { return k.Format != "activation-scales" })
	switch {
	case s.config.Method != "" && !quantized:
		out = append(out, fmt.Sprintf("%s declares %s, but no tensor is quantized", s.config.Source, s.config.Method))
	case s.config.Method == "" && quantized:
		out = append(out, "tensors are quantized, but nothing is declared")
	default:
		out = append(out, s.otherFormats()...)
	}
	if s.config.Problem != "" {
		out = append(out, s.config.Problem)
	}
	for _, m := range s.inSkip {
		out = append(out, m+" is quantized, though a skip list names it")
	}
	return append(out, s.unusedSkips()...)
}

// otherFormats is a sentence about formats that the declared method does not have, each with its first module, and whether it has any that is there.
// Of a method that no row of the table names nothing is said, nor of groups of no known format.
func (s *Survey) otherFormats() []string {
	isDeclared := func(f format) bool { return slices.Contains(f.declared, s.config.Method) }
	if !slices.ContainsFunc(formats, isDeclared) {
		return nil
	}
	var others, list []string
	found := false
	for _, k := range s.Kinds() {
		name := k.Format
		if name == "refused" {
			name, _, _ = strings.Cut(k.How, ":")
		}
		switch i := slices.IndexFunc(formats, func(f format) bool { return f.name == name }); {
		case i >= 0 && isDeclared(formats[i]):
			found = true
		case name != "unknown" && name != "activation-scales" && !slices.Contains(others, name):
			others, list = append(others, name), append(list, k.First+" is "+name)
		}
	}
	switch {
	case len(others) == 0:
		return nil
	case found:
		return []string{fmt.Sprintf("%s declares %s, but %s", s.config.Source, s.config.Method, strings.Join(list, ", "))}
	}
	return []string{fmt.Sprintf("%s declares %s, but no tensor is of it: %s", s.config.Source, s.config.Method, strings.Join(list, ", "))}
}

// unusedSkips are sentences about entries of skip lists that match nothing, or that are not compared.
func (s *Survey) unusedSkips() (out []string) {
	if s.left > 0 {
		out = append(out, fmt.Sprintf("%d entries of skip lists are too many, or too large, to be compared", s.left))
	}
	if s.unnamed > 0 {
		return append(out, fmt.Sprintf("skip lists are too large to be compared with all modules: %d are left out", s.unnamed))
	}
	var unused []string
	for _, e := range s.skips {
		if !e.used {
			unused = append(unused, fmt.Sprintf("%s %q", e.key, e.entry))
		}
	}
	if n := len(unused); n > 0 {
		out = append(out, fmt.Sprintf("%d entries of skip lists match no module: %s", n, strings.Join(unused[:min(n, 3)], ", ")))
	}
	return out
}
