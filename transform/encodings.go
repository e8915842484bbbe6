package transform

import (
	"fmt"

	"weightfs/fs/plan"
	"weightfs/sources/release"
	"weightfs/transform/quant"
)

// encodingRow is one way to write an expert.
type encodingRow struct {
	name, about string
	parts       encoding
}

// encodings lists the encodings that experts/ has under their own names.
func encodings() []encodingRow {
	rows := []encodingRow{
		{"native", "One aligned block per routed expert with the release's own bytes: expert_blocks.bin, the same blocks one by one in blocks/, and manifest.json, which says where the parts are.", native},
		{"bf16", "As experts/native/, with parts gate, up and down as BF16 matrices of [out, in].", bf16Experts},
	}
	for _, scheme := range []struct {
		name string
		rule quant.Rule
	}{{"sym", quant.RuleORTSymmetric}, {"asym", quant.RuleORT}} {
		for _, block := range []int64{16, 32, 64} {
			rows = append(rows, encodingRow{
				fmt.Sprintf("q4-%s-%d", scheme.name, block),
				fmt.Sprintf("As experts/bf16/, in 4 bits: %smetric, blocks of %d columns, as ONNX Runtime's MatMulNBits reads them and its own quantizer makes them.", scheme.name, block),
				q4(scheme.rule, block),
			})
		}
	}
	return rows
}

// encodingNamed finds an encoding, those of presets included.
func encodingNamed(name string) (encoding, bool) {
	for _, e := range encodings() {
		if e.name == name {
			return e.parts, true
		}
	}
	if name == "q4-webai-32" {
		return q4(quant.RuleWebAI, 32), true
	}
	return nil, false
}

// q4Manifest is what manifest.json says of 4-bit blocks.
type q4Manifest struct {
	Bits                   int    `json:"bits"`
	BlockSize              int64  `json:"blockSize"`
	Scheme                 string `json:"scheme"`
	Rule                   string `json:"rule"`
	ZeroPointIsStored      bool   `json:"zeroPointIsStored"`
	ScalesAreHalfPrecision bool   `json:"scalesAreHalfPrecision"`
	StoredValueMeaning     string `json:"storedValueMeaning"`
}

// q4 is the encoding in 4-bit blocks: of every matrix of bf16Experts the codes, the scales and (unless they are 8 throughout) the zero
// points. What is no matrix stays as it is there.
func q4(rule quant.Rule, block int64) encoding {
	return func(in *input, x *release.Experts) ([]blockPart, any, error) {
		parts, _, err := bf16Experts(in, x)
		if err != nil {
			return nil, nil, err
		}
		var out []blockPart
		for _, p := range parts {
			if p.suffix != "weight" || len(p.shape) != 2 {
				out = append(out, p)
				continue
			}
			encoded, err := p.encoded(rule, block)
			if err != nil {
				return nil, nil, absent(in.first(x, p.from), "%v", err)
			}
			out = append(out, encoded...)
		}
		m := q4Manifest{4, block, "asymmetric", rule.String(), true, true, "(stored - zeroPoint) * scale"}
		if rule == quant.RuleORTSymmetric {
			m.Scheme, m.ZeroPointIsStored, m.StoredValueMeaning = "symmetric", false, "(stored - 8) * scale"
		}
		return out, m, nil
	}
}

// encoded is a matrix in 4-bit blocks, as its parts.
func (p blockPart) encoded(rule quant.Rule, block int64) ([]blockPart, error) {
	rows, cols := p.shape[0], p.shape[1]
	encode := func(i, e int) (quant.Encoded, []plan.Span, error) {
		inner, inputs := asCodec(p.pieces(i, e)[0], rows, cols)
		inner, dtype, _ := unrounded(inner)
		enc, err := quant.Encode4(inner, dtype, rows, cols, block, rule)
		return enc, inputs, err
	}
	if _, _, err := encode(0, 0); err != nil {
		return nil, err
	}
	blocks := (cols + block - 1) / block
	var out []blockPart
	add := func(suffix, dtype string, of func(quant.Encoded) plan.Codec, shape ...int64) {
		size := count(shape)
		if dtype == "F16" {
			size *= 2
		}
		out = append(out, blockPart{
			projection: p.projection, suffix: suffix, tensor: p.tensor, dtype: dtype, shape: shape, size: size, from: p.from,
			pieces: func(i, e int) []plan.Piece {
				enc, inputs, err := encode(i, e)
				if err != nil {
					panic("transform: encoded before: " + err.Error())
				}
				name := func() string { return fmt.Sprintf("%s of expert %d in block layer %d", p.tensor, e, i) }
				return []plan.Piece{plan.Decode{Codec: quant.Named(of(enc), name), Inputs: inputs, Size: size}}
			},
		})
	}
	add("weight", "U8", func(e quant.Encoded) plan.Codec { return e.Data }, rows, blocks, block/2)
	add("scales", "F16", func(e quant.Encoded) plan.Codec { return e.Scales }, rows, blocks)
	if rule != quant.RuleORTSymmetric {
		add("zero_points", "U8", func(e quant.Encoded) plan.Codec { return e.Zeros }, rows, (blocks+1)/2)
	}
	return out, nil
}

// unrounded is a matrix of BF16 elements before plain F16 or F32 ones were rounded: what 4-bit blocks are made of, as ONNX Runtime makes them of the
// release's own numbers. width is that of an element.
func unrounded(c plan.Codec) (inner plan.Codec, dtype string, width int64) {
	if s, ok := c.(strided); ok {
		s.inner, dtype, s.width = unrounded(s.inner)
		return s, dtype, s.width
	}
	switch dtype := quant.CastFrom(c); dtype {
	case "F16":
		return raw{c.InputLens()[0]}, dtype, 2
	case "F32":
		return raw{c.InputLens()[0]}, dtype, 4
	}
	return c, "BF16", 2
}

// asCodec is a piece of rows x cols BF16 elements as a codec and its inputs.
func asCodec(x plan.Piece, rows, cols int64) (plan.Codec, []plan.Span) {
	switch x := x.(type) {
	case plan.Copy:
		return raw{x.Span.Len()}, []plan.Span{x.Span}
	case plan.Rows:
		stretch := x.First
		stretch.End = stretch.Start + (x.Count-1)*x.Stride + x.First.Len()
		return strided{raw{stretch.Len()}, 2, 0, rows, cols, x.Stride / 2, 1}, []plan.Span{stretch}
	case plan.Decode:
		if x.Off == 0 && x.Size == x.Codec.Len() {
			return x.Codec, x.Inputs
		}
		return strided{x.Codec, 2, x.Off / 2, rows, cols, cols, 1}, x.Inputs
	}
	panic(fmt.Sprintf("transform: a matrix made of %T", x))
}
