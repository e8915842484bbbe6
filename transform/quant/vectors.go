//go:build !purego

package quant

// vectors are the assembly kernels for one set of processor instructions. Each does what a Go kernel of the package does, bit for bit. nil is none.
type vectors struct {
	name    string
	missing string // the instructions that this processor (or its system) lacks for them, "" if it has all

	// words says that tables of 16 entries are words, not planes.
	words bool
	// fp4Groups32 decodes n times 32 codes of 4 bits through the table of their scale byte; 16 has a scale byte for 16 codes, High the high nibble first.
	fp4Groups32, fp4Groups16, fp4Groups16High func(dst, src, scales *byte, tables *[256][32]byte, n int)
	// lookup16High decodes n times 32 codes of 4 bits through one table, the high nibble first.
	lookup16High func(dst, src *byte, table *[32]byte, n int)
	// lookupE4M3 decodes blocks times n times 32 E4M3 codes, each block through a table (see e4m3Table); e4m3Groups32 each 32 through the table of their
	// scale byte.
	lookupE4M3   func(dst, src *byte, tables *[32]byte, n, blocks int)
	e4m3Groups32 func(dst, src, scales *byte, tables *[256][32]byte, n int)
	// buildTable makes bf16(f32(value-zero)*scale) of every code: 256 low bytes, then 256 high bytes. lookupTables decodes blocks times n codes, each block
	// through its table.
	buildTable   func(table *[512]byte, values *[256]float32, zero, scale float32)
	lookupTables func(dst, src *byte, tables *[512]byte, n, blocks int)
	// Groups of units times 32 codes of 4 bits, each with its own parameters: subtract4 makes bf16(f32(value-second)*scale), bias4
	// bf16(f32(value*scale)+second), the low nibble first; multiply4High bf16(value*scale), the high nibble first. values are those of the 16 codes.
	subtract4, bias4, multiply4High func(dst, src *byte, values *[16]float32, scales, seconds *float32, groups, units int)
	// The same of one-byte codes, in groups of units times 16: unsigned ones for the first two, signed ones for the third.
	subtract8, bias8, signed8 func(dst, codes *byte, scales, seconds *float32, groups, units int)
	// columns8 makes bf16(f32(code-zero)*scale) of n times 16 codes, each with its own parameters.
	columns8 func(dst, codes *byte, scales, zeros *float32, n int)
	// unpackNibbles writes n times 32 codes of 4 bits as bytes, unpackBits n times 64 of any width, the low bits first.
	unpackNibbles func(dst, src *byte, n int)
	unpackBits    func(dst, src *byte, n, bits int)
	// castSingles and castHalves round n times 16 elements.
	castSingles, castHalves func(dst, src *byte, n int)
	// transposeWords transposes rows by columns words, of which rows is a multiple of 16 and columns one of 8; strides are bytes between rows.
	transposeWords func(dst, src *byte, dstStride, srcStride, rows, columns int)
	// encode has the kernels for 4-bit blocks, by rule and size.
	encode []blockVectors
}

// best is the assembly that this processor can run, nil if none.
var best = func() *vectors {
	for _, v := range levels() {
		if v.missing == "" {
			return v
		}
	}
	return nil
}()

// Instructions names the set of processor instructions that the kernels use, "AVX-512" or "AVX2"; "" if they are plain Go.
func Instructions() string {
	if best == nil {
		return ""
	}
	return best.name
}
