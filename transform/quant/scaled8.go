package quant

import "fmt"

// scaled8 decodes one-byte codes: value = f32(code - zero) * scale, one scale for every bn columns of a row. Inputs: data, scale, and zero points
// of the scale's shape if zero is not numNone. Block, channel, tensor and group scales are all this kernel; the codec decides which rows
// share a scale.
type scaled8 struct {
	codes *[256]float32
	scale number
	bn    int
	zero  number
	// divides says that codes are divided by their scale.
	divides bool
}

// params is the kernel's part of a codec's text form.
func (k scaled8) params() string {
	if k.divides {
		return fmt.Sprintf("scale=1/%s,columns=%d", k.scale, k.bn)
	}
	if k.zero == numNone {
		return fmt.Sprintf("scale=%s,columns=%d", k.scale, k.bn)
	}
	return fmt.Sprintf("scale=%s,columns=%d,zero=%s", k.scale, k.bn, k.zero)
}

// refScaled8 is the reference kernel.
type refScaled8 struct{ scaled8 }

func (k refScaled8) decode(s *strip) error {
	for r := range s.rows {
		dst, data := s.out1(r), s.at(0, r)
		for c := s.c0; c < s.c1; c++ {
			code := k.codes[data[c-s.c0]]
			if k.zero != numNone {
				code -= k.zero.at(s.at(2, r), c/k.bn)
			}
			scale := k.scale.at(s.at(1, r), c/k.bn)
			if k.divides {
				putBF16(dst, c-s.c0, code/scale)
				continue
			}
			putBF16(dst, c-s.c0, code*scale)
		}
	}
	return nil
}
