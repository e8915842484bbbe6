//go:build !purego

package quant

// blockKernel is the assembly for a rule and block size, nil if there is none.
func blockKernel(rule Rule, block int64) *blockVectors {
	if best == nil {
		return nil
	}
	return best.blocks(rule, block)
}

// blocks is the kernel for a rule and block size, nil if there is none.
func (v *vectors) blocks(rule Rule, block int64) *blockVectors {
	for i := range v.encode {
		if k := &v.encode[i]; k.rule == rule && k.block == block {
			return k
		}
	}
	return nil
}
