package transform

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"weightfs/internal/testrel"
)

// TestFormats: bf16/ of a release in every weight format holds the one tensor that the format's vector says, and no side tensors. Plain
// dtypes are rounded by bf16-all/ only.
func TestFormats(t *testing.T) {
	for _, r := range testrel.ByName("formats") {
		t.Run(r.Name, func(t *testing.T) {
			dir, m := open(r)
			got := parse(t, dir, m, "bf16-all")
			for name, want := range r.Digests {
				d := got[name]
				if sum := fmt.Sprintf("%x", sha256.Sum256(d.data)); d.dtype != "BF16" || sum != want {
					t.Errorf("%s is %s %v, SHA-256 %s, want %s", name, d.dtype, d.shape, sum, want)
				}
				delete(got, name)
			}
			for name := range got {
				if !strings.HasSuffix(name, ".bias") && !strings.Contains(name, "norm") && !strings.Contains(name, "embed") {
					t.Errorf("%s is left over", name)
				}
			}
			config := at(t, dir, m, "bf16/config.json")
			if !json.Valid(config) || regexp.MustCompile(`(?i)quantization|compression`).Match(config) {
				t.Errorf("config.json is %s", config)
			}
			for name, d := range parse(t, dir, m, "bf16") {
				src := r.Tensor(name)
				if src != nil && src.DType.String() == d.dtype && string(src.Bytes()) != string(d.data) {
					t.Errorf("%s has the same dtype and other bytes", name)
				}
			}
		})
	}
}
