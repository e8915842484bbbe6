//go:build !amd64 && !purego

package quant

// vector says whether the assembly kernels can run: there are none for this processor, and what stands here for them is never called.
func vector() bool { return false }

func fp4Groups32(dst, src, scales *byte, tables *[256][32]byte, n int)              {}
func fp4Groups16(dst, src, scales *byte, tables *[256][32]byte, n int)              {}
func fp4Groups16High(dst, src, scales *byte, tables *[256][32]byte, n int)          {}
func e4m3Groups32(dst, src, scales *byte, tables *[256][32]byte, n int)             {}
func lookup16Low(dst, src *byte, table *[32]byte, n int)                            {}
func lookup16High(dst, src *byte, table *[32]byte, n int)                           {}
func lookupE4M3(dst, src *byte, table *[32]byte, n int)                             {}
func affineBytes(dst, codes *byte, n int, zero, scale, bias float32)                {}
func affineSigned(dst, codes *byte, n int, zero, scale, bias float32)               {}
func affineBytesBias(dst, codes *byte, n int, zero, scale, bias float32)            {}
func affineGroups4(dst, src *byte, scales, seconds *float32, groups, units int)     {}
func affineGroups4Bias(dst, src *byte, scales, seconds *float32, groups, units int) {}
func unpackNibbles(dst, src *byte, n int)                                           {}
func castSingles(dst, src *byte, n int)                                             {}
func castHalves(dst, src *byte, n int)                                              {}

func encodeORT32(codes, values *byte, scales *uint16, zeros *byte, n int) (largest uint32) { return 0 }
func encodeORT64(codes, values *byte, scales *uint16, zeros *byte, n int) (largest uint32) { return 0 }
func encodeSymmetric32(codes, values *byte, scales *uint16, zeros *byte, n int) (largest uint32) {
	return 0
}
func encodeSymmetric64(codes, values *byte, scales *uint16, zeros *byte, n int) (largest uint32) {
	return 0
}
