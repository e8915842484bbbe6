package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"weightfs/fs/plan"
	"weightfs/sources"
	"weightfs/sources/release"
	"weightfs/transform"
)

// summary is what inspect prints and .weightfs/summary.json holds: what listing and headers say.
type summary struct {
	Source       string          `json:"source"`
	Revision     string          `json:"revision,omitempty"`
	Files        int             `json:"files"`
	FileBytes    int64           `json:"fileBytes"`
	Index        string          `json:"index,omitempty"`
	Shards       int             `json:"shards"`
	HeaderBytes  int64           `json:"headerBytes"`
	Tensors      int             `json:"tensors"`
	WeightBytes  int64           `json:"weightBytes"`
	ModelType    string          `json:"modelType,omitempty"`
	DTypes       []dtypeSummary  `json:"dtypes"`
	Roles        []roleSummary   `json:"roles"`
	Quantization []quantSummary  `json:"quantization,omitempty"`
	Experts      *expertsSummary `json:"experts,omitempty"`
	NoExperts    string          `json:"noExperts,omitempty"`
	MTP          *expertsSummary `json:"mtp,omitempty"`
	NoMTP        string          `json:"noMtp,omitempty"`
	Views        []viewSummary   `json:"views"`
	LeftOut      []pathSummary   `json:"leftOut,omitempty"` // weight files of another copy of the weights
	Hidden       []pathSummary   `json:"hidden,omitempty"`  // files whose names are refused
	Notes        []string        `json:"notes,omitempty"`
}

