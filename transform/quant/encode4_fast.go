//go:build !purego

package quant

// runBlocks is the largest number of blocks that are encoded at once.
const runBlocks = 64

// encodeBlocks is an assembly kernel for blocks of one size and rule.
type encodeBlocks func(codes, values *byte, scales *uint16, zeros *byte, n int) (largest uint32)

// blockKernel is the assembly for the encoder's rule and block size, nil if there is none.
func (c *encoder) blockKernel() encodeBlocks {
	switch {
	case !c.vector:
	case c.rule == RuleORT && c.block == 32:
		return encodeORT32
	case c.rule == RuleORT && c.block == 64:
		return encodeORT64
	case c.rule == RuleORTSymmetric && c.block == 32:
		return encodeSymmetric32
	case c.rule == RuleORTSymmetric && c.block == 64:
		return encodeSymmetric64
	}
	return nil
}

// run encodes up to n whole blocks of a row, from block k on, in vectors, and returns how many; 0 if it cannot: another rule or block size, or a value that
// makes the block impossible, which the reference will name.
func (c *encoded) run(dst []byte, at, k, n int64, values []byte) int64 {
	kernel := c.blockKernel()
	if kernel == nil || n <= 0 {
		return 0
	}
	var codes [32 * runBlocks]byte
	var scales [runBlocks]uint16
	var zeros [runBlocks]byte
	n = min(n, runBlocks)
	if kernel(&codes[0], &values[0], &scales[0], &zeros[0], int(n)) >= 0x7F80 {
		return 0
	}
	c.put(dst, at, k, codes[:c.block/2*n], scales[:n], zeros[:n])
	return n
}
