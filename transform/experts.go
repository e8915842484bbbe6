package transform

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"weightfs/fs/plan"
	"weightfs/sources/release"
)

// blockPart is one part of every block of a class of experts.
type blockPart struct {
	projection, suffix string
	tensor             string // the release's name with {layer} and {expert}
	dtype              string
	shape              []int64 // of one expert
	size               int64
	offset             int64 // in the block
	from               *release.Part
	// pieces are the bytes of the part for the i-th layer and expert e.
	pieces func(i, e int) []plan.Piece
}

// blocks is the layout of one class of experts in one encoding: block i*perLayer+e holds expert e of the i-th layer.
type blocks struct {
	layers       []int
	perLayer     int
	size         int64 // of one block, padding included
	parts        []blockPart
	quantization any // what manifest.json says of the encoding, nil if the elements are plain
}

// encoding makes the parts of one class of experts, without offsets, and what manifest.json says of the quantization.
type encoding func(in *input, x *release.Experts) (parts []blockPart, quantization any, err error)

// name is the part's name in a manifest.
func (p *blockPart) name() string { return p.projection + "." + p.suffix }

// first is the name of the tensor that holds a part of the first expert.
func (in *input) first(x *release.Experts, p *release.Part) string {
	ref, _ := p.Ref(0, 0, x.PerLayer)
	return in.Tensor(ref).Name
}

// newBlocks lays out the experts as the preset says: each part on a multiple of PartAlign, the block padded to one of BlockAlign.
func newBlocks(in *input, x *release.Experts, l *preset) (*blocks, error) {
	enc, ok := encodingNamed(l.Encoding)
	if !ok {
		return nil, absent("", "encoding %s is unknown", l.Encoding)
	}
	parts, quantization, err := enc(in, x)
	if err != nil {
		return nil, err
	}
	if parts, err = l.order(in, x, parts); err != nil {
		return nil, err
	}
	b := &blocks{layers: x.Layers, perLayer: x.PerLayer, parts: parts, quantization: quantization}
	for p := range b.parts {
		b.parts[p].offset = roundUp(b.size, l.PartAlign)
		if l.PartsAligned && b.parts[p].offset != b.size {
			return nil, absent(in.first(x, b.parts[p].from), "part %s would begin at byte %d, which this layout wants on a multiple of %d", b.parts[p].name(), b.size, l.PartAlign)
		}
		b.size = b.parts[p].offset + b.parts[p].size
	}
	b.size = roundUp(b.size, l.BlockAlign)
	if b.size == 0 || b.size > 1<<62/int64(len(b.layers))/int64(b.perLayer) {
		return nil, absent("", "%d layers of %d blocks of %d bytes are not a file", len(b.layers), b.perLayer, b.size)
	}
	return b, nil
}

func roundUp(n, align int64) int64 { return (n + align - 1) / align * align }

// block is the plan of block k.
func (b *blocks) block(k int64) *plan.Plan {
	i, e := int(k)/b.perLayer, int(k)%b.perLayer
	var pieces []plan.Piece
	var at int64
	for p := range b.parts {
		part := &b.parts[p]
		pieces = append(pieces, plan.Zero{Size: part.offset - at})
		pieces = append(pieces, part.pieces(i, e)...)
		at = part.offset + part.size
	}
	return plan.NewBlock(append(pieces, plan.Zero{Size: b.size - at})...)
}

// file is all blocks, one after the other.
func (b *blocks) file(name string) *plan.Plan {
	return plan.New(plan.Repeat{Name: name, N: int64(len(b.layers)) * int64(b.perLayer), Stride: b.size, At: b.block})
}

// dir is blocks/: a directory a layer with a file an expert.
func (b *blocks) dir() plan.Dir {
	return layerDirs(b.layers, b.perLayer, ".bin", func(i, e int) plan.Node {
		k := int64(i)*int64(b.perLayer) + int64(e)
		return plan.Node{Size: b.size, Open: func(context.Context) (*plan.Plan, error) { return b.block(k), nil }}
	})
}

// mtpFile is mtp_blocks.bin, where the release has experts of multi-token prediction.
func mtpFile(extra *blocks) []entry {
	if extra == nil {
		return nil
	}
	return []entry{{"mtp_blocks.bin", plan.File("", extra.file("mtp_blocks.bin"))}}
}

// blockFiles are manifest.json, expert_blocks.bin and blocks/.
func blockFiles(in *input, main, extra *blocks) []entry {
	return []entry{
		{"expert_blocks.bin", plan.File("", main.file("expert_blocks.bin"))},
		{"blocks", plan.Folder("", main.dir())},
		{"manifest.json", manifestNode(in, main, extra)},
	}
}

// bytes is the size of the file of all blocks.
func (b *blocks) bytes() int64 { return int64(len(b.layers)) * int64(b.perLayer) * b.size }

// manifest is manifest.json. Its field order is the file's.
type manifest struct {
	blockManifest
	MTP    *blockManifest `json:"mtp,omitempty"`
	Source sourceManifest `json:"source"`
}

