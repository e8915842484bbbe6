//go:build purego

package quant

func (k scaled8) kernel() kernel { return refScaled8{k} }
func (k fp4) kernel() kernel     { return refFP4{k} }
func (k packed) kernel() kernel  { return refPacked{k} }

func castKernel(dtype string) kernel { return refCast{castKinds[dtype]} }
func (k gptq) kernel() colKernel     { return refGPTQ{k} }
func (k bnb4) kernel() kernel        { return refBnb4{k} }

func vector() bool { return false }

func (c *encoded) run([]byte, int64, int64, int64, []byte) int64 { return 0 }
