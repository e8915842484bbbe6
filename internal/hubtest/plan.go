package hubtest

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Plan is faults as data, read from text of one rule or setting a line; # begins a comment.
//
//	hub [plain=307] [page-size=N] [signed=DURATION]
//	repo ORG/NAME access=public|gated|private|disabled [token=TOKEN]
//	on KIND [path=GLOB] [method=METHOD] [from=N] [nth=N,N…] [first=N] [after=N] [every=N] [p=P seed=N] [per=all|file|range] : ACTION [KEY=VALUE…]
//
// KIND is api, resolve, data or any; in GLOB only * is special and stands for any text. A rule counts the requests that it matches, from 1,
// all together or those of each file or of each range alone (per), and acts on those that every given count selects: the N-th ones
// (nth), the first N, those after N, every N-th, or with probability P, the same ones for the same seed. from=N matches requests of a
// range that starts at byte N or later. All rules that select a request act on its reply, in the order of the file. The actions are
// the rows of the table in actions.go. Values with spaces stand in double quotes; sizes may end in K, M or G, durations are Go's.
type Plan struct {
	rules     []*rule
	plain307  bool
	pageSize  int
	signedFor time.Duration
	repos     map[string]repoSetting
	fired     atomic.Int64
}

// Fired is how often a rule has acted on a reply.
func (p *Plan) Fired() int64 { return p.fired.Load() }

type repoSetting struct {
	access Access
	token  string
}

type rule struct {
	line   int
	kind   string
	path   string
	method string
	from   int64
	nth    []int64
	first  int64
	after  int64
	every  int64
	p      float64
	seed   int64
	per    string
	act    action

	mu     sync.Mutex // guards counts
	counts map[string]int64
}

// access is what the plan says of a repository that was not added by a test.
func (p *Plan) access(name string) (Access, string) {
	s := p.repos[name]
	return s.access, s.token
}

// apply lets every rule that selects the request act on the reply.
func (p *Plan) apply(q *request, r *reply) {
	for _, x := range p.rules {
		if x.selects(q) {
			p.fired.Add(1)
			x.act(q, r)
		}
	}
}

// selects counts the request if the rule matches it.
func (x *rule) selects(q *request) bool {
	start, end, _ := span(q.Header.Get("Range"), q.size)
	if x.kind != "any" && x.kind != q.kind || x.method != "" && x.method != q.Method || start < x.from || !glob(x.path, q.path) {
		return false
	}
	key := ""
	switch x.per {
	case "file":
		key = q.path
	case "range":
		key = fmt.Sprint(q.path, start, end)
	}
	x.mu.Lock()
	x.counts[key]++
	n := x.counts[key]
	x.mu.Unlock()
	return x.chosen(key, n)
}

func (x *rule) chosen(key string, n int64) bool {
	switch {
	case len(x.nth) > 0 && !slices.Contains(x.nth, n), x.first > 0 && n > x.first, n <= x.after, x.every > 0 && n%x.every != 0:
		return false
	case x.p > 0:
		h := sha256.Sum256(fmt.Append(nil, x.seed, " ", x.line, " ", key, " ", n))
		return float64(binary.LittleEndian.Uint64(h[:])>>11)/(1<<53) < x.p
	}
	return true
}

// glob reports whether s is pattern with any text for each star.
func glob(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	s, ok := strings.CutPrefix(s, parts[0])
	last := parts[len(parts)-1]
	if !ok || !strings.HasSuffix(s, last) {
		return false
	}
	s = s[:len(s)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return true
}

// ReadPlan reads the plan in a file.
func ReadPlan(path string) (*Plan, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("fault plan: %w", err)
	}
	p, err := ParsePlan(string(b))
	if err != nil {
		return nil, fmt.Errorf("fault plan %s: %w", path, err)
	}
	return p, nil
}