type dtypeSummary struct {
	DType   string `json:"dtype"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

type roleSummary struct {
	Role    string `json:"role"` // resident, routed, mtp
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

type quantSummary struct {
	Where string          `json:"where"`
	Says  json.RawMessage `json:"says"`
}

type expertsSummary struct {
	Family          string        `json:"family"`
	Layers          []int         `json:"layers"`
	ExpertsPerLayer int           `json:"expertsPerLayer"`
	BlockBytes      int64         `json:"blockBytes"` // the parts of one expert, without padding
	Parts           []partSummary `json:"parts"`
}

type partSummary struct {
	Tensor     string  `json:"tensor"`
	DType      string  `json:"dtype"`
	Shape      []int64 `json:"shape"` // of one expert
	Bytes      int64   `json:"bytes"`
	Fused      bool    `json:"fused,omitempty"`
	Transposed bool    `json:"transposed,omitempty"`
}

type pathSummary struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

type viewSummary struct {
	Path   string `json:"path"`
	About  string `json:"about"`
	Absent string `json:"absent,omitempty"` // the reason
}

// summarise gathers the summary of an opened release.
func (o *opened) summarise(ctx context.Context) (*summary, error) {
	rel, err := o.release(ctx)
	if err != nil {
		return nil, err
	}
	s := summariseRelease(rel)
	for _, v := range transform.Views() {
		x := viewSummary{Path: v.Name, About: v.About}
		var absent *transform.Absent
		switch _, err := plan.Walk(ctx, o.root, v.Name); {
		case errors.As(err, &absent):
			x.Absent = reason(absent)
		case err != nil:
			return nil, fmt.Errorf("%s: %w", v.Name, err)
		}
		s.Views = append(s.Views, x)
	}
	return s, nil
}

// summariseRelease is a pure function of what the headers say.
func summariseRelease(rel *release.Release) *summary {
	l := rel.Listing
	s := &summary{
		Source: l.Name, Revision: l.Revision, Files: len(l.Files), Index: rel.Index, Shards: len(rel.Shards), Tensors: rel.Len(),
		WeightBytes: rel.Bytes(), ModelType: rel.Declared.ModelType, NoExperts: rel.NoExperts, NoMTP: rel.NoMTP,
		LeftOut: paths(rel.LeftOut), Hidden: paths(l.Hidden), Notes: rel.Notes,
		Experts: summariseExperts(rel.Experts), MTP: summariseExperts(rel.MTP),
	}
	for _, f := range l.Files {
		s.FileBytes += f.Size
	}
	for _, x := range rel.Shards {
		s.HeaderBytes += x.Header.DataStart()
	}
	for _, q := range rel.Declared.Quantization {
		s.Quantization = append(s.Quantization, quantSummary{q.Where, q.Raw})
	}
	s.countTensors(rel)
	return s
}

func (s *summary) countTensors(rel *release.Release) {
	dtypes := map[string]*dtypeSummary{}
	s.Roles = []roleSummary{release.Resident: {Role: "resident"}, release.Routed: {Role: "routed"}, release.MTPRouted: {Role: "mtp"}}
	for ref := range rel.All() {
		t := rel.Tensor(ref)
		d := dtypes[t.DTypeName]
		if d == nil {
			d = &dtypeSummary{DType: t.DTypeName}
			dtypes[t.DTypeName] = d
		}
		r := &s.Roles[rel.Role(ref)]
		d.Tensors, r.Tensors = d.Tensors+1, r.Tensors+1
		d.Bytes, r.Bytes = d.Bytes+t.End-t.Start, r.Bytes+t.End-t.Start
	}
	s.Roles = slices.DeleteFunc(s.Roles, func(r roleSummary) bool { return r.Tensors == 0 })
	for _, name := range slices.Sorted(maps.Keys(dtypes)) {
		s.DTypes = append(s.DTypes, *dtypes[name])
	}
	slices.SortStableFunc(s.DTypes, func(a, b dtypeSummary) int { return cmp.Compare(b.Bytes, a.Bytes) })
}

func paths(hidden []sources.Hidden) (out []pathSummary) {
	for _, h := range hidden {
		out = append(out, pathSummary(h))
	}
	return out
}

func summariseExperts(x *release.Experts) *expertsSummary {
	if x == nil {
		return nil
	}
	s := &expertsSummary{Family: x.Family, Layers: x.Layers, ExpertsPerLayer: x.PerLayer, BlockBytes: x.BlockBytes()}
	for i := range x.Parts {
		p := &x.Parts[i]
		s.Parts = append(s.Parts, partSummary{p.Tensor, p.DTypeName, p.Shape, p.Bytes, p.Fused, p.Transposed})
	}
	return s
}

// text is the summary for people.
func (s *summary) text() string {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(key, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", key, oneLine(fmt.Sprintf(format, args...)))
	}
	row("source", "%s", s.Source)
	if s.Revision != "" {
		row("revision", "%s", s.Revision)
	}
	if s.ModelType != "" {
		row("model", "%s", s.ModelType)
	}
	row("files", "%d, %s", s.Files, size(s.FileBytes))
	row("weights", "%d tensors in %d shards, %s; headers of %s", s.Tensors, s.Shards, size(s.WeightBytes), size(s.HeaderBytes))
	for _, r := range s.Roles {
		row("  "+r.Role, "%d tensors, %s", r.Tensors, size(r.Bytes))
	}
	for _, d := range s.DTypes {
		row("  "+d.DType, "%d tensors, %s", d.Tensors, size(d.Bytes))
	}
	for _, q := range s.Quantization {
		row("quantization", "%s says %s", q.Where, brief(q.Says))
	}
	s.Experts.text(row, "experts", s.NoExperts)
	s.MTP.text(row, "mtp experts", s.NoMTP)
	w.Flush()
	s.lists(&b)
	return b.String()
}

// brief is a JSON object on one line, cut where it gets long.
func brief(raw json.RawMessage) string {
	const most = 200
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return "something that is not JSON"
	}
	if b.Len() > most {
		return strings.ToValidUTF8(b.String()[:most], "") + " ..."
	}
	return b.String()
}

func (x *expertsSummary) text(row func(key, format string, args ...any), title, none string) {
	if x == nil {
		row(title, "none: %s", none)
		return
	}
	row(title, "%d layers of %d, named as %s, %s each", len(x.Layers), x.ExpertsPerLayer, x.Family, size(x.BlockBytes))
	for _, p := range x.Parts {
		how := ""
		if p.Fused {
			how = ", all experts of a layer in one tensor"
		}
		if p.Transposed {
			how += ", [in, out]"
		}
		row("  "+p.DType+fmt.Sprint(p.Shape), "%s%s", p.Tensor, how)
	}
}

// lists prints views and remarks, one a line.
func (s *summary) lists(w io.Writer) {
	line := func(format string, args ...any) { fmt.Fprintf(w, "  %s\n", oneLine(fmt.Sprintf(format, args...))) }
	fmt.Fprintf(w, "\nviews\n")
	for _, v := range s.Views {
		if v.Absent != "" {
			line("%s is absent: %s", v.Path, v.Absent)
		} else {
			line("%s", v.Path)
		}
	}
	if len(s.LeftOut)+len(s.Hidden)+len(s.Notes) == 0 {
		return
	}
	fmt.Fprintf(w, "\nremarks\n")
	for _, h := range slices.Concat(s.LeftOut, s.Hidden) {
		line("%q left out: %s", h.Path, h.Reason)
	}
	for _, n := range s.Notes {
		line("%s", n)
	}
}

// reason is why a view is absent, without saying again which.
func reason(a *transform.Absent) string {
	if a.Tensor == "" {
		return a.Reason
	}
	return "tensor " + a.Tensor + ": " + a.Reason
}