// blockManifest describes the blocks of one class.
type blockManifest struct {
	File              string         `json:"file"`
	BlockByteLength   int64          `json:"blockByteLength"`
	BlockIndexFormula string         `json:"blockIndexFormula"`
	Layers            []int          `json:"layers"`
	ExpertsPerLayer   int            `json:"expertsPerLayer"`
	Parts             []partManifest `json:"parts"`
	Quantization      any            `json:"quantization"`
	PlanDigest        string         `json:"planDigest"`
}

type partManifest struct {
	Name       string  `json:"name"`
	Offset     int64   `json:"offset"`
	ByteLength int64   `json:"byteLength"`
	DType      string  `json:"dtype"`
	Shape      []int64 `json:"shape"`
	Tensor     string  `json:"tensor"`
}

type sourceManifest struct {
	Repository string            `json:"repository"`
	Commit     string            `json:"commit"`
	Headers    map[string]string `json:"headers"` // SHA-256 of the header (its first 8+N bytes) of each shard
}

func (b *blocks) manifest(file, digest string) blockManifest {
	m := blockManifest{
		File: file, BlockByteLength: b.size, BlockIndexFormula: "layerIndex * expertsPerLayer + expert",
		Layers: b.layers, ExpertsPerLayer: b.perLayer, Quantization: b.quantization, PlanDigest: digest,
	}
	for _, p := range b.parts {
		m.Parts = append(m.Parts, partManifest{
			Name: p.name(), Offset: p.offset, ByteLength: p.size, DType: p.dtype,
			Shape: append([]int64{}, p.shape...), Tensor: p.tensor,
		})
	}
	return m
}

// manifestNode is manifest.json. Its length does not depend on the digests, which go over every block and are made when it is first
// opened.
func manifestNode(in *input, main, extra *blocks) plan.Node {
	text := func(digest func(*blocks, string) (string, error)) ([]byte, error) {
		d, err := digest(main, "expert_blocks.bin")
		if err != nil {
			return nil, err
		}
		m := manifest{blockManifest: main.manifest("expert_blocks.bin", d), Source: in.sourceManifest()}
		if extra != nil {
			if d, err = digest(extra, "mtp_blocks.bin"); err != nil {
				return nil, err
			}
			x := extra.manifest("mtp_blocks.bin", d)
			m.MTP = &x
		}
		b, err := json.MarshalIndent(m, "", "  ")
		return append(b, '\n'), err
	}
	blank, err := text(func(*blocks, string) (string, error) { return strings.Repeat("0", 64), nil })
	if err != nil {
		panic("transform: manifest.json: " + err.Error())
	}
	digested := sync.OnceValues(func() ([]byte, error) {
		return text(func(b *blocks, name string) (string, error) {
			sum, err := plan.Digest(b.file(name), in.fileName)
			return hex.EncodeToString(sum[:]), err
		})
	})
	return plan.Node{Name: "manifest.json", Size: int64(len(blank)), Open: func(context.Context) (*plan.Plan, error) {
		b, err := digested()
		if err != nil {
			return nil, fmt.Errorf("digest of the blocks: %w", err)
		}
		return literal("manifest", b), nil
	}}
}

// fileName is the path of a file of the release.
func (in *input) fileName(i int) string { return in.Listing.Files[i].Path }

func (in *input) sourceManifest() sourceManifest {
	s := sourceManifest{Repository: in.Listing.Name, Commit: in.Listing.Revision, Headers: map[string]string{}}
	for i := range in.Shards {
		sum := in.Shards[i].Header.Digest()
		s.Headers[in.Shards[i].Path] = hex.EncodeToString(sum[:])
	}
	return s
}

// native is the encoding of the release itself: every part a tensor cut to one expert, bytes and orientation kept.
func native(in *input, x *release.Experts) ([]blockPart, any, error) {
	parts := make([]blockPart, 0, len(x.Parts))
	for k := range x.Parts {
		p := &x.Parts[k]
		parts = append(parts, in.nativePart(x, p))
	}
	return parts, in.describe(x), nil
}

func (in *input) nativePart(x *release.Experts, p *release.Part) blockPart {
	return blockPart{
		projection: p.Projection, suffix: p.Suffix, tensor: p.Tensor, dtype: p.DTypeName, shape: p.Shape, size: p.Bytes, from: p,
		pieces: func(i, e int) []plan.Piece {
			ref, off := p.Ref(i, e, x.PerLayer)
			return []plan.Piece{plan.Copy{Span: span(in.Tensor(ref)).Sub(off, p.Bytes)}}
		},
	}
}

// formatManifest says how the parts of an expert are quantized.
type formatManifest struct {
	Format string `json:"format"`
	How    string `json:"how,omitempty"`
}

// describe is the quantization of the first expert, nil if its tensors are plain.
func (in *input) describe(x *release.Experts) any {
	ref, _ := x.Parts[0].Ref(0, 0, x.PerLayer)
	m, err := in.module(in.number(ref))
	if err != nil {
		return formatManifest{Format: "refused", How: err.Error()}
	}
	if m.match == nil {
		return nil
	}
	return formatManifest{Format: m.match.Format, How: m.match.How}
}
