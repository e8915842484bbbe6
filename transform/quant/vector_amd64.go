//go:build !purego

package quant

import "golang.org/x/sys/cpu"

// vector says whether the assembly kernels can run: they need AVX2 and F16C, which every processor with AVX2 has.
func vector() bool { return cpu.X86.HasAVX2 }

//go:generate sh -c "cd _generate && go run . -out ../simd_amd64.s -stubs ../simd_amd64.go -pkg quant"
