package transform

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"weightfs/fs/plan"
	"weightfs/sources/release"
	"weightfs/sources/safetensors"
)

// presetFiles are the layouts that come with weightfs.
//
//go:embed presets/*.json
var presetFiles embed.FS

// preset is a layout of experts/<name>/: a JSON file, embedded or the user's own.
type preset struct {
	Name  string `json:"name"`  // of the directory: letters, digits, _ and -
	About string `json:"about"` // one sentence
	// Encoding is native, bf16, or q4-{sym,asym}-{16,32,64}.
	Encoding string `json:"encoding"`
	// Parts is the order of the parts of a block, all of them; without it that of the encoding. DTypes are those that named parts must have.
	Parts  []string          `json:"parts"`
	DTypes map[string]string `json:"dtypes"`
	// PartAlign and BlockAlign are powers of two: where parts and blocks begin. PartsAligned refuses parts that would need padding.
	PartAlign    int64 `json:"partAlign"`
	BlockAlign   int64 `json:"blockAlign"`
	PartsAligned bool  `json:"partsAligned"`
	// PerLayer, a path with one %d (or %03d) for the layer, gives a file for each layer instead of expert_blocks.bin, blocks/ and
	// manifest.json.
	PerLayer string          `json:"perLayer"`
	Resident *presetResident `json:"resident"`
}

// presetResident is a file of everything that is not a routed expert.
type presetResident struct {
	// Form is safetensors, or flat: tensors by name without a header, described by the JSON file Index.
	Form  string `json:"form"`
	File  string `json:"file"`
	Align int64  `json:"align"` // of the header (safetensors), of every tensor (flat)
	Index string `json:"index"`
	Strip string `json:"strip"` // taken from the beginning of names in Index
	// TextOnly leaves out vision and audio.
	TextOnly bool `json:"textOnly"`
}

const (
	maxPreset = 64 << 10
	maxAlign  = 1 << 30
)

var (
	presetName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$`)
	presetPath = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}(/[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}){0,3}$`)
	layerVerb  = regexp.MustCompile(`%(0[1-9])?d`)
)

// ParsePreset reads a user's preset. The view is experts/<its name>.
func ParsePreset(text []byte) (View, error) {
	p, err := parsePreset(text)
	if err != nil {
		return View{}, fmt.Errorf("preset: %w", err)
	}
	for _, v := range Views() {
		if v.Name == "experts/"+p.Name {
			return View{}, fmt.Errorf("preset: %s is the name of a view already", v.Name)
		}
	}
	return p.view(), nil
}

func parsePreset(text []byte) (*preset, error) {
	if len(text) > maxPreset {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(text), maxPreset)
	}
	var p preset
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, fmt.Errorf("text after the object")
	}
	return &p, p.check()
}

// check is the bounds of a preset.
func (p *preset) check() error {
	if !presetName.MatchString(p.Name) {
		return fmt.Errorf("name %q: want 1 to 40 letters, digits, _ or -", p.Name)
	}
	if _, ok := encodingNamed(p.Encoding); !ok {
		return fmt.Errorf("encoding %q is unknown", p.Encoding)
	}
	aligns := map[string]int64{"partAlign": p.PartAlign, "blockAlign": p.BlockAlign}
	paths := map[string]string{}
	if p.PerLayer != "" {
		verbs := layerVerb.FindAllString(p.PerLayer, -1)
		if len(verbs) != 1 {
			return fmt.Errorf("perLayer %q: want one %%d or %%03d", p.PerLayer)
		}
		paths["perLayer"] = strings.Replace(p.PerLayer, verbs[0], "0", 1)
	}
	if r := p.Resident; r != nil {
		aligns["resident.align"], paths["resident.file"] = r.Align, r.File
		if r.Form != "safetensors" && r.Form != "flat" {
			return fmt.Errorf("resident.form %q: want safetensors or flat", r.Form)
		}
		if r.Form == "flat" {
			paths["resident.index"] = r.Index
		}
	}
	for key, n := range aligns {
		if n < 1 || n > maxAlign || n&(n-1) != 0 {
			return fmt.Errorf("%s %d: want a power of two up to %d", key, n, maxAlign)
		}
	}
	for key, path := range paths {
		if !presetPath.MatchString(path) {
			return fmt.Errorf("%s %q is no plain relative path", key, path)
		}
	}
	return nil
}

