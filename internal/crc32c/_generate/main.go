// Command generate writes the assembly of internal/crc32c for amd64: fold_amd64.s and its declaration. Run it in this directory:
//
//	go run . -out ../fold_amd64.s -stubs ../fold_amd64.go -pkg crc32c
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("!purego")
	TEXT("fold", NOSPLIT, "func(p *byte, blocks int, crc uint32, k *[6]uint64, out *[16]byte)")
	Pragma("noescape")
	Doc("fold leaves 16 bytes in out that have the same remainder as blocks times 256 bytes of p, whose first 32 bits crc is added to.",
		"k is the multipliers for distances of 256, 64 and 16 bytes.")
	p := Load(Param("p"), GP64())
	blocks := Load(Param("blocks"), GP64())
	crc := Load(Param("crc"), GP32())
	k := Load(Param("k"), GP64())
	far, near := ZMM(), ZMM()
	VBROADCASTI32X4(Mem{Base: k}, far)
	VBROADCASTI32X4(Mem{Base: k, Disp: 16}, near)
	next := XMM()
	VMOVDQU(Mem{Base: k, Disp: 32}, next)

	var acc [4]reg.VecVirtual // enough that none waits for its last product
	for i := range acc {
		acc[i] = ZMM()
		VMOVDQU64(Mem{Base: p, Disp: 64 * i}, acc[i])
	}
	first := ZMM()
	VMOVD(crc, first.AsX()) // the rest of it is 0
	VPXORQ(first, acc[0], acc[0])

	Label("loop")
	DECQ(blocks)
	JZ(LabelRef("done"))
	ADDQ(U32(64*len(acc)), p)
	for i, z := range acc {
		multiplyAdd(z, far, Mem{Base: p, Disp: 64 * i}, ZMM(), ZMM())
	}
	JMP(LabelRef("loop"))

	Label("done")
	for i := range acc[1:] {
		multiplyAdd(acc[i], near, acc[i+1], ZMM(), ZMM())
		VMOVDQA64(acc[i], acc[i+1])
	}
	sum := XMM()
	VEXTRACTI32X4(U8(0), acc[3], sum)
	for i := 1; i < 4; i++ {
		lane, low := XMM(), XMM()
		VEXTRACTI32X4(U8(i), acc[3], lane)
		VPCLMULQDQ(U8(0x00), next, sum, low)
		VPCLMULQDQ(U8(0x11), next, sum, sum)
		VPXOR(low, sum, sum)
		VPXOR(lane, sum, sum)
	}
	VMOVDQU(sum, Mem{Base: Load(Param("out"), GP64())})
	VZEROUPPER()
	RET()
	Generate()
}

// multiplyAdd multiplies the two halves of each 128 bits of z by those of k, and adds both products and x.
func multiplyAdd(z, k reg.VecVirtual, x Op, low, high reg.VecVirtual) {
	VPCLMULQDQ(U8(0x00), k, z, low)
	VPCLMULQDQ(U8(0x11), k, z, high)
	VMOVDQA64(low, z)
	VPTERNLOGQ(U8(0x96), x, high, z)
}
