package quant

import (
	"fmt"
	"math"

	"github.com/x448/float16"

	"weightfs/fs/plan"
)

// Rule is a way to choose the scale and zero point of a block of 4-bit codes.
type Rule uint8

const (
	// RuleORT is ONNX Runtime's asymmetric quantizer for MatMulNBits (onnxruntime core/mlas/lib/q4_dq.cpp), with F16 scales:
	//
	//	mn = min(values, 0), mx = max(values, 0), s = f32(f32(mx-mn)/15)
	//	zero = round(clamp(0 - f32(mn/s), 0, 15)), halves away from zero; 0 where s = 0
	//	S = F16(s), r = f32(1/S) or 0, code = clamp(round(f32(f32(x*r) + zero)), 0, 15)
	RuleORT Rule = iota
	// RuleORTSymmetric is its symmetric one: S = F16(-x/8) for the x of larger magnitude among mn and mx (mn if equal), zero = 8, codes as above.
	RuleORTSymmetric
	// RuleWebAI is the quantizer of the published webai-at-home expert blocks, in binary64: s = (max-min)/15 over the values as they are, or 1 if they
	// are all equal; zero = clamp(round(-min/s)), code = clamp(round(x/s) + zero), halves up; S = F16(F32(s)); columns past the end have the zero
	// point as their code.
	RuleWebAI
)

func (r Rule) String() string { return [...]string{"ort", "ort-symmetric", "webai"}[r] }

// Encoded are the codecs of a matrix in 4-bit blocks, as MatMulNBits wants it. All have the inputs of the codec they were made from.
type Encoded struct {
	Data   plan.Codec // U8 [rows, blocks, block/2], the low nibble the even column; columns past the end have code 0 (RuleWebAI: the zero point)
	Scales plan.Codec // F16 [rows, blocks]
	Zeros  plan.Codec // U8 [rows, ceil(blocks/2)], the low nibble the even block; nil for RuleORTSymmetric
}

// encodable are the dtypes of values that are encoded, all of them exact in binary32, which the rules take.
var encodable = map[string]number{"BF16": numBF16, "F16": numF16, "F32": numF32}

// Encode4 makes 4-bit blocks of the output of inner, [rows, cols] of dtype BF16, F16 or F32. block is 16, 32, 64 or 128 columns. A block with an infinite
// value or a NaN, or whose scale F16 cannot hold, is an error of the read that wraps [plan.ErrBadInput].
func Encode4(inner plan.Codec, dtype string, rows, cols, block int64, rule Rule) (Encoded, error) {
	values, known := encodable[dtype]
	if !known {
		return Encoded{}, fmt.Errorf("4-bit blocks of %s are unknown", dtype)
	}
	n, ok := product(rows, cols, values.size())
	if !ok || inner.Len() != n {
		return Encoded{}, fmt.Errorf("4-bit blocks of %s[%d, %d]: %s has %d bytes", dtype, rows, cols, inner, inner.Len())
	}
	if block != 16 && block != 32 && block != 64 && block != 128 {
		return Encoded{}, fmt.Errorf("4-bit blocks of %d columns are unknown", block)
	}
	c := encoder{inner: inner, values: values, rows: rows, cols: cols, block: block, blocks: ceilDiv(cols, block), rule: rule}
	if values == numBF16 {
		c.kernel = blockKernel(rule, block)
	}
	out := Encoded{Data: &encoded{c, partData}, Scales: &encoded{c, partScales}}
	if rule != RuleORTSymmetric {
		out.Zeros = &encoded{c, partZeros}
	}
	return out, nil
}

// encoder is what the parts share.
type encoder struct {
	inner      plan.Codec
	values     number // of inner
	rows, cols int64
	block      int64 // columns
	blocks     int64 // in a row
	rule       Rule
	kernel     *blockVectors // nil: none
}

// blockVectors encodes blocks of one size by one rule, n batches at a time; a batch is so many blocks. largest is 7F80h or more if a block is impossible.
// codes may be nil if scalesAlone says so.
type blockVectors struct {
	rule        Rule
	block       int64
	batch       int64
	scalesAlone bool
	encode      func(codes, values *byte, scales *uint16, zeros *byte, n int) (largest uint32)
}

// encodedPart is which of the tensors a codec makes.
type encodedPart uint8