// ParsePlan reads a plan.
func ParsePlan(text string) (*Plan, error) {
	p := &Plan{repos: map[string]repoSetting{}}
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		words, err := fields(lines.Text())
		if err == nil && len(words) > 0 {
			err = p.line(n, words)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return p, lines.Err()
}

func (p *Plan) line(n int, words []string) error {
	switch words[0] {
	case "hub":
		return p.setting(words[1:])
	case "repo":
		return p.repo(words[1:])
	case "on":
		r, err := parseRule(n, words[1:])
		if err == nil {
			p.rules = append(p.rules, r)
		}
		return err
	}
	return fmt.Errorf("%q: a line begins with hub, repo or on", words[0])
}

func (p *Plan) setting(words []string) error {
	a, err := parseArgs(words)
	if err != nil {
		return err
	}
	p.plain307 = a.word("plain", "200", "200", "307") == "307"
	p.pageSize = int(a.number("page-size", 0))
	p.signedFor = a.duration("signed", 0)
	return a.done()
}

func (p *Plan) repo(words []string) error {
	if len(words) == 0 {
		return fmt.Errorf("repo wants a name")
	}
	a, err := parseArgs(words[1:])
	if err != nil {
		return err
	}
	access := a.word("access", "public", "public", "gated", "private", "disabled")
	p.repos[words[0]] = repoSetting{
		access: map[string]Access{"public": Public, "gated": Gated, "private": Private, "disabled": Disabled}[access],
		token:  a.text("token", ""),
	}
	return a.done()
}

func parseRule(line int, words []string) (*rule, error) {
	colon := slices.Index(words, ":")
	if len(words) == 0 || colon < 1 || colon+1 == len(words) {
		return nil, fmt.Errorf("a rule is: on KIND … : ACTION …")
	}
	r := &rule{line: line, kind: words[0], counts: map[string]int64{}}
	if !slices.Contains([]string{kindAPI, kindResolve, kindData, "any"}, r.kind) {
		return nil, fmt.Errorf("%q is not a kind of request: api, resolve, data, any", r.kind)
	}
	a, err := parseArgs(words[1:colon])
	if err != nil {
		return nil, err
	}
	r.path, r.method = a.text("path", "*"), a.text("method", "")
	r.from, r.first, r.after, r.every = a.number("from", 0), a.number("first", 0), a.number("after", 0), a.number("every", 0)
	r.p, r.seed, r.per = a.float("p"), a.number("seed", 1), a.word("per", "all", "all", "file", "range")
	r.nth = a.numbers("nth")
	if err := a.done(); err != nil {
		return nil, err
	}
	r.act, err = parseAction(words[colon+1], words[colon+2:])
	return r, err
}

// fields splits a line at spaces outside double quotes, which it drops, and cuts a comment off.
func fields(line string) ([]string, error) {
	var out []string
	var word bytes.Buffer
	inWord, quoted := false, false
	flush := func() {
		if inWord {
			out = append(out, word.String())
		}
		word.Reset()
		inWord = false
	}
	for _, c := range line {
		switch {
		case c == '"':
			quoted, inWord = !quoted, true
		case quoted:
			word.WriteRune(c)
		case c == '#' && !inWord:
			return out, nil
		case c == ' ' || c == '\t':
			flush()
		default:
			word.WriteRune(c)
			inWord = true
		}
	}
	flush()
	if quoted {
		return nil, fmt.Errorf("a quote is not closed")
	}
	return out, nil
}

// args are KEY=VALUE words. Each accessor takes its key out; what is left at done is an error, as is a bad value.
type args struct {
	values map[string][]string
	err    error
}

func parseArgs(words []string) (*args, error) {
	a := &args{values: map[string][]string{}}
	for _, w := range words {
		k, v, ok := strings.Cut(w, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not KEY=VALUE", w)
		}
		a.values[k] = append(a.values[k], v)
	}
	return a, nil
}

func (a *args) take(key string) []string {
	v := a.values[key]
	delete(a.values, key)
	return v
}

func (a *args) fail(key, value string, err error) {
	if err != nil && a.err == nil {
		a.err = fmt.Errorf("%s=%s: %w", key, value, err)
	}
}

func (a *args) text(key, unset string) string {
	if v := a.take(key); len(v) > 0 {
		return v[len(v)-1]
	}
	return unset
}

func (a *args) word(key, unset string, allowed ...string) string {
	v := a.text(key, unset)
	if !slices.Contains(allowed, v) {
		a.fail(key, v, fmt.Errorf("want one of %v", allowed))
	}
	return v
}

// number is an integer with a sign, and K, M or G behind it.
func (a *args) number(key string, unset int64) int64 {
	v := a.text(key, "")
	if v == "" {
		return unset
	}
	shift := map[byte]uint{'K': 10, 'M': 20, 'G': 30}[v[len(v)-1]]
	n, err := strconv.ParseInt(strings.TrimRight(v, "KMG"), 10, 64)
	a.fail(key, v, err)
	return n << shift
}

func (a *args) numbers(key string) []int64 {
	var out []int64
	v := a.text(key, "")
	for _, s := range strings.Split(v, ",") {
		if s == "" {
			continue
		}
		n, err := strconv.ParseInt(s, 10, 64)
		a.fail(key, v, err)
		out = append(out, n)
	}
	return out
}

func (a *args) float(key string) float64 {
	v := a.text(key, "0")
	f, err := strconv.ParseFloat(v, 64)
	a.fail(key, v, err)
	return f
}

func (a *args) duration(key string, unset time.Duration) time.Duration {
	v := a.text(key, "")
	if v == "" {
		return unset
	}
	d, err := time.ParseDuration(v)
	a.fail(key, v, err)
	return d
}

func (a *args) done() error {
	for k := range a.values {
		a.fail(k, strings.Join(a.values[k], " "), fmt.Errorf("unknown key"))
	}
	return a.err
}
