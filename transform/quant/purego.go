//go:build purego

package quant

func (k scaled8) kernel() kernel { return refScaled8{k} }
func (k fp4) kernel() kernel     { return refFP4{k} }
func (k packed) kernel() kernel  { return refPacked{k} }

func castKernel(dtype string) kernel { return refCast{castKinds[dtype]} }
func (k gptq) kernel() colKernel     { return refGPTQ{k} }
func (k bnb4) kernel() kernel        { return refBnb4{k} }
func (k hqq) kernel() kernel         { return refHQQ{k} }
func (k pairedRows) kernel() kernel  { return refPairedRows{k} }
func (k bnb8) kernel() kernel        { return refBnb8{k} }
func (k bitnet) kernel() kernel      { return refBitnet{k} }
func (k mxfp6) kernel() kernel       { return refMXFP6{k} }

// blockKernel is the assembly for a rule and block size: there is none.
func blockKernel(Rule, int64) *blockVectors { return nil }

// turnColumns writes the first columns of a transpose in vectors and returns their number: none.
func turnColumns([]byte, int64, int64, []byte, int, int, int) int { return 0 }

// Instructions names the set of processor instructions that the kernels use: none.
func Instructions() string { return "" }