const (
	partData encodedPart = iota
	partScales
	partZeros
)

// encoded is the codec of one part.
type encoded struct {
	encoder
	part encodedPart
}

func (c *encoded) String() string {
	dtype := ""
	if c.values != numBF16 {
		dtype = c.values.String()
	}
	return fmt.Sprintf("encode4(%s,%s,block=%d,%s[%d,%d] of %s)", [...]string{"data", "scales", "zeros"}[c.part], c.rule, c.block, dtype, c.rows, c.cols, c.inner)
}

// rowBytes is the number of bytes of a row of the part.
func (c *encoded) rowBytes() int64 {
	return [...]int64{c.blocks * c.block / 2, c.blocks * 2, ceilDiv(c.blocks, 2)}[c.part]
}

func (c *encoded) Len() int64         { return c.rows * c.rowBytes() }
func (c *encoded) InputLens() []int64 { return c.inner.InputLens() }

// Tile is the part's share of the inner codec's tile.
func (c *encoded) Tile() int64 {
	return max(c.inner.Tile()/(c.values.size()*c.cols), 1) * c.rowBytes()
}

// blocksAt are the blocks that an output range needs, counted over all rows. A byte of zero points holds two blocks of one row.
func (c *encoded) blocksAt(off, n int64) (b0, b1 int64) {
	at := func(off int64) (first, last int64) {
		row, x := off/c.rowBytes(), off%c.rowBytes()
		switch c.part {
		case partData:
			first, last = x*2/c.block, x*2/c.block
		case partScales:
			first, last = x/2, x/2
		default:
			first, last = 2*x, min(2*x+1, c.blocks-1)
		}
		return row*c.blocks + first, row*c.blocks + last + 1
	}
	b0, _ = at(off)
	_, b1 = at(off + n - 1)
	return b0, b1
}

// window is the byte range of the inner output that holds blocks [b0, b1).
func (c *encoder) window(b0, b1 int64) (off, n int64) {
	start := b0/c.blocks*c.cols + b0%c.blocks*c.block
	last := b1 - 1
	end := last/c.blocks*c.cols + min((last%c.blocks+1)*c.block, c.cols)
	return c.values.size() * start, c.values.size() * (end - start)
}

func (c *encoded) Needs(off, n int64) []plan.Need {
	if n <= 0 {
		return nil
	}
	return c.inner.Needs(c.window(c.blocksAt(off, n)))
}

// encodeStep is the number of inner bytes that are decoded at a time where the inner codec does not mind.
const encodeStep = 256 << 10

func (c *encoded) Decode(dst []byte, off int64, in [][]byte) error {
	if len(dst) == 0 {
		return nil
	}
	b0, b1 := c.blocksAt(off, int64(len(dst)))
	at, n := c.window(b0, b1)
	src := source{codec: c.inner, needs: c.inner.Needs(at, n), in: in}
	step := b1 - b0
	if c.inner.Tile() <= maxTile {
		step = max(encodeStep/(c.values.size()*c.block), 2)
	}
	var scratch []byte
	for b := b0; b < b1; b += step {
		end := min(b+step, b1)
		at, n := c.window(b, end)
		if scratch == nil {
			scratch = make([]byte, n+c.values.size()*c.block)
		}
		values := grow(&scratch, n)
		if err := src.decode(values, at); err != nil {
			return err
		}
		if err := c.encode(dst, off, b, end, values); err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
	}
	return nil
}

// grow is the first n bytes of *scratch, made anew if it is too short.
func grow(scratch *[]byte, n int64) []byte {
	if int64(len(*scratch)) < n {
		*scratch = make([]byte, n)
	}
	return (*scratch)[:n]
}

// source is a codec with the bytes for a window of its output.
type source struct {
	codec plan.Codec
	needs []plan.Need
	in    [][]byte
}

// decode fills dst with the codec's output from off, which must lie in the window.
func (s *source) decode(dst []byte, off int64) error {
	needs := s.codec.Needs(off, int64(len(dst)))
	in := make([][]byte, len(needs))
	k := 0
	for i, n := range needs {
		tries := 0
		for ; tries < len(s.needs); tries++ {
			have := s.needs[k]
			if have.Input == n.Input && have.Start <= n.Start && n.End <= have.End {
				in[i] = s.in[k][n.Start-have.Start : n.End-have.Start]
				break
			}
			k = (k + 1) % len(s.needs) // most often they come in the same order
		}
		if tries == len(s.needs) {
			return fmt.Errorf("%s needs [%d, %d) of input %d for a part, but not for the whole", s.codec, n.Start, n.End, n.Input)
		}
	}
	return s.codec.Decode(dst, off, in)
}

