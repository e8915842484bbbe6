//go:build amd64 && !purego

package crc32c

import "golang.org/x/sys/cpu"

//go:generate sh -c "cd _generate && go run . -out ../fold_amd64.s -stubs ../fold_amd64.go -pkg crc32c"

var wide = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VPCLMULQDQ
