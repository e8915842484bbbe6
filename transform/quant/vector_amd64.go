//go:build !purego

package quant

import (
	"strings"

	"golang.org/x/sys/cpu"
)

//go:generate sh -c "cd _generate && go run . -out ../simd_amd64.s -stubs ../simd_amd64.go -pkg quant"

// levels are the sets of kernels for amd64, the widest first. x/sys/cpu says what the processor has and the system lets programs use.
func levels() []*vectors {
	x := &cpu.X86
	narrow := &vectors{
		name:        "AVX2",
		missing:     lacking(has{"AVX2", x.HasAVX2}), // every processor with AVX2 has F16C
		fp4Groups32: fp4Groups32, fp4Groups16: fp4Groups16, fp4Groups16High: fp4Groups16High, lookup16High: lookup16High,
		lookupE4M3: lookupE4M3, e4m3Groups32: e4m3Groups32,
		subtract4: subtract4, bias4: bias4, subtract8: subtract8, bias8: bias8, signed8: signed8, columns8: columns8,
		unpackNibbles: unpackNibbles, castSingles: castSingles, castHalves: castHalves, transposeWords: transposeWords,
		encode: []blockVectors{
			{RuleORT, 32, 1, false, encodeORT32}, {RuleORT, 64, 1, false, encodeORT64},
			{RuleORTSymmetric, 32, 1, false, encodeSymmetric32}, {RuleORTSymmetric, 64, 1, false, encodeSymmetric64},
		},
	}
	wide := &vectors{
		name: "AVX-512",
		missing: lacking(has{"AVX512F", x.HasAVX512F}, has{"AVX512BW", x.HasAVX512BW}, has{"AVX512DQ", x.HasAVX512DQ}, has{"AVX512VL", x.HasAVX512VL},
			has{"AVX512VBMI", x.HasAVX512VBMI}, has{"BMI2", x.HasBMI2}, has{"AVX2", x.HasAVX2}),
		words:       true,
		fp4Groups32: fp4Groups32Wide, fp4Groups16: fp4Groups16Wide, fp4Groups16High: fp4Groups16HighWide,
		lookupE4M3: lookupE4M3Wide, e4m3Groups32: e4m3Groups32Wide, buildTable: buildTableWide, lookupTables: lookupTablesWide,
		subtract4: subtract4Wide, bias4: bias4Wide, multiply4High: multiply4HighWide, subtract8: subtract8Wide, bias8: bias8Wide, signed8: signed8Wide, columns8: columns8,
		unpackBits: unpackBitsWide, castSingles: castSinglesWide, castHalves: castHalvesWide, transposeWords: transposeWords,
		encode: []blockVectors{
			{RuleORT, 16, 16, true, encodeORT16Wide}, {RuleORT, 32, 16, true, encodeORT32Wide}, {RuleORT, 64, 16, true, encodeORT64Wide},
			{RuleORTSymmetric, 16, 16, true, encodeSymmetric16Wide}, {RuleORTSymmetric, 32, 16, true, encodeSymmetric32Wide},
			{RuleORTSymmetric, 64, 16, true, encodeSymmetric64Wide}, {RuleWebAI, 32, 16, true, encodeWebAI32Wide},
		},
	}
	return []*vectors{wide, narrow}
}

// has is one feature of the processor.
type has struct {
	name string
	is   bool
}

// lacking names the features that are not there.
func lacking(features ...has) string {
	var list []string
	for _, f := range features {
		if !f.is {
			list = append(list, f.name)
		}
	}
	return strings.Join(list, " ")
}