// block4 is an encoded block.
type block4 struct {
	scale uint16 // F16
	zero  byte
	codes [128]byte
}

// encode makes the bytes of blocks [b0, b1) and copies those that lie in dst, which begins at output offset off. values are the blocks' values.
func (c *encoded) encode(dst []byte, off, b0, b1 int64, values []byte) error {
	var b block4
	run := c.newRun()
	for i := b0; i < b1; i++ {
		row, k := i/c.blocks, i%c.blocks
		at := row*c.rowBytes() - off
		if n := run.encode(dst, at, k, c.together(i, b1), values); n > 0 {
			values, i = values[2*c.block*n:], i+n-1
			continue
		}
		n := min(c.block, c.cols-k*c.block)
		if !c.quantize(&b, values[:c.values.size()*n]) {
			return fmt.Errorf("row %d, block %d has a value or scale that is infinite or no number: %w", row, k, plan.ErrBadInput)
		}
		values = values[c.values.size()*n:]
		c.pack(&b, int(n))
		c.put(dst, at, k, b.codes[:c.block/2], []uint16{b.scale}, []byte{b.zero})
	}
	return nil
}

// together is the number of whole blocks from block i on, below b1, that lie together in values and in the part: those of a row, or of all rows.
func (c *encoded) together(i, b1 int64) int64 {
	if c.cols%c.block == 0 && (c.part != partZeros || c.blocks%2 == 0) {
		return b1 - i
	}
	return min(b1-i, c.cols/c.block-i%c.blocks)
}

// blockRun is memory for blocks that a kernel encodes at once.
type blockRun struct {
	c      *encoded
	codes  []byte
	scales []uint16
	zeros  []byte
	values []byte // of a batch
}

// runBlocks is the largest number of blocks that are encoded at once.
const runBlocks = 256

// newRun is nil if there is no kernel.
func (c *encoded) newRun() *blockRun {
	if c.kernel == nil {
		return nil
	}
	return &blockRun{c, make([]byte, c.block/2*runBlocks), make([]uint16, runBlocks), make([]byte, runBlocks), make([]byte, 2*c.block*c.kernel.batch)}
}

// encode encodes up to n whole blocks that lie together, from block k of a row on, and returns how many; 0 if it cannot, for want of a kernel or because
// of a value that makes a block impossible, which the reference will name.
func (r *blockRun) encode(dst []byte, at, k, n int64, values []byte) int64 {
	if r == nil || n <= 0 {
		return 0
	}
	c, batch := r.c, r.c.kernel.batch
	n = min(n, runBlocks)
	if n < batch {
		clear(r.values[copy(r.values, values[:2*c.block*n]):])
		values = r.values
	} else {
		n -= n % batch
	}
	codes := r.codes
	if to := at + k*c.block/2; c.part == partData && n >= batch && to >= 0 && to+n*c.block/2 <= int64(len(dst)) {
		codes = dst[to:]
	}
	var first *byte
	if c.part == partData || !c.kernel.scalesAlone {
		first = &codes[0]
	}
	if c.kernel.encode(first, &values[0], &r.scales[0], &r.zeros[0], int(max(n/batch, 1))) >= 0x7F80 {
		return 0
	}
	if c.part != partData || &codes[0] == &r.codes[0] {
		c.put(dst, at, k, r.codes[:c.block/2*n], r.scales[:n], r.zeros[:n])
	}
	return n
}

// put copies what belongs to the part of consecutive blocks of one row, from block k on, to the row's bytes at dst[at:].
func (c *encoded) put(dst []byte, at, k int64, codes []byte, scales []uint16, zeros []byte) {
	switch c.part {
	case partData:
		placeBytes(dst, at+k*c.block/2, codes)
	case partScales:
		for i, s := range scales {
			placeBytes(dst, at+2*(k+int64(i)), []byte{byte(s), byte(s >> 8)})
		}
	default:
		for i, z := range zeros {
			c.placeZero(dst, at+(k+int64(i))/2, k+int64(i), z)
		}
	}
}

