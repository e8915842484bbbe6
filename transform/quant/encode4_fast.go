//go:build !purego

package quant

// runBlocks is the largest number of blocks that are encoded at once.
const runBlocks = 64

// run encodes up to n whole blocks of a row, from block k on, in vectors, and returns how many; 0 if it cannot: another rule or block size, or a value that
// makes the block impossible, which the reference will name.
func (c *encoded) run(dst []byte, at, k, n int64, values []byte) int64 {
	if c.rule != RuleORT || c.block != 32 || !c.vector || n <= 0 {
		return 0
	}
	var codes [16 * runBlocks]byte
	var scales [runBlocks]uint16
	var zeros [runBlocks]byte
	n = min(n, runBlocks)
	if encodeORT32(&codes[0], &values[0], &scales[0], &zeros[0], int(n)) >= 0x7F80 {
		return 0
	}
	c.put(dst, at, k, codes[:16*n], scales[:n], zeros[:n])
	return n
}
