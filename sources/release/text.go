package release

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
)

// WriteText writes a summary for people. Whatever comes from the release's files is escaped.
func WriteText(w io.Writer, s Summary) error {
	t := &textWriter{w: w}
	t.line("release", "%s", clean(s.Name))
	if s.Revision != "" {
		t.line("revision", "%s", clean(s.Revision))
	}
	if s.Time != nil {
		t.line("date", "%s", s.Time.UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	t.line("shards", "%s, headers of %s%s", humanize.Comma(int64(s.Shards)), size(s.HeaderBytes), indexed(s.Index))
	t.line("tensors", "%s, %s", humanize.Comma(int64(s.Tensors)), size(s.Bytes))
	t.line("parameters", "%s%s", humanize.Comma(s.Parameters), notCounted(s.NotCounted))
	for _, d := range s.DTypes {
		t.line("  "+clean(d.DType), "%s, %s", count(d.Tensors, "tensor"), size(d.Bytes))
	}
	t.declared(s.Declared)
	t.line("resident", "%s, %s", count(s.Resident.Tensors, "tensor"), size(s.Resident.Bytes))
	t.experts("routed experts", s.Experts, s.NoExperts)
	t.experts("MTP experts", s.MTP, s.NoMTP)
	t.list("files left out", s.LeftOut)
	t.list("files hidden", s.HiddenFiles)
	for _, n := range s.Notes {
		t.line("note", "%s", clean(n))
	}
	return t.err
}

// textWriter writes lines of a label and a text, and keeps the first error.
type textWriter struct {
	w   io.Writer
	err error
}

func (t *textWriter) line(label, format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, "%-24s %s\n", label, fmt.Sprintf(format, args...))
	}
}

func (t *textWriter) declared(d DeclaredSummary) {
	var said []string
	add := func(what string, v any) {
		if v != "" && v != int64(0) {
			said = append(said, fmt.Sprintf("%s %v", what, v))
		}
	}
	add("model_type", clean(d.ModelType))
	add("dtype", clean(d.DType))
	add("hidden size", d.Hidden)
	add("layers", d.Layers)
	add("experts", d.Experts)
	add("intermediate size", d.Intermediate)
	add("MoE intermediate size", d.MoEIntermediate)
	for _, where := range d.Quantization {
		add("quantization in", clean(where))
	}
	if len(said) > 0 {
		t.line("config says", "%s", strings.Join(said, ", "))
	}
}

func (t *textWriter) experts(label string, x *ExpertSummary, reason string) {
	if x == nil {
		t.line(label, "none: %s", clean(reason))
		return
	}
	t.line(label, "%s x %s, %s, %s", count(len(x.Layers), "layer"), count(x.PerLayer, "expert"), count(x.Tensors, "tensor"), size(x.Bytes))
	form := "one tensor an expert and projection"
	if x.Fused {
		form = "one tensor a layer and projection"
	}
	if x.GateUp != "" {
		form += ", gate and up in one: " + x.GateUp
	}
	t.line("  form", "%s under %s, %s, each %s", clean(x.Family), clean(x.Prefix), form, x.Orientation)
	t.line("  layers", "%s", layerRanges(x.Layers))
	if x.Hidden != 0 {
		t.line("  widths", "hidden %d, intermediate %d", x.Hidden, x.Intermediate)
	}
	t.line("  block", "%s an expert; %s with parts on 256 and blocks on 4096", size(x.BlockBytes), size(x.BlockByteLength))
	for _, p := range x.Parts {
		t.line("  "+clean(p.Name), "%s%v, %s, %s", clean(p.DType), p.Shape, size(p.Bytes), clean(p.Tensor))
	}
	t.line("  ranges", "%s", countsText(x.Ranges, "expert", "range"))
	t.line("  shards", "%s; %s of %s experts are split over shards", countsText(x.ShardsPerLayer, "layer", "shard"),
		humanize.Comma(int64(x.Split)), humanize.Comma(int64(len(x.Layers)*x.PerLayer)))
	a := x.Alignment
	n := func(n int) string { return humanize.Comma(int64(n)) }
	t.line("  alignment", "of %s starts %s are odd, %s on a multiple of 8, %s of 64, %s of 512, %s of 4096",
		n(a.Starts), n(a.Odd), n(a.By8), n(a.By64), n(a.By512), n(a.By4096))
}

// mostListed is how many files of a list are printed.
const mostListed = 40

func (t *textWriter) list(label string, files []LeftOut) {
	for i, f := range files {
		if i == mostListed {
			t.line(label, "%d more", len(files)-i)
			return
		}
		text := clean(f.Path)
		if f.Bytes > 0 {
			text += ", " + size(f.Bytes)
		}
		t.line(label, "%s: %s", text, clean(f.Reason))
	}
}

// clean is text of unknown origin: as it is if it is printable ASCII, else in quotes and escaped.
func clean(s string) string {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return strconv.QuoteToASCII(s)
		}
	}
	return s
}

func size(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%s bytes (%s)", humanize.Comma(n), humanize.Bytes(uint64(n)))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return humanize.Comma(int64(n)) + " " + what + "s"
}

func indexed(index string) string {
	if index == "" {
		return ""
	}
	return ", named by " + clean(index)
}

func notCounted(name string) string {
	if name == "" {
		return ""
	}
	return " without those of tensors like " + clean(name) + ", whose packing the headers do not tell"
}

// countsText says how often each number occurs: "6,144 experts in 4 ranges, 12 experts in 5 ranges".
func countsText(counts []Count, who, what string) string {
	var parts []string
	for _, c := range counts {
		parts = append(parts, count(c.Times, who)+" in "+count(c.Number, what))
	}
	return strings.Join(parts, ", ")
}

// layerRanges is ascending numbers, runs joined: "1-60, 62".
func layerRanges(layers []int) string {
	var parts []string
	for i := 0; i < len(layers); {
		j := i
		for j+1 < len(layers) && layers[j+1] == layers[j]+1 {
			j++
		}
		part := strconv.Itoa(layers[i])
		if j > i {
			part += "-" + strconv.Itoa(layers[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ", ")
}