// placeZero writes the nibble of block k of a row. The even block clears the other nibble.
func (c *encoded) placeZero(dst []byte, at, k int64, zero byte) {
	if at < 0 || at >= int64(len(dst)) {
		return
	}
	if k%2 == 0 {
		dst[at] = zero
	} else {
		dst[at] |= zero << 4
	}
}

// placeBytes copies src to dst[at:], leaving out what lies outside.
func placeBytes(dst []byte, at int64, src []byte) {
	if at < 0 {
		src = src[min(-at, int64(len(src))):]
		at = 0
	}
	if at < int64(len(dst)) {
		copy(dst[at:], src)
	}
}

// pack joins the first n codes and those past the end of the row in pairs, in place.
func (c *encoder) pack(b *block4, n int) {
	var past byte
	if c.rule == RuleWebAI {
		past = b.zero
	}
	for i := n; i < int(c.block); i++ {
		b.codes[i] = past
	}
	for i := range int(c.block) / 2 {
		b.codes[i] = b.codes[2*i] | b.codes[2*i+1]<<4
	}
}

// quantize encodes one block; false if it has no finite scale.
func (c *encoder) quantize(b *block4, values []byte) bool {
	var x [128]float32
	n := len(values) / int(c.values.size())
	c.values.read(x[:n], values)
	if c.rule == RuleWebAI {
		return quantizeWebAI(b, x[:n])
	}
	return quantizeORT(b, x[:n], c.rule == RuleORTSymmetric)
}

// finite says whether f is a number and not infinite.
func finiteF32(f float32) bool { return math.Float32bits(f)&0x7F800000 != 0x7F800000 }

func quantizeORT(b *block4, x []float32, symmetric bool) bool {
	var mn, mx float32
	for _, v := range x {
		if !finiteF32(v) {
			return false
		}
		if v < mn { // not min and max, to which -0 is less than 0
			mn = v
		}
		if v > mx {
			mx = v
		}
	}
	s := float32(mx-mn) / 15
	if symmetric {
		s = mx / -8
		if mx <= -mn {
			s = mn / -8
		}
		b.zero = 8
	} else {
		b.zero = ortZero(mn, s)
	}
	half := float16.Fromfloat32(s)
	S := half.Float32()
	if !finiteF32(S) {
		return false
	}
	b.scale = half.Bits()
	var r float32
	if S != 0 {
		r = 1 / S
	}
	zero := float32(b.zero)
	for i, v := range x {
		b.codes[i] = roundCode(float32(v*r) + zero)
	}
	return true
}

// ortZero is the zero point for the smallest value and the unrounded scale.
func ortZero(mn, s float32) byte {
	z := mn
	if s != 0 {
		z = 0 - float32(mn/s)
	}
	return roundCode(z)
}

// roundCode rounds to the nearest integer, halves away from zero as C's roundf does, within 0 to 15: what is below rounds to 0 or less.
func roundCode(f float32) byte {
	if !(f > 0) {
		return 0
	}
	if f >= 15 {
		return 15
	}
	n := int32(f)
	if f-float32(n) >= 0.5 {
		n++
	}
	return byte(n)
}

func quantizeWebAI(b *block4, x []float32) bool {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, v := range x {
		if !finiteF32(v) {
			return false
		}
		lo, hi = min(lo, float64(v)), max(hi, float64(v))
	}
	s := float64(hi-lo) / 15
	if hi == lo {
		s = 1
	}
	half := float16.Fromfloat32(float32(s))
	if !finiteF32(half.Float32()) {
		return false
	}
	b.scale = half.Bits()
	zero := min(max(roundUp(-lo/s), 0), 15)
	b.zero = byte(zero)
	for i, v := range x {
		b.codes[i] = byte(min(max(roundUp(float64(v)/s)+zero, 0), 15))
	}
	return true
}

// roundUp rounds to the nearest integer, halves up as JavaScript's Math.round does. Numbers beyond a hundred, which no code is near, count as a hundred.
func roundUp(f float64) int32 {
	if f > 100 {
		return 100
	}
	if f < -100 {
		return -100
	}
	n := int32(f)
	if float64(n) > f {
		n--
	}
	if f-float64(n) >= 0.5 {
		n++
	}
	return n
}
