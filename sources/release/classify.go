package release

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Bounds on what a hostile header can make the classifier hold.
const (
	maxSkeletons = 100_000 // that are remembered as not of an expert
	maxColumns   = 200     // of a class
	maxClasses   = 16
)

// place is one tensor of a column.
type place struct {
	layer, expert int32 // expert is 0 in fused rows
	ref           Ref
}

// column is the tensors of one projection and suffix over all layers and experts: names that differ only in their numbers.
type column struct {
	match
	template string // the name with {layer} and {expert}
	places   places
}

// places is a list that grows without moving what it has: pieces, each twice as long as the one before until they are of 8,192.
type places [][]place

func (p *places) add(x place) {
	n := len(*p)
	if n == 0 || len((*p)[n-1]) == cap((*p)[n-1]) {
		*p = append(*p, make([]place, 0, 64<<min(n, 7)))
		n++
	}
	(*p)[n-1] = append((*p)[n-1], x)
}

func (p places) len() (n int) {
	for _, piece := range p {
		n += len(piece)
	}
	return n
}

func (p places) all() iter.Seq[place] {
	return func(yield func(place) bool) {
		for _, piece := range p {
			for _, x := range piece {
				if !yield(x) {
					return
				}
			}
		}
	}
}

// class is the columns of one row under one prefix, in main layers or in multi-token-prediction layers.
type class struct {
	row    *row
	prefix string
	mtp    bool
	cols   map[string]*column // by skeleton
	// odd is the name of a tensor that belongs to the experts although no row knows it, with the reason.
	odd string
}

func (c *class) String() string {
	where := c.prefix
	if where == "" {
		where = "the top level"
	}
	return fmt.Sprintf("%s under %s", c.row.name, where)
}

// classifier sorts the tensors of a release into classes of experts.
type classifier struct {
	rel     *Release
	known   map[string]*verdict // by skeleton
	classes map[string]*class   // by prefix, row and mtp
	mtp     map[layerKey]bool
	// lastLayer is what isMTP was asked last, and lastMTP what it said: tensors of one layer stand together.
	lastLayer layerKey
	lastMTP   bool
	byN       notes // layers that are taken for MTP only because of their number
	stray     notes // names of tensors that may be of routed experts, taken for resident
}

type layerKey struct {
	prefix string
	layer  int32
}

// verdict is what is known of a skeleton.
type verdict struct {
	ok, like bool // a row knows it; no row knows it, but it is of a routed expert
	stray    bool // it may be of routed experts
	match
	template    string
	nested      bool // numbers in the prefix
	main, ofMTP *column
}

// classify fills roles, Experts, MTP and the reasons for their absence.
func (rel *Release) classify() {
	c := rel.sortTensors()
	rel.Notes = append(rel.Notes, c.byN.list("layers beyond num_hidden_layers")...)
	rel.Experts, rel.NoExperts = c.experts(false)
	rel.MTP, rel.NoMTP = c.experts(true)
	if rel.Experts != nil && len(c.stray.kept) > 0 {
		rel.Notes = append(rel.Notes, fmt.Sprintf("tensors below experts that no naming form knows are taken for resident: %s", strings.Join(c.stray.list("them"), ", ")))
	}
	rel.checkDeclared()
}

// sortTensors fills roles and puts the tensors of experts into classes.
func (rel *Release) sortTensors() *classifier {
	c := &classifier{rel: rel, known: map[string]*verdict{}, classes: map[string]*class{}, mtp: map[layerKey]bool{}, lastLayer: layerKey{layer: -1}}
	rel.roles = make([]Role, rel.Len())
	var skeleton []byte
	var numbers []int32
	n := 0
	for si := range rel.Shards {
		h := rel.Shards[si].Header
		for i := range h.Len() {
			name := h.Name(i)
			skeleton, numbers = skeletonOf(name, skeleton[:0], numbers[:0])
			if len(numbers) > 0 {
				v := c.known[string(skeleton)]
				if v == nil {
					v = c.judge(string(skeleton))
				}
				rel.roles[n] = c.add(v, name, numbers, Ref{int32(si), int32(i)})
			} else if !strings.Contains(name, "#") && likeExpert(name) {
				rel.roles[n] = c.addOdd(name)
			}
			n++
		}
	}
	return c
}