// embedded is one of the presets that come with weightfs.
func embedded(name string) *preset {
	text, err := presetFiles.ReadFile("presets/" + name + ".json")
	if err != nil {
		panic("transform: " + err.Error())
	}
	var p preset
	if err := json.Unmarshal(text, &p); err != nil {
		panic("transform: preset " + name + ": " + err.Error())
	}
	return &p
}

func (p *preset) view() View {
	return View{Name: "experts/" + p.Name, About: p.About, build: p.build}
}

// with is the preset for another encoding.
func (p preset) with(encoding string) *preset {
	p.Encoding = encoding
	return &p
}

// variants are the endings that ask for other boundaries of blocks.
var variants = map[string]int64{"16k": 16 << 10, "64k": 64 << 10, "2m": 2 << 20}

// genericVariant is the layout of a name like native-16k, nil if it is none.
func genericVariant(name string) *preset {
	k := strings.LastIndexByte(name, '-')
	if k < 0 {
		return nil
	}
	align, ok := variants[name[k+1:]]
	if !ok || !slices.ContainsFunc(encodings(), func(e encodingRow) bool { return e.name == name[:k] }) {
		return nil
	}
	p := embedded("generic").with(name[:k])
	p.BlockAlign = align
	return p
}

// build makes the directory.
func (p *preset) build(in *input) (plan.Dir, cost, error) {
	if in.Experts == nil {
		return nil, cost{}, absent("", "%s", in.NoExperts)
	}
	main, err := newBlocks(in, in.Experts, p)
	if err != nil {
		return nil, cost{}, err
	}
	s := in.sums()
	c := cost{source: s.native[routed], shown: main.bytes()}
	var extra *blocks
	if in.MTP != nil {
		if extra, err = newBlocks(in, in.MTP, p); err != nil {
			return nil, cost{}, err
		}
		c.source, c.shown = c.source+s.native[mtp], c.shown+extra.bytes()
	}
	out := mtpFile(extra)
	if p.PerLayer != "" {
		out = append(out, main.layerFiles(p.PerLayer)...)
	} else {
		out = append(out, blockFiles(in, main, extra)...)
	}
	if p.Resident != nil {
		files, n, err := p.Resident.files(in)
		if err != nil {
			return nil, cost{}, err
		}
		out = append(out, files...)
		c.source, c.shown = c.source+n, c.shown+n
	}
	dir, _ := folder(out)
	return dir, c, nil
}

// layerFiles is one file a layer.
func (b *blocks) layerFiles(pattern string) []entry {
	var out []entry
	for i, l := range b.layers {
		path := fmt.Sprintf(pattern, l)
		out = append(out, entry{path, plan.File("", plan.New(plan.Repeat{
			Name: path, N: int64(b.perLayer), Stride: b.size,
			At: func(e int64) *plan.Plan { return b.block(int64(i)*int64(b.perLayer) + e) },
		}))})
	}
	return out
}

// order puts the parts into the preset's order and checks that they are what it wants.
func (p *preset) order(in *input, x *release.Experts, parts []blockPart) ([]blockPart, error) {
	find := func(name string) int {
		return slices.IndexFunc(parts, func(b blockPart) bool { return b.name() == name })
	}
	for _, name := range slices.Sorted(maps.Keys(p.DTypes)) {
		dtype := p.DTypes[name]
		if k := find(name); k < 0 {
			return nil, absent("", "this layout wants a part %s, which the experts do not have", name)
		} else if parts[k].dtype != dtype {
			return nil, absent(in.first(x, parts[k].from), "this layout wants it to be %s, it is %s", dtype, parts[k].dtype)
		}
	}
	if p.Parts == nil {
		return parts, nil
	}
	out := make([]blockPart, 0, len(parts))
	for _, name := range p.Parts {
		k := find(name)
		if k < 0 {
			return nil, absent("", "this layout wants a part %s, which the experts do not have", name)
		}
		out = append(out, parts[k])
	}
	for _, b := range parts {
		if !slices.Contains(p.Parts, b.name()) {
			return nil, absent(in.first(x, b.from), "is no part of this layout")
		}
	}
	if len(out) != len(parts) {
		return nil, absent("", "this layout names a part twice")
	}
	return out, nil
}