// checkDeclared notes where config says otherwise than names and shapes of the experts.
func (rel *Release) checkDeclared() {
	x, d := rel.Experts, rel.Declared
	if x == nil {
		return
	}
	check := func(what string, declared, found int64) {
		if declared != 0 && found != 0 && declared != found {
			rel.Notes = append(rel.Notes, fmt.Sprintf("config says %s %d, names and shapes of the experts say %d", what, declared, found))
		}
	}
	check("experts", d.Experts, int64(x.PerLayer))
	check("hidden size (another width is right in a latent MoE)", d.Hidden, x.Hidden)
	check("moe_intermediate_size", d.MoEIntermediate, x.Intermediate)
}

// skeletonOf appends name to skeleton with every numeric component replaced by "#", and the numbers to numbers. A component that is
// not the plain form of a number below 1e9 stays as it is. A name with a "#" of its own has no skeleton and no numbers.
func skeletonOf(name string, skeleton []byte, numbers []int32) ([]byte, []int32) {
	from, had := len(skeleton), len(numbers)
	copied := 0
	for i := 0; i < len(name); i++ { // i is where a component begins
		if c := name[i]; '0' <= c && c <= '9' {
			if n, end, ok := plainNumber(name, i); ok {
				skeleton = append(append(skeleton, name[copied:i]...), '#')
				numbers = append(numbers, n)
				copied, i = end, end
			}
		}
		for ; i < len(name) && name[i] != '.'; i++ {
			if name[i] == '#' {
				return skeleton[:from], numbers[:had]
			}
		}
	}
	return append(skeleton, name[copied:]...), numbers
}

// plainNumber is the number that the component of name at i is, and where the component ends.
func plainNumber(name string, i int) (n int32, end int, ok bool) {
	end = i
	for end < len(name) && '0' <= name[end] && name[end] <= '9' {
		if end-i == 9 {
			return 0, 0, false
		}
		n = 10*n + int32(name[end]-'0')
		end++
	}
	return n, end, (end == len(name) || name[end] == '.') && (name[i] != '0' || end-i == 1)
}

// judge finds what a skeleton is and remembers it.
func (c *classifier) judge(skeleton string) *verdict {
	v := &verdict{}
	v.match, v.ok = matchName(skeleton)
	v.like = !v.ok && likeExpert(skeleton)
	v.stray = !v.ok && !v.like && belowExperts(skeleton)
	v.nested = strings.Contains(v.prefix, "#")
	if v.ok {
		v.template = v.prefix + "." + strings.Replace(skeleton[len(v.prefix)+1:], "#", "{layer}", 1)
		v.template = strings.TrimPrefix(strings.Replace(v.template, "#", "{expert}", 1), ".")
	}
	if !v.ok && !v.like && !v.stray {
		v = notExpert
	}
	if v != notExpert || len(c.known) < maxSkeletons {
		c.known[skeleton] = v
	}
	return v
}

// notExpert is the verdict on every skeleton that has nothing to do with routed experts.
var notExpert = &verdict{}

// add puts a tensor into its column and returns its role.
func (c *classifier) add(v *verdict, name string, numbers []int32, ref Ref) Role {
	switch {
	case v.stray:
		c.stray.add("%s", quoted(name))
		return Resident
	case !v.ok && !v.like:
		return Resident
	case !v.ok || v.nested:
		return c.addOdd(name)
	}
	p := place{layer: numbers[0], ref: ref}
	if !v.row.fused {
		p.expert = numbers[1]
	}
	mtp := c.isMTP(v.prefix, p.layer)
	col, role := &v.main, Routed
	if mtp {
		col, role = &v.ofMTP, MTPRouted
	}
	if *col == nil {
		cl := c.class(v.row, v.prefix, mtp)
		if len(cl.cols) == maxColumns {
			return c.addOdd(name)
		}
		*col = &column{match: v.match, template: v.template}
		cl.cols[v.template] = *col
	}
	(*col).places.add(p)
	return role
}

// addOdd remembers that a class of experts has a tensor that no row knows. All such tensors of one kind of layer make one class.
func (c *classifier) addOdd(name string) Role {
	mtp := mtpPrefix(name)
	cl := c.class(&unknownRow, "", mtp)
	if cl.odd == "" {
		cl.odd = name
	}
	if mtp {
		return MTPRouted
	}
	return Routed
}

// unknownRow stands for tensors that look like a routed expert's and that no row knows.
var unknownRow = row{name: "unknown"}

// class is the class of a row and prefix. Two of a kind are refused already, so that beyond maxClasses the unknown row takes them.
func (c *classifier) class(r *row, prefix string, mtp bool) *class {
	if len(c.classes) >= maxClasses {
		r, prefix = &unknownRow, ""
	}
	key := fmt.Sprint(r.name, "\x00", prefix, "\x00", mtp)
	if c.classes[key] == nil {
		c.classes[key] = &class{row: r, prefix: prefix, mtp: mtp, cols: map[string]*column{}}
	}
	return c.classes[key]
}

// isMTP says whether a layer is for multi-token prediction.
func (c *classifier) isMTP(prefix string, layer int32) bool {
	key := layerKey{prefix, layer}
	if key == c.lastLayer {
		return c.lastMTP
	}
	is, known := c.mtp[key]
	if !known {
		is = c.judgeMTP(prefix, layer)
		c.mtp[key] = is
	}
	c.lastLayer, c.lastMTP = key, is
	return is
}

// judgeMTP decides by the prefix, by tensors that only a layer for multi-token prediction has, or by a number that num_hidden_layers
// excludes.
func (c *classifier) judgeMTP(prefix string, layer int32) bool {
	if mtpPrefix(prefix) {
		return true
	}
	for _, mark := range mtpMarks {
		if _, found := c.rel.Lookup(tensorAt(prefix, layer, mark)); found {
			return true
		}
	}
	n := c.rel.Declared.Layers
	if n == 0 || int64(layer) < n {
		return false
	}
	c.byN.add("layer %d under %s is taken for multi-token prediction because config says num_hidden_layers %d", layer, quoted(prefix), n)
	return true
}

// mtpPrefix says whether a name's component says multi-token prediction.
func mtpPrefix(name string) bool {
	for part := range strings.SplitSeq(name, ".") {
		if strings.HasPrefix(part, "mtp") || strings.HasPrefix(part, "nextn") {
			return true
		}
	}
	return false
}

// tensorAt is the name of a tensor below a layer.
func tensorAt(prefix string, layer int32, rest string) string {
	name := strconv.Itoa(int(layer)) + "." + rest
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

// experts builds the class of main or of MTP layers, or says why there is none.
func (c *classifier) experts(mtp bool) (*Experts, string) {
	var found []*class
	for _, key := range slices.Sorted(maps.Keys(c.classes)) {
		if c.classes[key].mtp == mtp {
			found = append(found, c.classes[key])
		}
	}
	for _, cl := range found {
		if cl.odd != "" {
			return nil, fmt.Sprintf("tensor %s looks like a routed expert's, and no known naming form has it", quoted(cl.odd))
		}
	}
	switch {
	case len(found) == 0 && mtp:
		return nil, "no routed experts in multi-token-prediction layers"
	case len(found) == 0 && len(c.stray.kept) > 0:
		return nil, fmt.Sprintf("tensor %s looks like routed experts, and no known naming form has it", c.stray.kept[0])
	case len(found) == 0 && c.rel.Declared.Experts > 1:
		return nil, fmt.Sprintf("config says %d experts, and no tensor has a name that is known of routed experts", c.rel.Declared.Experts)
	case len(found) == 0:
		return nil, "dense: no routed experts"
	case len(found) > 1:
		return nil, fmt.Sprintf("there are several sets of routed experts: %s, and %s", found[0], found[1])
	}
	b := builder{rel: c.rel, class: found[0]}
	x, err := b.build()
	if err != nil {
		return nil, err.Error()
	}
	return x, ""
}

// sortedColumns is the columns of a class in the order of a block's parts.
func (cl *class) sortedColumns() []*column {
	return slices.SortedFunc(maps.Values(cl.cols), func(a, b *column) int {
		return cmp.Or(cmp.Compare(projectionRank(a.proj.projection), projectionRank(b.proj.projection)),
			cmp.Compare(suffixRank(a.suffix), suffixRank(b.suffix)), cmp.Compare(a.suffix, b.suffix), cmp.Compare(a.template, b.template))
	})
}

func projectionRank(p string) int { return slices.Index([]string{gate, gateUp, up, down}, p) }