// tensors are those of the file, by name.
func (r *presetResident) tensors(in *input) []tensor {
	var out []tensor
	for i := range in.base[len(in.Shards)] {
		if in.Role(in.ref(i)) != release.Resident {
			continue
		}
		t := in.source(i)
		if !r.TextOnly || !isSense(t.Name) {
			out = append(out, copied(t))
		}
	}
	slices.SortFunc(out, func(a, b tensor) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// files are the resident file and its index, and the bytes of its tensors.
func (r *presetResident) files(in *input) ([]entry, int64, error) {
	ts := r.tensors(in)
	entries, data := placeTensors(ts)
	if r.Form == "safetensors" {
		n, err := safetensors.EncodedLen(entries, nil, r.Align)
		if err != nil {
			return nil, 0, absent("", "%v", err)
		}
		return []entry{{r.File, plan.Node{Size: n + data, Open: func(context.Context) (*plan.Plan, error) {
			return safetensorsFile(r.tensors(in), nil, r.Align)
		}}}}, data, nil
	}
	index := r.flatIndex(in, ts)
	var size int64
	for i := range ts {
		size = roundUp(size, r.Align) + ts[i].size
	}
	return []entry{
		{r.File, plan.Node{Size: size, Open: func(context.Context) (*plan.Plan, error) { return r.flat(r.tensors(in)), nil }}},
		{r.Index, plan.Node{Size: int64(len(index)), Open: func(context.Context) (*plan.Plan, error) {
			return literal("index", r.flatIndex(in, r.tensors(in))), nil
		}}},
	}, data, nil
}

// flat is the tensors one after the other, each on its alignment.
func (r *presetResident) flat(ts []tensor) *plan.Plan {
	var pieces []plan.Piece
	var at int64
	for i := range ts {
		start := roundUp(at, r.Align)
		pieces = append(append(pieces, plan.Zero{Size: start - at}), ts[i].pieces()...)
		at = start + ts[i].size
	}
	return plan.New(pieces...)
}

// flatIndex is the JSON that flash-moe's extract_weights.py writes beside model_weights.bin: offset, size, shape and dtype of every
// tensor; config is the language model's own object of config.json.
func (r *presetResident) flatIndex(in *input, ts []tensor) []byte {
	b := fmt.Appendf(nil, "{\n  \"model\": %s,\n  \"num_tensors\": %d,\n  \"tensors\": {", quote(in.Listing.Name), len(ts))
	var at int64
	for i, t := range ts {
		if i > 0 {
			b = append(b, ',')
		}
		at = roundUp(at, r.Align)
		shape, err := json.Marshal(append([]int64{}, t.Shape...))
		if err != nil {
			panic("transform: a shape has no JSON form: " + err.Error())
		}
		b = fmt.Appendf(b, "\n    %s: {\"offset\": %d, \"size\": %d, \"shape\": %s, \"dtype\": %s}",
			quote(strings.TrimPrefix(t.Name, r.Strip)), at, t.size, shape, quote(t.DTypeName))
		at += t.size
	}
	return fmt.Appendf(b, "\n  },\n  \"config\": %s\n}\n", textConfig(in.Config))
}

// textConfig is text_config of a config.json, or all of it if there is none; null if it is not JSON.
func textConfig(config []byte) []byte {
	var top struct {
		Text json.RawMessage `json:"text_config"`
	}
	if json.Unmarshal(config, &top) != nil {
		return []byte("null")
	}
	var out bytes.Buffer
	if top.Text == nil {
		top.Text = config
	}
	if json.Compact(&out, top.Text) != nil {
		return []byte("null")
	}
	return out.Bytes()
}
